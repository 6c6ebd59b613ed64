#include "stages/preprocess.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "gpu/streams/fake_stream.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

float value_at(const Tensor& images, std::int64_t row, int channel, int y, int x) {
  const auto height = images.shape[2], width = images.shape[3];
  return images.host<const float>()[static_cast<std::size_t>(((row * 3 + channel) * height + y) * width + x)];
}

TEST_CASE("each model gets every picture of the batch in its own way") {
  StageFixture fixture;
  Package detector = detector_package();
  detector.input.bgr = true;
  Package segmenter = segmenter_package();
  segmenter.input.width = segmenter.input.height = 128;
  segmenter.input.mean = {10, 20, 30};
  segmenter.input.std = {2, 2, 2};
  fixture.add_view(detector, {});
  fixture.set_segmenter(segmenter, {});
  Batch batch = batch_of({40, 50});
  Preprocess({}, fixture.context()).run(batch);

  const ModelInput& seen = batch.columns.get(model_inputs).at("/fake-yolo");
  CHECK(seen.images.shape == std::vector<std::int64_t>{2, 3, side, side});
  CHECK(value_at(seen.images, 0, 2, 5, 5) == doctest::Approx(40));  // red is the last plane
  CHECK(value_at(seen.images, 1, 2, 5, 5) == doctest::Approx(50));
  CHECK(value_at(seen.images, 1, 0, 63, 63) == doctest::Approx(20));
  CHECK(seen.geometry[1].resized_width == side);

  const ModelInput& prompted = batch.columns.get(model_inputs).at("/fake-sam");
  CHECK(prompted.images.shape == std::vector<std::int64_t>{2, 3, 128, 128});
  CHECK(value_at(prompted.images, 0, 0, 100, 100) == doctest::Approx((40 - 10) / 2.0));
  CHECK(value_at(prompted.images, 1, 1, 0, 127) == doctest::Approx((10 - 20) / 2.0));
  CHECK(prompted.geometry[0].scale_x == 2);
}

TEST_CASE("a failed frame keeps its row, in zeros") {
  StageFixture fixture;
  fixture.add_view(detector_package(), {});
  Preprocess stage({}, fixture.context());
  Batch full = batch_of({7, 8, 9});
  stage.run(full);  // now the lane's buffer has old pictures
  Batch batch = batch_of({7, 8, 9});
  batch.frames[1]->fail("decode", Reason::truncated, "cut");
  stage.run(batch);
  const Tensor& images = batch.columns.get(model_inputs).at("/fake-yolo").images;
  REQUIRE(images.shape[0] == 3);
  CHECK(code_of(images, 0) == 7);
  CHECK(code_of(images, 2) == 9);
  const auto row = images.host<const float>().subspan(3 * side * side, 3 * side * side);
  CHECK(std::all_of(row.begin(), row.end(), [](float value) { return value == 0; }));
}

TEST_CASE("the last, smaller batch has its own shape; a batch without pictures is zeros") {
  StageFixture fixture(16);
  fixture.add_view(detector_package(), {});
  Preprocess stage({}, fixture.context());
  Batch large = batch_of(std::vector<int>(16, 3));
  stage.run(large);
  Batch small = batch_of({4});
  stage.run(small);
  CHECK(small.columns.get(model_inputs).at("/fake-yolo").images.shape[0] == 1);
  CHECK(code_of(small.columns.get(model_inputs).at("/fake-yolo").images, 0) == 4);

  Batch failed = batch_of({5, 6});
  for (const auto& frame : failed.frames) frame->fail("decode", Reason::empty, "no bytes");
  CHECK(failed.empty());
  stage.run(failed);
  const auto values = failed.columns.get(model_inputs).at("/fake-yolo").images.host<const float>();
  CHECK(std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }));
}

TEST_CASE("it makes inputs only for the models of the run") {
  StageFixture fixture;
  fixture.add_view_without_detector();
  Batch batch = batch_of({1});
  Preprocess({}, fixture.context()).run(batch);
  CHECK(batch.columns.get(model_inputs).empty());
}

TEST_CASE("each picture is uploaded once, for all readers") {
  StageFixture fixture;
  fixture.add_view(detector_package(), {});
  fixture.set_segmenter(segmenter_package(), {});
  Device device(std::make_unique<FakeStream>());
  StageContext context = fixture.context();
  context.device = &device;
  Batch batch = batch_of({7, 8, 9});
  batch.frames[1]->fail("decode", Reason::truncated, "cut");
  Preprocess({}, context).run(batch);
  device.wait();
  CHECK(device.counts().uploads == 2);
  CHECK(batch.frames[1]->columns.find(uploaded) == nullptr);
  for (const int slot : {0, 2}) {
    const Frame& frame = *batch.frames[static_cast<std::size_t>(slot)];
    const DeviceImage& image = frame.columns.get(uploaded);
    const PixelBuffer& raster = frame.columns.get(pixels);
    CHECK(image.width == raster.width);
    CHECK(image.data.get() != raster.data.get());
    CHECK(std::equal(image.data.get(), image.data.get() + 3 * image.width * image.height, raster.data.get()));
  }
}

}  // namespace
}  // namespace millrace
