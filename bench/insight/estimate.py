"""Compares estimates with real runs: bench/insight/estimate.py [--scenes N] [--minimum N] [--out FILE.json]

For each of five runs, `millrace estimate` predicts its figures from a sample. Then the run follows, and the script
measures time and memory of the process, and the files of its output. A figure is right if it is within its interval.
The runs differ in recipe and formats: built-in models with and without overlays, label maps, COCO, and decoding only.
The exit code is 1 if fewer than N figures are right.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench/gpu"))
from processor import processor  # noqa: E402

PROGRAM = os.environ.get("MILLRACE_PROGRAM", str(ROOT / "build/release/apps/millrace"))
COPIES = 20  # of each picture, for the run without models
FIGURES = ("wall_s", "peak_memory_bytes", "output_bytes", "output_files")


def estimate(options):
    done = subprocess.run([PROGRAM, "estimate", *map(str, options), "-q", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"estimate: the program failed: {done.stderr.decode(errors='replace')}")
    return json.loads(done.stdout)


def run(options, out):
    """The same figures, measured."""
    begin = time.monotonic()
    process = subprocess.Popen([PROGRAM, "run", *map(str, options), "-q"], stdout=subprocess.DEVNULL)  # wait4() below takes its result
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit("estimate: the run failed")
    sizes = [file.stat().st_size for file in out.rglob("*") if file.is_file()]
    (report,) = [json.loads(file.read_text()) for file in out.glob("runs/*/report.json")]
    real = dict(zip(FIGURES, (wall_s, used.ru_maxrss * 1024, sum(sizes), len(sizes)), strict=True))
    return {**real, "pictures_per_s": report["run_window"]["steady_pictures_per_s"], "other_cores": report["verdict"]["other_cores"]}


def compared(name, options, folder):
    out = folder / "out"
    options = [*options, "--output", out]
    predicted = estimate(options)
    real = run(options, out)
    shutil.rmtree(out)
    figures = {}
    for figure in (*FIGURES, "pictures_per_s"):
        it, measured = predicted[figure], real[figure]
        known = measured is not None and it["low"] is not None and it["high"] is not None
        figures[figure] = {**it, "real": measured, "inside": it["low"] <= measured <= it["high"] if known else None,
                           "error": it["value"] / measured - 1 if measured else None}
        shown = "unknown" if not known else "inside" if figures[figure]["inside"] else "OUTSIDE"
        print(f"estimate: {name}: {figure} {it['value']:.4g} [{it['low']:.4g} to {it['high']:.4g}], real {measured:.4g}: {shown}" if known
              else f"estimate: {name}: {figure} {it}, real {measured}: {shown}", file=sys.stderr)
    return {"name": name, "pictures": predicted["pictures"], "sample": predicted["sample"], "other_cores_in_run": real["other_cores"], "figures": figures}


def copies(pictures, folder):
    for file in pictures.rglob("*.jpg"):
        for i in range(COPIES):
            copy = folder / file.relative_to(pictures).with_name(f"{i:02}-{file.name}")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.hardlink_to(file)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenes", type=int, default=60, help="of each of three views")
    parser.add_argument("--minimum", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pictures = folder / "pictures"
        subprocess.run(["/usr/bin/python3", ROOT / "models/demo/scenes.py", pictures, "--scenes", str(arguments.scenes)], check=True, stdout=subprocess.DEVNULL)
        (folder / "decode.yaml").write_text("stages: [decode, encode]\n")
        models = ["--input", pictures]
        runs = [
            compared("decode only", [folder / "decode.yaml", "--input", copies(pictures, folder / "many")], folder),
            compared("models", models, folder),
            compared("models, overlays", [*models, "--format", "overlay"], folder),
            compared("models, label maps", [*models, "--format", "png"], folder),
            compared("models, COCO", [*models, "--format", "coco"], folder),
        ]
    inside = [it["inside"] for one in runs for it in one["figures"].values() if it["inside"] is not None]
    figures = {
        "what": "estimates against real runs", "runs": runs, "inside": sum(inside), "of": len(inside),
        "machine": {**processor(), "cores": len(os.sched_getaffinity(0)), "load_at_start": load, "load_at_end": os.getloadavg()[0]},
    }
    text = json.dumps(figures, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(f"estimate: {sum(inside)} of {len(inside)} figures are within their intervals (at least {arguments.minimum})")
    sys.exit(sum(inside) < arguments.minimum)


if __name__ == "__main__":
    main()
