#include "models/engine.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "gpu/device.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "models/engines/deferred_engine.hpp"
#include "models/engines/fake_engine.hpp"
#include "tests/models/engines/variant_like.hpp"

namespace millrace {
namespace {

Device host;

Package detector() {
  Package package;
  package.folder = "/packages/tiny";
  package.name = "tiny";
  package.task = &find_task("detect");
  package.input.width = package.input.height = 32;
  package.output = {{"layout", {1}}, {"boxes", {4}}};
  package.classes = {"a", "b"};
  package.max_batch = 4;
  set_methods(package);
  return package;
}

Package segmenter() {
  Package package;
  package.folder = "/packages/sam";
  package.name = "sam";
  package.task = &find_task("segment");
  package.input.width = package.input.height = 64;
  package.output = {{"embedding", {8, 4, 4}}, {"logits", {16, 16}}, {"max_boxes", {10}}};
  package.max_batch = 4;
  set_methods(package);
  return package;
}

template <class Error, class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void check_says(const std::string& error, std::initializer_list<const char*> parts) {
  CAPTURE(error);
  for (const char* part : parts) CHECK(error.find(part) != std::string::npos);
}

TEST_CASE("messages of libraries that mean out of memory") {
  for (const char* text : {"CUDA out of memory. Tried to allocate 2.00 GiB",
                           "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
                           "you tried to allocate 8 bytes.",
                           "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                           "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",  // before version 9
                           "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                           "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
                           "GET was unable to find an engine to execute this computation",
                           "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
                           "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
                           "DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.", "std::bad_alloc",
                           "Cannot allocate memory"})
    CHECK_MESSAGE(says_out_of_memory(text), text);
  for (const char* text :
       {"", "The size of tensor a (3) must match the size of tensor b (4)", "CUDA error: device-side assert triggered"})
    CHECK_MESSAGE(!says_out_of_memory(text), text);
}

TEST_CASE("warm-up calls every method in the shapes of the run") {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> seen;
  const auto zeros = FakeEngine::zeros_of(segmenter());
  FakeEngine engine([&](std::string_view method, std::span<const Tensor> inputs) {
    seen.emplace_back(method, inputs.front().shape);
    if (method == "decode") {
      CHECK(inputs[1].shape == std::vector<std::int64_t>{10, 4});
      CHECK(inputs[1].host<float>()[5] == 16);
      CHECK(inputs[1].host<float>()[7] == 48);
      CHECK(inputs[2].host<std::int64_t>()[9] == 0);
    }
    return zeros(method, inputs);
  });
  warm_up(engine, segmenter(), {{"encode", 2}, {"decode", 10}}, host);
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].first == "encode");
  CHECK(seen[0].second == std::vector<std::int64_t>{2, 3, 64, 64});
  CHECK(seen[1].first == "decode");
  CHECK(seen[1].second == std::vector<std::int64_t>{2, 8, 4, 4});
}

TEST_CASE("warm-up calls compiled methods on a GPU, and not on the host") {
  const auto fake = std::make_shared<FakeEngine>(FakeEngine::zeros_of(segmenter()));
  VariantLike compiled(std::make_shared<DeferredEngine>(segmenter(), fake), {16});
  warm_up(compiled, segmenter(), {{"encode", 2}, {"decode", 10}}, host);
  CHECK(fake->calls("encode") + fake->calls("decode") == 0);
  check_says(error_of<ModelError>([&] {
               warm_up(compiled, segmenter(), {{"encode", 5}, {"decode", 10}}, host);
             }),
             {"encode takes 1 to 4 pictures"});
  Device gpu(std::make_unique<FakeStream>());
  warm_up(compiled, segmenter(), {{"encode", 2}, {"decode", 10}}, gpu);
  CHECK(fake->calls("encode") == 1);
  CHECK(fake->calls("decode") == 1);
}

TEST_CASE("warm-up refuses shapes that the package does not take") {
  FakeEngine engine(FakeEngine::zeros_of(segmenter()));
  check_says(error_of<ModelError>([&] {
               warm_up(engine, segmenter(), {{"encode", 5}, {"decode", 10}}, host);
             }),
             {"/packages/sam", "encode takes 1 to 4 pictures", "the run needs 5"});
  check_says(error_of<ModelError>([&] {
               warm_up(engine, segmenter(), {{"encode", 4}, {"decode", 11}}, host);
             }),
             {"1 to 10 boxes", "the run needs 11"});
  CHECK(engine.calls("encode") == 0);
}

TEST_CASE("a model whose outputs differ from its package's declaration") {
  const auto answer = [](std::vector<Tensor> outputs) {
    FakeEngine engine([outputs](std::string_view, std::span<const Tensor>) { return outputs; });
    return error_of<PackageError>([&] { warm_up(engine, detector(), {{"forward", 1}}, host); });
  };
  CHECK(answer({Tensor::empty({1, 4, 6})}) == "no error");
  check_says(answer({Tensor::empty({1, 4, 85})}),
             {"/packages/tiny: forward: unexpected shape of output 0", "expected detections f32 [1, 4, 6]",
              "got detections f32 [1, 4, 85]"});
  check_says(answer({Tensor::empty({1, 4, 6}, DType::f16)}),
             {"unexpected type of output 0", "expected detections f32", "got detections f16"});
  check_says(answer({Tensor::empty({1, 4, 6}), Tensor::empty({1})}),
             {"unexpected number of outputs, expected 1, got 2"});
  check_says(answer({}), {"expected 1, got 0"});
}

TEST_CASE("fault scripts") {
  const auto faults = parse_faults("oom@17,nan@40,throw@90,shape@3");
  REQUIRE(faults.size() == 4);
  CHECK(faults[0].kind == ScriptedFault::Kind::oom);
  CHECK(faults[0].call == 17);
  CHECK(faults[3].kind == ScriptedFault::Kind::shape);
  CHECK(parse_faults("").empty());
  for (const char* wrong : {"oom", "oom@", "oom@0", "oom@-1", "oom@1x", "boom@1", "oom@1,,nan@2", "@3"})
    CHECK_THROWS_AS(parse_faults(wrong), std::invalid_argument);
}

TEST_CASE("a fake engine fails as scripted, and only then") {
  FakeEngine engine(FakeEngine::zeros_of(detector()), "oom@2,throw@3,nan@4,shape@5");
  const std::vector<Tensor> images{Tensor::empty({2, 3, 32, 32})};
  const auto call = [&] { return engine.call("forward", images); };
  CHECK(call()[0].host<float>()[0] == 0);
  CHECK_THROWS_AS(call(), OutOfMemoryError);
  CHECK_THROWS_AS(call(), ModelError);
  const auto poisoned = call();
  const auto values = poisoned[0].host<float>();
  for (std::size_t i = 0; i < 24; ++i) CHECK(std::isnan(values[i]));
  for (std::size_t i = 24; i < 48; ++i) CHECK(values[i] == 0);  // the other picture does not change
  const auto longer = call();
  CHECK(longer[0].shape == std::vector<std::int64_t>{2, 4, 7});
  check_says(error_of<PackageError>([&] {
               check_outputs(detector(), "forward", {2, 0}, longer);
             }),
             {"unexpected shape"});
  CHECK(call()[0].shape == std::vector<std::int64_t>{2, 4, 6});
  CHECK(engine.calls("forward") == 6);
  CHECK(engine.calls("encode") == 0);
}

}  // namespace
}  // namespace millrace
