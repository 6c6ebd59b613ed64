#pragma once

#include <string_view>

namespace millrace {

class Stream;

/// launch(job, stream), which the .cu of the operation defines.
template <class Job>
constexpr auto cuda_launch() -> void (*)(const Job& job, Stream& stream) {
#ifdef MILLRACE_CUDA
  return [](const Job& job, Stream& stream) { launch(job, stream); };
#else
  return nullptr;
#endif
}

/// A device operation as a row: all that streams ask of it. A `Job` is plain data that is copied: numbers, and pointers
/// to memory of the stream that does it.
///
/// Beside the row, an operation has a function that callers use, such as letterbox(Device&, ...). It makes the job,
/// gives it to Device::run(), and hands results over after the wait.
template <class Job>
struct Operation {
  using Function = void (*)(const Job& job);
  using Launch = void (*)(const Job& job, Stream& stream);

  std::string_view name;  ///< under which a simulated device's table has the cost
  Function host;  ///< what the CPU does, at once: it has faster ways than one thread of a kernel after the other
  Function body;  ///< the kernels' bodies, one thread after the other, on memory that is the host's
  double (*units)(const Job& job) = [](const Job&) { return 1.0; };  ///< how many times the cost
  Function simulate = [](const Job&) {};  ///< nothing is computed: writes what the host's side will read
  Launch launch = cuda_launch<Job>();     ///< asks a CUDA stream for the kernels; null in builds without CUDA
};

/// An operation with one job, as a stream sees it.
class OperationCall {
 public:
  OperationCall() = default;
  OperationCall(const OperationCall&) = delete;
  OperationCall& operator=(const OperationCall&) = delete;
  virtual ~OperationCall() = default;

  // As in Operation:
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual double units() const = 0;
  virtual void host() const = 0;
  virtual void body() const = 0;
  virtual void simulate() const = 0;
  virtual void launch(Stream& stream) const = 0;
};

template <class Job>
class CallOf final : public OperationCall {
 public:
  CallOf(const Operation<Job>& operation, const Job& job) : operation_(operation), job_(job) {}

  [[nodiscard]] std::string_view name() const override { return operation_.name; }
  [[nodiscard]] double units() const override { return operation_.units(job_); }
  void host() const override { operation_.host(job_); }
  void body() const override { operation_.body(job_); }
  void simulate() const override { operation_.simulate(job_); }
  void launch(Stream& stream) const override { operation_.launch(job_, stream); }

 private:
  const Operation<Job> operation_;
  const Job job_;
};

}  // namespace millrace
