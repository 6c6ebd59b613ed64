"""Compares Millrace with the scripts in this folder on a CPU: compare.py --out FILE.json [--boxes 1 5 10 20 50] [--busy]

All programs have the same weights (seed 0), pictures, boxes and bias. They take turns; the order changes with each turn.
Loading and warm-up do not count. The first masks of each program are compared with those of the usual script.
The packages are those that tests/models/make_packages.py makes (`ctest -R make_test_packages`). `millrace compile`
compiles a copy of them in build/peers, unless --torchscript is given. If the CPU has bf16, Millrace also runs with the
segmenter in bf16.

--busy runs one more process that only computes, at the same time, also while the tuned script tries its steps. If
FILE.json has results of the same machine, pictures and counts, only the missing numbers of boxes are measured.

FILE.json has for each number of boxes: seconds per picture, peak memory, load_s and warm_up_s of each turn; settings, with
the steps that the tuned script tried; and floors, which are GFLOP/s and GB/s of the machine before and after the turns.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from pycocotools import mask as coco

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import machine  # noqa: E402

TCMALLOC = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
TUNED = "tuned.py"
SCRIPTS = {
    "script": ("usual.py", {}),
    "script, tcmalloc": ("usual.py", {"LD_PRELOAD": TCMALLOC}),
    "tuned, tcmalloc": (TUNED, {"LD_PRELOAD": TCMALLOC}),
    # OpenMP threads that sleep while they wait: they lose less to other processes.
    "tuned, tcmalloc, passive": (TUNED, {"LD_PRELOAD": TCMALLOC, "OMP_WAIT_POLICY": "passive"}),
}
MILLRACE, BF16 = "millrace", "millrace, bf16"
DETECTOR, SEGMENTER = "yolov8n.pkg", "mobile_sam.pkg"
PICTURES = 5  # for the comparison of compiled models
SAME = 0.99  # minimum mean IoU with the masks of the usual script
# Runs a command and prints its peak memory in kB. A process counts the memory of the one that starts it, so that is small.
WITH_PEAK = """import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))"""
MEASURED = ("seconds_per_picture", "peak_mb", "load_s", "warm_up_s")  # of each turn


def write_manifest(file, pictures, count, boxes):
    """Writes `count` lines, each a picture with `boxes` boxes. The pictures repeat.

    The boxes lie inside pictures of at least 760 x 740 pixels: Millrace cuts boxes at the border, the scripts do not.
    """
    own = [[60 + 29 * i % 320, 40 + 17 * i % 440, 380, 260, 0] for i in range(boxes)]
    file.write_text("".join(json.dumps({"path": str(pictures[i % len(pictures)]), "boxes": own}) + "\n" for i in range(count)))
    return file


def compiled(program, packages, pictures, folder):
    """Copies of the packages in `folder`, each with a variant that passed the comparison on these pictures."""
    for name in (DETECTOR, SEGMENTER):
        package = folder / name
        if package.is_dir() and (package / "model.yaml").read_bytes() == (packages / name / "model.yaml").read_bytes():
            continue
        for old in (package, package.with_name(f"{name}.variants")):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(packages / name, package)
        for precision in ("fp32", "bf16") if name == SEGMENTER and machine.bf16_of_cpu() else ("fp32",):
            command = [program, "compile", package, "--precision", precision, "--images", *pictures[:PICTURES]]
            environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
            if subprocess.run([str(word) for word in command], env=environment, check=False).returncode != 0:
                shutil.rmtree(package)
                sys.exit(f"{name}: could not be compiled; --torchscript compares without compiled models")
    return folder


class Script:
    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.settings = json.loads(self.process.stdout.readline())["ready"]

    def __call__(self, manifest, count):
        process = Path(f"/proc/{self.process.pid}")
        (process / "clear_refs").write_text("5")  # the peak becomes the memory of now
        print(json.dumps({"manifest": str(manifest), "pictures": count}), file=self.process.stdin, flush=True)
        done = json.loads(self.process.stdout.readline())
        (peak,) = (line.split()[1] for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
        return {"seconds_per_picture": done["seconds"] / count, "peak_mb": int(peak) / 1024}, done["masks"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Millrace:
    def __init__(self, program, packages, *options):
        self.settings = {}
        self.command = [program, "run", "--quiet", "--detector", packages / DETECTOR, "--segmenter", packages / SEGMENTER, *options]

    def __call__(self, manifest, count):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out"
            more = ["--input", manifest, "--limit", str(count), "--output", out, "--set", "detect.skip_with_boxes=no"]
            command = [str(part) for part in (*self.command, *more)]
            done = subprocess.run([sys.executable, "-S", "-c", WITH_PEAK, *command], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: failed with {done.returncode}; its messages are above")
            (report,) = out.glob("runs/*/report.json")
            report = json.loads(report.read_text())
            self.settings = {load["package"]: load.get("variant") or "torchscript" for load in report["models"]["loads"]}
            line = json.loads((out / "segments/000000.jsonl").read_text().splitlines()[0])
            measured = {"seconds_per_picture": 1 / report["run_window"]["pictures_per_s"], "peak_mb": int(done.stdout) / 1024}
            return measured | {key: report[key] for key in ("load_s", "warm_up_s")}, [o["rle"] for o in line["objects"]]

    def end(self):
        pass


def agreement(masks, others):
    """Mean IoU of masks of the same boxes."""
    pairs = zip(masks, others, strict=True)
    return statistics.mean(float(coco.iou([a], [b], [False])[0][0]) for a, b in pairs)


def compare(programs, manifest, count, turns):
    """What MEASURED names, by program and turn; the loads; and the masks of each program."""
    measured, loads, masks = {key: {} for key in MEASURED}, [], {}
    for turn in range(turns):
        order = [*programs][turn % len(programs) :] + [*programs][: turn % len(programs)]
        for name in order:
            values, masks[name] = programs[name](manifest, count)
            for key, value in values.items():
                measured[key].setdefault(name, []).append(round(value, 4))
        loads.append(os.getloadavg()[0])
    return measured, loads, masks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/apps/millrace")
    parser.add_argument("--packages", type=Path, default=ROOT / "build/test-packages")
    parser.add_argument("--pictures", type=Path, default=ROOT / "build/demo/pictures", help="folder of JPEGs")
    parser.add_argument("--boxes", type=int, nargs="+", default=[10, 1, 5, 20, 50])
    parser.add_argument("--count", type=int, default=8, help="pictures per turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", nargs="*", help="the steps that the tuned script tries (default: all)")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--torchscript", action="store_true", help="without compiled models")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    pictures = sorted(arguments.pictures.rglob("*.jpg"))
    if not pictures:
        sys.exit(f"{arguments.pictures}: has no .jpg files; run 'make demo', or name another folder with --pictures")
    record = machine.described() | {"cores": os.cpu_count(), "torch": torch.__version__, "pictures": [picture.name for picture in pictures]}
    record |= {"pictures_per_turn": arguments.count, "busy_process": arguments.busy}
    record |= {key: {} for key in (*MEASURED, "load", "agreement", "settings", "floors")}
    if arguments.out.exists():
        old = json.loads(arguments.out.read_text())
        if old.keys() == record.keys() and all(old[key] == value for key, value in record.items() if value != {}):
            record = old
    wanted = [y for y in arguments.boxes if str(y) not in record["seconds_per_picture"]]
    packages = arguments.packages
    if not arguments.torchscript:
        packages = compiled(arguments.program, packages, pictures, ROOT / "build/peers")
    millrace = {MILLRACE: Millrace(arguments.program, packages)}
    if machine.bf16_of_cpu() and not arguments.torchscript:
        millrace[BF16] = Millrace(arguments.program, packages, "--precision", "segment=bf16")
    for y in wanted:
        floors = [machine.floors()]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            manifest = write_manifest(Path(folder) / "manifest.jsonl", pictures, arguments.count, y)
            if arguments.busy:
                busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                stack.callback(busy.kill)
            programs = {}
            for name, (file, environment) in SCRIPTS.items():
                steps = ["--steps", *arguments.steps] if file == TUNED and arguments.steps is not None else []
                programs[name] = Script([sys.executable, HERE / file, manifest, *steps], environment)
                stack.callback(programs[name].end)
            programs |= millrace
            measured, loads, masks = compare(programs, manifest, arguments.count, arguments.turns)
        floors.append(machine.floors())
        y = str(y)
        record["agreement"][y] = {name: round(agreement(masks[name], masks["script"]), 4) for name in programs}
        if min(record["agreement"][y].values()) < SAME:
            sys.exit(f"the masks differ: {record['agreement'][y]}")
        record["load"][y], record["floors"][y] = loads, floors
        record["settings"][y] = {name: program.settings for name, program in programs.items()}
        for key, values in measured.items():
            record[key][y] = values
        times = measured["seconds_per_picture"]
        own = statistics.median(times[MILLRACE])
        for name, values in times.items():
            ratio = statistics.median(values) / own
            print(f"{y:>3} boxes, {name:24} {1 / statistics.median(values):.2f} pictures/s [{1 / max(values):.2f} to {1 / min(values):.2f}], Millrace is {ratio:.2f} times as fast", flush=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
