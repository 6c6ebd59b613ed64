#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/half.hpp"
#include "base/tensor.hpp"
#include "gpu/device.hpp"
#include "gpu/device_code.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/resample_table.hpp"

namespace millrace {

/// The resampling of a letterbox. All kinds equal letterbox_cpu to the bit.
enum class Resampling {
  linear,        ///< two by two taps
  mean_of_four,  ///< OpenCV's method if both sides shrink to exactly half
  triangle_x_then_y,
  triangle_y_then_x,
};

/// A picture, or a rectangle of it, and the model input that shows it. Pointers are to device memory.
struct LetterboxRow {
  const std::uint8_t* pixels = nullptr;  ///< RGB; the distance of two rows is row_pixels
  int width = 0, height = 0, row_pixels = 0;
  LetterboxGeometry geometry;
  InputSpec spec;
  DType type = DType::f32;
  void* out = nullptr;  ///< [3, spec.height, spec.width]
  Resampling resampling = Resampling::linear;
};

/// Returns the row for an uploaded raster and an input [3, H, W].
LetterboxRow letterbox_row(const DeviceImage& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                           const Tensor& input);

/// Operation `letterbox`: fills the inputs of all rows at once, equal to letterbox_cpu to the bit.
/// Throws std::invalid_argument unless all inputs have one size and one type, which is f32, f16 or bf16, and for more
/// than 65,535 rows.
void letterbox(Device& device, std::vector<LetterboxRow> rows);

/// Rows of a launch.
struct LetterboxJob {
  std::span<const LetterboxRow> request;  ///< for the CPU
  const LetterboxRow* rows = nullptr;     ///< the same, in device memory
  int count = 0;
  int width = 0, height = 0;
  DType type = DType::f32;
};

/// Fills one input on the CPU.
void letterbox_on_host(const LetterboxRow& row);
/// Runs the body of the kernel below for one input, one thread after another.
void letterbox_body(const LetterboxRow& row);
/// Queues the kernel (letterbox.cu).
void launch(const LetterboxJob& job, Stream& stream);

/// A block of threads fills a tile of an input. It works in phases, and a barrier follows each of them. So the host can
/// run a phase for one thread after another.
///
/// The block computes the weights of its tile, because a table of all weights would need memory and another launch.
/// The triangle filter has two passes. The first writes levels that the second reads, so they are in shared memory.
namespace letterbox_kernel {

constexpr int tile = 32;                        ///< side of a tile, in values; a warp has a row
constexpr int thread_rows = 16;                 ///< a block has tile * thread_rows threads
constexpr int own_values = tile / thread_rows;  ///< values of a thread in each plane, every 16th of a column
/// Rows of the first pass that are in memory at once (columns, if that pass is along y). They are enough for a reduction
/// by 2.1. A tile that needs more of them works through several slices.
constexpr int slice = 72;
/// Weights of a value that are in memory. They are all up to a reduction by 16. Threads compute the others each time.
constexpr int kept_weights = 33;

/// Values [begin, end).
struct Range {
  int begin, end;
  MILLRACE_DEVICE bool has(int i) const { return i >= begin && i < end; }
};

/// How the values of a tile come from the raster along one axis, by column or row of the tile.
struct AxisTaps {
  std::int32_t first[tile], count[tile];
  std::int32_t weights[kept_weights][tile];
  TriangleValue triangle[tile];  ///< for the weights that are not kept
};

/// The shared memory of a block.
struct TileMemory {
  AxisTaps x, y;
  std::uint8_t levels[3][slice * tile];  ///< of the first pass, by channel; a row has `tile` or `slice` values
};

/// A thread at (x, y) of its block. It has the values at x of the rows y + 16 * i of the tile.
struct Thread {
  int x, y;
  std::int32_t sums[own_values][3];  ///< of the second pass, by channel
};

MILLRACE_DEVICE inline int clamp(int value, int high) { return value < 0 ? 0 : value > high ? high : value; }

constexpr int fraction_bits = 22;  ///< of the triangle's weights, and of sums
constexpr std::int32_t half = 1 << (fraction_bits - 1);

/// Rounds a sum that began with `half` to 8 bits.
MILLRACE_DEVICE inline int rounded(std::int32_t sum) { return clamp(sum >> fraction_bits, 255); }

/// Returns the values of a tile that show the picture, along one axis. The tile begins at pixel `at` of the input.
MILLRACE_DEVICE inline Range shown(int at, int input, int before, int resized) {
  const int end = before + resized < input ? before + resized : input;
  return {clamp(before - at, tile), clamp(end - at, tile)};
}

/// Fills the taps of value i of a tile, which is value `resized` of the resized picture.
MILLRACE_DEVICE inline void fill_taps(const LetterboxRow& picture, bool rows, AxisTaps& taps, int i, int resized) {
  const int from = rows ? picture.height : picture.width,
            to = rows ? picture.geometry.resized_height : picture.geometry.resized_width;
  if (picture.spec.filter == ResizeFilter::pil_bilinear_antialias) {
    const TriangleValue value = triangle_value(from, to, resized);
    taps.first[i] = value.first;
    taps.count[i] = value.count;
    taps.triangle[i] = value;
    for (int k = 0; k < value.count && k < kept_weights; ++k) taps.weights[k][i] = value.weight(k);
  } else {
    std::int32_t weights[2];
    taps.first[i] = linear_taps(from, to, rows, resized, weights).first;
    taps.weights[0][i] = weights[0];
    taps.weights[1][i] = weights[1];
  }
}

/// Calls tap(k, weight) for taps [begin, end) of value i.
template <class Tap>
MILLRACE_DEVICE void for_taps(const AxisTaps& taps, int i, int begin, int end, const Tap& tap) {
  int k = begin;
  for (; k < end && k < kept_weights; ++k) tap(k, taps.weights[k][i]);
  MILLRACE_ROLLED
  for (; k < end; ++k) tap(k, taps.triangle[i].weight(k));
}

/// The first pass of the triangle filter: levels at columns `across` and rows `down`. Along the axis of this pass, these
/// are values of the tile. Along the other axis, they are pixels of the raster.
MILLRACE_DEVICE inline void first_pass(const LetterboxRow& picture, TileMemory& memory, bool x_first, Range across,
                                       Range down, const Thread& thread) {
  const AxisTaps& taps = x_first ? memory.x : memory.y;
  const std::int64_t row_bytes = std::int64_t{3} * picture.row_pixels, step = x_first ? 3 : row_bytes;
  for (int y = down.begin + thread.y; y < down.end; y += thread_rows) {
    for (int x = across.begin + thread.x; x < across.end; x += tile) {
      const int i = x_first ? x : y;
      const std::uint8_t* pixel =
          picture.pixels + (x_first ? y * row_bytes + 3 * taps.first[i] : taps.first[i] * row_bytes + 3 * x);
      std::int32_t red = half, green = half, blue = half;
      for_taps(taps, i, 0, taps.count[i], [&](int, std::int32_t weight) {
        red += pixel[0] * weight;
        green += pixel[1] * weight;
        blue += pixel[2] * weight;
        pixel += step;
      });
      const int at = x_first ? (y - down.begin) * tile + x : y * slice + x - across.begin;
      // Rounded to 8 bits, because Pillow stores them so.
      memory.levels[0][at] = static_cast<std::uint8_t>(rounded(red));
      memory.levels[1][at] = static_cast<std::uint8_t>(rounded(green));
      memory.levels[2][at] = static_cast<std::uint8_t>(rounded(blue));
    }
  }
}

/// The second pass: adds rows `part` of the first pass (or columns) to the thread's sums.
MILLRACE_DEVICE inline void second_pass(const TileMemory& memory, bool x_first, Range columns, Range rows, Range part,
                                        Thread& thread) {
  const AxisTaps& taps = x_first ? memory.y : memory.x;
  if (!columns.has(thread.x)) return;
  MILLRACE_UNROLL
  for (int j = 0; j < own_values; ++j) {
    const int y = thread.y + j * thread_rows, o = x_first ? y : thread.x;
    if (!rows.has(y)) continue;
    const int first = taps.first[o], end = first + taps.count[o];
    const int begin = first > part.begin ? first : part.begin, until = end < part.end ? end : part.end;
    for_taps(taps, o, begin - first, until - first, [&](int k, std::int32_t weight) {
      const int from = first + k - part.begin, at = x_first ? from * tile + thread.x : y * slice + from;
      MILLRACE_UNROLL
      for (int channel = 0; channel < 3; ++channel) thread.sums[j][channel] += memory.levels[channel][at] * weight;
    });
  }
}

/// Reads a channel of the raster. Beyond the border, the border pixel counts.
struct Source {
  const LetterboxRow& picture;
  MILLRACE_DEVICE int at(int x, int y, int channel) const {
    const auto column = clamp(x, picture.width - 1), row = clamp(y, picture.height - 1);
    return picture.pixels[(static_cast<std::int64_t>(row) * picture.row_pixels + column) * 3 + channel];
  }
};

/// The value of column x and row y of the tile.
MILLRACE_DEVICE inline int linear(const LetterboxRow& picture, const TileMemory& memory, int x, int y, int channel) {
  const Source source{picture};
  const int left = memory.x.first[x], upper = memory.y.first[y];
  const std::int32_t left_weight = memory.x.weights[0][x], right_weight = memory.x.weights[1][x];
  const auto row = [&](int at) {
    return source.at(left, at, channel) * left_weight + source.at(left + 1, at, channel) * right_weight;
  };
  const std::int32_t row0 = row(upper), row1 = row(upper + 1);
  return (((memory.y.weights[0][y] * (row0 >> 4)) >> 16) + ((memory.y.weights[1][y] * (row1 >> 4)) >> 16) + 2) >> 2;
}

/// The value of column x and row y of the resized picture.
MILLRACE_DEVICE inline int mean_of_four(const LetterboxRow& picture, int x, int y, int channel) {
  const Source source{picture};
  return (source.at(2 * x, 2 * y, channel) + source.at(2 * x + 1, 2 * y, channel) +
          source.at(2 * x, 2 * y + 1, channel) + source.at(2 * x + 1, 2 * y + 1, channel) + 2) >>
         2;
}

/// Writes the sums of a thread's values for the filters that have no passes.
MILLRACE_DEVICE inline void resize_without_passes(const LetterboxRow& picture, const TileMemory& memory, int left,
                                                  int top, Range rows, Thread& thread) {
  const LetterboxGeometry& g = picture.geometry;
  const bool halved = picture.resampling == Resampling::mean_of_four;
  MILLRACE_UNROLL
  for (int j = 0; j < own_values; ++j) {
    const int y = thread.y + j * thread_rows;
    if (!rows.has(y)) continue;
    MILLRACE_UNROLL
    for (int channel = 0; channel < 3; ++channel) {
      thread.sums[j][channel] = (halved ? mean_of_four(picture, left + thread.x - g.left, top + y - g.top, channel)
                                        : linear(picture, memory, thread.x, y, channel))
                                << fraction_bits;
    }
  }
}

/// Fills the tile that begins at column `left` and row `top` of the input.
/// Block::all(phase) calls phase(thread) for all threads of the block, and then has a barrier.
/// Write(plane, x, y, value) writes a normalised value into the input.
template <class Block, class Write>
MILLRACE_DEVICE void fill_tile(const LetterboxRow& picture, int left, int top, TileMemory& memory, Block& block,
                               const Write& write) {
  const LetterboxGeometry& g = picture.geometry;
  const InputSpec& spec = picture.spec;
  const Range columns = shown(left, spec.width, g.left, g.resized_width),
              rows = shown(top, spec.height, g.top, g.resized_height);
  const bool triangle = spec.filter == ResizeFilter::pil_bilinear_antialias;
  // The others only have padding.
  if (columns.begin < columns.end && rows.begin < rows.end) {
    block.all([&](Thread& thread) {
      // The first row of threads has the columns of the tile, the second has its rows.
      if (thread.y == 0 && columns.has(thread.x))
        fill_taps(picture, false, memory.x, thread.x, left + thread.x - g.left);
      if (thread.y == 1 && rows.has(thread.x)) fill_taps(picture, true, memory.y, thread.x, top + thread.x - g.top);
      MILLRACE_UNROLL
      for (int j = 0; j < own_values; ++j) {
        MILLRACE_UNROLL
        for (int channel = 0; channel < 3; ++channel) thread.sums[j][channel] = half;
      }
    });
    if (triangle) {
      const bool x_first = picture.resampling == Resampling::triangle_x_then_y;
      const AxisTaps& outer = x_first ? memory.y : memory.x;
      const Range values = x_first ? rows : columns;
      // Neither `first` nor the end of the taps falls from one value to the next.
      const int end = outer.first[values.end - 1] + outer.count[values.end - 1];
      for (int begin = outer.first[values.begin]; begin < end; begin += slice) {
        const Range part{begin, begin + slice < end ? begin + slice : end};
        block.all([&](Thread& thread) {
          first_pass(picture, memory, x_first, x_first ? columns : part, x_first ? part : rows, thread);
        });
        block.all([&](Thread& thread) { second_pass(memory, x_first, columns, rows, part, thread); });
      }
    }
  }
  block.all([&](Thread& thread) {
    const int x = left + thread.x;
    if (x >= spec.width) return;
    if (!triangle && columns.has(thread.x)) resize_without_passes(picture, memory, left, top, rows, thread);
    MILLRACE_UNROLL
    for (int channel = 0; channel < 3; ++channel) {
      const int plane = spec.bgr ? 2 - channel : channel;
      const auto p = static_cast<std::size_t>(plane);
      const float scale = spec.scale, mean = spec.mean[p], std = spec.std[p], pad = spec.pad[p];
      MILLRACE_UNROLL
      for (int j = 0; j < own_values; ++j) {
        const int tile_y = thread.y + j * thread_rows, y = top + tile_y;
        if (y >= spec.height) continue;
        const bool padding = !columns.has(thread.x) || !rows.has(tile_y);
        const float level = padding ? pad : static_cast<float>(rounded(thread.sums[j][channel]));
        write(plane, x, y, (level * scale - mean) / std);
      }
    }
  });
}

// What the kernel does for one picture, on the host.

/// The threads of a block, one after another in each phase.
struct HostBlock {
  std::array<Thread, static_cast<std::size_t>(tile) * thread_rows> threads;
  HostBlock() {
    for (int i = 0; i < tile * thread_rows; ++i)
      threads[static_cast<std::size_t>(i)] = {.x = i % tile, .y = i / tile, .sums = {}};
  }
  template <class Phase>
  void all(const Phase& phase) {
    for (Thread& thread : threads) phase(thread);
  }
};

template <class Block = HostBlock>
void fill_input(const LetterboxRow& picture) {
  const std::int64_t width = picture.spec.width, height = picture.spec.height;
  const auto write = [&](int plane, int x, int y, float value) {
    const std::int64_t at = (plane * height + y) * width + x;
    if (picture.type == DType::f32) {
      static_cast<float*>(picture.out)[at] = value;
    } else {
      static_cast<std::uint16_t*>(picture.out)[at] = picture.type == DType::f16 ? to_f16(value) : to_bf16(value);
    }
  };
  Block block;
  TileMemory memory;
  for (int top = 0; top < height; top += tile) {
    for (int left = 0; left < width; left += tile) fill_tile(picture, left, top, memory, block, write);
  }
}

}  // namespace letterbox_kernel

}  // namespace millrace
