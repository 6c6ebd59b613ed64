#include "base/trace.hpp"

#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <array>
#include <cstdio>

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

Trace::Trace() : domain_(nvtxDomainCreateA("millrace")) {}

Trace::~Trace() {
  if (domain_ != nullptr) nvtxDomainDestroy(handle(domain_));
}

Trace::Range::Range(const Trace& trace, const std::string& stage, std::int64_t id, std::size_t frames) noexcept
    : trace_(trace) {
  if (trace_.domain_ == nullptr) return;
  const Event event("", stage, id, frames);
  nvtxDomainRangePushEx(handle(trace_.domain_), &event.attributes);
}

Trace::Range::~Range() {
  if (trace_.domain_ != nullptr) nvtxDomainRangePop(handle(trace_.domain_));
}

std::uint64_t Trace::begin_wait(const std::string& stage, std::int64_t id, std::size_t frames) const noexcept {
  if (domain_ == nullptr) return 0;
  const Event event("queue: ", stage, id, frames);
  // Not push and pop, because the range may end on another thread.
  return nvtxDomainRangeStartEx(handle(domain_), &event.attributes);
}

std::uint64_t Trace::begin_capture(std::int64_t frame) const noexcept {
  if (domain_ == nullptr) return 0;
  const Event event("", "capture", frame, 0);
  return nvtxDomainRangeStartEx(handle(domain_), &event.attributes);
}

void Trace::end(std::uint64_t range) const noexcept {
  if (domain_ != nullptr) nvtxDomainRangeEnd(handle(domain_), range);
}

void name_thread_in_trace(const std::string& name) noexcept {
  nvtxNameOsThreadA(static_cast<std::uint32_t>(gettid()), name.c_str());
}

}  // namespace millrace
