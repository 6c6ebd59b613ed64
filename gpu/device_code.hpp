#pragma once

/// Bodies of kernels are plain functions under this mark: nvcc compiles them for the GPU, every compiler for the host,
/// so that their arithmetic is tested where there is no GPU.
#ifdef __CUDACC__
#define MILLRACE_DEVICE __host__ __device__
#else
#define MILLRACE_DEVICE
#endif
