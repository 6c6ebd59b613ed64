"""Measures Millrace on a machine with a GPU: run.sh suite PART... [--inputs FOLDER] [--out RESULTS.json]

Parts: `correct` (kernels against the host, sanitizers, results of the GPU against those of the CPU, the default precision against fp32), `models`
(time of each package's methods by precision and batch, and which share of the roof that is), `e2e` (pictures a second of the whole program over boxes
a picture, also with decoded pictures in memory), `peers` (the usual Python script and a tuned one on the same work), `decode` (JPEGs a second over
cores). After seven minutes a part begins nothing, and what runs then is ended: it is left for another call (exit code 3). By arithmetic, which no GPU has
confirmed, all stay below that; e2e is 47 runs of three seconds, and needs a second call where starting takes more than six. What fails becomes a failed record, and the rest goes on (exit code 1). What RESULTS.json holds
already is not measured again, what failed is; its default name is <gpu>-<date>.json. FOLDER has yolov8n.pkg, mobile_sam.pkg and pictures/: without
the packages the built-in models alone are measured. tables.py makes the tables and plots of docs/performance.md from RESULTS.json. --rehearse goes
through everything on a CPU with next to no work: the figures mean nothing.
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from pathlib import Path

from correct import correct
from decode import decode
from e2e import e2e
from model_times import models
from place import BUNDLE, OutOfTime, Place
from program import pictures_of
from records import OtherMachine, Results, failed
from rounds import peers
from turns import end_with_parent

PARTS = {"correct": correct, "models": models, "e2e": e2e, "peers": peers, "decode": decode}


def guarded(part, results, work):
    """A part that ends early ends no other; its time is up at the deadline."""
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
    """A part in a process of its own: one that computes in Python can crash or hang, and it keeps memory of the GPU."""
    words = [sys.executable, __file__, part, "--out", results.file, "--inputs", arguments.inputs, "--minutes", str(arguments.minutes)]
    try:
        code = subprocess.run([*words, *(["--rehearse"] if arguments.rehearse else [])], timeout=seconds + 60, check=False, preexec_fn=end_with_parent).returncode
    finally:
        results.read()
    if code == LEFT:
        raise OutOfTime
    if code not in (0, 1):
        raise RuntimeError(f"its process ended with {code}")


LEFT = 3  # the exit code where something is left for another call


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, help="results, which are added to (default: <gpu>-<date>.json)")
    parser.add_argument("--inputs", type=Path, default=BUNDLE.with_name(BUNDLE.name + ".inputs"))
    parser.add_argument("--minutes", type=float, default=7, help="of each part (default 7): what would begin later, or takes longer, is left for another call")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    if any(part != "models" for part in arguments.parts) and not pictures_of(arguments.inputs):
        parser.error(f"no pictures/*.jpg in {arguments.inputs}: --inputs names the folder that comes with the bundle, gpu-bundle.inputs")
    if arguments.rehearse:
        Place.rehearse()
    try:
        results = Results(arguments.out)
    except OtherMachine as error:
        parser.error(str(error))
    print(results.file, json.dumps(results.document["machine"]), flush=True)
    for part in arguments.parts:
        print(part, flush=True)
        seconds = 60 * arguments.minutes
        if part == "models" and len(arguments.parts) > 1:
            guarded(part, results, lambda part=part, seconds=seconds: apart(part, results, arguments, seconds))
            continue
        Place.deadline = time.monotonic() + seconds
        guarded(part, results, lambda part=part: PARTS[part](results, arguments.inputs.resolve()))
        Place.deadline = float("inf")
    failures = sum(map(failed, results.document["records"]))
    print(f"{len(results.document['records'])} records, {failures} failed" + (f"; no time was left for {len(results.left)}, call again:" if results.left else ""))
    for key in results.left:
        print("  " + "  ".join(f"{k}={v}" for k, v in key.items()))
    sys.exit(LEFT if results.left else 1 if failures else 0)


if __name__ == "__main__":
    main()
