"""Measures what fast ways to run models lose: precision.py [--scenes 20] [--package PACKAGE --images FOLDER] [--out FILE.json]

It measures the built-in models on held-out scenes, or PACKAGE on the pictures of FOLDER. The ways are batches, code of
`millrace compile`, and bfloat16 if the CPU has it. Each is compared as `millrace verify` does it: with TorchScript in
float32, one picture and one box at a time. The limits of T7:
- box AP50: at most 0.2 points below the reference. The truth is the objects of the scenes, and AP50 is the mean of the
  three cameras. Without scenes, the truth is the boxes of the reference
- IoU of each mask with the reference's mask of the same box: mean at least 0.995, 1st percentile at least 0.97

In scenes, the boxes of these masks are those of the objects. The script also measures masks of six fixed boxes for each
scene, without a limit: most contain no object. On the pictures of FOLDER, masks have the fixed boxes, with the limits. The
exit code is 1 if a limit is missed.
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
import yaml

import quality
import scenes

sys.path += [str(quality.ROOT / "bench"), str(quality.ROOT / "models/export")]
import machine  # noqa: E402
import verify  # noqa: E402

BATCH = 4
BOXES = 16  # of a call of the compiled decoder


def run(*command):
    """Runs a command and returns its output. Ends this script if the command fails."""
    environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"precision: {' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def compile_package(program, package, folder, precision, options):
    """Compiles a package and returns the folder of its variant, in `folder`."""
    folder /= f"{package.stem}-{precision}{'-boxes' if options else ''}.variants"
    run(program, "compile", package, "--precision", precision, "--out", folder, *options)
    return folder


def segments(package):
    return yaml.safe_load((package / "model.yaml").read_text(encoding="utf-8"))["task"] == "segment"


def ways(program, package, folder, precisions):
    """The ways to run a package: engine, precision, compiled methods, and the options of the run for them."""
    for precision in precisions:
        yield {"engine": "torchscript", "precision": precision, "compiled": []}, []
    # On a CPU, the decoder of a segmenter is compiled only for --boxes.
    compiled = [(["encode"], []), (["encode", "decode"], ["--boxes", BOXES])] if segments(package) else [(["forward"], [])]
    for precision in precisions:
        for methods, options in compiled:
            variants = compile_package(program, package, folder, precision, options)
            yield {"engine": "aoti", "precision": precision, "compiled": methods}, ["--set", f"models.variants={variants}"]


def builtin(name, folder):
    """A copy of a built-in model that can be compiled, its scenes, and the truth for each kind of boxes that it gets."""
    package, truth = folder / f"{name}.pkg", folder / "pictures" / scenes.TRUTH
    run(sys.executable, quality.ROOT / "models/demo/packages.py", quality.ROOT / f"models/builtin/{name}.pkg", package)
    views = [name] if name in scenes.VIEWS else scenes.VIEWS
    pictures = verify.pictures_of([folder / "pictures" / view for view in views], None)
    return package, pictures, {"none": truth} if name in scenes.VIEWS else {"of objects": truth, "fixed": None}


def measure(program, package, pictures, truths, folder, precisions):
    """Measures of each way to run a package, for each kind of boxes that it gets. Variants go to `folder`."""
    described, options = zip(*ways(program, package, folder, precisions))
    always = ["--device", "cpu", "--set", f"batch.size={BATCH}"]
    candidates = [["--engine", way["engine"], "--precision", way["precision"], *always, *more] for way, more in zip(described, options)]
    for boxes, truth in truths.items():
        for way, measures in zip(described, verify.measures_of(str(program), package, pictures, candidates, truth)):
            yield {"package": package.stem, **way, "boxes given": boxes, **measures}


def summary(rows):
    """A line for each way: the detectors together, and the masks of each kind of boxes."""
    detectors = [row for row in rows if "ap50" in row]
    for engine, precision in dict.fromkeys((row["engine"], row["precision"]) for row in detectors):
        own = [row for row in detectors if (row["engine"], row["precision"]) == (engine, precision)]
        reference, found = (float(np.mean([row[key] for row in own])) for key in ("ap50_reference", "ap50"))
        line = {"models": "detectors", "engine": engine, "precision": precision, "ap50_reference": reference, "ap50": found}
        yield {**line, "loss_points": 100 * (reference - found), "within": reference - found <= verify.AP50_LOSS}
    for row in rows:
        if "iou_mean" in row:
            kept = ("engine", "precision", "compiled", "boxes given", "masks", "iou_mean", "iou_p1", "iou_min", "within")
            yield {"models": "segmenter", **{key: row[key] for key in kept}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenes", type=int, default=20, help="of each view (default 20)")
    parser.add_argument("--package", type=Path, help="a package with model.ep.pt2, instead of the built-in models")
    parser.add_argument("--images", type=Path, help="folder of pictures for --package")
    parser.add_argument("--program", type=Path, default=quality.ROOT / "build/release/apps/millrace")
    parser.add_argument("--folder", type=Path, default=quality.ROOT / "build/precision", help="where scenes, packages and variants go")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if (arguments.package is None) != (arguments.images is None):
        parser.error("--package and --images go together")
    shutil.rmtree(arguments.folder, ignore_errors=True)
    if arguments.package is None:
        quality.draw_scenes(arguments.folder / "pictures", arguments.scenes, workers=2)
        measured = (builtin(name, arguments.folder) for name in (*scenes.VIEWS, "segmenter"))
    else:
        boxes = "fixed, of photographs" if segments(arguments.package) else "none"
        measured = [(arguments.package.resolve(), verify.pictures_of([arguments.images], None), {boxes: None})]
    precisions = ["fp32", *(["bf16"] if machine.bf16_of_cpu() else [])]
    rows = []
    for package, pictures, truths in measured:
        for row in measure(arguments.program.resolve(), package, pictures, truths, arguments.folder, precisions):
            print(json.dumps(row), flush=True)
            rows.append(row)
    figures = {
        "what": "precision",
        "machine": machine.described(),
        "torch": torch.__version__,
        "commit": run("git", "-C", quality.ROOT, "rev-parse", "--short", "HEAD").strip(),
        "limits": {"loss_points": 100 * verify.AP50_LOSS, "iou_mean": verify.MEAN_IOU, "iou_p1": verify.LOW_IOU},
        "pictures": "scenes" if arguments.package is None else "photographs",
        "batch": BATCH,
        "summary": list(summary(rows)),
        "measures": rows,
    }
    for line in figures["summary"]:
        print(json.dumps(line))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n")
    missed = [line for line in figures["summary"] if not line["within"] and line.get("boxes given") != "fixed"]
    if missed:
        sys.exit(f"precision: {len(missed)} of the ways miss a limit: {json.dumps(missed)}")
    print("precision: passed")


if __name__ == "__main__":
    main()
