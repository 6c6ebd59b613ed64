// Functions of NVIDIA's libraries whose results LibTorch uses. libraries.py makes the others, which do nothing.
// Types are those of the C interface: handles and descriptors are pointers, enumerations are int.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void fake_cuda_count(const char* name);
int fake_cuda_put(const char* name, const char* kind, const void* stream);
int fake_cuda_launch(const char* kernel, const void* stream);

// ---- cuBLAS

static int new_object(void** out, size_t bytes) {
  *out = calloc(1, bytes);
  return *out == NULL;
}
// A handle begins with its stream. It is the default stream until another is set.
static void** stream_of(void* handle) { return (void**)handle; }
int cublasCreate_v2(void** handle) { return new_object(handle, 64); }
int cublasLtCreate(void** handle) { return new_object(handle, 64); }
int cublasGetVersion_v2(void* handle, int* version) { return (void)handle, *version = 130100, 0; }
int cublasGetMathMode(void* handle, int* mode) { return (void)handle, *mode = 0; }
int cublasGetPointerMode_v2(void* handle, int* mode) { return (void)handle, *mode = 0; }
int cublasSetStream_v2(void* handle, void* stream) { return *stream_of(handle) = stream, 0; }
int cublasGetStream_v2(void* handle, void** stream) { return *stream = *stream_of(handle), 0; }
int cublasLtMatmul(void* handle, void* operation, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                   const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const void* algorithm, void* workspace,
                   size_t bytes, void* stream) {
  (void)handle, (void)operation, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta, (void)c, (void)c_layout;
  (void)d, (void)d_layout, (void)algorithm, (void)workspace, (void)bytes;
  return fake_cuda_put("cublasLtMatmul", "product", stream);
}
int cublasLtMatmulDescCreate(void** out, int compute, int scale) { return (void)compute, (void)scale, new_object(out, 256); }
int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  return (void)type, (void)rows, (void)columns, (void)stride, new_object(out, 256);
}
int cublasLtMatmulPreferenceCreate(void** out) { return new_object(out, 256); }
int cublasLtMatmulDescDestroy(void* it) { return free(it), 0; }
int cublasLtMatrixLayoutDestroy(void* it) { return free(it), 0; }
int cublasLtMatmulPreferenceDestroy(void* it) { return free(it), 0; }
// One algorithm fits: a cublasLtMatmulHeuristicResult_t of zeros (96 bytes) is valid.
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c, void* d, void* preference, int wanted,
                                   void* results, int* found) {
  (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
  memset(results, 0, 96);
  *found = 1;
  return 0;
}

// ---- cuDNN. LibTorch describes each convolution to the backend API and runs the only plan that it offers.

// Values of cudnn.h.
enum { ENGINE_HEURISTICS = 4, EXECUTION_PLAN = 5, TYPE_DESCRIPTOR = 15, HEURISTIC_RESULTS = 202, WORKSPACE_SIZE = 402 };

size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 13000; }
int cudnnCreate(void** handle) { return new_object(handle, 64); }
int cudnnSetStream(void* handle, void* stream) { return *stream_of(handle) = stream, 0; }
int cudnnGetStream(void* handle, void** stream) { return *stream = *stream_of(handle), 0; }
const char* cudnnGetErrorString(int status) { return (void)status, "an error of the fake cuDNN"; }
int cudnnBackendCreateDescriptor(int type, void** out) {
  const int failed = new_object(out, 64);
  if (!failed) *(int*)*out = type;
  return failed;
}
int cudnnBackendDestroyDescriptor(void* it) { return free(it), 0; }
int cudnnBackendFinalize(void* it) {
  if (*(int*)it == EXECUTION_PLAN) fake_cuda_count("cuDNN plan");
  return 0;
}
int cudnnBackendExecute(void* handle, void* plan, void* pointers) {
  return (void)plan, (void)pointers, fake_cuda_put("cudnnBackendExecute", "convolution", *stream_of(handle));
}
int cudnnBackendGetAttribute(void* it, int name, int type, int64_t wanted, int64_t* count, void* out) {
  (void)it;
  const int descriptors = type == TYPE_DESCRIPTOR;
  if (count != NULL) *count = descriptors || name == HEURISTIC_RESULTS || name == WORKSPACE_SIZE;
  if (wanted > 0 && out != NULL && !descriptors && name == WORKSPACE_SIZE) *(int64_t*)out = 0;
  return 0;
}

// ---- cuFFT

int cufftGetVersion(int* version) { return *version = 12000, 0; }

// ---- The driver: one GPU, whose context and modules are addresses that nobody reads. A kernel is its name. Compiled
// models load and launch their kernels through it.

static void* const CONTEXT = (void*)16;
static void* const LOADED = (void*)32;

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGet(int* device, int ordinal) { return (void)ordinal, *device = 0; }
int cuDeviceGetName(char* name, int size, int device) { return (void)device, strncpy(name, "Fake GPU", (size_t)size), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  // Pairs of a CUdevice_attribute of cuda.h and its value on an H200.
  static const int known[][2] = {{1, 1024},      {8, 49152},    {10, 32},   {12, 65536},  {13, 1980000}, {16, 132},   {36, 3201000},
                                 {37, 6144},     {39, 2048},    {75, 9},    {81, 233472}, {82, 65536},   {97, 232448}};
  *value = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (known[i][0] == attribute) *value = known[i][1];
  }
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { return (void)device, *flags = 0, *active = 1, 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return (void)device, *context = CONTEXT, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, 0; }
int cuCtxGetCurrent(void** context) { return *context = CONTEXT, 0; }
int cuCtxSetCurrent(void* context) { return (void)context, 0; }
int cuCtxGetDevice(int* device) { return *device = 0; }
int cuCtxGetLimit(size_t* value, int limit) { return (void)limit, *value = 0, 0; }
int cuCtxSetLimit(int limit, size_t value) { return (void)limit, (void)value, 0; }
int cuCtxPushCurrent_v2(void* context) { return (void)context, 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = CONTEXT, 0; }
int cuModuleLoad(void** module, const char* file) { return (void)file, *module = LOADED, 0; }
int cuModuleLoadData(void** module, const void* image) { return (void)image, *module = LOADED, 0; }
int cuModuleLoadDataEx(void** module, const void* image, unsigned count, void* options, void** values) {
  return (void)image, (void)count, (void)options, (void)values, *module = LOADED, 0;
}
int cuModuleUnload(void* module) { return (void)module, 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) { return (void)module, *function = strdup(name), 0; }
int cuFuncGetAttribute(int* value, int attribute, void* function) { return (void)function, *value = attribute == 0 ? 1024 : 0, 0; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return (void)function, (void)attribute, (void)value, 0; }
int cuFuncSetCacheConfig(void* function, int config) { return (void)function, (void)config, 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int size, size_t shared) {
  return (void)function, (void)size, (void)shared, *blocks = 4, 0;
}
int cuOccupancyMaxActiveClusters(int* clusters, void* function, const void* config) { return (void)function, (void)config, *clusters = 4, 0; }
// The only attribute that is asked for is the address on the device (3).
int cuPointerGetAttribute(void* out, int attribute, void* pointer) {
  if (attribute == 3) *(void**)out = pointer;
  return 0;
}
int cuGetErrorString(int error, const char** text) { return (void)error, *text = "an error of the fake driver", 0; }
int cuGetErrorName(int error, const char** text) { return cuGetErrorString(error, text); }
// What waits, allocates or copies counts under the name of the runtime's function. Errors have the same numbers.
typedef uint64_t address;
int cudaStreamSynchronize(void* stream);
int cudaStreamQuery(void* stream);
int cudaEventSynchronize(void* event);
int cudaEventQuery(void* event);
int cudaDeviceSynchronize(void);
int cudaMalloc(void** out, size_t bytes);
int cudaFree(void* block);
int cudaHostAlloc(void** out, size_t bytes, unsigned flags);
int cudaFreeHost(void* block);
int cudaMemcpy(void* to, const void* from, size_t bytes, int kind);
int cudaMemset(void* to, int value, size_t bytes);
int cuStreamSynchronize(void* stream) { return cudaStreamSynchronize(stream); }
int cuStreamQuery(void* stream) { return cudaStreamQuery(stream); }
int cuEventSynchronize(void* event) { return cudaEventSynchronize(event); }
int cuEventQuery(void* event) { return cudaEventQuery(event); }
int cuCtxSynchronize(void) { return cudaDeviceSynchronize(); }
int cuMemAlloc_v2(address* out, size_t bytes) { return cudaMalloc((void**)out, bytes); }
int cuMemFree_v2(address block) { return cudaFree((void*)block); }
int cuMemHostAlloc(void** out, size_t bytes, unsigned flags) { return cudaHostAlloc(out, bytes, flags); }
int cuMemAllocHost_v2(void** out, size_t bytes) { return cudaHostAlloc(out, bytes, 0); }
int cuMemFreeHost(void* block) { return cudaFreeHost(block); }
int cuMemcpyHtoD_v2(address to, const void* from, size_t bytes) { return cudaMemcpy((void*)to, from, bytes, 1); }
int cuMemcpyDtoH_v2(void* to, address from, size_t bytes) { return cudaMemcpy(to, (void*)from, bytes, 2); }
int cuMemcpyDtoD_v2(address to, address from, size_t bytes) { return cudaMemcpy((void*)to, (void*)from, bytes, 3); }
int cuMemsetD8_v2(address to, unsigned char value, size_t bytes) { return cudaMemset((void*)to, value, bytes); }
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** arguments, void** more) {
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)arguments, (void)more;
  return fake_cuda_launch(function, stream);
}
int cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                              void* stream, void** arguments) {
  return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, NULL);
}
// The start of a CUlaunchConfig.
struct launch_config {
  unsigned grid[3], block[3], shared;
  void* stream;
};
int cuLaunchKernelEx(const struct launch_config* config, void* function, void** arguments, void** more) {
  return (void)arguments, (void)more, fake_cuda_launch(function, config->stream);
}
int cuTensorMapEncodeTiled(void) { return 0; }
