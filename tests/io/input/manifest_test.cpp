#include "io/input/manifest.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "io/files/base64.hpp"
#include "io/input/scan.hpp"
#include "tests/io/results/plan_tree.hpp"

namespace millrace {
namespace {

enum class Format { text, nul, csv, jsonl };

std::unique_ptr<ItemList> open_list(const TestTree& tree, const std::string& content, Format format) {
  const std::string path = tree.file("list", content);
  const bool is_text = format == Format::text || format == Format::nul;
  auto lines = std::make_unique<LineReader>(
      path, LineReader::Options{
                "'list'", format == Format::nul ? '\0' : '\n', is_text ? list_line_limit : manifest_line_limit, {}});
  if (is_text) return text_list(std::move(lines), format == Format::nul);
  return format == Format::csv ? csv_manifest(std::move(lines)) : jsonl_manifest(std::move(lines));
}

std::vector<ListedItem> read_list(const std::string& content, Format format) {
  static const TestTree tree;
  const auto list = open_list(tree, content, format);
  std::vector<ListedItem> items;
  ListedItem item;
  while (list->next(item) == Step::item) items.push_back(item);
  return items;
}

std::string error_of(const std::string& content, Format format) {
  try {
    read_list(content, format);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::vector<std::string> paths_of(const std::vector<ListedItem>& items) {
  std::vector<std::string> paths;
  for (const ListedItem& item : items) paths.push_back(item.path);
  return paths;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

using Names = std::vector<std::string>;

TEST_CASE("text lists accept any bytes except the delimiter") {
  CHECK(read_list("", Format::text).empty());
  CHECK(read_list("\n\n\n", Format::text).empty());
  CHECK(paths_of(read_list("a.jpg\nb c.jpg\n", Format::text)) == Names{"a.jpg", "b c.jpg"});
  CHECK(paths_of(read_list("a.jpg\nlast", Format::text)) == Names{"a.jpg", "last"});
  CHECK(paths_of(read_list("\xEF\xBB\xBF"
                           "a.jpg\r\n\"q\",\xff\t.jpg\r\n",
                           Format::text)) == Names{"a.jpg", "\"q\",\xff\t.jpg"});
  CHECK(paths_of(read_list(std::string("a\nb\r\0c\0\0d", 9), Format::nul)) == Names{"a\nb\r", "c", "d"});
  const auto items = read_list("a\n\n\nb\n", Format::text);
  CHECK(items[0].line == 1);
  CHECK(items[1].line == 4);
  CHECK(contains(error_of(std::string("a\0b\0", 4), Format::text), "'list' line 1"));
  CHECK(contains(error_of(std::string("a\0b\0", 4), Format::text), "-0"));
}

TEST_CASE("lines of any length around the block size are read, up to a limit") {
  for (const std::size_t length : {1UL, 65'534UL, 65'535UL, 65'536UL}) {
    const std::string line(length, 'x');
    CHECK(paths_of(read_list(line + "\n" + line + "\nz", Format::text)) == Names{line, line, "z"});
  }
  const std::string longer(list_line_limit + 1, 'x');
  CHECK(contains(error_of("ok\n" + longer, Format::text), "'list' line 2 is longer than 65536 bytes"));
  CHECK(contains(error_of("ok\n" + longer + "\n", Format::text), "'list' line 2 is longer than"));
  CHECK(contains(error_of(std::string(manifest_line_limit + 100, '['), Format::jsonl), "line 1 is longer than"));
  CHECK_THROWS_AS(LineReader("/nonexistent/list", {"'list'", '\n', 10, {}}), InputError);
}

TEST_CASE("CSV follows RFC 4180") {
  const auto items = read_list(
      "view,path,note,boxes\r\n"
      "left,\"a,\"\"b\"\"\nc.jpg\",x,\"[[1,2,3.5,4],[5,6,7,8,2]]\"\r\n"
      "\r\n"
      ",plain.jpg,,\r\n"
      "right,z.jpg,\"\",[]",
      Format::csv);
  REQUIRE(items.size() == 3);
  CHECK(items[0].path == "a,\"b\"\nc.jpg");
  CHECK(items[0].view == "left");
  CHECK(items[0].line == 2);
  REQUIRE(items[0].boxes.has_value());
  REQUIRE(items[0].boxes->size() == 2);
  CHECK(items[0].boxes->at(0).width == 3.5F);
  CHECK(items[0].boxes->at(0).class_id == 0);
  CHECK(items[0].boxes->at(1).class_id == 2);
  CHECK(items[1].path == "plain.jpg");
  CHECK(items[1].view.empty());
  CHECK_FALSE(items[1].boxes.has_value());
  CHECK(items[1].line == 5);
  REQUIRE(items[2].boxes.has_value());
  CHECK(items[2].boxes->empty());
  CHECK(paths_of(read_list("\xEF\xBB\xBFpath\n\xff.jpg\n", Format::csv)) == Names{"\xff.jpg"});
  CHECK(read_list("", Format::csv).empty());
  CHECK(read_list("path\n", Format::csv).empty());
}

TEST_CASE("malformed CSV is an error with file and line") {
  struct Row {
    const char* content;
    const char* line;
    const char* message;
  };
  const Row rows[] = {
      {"a,b\n1,2\n", "line 1", "no column 'path'"},
      {"path;view\nx;y\n", "line 1", "separated by commas"},
      {"path,view,path\n", "line 1", "twice"},
      {"path,view\na.jpg\n", "line 2", "1 fields, but the header has 2"},
      {"path\na.jpg,b\n", "line 2", "2 fields, but the header has 1"},
      {"path\nok\n\"never\nclosed\n", "line 3", "never closed"},
      {"path\n\"a\"b\n", "line 2", "after the closing quote"},
      {"path\na\"b\"\n", "line 2", "not quoted"},
      {"path,view\n,left\n", "line 2", "the path is empty"},
      {"path,boxes\na,nonsense\n", "line 2", "boxes is not valid JSON"},
      {"path,boxes\na,\"[[1,2,3,NaN]]\"\n", "line 2", "not valid JSON"},
      {"path,boxes\na,\"[[1,2,3]]\"\n", "line 2", "box 1 is not"},
      {"path,boxes\na,\"{}\"\n", "line 2", "not a list"},
  };
  for (const Row& row : rows) {
    const std::string error = error_of(row.content, Format::csv);
    CAPTURE(error);
    CHECK(contains(error, std::string("'list' ") + row.line + ":"));
    CHECK(contains(error, row.message));
  }
  // A quote that is never closed fails at the limit, not at the end of a large file.
  std::string large = "path\n\"open\n";
  for (int i = 0; i < 400'000; ++i) large += "0123456789012345678901234567890123456789012345678\n";
  CHECK(contains(error_of(large, Format::csv), "line 2: a quoted field that starts in this row is never closed"));
}

TEST_CASE("JSONL manifests") {
  const auto items =
      read_list(R"({"path": "a\nb\"c.jpg", "view": "left", "boxes": [[1, 2, 3, 4, 7]], "other": {"x": [1]}})"
                "\n\n  \r\n"
                R"({"path": "shown", "path_b64": ")" +
                    to_base64("\xff\xfe.jpg") +
                    R"(", "view": null, "boxes": null})"
                    "\n"
                    R"({"path": "c.jpg", "boxes": []})",
                Format::jsonl);
  REQUIRE(items.size() == 3);
  CHECK(items[0].path == "a\nb\"c.jpg");
  CHECK(items[0].view == "left");
  CHECK(items[0].boxes->at(0).class_id == 7);
  CHECK(items[1].path == "\xff\xfe.jpg");
  CHECK(items[1].view.empty());
  CHECK_FALSE(items[1].boxes.has_value());
  CHECK(items[1].line == 4);
  CHECK(items[2].boxes->empty());
}

TEST_CASE("malformed JSONL is an error with file and line") {
  struct Row {
    std::string line;
    const char* message;
  };
  const Row rows[] = {
      {"{", "not valid JSON"},
      {"[1]", "not an object"},
      {"null", "not an object"},
      {"{}", "neither 'path' nor 'path_b64'"},
      {R"({"path": 3})", "path is not text"},
      {R"({"path": ""})", "the path is empty"},
      {R"({"path": "a\u0000b"})", "NUL"},
      {"{\"path\": \"\xff\"}", "not valid JSON"},
      {R"({"path": "\ud800"})", "not valid JSON"},
      {R"({"path_b64": "*"})", "base64"},
      {R"({"path": "a", "view": []})", "view is not text"},
      {R"({"path": "a", "boxes": 1})", "not a list"},
      {R"({"path": "a", "boxes": [1]})", "box 1 is not"},
      {R"({"path": "a", "boxes": [[1,2,3,4],[1,2,3,"4"]]})", "box 2 is not"},
      {R"({"path": "a", "boxes": [[1,2,3,4,5,6]]})", "box 1 is not"},
      {R"({"path": "a", "boxes": [[1,2,-3,4]]})", "not above 0"},
      {R"({"path": "a", "boxes": [[1,2,0,4]]})", "not above 0"},
      {R"({"path": "a", "boxes": [[NaN,2,3,4]]})", "not valid JSON"},
      {R"({"path": "a", "boxes": [[1e999,2,3,4]]})", "out of range"},
      {R"({"path": "a", "boxes": [[1e300,2,3,4]]})", "out of range"},
      {R"({"path": "a", "boxes": [[1,2,3,4,-1]]})", "class"},
      {R"({"path": "a", "boxes": [[1,2,3,4,0.5]]})", "class"},
      {R"({"path": "a", "boxes": [[1,2,3,4,1e18]]})", "class"},
      {R"({"path": "a", "x": )" + std::string(100'000, '[') + "}", "nested more than 64 deep"},
      {R"({"path": "a", "x": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
       "nested more than 64 deep"},
  };
  for (const Row& row : rows) {
    const std::string error = error_of("{\"path\": \"ok\"}\n" + row.line + "\n", Format::jsonl);
    CAPTURE(error);
    CHECK(contains(error, "'list' line 2"));
    CHECK(contains(error, row.message));
    CHECK(error.size() < 400);
  }
}

TEST_CASE("random bytes give items or an InputError, nothing else") {
  std::mt19937 random(3);
  const std::string letters = "{}[]\",:\\path_b64view boxes0123456789.-+eE\r\n\xff\xC3\xA4";
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string content = round % 2 == 0 ? "path,view,boxes\n" : "{\"path\": \"a\", \"boxes\": [[1,2,3,4]]}\n";
    for (auto n = random() % 60; n > 0; --n) {
      const std::size_t at = round % 3 == 0 ? random() % (content.size() + 1) : content.size();
      content.insert(at, 1, letters[random() % letters.size()]);
    }
    for (const Format format : {Format::text, Format::nul, Format::csv, Format::jsonl}) {
      refused += error_of(content, format).empty() ? 0 : 1;
    }
  }
  CHECK(refused > 500);
}

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void write(const std::string& text) const {
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
};

TEST_CASE("an open pipe is idle once if no line comes within the given time of the given clock") {
  Pipe pipe;
  std::chrono::nanoseconds now{0};
  const IdleRule rule{std::chrono::seconds(10), [&] {
                        // Each reading of the clock is 11 s after the one before, so a wait is past its
                        // deadline at once.
                        return now += std::chrono::seconds(11);
                      }};
  std::stop_source stop;
  LineReader lines(pipe.ends[0], {"stdin", '\n', 100, rule}, stop.get_token());
  pipe.write("a.jpg\nhalf");
  std::string line;
  REQUIRE(lines.next(line) == Step::item);
  CHECK(line == "a.jpg");
  CHECK(lines.next(line) == Step::idle);
  pipe.write(" a line\n");
  REQUIRE(lines.next(line) == Step::item);  // without a deadline until this line has come
  CHECK(line == "half a line");
  pipe.close_writer();
  CHECK(lines.next(line) == Step::end);
  CHECK(lines.next(line) == Step::end);
}

TEST_CASE("a stop wakes a reader that waits for a pipe") {
  const Pipe pipe;
  std::stop_source stop;
  LineReader lines(pipe.ends[0], {"stdin", '\n', 100, {}}, stop.get_token());
  stop.request_stop();
  std::string line;
  CHECK(lines.next(line) == Step::end);
}

TEST_CASE("a closed descriptor reads as empty, and a non-blocking one is waited for") {
  int closed = 0;
  {
    const Pipe pipe;
    closed = pipe.ends[0];
  }
  std::string line;
  std::stop_source stop;
  CHECK(LineReader(closed, {"stdin", '\n', 100, {}}, stop.get_token()).next(line) == Step::end);
  CHECK(LineReader(closed, {"stdin", '\n', 100, {}}).next(line) == Step::end);

  Pipe pipe;
  REQUIRE(::fcntl(pipe.ends[0], F_SETFL, O_NONBLOCK) == 0);
  pipe.write("a\n");
  LineReader lines(pipe.ends[0], {"stdin", '\n', 100, IdleRule{std::chrono::seconds(0)}}, stop.get_token());
  CHECK(lines.next(line) == Step::item);
  CHECK(lines.next(line) == Step::idle);
  pipe.close_writer();
  CHECK(lines.next(line) == Step::end);
}

}  // namespace
}  // namespace millrace
