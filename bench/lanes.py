"""Compares numbers of lanes and of threads in a team on a CPU: lanes.py --pictures FOLDER --out FILE.json

Each way of sharing the cores runs the same pictures and boxes, in turns; the order changes with each turn. The packages
are those of bench/peers/compare.py, in build/peers. FILE.json has for each case and way: seconds per picture, peak memory,
load_s and warm_up_s of each turn. The cases are numbers of boxes in fp32, ten boxes in bf16 if the CPU has it, and ten
boxes next to a process that keeps one core busy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "peers")]

import compare  # noqa: E402
import machine  # noqa: E402


def ways(cores):
    """Ways to share the cores: lanes and the threads of each."""
    return [(lanes, cores // lanes) for lanes in range(1, cores + 1) if cores % lanes == 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=compare.ROOT / "build/release/apps/millrace")
    parser.add_argument("--packages", type=Path, default=compare.ROOT / "build/peers")
    parser.add_argument("--pictures", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument("--boxes", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--count", type=int, default=20, help="pictures per turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    pictures = sorted(options.pictures.glob("*.jpg"))[:compare.PICTURES]
    cores = len(os.sched_getaffinity(0))
    cases = {f"{boxes} boxes": (boxes, [], False) for boxes in options.boxes}
    if machine.bf16_of_cpu():
        cases["10 boxes, bf16"] = (10, ["--precision", "segment=bf16"], False)
    cases["10 boxes, busy process"] = (10, [], True)
    results = {}
    for name, (boxes, more, busy) in cases.items():
        programs = {
            f"{lanes} x {team}": compare.Millrace(options.program, options.packages, "--set", f"threads.lanes={lanes}", "--set", f"threads.team={team}", *more)
            for lanes, team in ways(cores)
        }
        disturbing = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        try:
            with tempfile.TemporaryDirectory() as folder:
                manifest = compare.write_manifest(Path(folder) / "boxes.jsonl", pictures, options.count, boxes)
                measured, loads, _ = compare.compare(programs, manifest, options.count, options.turns)
        finally:
            if disturbing:
                disturbing.kill()
                disturbing.wait()
        results[name] = {**measured, "load": loads}
        medians = {way: round(statistics.median(values), 3) for way, values in measured["seconds_per_picture"].items()}
        print(f"{name}: {medians} s a picture", flush=True)
        options.out.write_text(json.dumps({**machine.described(), "cores": cores, "pictures_per_turn": options.count, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
