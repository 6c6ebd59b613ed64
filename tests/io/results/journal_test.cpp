#include "io/results/journal.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "tests/io/files/memory_files.hpp"

namespace millrace {
namespace {

const std::string path = "/out/000001.part";

Line line(std::int64_t id, const std::string& rest = R"("state": "ok")") {
  return {id, "{\"id\": " + std::to_string(id) + ", " + rest + "}", true, Reason::internal, static_cast<int>(id % 5)};
}

Line failed(std::int64_t id, Reason reason) {
  Line result = line(id, "\"state\": \"failed\"");
  result.ok = false;
  result.reason = reason;
  result.objects = 0;
  return result;
}

struct Opened {
  std::vector<JournalEntry> entries;
  Journal journal;
  explicit Opened(const MemoryFiles& files, const std::string& key = "plan/1/")
      : journal(
            path, key, [this](const JournalEntry& entry) { entries.push_back(entry); }, files) {}
};

/// A journal of three batches with two lines each.
MemoryFiles filled() {
  MemoryFiles files;
  Opened opened(files);
  opened.journal.append(0, std::vector<Line>{line(10), line(11)});
  opened.journal.append(2, std::vector<Line>{failed(14, Reason::truncated), line(15)});
  opened.journal.append(1, std::vector<Line>{line(13), line(12)});
  return files;
}

TEST_CASE("lines are read back with all that a resume needs") {
  const MemoryFiles files = filled();
  const Opened opened(files);
  REQUIRE(opened.entries.size() == 6);
  const std::vector<std::int64_t> ids{10, 11, 14, 15, 13, 12};
  const std::vector<int> batches{0, 0, 2, 2, 1, 1};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(opened.entries[i].item_id == ids[i]);
    CHECK(opened.entries[i].batch == batches[i]);
    CHECK(opened.entries[i].ok == (ids[i] != 14));
    CHECK(opened.entries[i].objects == (ids[i] == 14 ? 0 : ids[i] % 5));
    const Line expected = ids[i] == 14 ? failed(14, Reason::truncated) : line(ids[i]);
    CHECK(opened.journal.read(opened.entries[i]) == expected.json);
  }
  CHECK(opened.entries[2].reason == Reason::truncated);
  CHECK(opened.journal.scan().invalid_lines == 0);
}

TEST_CASE("lines can be read as soon as append returns") {
  const MemoryFiles files;
  Opened opened(files);
  for (int batch = 0; batch < 3; ++batch) {
    const std::vector<Line> lines{line(batch * 2), line(batch * 2 + 1)};
    const auto entries = opened.journal.append(batch, lines);
    REQUIRE(entries.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) CHECK(opened.journal.read(entries[i]) == lines[i].json);
  }
}

TEST_CASE("a journal that is cut in its last line loses only that line, and append continues after the others") {
  const std::string whole = filled().content(path);
  const std::size_t last_begin = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t size = last_begin; size < whole.size(); ++size) {
    const MemoryFiles files = filled();
    files.content(path).resize(size);
    {
      Opened opened(files);
      REQUIRE(opened.entries.size() == 5);
      CHECK(opened.journal.scan().invalid_lines == (size == last_begin ? 0 : 1));
      CHECK(files.content(path).size() == last_begin);
      opened.journal.append(1, std::vector<Line>{line(12)});
    }
    CHECK(files.content(path) == whole);
  }
}

TEST_CASE("random bytes after the lines are cut off") {
  std::mt19937 random(7);
  const std::string whole = filled().content(path);
  for (int round = 0; round < 300; ++round) {
    const MemoryFiles files = filled();
    std::string& content = files.content(path);
    for (std::size_t count = 1 + random() % 200; count > 0; --count) content += static_cast<char>(random() % 256);
    const Opened opened(files);
    CHECK(opened.entries.size() == 6);
    CHECK(files.content(path) == whole);
  }
}

TEST_CASE("a flipped bit loses its line, or two lines if it removes a newline") {
  const std::string whole = filled().content(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    const MemoryFiles files = filled();
    files.content(path)[at] = static_cast<char>(static_cast<unsigned char>(whole[at]) ^ (1U << (at % 8)));
    const Opened opened(files);
    const bool merges = whole[at] == '\n' && at + 1 < whole.size();
    CHECK(opened.entries.size() == (merges ? 4 : 5));
    for (const JournalEntry& entry : opened.entries) {
      const Line expected = entry.item_id == 14 ? failed(14, Reason::truncated) : line(entry.item_id);
      CHECK(opened.journal.read(entry) == expected.json);
    }
  }
}

TEST_CASE("lines with another key are not used") {
  const MemoryFiles files = filled();
  CHECK(Opened(files, "plan/2/").entries.empty());
  CHECK(files.content(path).empty());
}

TEST_CASE("a line that was damaged after it was written is found when it is read") {
  const MemoryFiles files = filled();
  const Opened opened(files);
  files.content(path)[static_cast<std::size_t>(opened.entries[3].offset + opened.entries[3].line_bytes) - 2] ^= 1;
  try {
    (void)opened.journal.read(opened.entries[3]);
    FAIL("damage was not found");
  } catch (const StorageError& error) {
    CHECK(error.error_number() == EIO);
  }
  files.content(path).resize(20);
  CHECK_THROWS_AS((void)opened.journal.read(opened.entries[5]), StorageError);
}

TEST_CASE("bytes without a newline that are longer than any line are skipped in bounded memory") {
  const MemoryFiles files = filled();
  const std::string whole = files.content(path);
  files.content(path) = std::string(static_cast<std::size_t>(Journal::max_line_bytes) * 2, 'x') + "\n" + whole;
  const Opened opened(files);
  CHECK(opened.entries.size() == 6);
  CHECK(opened.journal.scan().invalid_lines == 1);
  CHECK(opened.journal.read(opened.entries[5]) == line(12).json);
}

TEST_CASE("JSON that would break the file is refused before anything is written") {
  const MemoryFiles files;
  Opened opened(files);
  for (const std::string json : {"{\"id\": 1, \"a\": \"\n\"}", "{\"id\": 12}", "{\"id\": 2}", "{\"state\": 1}", "",
                                 "{\"id\": 1", "{\"id\": 1,"}) {
    CAPTURE(json);
    CHECK_THROWS_AS(opened.journal.append(0, std::vector<Line>{{1, json, true, Reason::internal, 0}}),
                    std::invalid_argument);
  }
  CHECK(files.content(path).empty());
  CHECK_NOTHROW(opened.journal.append(0, std::vector<Line>{{1, "{\"id\": 1}", true, Reason::internal, 0}}));
  CHECK_NOTHROW(opened.journal.append(0, std::vector<Line>{{1, "{\"id\":1,\"a\":2}", true, Reason::internal, 0}}));
}

TEST_CASE("sync does nothing without new lines, and fails if the file was deleted") {
  const MemoryFiles files;
  Opened opened(files);
  opened.journal.sync();
  opened.journal.append(0, std::vector<Line>{line(1)});
  opened.journal.sync();
  opened.journal.sync();
  CHECK(std::count(files.state->record.begin(), files.state->record.end(), "fsync " + path) == 1);
  files.unlink(path);
  CHECK_THROWS_AS(opened.journal.sync(), StorageError);
}

TEST_CASE("a scan of a journal does not change it") {
  const MemoryFiles files = filled();
  files.content(path) += "torn";
  const std::string before = files.content(path);
  int count = 0;
  const JournalScan scan = scan_journal(
      path, [&](const JournalEntry&) { ++count; }, files);
  CHECK(count == 6);
  CHECK(scan.invalid_lines == 1);
  CHECK(scan.valid_end + 4 == scan.total_bytes);
  CHECK(files.content(path) == before);
}

}  // namespace
}  // namespace millrace
