// Small pictures of failed pictures, in report.html.
#include "apps/page/thumbnails.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "apps/page/report_page.hpp"
#include "base/json.hpp"
#include "io/decode/decode.hpp"
#include "io/files/base64.hpp"
#include "io/sinks/image_write.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

void write(const std::string& file, const Bytes& bytes) {
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

/// A JPEG with dark rows above and bright rows below; `noise` adds details that compress badly.
Bytes picture(int width, int height, bool noise = false) {
  Bytes pixels;
  std::uint32_t random = 1;
  for (int y = 0; y < height; ++y) {
    for (int i = 0; i < 3 * width; ++i) {
      random = random * 1664525 + 1013904223;
      pixels.push_back(noise ? static_cast<std::uint8_t>(random >> 24) : y < height / 2 ? 40 : 200);
    }
  }
  return encode_jpeg(pixels.data(), width, height, 90);
}

struct Shown {
  Bytes bytes;
  Decoded decoded;
  int grey(int row) const {  // of the middle of a row
    const PixelBuffer& pixels = decoded.pixels;
    return pixels.data.get()[3 * (row * pixels.width + pixels.width / 2)];
  }
};

Shown decoded(const Json& thumbnail) {
  const std::string text = from_base64(thumbnail.at("jpeg").get<std::string>());
  Shown shown{Bytes(text.begin(), text.end()), {}};
  const DecodeLimits limits;
  shown.decoded = decode(shown.bytes, probe(shown.bytes, limits), limits, [](std::size_t bytes) {
    return std::shared_ptr<std::uint8_t>(new std::uint8_t[bytes], std::default_delete<std::uint8_t[]>());
  });
  CHECK(shown.decoded.info.width == thumbnail.at("width"));
  CHECK(shown.decoded.info.height == thumbnail.at("height"));
  return shown;
}

TEST_CASE("a thumbnail is the whole picture, small; a picture that breaks off is shown as far as it goes") {
  const TemporaryFolder folder;
  const Bytes whole = picture(1000, 500);
  write(folder.path() + "/whole.jpg", whole);
  write(folder.path() + "/cut.jpg", Bytes(whole.begin(), whole.begin() + std::ssize(whole) * 3 / 4));
  Thumbnails thumbnails(folder.path());

  const Shown small = decoded(thumbnails.make("whole.jpg"));
  CHECK(small.decoded.info.width == 167);  // a sixth
  CHECK(small.decoded.info.height == 84);
  CHECK(small.grey(10) == doctest::Approx(40).epsilon(0.1));
  CHECK(small.grey(70) == doctest::Approx(200).epsilon(0.1));
  CHECK(decoded(thumbnails.make(folder.path() + "/whole.jpg")).bytes == small.bytes);  // an absolute path

  const Shown part = decoded(thumbnails.make("cut.jpg"));
  CHECK(part.decoded.info.height == 84);
  CHECK(part.grey(10) == doctest::Approx(40).epsilon(0.1));
}

TEST_CASE("a file that cannot be shown gives a sentence, and a pipe does not hang") {
  const TemporaryFolder folder;
  write(folder.path() + "/empty.jpg", {});
  write(folder.path() + "/text.jpg", {'h', 'e', 'l', 'l', 'o'});
  REQUIRE(::mkfifo((folder.path() + "/pipe.jpg").c_str(), 0600) == 0);
  // A header that claims 65,500 x 65,500 pixels.
  Bytes bomb = picture(16, 16);
  for (std::size_t i = 0; i + 9 < bomb.size(); ++i) {
    if (bomb[i] == 0xff && bomb[i + 1] == 0xc0) bomb[i + 5] = bomb[i + 7] = 0xff;
  }
  write(folder.path() + "/bomb.jpg", bomb);
  Thumbnails thumbnails(folder.path());
  for (const char* name : {"empty.jpg", "text.jpg", "pipe.jpg", "bomb.jpg", "gone.jpg", "", "/", "a\nb.jpg"}) {
    CAPTURE(name);
    const Json thumbnail = thumbnails.make(name);
    CHECK_FALSE(thumbnail.contains("jpeg"));
    CHECK_FALSE(thumbnail.at("why").get<std::string>().empty());
  }
}

TEST_CASE("the number of thumbnails, their bytes and the decoded pixels are limited") {
  const TemporaryFolder folder;
  write(folder.path() + "/noise.jpg", picture(150, 120, true));
  Thumbnails few(folder.path());
  int made = 0;
  for (int i = 0; i < 200; ++i) {
    const Json thumbnail = few.make("noise.jpg");
    if (thumbnail.is_null()) continue;
    ++made;
    CHECK(thumbnail.dump().size() < 24'000);
  }
  CHECK(made == 24);

  write(folder.path() + "/large.jpg", picture(6000, 5000));
  Thumbnails large(folder.path());
  made = 0;
  for (int i = 0; i < 24; ++i) made += large.make("large.jpg").is_null() ? 0 : 1;
  CHECK(made == 4);  // 30 megapixels each
}

TEST_CASE("the errors of the page are bounded, whatever their paths and messages are") {
  const TemporaryFolder output;
  const std::string attempt = output.path() + "/runs/20260101T000000Z-1";
  std::filesystem::create_directories(attempt);
  std::ofstream errors(attempt + "/errors.jsonl");
  const std::string long_text(3000, '<');  // each letter takes six in the page
  for (int i = 0; i < 1000; ++i)
    errors << Json{{"path", long_text}, {"stage", long_text}, {"reason", long_text}, {"detail", long_text}}.dump() +
                  "\n";
  errors.close();
  CHECK(report_page(Json::object(), attempt, "").size() < 1'000'000);
}

}  // namespace
}  // namespace millrace
