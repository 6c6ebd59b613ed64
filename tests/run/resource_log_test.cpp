// The columns of resources.csv, from hand-made statistics.
#include "run/resource_log.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

Reading waiting(const std::string& name, Unit unit, std::int64_t queue_length) {
  Reading it;
  it.name = name;
  it.unit = unit;
  it.queue_length = queue_length;
  return it;
}

/// 50 pictures came in, 12 went out, and items wait everywhere.
Snapshot busy() {
  Snapshot it;
  it.planned = 50;
  it.committed = 12;
  it.in_flight = 38;
  it.bytes = waiting("bytes", Unit::frames, 2);
  it.batch = waiting("batch", Unit::frames, 4);
  it.resources = {
      {waiting("read", Unit::frames, 1), {}},
      {waiting("workers", Unit::tasks, 9), {waiting("decode", Unit::frames, 3), waiting("encode", Unit::batches, 6)}},
      {waiting("lane", Unit::batches, 5), {waiting("detect", Unit::batches, 8)}, true},
      {waiting("commit", Unit::batches, 7), {}}};
  return it;
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::string field;
  for (const char c : line + ",") {
    if (c == ',') {
      fields.push_back(std::exchange(field, ""));
    } else {
      field += c;
    }
  }
  return fields;
}

/// The names of the columns, and the last row.
struct Log {
  std::vector<std::string> names;
  std::map<std::string, std::string> last;
};

Log logged(const Snapshot& statistics) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/resources.csv";
  ResourceLog log(file, {}, [&] { return statistics; });
  CHECK(log.finish().empty());
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  Log it{split(line), {}};
  std::vector<std::string> fields;
  while (std::getline(stream, line)) fields = split(line);
  REQUIRE(fields.size() == it.names.size());
  for (std::size_t i = 0; i < fields.size(); ++i) it.last[it.names[i]] = fields[i];
  return it;
}

TEST_CASE("a row has the pictures, and what waits at each place in the order of the flow") {
  Log log = logged(busy());
  const std::vector<std::string> expected{"pictures",    "in_flight",  "queue_read",   "queue_bytes", "queue_decode",
                                          "queue_batch", "queue_lane", "queue_encode", "queue_commit"};
  REQUIRE(log.names.size() > expected.size());
  CHECK(std::vector<std::string>(log.names.end() - static_cast<std::ptrdiff_t>(expected.size()), log.names.end()) ==
        expected);
  std::vector<std::string> values;
  for (const auto& name : expected) values.push_back(log.last[name]);
  CHECK(values == std::vector<std::string>{"12", "38", "1", "2", "3", "4", "5", "6", "7"});
}

TEST_CASE("fields are empty before the first picture, and if the system does not provide them") {
  Snapshot loading = busy();
  loading.planned = 0;
  Log log = logged(loading);
  for (const char* name : {"pictures", "in_flight", "queue_read", "queue_commit", "other_cores", "stolen_cores",
                           "throttled_cores", "cpu_stall", "memory_stall", "io_stall"}) {
    CAPTURE(name);
    CHECK(log.last[name].empty());
  }
  CHECK(log.last["cores_busy"] == "0.000000");
}

}  // namespace
}  // namespace millrace
