#include "io/results/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "io/results/output_contents.hpp"
#include "io/results/rle.hpp"

namespace millrace {
namespace {

constexpr double same_object = 0.5;  // lowest IoU of a pair, as in COCO's AP50

double box_iou(const Object& a, const Object& b) {
  if (std::tie(a.x, a.y, a.width, a.height) == std::tie(b.x, b.y, b.width, b.height)) return 1;
  const double width = std::min(double{a.x} + a.width, double{b.x} + b.width) - std::max(a.x, b.x);
  const double height = std::min(double{a.y} + a.height, double{b.y} + b.height) - std::max(a.y, b.y);
  if (width <= 0 || height <= 0) return 0;
  const double shared = width * height;
  return std::min(shared / (double{a.width} * a.height + double{b.width} * b.height - shared), 1.0);
}

double mask_iou(const Object& a, const Object& b) {
  const std::int64_t shared = rle_intersection(a.rle_counts, b.rle_counts);
  const std::int64_t all = rle_area(a.rle_counts) + rle_area(b.rle_counts) - shared;
  return all == 0 ? 1 : static_cast<double>(shared) / static_cast<double>(all);  // two empty masks are equal
}

double iou(const Object& a, const Object& b) {
  const double boxes = box_iou(a, b);
  if (boxes <= 0 || a.rle_counts.empty() || b.rle_counts.empty()) return boxes;
  return mask_iou(a, b);
}

float shift(const Object& a, const Object& b) {
  return std::max({std::abs(a.x - b.x), std::abs(a.y - b.y), std::abs(a.x + a.width - b.x - b.width),
                   std::abs(a.y + a.height - b.y - b.height)});
}

bool equal(const Object& a, const Object& b) {
  return std::tie(a.x, a.y, a.width, a.height, a.score, a.class_id, a.rle_counts) ==
         std::tie(b.x, b.y, b.width, b.height, b.score, b.class_id, b.rle_counts);
}

/// Lines of one output that wait for the line of the same picture in the other one.
/// A picture that is in the input twice has two lines, which are paired in plan order.
using Waiting = std::unordered_map<std::string, std::deque<std::string>>;

std::optional<std::string> take_line(Waiting& waiting, const std::string& path) {
  const auto found = waiting.find(path);
  if (found == waiting.end()) return std::nullopt;
  std::string line = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) waiting.erase(found);
  return line;
}

std::int64_t size_of(const Waiting& waiting) {
  std::int64_t lines = 0;
  for (const auto& [path, of_path] : waiting) lines += static_cast<std::int64_t>(of_path.size());
  return lines;
}

class Comparing {
 public:
  explicit Comparing(std::size_t worst) : kept_(worst) {}

  void add(FrameRecord first, FrameRecord second) {
    ++result_.pictures;
    if (first.failed || second.failed) {
      ++(first.failed && second.failed ? result_.failed_both
         : first.failed                ? result_.failed_only_first
                                       : result_.failed_only_second);
      return;
    }
    if (first.width != second.width || first.height != second.height) {
      ++result_.other_sizes;
      return;
    }
    result_.objects_first += static_cast<std::int64_t>(first.objects.size());
    result_.objects_second += static_cast<std::int64_t>(second.objects.size());
    const bool identical = std::ranges::equal(first.objects, second.objects, equal);
    if (identical) ++result_.identical;
    const auto pairs = pair_objects(first.objects, second.objects, same_object);
    PictureDifference difference;
    for (const ObjectPair& pair : pairs) {
      ++result_.pairs;
      result_.ious.add(pair.iou);
      result_.largest_box_shift = std::max(result_.largest_box_shift, pair.box_shift);
      difference.lowest_iou = std::min(difference.lowest_iou, pair.iou);
      if (first.objects[pair.first].class_id != second.objects[pair.second].class_id) ++difference.other_classes;
    }
    result_.other_classes += difference.other_classes;
    difference.only_first = static_cast<std::int64_t>(first.objects.size() - pairs.size());
    difference.only_second = static_cast<std::int64_t>(second.objects.size() - pairs.size());
    if (difference.only_first + difference.only_second > 0) difference.lowest_iou = 0;
    if (identical || (difference.lowest_iou == 1 && difference.other_classes == 0)) return;
    keep(std::move(difference), std::move(first), std::move(second));
  }

  ResultsComparison take() { return std::move(result_); }

 private:
  static auto order(const PictureDifference& it) {
    return std::make_tuple(it.lowest_iou, -(it.only_first + it.only_second), -it.other_classes);
  }

  void keep(PictureDifference difference, FrameRecord first, FrameRecord second) {
    auto& worst = result_.worst;
    const auto place = std::ranges::upper_bound(worst, order(difference), {}, order);
    if (static_cast<std::size_t>(place - worst.begin()) >= kept_) return;
    difference.first = std::move(first);
    difference.second = std::move(second);
    worst.insert(place, std::move(difference));
    if (worst.size() > kept_) worst.pop_back();
  }

  const std::size_t kept_;
  ResultsComparison result_;
};

}  // namespace

void Shares::add(double share) {
  share = std::clamp(share, 0.0, 1.0);
  ++counts_.at(static_cast<std::size_t>(share * steps));
  ++count_;
  sum_ += share;
  lowest_ = std::min(lowest_, share);
}

double Shares::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double Shares::quantile(double q) const {
  const double rank = std::max(q * static_cast<double>(count_), 1.0);
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size() && count_ > 0; ++i) {
    seen += counts_[i];
    if (static_cast<double>(seen) >= rank) return static_cast<double>(i) / steps;
  }
  return 0;
}

std::vector<ObjectPair> pair_objects(std::span<const Object> first, std::span<const Object> second, double lowest) {
  std::vector<ObjectPair> candidates;
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t j = 0; j < second.size(); ++j) {
      if (const double overlap = iou(first[i], second[j]); overlap >= lowest)
        candidates.push_back({i, j, overlap, shift(first[i], second[j])});
    }
  }
  // Objects at the same place with other classes have equal IoU: the pair of the same class comes first.
  const auto order = [&](const ObjectPair& it) {
    const bool same = first[it.first].class_id == second[it.second].class_id;
    return std::make_tuple(-it.iou, !same, it.box_shift, it.first, it.second);
  };
  std::ranges::sort(candidates, {}, order);
  std::vector<char> first_taken(first.size()), second_taken(second.size());
  std::vector<ObjectPair> pairs;
  for (const ObjectPair& it : candidates) {
    if (first_taken[it.first] || second_taken[it.second]) continue;
    first_taken[it.first] = second_taken[it.second] = 1;
    pairs.push_back(it);
  }
  return pairs;
}

ResultsComparison compare_results(const std::string& first_folder, const std::string& second_folder, std::size_t worst,
                                  const FileSystem& files) {
  SegmentReader first_reader(first_folder, files), second_reader(second_folder, files);
  Waiting first_waiting, second_waiting;
  Comparing comparing(worst);
  // Two runs over the same input have the same order. Then each line soon finds the other one.
  const auto read = [](SegmentReader& reader, Waiting& own, Waiting& others, const auto& found) {
    auto lines = reader.next();
    if (!lines) return false;
    for (std::string& line : *lines) {
      FrameRecord frame = parse_frame(line);
      if (const auto other = take_line(others, frame.path)) {
        found(std::move(frame), parse_frame(*other));
      } else {
        own[frame.path].push_back(std::move(line));
      }
    }
    return true;
  };
  for (bool more = true; more;) {
    more = read(first_reader, first_waiting, second_waiting,
                [&](FrameRecord line, FrameRecord other) { comparing.add(std::move(line), std::move(other)); });
    more |= read(second_reader, second_waiting, first_waiting,
                 [&](FrameRecord line, FrameRecord other) { comparing.add(std::move(other), std::move(line)); });
  }
  ResultsComparison result = comparing.take();
  result.pictures_only_first = size_of(first_waiting);
  result.pictures_only_second = size_of(second_waiting);
  return result;
}

}  // namespace millrace
