#include "io/input/source.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <cmath>

#include "io/input/source_inputs.hpp"
#include "tests/io/results/plan_tree.hpp"

namespace millrace {
namespace {

using Names = std::vector<std::string>;

SourceSpec spec_of(Names inputs) {
  SourceSpec spec;
  spec.inputs = std::move(inputs);
  return spec;
}

std::vector<Item> items_of(Source& source) {
  std::vector<Item> items;
  Item item;
  SourcePosition position;
  while (source.next(item, position) == Step::item) items.push_back(item);
  return items;
}

Names paths_of(const SourceSpec& spec) {
  Source source(spec);
  Names paths;
  for (const Item& item : items_of(source)) paths.push_back(item.path);
  return paths;
}

std::string error_of(const SourceSpec& spec) {
  try {
    paths_of(spec);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("any bytes become JSON and come back; other JSON gives nothing") {
  for (const std::string bytes : {"", "/data/pictures", "/data/\xff\xfe\x0f\n", "/data/\xc3\xa9"}) {
    CAPTURE(bytes);
    CHECK(bytes_from_json(json_bytes(bytes)) == bytes);
  }
  using Json = nlohmann::json;
  for (const char* other : {"null", "3", "[]", "{}", R"({"bytes_hex": 3})", R"({"bytes_hex": "f"})",
                            R"({"bytes_hex": "0g"})", R"({"bytes_hex": "-1"})"}) {
    CAPTURE(other);
    CHECK_FALSE(bytes_from_json(Json::parse(other)));
  }
}

TEST_CASE("where relative paths start") {
  const TestTree tree;
  tree.file("pics/a.jpg", "xyz");
  tree.file("pics/sub/b.png");
  tree.file("more/c.jpg");
  tree.file("list.txt", "pics/a.jpg\n./pics//sub/b.png\npics/../more/c.jpg\n" + tree.path("more/c.jpg") +
                            "\n../outside.jpg\ngone.jpg\n");
  tree.file("pics/list.csv", "path\na.jpg\nsub/b.png\n");
  const InFolder here(tree.root());
  const std::string outside = std::filesystem::path(tree.root()).parent_path().native() + "/outside.jpg";

  CHECK(paths_of(spec_of({"pics"})) == Names{"a.jpg", "sub/b.png"});
  CHECK(paths_of(spec_of({"pics/"})) == Names{"a.jpg", "sub/b.png"});
  CHECK(paths_of(spec_of({"pics/**/*.png"})) == Names{"sub/b.png"});
  CHECK(paths_of(spec_of({"pics/a.jpg"})) == Names{"a.jpg"});
  CHECK(paths_of(spec_of({"pics", "more/c.jpg"})) == Names{"pics/a.jpg", "pics/sub/b.png", "more/c.jpg"});
  CHECK(paths_of(spec_of({tree.path("pics"), "."})) ==
        Names{"pics/a.jpg", "pics/sub/b.png", "more/c.jpg", "pics/a.jpg", "pics/sub/b.png"});
  CHECK(paths_of(spec_of({"list.txt"})) ==
        Names{"pics/a.jpg", "pics/sub/b.png", "more/c.jpg", "more/c.jpg", outside, "gone.jpg"});
  CHECK(paths_of(spec_of({"pics/list.csv"})) == Names{"a.jpg", "sub/b.png"});
  SourceSpec rooted = spec_of({"pics/list.csv"});
  rooted.list_root = "more";
  CHECK(Source(rooted).root() == tree.path("more"));
  CHECK(Source(spec_of({"pics"})).root() == tree.path("pics"));
  CHECK(Source(spec_of({"pics", "more"})).root() == tree.root());
  {
    const InFolder elsewhere("more");
    CHECK(paths_of(spec_of({"../pics", "."})) == Names{tree.path("pics/a.jpg"), tree.path("pics/sub/b.png"), "c.jpg"});
  }

  Source source(spec_of({"pics"}));
  Item item;
  item.path = "a.jpg";
  source.measure(item);
  CHECK(item.bytes == 3);
  CHECK(item.mtime_ns > 1'000'000'000'000'000'000);
  item = {};
  item.path = "gone.jpg";
  source.measure(item);
  CHECK(item.bytes == 0);
  CHECK(item.mtime_ns == 0);
}

TEST_CASE("named files are items with any name, and missing ones are errors") {
  const TestTree tree;
  tree.file("scan.dat");
  tree.file("we[i]rd*.jpg");
  tree.file("list.lst", "scan.dat\nnothing\n.hidden\n");
  tree.link("gone", "dangling.jpg");
  REQUIRE(::mkfifo(tree.path("pipe.txt").c_str(), 0600) == 0);
  const InFolder here(tree.root());
  CHECK(paths_of(spec_of({"scan.dat"})) == Names{"scan.dat"});
  CHECK(paths_of(spec_of({"we[i]rd*.jpg"})) == Names{"we[i]rd*.jpg"});
  CHECK(paths_of(spec_of({"list.lst"})) == Names{"scan.dat", "nothing", ".hidden"});
  CHECK(contains(error_of(spec_of({"missing.jpg"})),
                 "'missing.jpg' cannot be used: No such file or directory; relative paths start from"));
  CHECK(contains(error_of(spec_of({"missing\x1b[2J.jpg"})), "missing\\x1b[2J.jpg"));
  CHECK(contains(error_of(spec_of({"dangling.jpg"})), "link to nothing"));
  CHECK(contains(error_of(spec_of({"nowhere/*.jpg"})), "nowhere"));
  CHECK(contains(error_of(spec_of({"pipe.txt"})), "--input -"));
  CHECK(contains(error_of(spec_of({""})), "empty"));
  CHECK(contains(error_of(spec_of({})), "--input"));
  CHECK(contains(error_of(spec_of({"-", "-"})), "only once"));
}

TEST_CASE("views: the first pattern wins, a manifest overrides it, and files without a view are counted") {
  const TestTree tree;
  for (const char* name : {"left/a.jpg", "right/b.jpg", "left/top_c.jpg", "other/d.jpg"}) tree.file(name);
  SourceSpec spec = spec_of({tree.root()});
  spec.views = {{"top", "top_*"}, {"left", "left/**"}, {"right", "right/**"}, {"left", "l/*"}, {"manual", ""}};
  Source source(spec);
  CHECK(source.views().names() == Names{"top", "left", "right", "manual"});
  const auto items = items_of(source);
  REQUIRE(items.size() == 3);
  CHECK(items[0].view == 1);
  CHECK(items[1].view == 0);
  CHECK(items[2].view == 2);
  CHECK(source.counts()[Skip::no_view].first == Names{"other/d.jpg"});

  tree.file("m.jsonl", "{\"path\": \"left/a.jpg\", \"view\": \"manual\"}\n{\"path\": \"left/a.jpg\"}\n");
  spec.inputs = {tree.path("m.jsonl")};
  Source manifest(spec);
  const auto listed = items_of(manifest);
  CHECK(listed[0].view == 3);
  CHECK(listed[1].view == 1);
  tree.file("m.jsonl", "{\"path\": \"x\"}\n{\"path\": \"a\", \"view\": \"lefft\"}\n");
  const std::string error = error_of(spec);
  CHECK(contains(error, "m.jsonl' line 2: unknown view 'lefft'; did you mean 'left'?"));
  spec.inputs = {tree.root()};
  spec.views = {{"only", "nothing/**"}};
  Source nothing(spec);
  CHECK(items_of(nothing).empty());
  CHECK(contains(nothing.nothing_found(),
                 "no view's pattern matches, for example, 'left/a.jpg' (patterns: only='nothing/**')"));
}

TEST_CASE("boxes of a manifest come with the item") {
  const TestTree tree;
  tree.file("m.csv", "path,boxes\na.jpg,\"[[1,2,3,4,5]]\"\nb.jpg,\n");
  Source source(spec_of({tree.path("m.csv")}));
  const auto items = items_of(source);
  REQUIRE(items.at(0).boxes.has_value());
  CHECK(items[0].boxes->at(0).class_id == 5);
  CHECK_FALSE(items.at(1).boxes.has_value());
}

TEST_CASE("selection: every, and a sample that depends only on seed and path") {
  const TestTree tree;
  std::string list;
  for (int i = 0; i < 20'000; ++i) list += "folder/" + std::to_string(i) + ".jpg\n";
  tree.file("list.txt", list);
  SourceSpec spec = spec_of({tree.path("list.txt")});
  spec.selection.every = 7;
  const Names every = paths_of(spec);
  CHECK(every.size() == 2858);
  CHECK(every[1] == "folder/7.jpg");

  spec.selection = {};
  spec.selection.sample = 0.1;
  const Names tenth = paths_of(spec);
  // Binomial: standard deviation sqrt(20000 x 0.1 x 0.9) = 42.
  CHECK(std::abs(static_cast<double>(tenth.size()) - 2000) < 5 * 42.5);
  CHECK(paths_of(spec) == tenth);
  spec.selection.seed = 1;
  const Names other = paths_of(spec);
  CHECK(std::abs(static_cast<double>(other.size()) - 2000) < 5 * 42.5);
  Names both;
  std::set_intersection(tenth.begin(), tenth.end(), other.begin(), other.end(), std::back_inserter(both),
                        [](const auto& a, const auto& b) { return std::stoi(a.substr(7)) < std::stoi(b.substr(7)); });
  CHECK(both.size() < 300);  // independent samples share about 200
  // A larger share contains a smaller one, and new files change no choice.
  spec.selection.seed = 0;
  spec.selection.sample = 0.2;
  const Names fifth = paths_of(spec);
  for (const auto& path : tenth) REQUIRE(std::find(fifth.begin(), fifth.end(), path) != fifth.end());
  tree.file("list.txt", "new.jpg\n" + list);
  Names more = paths_of(spec);
  std::erase(more, "new.jpg");
  CHECK(more == fifth);

  for (const double bad : {0.0, -0.1, 1.1, std::nan("")}) {
    spec.selection.sample = bad;
    CHECK(contains(error_of(spec), "sample"));
  }
  spec.selection = {};
  spec.selection.every = 0;
  CHECK(contains(error_of(spec), "every"));
}

TEST_CASE("a dry run counts by view, extension and reason, and writes nothing") {
  const TestTree tree;
  for (const char* name : {"l/a.jpg", "l/b.JPG", "r/c.png", "x/d.jpg", "notes.txt", "v.mp4"}) tree.file(name, "1234");
  SourceSpec spec = spec_of({tree.root()});
  spec.views = {{"left", "l/**"}, {"right", "r/**"}};
  const DryRun found = dry_run(spec, 2);
  CHECK(found.items == 3);
  CHECK(found.bytes == 12);
  CHECK(found.per_view == std::vector<std::int64_t>{2, 1});
  CHECK(found.per_extension == std::vector<std::pair<std::string, std::int64_t>>{{"jpg", 2}, {"png", 1}});
  CHECK(found.first_paths == Names{"l/a.jpg", "l/b.JPG"});
  CHECK(found.counts[Skip::no_view].count == 1);
  CHECK(found.counts[Skip::other_extension].count == 1);
  CHECK(found.counts.videos.count == 1);
  spec.selection.limit = 2;
  CHECK(dry_run(spec).items == 2);
  CHECK(std::distance(std::filesystem::recursive_directory_iterator(tree.root()), {}) == 9);
}

TEST_CASE("names that are not UTF-8 differ in the description of the source") {
  const TestTree tree;
  tree.folder("\xff");
  tree.folder("\xfe");
  const auto one = Source(spec_of({tree.path("\xff")})).description();
  const auto two = Source(spec_of({tree.path("\xfe")})).description();
  CHECK(one != two);
  CHECK_NOTHROW(one.dump());
}

}  // namespace
}  // namespace millrace
