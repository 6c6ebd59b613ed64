"""Measures what fast ways to run the built-in models lose: precision.py [--scenes 20] [--out FILE.json]

The ways are batches, code of `millrace compile`, and bfloat16 if the CPU has it. For each, `millrace verify` compares a
run on held-out scenes with the reference: TorchScript in float32, one picture and one box at a time. The limits of T7:
- box AP50 against the truth, mean of the three cameras: at most 0.2 points below the reference
- IoU of each mask with the reference's mask of the same box: mean at least 0.995, 1st percentile at least 0.97

The boxes of these masks are those of the objects. The script also measures masks of six fixed boxes for each picture,
without a limit: most contain no object. The exit code is 1 if a limit is missed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import quality
import scenes

sys.path += [str(quality.ROOT / "bench"), str(quality.ROOT / "models/export")]
import machine  # noqa: E402
from verify import AP50_LOSS, LOW_IOU, MEAN_IOU  # noqa: E402

BATCH = 4
BOXES = 16  # of a call of the compiled decoder
NOT_WITHIN = 3  # exit code of `millrace verify`


def run(*command, codes=(0,)):
    """Runs a command and returns its output. Ends this script if the command fails."""
    environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"precision: {' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def ways(task, precisions):
    """Engine, precision, and options of `millrace compile` for each way. The decoder is compiled only if --boxes is given."""
    for precision in precisions:
        yield "torchscript", precision, ()
    for precision in precisions:
        yield "aoti", precision, ()
        if task == "segment":
            yield "aoti", precision, ("--boxes", BOXES)


def compiled(program, package, precision, options):
    """The folder of a variant."""
    folder = package.with_name(f"{package.stem}-{precision}{'-boxes' if options else ''}.variants")
    run(program, "compile", package, "--precision", precision, "--out", folder, *options)
    return folder


def measure(program, name, folder, precisions):
    """Measures of `millrace verify` for each way to run a package."""
    task, package = "segment" if name == "segmenter" else "detect", folder / f"{name}.pkg"
    run(sys.executable, quality.ROOT / "models/demo/packages.py", quality.ROOT / f"models/builtin/{name}.pkg", package)
    pictures = folder / "pictures" if task == "segment" else folder / "pictures" / name
    truth = ("--truth", folder / "pictures" / scenes.TRUTH)
    for engine, precision, options in ways(task, precisions):
        variant = compiled(program, package, precision, options) if engine == "aoti" else None
        command = [program, "verify", package, "--images", pictures, "--limit", 10**6, "--json", "--device", "cpu"]
        command += ["--engine", engine, "--precision", precision, "--set", f"batch.size={BATCH}"]
        if variant:
            command += ["--set", f"models.variants={variant}"]
        methods = {"aoti": ["forward"] if task == "detect" else ["encode", "decode"] if options else ["encode"]}.get(engine, [])
        prompts = {"objects": truth, "fixed": ()} if task == "segment" else {None: truth}
        for boxes, more in prompts.items():
            measures = json.loads(run(*command, *more, codes=(0, NOT_WITHIN)))
            row = {"package": name, "engine": engine, "precision": precision, "compiled": methods, **({"boxes": boxes} if boxes else {}), **measures}
            print(json.dumps(row), flush=True)
            yield row


def summary(rows):
    """A line for each way: the detectors together, and the masks of each kind of boxes."""
    detectors = [row for row in rows if "ap50" in row]
    for engine, precision in dict.fromkeys((row["engine"], row["precision"]) for row in detectors):
        own = [row for row in detectors if (row["engine"], row["precision"]) == (engine, precision)]
        reference, found = (float(np.mean([row[key] for row in own])) for key in ("ap50_reference", "ap50"))
        line = {"models": "detectors", "engine": engine, "precision": precision, "ap50_reference": reference, "ap50": found}
        yield {**line, "loss_points": 100 * (reference - found), "within": reference - found <= AP50_LOSS}
    for row in rows:
        if "iou_mean" in row:
            kept = ("engine", "precision", "compiled", "boxes", "masks", "iou_mean", "iou_p1", "iou_min", "within")
            yield {"models": "segmenter", **{key: row[key] for key in kept}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenes", type=int, default=20, help="of each view (default 20)")
    parser.add_argument("--program", type=Path, default=quality.ROOT / "build/release/apps/millrace")
    parser.add_argument("--folder", type=Path, default=quality.ROOT / "build/precision", help="where scenes, packages and variants go")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    quality.draw_scenes(arguments.folder / "pictures", arguments.scenes, workers=2)
    precisions = ["fp32", *(["bf16"] if machine.bf16_of_cpu() else [])]
    rows = [row for name in (*scenes.VIEWS, "segmenter") for row in measure(arguments.program.resolve(), name, arguments.folder, precisions)]
    figures = {
        "what": "precision",
        "machine": machine.described(),
        "torch": torch.__version__,
        "commit": run("git", "-C", quality.ROOT, "rev-parse", "--short", "HEAD").strip(),
        "limits": {"loss_points": 100 * AP50_LOSS, "iou_mean": MEAN_IOU, "iou_p1": LOW_IOU},
        "scenes": 3 * arguments.scenes,
        "batch": BATCH,
        "summary": list(summary(rows)),
        "measures": rows,
    }
    for line in figures["summary"]:
        print(json.dumps(line))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n")
    missed = [line for line in figures["summary"] if not line["within"] and line.get("boxes") != "fixed"]
    if missed:
        sys.exit(f"precision: {len(missed)} of the ways miss a limit: {json.dumps(missed)}")
    print("precision: passed")


if __name__ == "__main__":
    main()
