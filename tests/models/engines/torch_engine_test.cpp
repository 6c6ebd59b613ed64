#include "models/engines/torch_plugin.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <thread>

#include "base/half.hpp"
#include "gpu/device.hpp"
#include "tests/models/engines/torchscript_file.hpp"
#include "tests/models/package_files.hpp"

namespace millrace {
namespace {

Device host;

/// A package with this TorchScript source as model.ts, and a weight `scale` of 2.
Package package_of(const std::filesystem::path& folder, const std::string& source, const char* yaml = detector_yaml(),
                   bool half = false) {
  std::filesystem::create_directories(folder);
  save_torchscript(folder / "model.ts", source, half);
  write_file(folder / "model.yaml", replaced(yaml, "HASH", sha256_file_hex((folder / "model.ts").string())));
  return read_package(folder);
}

template <class Error = ModelError>
std::string error_of(const std::function<void()>& work) {
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

Tensor counting(std::vector<std::int64_t> shape) {
  Tensor tensor = Tensor::empty(std::move(shape));
  float next = 0;
  for (float& value : tensor.host<float>()) value = next++;
  return tensor;
}

TEST_CASE("a model's methods run, and its outputs are dense and own their memory") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), R"(
def encode(self, images):
    return images.transpose(2, 3) * self.scale
def decode(self, embedding, boxes, image_index):
    return boxes.index_select(0, image_index), image_index
)",
                                     segmenter_yaml());
  for (const bool freeze : {true, false}) {
    CAPTURE(freeze);
    const auto engine = load_torch_engine(package, {.threads = 1, .freeze = freeze});
    CHECK(engine->memory_bytes() == package.file_bytes());
    std::vector<Tensor> inputs{counting({1, 1, 2, 3})};
    const auto outputs = engine->call("encode", inputs);
    REQUIRE(outputs.size() == 1);
    CHECK(outputs[0].shape == std::vector<std::int64_t>{1, 1, 3, 2});
    const auto values = outputs[0].host<float>();
    CHECK(std::vector<float>(values.begin(), values.end()) == std::vector<float>{0, 6, 2, 8, 4, 10});

    Tensor index = Tensor::empty({2}, DType::i64);
    index.host<std::int64_t>()[0] = 1;
    index.host<std::int64_t>()[1] = 0;
    inputs = {counting({1}), counting({2, 4}), index};
    auto decoded = engine->call("decode", inputs);
    inputs.clear();
    index = {};
    REQUIRE(decoded.size() == 2);
    CHECK(decoded[0].host<float>()[0] == 4);
    CHECK(decoded[1].dtype == DType::i64);
    CHECK(decoded[1].host<std::int64_t>()[0] == 1);  // an input that the model returns outlives the inputs
  }
}

TEST_CASE("convolutions compute with channels last, or in planes if asked") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), R"(
def forward(self, images):
    weight = self.scale.reshape(1, 1, 1, 1).expand(8, 4, 3, 3).contiguous()
    features = torch.conv2d(images, weight)
    return torch.full([images.size(0), 1], float(features.stride(1)))
)",
                                     detector_yaml());
  for (const bool channels_last : {true, false}) {
    CAPTURE(channels_last);
    const auto engine = load_torch_engine(package, {.threads = 1, .channels_last = channels_last});
    const std::vector<Tensor> inputs{counting({1, 4, 5, 6})};
    // The distance of two channels of one pixel: 1, or the 3 x 4 pixels of a plane.
    CHECK(engine->call("forward", inputs)[0].host<float>()[0] == (channels_last ? 1 : 12));
  }
}

TEST_CASE("a package with weights in 16 bits computes in 32 bits") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), R"(
def forward(self, images):
    return images * self.scale / 3.0
)",
                                     detector_yaml(), true);
  for (const bool freeze : {true, false}) {
    CAPTURE(freeze);
    const auto engine = load_torch_engine(package, {.threads = 1, .freeze = freeze});
    const std::vector<Tensor> inputs{counting({1, 2})};
    const auto outputs = engine->call("forward", inputs);
    REQUIRE(outputs.size() == 1);
    CHECK(outputs[0].dtype == DType::f32);
    CHECK(outputs[0].host<float>()[1] == 1.0F * 2.0F / 3.0F);
  }
}

TEST_CASE("messages about failed calls have package, method and shapes") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), R"(
def forward(self, images):
    return torch.matmul(images, images)
)");
  const auto engine = load_torch_engine(package, {});
  const std::vector<Tensor> images{counting({1, 3, 2, 5})};
  const std::string said = error_of([&] { engine->call("forward", images); });
  check_says(said, {"tiny: forward [1, 3, 2, 5]", "5"});
  CHECK(said.find(folder.path().string()) ==
        std::string::npos);  // the text goes into segment lines, which have no paths of the machine
  CHECK(error_of([&] { engine->call("forward", images); }).find("Exception raised from") == std::string::npos);
  check_says(error_of([&] { engine->call("encode", images); }), {"has no method 'encode'", "forward"});
}

TEST_CASE("wrong returns are named") {
  const auto warm = [](const char* source) {
    return [source] {
      const TemporaryFolder folder;
      const Package package = package_of(folder.path(), source);
      warm_up(*load_torch_engine(package, {}), package, {{"forward", 1}}, host);
    };
  };
  const auto message = [&](const char* source) { return error_of(warm(source)); };
  check_says(message("def forward(self, images):\n    return [1, 2]\n"), {"expected a tensor or a tuple of tensors"});
  check_says(message("def forward(self, images):\n    return images, 3\n"),
             {"expected a tensor or a tuple of tensors, got Int"});
  check_says(message("def forward(self, images):\n    return images.double()\n"), {"type Double"});
  check_says(error_of<PackageError>(warm("def forward(self, images):\n    return images\n")),
             {"unexpected shape of output 0, expected detections f32 [1, 42, 6], got detections f32 [1, 3, 64, 32]"});
  CHECK_NOTHROW(warm("def forward(self, images):\n    return torch.zeros([images.size(0), 42, 6])\n")());
}

TEST_CASE("a model that lacks a method is refused at load") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), "def encode(self, images):\n    return images\n", segmenter_yaml());
  check_says(error_of([&] { load_torch_engine(package, {}); }), {"has no method 'decode'", "encode, decode"});
}

TEST_CASE("a file that only looks like TorchScript is refused at load") {
  const TemporaryFolder folder;
  write_package(folder.path(), detector_yaml());
  const std::string model_folder = folder.path().string();
  check_says(error_of([&] { load_torch_engine(read_package(folder.path()), {}); }), {model_folder.c_str(), "load"});
}

TEST_CASE("running out of memory is distinguished from other failures") {
  const TemporaryFolder folder;
  const Package package =
      package_of(folder.path(), "def forward(self, images):\n    return torch.zeros([1000000, 1000000, 1000])\n");
  const auto engine = load_torch_engine(package, {});
  const std::vector<Tensor> images{counting({1})};
  CHECK_THROWS_AS(engine->call("forward", images), OutOfMemoryError);
}

TEST_CASE("the same call gives the same bits, after calls of any other shapes") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), R"(
def forward(self, images):
    x = torch.sigmoid(images * self.scale) + torch.tanh(images) * 3.0
    if bool(x.sum() > 0):
        x = x / x.sum()
    return torch.softmax(x.flatten(1) + 1.0, 1)
)");
  const auto engine = load_torch_engine(package, {});
  const std::vector<Tensor> images{counting({2, 3, 9, 7})};
  const auto bits = [&] {
    const auto outputs = engine->call("forward", images);
    const auto values = outputs[0].host<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto first = bits();
  for (std::int64_t n = 1; n < 5; ++n) {
    const std::vector<Tensor> others{counting({n, 3, 4 + n, 5})};
    engine->call("forward", others);
    CHECK(bits() == first);
  }
}

TEST_CASE("two lanes call one engine at once") {
  const TemporaryFolder folder;
  const Package package =
      package_of(folder.path(),
                 "def forward(self, images):\n    return torch.matmul(images, images.transpose(2, 3)) * self.scale\n");
  const auto engine = load_torch_engine(package, {});
  const std::vector<Tensor> images{counting({1, 3, 64, 64})};
  const float expected = engine->call("forward", images)[0].host<float>()[77];
  std::vector<std::thread> lanes;
  std::vector<int> wrong(2);
  for (int& mine : wrong) {
    lanes.emplace_back([&] {
      for (int i = 0; i < 200; ++i) mine += engine->call("forward", images)[0].host<float>()[77] != expected;
    });
  }
  for (auto& lane : lanes) lane.join();
  CHECK(wrong == std::vector<int>{0, 0});
}

TEST_CASE("constants of a trace follow the model to another device") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), R"(
def forward(self, images):
    places = torch.arange(images.size(3), device=torch.device("cpu")) * self.scale
    if images.size(0) > 1:
        places = places + torch.ones([1, 1], device="cpu")
    return images + places + self.first.expand([images.size(3)])
)");
  for (const bool freeze : {true, false}) {
    CAPTURE(freeze);
    const auto engine = load_torch_engine(package, {.device = shapes_only, .freeze = freeze});
    for (const std::int64_t batch : {1, 2}) {
      const std::vector<Tensor> images{{nullptr, nullptr, {batch, 3, 4, 5}, DType::f32, shapes_only}};
      const auto outputs = engine->call("forward", images);
      CHECK(outputs[0].shape == std::vector<std::int64_t>{batch, 3, 4, 5});
      CHECK(outputs[0].device == shapes_only);
    }
  }
}

TEST_CASE("in 16 bits a model takes and gives embeddings of its type, and other tensors in float32") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), R"(
def encode(self, images):
    return images * self.scale
def decode(self, embedding, boxes, image_index):
    return boxes * self.scale, embedding
)",
                                     segmenter_yaml());
  for (const auto& [precision, type] : {std::pair{Precision::bf16, DType::bf16}, {Precision::fp16, DType::f16}}) {
    const auto engine = load_torch_engine(package, {.precision = precision});
    CHECK(engine->image_type() == type);
    Tensor image = Tensor::empty({1, 1, 1, 1}, type);
    image.host<std::uint16_t>()[0] = type == DType::bf16 ? to_bf16(3) : to_f16(3);
    const auto embedding = engine->call("encode", std::span(&image, 1));
    CHECK(embedding[0].dtype == type);
    CHECK(embedding[0].host<std::uint16_t>()[0] == (type == DType::bf16 ? to_bf16(6) : to_f16(6)));
    const std::vector<Tensor> inputs{embedding[0], counting({1, 4}), Tensor::empty({1}, DType::i64)};
    const auto decoded = engine->call("decode", inputs);
    CHECK(decoded[0].dtype == DType::f32);
    CHECK(decoded[0].host<float>()[3] == 6);
    CHECK(decoded[1].dtype == DType::f32);
    CHECK(decoded[1].host<float>()[0] == 6);
  }
}

TEST_CASE("a failed device is distinguished from a failed model") {
  const auto thrown = [](const char* message) -> std::string {
    const TemporaryFolder folder;
    const Package package =
        package_of(folder.path(), std::string("def forward(self, images):\n    assert images.size(0) > 1, \"") +
                                      message + "\"\n    return images\n");
    const auto engine = load_torch_engine(package, {});
    const std::vector<Tensor> images{counting({1})};
    try {
      engine->call("forward", images);
    } catch (const DeviceError& error) {
      return std::string("device: ") + error.what();
    } catch (const OutOfMemoryError& error) {
      return std::string("memory: ") + error.what();
    } catch (const ModelError& error) {
      return std::string("model: ") + error.what();
    }
    return "nothing";
  };
  check_says(thrown("CUDA error: an illegal memory access was encountered"), {"device: tiny: forward [1]", "illegal"});
  check_says(thrown("CUDA driver error: unspecified launch failure"), {"device: "});
  check_says(thrown("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), {"memory: "});
  check_says(thrown("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`"), {"model: "});
  check_says(thrown("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"), {"model: "});
}

TEST_CASE("a GPU that does not exist") {
  const TemporaryFolder folder;
  const Package package = package_of(folder.path(), "def forward(self, images):\n    return images\n");
  check_says(error_of([&] { load_torch_engine(package, {.device = 0}); }), {"GPU"});
}

}  // namespace
}  // namespace millrace
