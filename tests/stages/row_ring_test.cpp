#include "stages/row_ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <semaphore>

#include "gpu/device.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "gpu/streams/host_stream.hpp"
#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

constexpr int columns = 3;

/// A picture of one channel, whose row r has the value r % 251.
class Rows final : public RegionSource {
 public:
  explicit Rows(int rows, int broken = -1) : broken_(broken) {
    info_.size = {rows, 1, columns};
    info_.channels = 1;
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 0; }
  void read(int first, int count, void* to) override {
    CHECK(first >= end);  // forwards, and no row twice
    end = first + count;
    if (first <= broken_ && broken_ < end) throw PictureError(Reason::corrupt_data, "row " + std::to_string(broken_));
    for (int row = first; row < end; ++row)
      std::memset(static_cast<char*>(to) + std::ptrdiff_t{columns} * (row - first), row % 251, columns);
    reads.release();
  }
  void read_with_holes(int first, int count, void* to, std::vector<Hole>& found) override {
    read(first, count, to);
    for (const Hole& hole : holes) {
      const int begin = std::max(hole.first_row, first), last = std::min(hole.end_row, first + count);
      if (begin < last) found.push_back({begin, last, hole.first_column, hole.end_column});
    }
  }
  std::vector<Hole> holes;
  int end = 0;
  std::counting_semaphore<> reads{0};  // one for each call

 private:
  const int broken_;
  RegionInfo info_;
};

bool has_row(const RowRing& ring, int row) {
  const auto* const at = ring.data() + std::ptrdiff_t{columns} * (row % ring.capacity());
  return std::all_of(at, at + columns, [&](std::byte value) { return value == static_cast<std::byte>(row % 251); });
}

TEST_CASE("rows up to the end are in memory, for any steps and rows ahead, on host and stream") {
  for (const bool stream : {false, true}) {
    for (const int item : {1, 5, 64, 600}) {
      for (const int rows : {1, 7, 32}) {
        for (const int ahead : {0, 1, 7, 50}) {
          for (const int step : {1, 3, rows}) {
            Device device(stream ? std::make_unique<FakeStream>()
                                 : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
            const auto source = std::make_shared<Rows>(item);
            RowRing ring(source, std::min(rows, item), ahead, nullptr, {}, device);
            CHECK(ring.capacity() <= rows + ahead);
            int slabs = 0;
            for (int end = std::min(rows, item);; end = std::min(end + std::min(step, rows), item)) {
              slabs += ring.load(0, end);
              device.wait();
              for (int row = std::max(end - rows, 0); row < end; ++row) CHECK(has_row(ring, row));
              if (end == item) break;
            }
            CHECK(source->end == item);
            if (stream) CHECK(device.counts().uploads == slabs);
          }
        }
      }
    }
  }
}

TEST_CASE("the first row that is asked for is the first that is read") {
  Device device(std::make_unique<HostStream>());
  const auto source = std::make_shared<Rows>(100);
  source->end = 40;  // so no row before it may be read
  RowRing ring(source, 10, 10, nullptr, {}, device);
  ring.load(40, 50);
  for (int row = 40; row < 50; ++row) CHECK(has_row(ring, row));
}

TEST_CASE("rows between the end of one call and the begin of the next are left out, with their errors and holes") {
  for (const bool stream : {false, true}) {
    for (const int ahead : {0, 10}) {
      Device device(stream ? std::make_unique<FakeStream>() : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
      const auto source = std::make_shared<Rows>(100, 15);
      source->holes = {{12, 55, 0, 1}};
      std::vector<Hole> holes;
      RowRing ring(source, 10, ahead, &holes, {}, device);
      for (const int begin : {0, 50, 52, 90}) {
        ring.load(begin, begin + 10);
        device.wait();
        for (int row = begin; row < begin + 10; ++row) CHECK(has_row(ring, row));
      }
      REQUIRE(holes.size() == 1);
      CHECK(holes[0].first_row == 50);
      CHECK(holes[0].end_row == 55);
    }
  }
}

TEST_CASE("the next rows are read before they are asked for") {
  Device device(std::make_unique<HostStream>());
  const auto source = std::make_shared<Rows>(100);
  RowRing ring(source, 10, 10, nullptr, {}, device);
  ring.load(0, 10);
  source->reads.acquire();
  // Only a test that fails waits so long.
  CHECK(source->reads.try_acquire_for(std::chrono::seconds(20)));
}

TEST_CASE("parts that cannot be read are known when their rows are in memory, and not before") {
  for (const int ahead : {0, 10, 100}) {
    Device device(std::make_unique<HostStream>());
    const auto source = std::make_shared<Rows>(100);
    source->holes = {{12, 14, 0, 1}, {30, 100, 1, 3}};
    std::vector<Hole> holes;
    int looked = 0;
    const auto look = [&](int first, int count, const void* rows) {
      CHECK(first == looked);
      CHECK(*static_cast<const std::uint8_t*>(rows) == first % 251);
      looked = first + count;
    };
    RowRing ring(source, 10, ahead, &holes, look, device);
    const auto rows_of = [&](std::size_t hole) {
      std::vector<int> rows;
      for (const Hole& found : holes) {
        if (found.first_column != source->holes[hole].first_column) continue;
        for (int row = found.first_row; row < found.end_row; ++row) rows.push_back(row);
      }
      return rows;
    };
    ring.load(0, 10);
    CHECK(holes.empty());
    for (int end = 20; end <= 100; end += 5) {
      ring.load(0, end);
      if (ahead == 0) CHECK(looked == end);
      CHECK(rows_of(0) == std::vector<int>{12, 13});
      const std::vector<int> second = rows_of(1);
      // Rows ahead may be in memory too, but each of them once.
      CHECK(static_cast<int>(second.size()) >= end - 30);
      for (std::size_t i = 0; i < second.size(); ++i) CHECK(second[i] == 30 + static_cast<int>(i));
    }
  }
}

TEST_CASE("a row that cannot be read fails the call that needs it, and not one before") {
  for (const int ahead : {0, 10, 100}) {
    Device device(std::make_unique<HostStream>());
    RowRing ring(std::make_shared<Rows>(100, 35), 10, ahead, nullptr, {}, device);
    int loaded = 0;
    const auto load_all = [&] {
      for (int end = 10; end <= 100; end += 5) {
        ring.load(0, end);
        loaded = end;
      }
    };
    CHECK_THROWS_WITH_AS(load_all(), "row 35", PictureError);
    CHECK(loaded + ahead >= 30);
    CHECK(loaded <= 35);
  }
}

}  // namespace
}  // namespace millrace
