"""Measures the built-in models on held-out scenes with the program: quality.py [--scenes N] [--bars AP50 IOU] [--write]

Training used none of the seeds and textures of these scenes.
The script draws --scenes scenes of each view and runs Millrace on them.
pycocotools then compares coco.json with the truth:
- AP of boxes at IoU 0.5
- IoU of the masks of found objects (score at least 0.25, right class, box IoU at least 0.5)

Two baselines must stay bad, or the scenes are too easy:
- boxes from a threshold and connected components
- the box itself as the mask

The script also counts how many of the objects above a score are right.
With --write, it puts the figures into the model.yaml of each package if they reach the bars.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import yaml
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import scenes

ROOT = Path(__file__).resolve().parents[2]
FIRST_SEED = 1001  # train.py begins at 100,000, the demo at 1
FOUND_SCORE = 0.25
SHOWN_SCORES = 0.25, 0.5  # the program's defaults: in general, and for the built-in models (run/builtin.cpp)
CANDIDATE_SCORE = 0.05  # AP also counts objects that the program does not show by default
BASELINE_AP, BASELINE_IOU = 0.30, 0.70


def draw_one(task):
    view, number, folder = task
    cv2.setNumThreads(1)  # each core has a process already
    scene, jpeg = scenes.draw(view, FIRST_SEED + number, "held_out")
    path = f"{view}/{view}-{number:04}.jpg"  # `millrace verify` finds the truth of a picture by its name alone
    (folder / path).write_bytes(jpeg)
    guesses = threshold_boxes(scene.picture, scenes.VIEWS[view])
    scene.picture = None  # the caller needs only the truth
    return view, path, scene, guesses


def threshold_boxes(picture, view):
    """Finds boxes with a threshold: connected pixels whose colour is far from that of the ground.

    Their hue gives the class. The score is the share of the box that they fill.
    """
    lab = cv2.cvtColor(cv2.GaussianBlur(picture, (0, 0), 2), cv2.COLOR_BGR2LAB).astype(np.float32)
    far = np.linalg.norm(lab - np.median(lab.reshape(-1, 3), axis=0), axis=2)
    far = np.clip(far, 0, 255).astype(np.uint8)
    _, binary = cv2.threshold(far, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
    binary = cv2.morphologyEx(binary, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(binary)
    hsv = cv2.cvtColor(picture, cv2.COLOR_BGR2HSV)
    guesses = []
    for i in range(1, count):
        x, y, width, height, area = (int(value) for value in stats[i])
        if not 20 <= max(width, height) <= 420:
            continue
        inside = labels[y : y + height, x : x + width] == i
        hue = np.exp(2j * np.pi * hsv[y : y + height, x : x + width, 0][inside] / 180).mean()
        near = [np.real(hue * np.exp(-2j * np.pi * other / 360)) for other in view.hues]
        guesses.append((view.classes[int(np.argmax(near))], [x, y, width, height], area / (width * height)))
    return guesses


def draw_scenes(folder, count, workers):
    """Draws the scenes. Returns the truth as a COCO document, and the boxes of threshold_boxes() as COCO results."""
    truth, guessed = scenes.Truth(), []
    for view in scenes.VIEWS:
        (folder / view).mkdir(parents=True, exist_ok=True)
    tasks = [(view, number, folder) for view in scenes.VIEWS for number in range(count)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for view, path, scene, guesses in pool.imap(draw_one, tasks, chunksize=4):
            truth.add(view, path, scene)
            image = len(truth.document["images"])
            guessed += [
                {"image_id": image, "category_id": truth.category[name], "bbox": box, "score": score} for name, box, score in guesses
            ]
    (folder / scenes.TRUTH).write_text(json.dumps(truth.document))
    return truth.document, guessed


def run_program(program, folder, models, out):
    """Runs the program on `folder` and returns coco.json. `models` is a folder of packages; None: the built-in ones."""
    command = [program, "run", "--input", folder, "--output", out, "--format", "coco", "--quiet", "--set", f"detect.conf={CANDIDATE_SCORE}"]
    if models is not None:
        recipe = out.with_suffix(".yaml")
        views = [f"  - {{name: {view}, match: '{view}/**', detector: {models}/{view}.pkg}}\n" for view in scenes.VIEWS]
        recipe.write_text("views:\n" + "".join(views) + f"models: {{segmenter: {models}/segmenter.pkg}}\n")
        command.insert(2, recipe)
    subprocess.run([str(part) for part in command], check=True)
    return json.loads((out / "coco.json").read_text())


def renumbered(found, truth):
    """Annotations of `found` with the image and category numbers of `truth`, as results."""
    image = {entry["file_name"]: entry["id"] for entry in truth["images"]}
    category = {entry["name"]: entry["id"] for entry in truth["categories"]}
    image_of = {entry["id"]: image[entry["file_name"]] for entry in found["images"]}
    category_of = {entry["id"]: category[entry["name"]] for entry in found["categories"]}
    return [
        {
            "image_id": image_of[entry["image_id"]],
            "category_id": category_of[entry["category_id"]],
            "bbox": entry["bbox"],
            "score": entry["score"],
            "segmentation": entry["segmentation"],
        }
        for entry in found["annotations"]
    ]


def average_precision(truth, results, images=None):
    """AP at IoU 0.5, mean over the classes that occur."""
    if not results:
        return 0.0  # pycocotools fails on an empty list
    with contextlib.redirect_stdout(io.StringIO()):
        reference = COCO()
        reference.dataset = truth
        reference.createIndex()
        evaluation = COCOeval(reference, reference.loadRes([dict(entry) for entry in results]), "bbox")
        evaluation.params.iouThrs = np.array([0.5])
        if images is not None:
            evaluation.params.imgIds = images
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][0, :, :, 0, -1]  # recall thresholds x classes, all areas, most detections
    occurring = precision[0] > -1
    return float(precision[:, occurring].mean())


def mask_overlaps(truth, results):
    """A row per found object: image, IoU of its mask, IoU of its filled box with the true mask, longer side in px."""
    by_image = {}
    for entry in results:
        if entry["score"] >= FOUND_SCORE:
            by_image.setdefault(entry["image_id"], []).append(entry)
    rows = []
    for wanted in truth["annotations"]:
        candidates = [entry for entry in by_image.get(wanted["image_id"], []) if entry["category_id"] == wanted["category_id"]]
        if not candidates:
            continue
        overlaps = coco_mask.iou([entry["bbox"] for entry in candidates], [wanted["bbox"]], [0])[:, 0]
        best = int(np.argmax(overlaps))
        if overlaps[best] < 0.5:
            continue
        height, width = wanted["segmentation"]["size"]
        mask = coco_mask.frPyObjects(wanted["segmentation"], height, width)
        x, y, w, h = candidates[best]["bbox"]
        corners = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        box = coco_mask.merge(coco_mask.frPyObjects(corners, height, width))
        own, filled = coco_mask.iou([candidates[best]["segmentation"], box], [mask], [0])[:, 0]
        rows.append((wanted["image_id"], own, filled, max(wanted["bbox"][2:])))
    return np.array(rows).reshape(-1, 4)


def shown_from(score, truth, results):
    """Counts for a minimum score: (objects with this score or more, right ones among them, objects of the truth)."""
    left = {}
    for entry in truth["annotations"]:
        left.setdefault((entry["image_id"], entry["category_id"]), []).append(entry["bbox"])
    shown = sorted((entry for entry in results if entry["score"] >= score), key=lambda entry: -entry["score"])
    right = 0
    for entry in shown:
        boxes = left.get((entry["image_id"], entry["category_id"]), [])
        overlaps = coco_mask.iou([entry["bbox"]], boxes, [0] * len(boxes))[0] if boxes else np.zeros(1)
        if overlaps.max() >= 0.5:
            right += 1
            boxes.pop(int(np.argmax(overlaps)))
    return len(shown), right, len(truth["annotations"])


def mean(values):
    """The mean, or None if there are no values: JSON has no NaN."""
    return float(np.mean(values)) if len(values) else None


def measure(truth, guessed, results):
    """Figures for all views together ('all'), for each view, by size of the objects, and by minimum score."""
    overlaps = mask_overlaps(truth, results)
    figures = {}
    for view in ["all", *scenes.VIEWS]:
        images = [entry["id"] for entry in truth["images"] if view in ("all", entry["file_name"].split("/")[0])]
        rows = overlaps[np.isin(overlaps[:, 0], images)]
        wanted = sum(1 for entry in truth["annotations"] if entry["image_id"] in set(images))
        figures[view] = {
            "scenes": len(images),
            "objects": wanted,
            "found": len(rows),
            "AP50": average_precision(truth, results, images),
            "mask IoU": mean(rows[:, 1]),
            "mask IoU, 5th percentile": float(np.percentile(rows[:, 1], 5)) if len(rows) else None,
            "AP50 of threshold and components": average_precision(truth, guessed, images),
            "IoU of the box as mask": mean(rows[:, 2]),
        }
    sizes = [24, 48, 96, 192, 401]
    for low, high in zip(sizes, sizes[1:]):
        rows = overlaps[(overlaps[:, 3] >= low) & (overlaps[:, 3] < high)]
        wanted = sum(1 for entry in truth["annotations"] if low <= max(entry["bbox"][2:]) < high)
        figures[f"{low} to {high - 1} pixels"] = {"objects": wanted, "found": len(rows), "mask IoU": mean(rows[:, 1])}
    for score in SHOWN_SCORES:
        shown, right, wanted = shown_from(score, truth, results)
        figures[f"from score {score}"] = {"shown": shown, "right": right / max(shown, 1), "found": right / max(wanted, 1)}
    return figures


def write_figures(models, figures):
    """Writes the key `quality` of each model.yaml. Nothing else of the file changes."""
    for view in scenes.VIEWS:
        own = figures[view]
        write_quality(models / f"{view}.pkg", {"box AP50": round(own["AP50"], 3), "held-out scenes": own["scenes"]})
    whole = figures["all"]
    write_quality(models / "segmenter.pkg", {"mean mask IoU": round(whole["mask IoU"], 3), "held-out scenes": whole["scenes"]})


def write_quality(package, quality):
    sys.path.insert(0, str(ROOT / "models/export"))
    from package import write_yaml  # imports torch, which measuring does not need

    file = package / "model.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["quality"] = quality
    write_yaml(file, document)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenes", type=int, default=100, help="of each view (default 100)")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/apps/millrace")
    parser.add_argument("--models", type=Path, help="folder of the four packages (default: those built in)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/quality", help="where scenes and results go")
    parser.add_argument("--bars", type=float, nargs=2, metavar=("AP50", "IOU"), default=(0.90, 0.85))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the figures into each model.yaml if they reach the bars")
    arguments = parser.parse_args()

    pictures, out = arguments.folder / "pictures", arguments.folder / "out"
    for old in (pictures, out):
        shutil.rmtree(old, ignore_errors=True)
    truth, guessed = draw_scenes(pictures, arguments.scenes, arguments.workers)
    found = run_program(arguments.program, pictures, arguments.models, out)
    figures = measure(truth, guessed, renumbered(found, truth))
    (arguments.folder / "quality.json").write_text(json.dumps(figures, indent=2) + "\n")
    for name, own in figures.items():
        print(f"{name}: " + ", ".join(f"{what} {value:.3f}" if isinstance(value, float) else f"{what} {value}" for what, value in own.items()))
    whole, wrong = figures["all"], []
    for view in scenes.VIEWS:
        if figures[view]["AP50"] < arguments.bars[0]:
            wrong.append(f"{view}: AP50 {figures[view]['AP50']:.3f} is below {arguments.bars[0]}")
    if whole["found"] == 0:
        sys.exit("the program found no objects: " + "; ".join(wrong))
    if whole["mask IoU"] < arguments.bars[1]:
        wrong.append(f"mean mask IoU {whole['mask IoU']:.3f} is below {arguments.bars[1]}")
    if whole["AP50 of threshold and components"] >= BASELINE_AP or whole["IoU of the box as mask"] >= BASELINE_IOU:
        wrong.append("a baseline is too good: the scenes are too easy")
    if wrong:
        sys.exit("; ".join(wrong))
    if arguments.write:
        write_figures(arguments.models or ROOT / "models/builtin", figures)
    print("quality: passed")


if __name__ == "__main__":
    main()
