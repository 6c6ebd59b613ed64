"""Measures what measuring costs: bench/insight/cost.py [--pairs N] [--out FILE.json]

Runs the program in pairs: once as usual, once with measure.enabled=no. The order changes from pair to pair.
Compares the CPU time and the highest resident memory of the whole processes, in two series:

- models: the demo, with its models on the CPU
- host: more pictures, with an engine that computes nothing, and at most two pictures in the pipeline.
  So the peak of the memory hardly depends on chance, and measuring takes a larger share of the CPU time.

The medians of the pairs count. The exit code is 1 if measuring takes more than 1 % of the CPU time with models.
It is also 1 if it takes more than 2 MB in the host series.
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
HOST = ["--engine", f"simulated:{ROOT / 'bench/host/h200.yaml'}"]
for option in ("batch.size=1", "gate.frames=2", "threads.lanes=1", "threads.workers=1", "read.threads=1"):
    HOST += ["--set", option]
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


def series(name, pairs, command, out):
    """Runs pairs of the command. The first pair warms up."""
    measured, unmeasured = [], []
    for pair in range(pairs + 1):
        both = [(measured, []), (unmeasured, ["--set", "measure.enabled=no"])]
        for runs, more in both if pair % 2 == 0 else both[::-1]:
            runs.append(run([*command, "--output", out, *more], out))
        print(f"cost: {name}, pair {pair}: {measured[-1]['cpu_s']:.2f} s of CPU time with measuring, {unmeasured[-1]['cpu_s']:.2f} s without", file=sys.stderr)
    measured, unmeasured = measured[1:], unmeasured[1:]
    both = list(zip(measured, unmeasured, strict=True))
    return {
        "pictures": measured[0]["pictures"],
        "cpu_share": summary([on["cpu_s"] / off["cpu_s"] - 1 for on, off in both]),
        "window_cpu_share": summary([on["window_cpu_s"] / off["window_cpu_s"] - 1 for on, off in both]),
        "peak_mb_more": summary([on["peak_mb"] - off["peak_mb"] for on, off in both]),
        **{key: {"measured": [on[key] for on, _ in both], "unmeasured": [off[key] for _, off in both]} for key in ("cpu_s", "window_cpu_s", "peak_mb")},
    }


def repeat(pictures, folder, times):
    """The pictures several times under other names, in the same folders: views are chosen by folder."""
    for file in pictures.rglob("*.jpg"):
        for i in range(times):
            copy = folder / file.relative_to(pictures).with_name(f"{i}-{file.name}")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.hardlink_to(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(["/usr/bin/python3", ROOT / "models/demo/scenes.py", folder / "pictures", "--scenes", "16"], check=True, stdout=subprocess.DEVNULL)
        repeat(folder / "pictures", folder / "many", 10)
        models = series("models", arguments.pairs, [PROGRAM, "run", "--input", folder / "pictures"], folder / "out")
        host = series("host", arguments.pairs, [PROGRAM, "run", "--input", folder / "many", *HOST], folder / "out")
    figures = {
        "what": "cost of measuring", "pairs": arguments.pairs, "models": models, "host": host,
        "machine": {**processor(), "cores": len(os.sched_getaffinity(0)), "load_at_start": load, "load_at_end": os.getloadavg()[0]},
    }
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n")
    share, megabytes = models["cpu_share"]["median"], host["peak_mb_more"]["median"]
    for one, values in (("models", models), ("host", host)):
        low, high = values["cpu_share"]["quartiles"]
        print(f"cost: {one}: {100 * values['cpu_share']['median']:.2f} % of the CPU time (quartiles {100 * low:.2f} to {100 * high:.2f} %)")
    print(f"cost: measuring takes {100 * share:.2f} % of the CPU time (at most {100 * MOST_SHARE:.0f} %) and {megabytes:.1f} MB (at most {MOST_MB})")
    sys.exit(share > MOST_SHARE or megabytes > MOST_MB)


if __name__ == "__main__":
    main()
