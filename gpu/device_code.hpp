#pragma once

/// Marks the bodies of kernels. nvcc compiles them for the GPU, and every compiler compiles them for the host.
/// So tests check their arithmetic on machines without a GPU.
#ifdef __CUDACC__
#define MILLRACE_DEVICE __host__ __device__
/// Unrolls the loop that follows. Its index is then a constant, so an array that it indexes can be in registers.
/// ROLLED prevents it: copies of a long loop would need more registers.
#define MILLRACE_UNROLL _Pragma("unroll")
#define MILLRACE_ROLLED _Pragma("unroll 1")
#else
#define MILLRACE_DEVICE
#define MILLRACE_UNROLL
#define MILLRACE_ROLLED
#endif
