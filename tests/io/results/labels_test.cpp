#include "io/results/labels.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

constexpr int rows = 10;
constexpr std::int64_t row_labels = 7;

std::vector<std::uint8_t> labels_of(int first, int count) {
  std::vector<std::uint8_t> labels;
  for (std::int64_t i = first * row_labels; i < (first + count) * row_labels; ++i)
    labels.push_back(static_cast<std::uint8_t>(i * i));
  return labels;
}

std::vector<std::uint8_t> read_all(const LabelRows& from) {
  std::vector<std::uint8_t> all;
  from.read([&](int first, std::span<const std::uint8_t> labels) {
    CHECK(static_cast<std::int64_t>(all.size()) == first * row_labels);
    all.insert(all.end(), labels.begin(), labels.end());
  });
  return all;
}

TEST_CASE("labels come back in order, also from a file that was opened again") {
  const TemporaryFolder folder;
  {
    LabelFile file(folder.path(), "3", "key", rows, row_labels);
    CHECK(file.finished_rows() == 0);
    file.append(labels_of(0, 4));
    file.append(labels_of(4, 1));
    CHECK(file.finished_rows() == 5);
    CHECK(read_all(file) == labels_of(0, 5));
  }
  LabelFile again(folder.path(), "3", "key", rows, row_labels);
  CHECK(again.finished_rows() == 5);
  again.append(labels_of(5, 5));
  CHECK(read_all(again) == labels_of(0, rows));
  again.remove();
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/3"));
}

TEST_CASE("a file that was cut or changed keeps the slabs before the damage") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/3";
  std::vector<std::uintmax_t> ends;
  {
    LabelFile file(folder.path(), "3", "key", rows, row_labels);
    for (int slab = 0; slab < 5; ++slab) {
      ends.push_back(std::filesystem::file_size(path));
      file.append(labels_of(2 * slab, 2));
    }
  }
  const std::uintmax_t whole = std::filesystem::file_size(path);
  std::filesystem::copy_file(path, path + ".copy");
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    std::filesystem::copy_file(path + ".copy", path, std::filesystem::copy_options::overwrite_existing);
    const std::uintmax_t at = random() % whole;
    const bool cut = trial % 2 == 0;
    if (cut) {
      std::filesystem::resize_file(path, at);
    } else {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const int old = file.get();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(old ^ 0x11));
    }
    int intact = 0;
    while (intact < 4 && ends[static_cast<std::size_t>(intact) + 1] <= at) ++intact;
    if (at < ends[0]) intact = 0;
    LabelFile file(folder.path(), "3", "key", rows, row_labels);
    CHECK(file.finished_rows() == 2 * intact);
    CHECK(read_all(file) == labels_of(0, 2 * intact));
    file.append(labels_of(2 * intact, rows - 2 * intact));
    CHECK(read_all(file) == labels_of(0, rows));
  }
}

TEST_CASE("a file remembers that calls did not have the planned shape") {
  const TemporaryFolder folder;
  {
    LabelFile file(folder.path(), "3", "key", rows, row_labels);
    file.append(labels_of(0, 4));
    CHECK_FALSE(file.split());
    file.append(labels_of(4, 1), true);
    file.append(labels_of(5, 1));
    CHECK(file.split());
  }
  CHECK(LabelFile(folder.path(), "3", "key", rows, row_labels).split());
}

TEST_CASE("labels of another key or size do not count") {
  const TemporaryFolder folder;
  LabelFile(folder.path(), "3", "key", rows, row_labels).append(labels_of(0, 4));
  CHECK(LabelFile(folder.path(), "3", "key", rows, row_labels).finished_rows() == 4);
  CHECK(LabelFile(folder.path(), "3", "other", rows, row_labels).finished_rows() == 0);
  LabelFile(folder.path(), "3", "key", rows, row_labels).append(labels_of(0, 4));
  CHECK(LabelFile(folder.path(), "3", "key", rows + 1, row_labels).finished_rows() == 0);
}

TEST_CASE("labels that are no whole rows are refused") {
  const TemporaryFolder folder;
  LabelFile file(folder.path(), "3", "key", rows, row_labels);
  CHECK_THROWS_AS(file.append(std::vector<std::uint8_t>(6)), std::logic_error);
  CHECK_THROWS_AS(file.append({}), std::logic_error);
  CHECK_THROWS_AS(file.append(labels_of(0, rows + 1)), std::logic_error);
}

}  // namespace
}  // namespace millrace
