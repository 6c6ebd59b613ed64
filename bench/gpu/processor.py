"""The processor, for the results of benchmarks."""

import os
from pathlib import Path

# base/cpu.cpp has the same list.
FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16")


def processor():
    """Its name and instructions: a name such as "AMD EPYC" does not tell the instructions."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    values = {key: next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "") for key in ("model name", "flags")}
    flags = values["flags"].split()
    return {"cpu": values["model name"], "instructions": " ".join(name for name in FEATURES if name in flags)}


def threads_per_core(system=Path("/sys/devices/system/cpu")):
    """Hardware threads that this process may use, and their cores: two threads of a core share its arithmetic.

    Raises OSError if the system does not tell which threads share a core.
    """
    threads = os.sched_getaffinity(0)
    cores = {(system / f"cpu{thread}/topology/thread_siblings_list").read_text().strip() for thread in threads}
    return {"threads": len(threads), "cores": len(cores), "threads_per_core": len(threads) / len(cores)}
