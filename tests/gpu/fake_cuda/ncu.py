#!/usr/bin/env python3
"""Takes the place of NVIDIA's ncu on the fake CUDA runtime: prints the launches of a program in the form of ncu's table.

Each launch moves 1,000 bytes and takes 1,000 ns. The options are those that bench/gpu/dram.py gives.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNTIME = next(library for library in os.environ["LD_PRELOAD"].split(":") if "libcudart" in library)
VALUES = {"dram__bytes.sum": ("byte", "1,000"), "gpu__time_duration.sum": ("nsecond", "1,000")}


def main():
    parser = argparse.ArgumentParser()
    for option, value in (("--profile-from-start", "off"), ("--clock-control", "none"), ("--print-nvtx-rename", "kernel")):
        parser.add_argument(option, choices=[value], required=True)
    parser.add_argument("--nvtx", action="store_true", required=True)
    parser.add_argument("--csv", action="store_true", required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        launches = Path(folder) / "launches"
        launches.touch()
        profiled = {"FAKE_CUDA_LAUNCHES": str(launches), "NVTX_INJECTION64_PATH": RUNTIME}
        print("==PROF== Connected to process 1", flush=True)
        code = subprocess.run(arguments.command, env=os.environ | profiled, check=False).returncode
        print("==PROF== Disconnected from process 1")
        table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
        table.writerow(["ID", "Process ID", "Kernel Name", "Grid Size", "Metric Name", "Metric Unit", "Metric Value"])
        for number, line in enumerate(launches.read_text().splitlines()):
            where, _, kernel = line.partition("\t")
            for metric in arguments.metrics.split(","):
                table.writerow([number, 1, f"{where}/{kernel}" if where else kernel, "(1, 1, 1)", metric, *VALUES[metric]])
    return code


if __name__ == "__main__":
    sys.exit(main())
