#include "pipeline/what_if.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/text.hpp"
#include "pipeline/statistics.hpp"

namespace millrace {
namespace {

constexpr int replicas = 3;  // replays of a change, each with other items
constexpr int max_threads = 4096, max_frames = 1'000'000;
constexpr double min_factor = 0.01, max_factor = 1000;  // of a stage's speed
constexpr const char* memory_option = "gate.memory";
constexpr double few_readers = 0.1;  // that wait, on average; the disk does not hold them back

// The same run, if its reads wait for their share of a full disk. Nothing if they do not wait for a disk.
std::optional<PipelineModel> with_full_disk(const Recording& recording) {
  const std::vector<Cost>& reads = recording.model.read.recorded;
  double wait_s = 0;
  for (const Cost& cost : reads) wait_s += cost.wait_s / static_cast<double>(reads.size());
  const double waiting = recording.frames_per_s * wait_s;  // Little's law: the mean number of reads that wait
  if (recording.disk_stall < slow_disk_stall || waiting < few_readers) return std::nullopt;
  PipelineModel model = recording.model;
  // If reads wait independently of each other, so many share the disk while it works.
  const double share = std::min(waiting / model.read_threads, 1.0);
  const double together = waiting / (1 - std::pow(1 - share, model.read_threads));
  for (Cost& cost : model.read.recorded) {
    cost.disk_s = cost.wait_s / std::max(together, 1.0);
    cost.wait_s = 0;
  }
  return model;
}

struct Number {
  std::string name;
  double value = 0;
};

// "segment x2" with separator " x", "gate.frames=8" with "="; nothing if it does not have this form.
std::optional<Number> split(std::string_view change, std::string_view separator) {
  const auto at = change.rfind(separator);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const auto text = change.substr(at + separator.size());
  Number number{std::string(change.substr(0, at))};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  // Sizes of memory have units, as in recipes: 512M.
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (number.name == memory_option && unit.size() == 1) {
    const auto letter = std::string_view("kMGT").find(unit == "K" ? 'k' : unit.front());
    if (letter != std::string_view::npos) {
      number.value *= std::pow(1024.0, static_cast<double>(letter + 1));
      unit = {};
    }
  }
  if (error != std::errc() || !unit.empty() || !std::isfinite(number.value)) return std::nullopt;
  return number;
}

void speed_up(StageCosts& stage, double times) {
  for (Cost& cost : stage.recorded) {
    cost.core_s /= times;
    cost.device_s /= times;
    cost.launch_s /= times;
    cost.wait_s /= times;
    cost.disk_s /= times;
  }
}

/// Calls of a batch if each has at most `most` rows.
double calls_of(const RowLimit& limit, int most) {
  const double full = limit.rows / most;
  // If all batches have the same number of rows. Otherwise, the last calls of batches are about half full.
  constexpr double rounding = 1e-4;
  if (std::abs(limit.calls - std::round(limit.calls)) < rounding) return std::ceil(full - rounding);
  return std::max(full + limit.calls - limit.rows / std::min(limit.value, limit.most), 1.0);
}

// The costs of a batch grow with its frames.
void resize_batches(PipelineModel& model, int batch) {
  const double times = static_cast<double>(model.batch) / batch;
  for (auto* group : {&model.lane_stages, &model.batch_stages}) {
    for (auto& stage : *group) speed_up(stage, times);
  }
  speed_up(model.commit, times);
  model.batch = batch;
  model.frames = std::max(model.frames, replayed_batches * batch);
  // Two batches have to fit, as in the graph.
  model.admission = std::max(model.admission, 2 * batch);
  if (model.frames_in_memory > 0) model.frames_in_memory = std::max(model.frames_in_memory, 2 * batch);
}

// On CPUs, more lanes have smaller teams. Amdahl's law: only a part of a call's work is shared by its threads.
void resize_teams(PipelineModel& model, int team, int new_team) {
  if (team <= 1 || new_team >= team) return;
  for (auto& stage : model.lane_stages) {
    for (Cost& cost : stage.recorded) {
      if (cost.threads <= 1) continue;
      const double took_s = cost.core_s / cost.threads;
      const double alone_s = std::clamp((team * took_s - cost.core_s) / (team - 1), 0.0, took_s);
      const double new_took_s = alone_s + (cost.core_s - alone_s) / new_team;
      cost.threads = std::max(cost.core_s / new_took_s, 1.0);
    }
  }
}

int whole(const Number& number) {
  // The replay looks at each thread for each event, so it allows fewer than a run.
  const int most = number.name == "gate.frames" ? max_frames : number.name == "batch.size" ? 1024 : max_threads;
  if (number.value < 1 || number.value > most || number.value != std::floor(number.value))
    throw std::invalid_argument("what-if " + number.name + ": the value must be a whole number from 1 to " +
                                std::to_string(most));
  return static_cast<int>(number.value);
}

bool uses_gpu(const PipelineModel& model) {
  return std::ranges::any_of(model.lane_stages, [](const StageCosts& stage) {
    return std::ranges::any_of(stage.recorded, [](const Cost& cost) { return cost.device_s > 0; });
  });
}

std::string number_text(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

/// "a, b" -> "a" and "b". An empty part stays, and is refused later.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const auto comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.emplace_back(part);
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// A model with the changes so far, and what they are called.
struct Changed {
  PipelineModel model;
  int team = 1;            ///< of the recording
  double pixel_bytes = 0;  ///< likewise
  std::vector<RowLimit> row_limits{};
  std::vector<std::string> labels{};
  bool extrapolated = false;
};

void change_stage(Changed& changed, const Number& factor, const std::string& change) {
  if (factor.value < min_factor || factor.value > max_factor)
    throw std::invalid_argument("what-if '" + change + "': the factor must be between 0.01 and 1000");
  std::string names;
  for (StageCosts* stage : stages_of(changed.model)) {
    names += (names.empty() ? "" : ", ") + stage->name;
    if (stage->name != factor.name) continue;
    speed_up(*stage, factor.value);
    changed.labels.push_back("`" + factor.name + "` " +
                             (factor.value == 2 ? "twice" : number_text(factor.value) + " times") + " as fast");
    return;
  }
  throw std::invalid_argument("what-if '" + change + "': this run has no stage '" + factor.name + "'; it has " + names);
}

void change_memory(Changed& changed, double bytes) {
  if (changed.pixel_bytes <= 0)
    throw std::invalid_argument("what-if gate.memory: this run decoded no pictures, so their size is not known");
  if (!(bytes >= 1 && bytes < 9e18))
    throw std::invalid_argument("what-if gate.memory: the value must be a size of memory such as 512M or 2G");
  changed.model.frames_in_memory = frames_in_memory(bytes, changed.pixel_bytes);
  changed.labels.push_back(std::string(memory_option) + ": " + option_bytes(static_cast<std::int64_t>(bytes)));
  changed.extrapolated = true;  // real frames differ in size
}

// The rows of a batch stay the same, so only the part of its costs changes that belongs to calls and not to rows.
void change_rows(Changed& changed, RowLimit& limit, int value) {
  if (!limit.call_s)
    throw std::invalid_argument("what-if " + limit.option +
                                ": nobody knows what a call costs, because all calls of this run had about the same "
                                "size; 'millrace profile' measures it");
  if (value > limit.most)
    throw std::invalid_argument("what-if " + limit.option + ": the model takes at most " + std::to_string(limit.most) +
                                " rows in a call");
  const double calls = calls_of(limit, value);
  const auto stage = std::ranges::find(changed.model.lane_stages, limit.stage, &StageCosts::name);
  double batch_s = 0;  // on the lane's thread
  for (const Cost& cost : stage->recorded)
    batch_s += (cost.core_s / cost.threads + cost.launch_s) / static_cast<double>(stage->recorded.size());
  if (batch_s > 0) {
    constexpr double smallest = 0.01;
    const double ratio = std::max(1 + (calls - limit.calls) * *limit.call_s / batch_s, smallest);
    for (Cost& cost : stage->recorded) {
      cost.core_s *= ratio;
      cost.launch_s *= ratio;
    }
  }
  limit.calls = calls;
  limit.value = value;
  changed.labels.push_back(limit.option + ": " + std::to_string(value));
  changed.extrapolated = true;
}

void change_option(Changed& changed, const Number& option) {
  PipelineModel& model = changed.model;
  const std::string& name = option.name;
  if (name == "others" && option.value == 0) {
    model.others = 0;
    changed.labels.emplace_back("no other programs");
    return;
  }
  if (name == "cores") {
    if (option.value < min_factor || option.value > max_threads)
      throw std::invalid_argument("what-if cores: the value must be between 0.01 and 4096");
    model.cores = option.value;
    changed.labels.push_back(number_text(option.value) + " cores");
    return;
  }
  if (name == memory_option) return change_memory(changed, option.value);
  const int value = whole(option);
  for (RowLimit& limit : changed.row_limits) {
    if (limit.option == name) return change_rows(changed, limit, value);
  }
  std::string label = name + ": " + std::to_string(value);
  if (name == "threads.workers") {
    model.workers = value;
  } else if (name == "read.threads") {
    model.read_threads = value;
  } else if (name == "gate.frames") {
    model.admission = value;
  } else if (name == "threads.lanes") {
    // As the defaults do it: the lanes share the cores.
    const int shared = std::max(changed.team * model.lanes, static_cast<int>(model.cores));
    resize_teams(model, changed.team, std::max(1, shared / value));
    model.lanes = value;
    changed.extrapolated = true;
  } else if (name == "batch.size") {
    for (RowLimit& limit : changed.row_limits) {
      limit.rows *= static_cast<double>(value) / model.batch;
      limit.calls *= static_cast<double>(value) / model.batch;
    }
    resize_batches(model, value);
    changed.extrapolated = true;
  } else if (name == "gpus") {
    if (!uses_gpu(model)) throw std::invalid_argument("what-if gpus: this run used no GPU");
    model.lanes = std::max(1, model.lanes * value / model.gpus);
    model.gpus = value;
    label = value == 1 ? "one GPU" : std::to_string(value) + " GPUs, each with its lanes";
  } else {
    std::string known = "threads.workers, threads.lanes, read.threads, gate.frames, gate.memory, batch.size, ";
    for (const RowLimit& limit : changed.row_limits) known += limit.option + ", ";
    throw std::invalid_argument("what-if " + name + ": is not known; known are " + known +
                                "cores, gpus, others=0, and STAGE xN");
  }
  changed.labels.push_back(std::move(label));
}

void apply(Changed& changed, const std::string& change) {
  if (const auto factor = split(change, " x")) return change_stage(changed, *factor, change);
  const auto option = split(change, "=");
  if (!option)
    throw std::invalid_argument("what-if '" + change +
                                "': write STAGE xN or OPTION=N, for example \"segment x2\" or threads.workers=2");
  change_option(changed, *option);
}

}  // namespace

WhatIf::WhatIf(Recording recording) : recording_(std::move(recording)) {
  add_base(recording_.model);
  if (auto model = with_full_disk(recording_)) add_base(std::move(*model));
}

void WhatIf::add_base(PipelineModel model) {
  Base base{.model = std::move(model)};
  base.replayed = replay(base.model);
  double sum = 0;
  for (const Replayed& run : base.replayed) sum += run.frames_per_s;
  base.mismatch = std::abs(sum / static_cast<double>(base.replayed.size()) / recording_.frames_per_s - 1);
  bases_.push_back(std::move(base));
}

std::vector<WhatIf::Replayed> WhatIf::replay(PipelineModel model) {
  std::vector<Replayed> runs;
  for (int i = 0; i < replicas; ++i) {
    model.seed = static_cast<std::uint64_t>(i) + 1;
    const Outcome outcome = simulate(model);
    runs.push_back(
        {outcome.frames_per_s, (outcome.finished - outcome.begun).latency.quantile_ns(latency_quantile) / 1e9});
  }
  return runs;
}

// The half width of the interval has three parts: what equal runs differ by, a part of the replay's error without a
// change, and a part of the gain. The real changes of bench/insight gave the numbers.
Prediction WhatIf::predict(std::string_view change, const Base& base) const {
  constexpr double of_runs = 0.07, of_mismatch = 0.5, of_gain = 0.2, of_extrapolation = 0.05;
  Changed changed{base.model, recording_.team, recording_.pixel_bytes, recording_.row_limits};
  for (const std::string& part : parts_of(change)) apply(changed, part);
  const PipelineModel& model = changed.model;
  if (model.admission < 2 * model.batch)
    throw std::invalid_argument("what-if gate.frames: two batches have to fit, so at least " +
                                std::to_string(2 * model.batch));
  if (model.frames_in_memory > 0 && model.frames_in_memory < 2 * model.batch)
    throw std::invalid_argument("what-if gate.memory: two batches have to fit, so at least " +
                                option_bytes(memory_for_frames(2 * model.batch, recording_.pixel_bytes)));
  const auto runs = replay(model);
  double ratio = 0, latency_ratio = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Replayed& before = base.replayed[i];
    ratio += runs[i].frames_per_s / before.frames_per_s / replicas;
    latency_ratio += before.latency_s > 0 ? runs[i].latency_s / before.latency_s / replicas : 0;
  }
  double half = of_runs + of_mismatch * std::min(base.mismatch, 1.0) + of_gain * std::abs(std::log(ratio));
  if (changed.extrapolated) half += of_extrapolation;
  const double rate = recording_.frames_per_s * ratio;
  return {std::string(change),    joined(changed.labels), rate,
          rate * std::exp(-half), rate * std::exp(half),  recording_.latency_s * latency_ratio};
}

Prediction WhatIf::predict(std::string_view change) const {
  Prediction all = predict(change, bases_.front());
  for (std::size_t i = 1; i < bases_.size(); ++i) {
    const Prediction other = predict(change, bases_[i]);
    all.low = std::min(all.low, other.low);
    all.high = std::max(all.high, other.high);
    all.frames_per_s = std::sqrt(all.frames_per_s * other.frames_per_s);
    all.latency_s = std::sqrt(all.latency_s * other.latency_s);
  }
  return all;
}

std::optional<CheckedPrediction> check_prediction(const Recording& before, const Recording& after) {
  const PipelineModel &from = before.model, &to = after.model;
  std::string change;
  const auto add = [&](const std::string& one) { change += (change.empty() ? "" : ", ") + one; };
  const auto number = [&](const char* option, int old_value, int value) {
    if (value != old_value) add(std::string(option) + "=" + std::to_string(value));
  };
  number("batch.size", from.batch, to.batch);
  for (const RowLimit& limit : before.row_limits) {
    const auto now = std::ranges::find(after.row_limits, limit.option, &RowLimit::option);
    if (now != after.row_limits.end()) number(limit.option.c_str(), limit.value, now->value);
  }
  // Before the lanes, whose number it changes.
  if (uses_gpu(from)) number("gpus", from.gpus, to.gpus);
  number("threads.lanes", from.lanes, to.lanes);
  number("threads.workers", from.workers, to.workers);
  number("read.threads", from.read_threads, to.read_threads);
  number("gate.frames", from.admission, to.admission);
  if (before.pixel_bytes > 0 && after.memory_bytes > 0 && after.memory_bytes != before.memory_bytes)
    add(std::string(memory_option) + "=" + number_text(after.memory_bytes));
  if (to.cores != from.cores) add("cores=" + number_text(to.cores));
  if (from.others > 0 && to.others <= 0) add("others=0");
  if (change.empty()) return std::nullopt;
  try {
    return CheckedPrediction{WhatIf(before).predict(change), before.frames_per_s, after.frames_per_s};
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

std::vector<Prediction> WhatIf::table() const {
  PipelineModel model = recording_.model;
  std::vector<std::string> changes;
  for (const StageCosts* stage : stages_of(model)) changes.push_back(stage->name + " x2");
  const auto twice = [&](const char* option, int value) {
    if (value <= max_threads / 2) changes.push_back(std::string(option) + "=" + std::to_string(2 * value));
  };
  twice("threads.workers", model.workers);
  twice("threads.lanes", model.lanes);
  twice("read.threads", model.read_threads);
  twice("gate.frames", model.admission);
  for (const RowLimit& limit : recording_.row_limits) {
    if (limit.call_s && limit.calls > 1 && limit.value < limit.most)
      changes.push_back(limit.option + "=" + std::to_string(std::min(2 * limit.value, limit.most)));
  }
  // Otherwise memory holds no frame back.
  if (model.frames_in_memory > 0 && model.frames_in_memory < model.admission)
    changes.push_back(std::string(memory_option) + "=" + number_text(2 * recording_.memory_bytes));
  if (2 * model.cores <= max_threads) changes.push_back("cores=" + number_text(2 * model.cores));
  if (model.others > 0) changes.emplace_back("others=0");
  if (uses_gpu(model)) twice("gpus", model.gpus);
  std::vector<Prediction> all;
  for (const auto& change : changes) all.push_back(predict(change));
  std::ranges::stable_sort(all, std::ranges::greater(), &Prediction::frames_per_s);
  return all;
}

}  // namespace millrace
