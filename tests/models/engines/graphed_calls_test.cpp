#include "models/engines/torch/graphed_calls.hpp"

#include <ATen/Functions.h>
#include <doctest/doctest.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "models/engines/torch/call_graph.hpp"

namespace {

using millrace::GraphedCalls;
using millrace::GraphFunctions;
using millrace::GraphUse;
using millrace::Tensor;

// Graphs that do nothing: their handles are numbers from 1.
struct Recorded {
  int captures = 0;
  std::vector<int> launched, freed;
  std::vector<const void*> siblings;
  std::string failure;  // of the next captures
  int failures = 0, trimmed = 0;
  std::shared_ptr<GraphUse> use{};

  // Asked by another thread, because a thread must not try to lock what it has locked.
  bool locked() const {
    bool free = true;
    std::jthread([&] {
      free = use->captures->try_lock();
      if (free) use->captures->unlock();
    }).join();
    return !free;
  }
};
Recorded recorded;

int number_of(const void* graph) { return *static_cast<const int*>(graph); }

const GraphFunctions functions{
    [](const void* sibling) -> void* {
      CHECK(recorded.locked());
      recorded.siblings.push_back(sibling);
      return new int(++recorded.captures);
    },
    [](void*) {
      if (recorded.failures > 0) throw std::runtime_error(recorded.failure);
    },
    [](void* graph) { recorded.launched.push_back(number_of(graph)); },
    [](void* graph) {
      recorded.freed.push_back(number_of(graph));
      delete static_cast<int*>(graph);
      if (recorded.failures > 0) --recorded.failures;
    },
    [] {
      CHECK(recorded.locked());
      ++recorded.trimmed;
    },
};

struct Calls {
  Calls() {
    recorded = {};
    recorded.use = use;
  }

  std::vector<Tensor> operator()(const char* name, std::int64_t rows = 1) {
    const auto compute = [&](const std::vector<at::Tensor>&) {
      ++computed;
      return std::vector{Tensor::empty({rows})};
    };
    return calls.call(name, {at::zeros({rows})}, compute);
  }

  int computed = 0;  // plain calls and captures
  std::shared_ptr<GraphUse> use = std::make_shared<GraphUse>();
  GraphedCalls calls{use, &functions};
};

TEST_CASE("the first call of a shape is a plain one, and the others launch its graph") {
  Calls call;
  for (int i = 0; i < 3; ++i) call("encode");
  CHECK(call.computed == 2);
  CHECK(recorded.launched == std::vector{1, 1});
  call("encode", 2);
  CHECK(recorded.captures == 2);
  CHECK(recorded.siblings.at(0) == nullptr);
  CHECK(recorded.siblings.at(1) != nullptr);
  CHECK(call.use->captured == 2);
  CHECK(call.use->launched == 2);
}

TEST_CASE("a call whose earlier results are held gets a graph of its own, and a plain call after four") {
  Calls call;
  call("decode");
  std::vector<std::vector<Tensor>> held;
  for (int i = 0; i < 6; ++i) held.push_back(call("decode"));
  CHECK(recorded.launched == std::vector{1, 2, 3, 4});
  CHECK(call.computed == 1 + 4 + 2);
  CHECK(call.use->refusals().empty());
  held.erase(held.begin() + 2);
  call("decode");
  CHECK(recorded.launched.size() ==
        4);  // the results of the fourth graph are held, and may lie where the third computes
  held.clear();
  call("decode");
  CHECK(recorded.launched.back() == 1);
}

TEST_CASE("a graph does not launch while somebody holds results of a graph that was captured after it") {
  Calls call;
  call("encode"), call("decode");  // graphs 1 and 2
  auto first = call("encode");
  auto second = call("encode");  // graph 3, whose results may lie where graph 2 computes
  CHECK(recorded.launched == std::vector{1, 3});
  auto logits = call("decode");
  CHECK(recorded.launched == std::vector{1, 3, 4});
  first.clear(), second.clear(), logits.clear();
  call("decode");
  CHECK(recorded.launched.back() == 2);
}

TEST_CASE("a call that cannot be captured stays plain in all of its shapes, and all graphs are freed once") {
  {
    Calls call;
    call("encode");
    recorded.failure = "operation not permitted when stream is capturing";
    recorded.failures = 100;
    call("decode"), call("decode"), call("decode", 2), call("encode");
    CHECK(recorded.captures == 2);
    CHECK(call.computed == 2 + 2 + 1 + 1);  // with the captures of both
    CHECK(recorded.launched == std::vector{1});
    CHECK(recorded.trimmed == 0);
    REQUIRE(call.use->refusals().size() == 1);
    CHECK(call.use->refusals().front().method == "decode");
    CHECK_FALSE(call.use->refusals().front().no_memory);
    recorded.failures = 0;
  }
  CHECK(recorded.freed == std::vector{2, 1});
}

TEST_CASE("a graph without memory is tried once more when LibTorch has freed what it keeps") {
  Calls call;
  recorded.failure = "CUDA out of memory";
  recorded.failures = 1;
  call("encode"), call("encode");
  CHECK(recorded.launched == std::vector{2});
  CHECK(recorded.trimmed == 1);
  CHECK(call.use->refusals().empty());
  recorded.failures = 2;
  call("encode", 2), call("encode", 2), call("encode", 3);
  CHECK(recorded.launched == std::vector{2});
  REQUIRE(call.use->refusals().size() == 1);
  CHECK(call.use->refusals().front().no_memory);
  call("encode", 3);  // only the shape without memory stays plain
  CHECK(recorded.launched.size() == 2);
}

TEST_CASE("a thread captures no shape that it has not called plainly") {
  Calls call;
  call("decode");
  const auto held = call("decode");
  std::jthread([&] {
    auto plain = call("decode");  // the graph is in use
    CHECK(recorded.launched == std::vector{1});
    CHECK(recorded.captures == 2);
    call("decode");
    CHECK(recorded.launched == std::vector{1, 2});
  }).join();
}

}  // namespace
