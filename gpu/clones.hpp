#pragma once

/// Compiles a function twice, for the x86-64 baseline and for AVX2 with FMA. The loader selects one.
/// std::fma gives the same bits in both, because the baseline calls libm.
/// Not with sanitizers and clang 14, which cannot instrument the resolver that this needs.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MILLRACE_CLONES __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define MILLRACE_CLONES
#endif
