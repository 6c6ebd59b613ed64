"""What this machine is, and how fast it multiplies matrices and copies memory: for the scripts of this folder."""

import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parent / "gpu"))  # at the end: program.py of that folder must not hide others
from processor import processor  # noqa: E402

SIDE = 2048  # of the matrices
COPY_MB = 256
REPEATS = 7


def described():
    """CPU and its instructions."""
    return processor()


def bf16_of_cpu():
    """Instructions for bf16 that this CPU has."""
    return [flag for flag in ("avx512_bf16", "amx_bf16") if flag in processor()["instructions"].split()]


def seconds(call, repeats=REPEATS):
    """Median of several calls, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def product_gflop_per_s(dtype):
    a, b, out = (torch.rand(SIDE, SIDE).to(dtype) for _ in range(3))
    return round(2 * SIDE**3 / seconds(lambda: torch.mm(a, b, out=out)) / 1e9, 1)


def floors():
    """GFLOP/s of a matrix product with all threads, and GB/s of a copy: bytes read and bytes written."""
    source, target = (torch.ones(COPY_MB << 18) for _ in range(2))
    found = {"fp32_gflop_per_s": product_gflop_per_s(torch.float32)}
    if bf16_of_cpu():
        found["bf16_gflop_per_s"] = product_gflop_per_s(torch.bfloat16)
    return found | {"copy_gb_per_s": round(2 * source.nbytes / seconds(lambda: target.copy_(source)) / 1e9, 1)}
