#pragma once

/// Marks the bodies of kernels. nvcc compiles them for the GPU, and every compiler compiles them for the host.
/// So tests check their arithmetic on machines without a GPU.
#ifdef __CUDACC__
#define MILLRACE_DEVICE __host__ __device__
#else
#define MILLRACE_DEVICE
#endif
