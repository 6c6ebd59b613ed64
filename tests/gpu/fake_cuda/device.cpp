// The GPU that the fake runtime shows, and the last error of each thread.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "tests/gpu/fake_cuda/memory.hpp"
#include "tests/gpu/fake_cuda/runtime.hpp"

namespace {
thread_local cudaError_t last_error = cudaSuccess;
thread_local int device = 0;
}  // namespace

cudaError_t fake_cuda::failed(cudaError_t error) { return last_error = error; }

// The names are those of NVIDIA.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* out) {
  *out = device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int wanted) {
  if (wanted != 0) return fake_cuda::failed(cudaErrorInvalidDevice);
  device = wanted;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  *out = {};
  std::strcpy(out->name, "Fake GPU");
  out->totalGlobalMem = fake_cuda::Memory::total();
  out->major = 9;
  out->multiProcessorCount = 132;
  out->warpSize = 32;
  out->regsPerBlock = out->regsPerMultiprocessor = 65536;
  out->sharedMemPerBlock = 49152;
  out->sharedMemPerBlockOptin = 232448;
  out->sharedMemPerMultiprocessor = 233472;
  out->maxThreadsPerBlock = out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024;
  out->maxThreadsDim[2] = 64;
  out->maxThreadsPerMultiProcessor = 2048;
  out->maxBlocksPerMultiProcessor = 32;
  out->maxGridSize[0] = 2147483647;
  out->maxGridSize[1] = out->maxGridSize[2] = 65535;
  out->l2CacheSize = 60 << 20;
  out->memoryPoolsSupported = out->unifiedAddressing = out->canMapHostMemory = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int) {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  const std::map<cudaDeviceAttr, int> known{
      {cudaDevAttrComputeCapabilityMajor, properties.major},
      {cudaDevAttrComputeCapabilityMinor, properties.minor},
      {cudaDevAttrMultiProcessorCount, properties.multiProcessorCount},
      {cudaDevAttrWarpSize, properties.warpSize},
      {cudaDevAttrMaxRegistersPerBlock, properties.regsPerBlock},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(properties.sharedMemPerBlock)},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(properties.sharedMemPerBlockOptin)},
      {cudaDevAttrMaxThreadsPerBlock, properties.maxThreadsPerBlock},
      {cudaDevAttrMaxThreadsPerMultiProcessor, properties.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxGridDimX, properties.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, properties.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, properties.maxGridSize[2]},
      {cudaDevAttrL2CacheSize, properties.l2CacheSize},
      {cudaDevAttrMemoryPoolsSupported, properties.memoryPoolsSupported},
  };
  const auto found = known.find(attribute);
  *out = found == known.end() ? 0 : found->second;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* out, int size, int) {
  std::snprintf(out, static_cast<std::size_t>(size), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess                 ? "cudaSuccess"
         : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                              : "cudaErrorOther";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                 ? "no error"
         : error == cudaErrorMemoryAllocation ? "out of memory"
                                              : "an error of the fake CUDA runtime";
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
