#include "gpu/stream_device.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>
#include <utility>

#include "gpu/finite.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_tables = 32;
constexpr double least_places_a_mask = 2048;  // objects of photographs have 300 to 5,000; 8 kB
constexpr double room = 1.25;                 // over the most that was seen

template <class T>
std::shared_ptr<T[]> typed(std::shared_ptr<void> memory) {
  auto* data = static_cast<T*>(memory.get());
  return {std::move(memory), data};
}

HeadJob job_of(const BoxSearch& search, int slots, int anchors) {
  HeadJob job;
  job.yolox = search.head.layout == HeadLayout::yolox_raw;
  job.slots = slots;
  job.anchors = anchors;
  job.classes = search.head.classes;
  std::copy(search.head.strides.begin(), search.head.strides.end(), job.strides);
  job.input_width = search.head.input_width;
  job.input_height = search.head.input_height;
  job.least_score = search.least_score;
  job.iou_threshold = search.iou_threshold;
  job.least_area = search.least_area;
  job.class_aware = search.class_aware;
  job.most_kept = std::min(search.most_boxes, anchors) + 1;
  return job;
}

/// Places of changes as runs.
std::vector<std::uint32_t> runs_of(std::span<const std::uint32_t> places, std::uint32_t pixels) {
  std::vector<std::uint32_t> runs;
  runs.reserve(places.size() + 1);
  std::uint32_t before = 0;
  for (const std::uint32_t place : places) {
    runs.push_back(place - before);
    before = place;
  }
  runs.push_back(pixels - before);
  return runs;
}

}  // namespace

/// What resampling needs beside the pixels, on the device.
struct StreamDevice::Tables {
  int width = 0, height = 0, resized_width = 0, resized_height = 0;
  ResizeFilter filter{};
  Resampling resampling{};
  ResampleTaps x, y;
  std::shared_ptr<void> memory;
};

/// One call of a decoder on its way. Its part of the results: starts, iou, largest, places; see OutlineJob.
struct StreamDevice::Tracing {
  OutlineJob job;
  std::vector<MaskTarget> targets;
  std::size_t offset = 0;  // in words

  [[nodiscard]] std::size_t head_words() const { return 3 * static_cast<std::size_t>(job.masks) + 1; }
  [[nodiscard]] std::size_t words() const { return head_words() + job.capacity; }
  void lie_at(std::uint32_t* part) {
    const auto masks = static_cast<std::size_t>(job.masks);
    job.starts = part;
    job.iou = reinterpret_cast<float*>(part + masks + 1);
    job.largest = reinterpret_cast<float*>(part + 2 * masks + 1);
    job.places = part + head_words();
  }
  void hand_over(const std::uint32_t* part) const;
};

/// What comes down in one copy.
struct StreamDevice::Results {
  std::vector<Tracing> tracings;
  std::size_t words = 0;
  std::shared_ptr<std::uint32_t[]> device, host;
};

StreamDevice::StreamDevice(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
StreamDevice::~StreamDevice() = default;

Tensor StreamDevice::empty(std::vector<std::int64_t> shape, DType dtype) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  tensor.dtype = dtype;
  tensor.device = stream_->device();
  tensor.storage = stream_->allocate(std::max<std::size_t>(tensor.bytes(), 1));
  tensor.data = tensor.storage.get();
  return tensor;
}

void StreamDevice::zero(const Tensor& tensor) { stream_->zero(tensor.data, tensor.bytes()); }

void StreamDevice::copy(const Tensor& from, const Tensor& to) { stream_->copy(from.data, to.data, to.bytes()); }

/// Values on the device, until the next wait at least.
template <class T>
T* StreamDevice::store(std::span<const T> values) {
  T* memory = scratch<T>(values.size());
  stream_->store(values.data(), memory, values.size_bytes());
  return memory;
}

/// Uninitialised device memory, until the next wait at least.
template <class T>
T* StreamDevice::scratch(std::size_t count) {
  auto memory = stream_->allocate(std::max<std::size_t>(count, 1) * sizeof(T));
  auto* data = static_cast<T*>(memory.get());
  kept_.push_back(std::move(memory));
  return data;
}

Image8 StreamDevice::upload(const Image8& raster, std::shared_ptr<const void> keep) {
  const auto bytes = std::size_t{3} * static_cast<std::size_t>(raster.width) * static_cast<std::size_t>(raster.height);
  auto* memory = scratch<std::uint8_t>(bytes);
  kept_.push_back(std::move(keep));  // before the copy begins: this can fail
  stream_->upload(raster.data, memory, bytes);
  ++counts_.uploads;
  return {memory, raster.width, raster.height};
}

const StreamDevice::Tables& StreamDevice::tables(int width, int height, const LetterboxGeometry& geometry,
                                                 const InputSpec& spec) {
  const auto found = std::find_if(tables_.begin(), tables_.end(), [&](const Tables& t) {
    return t.width == width && t.height == height && t.resized_width == geometry.resized_width &&
           t.resized_height == geometry.resized_height && t.filter == spec.filter;
  });
  if (found != tables_.end()) {
    tables_.splice(tables_.begin(), tables_, found);
    return tables_.front();
  }
  const LetterboxTables host = letterbox_tables(width, height, geometry, spec);
  std::vector<std::int32_t> words;
  const auto append = [&](const std::vector<std::int32_t>& values) {
    words.insert(words.end(), values.begin(), values.end());
  };
  for (const ResampleTable* table : {&host.x, &host.y}) {
    append(table->first);
    append(table->count);
    append(table->weights);
  }
  Tables made{width, height, geometry.resized_width, geometry.resized_height, spec.filter, host.resampling, {}, {}, {}};
  made.memory = stream_->allocate(words.size() * sizeof(std::int32_t));
  stream_->store(words.data(), made.memory.get(), words.size() * sizeof(std::int32_t));
  const auto* at = static_cast<const std::int32_t*>(made.memory.get());
  for (const auto& [table, taps] : {std::pair{&host.x, &made.x}, {&host.y, &made.y}}) {
    taps->first = at;
    taps->count = at + table->first.size();
    taps->weights = taps->count + table->count.size();
    taps->taps = table->taps;
    at = taps->weights + table->weights.size();
  }
  tables_.push_front(std::move(made));
  if (tables_.size() > most_tables) tables_.pop_back();
  return tables_.front();
}

void StreamDevice::letterbox(const Image8& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                             const Tensor& input) {
  const Tables& own = tables(raster.width, raster.height, geometry, spec);
  LetterboxJob job = letterbox_job(raster.width, raster.height, geometry, spec);
  job.pixels = raster.data;
  job.resampling = own.resampling;
  job.x = own.x;
  job.y = own.y;
  stream_->letterbox(job, input.dtype, input.data);
}

void StreamDevice::find_boxes(const Tensor& output, const BoxSearch& search, std::span<const BoxTarget> targets) {
  check_head_output(output, search.head);
  const bool yolox = search.head.layout == HeadLayout::yolox_raw;
  const int slots = static_cast<int>(output.shape[0]), anchors = static_cast<int>(output.shape[yolox ? 1 : 2]);
  HeadJob job = job_of(search, slots, anchors);
  std::vector<SlotGeometry> geometry(static_cast<std::size_t>(slots));
  for (const BoxTarget& target : targets) {
    const LetterboxGeometry& g = target.geometry;
    geometry[static_cast<std::size_t>(target.row)] = {true,  g.picture_width, g.picture_height, g.left,
                                                      g.top, g.scale_x,       g.scale_y};
  }
  const auto count = static_cast<std::size_t>(slots), cells = count * static_cast<std::size_t>(anchors);
  job.output = static_cast<const float*>(output.data);
  job.geometry = store(std::span<const SlotGeometry>(geometry));
  if (!search.wanted.empty()) job.wanted = store(std::span(search.wanted));
  job.keys = scratch<std::uint64_t>(cells);
  job.boxes = scratch<Box>(cells);
  job.best = scratch<std::int32_t>(cells);
  job.faults = scratch<std::int32_t>(count);
  stream_->zero(job.faults, count * sizeof(std::int32_t));
  const auto summaries = typed<std::int32_t>(stream_->allocate_mapped(2 * count * sizeof(std::int32_t)));
  const auto kept =
      typed<KeptBox>(stream_->allocate_mapped(count * static_cast<std::size_t>(job.most_kept) * sizeof(KeptBox)));
  job.summaries = summaries.get();
  job.kept = kept.get();
  kept_.push_back(output.storage);
  stream_->find_boxes(job);

  after_wait_.emplace_back([summaries, kept, most = job.most_kept, shown = search.most_boxes,
                            own = std::vector<BoxTarget>(targets.begin(), targets.end())] {
    for (const BoxTarget& target : own) {
      FoundBoxes& found = *target.found;
      const auto slot = static_cast<std::size_t>(target.row);
      const std::int32_t fault = summaries[2 * slot], number = summaries[2 * slot + 1];
      if (fault != 0) {
        found.fault = (fault & not_finite) != 0 ? output_not_finite : box_not_finite;
        continue;
      }
      found.more = number > shown;
      for (int i = 0; i < std::min(number, shown); ++i) {
        const KeptBox& box = kept[slot * static_cast<std::size_t>(most) + static_cast<std::size_t>(i)];
        found.boxes.push_back(box.box);
        found.scores.push_back(box.score);
        found.classes.push_back(box.class_id);
      }
    }
  });
}

Prompts StreamDevice::prompts(std::span<const Box> boxes, std::span<const int> image_index) {
  const auto count = static_cast<std::int64_t>(boxes.size());
  Prompts prompts{empty({count, 4}, DType::f32), empty({count}, DType::i64)};
  const std::vector<std::int64_t> index(image_index.begin(), image_index.end());
  stream_->store(boxes.data(), prompts.boxes.data, boxes.size_bytes());
  stream_->store(index.data(), prompts.image_index.data, index.size() * sizeof(std::int64_t));
  return prompts;
}

StreamDevice::Tracing StreamDevice::begin(const MaskCall& call, float threshold) {
  Tracing tracing;
  OutlineJob& job = tracing.job;
  job.masks = static_cast<int>(call.logits.shape[0]);
  job.logits_height = static_cast<int>(call.logits.shape[1]);
  job.logits_width = static_cast<int>(call.logits.shape[2]);
  job.threshold = threshold;
  std::vector<std::int32_t> slots(static_cast<std::size_t>(job.masks), -1);
  std::vector<MaskGeometry> geometry;
  for (const MaskTarget& target : call.targets) {
    if (geometry.empty() || !(geometry.back() == target.geometry)) {
      check_geometry(target.geometry);
      geometry.push_back(target.geometry);
    }
    slots[static_cast<std::size_t>(target.row)] = static_cast<std::int32_t>(geometry.size()) - 1;
    job.widest = std::max(job.widest, target.geometry.picture_width);
  }
  job.logits = static_cast<const float*>(call.logits.data);
  job.predicted_iou = static_cast<const float*>(call.predicted_iou.data);
  job.slots = store(std::span<const std::int32_t>(slots));
  job.geometry = store(std::span<const MaskGeometry>(geometry));
  job.counts = scratch<std::uint32_t>(static_cast<std::size_t>(job.masks) * static_cast<std::size_t>(job.widest) + 1);
  job.capacity = static_cast<std::uint32_t>(std::ceil(std::max(least_places_a_mask, room * most_places_) * job.masks));
  tracing.targets = call.targets;
  kept_.push_back(call.logits.storage);
  kept_.push_back(call.predicted_iou.storage);
  return tracing;
}

/// Memory for the results of these calls, side by side.
StreamDevice::Results StreamDevice::make_results(std::vector<Tracing> tracings) {
  Results results;
  results.tracings = std::move(tracings);
  for (Tracing& tracing : results.tracings) {
    tracing.offset = results.words;
    results.words += tracing.words();
  }
  results.device = typed<std::uint32_t>(stream_->allocate(results.words * sizeof(std::uint32_t)));
  for (Tracing& tracing : results.tracings) tracing.lie_at(results.device.get() + tracing.offset);
  return results;
}

void StreamDevice::trace(std::span<const MaskCall> calls, float threshold) {
  std::vector<Tracing> tracings;
  for (const MaskCall& call : calls) {
    if (!call.targets.empty()) tracings.push_back(begin(call, threshold));
  }
  if (tracings.empty()) return;
  results_.push_back(make_results(std::move(tracings)));
  try {
    for (const Tracing& tracing : results_.back().tracings) stream_->outline(tracing.job);
  } catch (...) {
    results_.pop_back();  // what was never written must not be read
    throw;
  }
}

void StreamDevice::bring_down(std::vector<Results>& all) {
  try {
    for (Results& results : all) {
      const std::size_t bytes = results.words * sizeof(std::uint32_t);
      results.host = typed<std::uint32_t>(stream_->allocate_mapped(bytes));
      stream_->download(results.device.get(), results.host.get(), bytes);
      ++counts_.downloads;
    }
  } catch (const std::bad_alloc&) {
    stream_->wait();  // else memory that the device still writes to would be let go
    throw;
  }
  stream_->wait();
  ++counts_.waits;
}

void StreamDevice::abandon() {
  const auto all = std::exchange(results_, {});
  const auto finishes = std::exchange(after_wait_, {});
  const auto kept = std::exchange(kept_, {});
  ++counts_.waits;
  try {
    stream_->wait();
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception&) {  // fakes do late what a GPU refuses at once
  }
}

void StreamDevice::wait() {
  // Taken out first: should the stream fail, nothing of this is asked for again.
  auto all = std::exchange(results_, {});
  const auto finishes = std::exchange(after_wait_, {});
  const auto kept = std::exchange(kept_, {});
  bring_down(all);
  for (const auto& finish : finishes) finish();

  std::vector<Tracing> cut;
  for (const Results& results : all) {
    for (const Tracing& tracing : results.tracings) {
      const std::uint32_t* part = results.host.get() + tracing.offset;
      const std::uint32_t total = part[tracing.job.masks];
      most_places_ = std::max(most_places_, static_cast<double>(total) / tracing.job.masks);
      if (total <= tracing.job.capacity) {
        tracing.hand_over(part);
      } else {
        cut.push_back(tracing);
        cut.back().job.capacity = total;
      }
    }
  }
  if (cut.empty()) return;
  ++counts_.overflows;
  std::vector<Results> again;
  again.push_back(make_results(cut));
  for (std::size_t i = 0; i < cut.size(); ++i) {
    const OutlineJob& job = again.front().tracings[i].job;
    stream_->copy(cut[i].job.largest, job.largest, sizeof(float) * static_cast<std::size_t>(job.masks));
    stream_->write_places(job);
  }
  bring_down(again);
  for (const Tracing& tracing : again.front().tracings) tracing.hand_over(again.front().host.get() + tracing.offset);
}

void StreamDevice::Tracing::hand_over(const std::uint32_t* part) const {
  const auto masks = static_cast<std::size_t>(job.masks);
  const auto* iou = reinterpret_cast<const float*>(part + masks + 1);
  const auto* largest = reinterpret_cast<const float*>(part + 2 * masks + 1);
  const std::uint32_t* places = part + head_words();
  for (const MaskTarget& target : targets) {
    const auto n = static_cast<std::size_t>(target.row);
    TracedMask& mask = *target.mask;
    mask.predicted_iou = iou[n];
    if (!std::isfinite(iou[n])) {
      mask.fault = iou_not_finite;
    } else if (!std::isfinite(largest[n])) {
      mask.fault = logits_not_finite;
    } else {
      const auto pixels = static_cast<std::uint32_t>(target.geometry.picture_width) *
                          static_cast<std::uint32_t>(target.geometry.picture_height);
      mask.counts = runs_of({places + part[n], part[n + 1] - part[n]}, pixels);
    }
  }
}

}  // namespace millrace
