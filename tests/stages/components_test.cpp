#include "stages/components.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

using Labels = std::vector<std::uint8_t>;

std::size_t at(const Extent& size, int row, int line, int column) {
  return static_cast<std::size_t>((std::int64_t{row} * size.lines + line) * size.columns + column);
}

/// Fills each component from its first pixel.
std::vector<Component> by_flooding(const Extent& size, Labels labels, int count, std::int64_t least) {
  std::vector<Component> found;
  for (int row = 0; row < size.rows; ++row) {
    for (int line = 0; line < size.lines; ++line) {
      for (int column = 0; column < size.columns; ++column) {
        const std::uint8_t label = labels[at(size, row, line, column)];
        if (label == 0 || label >= count) continue;
        Component one{label, 0, {row, line, column}, {row, line, column}};
        std::vector<Extent> next{{row, line, column}};
        labels[at(size, row, line, column)] = 0;
        while (!next.empty()) {
          const Extent place = next.back();
          next.pop_back();
          ++one.values;
          for (const auto axis : {&Extent::rows, &Extent::lines, &Extent::columns}) {
            one.first.*axis = std::min(one.first.*axis, place.*axis);
            one.last.*axis = std::max(one.last.*axis, place.*axis);
          }
          for (int neighbour = 0; neighbour < 27; ++neighbour) {
            const int r = place.rows + neighbour / 9 - 1, l = place.lines + neighbour / 3 % 3 - 1,
                      c = place.columns + neighbour % 3 - 1;
            if (r < 0 || l < 0 || c < 0 || r >= size.rows || l >= size.lines || c >= size.columns) continue;
            std::uint8_t& other = labels[at(size, r, l, c)];
            if (other != label) continue;
            other = 0;
            next.push_back({r, l, c});
          }
        }
        if (one.values >= least) found.push_back(one);
      }
    }
  }
  return found;
}

/// The finder's components, from slabs of so many rows.
std::vector<Component> by_slabs(const Extent& size, const Labels& labels, int count, std::int64_t least, int rows) {
  ComponentFinder finder(size, count, {true}, least);
  const auto slab = static_cast<std::size_t>(rows * size.row_values());
  for (std::size_t begin = 0; begin < labels.size(); begin += slab)
    finder.add(std::span(labels).subspan(begin, std::min(slab, labels.size() - begin)));
  return finder.finish();
}

void check_equal(const std::vector<Component>& found, const std::vector<Component>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].label == expected[i].label);
    CHECK(found[i].values == expected[i].values);
    CHECK(found[i].first == expected[i].first);
    CHECK(found[i].last == expected[i].last);
  }
}

TEST_CASE("components are those of a flood fill, for any shape, density and slab") {
  std::mt19937 random(5);
  for (const Extent size : {Extent{1, 1, 1}, Extent{1, 1, 40}, Extent{40, 1, 1}, Extent{30, 1, 50}, Extent{9, 8, 7},
                            Extent{1, 20, 20}, Extent{20, 1, 200}, Extent{20, 3, 2}}) {
    for (const int labels : {2, 3, 5}) {
      for (const double filled : {0.05, 0.3, 0.45, 0.6, 1.0}) {
        Labels picture(static_cast<std::size_t>(size.values()));
        std::uniform_real_distribution<double> chance(0, 1);
        for (auto& label : picture)
          label = static_cast<std::uint8_t>(chance(random) < filled ? 1 + random() % static_cast<unsigned>(labels) : 0);
        // The highest label is none of the classes, as that of a hole.
        const auto expected = by_flooding(size, picture, labels, 1);
        for (const int rows : {1, 3, size.rows}) check_equal(by_slabs(size, picture, labels, 1, rows), expected);
        check_equal(by_slabs(size, picture, labels, 4, 2), by_flooding(size, picture, labels, 4));
      }
    }
  }
}

TEST_CASE("arms that meet in the last row, and a spiral, are one component") {
  Labels comb, spiral;
  for (int row = 0; row < 20; ++row) {
    for (int column = 0; column < 21; ++column) comb.push_back(column % 2 == 0 || row == 19 ? 1 : 0);
  }
  check_equal(by_slabs({20, 1, 21}, comb, 2, 1, 1), {{1, 19 * 11 + 21, {0, 0, 0}, {19, 0, 20}}});

  constexpr int side = 41;
  spiral.assign(std::size_t{side} * side, 0);
  int row = 0, column = 0, down = 0, right = 1, drawn = 1;
  spiral[0] = 1;
  const auto free = [&](int r, int c) {
    return r >= 0 && c >= 0 && r < side && c < side && spiral[at({side, 1, side}, r, 0, c)] == 0;
  };
  for (int turns = 0; turns < 2;) {
    // Ahead two places, so that turns of the spiral do not touch each other.
    const bool ahead = free(row + down, column + right) &&
                       (free(row + 2 * down, column + 2 * right) || row + 2 * down < 0 || row + 2 * down >= side ||
                        column + 2 * right < 0 || column + 2 * right >= side);
    if (!ahead) {
      std::swap(down, right);
      right = -right;
      ++turns;
      continue;
    }
    turns = 0;
    row += down;
    column += right;
    spiral[at({side, 1, side}, row, 0, column)] = 1;
    ++drawn;
  }
  REQUIRE(drawn > 600);
  check_equal(by_slabs({side, 1, side}, spiral, 2, 1, 1), {{1, drawn, {0, 0, 0}, {side - 1, 0, side - 1}}});
}

TEST_CASE("too many components fail instead of filling the memory") {
  // Single pixels, with a gap to each neighbour.
  constexpr int side = 2200;
  Labels dots(std::size_t{side} * side);
  for (int row = 0; row < side; row += 2) {
    for (int column = 0; column < side; column += 2) dots[at({side, 1, side}, row, 0, column)] = 1;
  }
  CHECK_THROWS_WITH_AS(by_slabs({side, 1, side}, dots, 2, 1, 100),
                       "it has more than 1000000 connected parts with at least 1 pixels or voxels; raise "
                       "semantic.instances",
                       PictureError);
  CHECK(by_slabs({side, 1, side}, dots, 2, 2, 100).empty());
}

}  // namespace
}  // namespace millrace
