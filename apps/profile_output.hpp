#pragma once

#include <string>
#include <vector>

#include "apps/profile.hpp"
#include "base/json.hpp"

namespace millrace {

/// The figures of `millrace profile`, as text, JSON, CSV and page.
class ProfileFigures {
 public:
  /// The arguments must outlive it.
  ProfileFigures(const ProfileArguments& arguments, const std::vector<ProfileCombination>& combinations,
                 const ChosenPictures& pictures)
      : arguments_(arguments), combinations_(combinations), pictures_(pictures) {}

  /// Adds the rows of one method, and returns them as a table of at most 79 columns.
  std::string add(const std::vector<ProfileRow>& rows);

  /// The lines below the tables.
  std::string end_of_text() const;
  nlohmann::json json() const;
  /// A line with the names of the columns, which are the keys of a row in json(), and a line for each row.
  /// Lists are joined by spaces, and null is empty.
  std::string csv() const;

  /// A page for browsers with charts, tables and the text: one file without links to others.
  std::string page() const;

  bool complete = true;  ///< false: a stop or an error came before the last row

 private:
  const ProfileArguments& arguments_;
  const std::vector<ProfileCombination>& combinations_;
  const ChosenPictures& pictures_;
  std::vector<nlohmann::ordered_json> rows_;
  std::string text_;  // of all tables
};

}  // namespace millrace
