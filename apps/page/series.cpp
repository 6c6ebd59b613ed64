#include "apps/page/series.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

// The last row of a run covers less than a second. Below this time, its values are no peaks.
constexpr double whole_row_s = 0.5;

/// Four digits are more than a chart shows.
double rounded(double value) {
  std::array<char, 32> text{};
  constexpr int digits = 4;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits).ptr;
  std::from_chars(text.data(), end, value);
  return value;
}

std::vector<std::string_view> split(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> fields;
  for (;;) {
    const auto comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

std::optional<double> number(std::string_view field) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  const bool good = error == std::errc() && end == field.data() + field.size() && value - value == 0;  // finite
  return good ? std::optional(value) : std::nullopt;
}

}  // namespace

void Series::Cell::add(double value, double seconds, bool whole) {
  if (time == 0 || (whole && value < low)) low = value;
  if (time == 0 || (whole && value > high)) high = value;
  time += seconds;
  sum += value * seconds;
}

void Series::Cell::add(const Cell& later) {
  if (later.time == 0) return;
  low = time == 0 ? later.low : std::min(low, later.low);
  high = time == 0 ? later.high : std::max(high, later.high);
  time += later.time;
  sum += later.sum;
}

Series::Series(std::vector<std::string> columns, std::size_t most_points)
    : columns_(std::move(columns)), most_points_(most_points), all_(columns_.size()) {}

void Series::add(double seconds, const std::vector<std::optional<double>>& values) {
  const double length = seconds - end_;
  if (length <= 0) return;
  end_ = seconds;
  ++rows_;
  const bool whole = length >= whole_row_s;
  if (points_.empty() || (rows_in_last_ == rows_per_point_ && whole)) {
    if (points_.size() == 2 * most_points_) halve();
    points_.push_back({seconds, std::vector<Cell>(columns_.size())});
    rows_in_last_ = 0;
  }
  if (whole || rows_in_last_ == 0) ++rows_in_last_;
  points_.back().end = seconds;
  for (std::size_t i = 0; i < values.size() && i < columns_.size(); ++i) {
    if (!values[i]) continue;
    points_.back().cells[i].add(*values[i], length, whole);
    all_[i].add(*values[i], length, whole);
  }
}

void Series::halve() {
  for (std::size_t i = 0; i < points_.size() / 2; ++i) {
    Point point = std::move(points_[2 * i]);
    const Point& next = points_[2 * i + 1];
    point.end = next.end;
    for (std::size_t column = 0; column < columns_.size(); ++column) point.cells[column].add(next.cells[column]);
    points_[i] = std::move(point);
  }
  points_.resize(points_.size() / 2);
  rows_per_point_ *= 2;
  rows_in_last_ = rows_per_point_;
}

Json Series::to_json() const {
  Json time = Json::array();
  for (const Point& point : points_) time.push_back(rounded(point.end));
  Json columns = Json::array();
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    if (all_[column].time == 0) continue;
    Json points = Json::array();
    for (const Point& point : points_) {
      const Cell& cell = point.cells[column];
      if (cell.time == 0) {
        points.push_back(nullptr);
      } else if (rows_per_point_ == 1) {
        points.push_back(rounded(cell.sum / cell.time));
      } else {
        points.push_back({rounded(cell.low), rounded(cell.sum / cell.time), rounded(cell.high)});
      }
    }
    columns.push_back({{"name", columns_[column]},
                       {"mean", rounded(all_[column].sum / all_[column].time)},
                       {"low", rounded(all_[column].low)},
                       {"high", rounded(all_[column].high)},
                       {"points", std::move(points)}});
  }
  return {{"rows", rows_}, {"rows_per_point", rows_per_point_}, {"time", time}, {"columns", columns}};
}

void CsvSeries::add(std::string_view line) {
  const auto fields = split(line);
  if (!has_head_) {
    has_head_ = true;
    if (fields.front() != "seconds") return;
    std::vector<std::string> columns(fields.begin() + 1, fields.end());
    pictures_ = static_cast<std::size_t>(std::ranges::find(columns, "pictures") - columns.begin());
    if (pictures_ < columns.size()) columns[pictures_] = "pictures_per_s";
    values_.resize(columns.size());
    series_.emplace(std::move(columns), most_points_);
    return;
  }
  const auto seconds = number(fields.front());
  if (!series_ || fields.size() != values_.size() + 1 || !seconds || *seconds <= before_) return;
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = number(fields[i + 1]);
  if (pictures_ < values_.size()) {
    const auto now = values_[pictures_];
    values_[pictures_] =
        now && pictures_before_ ? std::optional((*now - *pictures_before_) / (*seconds - before_)) : std::nullopt;
    pictures_before_ = now;
  }
  before_ = *seconds;
  series_->add(*seconds, values_);
}

Json CsvSeries::to_json() const { return series_ ? series_->to_json() : Json(); }

Json thinned_csv(std::istream& csv, std::size_t most_points) {
  CsvSeries series(most_points);
  for (std::string line; std::getline(csv, line);) series.add(line);
  return series.to_json();
}

}  // namespace millrace
