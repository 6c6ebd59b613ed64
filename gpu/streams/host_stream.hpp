#pragma once

#include <cstring>
#include <memory>

#include "gpu/stream.hpp"

namespace millrace {

/// The CPU: its memory is the host's, and calls finish before they return.
class HostStream final : public Stream {
 public:
  [[nodiscard]] int device() const override { return -1; }
  [[nodiscard]] bool on_host() const override { return true; }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    return std::make_shared_for_overwrite<std::byte[]>(bytes);
  }
  std::shared_ptr<void> allocate_mapped(std::size_t bytes) override { return allocate(bytes); }
  void upload(const void* host, void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void download(const void* device, void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void copy(const void* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(void* device, std::size_t bytes) override { std::memset(device, 0, bytes); }
  void store(const void* host, void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);  // memcpy needs valid pointers even for 0 bytes
  }
  void wait() override {}

 protected:
  void take(std::shared_ptr<const OperationCall> call) override { call->host(); }
};

}  // namespace millrace
