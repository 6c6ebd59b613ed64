"""The processor, for the results of benchmarks."""

from pathlib import Path

# base/cpu.cpp has the same list.
FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16")


def processor():
    """Its name and instructions: a name such as "AMD EPYC" does not tell the instructions."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    values = {key: next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "") for key in ("model name", "flags")}
    flags = values["flags"].split()
    return {"cpu": values["model name"], "instructions": " ".join(name for name in FEATURES if name in flags)}
