// Writes a label pyramid for label_pyramid_test.py: io_sample_labels FILE WIDTH HEIGHT BEGIN KIND.
// BEGIN: the file has a hole of so many bytes before its tiles. KIND is "plain" (row y has label y / 1000 % 250), or
// "noisy": deflate cannot make the labels smaller.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "io/sinks/label_tiff.hpp"

namespace {

using namespace millrace;

class SampleLabels final : public LabelRows {
 public:
  SampleLabels(int width, int height, bool noisy) : width_(width), height_(height), noise_(noisy ? noise_bytes : 0) {
    std::mt19937_64 random(7);
    for (std::uint8_t& label : noise_) label = static_cast<std::uint8_t>(random());
  }
  void read(const Take& take) const override {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(width_));
    for (int y = 0; y < height_; ++y) {
      if (noise_.empty()) {
        if (y % 1000 == 0) std::memset(row.data(), y / 1000 % 250, row.size());
        take(y, row);
      } else {
        // Rows begin at other places of the noise, so that tiles do not repeat each other.
        take(y, {noise_.data() + std::size_t{7919} * static_cast<std::size_t>(y) % (noise_.size() - row.size()),
                 row.size()});
      }
    }
  }

 private:
  static constexpr std::size_t noise_bytes = std::size_t{64} << 20;
  const int width_, height_;
  std::vector<std::uint8_t> noise_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) return std::fprintf(stderr, "usage: io_sample_labels FILE WIDTH HEIGHT BEGIN plain|noisy\n"), 2;
  const int width = std::atoi(argv[2]), height = std::atoi(argv[3]);
  const int file = ::open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0666);
  if (file < 0 || ::ftruncate(file, std::atoll(argv[4])) != 0)
    return std::perror("io_sample_labels: cannot make the file"), 1;
  find_label_tiff_writer()(file, width, height, {}, SampleLabels(width, height, std::strcmp(argv[5], "noisy") == 0));
  return ::close(file) == 0 ? 0 : 1;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
