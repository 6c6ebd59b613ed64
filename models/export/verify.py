"""Compares what a model finds with one engine and precision with what it finds as it is.

The reference is TorchScript in fp32, one picture and one box at a time. Both runs are runs of the program, so the
comparison covers everything between a file and its results.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import cv2
import numpy
import yaml

from command_line import MODEL, SOME_FAILED, Parser, end, exit_codes, stop_on_signals, unfinished
from package import Refused
from run_lengths import mask_iou

# Limits for every fast path. IoUs are those of the masks of the same boxes.
MEAN_IOU, LOW_IOU, AP50_LOSS = 0.995, 0.97, 0.002
# Limits for the vectors and the most likely classes of embedding models and classifiers.
MEAN_COSINE, LOW_COSINE, SAME_CLASS = 0.995, 0.99, 0.99
# The score from which a box counts as found. Below, boxes only serve the average precision.
SCORE = 0.25
# Prompts for a segmenter, if no truth has boxes: x, y, width, height as shares of the picture.
BOXES = ((0.05, 0.05, 0.4, 0.5), (0.5, 0.1, 0.45, 0.8), (0.3, 0.3, 0.2, 0.2), (0.0, 0.0, 1.0, 1.0), (0.6, 0.6, 0.1, 0.3), (0.1, 0.7, 0.5, 0.25))
DETECT = "stages: [decode, preprocess, detect, encode]\n"
SEGMENT = "stages: [decode, preprocess, detect, segment, postprocess, encode]\n"
EMBED = "stages: [decode, preprocess, embed, encode]\n"
CLASSIFY = "stages: [decode, preprocess, embed, categorize, encode]\n"
CLASSES = "stages: [decode, preprocess, categorize, encode]\n"
BY_NVJPEG = "decode.nvjpeg=1"
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")


def pictures_of(places, limit):
    """Paths of at most `limit` pictures, by name."""
    files = []
    for place in map(Path, places):
        if not place.exists():
            raise Refused(f"{place}: no such file or folder; --images takes pictures and folders")
        if place.is_file() and not cv2.haveImageReader(str(place)):
            raise Refused(f"{place}: is no picture that OpenCV reads; --images takes pictures and folders")
        files += sorted(f for f in place.rglob("*") if f.suffix.lower() in EXTENSIONS) if place.is_dir() else [place]
    found = [file for file in files if file.is_file()][:limit]
    if not found:
        raise Refused(f"{', '.join(map(str, places))}: no pictures were found; --images takes pictures and folders")
    return found


def read_truth(path, pictures):
    """The marks of COCO annotations by file name: box, area, crowd and name of the category.

    Raises Refused if the file has none of the pictures.
    """
    try:
        truth = json.loads(Path(path).read_text(encoding="utf-8"))
        files = {image["id"]: Path(image["file_name"]).name for image in truth["images"]}
        categories = {category["id"]: category["name"] for category in truth["categories"]}
        marks = {name: [] for name in files.values()}
        for mark in truth["annotations"]:
            width, height = mark["bbox"][2:]
            kept = {"bbox": mark["bbox"], "area": mark.get("area", width * height), "iscrowd": mark.get("iscrowd", 0)}
            marks[files[mark["image_id"]]].append({**kept, "category": categories[mark["category_id"]]})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{path}: cannot be read as COCO annotations ({type(error).__name__}: {error}); --truth takes a JSON file of that format") from error
    if not any(picture.name in marks for picture in pictures):
        raise Refused(f"{path}: has none of the pictures, such as {pictures[0].name}; --truth takes the annotations of the pictures that --images names")
    return marks


def with_classes(marks, classes, path):
    """The marks of the classes of a package, with their numbers. The ids of a COCO file are others, so names count."""
    known = {name: [{**mark, "category_id": classes.index(mark["category"])} for mark in own if mark["category"] in classes] for name, own in marks.items()}
    if not any(known.values()):
        raise Refused(f"{path}: no category with boxes has the name of a class of the package, such as {classes[0]}; change the names of the categories")
    return known


def write_manifest(file, pictures, marks):
    """A manifest with prompts: the boxes of the truth by file name, or drawn ones."""
    with open(file, "w", encoding="utf-8") as lines:
        for picture in pictures:
            pixels = cv2.imread(str(picture))
            if pixels is None:
                continue
            height, width = pixels.shape[:2]
            drawn = [[x * width, y * height, w * width, h * height] for x, y, w, h in BOXES]
            own = drawn if marks is None else [mark["bbox"] for mark in marks.get(picture.name, [])]
            lines.write(json.dumps({"path": str(picture.resolve()), "boxes": own}) + "\n")


def run(program, recipe, arguments, out):
    """Runs the program. Returns the lines of its segments by the number of the picture.

    In a line of an embedding model, `embed` is the vector.
    """
    done = subprocess.run([program, "run", str(recipe), *map(str, arguments), "--output", str(out), "--quiet"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise Refused(f"a run for the comparison ended with exit code {done.returncode}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no message'}")
    lines = {}
    for file in (out / "segments").glob("*.jsonl"):
        found = [line for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()) if line["state"] == "ok"]
        vectors = file.with_suffix(".embed.f16")
        if vectors.exists():  # one row for each of these lines
            rows = numpy.fromfile(vectors, "<f2").reshape(len(found), -1).astype(numpy.float64)
            found = [{**line, "embed": rows[line["embed"]]} for line in found]
        lines |= {line["id"]: line for line in found}
    return lines


def count_of(out, counter):
    """A counter of the only run in this output folder."""
    (report,) = out.glob("runs/*/report.json")
    return json.loads(report.read_text(encoding="utf-8"))["calls"][counter]


def corners(boxes):
    boxes = numpy.asarray(boxes, dtype=numpy.float64).reshape(-1, 4)
    return numpy.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def matches(ours, theirs):
    """Pairs of objects of one class that overlap by half, best scores first: indices."""
    if not ours or not theirs:
        return []
    from pycocotools import mask as coco_mask  # not at the top: `millrace compile` imports this file without it

    overlap = coco_mask.iou([o["box"] for o in theirs], [o["box"] for o in ours], [0] * len(ours))
    pairs, taken = [], set()
    for i in sorted(range(len(theirs)), key=lambda i: -theirs[i]["score"]):
        best = max((j for j in range(len(ours)) if j not in taken and ours[j]["class"] == theirs[i]["class"]), key=lambda j: overlap[i][j], default=None)
        if best is not None and overlap[i][best] >= 0.5:
            taken.add(best)
            pairs.append((best, i))
    return pairs


def ap50(truth, lines):
    """Average precision at IoU 0.5 of the boxes of `lines`, for the pictures of `truth`."""
    found = [
        {"image_id": i, "category_id": o["class"], "bbox": o["box"], "score": o["score"]}
        for i, line in lines.items() if i in truth.imgs for o in line["objects"]
    ]  # fmt: skip
    if not found:
        return 0.0
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(truth, truth.loadRes(found), "bbox")
        evaluation.params.iouThrs = numpy.array([0.5])
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][0, :, :, 0, -1]
    return float(precision[precision > -1].mean()) if (precision > -1).any() else 0.0


def as_truth(marks):
    """COCO ground truth of marks by the number of the picture."""
    from pycocotools.coco import COCO

    truth = COCO()
    found = [{"image_id": i, **mark} for i, own in marks.items() for mark in own]
    truth.dataset = {
        "images": [{"id": i} for i in marks],
        "annotations": [{"id": number, **mark} for number, mark in enumerate(found, 1)],
        "categories": [{"id": c} for c in sorted({mark["category_id"] for mark in found})],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def mark_of(found):
    """An object of the reference as a mark of the truth."""
    return {"category_id": found["class"], "bbox": found["box"], "area": found["box"][2] * found["box"][3], "iscrowd": 0}


def compare_boxes(reference, ours, marks):
    """Measures of a detector. `marks` are those of the truth by file name, or None."""
    shift, pairs, counts = 0.0, 0, [0, 0]
    found = {i: [o for o in line["objects"] if o["score"] >= SCORE] for i, line in reference.items()}
    for i, theirs in found.items():
        own = [o for o in ours[i]["objects"] if o["score"] >= SCORE]
        counts = [counts[0] + len(theirs), counts[1] + len(own)]
        for mine, other in matches(own, theirs):
            pairs += 1
            shift = max(shift, float(numpy.abs(corners(own[mine]["box"]) - corners(theirs[other]["box"])).max()))
    if marks is None:
        truth, of = as_truth({i: [mark_of(o) for o in theirs] for i, theirs in found.items()}), "the reference's boxes"
    else:
        names = {i: Path(line["path"]).name for i, line in reference.items()}
        truth, of = as_truth({i: marks[name] for i, name in names.items() if name in marks}), "the truth"
    if counts[0] == 0:
        raise Refused(f"the reference finds no object with a score of {SCORE} or more, so there is nothing to compare; name pictures with objects (weights that are not trained find none)")
    scores = [ap50(truth, lines) for lines in (reference, ours)]
    if scores[0] == 0:
        raise Refused("the reference finds none of the boxes of the truth, so there is nothing to compare; look at the boxes, or name other pictures")
    return {
        "pictures": len(reference), "boxes_reference": counts[0], "boxes": counts[1], "matched": pairs, "largest_shift_px": shift,
        "ap50_of": of, "ap50_reference": scores[0], "ap50": scores[1], "within": scores[0] - scores[1] <= AP50_LOSS,
    }  # fmt: skip


def compare_masks(reference, ours):
    """Measures of a segmenter. Both runs had the same boxes in the same order."""
    overlaps, empty, lost = [], 0, 0
    for i, line in reference.items():
        lost += abs(len(line["objects"]) - len(ours[i]["objects"]))
        for theirs, own in zip(line["objects"], ours[i]["objects"]):
            if theirs["area"] == 0 and own["area"] == 0:
                empty += 1
            else:
                overlaps.append(mask_iou(own["rle"], theirs["rle"]))
    if not overlaps and not lost:
        raise Refused("all masks of the reference are empty, so there is nothing to compare; name other pictures")
    mean, low, minimum = (float(numpy.mean(overlaps)), float(numpy.percentile(overlaps, 1)), min(overlaps)) if overlaps else (0.0, 0.0, 0.0)
    return {
        "pictures": len(reference), "masks": len(overlaps), "empty_masks": empty, "lost_masks": lost, "iou_mean": mean, "iou_p1": low, "iou_min": minimum,
        "within": lost == 0 and mean >= MEAN_IOU and low >= LOW_IOU,
    }  # fmt: skip


def cosine(a, b):
    lengths = numpy.linalg.norm(a) * numpy.linalg.norm(b)
    return float(a @ b / lengths) if lengths > 0 else float(numpy.array_equal(a, b))


def vectors_of(*lines):
    """The vectors of lines. Without an embedding model, these are the probabilities of all classes in one of the lines."""
    if "embed" in lines[0]:
        return [line["embed"] for line in lines]
    found = [{number: probability for number, _, probability in line["categorize"]["top"]} for line in lines]
    return [numpy.array([each.get(number, 0.0) for number in sorted(set().union(*found))]) for each in found]


def compare_vectors(reference, ours):
    """Measures of an embedding model, and of the most likely classes if it is a classifier."""
    cosines = [cosine(*vectors_of(line, ours[i])) for i, line in reference.items()]
    measures = {"pictures": len(reference), "cosine_mean": float(numpy.mean(cosines)), "cosine_min": min(cosines)}
    measures["within"] = measures["cosine_mean"] >= MEAN_COSINE and measures["cosine_min"] >= LOW_COSINE
    if all("categorize" in line for line in reference.values()):
        first = [[line["categorize"]["top"][0][0] for line in lines] for lines in (reference.values(), (ours[i] for i in reference))]
        measures["same_class"] = float(numpy.mean(numpy.equal(*first)))
        measures["within"] &= measures["same_class"] >= SAME_CLASS
    return measures


def worst(measures):
    """The worst measures of several runs with the same reference."""
    return {key: (max if key in ("largest_shift_px", "lost_masks") else min)(each[key] for each in measures) for key in measures[0]}


def measures_of(program, package, pictures, candidates, truth_file=None):
    """The measures of a package, run with each of these lists of options, against the reference."""
    described = yaml.safe_load((package / "model.yaml").read_text(encoding="utf-8"))
    task = described["task"]
    if task not in ("detect", "segment", "embed", "classify"):
        raise Refused(f"{package}: its task is {task}, and only detectors, segmenters, embedding models and classifiers can be compared")
    if truth_file and task in ("embed", "classify"):
        raise Refused(f"{package}: its task is {task}, and --truth is for detectors and segmenters; leave it out")
    marks = read_truth(truth_file, pictures) if truth_file else None
    if marks is not None and task == "detect":
        marks = with_classes(marks, described["classes"], truth_file)
    with tempfile.TemporaryDirectory(prefix="millrace-verify-") as folder:
        unfinished.append(folder)
        folder = Path(folder)
        recipe, given = folder / "recipe.yaml", folder / "pictures.txt"
        alone = []
        if task == "segment":
            recipe.write_text(SEGMENT)
            given = folder / "pictures.jsonl"
            write_manifest(given, pictures, marks)
            options = ["--segmenter", package]
            alone = ["--set", "segment.box_batch=1"]
        else:
            given.write_text("".join(f"{picture.resolve()}\n" for picture in pictures))
            if task == "detect":
                recipe.write_text(DETECT)
                options = ["--detector", package, "--set", "detect.conf=0.01"]
            elif task == "classify":
                recipe.write_text(CLASSES)
                options = ["--set", f"categorize.model={package}", "--set", "categorize.top=1000"]
            else:
                recipe.write_text(CLASSIFY if "matrix" in described else EMBED)
                options = ["--set", f"embed.model={package}"] + (["--set", f"categorize.model={package}"] if "matrix" in described else [])
        options = ["--input", given, *options]
        reference = run(program, recipe, [*options, *alone, "--set", "batch.size=1", "--engine", "torchscript", "--precision", "fp32"], folder / "reference")
        measures = []
        for i, candidate in enumerate(candidates):
            ours = run(program, recipe, [*options, *candidate], folder / f"ours-{i}")
            missing = sorted(set(reference) - set(ours))
            if missing or not reference:
                raise Refused(f"{reference[missing[0]]['path'] if missing else pictures[0]}: failed in a run for the comparison, so it cannot be compared")
            if task == "detect":
                measures.append(compare_boxes(reference, ours, marks))
            else:
                measures.append(compare_masks(reference, ours) if task == "segment" else compare_vectors(reference, ours))
            if BY_NVJPEG in candidate:
                measures[-1]["nvjpeg_decoded"] = count_of(folder / f"ours-{i}", "nvjpeg_decoded")
                if measures[-1]["nvjpeg_decoded"] == 0:
                    raise Refused("nvJPEG decoded none of the pictures, so there is nothing to compare; name upright JPEGs that are not progressive")
        return measures


def verify(program, package, pictures, candidates, truth_file=None):
    """The worst of measures_of()."""
    return worst(measures_of(program, package, pictures, candidates, truth_file))


def text_of(measures):
    """The measures as lines for people."""
    if "cosine_mean" in measures:
        return f"{measures['pictures']} pictures: cosine of the vectors mean {measures['cosine_mean']:.5f} (limit {MEAN_COSINE}), minimum {measures['cosine_min']:.5f} (limit {LOW_COSINE})" + (
            f"; same most likely class in {100 * measures['same_class']:.1f} % (limit {100 * SAME_CLASS:g})" if "same_class" in measures else ""
        )
    if "iou_mean" in measures:
        return (
            f"{measures['masks']} masks in {measures['pictures']} pictures: IoU mean {measures['iou_mean']:.5f} (limit {MEAN_IOU}), "
            f"1st percentile {measures['iou_p1']:.5f} (limit {LOW_IOU}), minimum {measures['iou_min']:.5f}; {measures['lost_masks']} masks lost (limit 0)"
        )
    return (
        f"{measures['pictures']} pictures: {measures['boxes']} boxes, reference {measures['boxes_reference']}, {measures['matched']} of them in both; "
        f"largest shift {measures['largest_shift_px']:.3f} pixels; AP50 against {measures['ap50_of']} {100 * measures['ap50']:.2f}, "
        f"reference {100 * measures['ap50_reference']:.2f} (limit of the loss {100 * AP50_LOSS:g})"
    )


def program_path():
    """The program that called this script, or the one in PATH."""
    named = os.environ.get("MILLRACE_PROGRAM") or shutil.which("millrace")
    if not named:
        raise Refused("the program was not found; call `millrace verify`, or set MILLRACE_PROGRAM to its path")
    return named


def main():
    codes = exit_codes(SOME_FAILED="the results are not within the limits", MODEL="a problem with the package, the pictures or a run")
    parser = Parser("--help lists the options", "verify", prog="millrace verify", description=__doc__, epilog=codes, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", metavar="PACKAGE", type=Path, help="folder of the package")
    parser.add_argument("--images", metavar="WHAT", nargs="+", required=True, help="pictures and folders of pictures")
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="maximum number of pictures (default 100)")
    parser.add_argument("--truth", metavar="FILE", help="COCO annotations: boxes for a segmenter, average precision for a detector")
    parser.add_argument("--engine", default="auto", help="auto, torchscript or aoti (default auto)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, tf32, bf16 or fp16")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--decode", choices=("cpu", "nvjpeg"), default="cpu", help="what decodes JPEGs: cpu, or the JPEG engines of a GPU (default cpu)")
    parser.add_argument("--set", metavar="GROUP.NAME=VALUE", action="append", default=[], help="any option of the run that is compared")
    parser.add_argument("--json", action="store_true", help="print the measures as JSON")
    arguments = parser.parse_args()
    try:
        candidate = ["--engine", arguments.engine, "--precision", arguments.precision, "--device", arguments.device]
        for option in arguments.set + ([BY_NVJPEG] if arguments.decode == "nvjpeg" else []):
            candidate += ["--set", option]
        measures = verify(program_path(), arguments.package, pictures_of(arguments.images, arguments.limit), [candidate], arguments.truth)
    except Refused as error:
        end(MODEL, error, "verify")
    print(json.dumps(measures) if arguments.json else text_of(measures))
    if "nvjpeg_decoded" in measures and not arguments.json:
        print(f"nvJPEG decoded {measures['nvjpeg_decoded']} of {measures['pictures']} pictures, the CPU the others")
    if not measures["within"]:
        end(SOME_FAILED, "the results are not within the limits", "verify")


if __name__ == "__main__":
    stop_on_signals("verify")
    main()
