#include "models/call_limits.hpp"

#include <doctest/doctest.h>

#include <new>

#include "gpu/streams/fake_stream.hpp"
#include "models/engines/fake_engine.hpp"
#include "models/engines/wrapped_engine.hpp"
#include "tests/models/engines/variant_like.hpp"
#include "tests/models/small_segmenter.hpp"

namespace millrace {
namespace {

std::vector<Tensor> inputs_of(std::string_view method, std::int64_t pictures, std::int64_t boxes) {
  std::vector<Tensor> inputs{Tensor::empty({pictures, 1})};
  if (method == "decode") {
    inputs.push_back(Tensor::empty({boxes, 4}));
    inputs.push_back(Tensor::empty({boxes}, DType::i64));
  }
  return inputs;
}

TEST_CASE("a variant that ran out of memory gets calls for its next smaller library") {
  const auto limits = std::make_shared<CallLimits>();
  const auto fails = std::make_shared<FakeEngine>(
      [](std::string_view, std::span<const Tensor>) -> std::vector<Tensor> { throw OutOfMemoryError("planned"); });
  const auto engine =
      limited(std::make_shared<VariantLike>(fails, std::vector{16, 64, 160}), small_segmenter(), limits);
  const auto limit_after = [&](std::int64_t boxes) {
    CHECK_THROWS_AS(engine->call("decode", inputs_of("decode", 1, boxes)), OutOfMemoryError);
    return limits->max_rows(small_segmenter().id(), "decode");
  };
  CHECK(limit_after(300) == 128);  // perhaps only two calls for 160 are too much
  CHECK(limit_after(128) == 64);   // one call for 160 failed
  CHECK(limit_after(70) == 64);
  CHECK(limit_after(40) == 16);
  CHECK(limit_after(16) == CallLimits::none);  // as when one row does not fit
  CHECK(limit_after(100) == 64);
}

TEST_CASE("a call that ran out of memory sets the limit to the next smaller power of two") {
  bool fail = true;
  const auto limits = std::make_shared<CallLimits>();
  const auto engine = limited(std::make_shared<FakeEngine>([&](std::string_view method, std::span<const Tensor>) {
                                if (fail && method == "encode") throw OutOfMemoryError("planned");
                                if (fail) throw std::bad_alloc();
                                return std::vector<Tensor>{};
                              }),
                              small_segmenter(), limits);
  CHECK(limits->max_rows(small_segmenter().id(), "encode") == CallLimits::none);
  CHECK_THROWS_AS(engine->call("encode", inputs_of("encode", 16, 0)), OutOfMemoryError);
  CHECK_THROWS_AS(engine->call("decode", inputs_of("decode", 16, 7)), OutOfMemoryError);
  CHECK(limits->learned() == std::map<CallLimits::Key, int>{{{small_segmenter().id(), "encode"}, 8},
                                                            {{small_segmenter().id(), "decode"}, 4}});
  CHECK(limits->max_rows("another", "encode") == CallLimits::none);
  fail = false;
  engine->call("encode", inputs_of("encode", 16, 0));
  CHECK(limits->max_rows(small_segmenter().id(), "encode") == 8);
}

TEST_CASE("given limits only lower the limit, and not below one row") {
  CallLimits limits;
  limits.limit_rows("sam", "encode", 6);
  limits.limit_rows("sam", "encode", 9);
  CHECK(limits.max_rows("sam", "encode") == 4);  // powers of two, as padded calls have
  CHECK(limits.learned().empty());
  limits.limit_rows("sam", "encode", 0);
  CHECK(limits.max_rows("sam", "encode") == 1);
}

TEST_CASE("if a single row does not fit, the number of rows was not the cause, and no limit is learned") {
  CallLimits limits;
  limits.limit_rows("sam", "encode", 8);
  for (const int rows : {16, 4, 2, 4}) limits.ran_out("sam", "encode", rows);
  CHECK(limits.max_rows("sam", "encode") == 1);
  limits.ran_out("sam", "encode", 1);
  CHECK(limits.max_rows("sam", "encode") == 8);
  CHECK(limits.learned().empty());
}

/// An engine that takes its memory from a stream of its own, as LibTorch has an allocator of its own.
class OwnAllocator final : public Engine {
 public:
  OwnAllocator(Package package, std::shared_ptr<FakeMemory> memory, std::size_t bytes_of_row)
      : package_(std::move(package)), stream_(0, std::move(memory)), bytes_of_row_(bytes_of_row) {}
  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device&) override {
    tries.push_back(rows_of_call(package_, method, inputs));
    try {
      static_cast<void>(stream_.allocate(static_cast<std::size_t>(tries.back()) * bytes_of_row_));
    } catch (const std::bad_alloc&) {
      throw OutOfMemoryError("planned");
    }
    return {};
  }
  std::int64_t memory_bytes() const override { return 0; }
  void trim() override { stream_.trim(); }

  std::vector<int> tries;

 private:
  const Package package_;
  FakeStream stream_;
  const std::size_t bytes_of_row_;
};

struct TightGpu {
  std::shared_ptr<FakeMemory> memory = std::make_shared<FakeMemory>(1000);
  std::shared_ptr<OwnAllocator> engine = std::make_shared<OwnAllocator>(small_segmenter(), memory, 100);
  std::shared_ptr<CallLimits> limits = std::make_shared<CallLimits>();
  std::shared_ptr<Engine> limited_engine = limited(engine, small_segmenter(), limits);
  Device device{std::make_unique<FakeStream>(0, memory)};

  int limit() const { return limits->max_rows(small_segmenter().id(), "encode"); }
  void call(int pictures) { limited_engine->call("encode", inputs_of("encode", pictures, 0), device); }
  void fill_pool() { static_cast<void>(device.empty({500}, DType::u8)); }
};

TEST_CASE("a call that finds too little memory gets what the stream keeps for later, and its size stays") {
  TightGpu gpu;
  gpu.fill_pool();
  int delivered = 0;
  gpu.device.at_wait({}, [&] { ++delivered; });
  gpu.call(8);
  CHECK(gpu.engine->tries == std::vector{8, 8});
  CHECK(gpu.limit() == CallLimits::none);
  CHECK(delivered == 0);  // the lane's results come at the lane's own wait
  gpu.device.wait();
  CHECK(delivered == 1);
}

TEST_CASE("a size of calls is repeated once: under lasting pressure, calls get smaller") {
  TightGpu gpu;
  gpu.fill_pool();
  gpu.call(8);
  gpu.engine->trim();
  const auto other = gpu.device.empty({400}, DType::u8);  // leaves less than eight rows need
  CHECK_THROWS_AS(gpu.call(8), OutOfMemoryError);
  CHECK(gpu.engine->tries == std::vector{8, 8, 8});
  CHECK(gpu.limit() == 4);
  CHECK_NOTHROW(gpu.call(4));
  CHECK(gpu.engine->tries == std::vector{8, 8, 8, 4});
}

TEST_CASE("a call that does not fit into the whole GPU sets the limit after its second try") {
  TightGpu gpu;
  CHECK_THROWS_AS(gpu.call(16), OutOfMemoryError);
  CHECK(gpu.engine->tries == std::vector{16, 16});
  CHECK(gpu.limit() == 8);
}

TEST_CASE("on the host, where nothing can be freed, a call is not repeated") {
  const auto limits = std::make_shared<CallLimits>();
  const auto engine = std::make_shared<OwnAllocator>(small_segmenter(), std::make_shared<FakeMemory>(1000), 100);
  CHECK_THROWS_AS(limited(engine, small_segmenter(), limits)->call("encode", inputs_of("encode", 16, 0)),
                  OutOfMemoryError);
  CHECK(engine->tries == std::vector{16});
}

}  // namespace
}  // namespace millrace
