#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>

#include "io/files/lock.hpp"
#include "io/reducers/reducer.hpp"
#include "tests/io/reducers/reduced_lines.hpp"

namespace millrace {
namespace {

const nlohmann::json car_in_front{{"view", "front"}, {"state", "ok"}, {"objects", {{{"class", 2}, {"name", "car"}}}}};

std::string content(const std::string& out) { return read_text_file(out + "/reduced/categories.json", 1 << 20); }

TEST_CASE("a reducer is found by name, and no two have the same name") {
  for (const auto& entry : reducer_table()) {
    REQUIRE(find_reducer(entry.name) != nullptr);
    CHECK(find_reducer(entry.name) == &entry);
    CHECK_FALSE(entry.help.empty());
  }
  CHECK(find_reducer("categorys") == nullptr);
}

TEST_CASE("the output is replaced, and a second run writes the same bytes") {
  const TemporaryFolder folder;
  const std::string& out = folder.path();
  commit_lines(out, 0, 0, {car_in_front});
  const auto& categories = *find_reducer("categories");
  const auto first = run_reducer(categories, out);
  CHECK(first.file == "reduced/categories.json");
  CHECK(first.summary == std::vector<std::string>{"objects, view front: 1 car"});
  const std::string before = content(out);
  run_reducer(categories, out);
  CHECK(content(out) == before);
  commit_lines(out, 1, 1, {car_in_front, car_in_front});
  CHECK(run_reducer(categories, out).summary == std::vector<std::string>{"objects, view front: 3 car"});
  CHECK(content(out) != before);
  for (const auto& file : std::filesystem::directory_iterator(out + "/reduced"))
    CHECK_FALSE(file.path().filename().string().starts_with(".tmp-"));
}

TEST_CASE("a reducer reads while a run holds the output folder, but not while another reducer works") {
  const TemporaryFolder folder;
  commit_lines(folder.path(), 0, 0, {car_in_front});
  const FolderLock run(folder.path());
  CHECK_NOTHROW(run_reducer(*find_reducer("categories"), folder.path()));
  const FolderLock other(folder.path() + "/reduced");
  CHECK_THROWS_AS(run_reducer(*find_reducer("categories"), folder.path()), LockedError);
}

TEST_CASE("damaged segments and a line that is not JSON are errors, and the old output stays") {
  const TemporaryFolder folder;
  const std::string& out = folder.path();
  commit_lines(out, 0, 0, {car_in_front});
  const auto& categories = *find_reducer("categories");
  run_reducer(categories, out);
  const std::string before = content(out);
  {
    SegmentStore store(out, "plan");
    store.open_segment(1, {1}, {{0}});
    store.append(1, 0, {{1, "{\"id\": 1, none}"}});
  }
  CHECK_THROWS_WITH_AS(run_reducer(categories, out), doctest::Contains("the line of item 1 in segment 1"),
                       std::runtime_error);
  write_durably(segments_folder(out), "000000.jsonl", "{}\n");
  CHECK_THROWS_AS(run_reducer(categories, out), ResultsDamaged);
  CHECK(content(out) == before);
}

}  // namespace
}  // namespace millrace
