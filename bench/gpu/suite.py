"""Measures Millrace on a machine with a GPU: run.sh suite PART... [--inputs FOLDER] [--out RESULTS.json]

Parts:
- `look`: what the machine can do: threads of a core, JPEGs by cores, copies, launches, our kernels, the GPU's JPEG decoder
- `correct`: kernels against the host, sanitizers, results of the GPU against the CPU, default precision against fp32
- `compile`, `autotune`: compiles the packages of FOLDER, without and with a search for the fastest kernels,
  and packs the result next to RESULTS.json
- `dram`: bytes of memory and kernels of each compiled call, by ncu
- `levers`, `profile`: time of each method as TorchScript, compiled, and as a CUDA graph; the kernels that take it
- `models`: time of each package's methods by precision and batch, and its share of the roof
- `e2e`: pictures per second of the whole program by boxes per picture, also with decoded pictures in memory
- `peers`: the usual Python script and a tuned one on the same work
- `decode`: JPEGs per second by cores
- `windows`: pictures and volumes in windows of a semantic segmenter

A part has seven minutes. Then the suite stops the current measurement.
It leaves the rest for another call (exit code 3).
On an H200, each start of a run with TorchScript took 10 to 27 s. So one run of e2e measures all numbers of boxes.

A failure becomes a failed record, and the suite continues (exit code 1).
Another call measures what has no record in RESULTS.json, or a failed one. The default name is <gpu>-<date>.json.

FOLDER has yolov8n.pkg, mobile_sam.pkg and pictures/.
Without these packages, the suite measures only the built-in models.
The script tables.py makes the tables and plots of docs/performance_gpu.md from RESULTS.json.
With --rehearse, the suite runs everything with almost no work: on the CPU, or with --rehearse cuda on a GPU.
Then figures mean nothing. On a GPU, checks that fail are no failures, since it may be the fake CUDA runtime.
"""

import argparse
import functools
import json
import subprocess
import sys
import time
import traceback
from pathlib import Path

from correct import correct
from decode import decode
from dram import dram
from e2e import e2e
from levers import levers, profile
from look import look
from model_times import models
from session import BUNDLE, OutOfTime, Session
from program import pictures_of
from records import OtherMachine, Results, failed
from rounds import peers
from turns import end_with_parent
from variants import compile_variants
from windows import windows

PARTS = {
    "correct": correct, "compile": functools.partial(compile_variants, "plain"), "autotune": functools.partial(compile_variants, "autotune"),
    "levers": levers, "profile": profile, "dram": dram, "models": models, "e2e": e2e, "peers": peers, "decode": decode,
    "windows": windows, "look": look,
}  # fmt: skip


def guarded(part, results, work):
    """Runs a part. Errors become a record, so that the other parts run."""
    key = {"what": "part", "part": part}
    results.forget_failed(key)
    results.write()
    begun = time.monotonic()
    try:
        work()
    except OutOfTime:
        results.left.append(key)
    except Exception:
        results.add(**key, failed=traceback.format_exc()[-1200:])
    print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)


def apart(part, results, arguments, seconds):
    """Runs a part in its own process: its Python code may crash or hang, and keeps GPU memory until it ends."""
    words = [sys.executable, __file__, part, "--out", results.file, "--inputs", arguments.inputs, "--minutes", str(arguments.minutes)]
    words += ["--short"] * arguments.short + (["--rehearse", arguments.rehearse] if arguments.rehearse else [])
    try:
        code = subprocess.run(words, timeout=seconds + 60, check=False, preexec_fn=end_with_parent).returncode
    finally:
        results.read()
    if code == LEFT:
        raise OutOfTime
    if code not in (0, 1):
        raise RuntimeError(f"the part's process ended with exit code {code}")


APART = ("models", "levers", "profile")
LEFT = 3  # exit code if something is left for another call


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, help="file to which results are added (default: <gpu>-<date>.json)")
    parser.add_argument("--inputs", type=Path, default=BUNDLE.with_name(BUNDLE.name + ".inputs"))
    parser.add_argument("--minutes", type=float, default=7, help="limit of each part (default 7); another call does the rest")
    parser.add_argument("--short", action="store_true", help="no sanitizers; e2e: ten boxes a picture and one block a setting")
    parser.add_argument("--rehearse", nargs="?", choices=("cpu", "cuda"), const="cpu")
    arguments = parser.parse_args()
    if any(part not in APART for part in arguments.parts) and not pictures_of(arguments.inputs):
        parser.error(f"{arguments.inputs} has no pictures/*.jpg; give --inputs the folder that comes with the bundle, gpu-bundle.inputs")
    Session.short = arguments.short
    if arguments.rehearse:
        Session.rehearse(arguments.rehearse)
    try:
        results = Results(arguments.out)
    except OtherMachine as error:
        parser.error(str(error))
    print(results.file, json.dumps(results.document["machine"]), flush=True)
    for part in arguments.parts:
        print(part, flush=True)
        seconds = 60 * arguments.minutes
        if part in APART and len(arguments.parts) > 1:
            guarded(part, results, lambda part=part, seconds=seconds: apart(part, results, arguments, seconds))
            continue
        Session.deadline = time.monotonic() + seconds
        guarded(part, results, lambda part=part: PARTS[part](results, arguments.inputs.resolve()))
        Session.deadline = float("inf")
    failures = sum(map(failed, results.document["records"]))
    print(f"{len(results.document['records'])} records, {failures} failed" + (f"; no time was left for {len(results.left)}, call again:" if results.left else ""))
    for key in results.left:
        print("  " + "  ".join(f"{k}={v}" for k, v in key.items()))
    sys.exit(LEFT if results.left else 1 if failures else 0)


if __name__ == "__main__":
    main()
