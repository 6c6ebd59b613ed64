"""The part `dram`: the bytes that each compiled call moves between memory and chip, and its kernels, by NVIDIA's ncu.

ncu reads counters of each kernel, and runs a kernel alone. So its times are those of kernels without launches.
`dram.py INPUTS` makes one call of each compiled method, for ncu.
"""

import csv
import shutil
import sys
from pathlib import Path

from session import Session, run

METRICS = ("dram__bytes.sum", "gpu__time_duration.sum")  # bytes, nanoseconds
SHOWN = 25  # kernels


def calls(inputs):
    """(package, method, rows) of each library that `compile` made."""
    from variants import methods_of, packages, variant_of

    found = [(package, method, variant_of(inputs, "plain", package)) for package in packages(inputs) for method in methods_of(package)]
    return [(package, method, rows) for package, method, folder in found if folder
            for rows in sorted(int(file.stem.rpartition("_")[2]) for file in folder.glob(f"{method}_*.so"))]


def totals(text):
    """ncu's CSV as {range: {"kernels_ms", "dram_bytes", "launches", "kernels": [[name, count, us, bytes]]}}.

    `--print-nvtx-rename kernel` puts the name of the range before that of the kernel.
    """
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise ValueError(f"ncu gave no table: {text[-400:]}")
    names = next(csv.reader([lines[begin]]))
    kernels = {}
    for row in csv.reader(lines[begin + 1 :]):
        if len(row) == len(names):
            cell = dict(zip(names, row, strict=True))
            where, _, name = cell["Kernel Name"].partition("/")
            kernels.setdefault((where, cell["ID"], name), {})[cell["Metric Name"]] = float(cell["Metric Value"].replace(",", ""))
    found = {}
    for (where, _, name), value in kernels.items():
        own = found.setdefault(where, {"kernels_ms": 0.0, "dram_bytes": 0, "launches": 0, "kernels": {}})
        size, took_us = int(value[METRICS[0]]), value[METRICS[1]] / 1e3
        own["kernels_ms"] += took_us / 1e3
        own["dram_bytes"] += size
        own["launches"] += 1
        entry = own["kernels"].setdefault(name[:140], [0, 0.0, 0])
        own["kernels"][name[:140]] = [entry[0] + 1, entry[1] + took_us, entry[2] + size]
    for own in found.values():
        longest = sorted(own["kernels"].items(), key=lambda item: -item[1][1])[:SHOWN]
        own["kernels"] = [[name, count, round(us, 1), size] for name, (count, us, size) in longest]
    return found


def dram(results, inputs):
    wanted = [(package, method, rows) for package, method, rows in calls(inputs)
              if not results.has(what="dram", package=package.stem, method=method, batch=rows, options="compiled, plain")]
    if not wanted or not Session.gpu:
        print("  nothing to measure; the part compile makes variants" if Session.gpu else "  dram needs a GPU, ncu and the variants of the part compile")
        return
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    done, _ = run(ncu, "--profile-from-start", "off", "--clock-control", "none", "--nvtx", "--print-nvtx-rename", "kernel", "--metrics", ",".join(METRICS), "--csv",
                  sys.executable, Path(__file__).resolve(), inputs)
    found = totals(done.stdout) if done.returncode == 0 else {}

    def of(where):
        if where not in found:
            raise ValueError(f"ncu saw no kernel of {where} (exit code {done.returncode}): {(done.stderr or done.stdout)[-400:]}")
        return found[where]

    for package, method, rows in wanted:
        results.measure(lambda where=f"{method}_{rows}": of(where), what="dram", package=package.stem, method=method, batch=rows, options="compiled, plain")


def main():
    import torch
    from levers import inputs_of, library_call, precision_of
    from variants import variant_of

    inputs = Path(sys.argv[1])
    with torch.no_grad():
        ready = []
        for package, method, rows in calls(inputs):
            given = inputs_of(package, method, rows, precision_of(package))
            call = library_call(variant_of(inputs, "plain", package) / f"{method}_{rows}.so")
            for _ in range(2):
                call(*given)
            ready.append((f"{method}_{rows}", call, given))
        for where, call, given in ready:
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
            torch.cuda.nvtx.range_push(where)
            call(*given)
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_pop()
            torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
