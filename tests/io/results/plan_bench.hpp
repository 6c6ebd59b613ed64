#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "io/results/plan.hpp"
#include "tests/io/results/plan_tree.hpp"

/// Inputs, outputs and plans over them, for the tests of the plan.
namespace millrace::plan_bench {

using Names = std::vector<std::string>;
using nlohmann::json;

/// An input, an output next to it, and plans over them.
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

  /// Runs one plan to its end and returns all paths.
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

  /// Takes `segments` segments, then stops.
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

inline void make_files(const TestTree& tree, int count) {
  for (int i = 0; i < count; ++i) tree.file("in/f" + std::to_string(i % 3) + "/" + std::to_string(i) + ".jpg", "x");
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace millrace::plan_bench
