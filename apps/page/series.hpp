#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace millrace {

/// Columns over time, thinned to a bounded number of points. Memory does not grow with the number of rows.
///
/// A point stands for one or more rows: the lowest value, the mean over their time, and the highest.
/// When there are twice as many points as wanted, every two become one.
class Series {
 public:
  Series(std::vector<std::string> columns, std::size_t most_points);

  /// Adds a row with one value for each column. `seconds` is the end of its time; the row before it is the begin.
  /// A row that does not end later than the one before it is left out: the clock jumped.
  void add(double seconds, const std::vector<std::optional<double>>& values);

  /// {"rows", "rows_per_point", "time", "columns": [{"name", "mean", "low", "high", "points"}]}
  ///
  /// `time` has the end of each point.
  /// A point is null if no row has a value, a number if it stands for one row, else [low, mean, high].
  /// Columns without any value are left out. Numbers have four digits.
  [[nodiscard]] nlohmann::json to_json() const;

 private:
  /// The values of one column over some time.
  struct Cell {
    double time = 0, sum = 0, low = 0, high = 0;
    void add(double value, double seconds, bool whole);
    void add(const Cell& later);
  };
  struct Point {
    double end = 0;
    std::vector<Cell> cells;
  };
  void halve();

  const std::vector<std::string> columns_;
  const std::size_t most_points_;
  std::vector<Point> points_;
  std::vector<Cell> all_;
  std::int64_t rows_ = 0;
  std::int64_t rows_in_last_ = 0;
  std::int64_t rows_per_point_ = 1;
  double end_ = 0;
};

/// The rows of resources.csv, thinned as they come. The column `pictures`, a count since the start, becomes the rate `pictures_per_s`.
/// Rows of another length are left out.
class CsvSeries {
 public:
  explicit CsvSeries(std::size_t most_points) : most_points_(most_points) {}

  /// Adds the next line, without its newline. The first one is the head.
  void add(std::string_view line);

  /// As Series::to_json(). Null if there is no head with `seconds` as the first column.
  [[nodiscard]] nlohmann::json to_json() const;

 private:
  const std::size_t most_points_;
  bool has_head_ = false;
  std::size_t pictures_ = 0;  // index of this column
  std::optional<double> pictures_before_;
  double before_ = 0;
  std::vector<std::optional<double>> values_;
  std::optional<Series> series_;  // none without a good head
};

/// Thins a whole resources.csv.
nlohmann::json thinned_csv(std::istream& csv, std::size_t most_points);

}  // namespace millrace
