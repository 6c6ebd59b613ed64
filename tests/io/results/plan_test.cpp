#include "io/results/plan.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "io/results/plan_files.hpp"
#include "tests/io/results/plan_bench.hpp"

namespace millrace {
namespace {

using namespace plan_bench;

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

TEST_CASE("a plan is written and read again without a scan, and its lines are exact") {
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
  CHECK(files.size() == 4);  // plan, end, two segments, no temporary file
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

TEST_CASE("boxes and views are kept in the plan") {
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

TEST_CASE("other settings or another input are refused with each difference (A5.5)") {
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

TEST_CASE("all differences of views are in one line") {
  Bench bench;
  make_files(bench.tree, 3);
  bench.settings["views"] = {{{"name", "front"}, {"match", "front/**"}}, {{"name", "left"}, {"match", "left/**"}}};
  bench.settings["packages"] = {{"detector", "a 1"}, {"views", {{"front", "f 1"}, {"left", "l 1"}}}};
  bench.run();
  bench.settings["views"][1]["match"] = "l/**";
  CHECK(contains(bench.error<PlanMismatch>(),
                 "settings:\n  views: the same names with other patterns or detectors\nUse"));
  bench.settings["views"] = {{{"name", "default"}, {"match", ""}}};
  bench.settings["packages"] = {{"detector", "b 2"}};
  CHECK(contains(
      bench.error<PlanMismatch>(),
      "settings:\n  views: front, left in the plan, default now\n  detector: \"a 1\" in the plan, \"b 2\" now\nUse"));
}

TEST_CASE("an input without pictures is an error that says what was found (N13), and leaves no plan") {
  Bench bench;
  bench.tree.file("in/notes.txt");
  bench.tree.file("in/v.mp4");
  const std::string text = bench.error<InputError>();
  CHECK(contains(text, "1 without the extension of a picture (notes.txt)"));
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

TEST_CASE("a damaged plan is refused, and the message names the file") {
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

TEST_CASE("the output folder inside the input is not scanned") {
  Bench bench;
  bench.spec.inputs = {bench.tree.root()};
  bench.tree.file("in/a.jpg");
  bench.tree.file("out/overlays/a.jpg");
  CHECK(bench.run() == Names{"in/a.jpg"});
}

TEST_CASE("done segments are skipped, and the scan stays within its look-ahead") {
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
  // The folder's names take 200,000 x (16 + 18) bytes, twice that while a vector grows. Segments hold 6 x 2,048 items.
  MESSAGE("memory taken: ", (peak - before) / 1024, " MiB");
#ifndef __SANITIZE_ADDRESS__
  CHECK(peak - before < 48 << 10);
#endif
}

}  // namespace
}  // namespace millrace
