"""Measures what measuring costs: bench/insight/cost.py [--pairs N] [--input FOLDER] [--out FILE.json] [-- OPTION...]

Runs the program in pairs: once as usual, once with measure.enabled=no. The order changes from pair to pair.
Options behind -- go to `millrace run`, such as --engine simulated:bench/host/h200.yaml.

Compares the CPU time and the highest resident memory of the whole processes.
The exit code is 1 if measuring takes more than 1 % of the CPU time, or more than 2 MB, in the median of the pairs.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench/gpu"))
from processor import processor  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("MILLRACE_PROGRAM", ROOT / "build/release/apps/millrace"))
MOST_SHARE = 0.01
MOST_MB = 2


def run(command, out):
    """CPU seconds and peak MB of one process, and the CPU seconds of its run window."""
    shutil.rmtree(out, ignore_errors=True)
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # wait4() below takes its result
    with process.stderr:
        error = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"cost: the program failed: {error.decode(errors='replace')}")
    (report,) = [json.loads(file.read_text()) for file in out.glob("runs/*/report.json")]
    return {"cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024, "window_cpu_s": report["run_window"]["cpu_s"], "pictures": report["run_window"]["committed"]}


def summary(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "quartiles": [low, high], "range": [min(values), max(values)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--input", type=pathlib.Path, help="default: draw the pictures of the demo")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("options", nargs="*", help="options of millrace run")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pictures = arguments.input
        if pictures is None:
            pictures = folder / "pictures"
            subprocess.run(["/usr/bin/python3", ROOT / "models/demo/scenes.py", pictures, "--scenes", "16"], check=True, stdout=subprocess.DEVNULL)
        command = [PROGRAM, "run", "--input", pictures, "--output", folder / "out", *arguments.options]
        measured, unmeasured = [], []
        for pair in range(arguments.pairs + 1):
            both = [(measured, []), (unmeasured, ["--set", "measure.enabled=no"])]
            for runs, more in both if pair % 2 == 0 else both[::-1]:
                runs.append(run(command + more, folder / "out"))
            print(f"cost: pair {pair}: {measured[-1]['cpu_s']:.2f} s of CPU time with measuring, {unmeasured[-1]['cpu_s']:.2f} s without", file=sys.stderr)
    pairs = list(zip(measured[1:], unmeasured[1:], strict=True))  # the first pair warms up
    figures = {
        "what": "cost of measuring", "pairs": len(pairs), "pictures": pairs[0][0]["pictures"], "options": arguments.options,
        "cpu_share": summary([on["cpu_s"] / off["cpu_s"] - 1 for on, off in pairs]),
        "window_cpu_share": summary([on["window_cpu_s"] / off["window_cpu_s"] - 1 for on, off in pairs]),
        "peak_mb": summary([on["peak_mb"] - off["peak_mb"] for on, off in pairs]),
        "cpu_s": {"measured": [on["cpu_s"] for on, _ in pairs], "unmeasured": [off["cpu_s"] for _, off in pairs]},
        "window_cpu_s": {"measured": [on["window_cpu_s"] for on, _ in pairs], "unmeasured": [off["window_cpu_s"] for _, off in pairs]},
        "machine": {**processor(), "cores": len(os.sched_getaffinity(0)), "load_at_start": load, "load_at_end": os.getloadavg()[0]},
    }
    print(json.dumps(figures, indent=2))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    share, megabytes = figures["cpu_share"]["median"], figures["peak_mb"]["median"]
    print(f"cost: measuring takes {100 * share:.2f} % of the CPU time (at most {100 * MOST_SHARE:.0f} %) and {megabytes:.1f} MB (at most {MOST_MB})")
    sys.exit(share > MOST_SHARE or megabytes > MOST_MB)


if __name__ == "__main__":
    main()
