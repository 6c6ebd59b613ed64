#pragma once

// A pipeline with integers instead of pictures. Frames and batches record what happened to them, bodies check the bounds.

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/graph.hpp"

namespace millrace::fake {

struct Picture {
  std::int64_t id = 0;
  std::int64_t batch = 0;
  int in_slot = 0;
  int slots = 1;
  std::int64_t file = 40, pixels = 100, working = 30;  // bytes that it requests
  std::vector<std::string> went{};                     // names of the stages whose bodies ran
  std::string failed_in{};
  ByteCredit credit{};

  [[nodiscard]] std::int64_t batch_id() const { return batch; }
  [[nodiscard]] int slot() const { return in_slot; }
  [[nodiscard]] int batch_size() const { return slots; }
  [[nodiscard]] bool failed() const { return !failed_in.empty(); }
  void set_credit(ByteCredit granted) {
    credit = std::move(granted);
    if (granted_bytes) granted_bytes();
  }
  std::function<void()> granted_bytes{};
};

struct Pictures {
  std::vector<std::shared_ptr<Picture>> frames;
  [[nodiscard]] bool empty() const {
    return std::ranges::all_of(frames, [](const auto& frame) { return frame->failed(); });
  }
};

using FakeGraph = Graph<Picture, Pictures>;
using FakeBodies = GraphBodies<Picture, Pictures>;

/// Frames in the order of a plan, which cuts each segment of the input into batches, view by view.
/// `view_of` gives the view of each frame.
inline std::vector<Picture> planned(int frames, int views, int max_batch, int segment,
                                    const std::function<int(int)>& view_of) {
  std::vector<Picture> plan;
  std::int64_t batch = 0;
  for (int first = 0; first < frames; first += segment) {
    for (int view = 0; view < views; ++view) {
      std::vector<int> ids;
      for (int id = first; id < std::min(frames, first + segment); ++id) {
        if (view_of(id) == view) ids.push_back(id);
      }
      for (std::size_t i = 0; i < ids.size(); i += static_cast<std::size_t>(max_batch), ++batch) {
        const auto size = static_cast<int>(std::min(ids.size() - i, static_cast<std::size_t>(max_batch)));
        for (int slot = 0; slot < size; ++slot) {
          plan.push_back(
              {.id = ids[i + static_cast<std::size_t>(slot)], .batch = batch, .in_slot = slot, .slots = size});
        }
      }
    }
  }
  return plan;
}
inline std::vector<Picture> planned(int frames, int max_batch) {
  return planned(frames, 1, max_batch, frames + 1, [](int) { return 0; });
}

/// A count that remembers its largest value.
class HighWater {
 public:
  void add(std::int64_t n) {
    const auto now = now_ += n;
    auto highest = highest_.load();
    while (now > highest && !highest_.compare_exchange_weak(highest, now)) {
    }
  }
  /// Adds one to the count as long as it lives.
  class Within {
   public:
    explicit Within(HighWater& count) : count_(count) { count_.add(1); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    ~Within() { count_.add(-1); }

   private:
    HighWater& count_;
  };
  [[nodiscard]] std::int64_t highest() const { return highest_; }
  [[nodiscard]] std::int64_t now() const { return now_; }

 private:
  std::atomic<std::int64_t> now_{0};
  std::atomic<std::int64_t> highest_{0};
};

/// Runs a plan through a graph. Every body calls `in_frame` or `in_batch`, which may throw.
struct GraphFixture {
  GraphOptions options{.max_batch = 4, .admission_items = 8, .slab_bytes = 100, .byte_budget = 800};
  std::vector<Picture> plan{};
  std::vector<std::string> frame_stages{"decode"};
  std::vector<std::string> lane_stages{"preprocess", "detect"};
  std::vector<std::string> batch_stages{"encode"};
  std::function<void(Picture&, const std::string&)> in_frame{};
  std::function<void(Pictures&, const std::string&)> in_batch{};

  // Results, for the checks of tests.
  std::map<std::int64_t, int> commits{};  // frame id -> how often
  std::vector<std::vector<std::shared_ptr<Picture>>> committed{};
  HighWater inside{}, bytes{}, files{}, decoding{}, ahead{}, on_lanes{}, committing{};
  SteadyClock clock{};
  std::atomic<std::size_t> position{0};  // in the plan

  FakeBodies bodies() {
    FakeBodies it;
    it.next = [this]() -> std::shared_ptr<Picture> {
      if (position == plan.size()) return nullptr;
      inside.add(1);
      ahead.add(1);
      auto frame = std::make_shared<Picture>(std::move(plan[position++]));
      frame->granted_bytes = [this, picture = frame.get()] {
        ahead.add(-1);
        bytes.add(picture->credit.bytes());
        decoding.add(picture->credit.bytes());
        if (picture->failed()) return;
        decoding.add(picture->working);
        if (frame_stages.empty()) leave_frame_stages(*picture);
      };
      return frame;
    };
    it.file_bytes = [](const Picture& frame) { return frame.file; };
    it.read = [this](Picture& frame) {
      files.add(frame.file);
      frame_body(frame, "read");
    };
    it.bytes = [](const Picture& frame) { return ByteNeed(frame.pixels, frame.working); };
    for (const auto& name : frame_stages) {
      it.frame_stages.push_back({name, [this, name](Picture& frame) {
                                   frame_body(frame, name);
                                   if (name == frame_stages.back()) leave_frame_stages(frame);
                                 }});
    }
    it.make_batch = [this](std::vector<std::shared_ptr<Picture>> frames) {
      for (std::size_t slot = 0; slot < frames.size(); ++slot) {
        if (frames[slot]->in_slot != static_cast<int>(slot) || frames[slot]->batch != frames[0]->batch) {
          throw RunError("batch", "slots in the wrong order");
        }
      }
      return std::make_shared<Pictures>(std::move(frames));
    };
    for (const auto& name : lane_stages) {
      it.lane_stages.push_back({name, [this, name](Pictures& batch, int) {
                                  const HighWater::Within one(on_lanes);
                                  batch_body(batch, name);
                                }});
    }
    for (const auto& name : batch_stages) {
      it.batch_stages.push_back({name, [this, name](Pictures& batch) { batch_body(batch, name); }});
    }
    it.commit = [this](Pictures& batch) {
      const HighWater::Within one(committing);
      if (in_batch) in_batch(batch, "commit");
      for (const auto& frame : batch.frames) {
        ++commits[frame->id];
        bytes.add(-frame->credit.bytes());
        decoding.add(-frame->credit.bytes());
        frame->credit.release();
      }
      committed.push_back(batch.frames);
      inside.add(-static_cast<std::int64_t>(batch.frames.size()));
    };
    it.frame_failed = [this](Picture& frame, const std::string& stage, const std::exception_ptr&) {
      frame.failed_in = stage;
      if (stage == "read") {
        files.add(-frame.file);
      } else {
        leave_frame_stages(frame);
      }
    };
    it.batch_failed = [](Pictures& batch, const std::string& stage, const std::exception_ptr&) {
      for (const auto& frame : batch.frames) {
        if (!frame->failed()) frame->failed_in = stage;
      }
    };
    return it;
  }

  Result run() {
    FakeGraph graph(options, bodies(), clock);
    return graph.run();
  }

 private:
  // The frame has given back its bytes for file and decoding.
  void leave_frame_stages(const Picture& frame) {
    files.add(-frame.file);
    decoding.add(-frame.working);
  }
  void frame_body(Picture& frame, const std::string& stage) {
    frame.went.push_back(stage);
    if (in_frame) in_frame(frame, stage);
  }
  void batch_body(Pictures& batch, const std::string& stage) {
    for (const auto& frame : batch.frames) frame->went.push_back(stage);
    if (in_batch) in_batch(batch, stage);
  }
};

inline std::string message(const std::exception_ptr& error) {
  if (error == nullptr) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace millrace::fake
