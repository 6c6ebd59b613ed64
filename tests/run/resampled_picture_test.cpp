#include "run/resampled_picture.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/resample.hpp"
#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

std::vector<std::uint8_t> noise(int width, int height) {
  std::mt19937 random(static_cast<unsigned>(width + height));
  std::vector<std::uint8_t> pixels(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  for (auto& value : pixels) value = static_cast<std::uint8_t>(random());
  return pixels;
}

/// A picture in memory that is read like a slide.
class FakeSlide final : public RegionSource {
 public:
  FakeSlide(int width, int height, std::array<double, 2> mpp) : pixels_(noise(width, height)) {
    info_.size = {height, 1, width};
    info_.spacing_mm = {mpp[0] / 1000, mpp[1] / 1000, 0};
    info_.geo.text = "EPSG";
  }
  /// The same as a level of a slide whose labels have the pixels of level 0.
  FakeSlide(int width, int height, std::array<double, 2> mpp, const Extent& finest) : FakeSlide(width, height, mpp) {
    info_.file_size = finest;
    info_.spacing_mm = {mpp[0] / 1000 * width / finest.columns, mpp[1] / 1000 * height / finest.rows, 0};
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 1000; }
  void read(int first, int count, void* to) override {
    CHECK(first >= end_);  // forward only, and no row twice
    end_ = first + count;
    REQUIRE(end_ <= info_.size.rows);
    std::memcpy(to, pixels_.data() + first * info_.row_bytes(), static_cast<std::size_t>(count * info_.row_bytes()));
  }
  const std::vector<std::uint8_t>& pixels() const { return pixels_; }

 private:
  const std::vector<std::uint8_t> pixels_;
  RegionInfo info_;
  int end_ = 0;
};

std::shared_ptr<RegionSource> resampled(const std::shared_ptr<FakeSlide>& slide, double mpp) {
  return resampled_picture(slide, mpp, false, 64 << 20);
}

TEST_CASE("a resampled picture has the pixels of one that is resized whole, for any rows that are asked for") {
  struct Case {
    int width, height;
    std::array<double, 2> mpp;
    double to;
    int columns, rows;
  };
  for (const auto& [width, height, mpp, to, columns, rows] : std::vector<Case>{{200, 150, {0.25, 0.25}, 0.5, 100, 75},
                                                                               {200, 150, {0.5, 0.5}, 0.51, 196, 147},
                                                                               {97, 61, {0.25, 0.5}, 0.8, 30, 38},
                                                                               {97, 61, {1, 1}, 7.3, 13, 8},
                                                                               {30, 20, {0.5, 0.5}, 1000, 1, 1},
                                                                               {1, 9, {0.3, 0.3}, 0.4, 1, 7},
                                                                               {64, 64, {0.5, 0.25}, 0.5, 64, 32}}) {
    CAPTURE(width);
    CAPTURE(to);
    const FakeSlide whole(width, height, mpp);
    const auto expected = resample_triangle({whole.pixels().data(), width, height}, columns, rows);
    for (const int step : {1, 3, 1000}) {
      const auto region = resampled(std::make_shared<FakeSlide>(width, height, mpp), to);
      const RegionInfo& info = region->info();
      CHECK(info.size == Extent{rows, 1, columns});
      CHECK(info.spacing_mm == std::array<double, 3>{to / 1000, to / 1000, 0});
      std::vector<std::uint8_t> pixels(expected.size());
      for (int row = 0; row < rows; row += step)
        region->read(row, std::min(step, rows - row), pixels.data() + row * info.row_bytes());
      CHECK(pixels == expected);
    }
    // Rows before the first one that is wanted are skipped.
    const auto region = resampled(std::make_shared<FakeSlide>(width, height, mpp), to);
    std::vector<std::uint8_t> last(static_cast<std::size_t>(region->info().row_bytes()));
    region->read(rows - 1, 1, last.data());
    CHECK(std::equal(last.begin(), last.end(), expected.end() - static_cast<std::ptrdiff_t>(last.size())));
  }
}

TEST_CASE("micrometres that differ by at most 1 % leave the picture as it is") {
  const auto slide = std::make_shared<FakeSlide>(200, 100, std::array{0.5, 0.5});
  for (const double mpp : {0.4951, 0.5, 0.505}) CHECK(resampled(slide, mpp) == slide);
  CHECK(resampled(slide, 0.506)->info().size == Extent{99, 1, 198});
  const auto other = std::make_shared<FakeSlide>(200, 100, std::array{0.5, 0.25});
  CHECK(resampled(other, 0.5)->info().size == Extent{50, 1, 200});
}

TEST_CASE("labels that go back have the pixels and the spacing of the file") {
  const std::array mpp{0.5, 0.25};
  const auto slide = std::make_shared<FakeSlide>(200, 100, mpp);
  const auto back = resampled_picture(slide, 1, true, 64 << 20);
  CHECK(back->info().size == Extent{25, 1, 100});
  CHECK(back->info().file_size == Extent{100, 1, 200});
  CHECK(back->info().spacing_mm == slide->info().spacing_mm);
  CHECK(back->info().geo.text.empty());  // as of other levels
  const auto stay = resampled_picture(slide, 1, false, 64 << 20);
  CHECK_FALSE(stay->info().file_size);
  CHECK(stay->info().geo.text.empty());  // the tags are of other pixels
  // A level with 4 and 2 pixels of level 0 in each: its own pixels have 2 and 1 micrometres.
  const auto level = std::make_shared<FakeSlide>(200, 100, std::array{2.0, 1.0}, Extent{200, 1, 800});
  const auto of_level = resampled_picture(level, 4, true, 64 << 20);
  CHECK(of_level->info().size == Extent{25, 1, 100});
  CHECK(of_level->info().file_size == Extent{200, 1, 800});
  CHECK(of_level->info().spacing_mm == std::array<double, 3>{0.0005, 0.0005, 0});
  const auto equal = std::make_shared<FakeSlide>(200, 100, std::array{2.0, 2.0}, Extent{400, 1, 800});
  CHECK(resampled_picture(equal, 2, true, 64 << 20) == equal);
}

TEST_CASE("memory for resampling is counted and limited") {
  const auto slide = std::make_shared<FakeSlide>(3000, 2000, std::array{0.25, 0.25});
  const auto region = resampled(slide, 1);
  // Some rows, and not the 2.25 MB of the result.
  CHECK(region->memory_bytes() > 1000 + 3 * 3000);
  CHECK(region->memory_bytes() < 200'000);
  CHECK_THROWS_AS(resampled_picture(slide, 1, false, region->memory_bytes() - 1), PictureError);
  CHECK(resampled_picture(slide, 1, false, region->memory_bytes()) != nullptr);
}

}  // namespace
}  // namespace millrace
