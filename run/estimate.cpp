#include "run/estimate.hpp"

#include <algorithm>
#include <cmath>

#include "io/results/plan.hpp"
#include "pipeline/lane_timeline.hpp"

namespace millrace {
namespace {

constexpr double largest_page = 3e6;             // bytes of a report.html, apart from texts of the user
constexpr double annotations_of_file = 500'000;  // of a COCO file
constexpr double numbers_of_head = 8;            // a manifest and the first line of a plan have about that many counts

double number(std::int64_t value) { return static_cast<double>(value); }

/// Whole files instead of shares of a file.
Figure whole(const Figure& figure) {
  constexpr double rounding = 1e-6;  // errors of sums must not make a file more or less
  Figure rounded{std::round(figure.value)};
  if (figure.low) rounded.low = std::floor(*figure.low + rounding);
  if (figure.high) rounded.high = std::ceil(*figure.high - rounding);
  return rounded;
}

/// Bytes that grow as the segment lines do: COCO files and side columns.
Figure as_lines(const Spread& lines, double bytes, std::int64_t pictures) {
  return lines.sum() > 0 ? lines.sum_over(pictures) * (bytes / lines.sum()) : Figure::exactly(bytes);
}

/// Files whose counts have more digits for `to` pictures than for `from`.
Figure with_longer_counts(double bytes, double files, std::int64_t from, std::int64_t to) {
  const double digits = digits_between(to, to + 1) - digits_between(from, from + 1);
  const double longer = files * numbers_of_head * std::max(digits, 0.0);
  return {bytes + longer / 2, bytes, bytes + longer};
}

/// Sums the parts of an output.
class Parts {
 public:
  explicit Parts(std::int64_t block) : block_(number(block)) {}

  /// Without `disk_bytes`, each file leaves a part of its last block unused, half of it on average.
  void add(const std::string& name, const Figure& bytes, const Figure& files,
           const std::optional<Figure>& disk_bytes = {}) {
    const Figure count = whole(files);
    auto part = std::ranges::find(sums_.parts, name, &OutputPart::name);
    if (part == sums_.parts.end()) part = sums_.parts.insert(part, {name, Figure::exactly(0), Figure::exactly(0)});
    part->bytes += bytes;
    part->files += count;
    sums_.bytes += bytes;
    sums_.files += count;
    sums_.inodes += count;
    sums_.disk_bytes += bytes_on_disk(bytes, count, disk_bytes);
  }
  void add_folders(const Figure& folders) {
    sums_.inodes += whole(folders);
    sums_.disk_bytes += whole(folders) * block_;
  }
  /// Bytes that are on the disk only for a while.
  void add_temporary(Figure bytes) {
    bytes.low = 0;
    sums_.disk_bytes += bytes;
  }
  OutputEstimate take() { return std::move(sums_); }

 private:
  Figure bytes_on_disk(const Figure& bytes, const Figure& count, const std::optional<Figure>& disk_bytes) const {
    if (disk_bytes) return *disk_bytes;
    Figure disk = bytes;
    Figure unused = count * block_;
    unused.value /= 2;
    unused.low = 0;
    return disk += unused;
  }

  const double block_;
  OutputEstimate sums_{{}, Figure::exactly(0), Figure::exactly(0), Figure::exactly(0), Figure::exactly(0)};
};

void add_segments(Parts& parts, const SampleFiles& sample, const EstimateScope& scope) {
  const double segments = number(scope.segments);
  const std::int64_t all = scope.done + scope.pictures;
  Figure lines = sample.lines.sum_over(scope.pictures);
  lines += Figure::exactly(digits_between(scope.done, all));
  lines += with_longer_counts(sample.manifests.bytes / number(sample.manifests.files) * segments, segments,
                              sample.pictures, all);
  parts.add("segments", lines, Figure::exactly(2 * segments));
  if (sample.columns.files > 0) {
    const double columns = number(sample.columns.files) / number(sample.manifests.files);
    parts.add("segments", as_lines(sample.lines, sample.columns.bytes, scope.pictures),
              Figure::exactly(columns * segments));
  }
  // The journal of a segment, with its side columns in text form, is there until the segment is finished.
  const std::int64_t open = std::min<std::int64_t>(scope.pictures, items_of_segment);
  Figure journal = sample.lines.sum_over(open);
  journal += as_lines(sample.lines, sample.columns.bytes * 4 / 3, open);
  parts.add_temporary(journal);
}

void add_plan(Parts& parts, const SampleFiles& sample, const EstimateScope& scope) {
  if (scope.to_plan == 0) return;
  const std::int64_t all = scope.done + scope.pictures;
  const double segments = number(scope.plan_segments);
  Figure lines = sample.plan_lines.sum_over(scope.to_plan);
  lines += Figure::exactly(digits_between(all - scope.to_plan, all));
  lines += with_longer_counts(sample.plan_heads.bytes / number(sample.plan_heads.files) * segments, segments,
                              sample.pictures, all);
  parts.add("plan", lines, Figure::exactly(segments));
  // The settings of the sample differ in the number of pictures. The list of skipped files is the same.
  Figure other = with_longer_counts(sample.plan.bytes, number(sample.plan.files), sample.pictures, all);
  other.low = std::max(other.value - numbers_of_head * number(sample.plan.files), 0.0);
  *other.high += numbers_of_head * number(sample.plan.files);
  parts.add("plan", other, Figure::exactly(number(sample.plan.files)));
}

void add_side_files(Parts& parts, const PictureFiles& files, std::int64_t pictures) {
  parts.add(files.name, files.bytes.sum_over(pictures), files.files.sum_over(pictures),
            files.disk_bytes.sum_over(pictures));
  // A folder with one file of the sample has few pictures, so the sample missed folders like it.
  const double missed =
      number(files.lone) * std::max(number(pictures - files.files.count()), 0.0) / number(files.files.count());
  const double seen = number(files.folders);
  parts.add_folders({seen + missed, pictures < files.files.count() ? 0 : seen, seen + missed});
}

void add_whole_output(Parts& parts, const SampleFiles& sample, const EstimateScope& scope) {
  const std::int64_t all = scope.done + scope.pictures;
  const double growth = number(all) / number(sample.pictures);
  if (sample.whole.files > 0) {
    Figure bytes = as_lines(sample.lines, sample.whole.bytes, all);
    // Longer numbers: an object has its own and that of its picture, and a picture has its own.
    const double objects = number(scope.objects) * growth;
    const double of_objects =
        digits_between(1, std::llround(objects) + 1) - digits_between(1, scope.objects + 1) * growth;
    const double of_pictures = digits_between(0, all) - digits_between(0, sample.pictures) * growth;
    bytes += Figure::exactly(of_objects + of_pictures * (1 + number(scope.objects) / number(sample.pictures)));
    const double made = number(sample.whole.files);
    const auto files = [&](double share) {
      return made * std::max(std::ceil(objects * share / annotations_of_file), 1.0);
    };
    const double share_low = bytes.low && bytes.value > 0 ? *bytes.low / bytes.value : 1;
    const double share_high = bytes.high && bytes.value > 0 ? *bytes.high / bytes.value : 1;
    parts.add(sample.whole_name, bytes, {files(1), files(share_low), files(share_high)});
  }
  if (sample.reduced.files > 0) {
    // A reducer writes lines for classes, which the sample has, or for pictures.
    const double bytes = sample.reduced.bytes;
    parts.add("reduced", {bytes, std::min(bytes, bytes * growth), bytes * std::max(growth, 1.0)},
              Figure::exactly(number(sample.reduced.files)));
  }
}

void add_attempt(Parts& parts, const SampleFiles& sample, const EstimateScope& scope, const Figure& wall_s) {
  parts.add("runs", sample.error_lines.sum_over(scope.pictures), Figure::exactly(1));
  // One row a second, and one at the end. If the sample has no row, the header is about as long as one.
  const double row = sample.row_bytes.value_or(sample.header_bytes);
  Figure rows = wall_s * row;
  rows += Figure::exactly(row);
  Figure resources = rows;
  resources += Figure::exactly(sample.header_bytes);
  if (resources.low) resources.low = sample.header_bytes;
  parts.add("runs", resources, Figure::exactly(1));
  // The timeline has the batches up to a maximum. The page has a copy of it.
  double copied = 0;
  if (sample.timeline_bytes > 0) {
    const double times =
        std::min(number(scope.pictures) / number(sample.pictures), 2.0 * LaneTimeline::most / sample.timeline_batches);
    const double bytes = sample.timeline_bytes * std::max(times, 1.0);
    parts.add("runs", {bytes, bytes / 2, 1.5 * bytes}, Figure::exactly(1));  // batches of other views may be smaller
    copied = bytes - sample.timeline_bytes;
  }
  // The page shows the rows, those of a long run as lowest value, mean and highest value. It also has all samples of
  // the first half, so the sample's page is the minimum.
  const double most = std::max(sample.page_bytes, largest_page);
  Figure page{std::min(sample.page_bytes + rows.value + copied, most), sample.page_bytes / 2, most};
  if (rows.high) page.high = std::min(sample.page_bytes + 3 * *rows.high + 1.5 * copied, most);
  parts.add("runs", page, Figure::exactly(1));
  // Histograms of times get more entries with the logarithm of the number of pictures.
  const double growth = std::log2(1 + number(scope.pictures) / number(sample.pictures));
  const double bytes = sample.attempt.bytes, files = number(sample.attempt.files);
  // A sample may be too short for recording.json.
  const bool longer = !sample.recording && scope.pictures > sample.pictures;
  parts.add("runs", {bytes, bytes / 2, bytes * (1 + growth)},
            {files + (longer ? 1 : 0), sample.recording ? files - 1 : files, files + (sample.recording ? 0 : 1)});
}

}  // namespace

TimeEstimate estimate_time(const SampleTimes& sample, std::int64_t pictures) {
  const double count = number(pictures), of_sample = number(sample.pictures);
  const double mean_rate = of_sample / sample.window_s;
  TimeEstimate found;
  Figure& rate = found.pictures_per_s;
  double steady = count, outside_s = 0;
  std::optional<double> bound;  // of the rate, where the sample only shows that it is higher than the mean
  if (sample.steady_pictures_per_s && sample.fill_s && sample.drain_s && pictures > sample.outside) {
    rate.value = *sample.steady_pictures_per_s;
    steady = count - number(sample.outside);
    outside_s = *sample.fill_s + *sample.drain_s;
  } else if (sample.most_per_s && pictures > sample.pictures) {
    bound = std::max(*sample.most_per_s, mean_rate);
    rate.value = std::sqrt(mean_rate * *bound);
  } else {
    rate.value = mean_rate;
  }
  const double end_high = sample.end_grows ? sample.end_s * std::max(count / of_sample, 1.0) : sample.end_s;
  const double once_s = sample.start_s + outside_s;
  found.wall_s.value = once_s + steady / rate.value + (sample.end_s + end_high) / 2;
  const auto deviation = sample.block_s.deviation();
  const double mean = sample.block_s.mean();
  if (!deviation || mean <= 0 || sample.block <= 0) return found;
  // Times vary with the pictures and with the load of the machine, so they are new in each run.
  const Figure blocks = sample.block_s.sum_of_new(std::max(steady / sample.block, 1.0));
  const double shorter = *blocks.low / blocks.value, longer = *blocks.high / blocks.value;
  const double others = 1 + sample.gain_without_others;
  const double fastest = bound.value_or(rate.value) * others, slowest = (bound ? mean_rate : rate.value) / others;
  // Loading, filling and draining happen once, and vary like a block.
  const double once = t_quantile(sample.block_s.count() - 1) * *deviation / mean;
  found.wall_s.low = once_s * std::max(1 - once, 0.0) / others + steady / fastest * shorter + sample.end_s;
  found.wall_s.high = once_s * (1 + once) * others + steady / slowest * longer + end_high;
  rate.low = slowest / longer;
  if (shorter > 0) rate.high = fastest / shorter;
  return found;
}

OutputEstimate estimate_output(const SampleFiles& sample, const EstimateScope& scope, const Figure& wall_s) {
  Parts parts(sample.block_bytes);
  add_segments(parts, sample, scope);
  add_plan(parts, sample, scope);
  for (const PictureFiles& files : sample.sinks) add_side_files(parts, files, scope.pictures);
  add_whole_output(parts, sample, scope);
  add_attempt(parts, sample, scope, wall_s);
  parts.add_folders(Figure::exactly(number(sample.folders)));
  return parts.take();
}

Figure estimate_memory(const SampleMemory& sample, std::int64_t pictures) {
  const double peak = sample.peak_bytes;
  const auto deviation = sample.resident_bytes.deviation();
  if (!deviation || sample.early_peak_bytes <= 0) return {peak};
  // Peaks of independent values rise with the logarithm of their number at most.
  const double doublings = std::log2(number(SampleMemory::early));
  const double of_doubling = std::max(peak - sample.early_peak_bytes, 0.0) / doublings;
  const double growth = of_doubling * std::log2(std::max(number(pictures) / number(sample.pictures), 1.0));
  // Of three runs, five equal samples each differed by up to 13 % from their mean, and five equal runs by up to 5 %.
  constexpr double of_runs = 0.12;
  const double varies = t_quantile(sample.resident_bytes.count() - 1) * *deviation + of_doubling + of_runs * peak;
  return {peak + growth / 2, std::max(peak - varies, 0.0), peak + growth + varies};
}

}  // namespace millrace
