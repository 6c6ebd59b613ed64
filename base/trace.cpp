#include "base/trace.hpp"

#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <utility>

#include "base/trace_recorder.hpp"

namespace millrace {
namespace {

nvtxDomainHandle_t handle(void* domain) { return static_cast<nvtxDomainHandle_t>(domain); }

// An event of NVTX with the text that it points to.
struct Event {
  Event(const char* prefix, const std::string& stage, std::int64_t id, std::size_t frames) noexcept {
    // Without an allocation, because the constructor must not throw. Long names are cut.
    if (frames == 0) {
      std::snprintf(text.data(), text.size(), "%s%s", prefix, stage.c_str());
    } else {
      std::snprintf(text.data(), text.size(), "%s%s [%zu]", prefix, stage.c_str(), frames);
    }
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = text.data();
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = id;
  }
  std::array<char, 64> text;
  nvtxEventAttributes_t attributes{};
};

}  // namespace

Trace::Trace(TraceRecorder* recorder) : domain_(nvtxDomainCreateA("millrace")), recorder_(recorder) {}

Trace::~Trace() {
  if (domain_ != nullptr) nvtxDomainDestroy(handle(domain_));
}

Trace::Range::Range(const Trace& trace, const std::string& stage, std::int64_t number, std::size_t frames) noexcept
    : trace_(trace), stage_(stage), number_(number), frames_(frames), open_(trace.domain_ != nullptr) {
  if (!open_) return;
  const Event event("", stage, number, frames);
  nvtxDomainRangePushEx(handle(trace_.domain_), &event.attributes);
}

Trace::Range::~Range() {
  if (open_) nvtxDomainRangePop(handle(trace_.domain_));
}

void Trace::Range::end(std::int64_t begun_ns, std::int64_t ended_ns, std::string_view file) noexcept {
  if (std::exchange(open_, false)) nvtxDomainRangePop(handle(trace_.domain_));
  if (trace_.recorder_ == nullptr) return;
  trace_.recorder_->add(
      {TraceEvent::Kind::work, static_cast<std::uint32_t>(frames_), &stage_, number_, begun_ns, ended_ns}, file);
}

Trace::Wait Trace::begin_wait(const std::string& stage, std::int64_t number, std::size_t frames,
                              std::int64_t begun_ns) const noexcept {
  Wait wait{&stage, number, frames, begun_ns};
  if (domain_ != nullptr) {
    const Event event("queue: ", stage, number, frames);
    // Not push and pop, because the range may end on another thread.
    wait.range = nvtxDomainRangeStartEx(handle(domain_), &event.attributes);
  }
  return wait;
}

void Trace::end_wait(Wait& wait, std::int64_t ended_ns) const noexcept {
  if (wait.stage == nullptr) return;
  if (domain_ != nullptr) nvtxDomainRangeEnd(handle(domain_), wait.range);
  if (recorder_ != nullptr) {
    recorder_->add({TraceEvent::Kind::wait, static_cast<std::uint32_t>(wait.frames), wait.stage, wait.number,
                    wait.begun_ns, ended_ns});
  }
  wait = {};
}

void Trace::queue(const std::string& stage, std::int64_t length, std::int64_t time_ns) const noexcept {
  if (recorder_ != nullptr) recorder_->add({TraceEvent::Kind::queue, 0, &stage, length, time_ns, time_ns});
}

void Trace::committed(std::int64_t frames, std::int64_t time_ns) const noexcept {
  if (recorder_ != nullptr) recorder_->add({TraceEvent::Kind::committed, 0, nullptr, frames, time_ns, time_ns});
}

std::uint64_t Trace::begin_capture(std::int64_t frame) const noexcept {
  if (domain_ == nullptr) return 0;
  const Event event("", "capture", frame, 0);
  return nvtxDomainRangeStartEx(handle(domain_), &event.attributes);
}

void Trace::end_capture(std::uint64_t range) const noexcept {
  if (domain_ != nullptr) nvtxDomainRangeEnd(handle(domain_), range);
}

void name_thread_in_trace(const std::string& name) noexcept {
  nvtxNameOsThreadA(static_cast<std::uint32_t>(gettid()), name.c_str());
}

}  // namespace millrace
