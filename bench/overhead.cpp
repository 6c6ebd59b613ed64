// What does the pipeline cost?
//
//     bench_overhead DETECTOR.pkg SEGMENTER.pkg [--pictures N] [--boxes Y] [--repeats R] [--check]
//
// It measures CPU seconds in two ways, in turns, R times: a run of the pipeline, and a plain loop.
// The loop calls the same stage bodies one after another on the same pictures.
// The pictures are seeded 1920x1080 JPEGs at quality 90. A manifest gives Y boxes for each, and the detector runs too.
// - --check: exit code 1 if the median of pipeline / loop is above 1.03.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "bench/simulated.hpp"
#include "gpu/device.hpp"
#include "io/files/read_file.hpp"
#include "io/results/segments.hpp"
#include "io/sinks/image_write.hpp"
#include "models/engines/threads.hpp"
#include "models/engines/torch_plugin.hpp"
#include "run/execution.hpp"
#include "run/reader.hpp"
#include "run/settings.hpp"
#include "run/setup.hpp"
#include "stages/encode.hpp"

namespace millrace::bench {
namespace {

constexpr double bar = 1.03;
constexpr int width = 1920;
constexpr int height = 1080;

struct Arguments {
  std::string detector, segmenter;
  int pictures = 12;
  int boxes = 10;
  int repeats = 3;
  bool check = false;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  std::vector<std::string> packages;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--check") {
      arguments.check = true;
    } else if (word.starts_with("--") && i + 1 < argc) {
      (word == "--pictures" ? arguments.pictures
       : word == "--boxes"  ? arguments.boxes
                            : arguments.repeats) = std::atoi(argv[++i]);
    } else {
      packages.push_back(word);
    }
  }
  if (packages.size() == 2) {
    arguments.detector = packages[0];
    arguments.segmenter = packages[1];
  }
  return arguments;
}

/// RGB pixels with smooth shapes and some grain. As a JPEG, about 280 kB, like a photograph.
std::vector<std::uint8_t> picture(std::mt19937& random) {
  std::vector<std::uint8_t> rgb(std::size_t{3} * width * height);
  std::uniform_real_distribution<double> phase(0, 6.28);
  std::uniform_int_distribution<int> grain(-6, 6);
  const double a = phase(random), b = phase(random), c = phase(random);
  std::size_t at = 0;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double wave = std::sin(x * 0.011 + a) * std::cos(y * 0.017 + b) + std::sin((x + y) * 0.05 + c) * 0.3;
      for (int channel = 0; channel < 3; ++channel) {
        rgb[at++] = static_cast<std::uint8_t>(std::clamp(128 + 70 * wave + 20 * channel + grain(random), 0.0, 255.0));
      }
    }
  }
  return encode_jpeg(rgb.data(), width, height, 90);
}

std::vector<Item> write_pictures(const std::string& folder, const Arguments& arguments) {
  std::mt19937 random(1);
  std::vector<Item> items;
  for (int i = 0; i < arguments.pictures; ++i) {
    Item item;
    item.id = i;
    item.path = std::to_string(i) + ".jpg";
    item.boxes.emplace();
    std::uniform_real_distribution<float> position(0, 0.8F), size(0.05F, 0.3F);
    for (int b = 0; b < arguments.boxes; ++b) {
      item.boxes->push_back(
          {position(random) * width, position(random) * height, size(random) * width, size(random) * height, 0});
    }
    const auto bytes = picture(random);
    std::ofstream(folder + "/" + item.path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    items.push_back(std::move(item));
  }
  return items;
}

/// CPU seconds of a run like the program's: graph, journal, segment.
double run_pipeline(const ExecutionSetup& setup, const std::string& input, const std::vector<Item>& items) {
  const std::string& output = setup.output_folder;
  std::filesystem::remove_all(output);
  std::filesystem::create_directories(output);
  SegmentStore store(output, "bench");
  std::vector<std::int64_t> ids;
  std::vector<std::vector<int>> batches;
  for (const auto& item : items) {
    batches.push_back({static_cast<int>(item.id)});
    ids.push_back(item.id);
  }
  store.open_segment(0, ids, batches);
  std::size_t next = 0;
  std::int64_t begun_ns = 0;  // CPU time when the first frame begins: the models are warm then
  Reader reader(input, {DecodeLimits{}}, {PartsOptions{}}, setup.config.read.max_file, false);
  ExecutionEnds ends;
  ends.input_root = input;
  ends.file_bytes = [&](const Frame& frame) { return reader.file_bytes(frame); };
  ends.read = [&](Frame& frame) { reader.read(frame); };
  ends.next = [&]() -> std::shared_ptr<Frame> {
    if (next == 0) begun_ns = process_cpu_ns();
    if (next == items.size()) return nullptr;
    const auto id = static_cast<std::int64_t>(next);
    return std::make_shared<Frame>(items[next++], PlanPosition{id, 0, 1, 0, static_cast<int>(id)});
  };
  ends.commit = [&](const Batch& batch, std::vector<std::string> lines) {
    const Frame& frame = *batch.frames.front();
    store.append(0, batch.position().segment_batch,
                 {Line{frame.item.id, std::move(lines.front()), !frame.failed(), Reason::internal, 0}});
  };
  const SteadyClock clock;
  Execution execution(setup, load_torch_engine, clock);
  execution.prepare(ends);
  const Result result = execution.run();
  if (store.totals().ok != static_cast<std::int64_t>(items.size())) throw std::runtime_error("a picture failed");
  return static_cast<double>(result.finished.cpu_ns - begun_ns) / 1e9;
}

/// CPU seconds of the same bodies in a loop on this thread.
double run_bare(const ExecutionSetup& setup, const std::string& input, const std::vector<Item>& items) {
  const DecodeLimits limits;
  ModelCache cache(std::int64_t{1} << 40, load_torch_engine, EngineOptions{.threads = setup.resolved.team});
  StageModels models{setup.resolved.batch_size, setup.packages, &cache, nullptr, {}, picture_inputs(setup.views)};
  Counters counters{counters_of_run()};
  Device device;
  const std::vector<View> views{{"default", "", {}}};
  const PixelSource source{.root = input, .limits = {limits}};
  const StageContext context{models, &device, counters, views, source, setup.output_folder};
  std::vector<std::pair<const ChainLink*, std::unique_ptr<FrameStage>>> frame_stages;
  std::vector<std::pair<const ChainLink*, std::unique_ptr<LaneStage>>> lane_stages;
  std::vector<std::pair<const ChainLink*, std::unique_ptr<BatchStage>>> batch_stages;
  for (const auto& link : setup.config.chain.links()) {
    if (link.entry->make_frame_stage) {
      frame_stages.emplace_back(&link, link.entry->make_frame_stage(link.options, context, link.info));
    } else if (link.entry->make_lane_stage) {
      lane_stages.emplace_back(&link, link.entry->make_lane_stage(link.options, context, link.info));
    } else {
      batch_stages.emplace_back(&link, link.entry->make_batch_stage(link.options, context, link.info));
    }
  }
  for (const auto& [folder, package] : setup.packages) {
    MethodRows rows;
    for (const Method& method : package->methods) rows[method.name] = 1;
    warm_up(*cache.acquire(*package), *package, rows, device);
  }
  const auto begun_ns = process_cpu_ns();
  for (const auto& item : items) {
    auto frame = std::make_shared<Frame>(item, PlanPosition{});
    frame->file = read_file(open_path(input, item), {});
    frame->info = probe(frame->file.span(), limits);
    for (const auto& [link, stage] : frame_stages) run_stage(*link, *stage, *frame);
    Batch batch({frame});
    for (const auto& [link, stage] : lane_stages) run_stage(*link, *stage, batch);
    for (const auto& [link, stage] : batch_stages) run_stage(*link, *stage, batch);
    if (frame->failed()) throw std::runtime_error("a picture failed: " + frame->failure->detail);
  }
  return static_cast<double>(process_cpu_ns() - begun_ns) / 1e9;
}

int measure(const Arguments& arguments) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("bench_overhead." + std::to_string(getpid()))).string();
  std::filesystem::create_directories(folder + "/in");
  const auto items = write_pictures(folder + "/in", arguments);
  Settings settings;
  settings.set("detect.model=" + arguments.detector);
  settings.set("segment.model=" + arguments.segmenter);
  settings.set("detect.skip_with_boxes=no");
  const Config config = parse_config(settings);
  const Packages packages = read_packages(config);
  const ResolvedConfig resolved = resolve(config, static_cast<int>(std::ceil(available_cores())), std::nullopt);
  const Devices devices;
  const std::string input = folder + "/in";
  const ExecutionSetup setup{config, resolved, packages, devices, planned_views(config, {"default"}), folder + "/out"};

  std::vector<double> ratios, pipeline_s, bare_s;
  for (int i = 0; i < arguments.repeats; ++i) {
    // The order alternates, since the second one has the advantage of a heap that has grown.
    if (i % 2 == 0) bare_s.push_back(run_bare(setup, input, items));
    pipeline_s.push_back(run_pipeline(setup, input, items));
    if (i % 2 == 1) bare_s.push_back(run_bare(setup, input, items));
    ratios.push_back(pipeline_s.back() / bare_s.back());
  }
  std::filesystem::remove_all(folder);
  std::vector<double> sorted = ratios;
  std::ranges::sort(sorted);
  const double median = sorted[sorted.size() / 2];
  std::cout << nlohmann::json{{"what", "overhead"},
                              {"machine", machine()},
                              {"pictures", arguments.pictures},
                              {"boxes_per_picture", arguments.boxes},
                              {"team", resolved.team},
                              {"cpu_s_pipeline", pipeline_s},
                              {"cpu_s_bare", bare_s},
                              {"ratios", ratios},
                              {"median_ratio", median},
                              {"bar", bar}}
                   .dump(2)
            << "\n";
  return arguments.check && median > bar ? 1 : 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  const auto arguments = millrace::bench::parse(argc, argv);
  if (arguments.detector.empty() || arguments.pictures < 1 || arguments.repeats < 1) {
    std::cerr << "bench_overhead DETECTOR.pkg SEGMENTER.pkg [--pictures N] [--boxes Y] [--repeats R] [--check]\n";
    return 2;
  }
  const int team = std::min(8, static_cast<int>(std::ceil(millrace::available_cores())));
  millrace::set_environment(millrace::environment_for_teams(team));
  millrace::keep_freed_memory();
  try {
    return millrace::bench::measure(arguments);
  } catch (const std::exception& error) {
    std::cerr << "bench_overhead: " << error.what() << "\n";
    return 1;
  }
}
