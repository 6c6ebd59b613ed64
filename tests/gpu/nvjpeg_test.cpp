#include "gpu/nvjpeg.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/plugin.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "tests/io/decode/decode_inputs.hpp"

namespace millrace {
namespace {

using test::File;
using test::Rgb;
using Outcome = Nvjpeg::Outcome;

/// A variable of the environment, for the fake library.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

std::string fake_library() {
  const char* library = std::getenv("MILLRACE_FAKE_NVJPEG");
  REQUIRE(library != nullptr);
  return library;
}

/// Opens the library for this many GPUs with this much memory each.
std::unique_ptr<Nvjpeg> open(int gpus = 1, std::int64_t bytes = 1 << 30) {
  std::vector<Nvjpeg::MakeStream> make;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    make.emplace_back(
        [gpu, memory = std::make_shared<FakeMemory>(bytes)] { return std::make_unique<FakeStream>(gpu, memory); });
  }
  return Nvjpeg::open(make, fake_library());
}

Outcome decode(Nvjpeg& nvjpeg, const File& file, Rgb& into) {
  into.data.assign(static_cast<std::size_t>(3 * into.width * into.height), 7);
  return nvjpeg.decode(file, into.width, into.height, into.data.data());
}

std::string why_closed(const std::string& library) {
  try {
    (void)Nvjpeg::open({[] { return std::make_unique<FakeStream>(); }}, library);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "opened";
}

TEST_CASE("nvjpeg: pictures come to the host, for every kind that engines decode") {
  const auto nvjpeg = open();
  for (const auto& [width, height] : std::initializer_list<std::pair<int, int>>{{1, 1}, {37, 21}, {640, 480}}) {
    for (const int components : {1, 3}) {
      const File file = test::make_jpeg(test::ramp(width, height), {.components = components});
      Rgb found{width, height, {}};
      CHECK(decode(*nvjpeg, file, found) == Outcome::decoded);
      CHECK(found == test::plain_libjpeg(file));
    }
  }
}

TEST_CASE("nvjpeg: files that engines do not decode, or whose size is another") {
  const auto nvjpeg = open();
  const Rgb picture = test::ramp(64, 48);
  Rgb found{64, 48, {}};
  for (const File& file : {test::make_jpeg(picture, {.progressive = true}), test::make_jpeg(picture, {.components = 4}),
                           test::make_png(picture), File{}})
    CHECK(decode(*nvjpeg, file, found) == Outcome::refused);
  Rgb smaller{64, 47, {}};
  CHECK(decode(*nvjpeg, test::make_jpeg(picture), smaller) == Outcome::refused);
  CHECK(decode(*nvjpeg, test::make_jpeg(picture), found) == Outcome::decoded);
}

TEST_CASE("nvjpeg: a decoder that failed decodes the next picture") {
  const auto nvjpeg = open();
  const File file = test::make_jpeg(test::ramp(64, 48));
  Rgb found{64, 48, {}};
  for (const char* function : {"nvjpegDecodeBatched", "nvjpegDecodeBatchedInitialize"}) {
    const Variable fails("FAKE_NVJPEG", function);
    for (int i = 0; i <= nvjpeg->decoders(); ++i) CHECK(decode(*nvjpeg, file, found) == Outcome::failed);
  }
  CHECK(decode(*nvjpeg, file, found) == Outcome::decoded);
  const auto small = open(1, 3 * 64 * 48 - 1);
  for (int i = 0; i <= small->decoders(); ++i) CHECK(decode(*small, file, found) == Outcome::failed);
}

TEST_CASE("nvjpeg: as many pictures at a time as the engines of all GPUs have cores, each with its own decoder") {
  const std::string log = std::filesystem::temp_directory_path() / ("nvjpeg-" + std::to_string(::getpid()));
  const Variable writes("FAKE_NVJPEG_LOG", log);
  const Variable together("FAKE_NVJPEG_TOGETHER", "6");
  const Variable engines("FAKE_NVJPEG_ENGINES", "3x1");
  auto nvjpeg = open(2);
  CHECK(nvjpeg->decoders() == 6);
  const File file = test::make_jpeg(test::ramp(64, 48));
  const Rgb expected = test::plain_libjpeg(file);
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 30; ++i) {
      threads.emplace_back([&] {
        Rgb found{64, 48, {}};
        if (decode(*nvjpeg, file, found) == Outcome::decoded && found == expected) ++right;
      });
    }
  }
  CHECK(right == 30);
  nvjpeg.reset();
  std::stringstream written;
  written << std::ifstream(log).rdbuf();
  CHECK(written.str() == "decoded 30, at most 6 at a time\n");
  std::filesystem::remove(log);
}

TEST_CASE("nvjpeg: without a library or engines, the message says why and what to do") {
  CHECK(
      why_closed("/nowhere/libnvjpeg.so") ==
      "decode.nvjpeg needs nvJPEG, which was not found (/nowhere/libnvjpeg.so: cannot open shared object file: No such "
      "file or directory). It is a part of the CUDA Toolkit: set MILLRACE_NVJPEG to the path of its file, or leave "
      "decode.nvjpeg out, so that the CPU decodes");
  CHECK(
      why_closed("libm.so.6") ==
      "nvJPEG ('libm.so.6') has no function nvjpegCreateEx; use that of CUDA 12 or 13, or leave decode.nvjpeg out, so "
      "that the CPU decodes");
  for (const char* function : {"nvjpegCreateEx", "nvjpegGetHardwareDecoderInfo", "nvjpegJpegStateCreate"}) {
    const Variable fails("FAKE_NVJPEG", function);
    CHECK(why_closed(fake_library()) == "nvJPEG ('" + fake_library() + "') has no JPEG engines (" + function +
                                            ": ARCH_MISMATCH). Only some GPUs have them, such as A100 and H100; leave "
                                            "decode.nvjpeg out, so that the CPU decodes");
  }
  const Variable none("FAKE_NVJPEG_ENGINES", "0x0");
  CHECK(why_closed(fake_library()).starts_with("the GPU has no JPEG engines. Only some GPUs have them"));
}

}  // namespace
}  // namespace millrace
