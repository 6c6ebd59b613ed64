#include "stages/model_call.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <set>
#include <utility>

#include "models/call_limits.hpp"
#include "models/engine.hpp"
#include "models/exec_shapes.hpp"
#include "stages/stage_models.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

// Rows have the value 100 + their index, blank rows 0. The model doubles them. It first calls `react`.
struct Model {
  std::function<void(const std::vector<int>& values)> react = [](const auto&) {};
  std::vector<std::vector<int>> calls{};
  Counters counters{CounterInfos{&split_calls, &bisect_calls}};
  MaxRows max_rows = [] { return 1000; };

  std::vector<RowOutcome> run(const std::vector<int>& pictures) {
    const MakeInputs make = [](std::span<const int> rows, const std::vector<bool>& blank, bool /*apart*/) {
      Tensor input = Tensor::empty({static_cast<std::int64_t>(rows.size())}, DType::i32);
      for (std::size_t i = 0; i < rows.size(); ++i)
        input.host<int>()[i] = blank[static_cast<std::size_t>(rows[i])] ? 0 : 100 + rows[i];
      return std::vector<Tensor>{input};
    };
    const ModelCall call = [&](const std::vector<Tensor>& inputs) {
      const auto values = inputs.front().host<int>();
      calls.emplace_back(values.begin(), values.end());
      react(calls.back());
      Tensor output = Tensor::empty(inputs.front().shape, DType::i32);
      std::transform(values.begin(), values.end(), output.host<int>().begin(), [](int v) { return 2 * v; });
      return std::vector<Tensor>{output};
    };
    return call_rows(pictures, make, call, max_rows, counters);
  }
};

std::vector<int> each_its_own(int count) {
  std::vector<int> pictures(static_cast<std::size_t>(count));
  std::iota(pictures.begin(), pictures.end(), 0);
  return pictures;
}

bool holds_any(const std::vector<int>& values, const std::set<int>& bad) {
  return std::any_of(values.begin(), values.end(), [&](int value) { return bad.count(value) != 0; });
}

void check_good(const RowOutcome& outcome, int row, bool split) {
  CAPTURE(row);
  REQUIRE(outcome.outputs != nullptr);
  CHECK(outcome.outputs->front().host<const int>()[static_cast<std::size_t>(outcome.row)] == 2 * (100 + row));
  CHECK(outcome.split == split);
  CHECK(outcome.error.empty());
}

int log2_up(int count) {
  int steps = 0;
  while ((1 << steps) < count) ++steps;
  return steps;
}

TEST_CASE("a call that succeeds is one call") {
  for (const int count : {0, 1, 7}) {
    Model model;
    const auto outcomes = model.run(each_its_own(count));
    REQUIRE(outcomes.size() == static_cast<std::size_t>(count));
    CHECK(model.calls.size() == (count == 0 ? 0 : 1));
    for (int row = 0; row < count; ++row) check_good(outcomes[static_cast<std::size_t>(row)], row, false);
    CHECK(model.counters[bisect_calls].count() == 0);
    CHECK(model.counters[split_calls].count() == 0);
  }
}

TEST_CASE("one bad row is found at any place, and the others run in the planned shape") {
  for (const int count : {1, 2, 3, 4, 5, 8, 16, 17}) {
    for (int bad = 0; bad < count; ++bad) {
      CAPTURE(count);
      CAPTURE(bad);
      Model model{[&](const auto& values) {
        if (holds_any(values, {100 + bad})) throw ModelError("bad row");
      }};
      const auto outcomes = model.run(each_its_own(count));
      CHECK(model.counters[bisect_calls].count() <= log2_up(count) + 1);
      CHECK(model.counters[split_calls].count() == 0);
      for (int row = 0; row < count; ++row) {
        if (row != bad) check_good(outcomes[static_cast<std::size_t>(row)], row, false);
      }
      CHECK(outcomes[static_cast<std::size_t>(bad)].outputs == nullptr);
      CHECK(outcomes[static_cast<std::size_t>(bad)].error == "bad row");
      if (count == 1) continue;
      std::vector<int> planned = model.calls.front();
      planned[static_cast<std::size_t>(bad)] = 0;
      CHECK(model.calls.back() == planned);
    }
  }
}

TEST_CASE("several bad rows are found one after another") {
  Model model{[](const auto& values) {
    if (holds_any(values, {102, 103, 111})) throw ModelError("bad row");
  }};
  const auto outcomes = model.run(each_its_own(16));
  for (int row = 0; row < 16; ++row) {
    if (row == 2 || row == 3 || row == 11) {
      CHECK(outcomes[static_cast<std::size_t>(row)].outputs == nullptr);
    } else {
      check_good(outcomes[static_cast<std::size_t>(row)], row, false);
    }
  }
}

TEST_CASE("if all rows are bad, each fails") {
  Model model{[](const auto& values) {
    if (std::any_of(values.begin(), values.end(), [](int value) { return value != 0; })) throw ModelError("all bad");
  }};
  for (const auto& outcome : model.run(each_its_own(8))) CHECK(outcome.error == "all bad");
}

TEST_CASE("a failure that does not happen again fails no picture") {
  int calls = 0;
  Model model{[&](const auto&) {
    if (++calls == 1) throw ModelError("once");
  }};
  const auto outcomes = model.run(each_its_own(8));
  for (int row = 0; row < 8; ++row) check_good(outcomes[static_cast<std::size_t>(row)], row, false);
  CHECK(model.calls.back() == model.calls.front());
  CHECK(model.counters[bisect_calls].count() == 4);
}

TEST_CASE("calls that are known to be too large are not tried") {
  Model model;
  model.max_rows = [] { return 3; };
  const auto outcomes = model.run(each_its_own(8));
  for (int row = 0; row < 8; ++row) check_good(outcomes[static_cast<std::size_t>(row)], row, true);
  CHECK(model.calls.size() == 4);
  CHECK(model.counters[split_calls].count() == 3);
}

TEST_CASE("a call that fails only because of its size is split in halves, and no picture fails") {
  Model model{[](const auto& values) {
    if (values.size() > 4) throw ModelError("too many for me");
  }};
  const auto outcomes = model.run(each_its_own(8));
  for (int row = 0; row < 8; ++row) check_good(outcomes[static_cast<std::size_t>(row)], row, true);
  CHECK(model.counters[split_calls].count() == 1);
}

TEST_CASE("rows of a picture fail together, and the search splits by pictures") {
  const std::vector<int> pictures{4, 4, 4, 9, 9, 11, 11, 11};
  Model model{[](const auto& values) {
    if (holds_any(values, {103})) throw ModelError("bad box");  // the first row of picture 9
  }};
  const auto outcomes = model.run(pictures);
  for (int row = 0; row < 8; ++row) {
    if (row == 3 || row == 4) {
      CHECK(outcomes[static_cast<std::size_t>(row)].outputs == nullptr);
      CHECK(outcomes[static_cast<std::size_t>(row)].error == "bad box");
    } else {
      check_good(outcomes[static_cast<std::size_t>(row)], row, false);
    }
  }
  CHECK(model.calls.back() == std::vector<int>{100, 101, 102, 0, 0, 105, 106, 107});
  CHECK(model.counters[bisect_calls].count() <= 3);
}

/// Out of memory in the call of the model, or while its inputs are made.
void throw_out_of_memory(bool of_model) {
  if (of_model) throw OutOfMemoryError("no memory");
  throw std::bad_alloc();
}

TEST_CASE("out of memory halves the call until it fits") {
  for (const bool of_model : {true, false}) {
    for (const std::size_t max_rows : {1U, 2U, 3U, 8U}) {
      CAPTURE(max_rows);
      Model model{[&](const auto& values) {
        if (values.size() > max_rows) throw_out_of_memory(of_model);
      }};
      const auto outcomes = model.run(each_its_own(11));
      for (int row = 0; row < 11; ++row) check_good(outcomes[static_cast<std::size_t>(row)], row, true);
      CHECK(model.counters[split_calls].count() >= 1);
      CHECK(model.counters[bisect_calls].count() == 0);
    }
  }
}

TEST_CASE("a search that runs out of memory fails no picture") {
  int calls = 0;
  Model model{[&](const auto&) {
    if (++calls == 1) throw ModelError("bad row");
    throw_out_of_memory(calls % 2 == 0);
  }};
  CHECK_THROWS_AS(model.run(each_its_own(8)), OutOfMemoryError);
  CHECK(calls == 2);
}

TEST_CASE("if a single row does not fit, the error concerns the whole batch") {
  Model model{[&](const auto& values) {
    if (holds_any(values, {101})) throw_out_of_memory(true);
  }};
  CHECK_THROWS_AS(model.run({0, 0, 1, 1}), OutOfMemoryError);
  Model inputs{[&](const auto& values) {
    if (holds_any(values, {101})) throw_out_of_memory(false);
  }};
  CHECK_THROWS_AS(inputs.run({0, 0, 1, 1}), std::bad_alloc);
}

TEST_CASE("a padded call has at most the rows that options allow, and one of the shapes that warm-up calls") {
  for (const int most : {1, 5, 64, 160, 256}) {
    const std::vector<int> shapes = padded_shapes(most);
    for (int rows = 1; rows <= most; ++rows) {
      CAPTURE(rows);
      const int padded = padded_rows(rows, most);
      CHECK(padded >= rows);
      CHECK(padded < 2 * rows);
      CHECK(padded <= most);
      CHECK(std::ranges::count(shapes, padded) == 1);
    }
  }
  CHECK(padded_rows(160, 160) == 160);  // and not 256
  CHECK(padded_shapes(160) == std::vector{160, 128, 64, 32, 16, 8, 4, 2, 1});
}

TEST_CASE("rows of calls follow options, package and batch, and a stage names every method of its task") {
  const Package sam = segmenter_package(8, 64);
  ModelUse use{
      .option = "model", .folder = "sam", .task = "segment", .calls = {{"encode", 0}, {"decode", 100}}, .remedy = ""};
  CHECK(rows_of(use, sam, 4, nullptr) == MethodRows{{"encode", 4}, {"decode", 64}});
  CHECK(rows_of(use, sam, 40, nullptr) == MethodRows{{"encode", 8}, {"decode", 64}});
  CallLimits limits;
  limits.limit_rows(sam.id(), "decode", 5);
  CHECK(rows_of(use, sam, 4, &limits) == MethodRows{{"encode", 4}, {"decode", 4}});
  use.calls.pop_back();
  CHECK_THROWS_WITH_AS(rows_of(use, sam, 4, nullptr),
                       "a stage's info() names the task segment, but no calls of its method 'decode'",
                       std::logic_error);
}

TEST_CASE("other errors are not blamed on a picture and pass through") {
  Model model{[](const auto&) { throw std::logic_error("our own fault"); }};
  CHECK_THROWS_AS(model.run(each_its_own(3)), std::logic_error);
  CHECK(model.calls.size() == 1);
}

}  // namespace
}  // namespace millrace
