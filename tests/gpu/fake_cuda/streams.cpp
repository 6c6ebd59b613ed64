// Streams, events and graphs of the fake CUDA runtime. All work is done when it is asked for, but the program cannot
// know that before it waits: until then, events and streams are not ready.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/fake_cuda/runtime.hpp"

namespace {

using fake_cuda::failed;
using fake_cuda::forbidden;
using Clock = std::chrono::steady_clock;
using Lock = std::lock_guard<std::recursive_mutex>;

struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;  ///< that began it
  std::int64_t operations = 0;
  bool valid = true;
};

struct Stream {
  /// Operations that were put on the stream, and those of them that somebody has waited for.
  std::int64_t put = 0, waited = 0;
  Clock::time_point busy_until;  ///< by a kernel that idles
  std::shared_ptr<Capture> capture;
};

struct Event {
  std::shared_ptr<Stream> stream;    ///< null: never recorded
  std::int64_t put = 0;              ///< on the stream, before the event
  Clock::time_point time;            ///< when the stream reaches it
  std::shared_ptr<Capture> capture;  ///< that it was recorded in
};

struct State {
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::shared_ptr<Stream> default_stream = std::make_shared<Stream>();
  std::map<cudaEvent_t, Event> events;
};

/// Never destroyed: other libraries call this one at their end.
State& state() {
  static auto* const it = new State;
  return *it;
}

thread_local bool worked = false;  // this thread has put operations on streams
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

std::shared_ptr<Stream> find(cudaStream_t handle) {
  const auto found = state().streams.find(handle);
  return found == state().streams.end() ? state().default_stream : found->second;
}

Clock::time_point end_of(const Stream& stream) { return std::max(Clock::now(), stream.busy_until); }

/// A violation of the rules: the capture gives no graph.
cudaError_t end(Capture& capture, cudaError_t error) {
  capture.valid = false;
  return failed(error);
}

cudaError_t counted(const char* name) {
  fake_cuda_count(name);
  return cudaSuccess;
}

/// An event that is recorded now.
Event now_on(const std::shared_ptr<Stream>& stream) { return {stream, stream->put, end_of(*stream), stream->capture}; }

void wait(const Event& event) {
  std::this_thread::sleep_until(event.time);
  const Lock lock(fake_cuda::mutex());
  if (event.stream != nullptr) event.stream->waited = std::max(event.stream->waited, event.put);
}

bool ready(const Event& event) { return event.stream == nullptr || event.stream->waited >= event.put; }

}  // namespace

std::recursive_mutex& fake_cuda::mutex() {
  static auto* const it = new std::recursive_mutex;
  return *it;
}

std::optional<cudaError_t> fake_cuda::put(cudaStream_t handle, const char* name, const char* kind,
                                          std::string_view kernel) {
  worked = true;
  const Lock lock(mutex());
  const auto stream = find(handle);
  if (stream->capture != nullptr) {
    if (!stream->capture->valid) return failed(cudaErrorStreamCaptureInvalidated);
    ++stream->capture->operations;
    return cudaSuccess;
  }
  if (stream == state().default_stream) {
    const std::string on_default = std::string(kind) + " on the default stream";
    // CUDA allows it if the stream of the capture is non-blocking. But the graph would lack this work.
    if (forbidden(on_default.c_str())) return failed(cudaErrorStreamCaptureImplicit);
    fake_cuda_count(on_default.c_str());
  }
  ++stream->put;
  fake_cuda_count(name);
  profile(kernel.empty() ? name : kernel, kind);
  return std::nullopt;
}

bool fake_cuda::is_lane() { return worked; }

void fake_cuda::occupy(cudaStream_t handle, std::uint64_t ns) {
  const Lock lock(mutex());
  const auto stream = find(handle);
  stream->busy_until = end_of(*stream) + std::chrono::nanoseconds(ns);
}

bool fake_cuda::forbidden(const char* name) {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
  const Lock lock(mutex());
  bool found = false;
  for (const auto& [handle, stream] : state().streams) {
    Capture* const capture = stream->capture.get();
    if (capture == nullptr || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->thread != std::this_thread::get_id() &&
        (capture->mode != cudaStreamCaptureModeGlobal || mode_of_thread != cudaStreamCaptureModeGlobal))
      continue;
    end(*capture, cudaErrorStreamCaptureUnsupported);
    found = true;
  }
  if (found) fake_cuda_count((std::string(name) + " during a capture").c_str());
  return found;
}

void fake_cuda::finish_default_stream() {
  const Lock lock(mutex());
  state().default_stream->waited = state().default_stream->put;
}

// The names are those of NVIDIA.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

int fake_cuda_put(const char* name, const char* kind, const void* stream) {
  return fake_cuda::put(static_cast<cudaStream_t>(const_cast<void*>(stream)), name, kind).value_or(cudaSuccess);
}
int fake_cuda_launch(const char* kernel, const void* stream) {
  return fake_cuda::put(static_cast<cudaStream_t>(const_cast<void*>(stream)), "cuLaunchKernel", "launch",
                        kernel == nullptr ? "" : kernel)
      .value_or(cudaSuccess);
}

// ---- Streams

static cudaError_t make_stream(cudaStream_t* out) {
  const Lock lock(fake_cuda::mutex());
  // Aligned: LibTorch keeps flags in the lowest bits of a stream's address.
  *out = static_cast<cudaStream_t>(std::aligned_alloc(64, 64));
  state().streams[*out] = std::make_shared<Stream>();
  return counted("cudaStreamCreate");
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return make_stream(out); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) { return make_stream(out); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) { return make_stream(out); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(fake_cuda::mutex());
  if (state().streams.erase(stream) > 0) std::free(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Lock lock(fake_cuda::mutex());
  const auto stream = find(handle);
  if (stream->capture != nullptr) return end(*stream->capture, cudaErrorStreamCaptureUnsupported);
  if (forbidden("cudaStreamQuery")) return cudaErrorStreamCaptureUnsupported;
  fake_cuda_count("cudaStreamQuery");
  return stream->waited == stream->put ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Event here;
  {
    const Lock lock(fake_cuda::mutex());
    const auto stream = find(handle);
    if (stream->capture != nullptr) return end(*stream->capture, cudaErrorStreamCaptureUnsupported);
    if (forbidden("cudaStreamSynchronize")) return cudaErrorStreamCaptureUnsupported;
    here = now_on(stream);
  }
  wait(here);
  return counted("cudaStreamSynchronize");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t name, unsigned flags) {
  const Lock lock(fake_cuda::mutex());
  const auto stream = find(handle);
  const Event& event = state().events[name];
  if (event.stream != nullptr && stream->capture != event.capture) {
    // With an event of a capture, CUDA adds the stream to this capture. Nobody needs that here yet.
    if (event.capture != nullptr) return end(*event.capture, cudaErrorNotSupported);
    if (flags != cudaEventWaitExternal) return end(*stream->capture, cudaErrorStreamCaptureIsolation);
  }
  return counted("cudaStreamWaitEvent");
}
cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t callback, void* data, unsigned) {
  {
    const Lock lock(fake_cuda::mutex());
    const auto stream = find(handle);
    if (stream->capture != nullptr) return end(*stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  callback(handle, cudaSuccess, data);
  return counted("cudaStreamAddCallback");
}
cudaError_t cudaDeviceSynchronize() {
  std::vector<Event> all;
  {
    const Lock lock(fake_cuda::mutex());
    all.push_back(now_on(state().default_stream));
    for (const auto& [handle, stream] : state().streams) all.push_back(now_on(stream));
    bool captures = false;  // of any thread and in any mode
    for (const Event& event : all) {
      if (event.capture == nullptr) continue;
      end(*event.capture, cudaErrorStreamCaptureUnsupported);
      captures = true;
    }
    if (captures) return cudaErrorStreamCaptureUnsupported;
  }
  for (const Event& event : all) wait(event);
  return counted("cudaDeviceSynchronize");
}

// ---- Events

static cudaError_t make_event(cudaEvent_t* out) {
  const Lock lock(fake_cuda::mutex());
  *out = static_cast<cudaEvent_t>(std::malloc(1));
  state().events[*out] = {};
  return counted("cudaEventCreate");
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return make_event(out); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return make_event(out); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(fake_cuda::mutex());
  state().events.erase(event);
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const Lock lock(fake_cuda::mutex());
  const auto stream = find(handle);
  if (stream->capture != nullptr && !stream->capture->valid) return failed(cudaErrorStreamCaptureInvalidated);
  state().events[event] = now_on(stream);
  return counted("cudaEventRecord");
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t name) {
  const Lock lock(fake_cuda::mutex());
  const Event& event = state().events[name];
  if (event.capture != nullptr) return end(*event.capture, cudaErrorCapturedEvent);
  if (forbidden("cudaEventQuery")) return cudaErrorStreamCaptureUnsupported;
  fake_cuda_count("cudaEventQuery");
  return ready(event) ? cudaSuccess : cudaErrorNotReady;  // no error for cudaGetLastError()
}
cudaError_t cudaEventSynchronize(cudaEvent_t name) {
  Event event;
  {
    const Lock lock(fake_cuda::mutex());
    event = state().events[name];
    if (event.capture != nullptr) return end(*event.capture, cudaErrorCapturedEvent);
    if (forbidden("cudaEventSynchronize")) return cudaErrorStreamCaptureUnsupported;
  }
  wait(event);
  return counted("cudaEventSynchronize");
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t first, cudaEvent_t second) {
  const Lock lock(fake_cuda::mutex());
  const Event &begin = state().events[first], &end = state().events[second];
  if (begin.stream == nullptr || end.stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (!ready(begin) || !ready(end)) return failed(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end.time - begin.time).count();
  return cudaSuccess;
}

// ---- Graphs: a graph is the number of its operations

static cudaGraph_t graph_of(std::int64_t operations) {
  return reinterpret_cast<cudaGraph_t>(new std::int64_t(operations));
}
static std::int64_t operations_of(const void* graph) { return *static_cast<const std::int64_t*>(graph); }

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const Lock lock(fake_cuda::mutex());
  const auto stream = find(handle);
  if (stream == state().default_stream || stream->capture != nullptr) return failed(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_shared<Capture>(Capture{.mode = mode, .thread = std::this_thread::get_id()});
  return counted("cudaStreamBeginCapture");
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const Lock lock(fake_cuda::mutex());
  const auto stream = find(handle);
  *graph = nullptr;
  if (stream->capture == nullptr) return failed(cudaErrorIllegalState);
  if (stream->capture->mode != cudaStreamCaptureModeRelaxed && stream->capture->thread != std::this_thread::get_id())
    return failed(cudaErrorStreamCaptureWrongThread);
  const auto capture = std::exchange(stream->capture, nullptr);
  if (!capture->valid) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = graph_of(capture->operations);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const Lock lock(fake_cuda::mutex());
  const auto capture = find(handle)->capture;
  *status = capture == nullptr ? cudaStreamCaptureStatusNone
            : capture->valid   ? cudaStreamCaptureStatusActive
                               : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*) {
  fake_cuda_count("cudaStreamGetCaptureInfo");
  if (id != nullptr) *id = reinterpret_cast<std::uintptr_t>(stream);
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(graph_of(operations_of(graph)));
  return counted("cudaGraphInstantiate");
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* number) {
  *number = static_cast<std::size_t>(operations_of(graph));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const Lock lock(fake_cuda::mutex());
  if (const auto answer = fake_cuda::put(stream, "cudaGraphLaunch", "launch")) return *answer;
  for (std::int64_t i = 0; i < operations_of(graph); ++i) fake_cuda_count("operations of graphs");
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<std::int64_t*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<std::int64_t*>(graph);
  return counted("cudaGraphExecDestroy");
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
