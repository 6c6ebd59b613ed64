#include "io/plan.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "io/plan_files.hpp"
#include "tests/io/plan_tree.hpp"

namespace millrace {
namespace {

using Names = std::vector<std::string>;
using nlohmann::json;

/// An input, an output beside it, and plans over them.
struct Bench {
  TestTree tree;
  std::string out = tree.folder("out");
  SourceSpec spec;
  json settings{{"detect", {{"conf", 0.25}}}, {"models", {"yolox"}}};
  PlanOptions options;

  Bench() {
    tree.folder("in");
    spec.inputs = {tree.path("in")};
    options.tool = "millrace test";
    options.segment_items = 4;
  }

  Plan plan() const { return {out, settings, spec, options}; }

  /// All paths, from one plan run to its end.
  Names run() const {
    Plan whole(out, settings, spec, options);
    Names paths;
    std::int64_t id = 0;
    std::int64_t index = 0;
    while (const auto segment = whole.next_segment()) {
      CHECK(segment->index == index++);
      for (const Item& item : segment->items) {
        CHECK(item.id == id++);
        paths.push_back(item.path);
      }
    }
    CHECK(whole.totals().complete);
    CHECK(whole.totals().items == id);
    return paths;
  }

  /// Takes `segments` segments and stops.
  void run_partly(int segments) const {
    PlanOptions narrow = options;
    narrow.look_ahead = 1;
    Plan part(out, settings, spec, narrow);
    for (int i = 0; i < segments && part.next_segment(); ++i) {
    }
    part.stop();
    CHECK_FALSE(part.next_segment().has_value());
  }

  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> contents;
    if (!std::filesystem::exists(out + "/plan")) return contents;
    for (const auto& entry : std::filesystem::directory_iterator(out + "/plan")) {
      const std::string name = entry.path().filename().native();
      contents[name] = tree.text("out/plan/" + name);
    }
    return contents;
  }

  void clear_output() const {
    std::filesystem::remove_all(out);
    std::filesystem::create_directory(out);
  }

  template <class Error>
  std::string error() const {
    try {
      run();
    } catch (const Error& problem) {
      return problem.what();
    }
    return "";
  }
};

void make_files(const TestTree& tree, int count) {
  for (int i = 0; i < count; ++i) tree.file("in/f" + std::to_string(i % 3) + "/" + std::to_string(i) + ".jpg", "x");
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<Item> items_of_views(const std::vector<int>& views) {
  std::vector<Item> items;
  for (const int view : views) items.push_back({static_cast<std::int64_t>(items.size()), "x", 0, 0, view, {}});
  return items;
}

TEST_CASE("batches are cut view by view in input order") {
  using Batches = std::vector<std::vector<int>>;
  CHECK(cut_batches({}, 4).empty());
  CHECK(cut_batches(items_of_views({0}), 1) == Batches{{0}});
  CHECK(cut_batches(items_of_views({0, 0, 0, 0, 0}), 2) == Batches{{0, 1}, {2, 3}, {4}});
  CHECK(cut_batches(items_of_views({2, 0, 2, 0, 2}), 2) == Batches{{1, 3}, {0, 2}, {4}});
  CHECK(cut_batches(items_of_views({1, 0}), 8) == Batches{{1}, {0}});
  CHECK_THROWS_AS(cut_batches({}, 0), std::invalid_argument);
}

TEST_CASE("a plan is written, read again without a scan, and its lines are exact") {
  Bench bench;
  const Names names{"\"q\",.jpg", "%s.jpg", "a\nb\t.jpg", "\xff\xfe.jpg"};
  for (const auto& name : names) bench.tree.file("in/" + name, "12345");
  bench.tree.file("in/notes.txt");
  bench.tree.file("in/clip.mp4");
  bench.tree.file("in/z.jpg");
  Names expected = names;
  std::sort(expected.begin(), expected.end());
  const Names first = bench.run();
  CHECK(first.size() == 5);
  CHECK(std::is_permutation(names.begin(), names.end(), first.begin(), first.begin() + 3 + 1) == false);
  const auto files = bench.files();
  CHECK(files.size() == 4);  // plan, end, two segments, nothing aside
  CHECK(files.contains("000001.jsonl"));
  const std::string& segment = files.at("000001.jsonl");
  CHECK(contains(segment, R"("path": ")"
                          "\xEF\xBF\xBD\xEF\xBF\xBD"
                          R"(.jpg", "path_b64": "//4uanBn", "bytes": 5)"));
  CHECK(contains(files.at("000000.jsonl"), R"("path": "a\nb\t.jpg", "bytes": 5, "mtime_ns": )"));

  bench.tree.file("in/new.jpg");
  const Names again = bench.run();
  CHECK(again == first);
  CHECK(bench.files() == files);
  Plan plan(bench.out, bench.settings, bench.spec, bench.options);
  CHECK(plan.totals().complete);
  CHECK(plan.totals().bytes == 20);
  CHECK(plan.counts().videos.count == 1);
  CHECK(plan.counts()[Skip::other_extension].count == 1);
  CHECK(plan.root() == bench.tree.path("in"));
  CHECK(plan.views() == Names{"default"});
  CHECK(plan.hash().size() == 64);
}

TEST_CASE("boxes and views survive the plan") {
  Bench bench;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> number(0.001F, 5000.F);
  std::string manifest;
  std::vector<PromptBox> boxes;
  for (int i = 0; i < 50; ++i) {
    boxes.push_back({number(random), number(random), number(random), number(random), i});
    const auto& box = boxes.back();
    manifest += json{{"path", "p.jpg"}, {"view", "b"}, {"boxes", {{box.x, box.y, box.width, box.height, box.class_id}}}}
                    .dump() +
                "\n";
  }
  manifest += "{\"path\": \"q.jpg\", \"boxes\": []}\n{\"path\": \"r.jpg\"}\n";
  bench.spec.inputs = {bench.tree.file("m.jsonl", manifest)};
  bench.spec.views = {{"a", "*"}, {"b", ""}};
  bench.run();
  Plan plan(bench.out, bench.settings, bench.spec, bench.options);
  std::vector<Item> items;
  while (const auto segment = plan.next_segment())
    items.insert(items.end(), segment->items.begin(), segment->items.end());
  REQUIRE(items.size() == 52);
  for (std::size_t i = 0; i < 50; ++i) {
    CHECK(items[i].view == 1);
    CHECK(items[i].boxes->at(0).x == boxes[i].x);
    CHECK(items[i].boxes->at(0).height == boxes[i].height);
    CHECK(items[i].boxes->at(0).class_id == boxes[i].class_id);
  }
  CHECK(items[50].boxes->empty());
  CHECK_FALSE(items[51].boxes.has_value());
}

TEST_CASE("other settings or input are refused with each difference (A5.5)") {
  Bench bench;
  make_files(bench.tree, 3);
  bench.run();
  const auto files = bench.files();
  bench.settings["detect"]["conf"] = 0.3;
  bench.settings["detect"]["iou"] = 0.5;
  bench.settings["models"] = json::array();
  bench.spec.selection.limit = 9;
  bench.options.tool = "millrace other";
  const std::string text = bench.error<PlanMismatch>();
  CHECK(contains(text, "detect.conf: 0.25 in the plan, 0.3 now"));
  CHECK(contains(text, "detect.iou: not in the plan, 0.5 now"));
  CHECK(contains(text, "models: [\"yolox\"] in the plan, [] now"));
  CHECK(contains(text, "limit: 0 in the plan, 9 now"));
  CHECK(contains(text, "tool: \"millrace test\" in the plan"));
  CHECK(bench.files() == files);
}

TEST_CASE("nothing to do is an error that says what was there (N13), and binds the output to nothing") {
  Bench bench;
  bench.tree.file("in/notes.txt");
  bench.tree.file("in/v.mp4");
  const std::string text = bench.error<InputError>();
  CHECK(contains(text, "1 not called like a picture (notes.txt)"));
  CHECK(contains(text, "1 video (not read yet: v.mp4)"));
  CHECK(bench.files().empty());
  bench.tree.file("in/a.jpg");
  bench.settings["other"] = 1;
  CHECK(bench.run() == Names{"a.jpg"});

  Bench empty;
  empty.options.allow_empty = true;
  CHECK(empty.run().empty());
  CHECK(empty.run().empty());
  empty.options.allow_empty = false;
  CHECK(contains(empty.error<InputError>(), "no items"));
}

TEST_CASE("a damaged plan is refused by name") {
  Bench bench;
  make_files(bench.tree, 10);
  bench.run();
  const auto files = bench.files();
  const auto spoil = [&](const std::string& name, const std::function<void(std::string&)>& change) {
    for (const auto& [file, content] : files) bench.tree.file("out/plan/" + file, content);
    std::string content = files.at(name);
    change(content);
    bench.tree.file("out/plan/" + name, content);
    const std::string error = bench.error<PlanDamaged>();
    CAPTURE(error);
    CHECK(contains(error, name));
    CHECK(contains(error, "start over with a new output folder"));
  };
  for (const char* name : {"plan.json", "end.json", "000000.jsonl", "000002.jsonl"}) {
    CAPTURE(name);
    spoil(name, [](std::string& text) { text.resize(text.size() - 3); });
    spoil(name, [](std::string& text) { text.resize(text.size() / 2); });
    spoil(name, [](std::string& text) { text.clear(); });
    spoil(name, [](std::string& text) { text[text.size() - 10] ^= 1; });
    spoil(name, [](std::string& text) { text[60] ^= 1; });
    spoil(name, [](std::string& text) { text = "null"; });
  }
  for (const auto& [file, content] : files) bench.tree.file("out/plan/" + file, content);
  std::filesystem::remove(bench.out + "/plan/000001.jsonl");
  CHECK(contains(bench.error<PlanDamaged>(), "000001.jsonl' is missing"));
  bench.tree.file("out/plan/000001.jsonl", files.at("000000.jsonl"));
  CHECK(contains(bench.error<PlanDamaged>(), "under another name"));
  std::filesystem::remove(bench.out + "/plan/plan.json");
  CHECK(contains(bench.error<PlanDamaged>(), "no plan.json"));
}

TEST_CASE("a scan that was cut off continues to the same bytes, at every place, for every kind of input") {
  Bench bench;
  make_files(bench.tree, 41);
  std::string list;
  std::string csv = "path,view\n";
  for (int i = 0; i < 41; ++i) {
    list += "f/" + std::to_string(i * 7 % 41) + ".jpg\n";
    csv += "\"g/" + std::to_string(i) + ".jpg\",\n";
  }
  const std::string text = bench.tree.file("list.txt", list);
  const std::string table = bench.tree.file("m.csv", csv);
  SUBCASE("folder") {}
  SUBCASE("glob") { bench.spec.inputs = {bench.tree.path("in/f[02]/*.jpg")}; }
  SUBCASE("list") { bench.spec.inputs = {text}; }
  SUBCASE("manifest") { bench.spec.inputs = {table}; }
  SUBCASE("all of them") {
    bench.spec.inputs = {text, bench.tree.path("in"), table, bench.tree.path("in/f1/1.jpg"), bench.tree.path("in/f0")};
  }
  SUBCASE("every third, limited") {
    bench.spec.inputs = {bench.tree.path("in"), text};
    bench.spec.selection.every = 3;
    bench.spec.selection.limit = 18;
  }
  SUBCASE("a sample") { bench.spec.selection.sample = 0.6; }
  SUBCASE("a limit at the end of a segment") { bench.spec.selection.limit = 8; }
  const Names whole = bench.run();
  const auto files = bench.files();
  for (int stop = 0; stop < 20; ++stop) {
    bench.clear_output();
    bench.run_partly(stop);
    bench.run_partly(stop / 3);
    bench.run_partly(1);
    REQUIRE(bench.run() == whole);
    REQUIRE(bench.files() == files);
  }
}

TEST_CASE("random trees, random kills: the same bytes") {
  std::mt19937 random(11);
  for (int round = 0; round < 15; ++round) {
    Bench bench;
    const std::string letters = "ab.-\xff\n";
    for (int i = 0; i < 60; ++i) {
      std::string name = "in/";
      for (auto depth = random() % 4; depth > 0; --depth)
        name += std::string("d") + letters[random() % 6] + letters[random() % 6] + "/";
      bench.tree.file(name + letters[random() % 6] + std::to_string(random() % 30) +
                      (random() % 5 == 0 ? ".txt" : ".jpg"));
    }
    bench.options.segment_items = 1 + static_cast<int>(random() % 9);
    if (random() % 2 == 0) bench.spec.selection.every = 2;
    const Names whole = bench.run();
    const auto files = bench.files();
    bench.clear_output();
    for (int kill = 0; kill < 4; ++kill) {
      bench.run_partly(static_cast<int>(random() % 8));
      // What a kill between two steps of a durable write leaves behind.
      if (std::filesystem::exists(bench.out + "/plan")) bench.tree.file("out/plan/.tmp-000003.jsonl", "half a li");
    }
    REQUIRE(bench.run() == whole);
    REQUIRE(bench.files() == files);
  }
}

TEST_CASE("a list that changed before the place where the scan was cut off is refused") {
  Bench bench;
  std::string list;
  for (int i = 0; i < 20; ++i) list += std::to_string(i) + ".jpg\n";
  bench.spec.inputs = {bench.tree.file("list.txt", list)};
  bench.run_partly(2);
  const auto refused = [&](const std::string& changed) {
    bench.tree.file("list.txt", changed);
    CHECK(contains(bench.error<PlanMismatch>(), "list.txt' is not the one this plan was begun with"));
  };
  refused("x" + list);
  refused("0.jpg\n1.jpg\n");
  refused("");
  refused("another.jpg\n" + list.substr(6));
  bench.tree.file("list.txt", list + "more.jpg\n");  // after that place nothing is fixed yet
  CHECK(bench.run().size() == 21);
  bench.tree.file("list.txt", list);
  CHECK(contains(bench.error<PlanMismatch>(), "--add-new"));
}

TEST_CASE("--add-new appends what is new, also when it is cut off itself") {
  Bench bench;
  make_files(bench.tree, 10);
  const Names before = bench.run();
  for (const char* name :
       {"in/a/first.jpg", "in/f1/0new.jpg", "in/f1/1new.jpg", "in/f2/2new.jpg", "in/z.jpg", "in/zz.jpg"}) {
    bench.tree.file(name);
  }
  CHECK(bench.run() == before);
  Names expected = before;
  for (const char* name : {"a/first.jpg", "f1/0new.jpg", "f1/1new.jpg", "f2/2new.jpg", "z.jpg", "zz.jpg"})
    expected.emplace_back(name);
  const auto old_files = bench.files();
  bench.options.add_new = true;
  CHECK(bench.run() == expected);
  const auto files = bench.files();
  for (const auto& [name, content] : old_files) CHECK((name == "end.json" || files.at(name) == content));

  for (const auto& [name, content] : files) std::filesystem::remove(bench.out + "/plan/" + name);
  for (const auto& [name, content] : old_files) bench.tree.file("out/plan/" + name, content);
  bench.tree.file("out/plan/000003.jsonl", files.at("000003.jsonl"));  // killed after the first new segment
  bench.options.add_new = false;                                       // and finished without being asked again
  CHECK(bench.run() == expected);
  CHECK(bench.files() == files);
  bench.options.add_new = true;
  CHECK(bench.run() == expected);
  CHECK(PlanFiles(bench.out).read_plan()->at("tool") == "millrace test");
}

TEST_CASE("--add-new on a scan that was cut off takes everything once, and on a list what was appended") {
  Bench bench;
  make_files(bench.tree, 20);
  bench.run_partly(2);
  bench.tree.file("in/a.jpg");
  bench.options.add_new = true;
  Names paths = bench.run();
  CHECK(paths.size() == 21);
  std::sort(paths.begin(), paths.end());
  CHECK(std::adjacent_find(paths.begin(), paths.end()) == paths.end());

  Bench listed;
  listed.spec.inputs = {listed.tree.file("list.txt", "a.jpg\nb.jpg\n")};
  listed.run();
  listed.tree.file("list.txt", "a.jpg\nx.jpg\nb.jpg\n");
  listed.options.add_new = true;
  CHECK(listed.run() == Names{"a.jpg", "b.jpg", "x.jpg"});
  listed.options.add_new = false;
  CHECK(listed.run().size() == 3);
}

TEST_CASE("the output folder inside the input is not scanned") {
  Bench bench;
  bench.spec.inputs = {bench.tree.root()};
  bench.tree.file("in/a.jpg");
  bench.tree.file("out/overlays/a.jpg");
  CHECK(bench.run() == Names{"in/a.jpg"});
}

TEST_CASE("done segments are passed over, and the scan keeps to its look-ahead") {
  Bench bench;
  make_files(bench.tree, 40);
  bench.options.look_ahead = 2;
  {
    Plan plan(bench.out, bench.settings, bench.spec, bench.options);
    REQUIRE(plan.next_segment().has_value());
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    CHECK(plan.totals().segments <= 4);
    CHECK_FALSE(plan.totals().complete);
  }
  bench.options.look_ahead = 64;
  bench.run();
  bench.options.is_done = [](std::int64_t segment) { return segment != 3 && segment != 7; };
  Plan plan(bench.out, bench.settings, bench.spec, bench.options);
  CHECK(plan.next_segment()->index == 3);
  CHECK(plan.next_segment()->index == 7);
  CHECK_FALSE(plan.next_segment().has_value());
}

TEST_CASE("a malformed line ends the plan after the segments before it") {
  Bench bench;
  bench.spec.inputs = {bench.tree.file("m.csv", "path\n1\n2\n3\n4\n5\n\"6\n")};
  Plan plan(bench.out, bench.settings, bench.spec, bench.options);
  CHECK(plan.next_segment()->items.size() == 4);
  CHECK_THROWS_AS(plan.next_segment(), InputError);
  CHECK_THROWS_AS(plan.next_segment(), InputError);
}

TEST_CASE("stdin: a silence closes a segment, and the same list continues a plan") {
  Bench bench;
  bench.spec.inputs = {"-"};
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const auto write = [&](const std::string& text) {
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  };
  bench.options.stdin_options = {ends[0], IdleRule{std::chrono::seconds(0)}};
  const InFolder here(bench.tree.root());
  {
    Plan plan(bench.out, bench.settings, bench.spec, bench.options);
    write("a.jpg\nb.jpg\n");
    CHECK(plan.next_segment()->items.size() <= 2);  // closed without an end of the list
    write("c.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\n");
    CHECK(plan.next_segment()->index == 1);
    plan.stop();  // while the reader waits
    CHECK_FALSE(plan.next_segment().has_value());
  }
  ::close(ends[0]);
  ::close(ends[1]);
  const auto feed = [&](const std::string& text) {
    const std::string path = bench.tree.file("piped", text);
    bench.options.stdin_options.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  };
  feed("a.jpg\nx.jpg\nb.jpg\nc.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\n");
  CHECK(contains(bench.error<PlanMismatch>(), "'-' is not the one"));
  ::close(bench.options.stdin_options.descriptor);
  feed("a.jpg\nb.jpg\nc.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\ni.jpg");
  CHECK(bench.run() == Names{"a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg", "f.jpg", "g.jpg", "h.jpg", "i.jpg"});
  ::close(bench.options.stdin_options.descriptor);
  bench.options.stdin_options.descriptor = -1;  // closed: a complete plan needs no list
  CHECK(bench.run().size() == 9);
  feed("a.jpg\nb.jpg\nc.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\nz.jpg");
  CHECK(contains(bench.error<PlanMismatch>(), "'-' is not the one"));
  ::close(bench.options.stdin_options.descriptor);
  feed("a.jpg\nb.jpg\n");
  CHECK(contains(bench.error<PlanMismatch>(), "more lines than it has now"));
  ::close(bench.options.stdin_options.descriptor);
  feed("a.jpg\nb.jpg\nc.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\ni.jpg\nj.jpg");
  CHECK(bench.run().size() == 10);
  CHECK(bench.run().size() == 10);
  ::close(bench.options.stdin_options.descriptor);
  bench.clear_output();
  CHECK(contains(bench.error<InputError>(), "nothing is there"));
}

TEST_CASE("a storage failure is reported by next_segment") {
  struct FullDisk : FileSystem {
    int fsync(int) const override {
      errno = ENOSPC;
      return -1;
    }
  };
  Bench bench;
  make_files(bench.tree, 3);
  const FullDisk full;
  bench.options.files = &full;
  CHECK_FALSE(bench.error<StorageError>().empty());
}

std::int64_t resident_kib() {
  std::ifstream status("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  status >> total >> resident;
  return resident * 4;
}

TEST_CASE("200,000 files in one folder: the first segment comes early, memory stays bounded (N11)") {
  Bench bench;
  bench.options.segment_items = 2048;
  const std::string folder = bench.tree.folder("in/many");
  const int at = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(at >= 0);
  for (int i = 0; i < 200'000; ++i) {
    const int made =
        ::openat(at, ("picture_" + std::to_string(i) + ".jpg").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(made >= 0);
    ::close(made);
  }
  ::close(at);
  bench.options.look_ahead = 4;
  const std::int64_t before = resident_kib();
  std::int64_t peak = before;
  Plan plan(bench.out, bench.settings, bench.spec, bench.options);
  std::int64_t items = 0;
  bool first = true;
  while (const auto segment = plan.next_segment()) {
    if (std::exchange(first, false)) CHECK_FALSE(plan.totals().complete);
    items += static_cast<std::int64_t>(segment->items.size());
    peak = std::max(peak, resident_kib());
  }
  CHECK(items == 200'000);
  // Names of the folder: 200,000 x (16 + 18) bytes, doubled while a vector grows; segments: 6 x 2,048 items.
  MESSAGE("memory taken: ", (peak - before) / 1024, " MiB");
#ifndef __SANITIZE_ADDRESS__
  CHECK(peak - before < 48 << 10);
#endif
}

}  // namespace
}  // namespace millrace
