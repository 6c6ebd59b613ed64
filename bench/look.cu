// What can this GPU do, before anything else is measured? bench_look [--small]
//
// It prints a line of JSON for each figure: the median of three or more measurements, the lowest and the highest.
// - copies of pinned memory, on 1 to 3 streams at the same time, by the host's clock
// - the host's time for the launch of an empty kernel, from 1 to 3 threads, each with a stream of its own
// - Millrace's kernels of a batch, by the GPU's clock, without gaps between launches. `bytes` are those that they must
//   read and write for a picture
// Without a GPU, the only line is {"absent": why}. --small: a rehearsal with almost no work.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/launch.cuh"
#include "gpu/ops/find_boxes.hpp"
#include "gpu/ops/letterbox.hpp"
#include "gpu/ops/outline.hpp"
#include "gpu/streams/cuda_stream.hpp"

namespace millrace::bench {
namespace {

/// A batch of the suite: its pictures, the inputs of YOLOv8n and MobileSAM, and repeats.
struct Sizes {
  int pictures = 16, width = 1920, height = 1080;
  int detector = 640, segmenter = 1024;  // sides of the inputs
  int candidates = 8400, classes = 80;   // of the detector's output
  int objects = 10, logits = 256;        // of a picture, and side of a mask's logits
  int batches = 10;                      // that a stream copies in one measurement
  int launches = 500;                    // before a wait. The driver's queue has room for them
  int repeats = 20;

  [[nodiscard]] std::size_t picture_bytes() const { return std::size_t{3} * width * height; }
};
constexpr Sizes small{2, 192, 108, 64, 96, 84, 3, 2, 16, 1, 5, 3};

constexpr int most_streams = 3;   // lanes of a run
constexpr double idle_s = 0.003;  // in which the host queues the kernels of a batch

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Prints a figure. `more` are further members.
void print(const char* method, const std::string& options, const char* unit, std::vector<double> values,
           const std::string& more = "") {
  std::sort(values.begin(), values.end());
  std::printf(R"({"method": "%s", "options": "%s", "unit": "%s", "value": %.6g, "spread": [%.6g, %.6g]%s})"
              "\n",
              method, options.c_str(), unit, values[values.size() / 2], values.front(), values.back(), more.c_str());
  std::fflush(stdout);
}

std::string counted(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void copies(const Sizes& sizes) {
  struct Queue {
    std::unique_ptr<Stream> stream;
    std::shared_ptr<void> host, device;
  };
  const std::size_t picture = sizes.picture_bytes(), bytes = picture * static_cast<std::size_t>(sizes.pictures);
  std::vector<Queue> queues;
  for (int i = 0; i < most_streams; ++i) {
    auto stream = make_cuda_stream(0, "copies");
    auto host = stream->allocate_mapped(bytes), device = stream->allocate(bytes);
    queues.push_back({std::move(stream), std::move(host), std::move(device)});
  }
  for (const bool up : {true, false}) {
    for (int streams = 1; streams <= most_streams; ++streams) {
      const auto copy_all = [&](int batches) {
        const auto begin = Clock::now();
        for (std::size_t at = 0; at < static_cast<std::size_t>(batches) * bytes; at += picture) {
          for (int i = 0; i < streams; ++i) {
            const Queue& queue = queues[i];
            auto* host = static_cast<unsigned char*>(queue.host.get()) + at % bytes;
            auto* device = static_cast<unsigned char*>(queue.device.get()) + at % bytes;
            up ? queue.stream->upload(host, device, picture) : queue.stream->download(device, host, picture);
          }
        }
        for (int i = 0; i < streams; ++i) queues[i].stream->wait();
        return seconds_since(begin);
      };
      copy_all(1);
      std::vector<double> rates;
      for (int repeat = 0; repeat < 3; ++repeat)
        rates.push_back(1e-9 * static_cast<double>(bytes) * sizes.batches * streams / copy_all(sizes.batches));
      print(up ? "copies to the GPU" : "copies to the host", counted(streams, "stream"), "GB/s", rates);
    }
  }
}

__global__ void nothing() {}

void launches(const Sizes& sizes) {
  for (int count = 1; count <= most_streams; ++count) {
    std::barrier<> together(count);
    std::vector<std::vector<double>> us(static_cast<std::size_t>(count));
    std::vector<std::exception_ptr> errors(us.size());
    std::vector<std::thread> threads;
    for (std::size_t at = 0; at < us.size(); ++at) {
      threads.emplace_back([&, at] {
        try {
          const auto stream = make_cuda_stream(0, "launches");
          for (int repeat = -1; repeat < sizes.repeats; ++repeat) {
            stream->wait();
            together.arrive_and_wait();
            const auto begin = Clock::now();
            for (int i = 0; i < sizes.launches; ++i) nothing<<<1, 1, 0, cuda_stream(*stream)>>>();
            const double took_s = seconds_since(begin);
            check_launch("nothing");
            if (repeat >= 0) us[at].push_back(1e6 * took_s / sizes.launches);
          }
        } catch (...) {
          errors[at] = std::current_exception();
          together.arrive_and_drop();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    std::vector<double> all;
    for (std::size_t at = 0; at < us.size(); ++at) {
      if (errors[at]) std::rethrow_exception(errors[at]);
      all.insert(all.end(), us[at].begin(), us[at].end());
    }
    print("launches", counted(count, "thread"), "us", all);
  }
}

/// Times an operation on a batch, and prints the microseconds of a picture.
void time(Device& device, const Sizes& sizes, const std::string& name, double bytes,
          const std::function<void()>& operation) {
  std::vector<double> us;
  for (int repeat = -2; repeat < sizes.repeats; ++repeat) {
    const double seconds = device.stream()->time(operation, idle_s);
    device.wait();  // delivers the results
    if (repeat >= 0) us.push_back(1e6 * seconds / sizes.pictures);
  }
  print("kernels", name, "us a picture", us, ", \"bytes\": " + std::to_string(static_cast<std::int64_t>(bytes)));
}

Tensor on(Device& device, const std::vector<float>& values, std::vector<std::int64_t> shape) {
  Tensor tensor = device.empty(std::move(shape));
  device.stream()->upload(values.data(), tensor.data, tensor.bytes());
  device.wait();
  return tensor;
}

/// Fills the inputs of a model for all pictures of the batch.
void letterboxes(Device& device, const Sizes& sizes, const std::vector<DeviceImage>& pictures, const InputSpec& spec,
                 DType type) {
  const LetterboxGeometry geometry = letterbox_geometry(sizes.width, sizes.height, spec);
  const Tensor inputs = device.empty({sizes.pictures, 3, spec.height, spec.width}, type);
  std::vector<LetterboxRow> rows;
  for (std::size_t i = 0; i < pictures.size(); ++i)
    rows.push_back(letterbox_row(pictures[i], geometry, spec, inputs.row(static_cast<std::int64_t>(i))));
  // The linear filter reads two rows of the picture for each row of the input.
  const double all_rows = sizes.height, read_rows = spec.filter == ResizeFilter::cv2_linear
                                                        ? std::min(all_rows, 2.0 * geometry.resized_height)
                                                        : all_rows;
  time(device, sizes, "letterbox to " + std::to_string(spec.width),
       3.0 * sizes.width * read_rows + static_cast<double>(inputs.bytes()) / sizes.pictures,
       [&] { letterbox(device, rows); });
}

/// The boxes in the output of a detector of the layout of YOLOv8. Each object has twelve boxes with a score.
void boxes(Device& device, const Sizes& sizes, const InputSpec& spec) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  const auto rows = static_cast<std::size_t>(4 + sizes.classes),
             candidates = static_cast<std::size_t>(sizes.candidates);
  std::vector<float> output(static_cast<std::size_t>(sizes.pictures) * rows * candidates);
  for (float& value : output) value = 0.01F * uniform(random);
  const auto side = static_cast<float>(spec.width);
  for (std::size_t picture = 0; picture < static_cast<std::size_t>(sizes.pictures); ++picture) {
    for (int object = 0; object < sizes.objects; ++object) {
      const float x = side * uniform(random), y = side * (0.3F + 0.4F * uniform(random));  // in the picture
      for (int i = 0; i < 12; ++i) {
        const std::size_t candidate = random() % candidates;
        const auto at = [&](std::size_t row) -> float& {
          return output[(picture * rows + row) * candidates + candidate];
        };
        at(0) = x + uniform(random), at(1) = y + uniform(random), at(2) = side / 8, at(3) = side / 8;
        at(4) = 0.5F + 0.4F * uniform(random);
      }
    }
  }
  const Tensor tensor = on(device, output, {sizes.pictures, 4 + sizes.classes, sizes.candidates});
  BoxSearch search;
  search.head = {HeadLayout::v8, sizes.candidates, sizes.classes};
  std::vector<BoxTarget> targets;
  for (int i = 0; i < sizes.pictures; ++i)
    targets.push_back({i, letterbox_geometry(sizes.width, sizes.height, spec), std::make_shared<FoundBoxes>()});
  time(device, sizes, "boxes and NMS", static_cast<double>(tensor.bytes()) / sizes.pictures,
       [&] { find_boxes(device, tensor, search, targets); });
  if (targets[0].found->boxes.empty()) throw DeviceError("no boxes were found");
}

/// The outlines of smooth masks: ellipses with a quarter of the picture's sides.
void outlines(Device& device, const Sizes& sizes, const InputSpec& spec) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0.25F, 0.75F);
  const int masks = sizes.pictures * sizes.objects, side = sizes.logits;
  const LetterboxGeometry geometry = letterbox_geometry(sizes.width, sizes.height, spec);
  const auto of_side = static_cast<float>(side);
  std::vector<float> logits, ious(static_cast<std::size_t>(masks), 0.9F);
  std::vector<MaskTarget> targets;
  for (int mask = 0; mask < masks; ++mask) {
    const float across = of_side * uniform(random), down = 9.0F / 16 * of_side * uniform(random);
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        const float dx = 8 * (static_cast<float>(x) - across) / of_side,
                    dy = 14 * (static_cast<float>(y) - down) / of_side;
        logits.push_back(9 * (1 - dx * dx - dy * dy));
      }
    }
    targets.push_back({mask,
                       {side, side, spec.width, spec.height, geometry.resized_width, geometry.resized_height,
                        sizes.width, sizes.height},
                       std::make_shared<OutlinedMask>()});
  }
  const std::vector<MaskCall> calls{{on(device, logits, {masks, side, side}), on(device, ious, {masks}), targets}};
  time(device, sizes, "outlines of " + std::to_string(sizes.objects) + " masks",
       4.0 * static_cast<double>(logits.size()) / sizes.pictures, [&] { outline(device, calls, 0.0F); });
  if (targets[0].mask->counts.size() < 3) throw DeviceError("a mask has no outline");
}

void kernels(const Sizes& sizes) {
  Device device(make_cuda_stream(0, "kernels"));
  InputSpec detector, segmenter;
  detector.width = detector.height = sizes.detector, detector.rounding = SideRounding::half_even;
  detector.placement = Placement::centred, detector.std = {255, 255, 255};
  segmenter.width = segmenter.height = sizes.segmenter, segmenter.mode = ResizeMode::longest_side;
  segmenter.filter = ResizeFilter::pil_bilinear_antialias;
  segmenter.mean = {123.675F, 116.28F, 103.53F}, segmenter.std = {58.395F, 57.12F, 57.375F};
  std::mt19937 random(3);
  std::vector<DeviceImage> pictures;
  for (int i = 0; i < sizes.pictures; ++i) {
    const auto pixels = std::make_shared<std::vector<std::uint8_t>>(sizes.picture_bytes());
    for (auto& value : *pixels) value = static_cast<std::uint8_t>(random());
    pictures.push_back(device.upload({pixels->data(), sizes.width, sizes.height}, pixels));
  }
  device.wait();
  letterboxes(device, sizes, pictures, detector, DType::f16);
  letterboxes(device, sizes, pictures, segmenter, DType::bf16);
  boxes(device, sizes, detector);
  outlines(device, sizes, segmenter);
}

int main(int argc, char** argv) {
  const bool rehearsal = argc == 2 && std::string_view(argv[1]) == "--small";
  if (argc > 1 && !rehearsal) {
    std::fputs("usage: bench_look [--small]\n", stderr);
    return 2;
  }
  if (const std::string why = why_no_cuda_device(); !why.empty()) {
    std::printf("{\"absent\": \"%s\"}\n", why.c_str());
    return 0;
  }
  const Sizes sizes = rehearsal ? small : Sizes{};
  copies(sizes);
  launches(sizes);
  kernels(sizes);
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  try {
    return millrace::bench::main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_look: %s\n", error.what());
    return 1;
  }
}
