#pragma once

#include <string_view>

namespace millrace {

class Stream;

/// Returns a call of launch(job, stream), which the .cu file of the operation defines. Null in builds without CUDA.
template <class Job>
constexpr auto cuda_launch() -> void (*)(const Job& job, Stream& stream) {
#ifdef MILLRACE_CUDA
  return [](const Job& job, Stream& stream) { launch(job, stream); };
#else
  return nullptr;
#endif
}

/// A device operation, as one row: its name and all functions that streams need.
/// A `Job` is plain data that is copied: numbers, and pointers to memory of the stream that runs it.
///
/// Each operation also has a function for callers, such as letterbox(Device&, ...).
/// It makes the job, passes it to Device::run(), and delivers the results after the wait.
template <class Job>
struct Operation {
  using Function = void (*)(const Job& job);
  using Launch = void (*)(const Job& job, Stream& stream);

  std::string_view name;  ///< a simulated device's table has the cost under this name
  Function host;          ///< for the CPU; faster than `body`, with the same results
  Function body;          ///< the kernels' bodies on host memory, one thread after another
  double (*units)(const Job& job) = [](const Job&) { return 1.0; };  ///< units of cost in this job
  Function simulate = [](const Job&) {};  ///< for simulated devices: writes outputs that the host reads
  Launch launch = cuda_launch<Job>();     ///< queues the kernels on a CUDA stream; null in builds without CUDA
};

/// An operation with one job, without its type: the interface for streams.
class OperationCall {
 public:
  OperationCall() = default;
  OperationCall(const OperationCall&) = delete;
  OperationCall& operator=(const OperationCall&) = delete;
  virtual ~OperationCall() = default;

  // The same as in Operation:
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
