// A plan whose scan was interrupted, or whose input has grown: it continues to the same bytes, or says why not.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>

#include "io/results/plan_files.hpp"
#include "tests/io/results/plan_bench.hpp"

namespace millrace {
namespace {

using namespace plan_bench;

TEST_CASE("an interrupted scan continues to the same bytes, at every place, for every kind of input") {
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
  SUBCASE("all kinds of input together") {
    bench.spec.inputs = {text, bench.tree.path("in"), table, bench.tree.path("in/f1/1.jpg"), bench.tree.path("in/f0")};
  }
  SUBCASE("every third item, up to a limit") {
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

TEST_CASE("random trees and random kills give the same bytes") {
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
      // A kill between two steps of a durable write leaves this file.
      if (std::filesystem::exists(bench.out + "/plan")) bench.tree.file("out/plan/.tmp-000003.jsonl", "half a li");
    }
    REQUIRE(bench.run() == whole);
    REQUIRE(bench.files() == files);
  }
}

TEST_CASE("a list that changed before the place where the scan stopped is refused") {
  Bench bench;
  std::string list;
  for (int i = 0; i < 20; ++i) list += std::to_string(i) + ".jpg\n";
  bench.spec.inputs = {bench.tree.file("list.txt", list)};
  bench.run_partly(2);
  const auto refused = [&](const std::string& changed) {
    bench.tree.file("list.txt", changed);
    CHECK(contains(bench.error<PlanMismatch>(), "Give the same list again"));
  };
  refused("x" + list);
  refused("0.jpg\n1.jpg\n");
  refused("");
  refused("another.jpg\n" + list.substr(6));
  bench.tree.file("list.txt", list + "more.jpg\n");  // after that place the list may change
  CHECK(bench.run().size() == 21);
  bench.tree.file("list.txt", list);
  CHECK(contains(bench.error<PlanMismatch>(), "--add-new"));
}

TEST_CASE("--add-new appends new items, also if it is interrupted") {
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
  bench.options.add_new = false;                                       // and finished without --add-new
  CHECK(bench.run() == expected);
  CHECK(bench.files() == files);
  bench.options.add_new = true;
  CHECK(bench.run() == expected);
  CHECK(PlanFiles(bench.out).read_plan()->at("tool") == "millrace test");
}

TEST_CASE("--add-new on an interrupted scan takes everything once, and on a list the new lines") {
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

TEST_CASE("stdin: a pause closes a segment, and the same list continues a plan") {
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
    CHECK(plan.next_segment()->items.size() <= 2);  // closed before the end of the list
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
  CHECK(contains(bench.error<PlanMismatch>(), "'-' has changed"));
  ::close(bench.options.stdin_options.descriptor);
  feed("a.jpg\nb.jpg\nc.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\ni.jpg");
  CHECK(bench.run() == Names{"a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg", "f.jpg", "g.jpg", "h.jpg", "i.jpg"});
  ::close(bench.options.stdin_options.descriptor);
  bench.options.stdin_options.descriptor = -1;  // closed: a complete plan needs no list
  CHECK(bench.run().size() == 9);
  feed("a.jpg\nb.jpg\nc.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\nz.jpg");
  CHECK(contains(bench.error<PlanMismatch>(), "'-' has changed"));
  ::close(bench.options.stdin_options.descriptor);
  feed("a.jpg\nb.jpg\n");
  CHECK(contains(bench.error<PlanMismatch>(), "is shorter than before"));
  ::close(bench.options.stdin_options.descriptor);
  feed("a.jpg\nb.jpg\nc.jpg\nd.jpg\ne.jpg\nf.jpg\ng.jpg\nh.jpg\ni.jpg\nj.jpg");
  CHECK(bench.run().size() == 10);
  CHECK(bench.run().size() == 10);
  ::close(bench.options.stdin_options.descriptor);
  bench.clear_output();
  CHECK(contains(bench.error<InputError>(), "the input is empty"));
}

}  // namespace
}  // namespace millrace
