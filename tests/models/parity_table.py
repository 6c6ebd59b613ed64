"""Compares packages of every family in full size with the original software: make parity

    parity_table.py PROGRAM OUT [NAME ...]

For each family, it makes the original with seeded weights (YOLOX: trained ones) and exports it. The program then runs the
package on photographs, and the original software predicts on the same pictures. Both get PNG files, so that decoders
cannot differ. OUT/parity.json has the CPU and the differences, OUT/parity.md the table of docs/models.md. Exit code 1: a
difference is beyond its limit, or a package has no model.ep.pt2.
"""

import contextlib
import functools
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import export_case
import cv2
import torch
import yaml
from torch.nn import functional as F

import export
import photograph
import program
import programs
import sam_checkpoint
import verify
import yolo_onnx
from export_case import save_ultralytics, seeded_detr, seeded_yolo
from package import COCO_NAMES
from segmenter import outline_bias, positions

sys.path.append(str(export_case.REPOSITORY / "bench"))
import machine  # noqa: E402

PICTURES = ("street.jpg", "room.jpg", "picture1.jpg")
CONF, IOU, MOST = 0.25, 0.45, 100
BOX_LIMIT, IOU_LIMIT = 0.5, 0.999
EDGE = 1e-3  # boxes whose score is this near to the threshold, or to that of the last one, may be in one list only

YOLO = ("yolov3-tiny", "yolov5nu", "yolov8n", "yolov8n-p2", "yolov8n-seg", "yolov8n-pose", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "yolo26n", "yolo26n-seg")
DETR = ("rtdetr-l",)
NAMES = ("yolox_nano", *YOLO, *DETR, *sam_checkpoint.FAMILIES)


def pictures(folder, fit):
    """The photographs as PNG files.

    `fit` gives them the size of the input for a height and a width. Resizing differs by one level of 255 at most
    (parity_test), which is nothing for trained weights, but large models with seeded weights amplify it.
    """
    files = []
    for name in PICTURES:
        files.append(folder / f"{Path(name).stem}.png")
        pixels = cv2.imread(str(program.DATA / "pictures" / name))
        height, width = fit(*pixels.shape[:2])
        cv2.imwrite(str(files[-1]), cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA))
    return files


def sizes_for(name):
    """The function `fit` of a family."""
    family = sam_checkpoint.FAMILIES.get(name)
    if family is None:
        return (lambda height, width: (640, 640)) if "detr" in name else lambda height, width: (height, width)
    if family.resize == "direct":
        return lambda height, width: (1024, 1024)
    return lambda height, width: tuple(int(side * 1024 / max(height, width) + 0.5) for side in (height, width))


def exported(weights, package):
    """Exports `weights` to `package`. Returns the largest difference that the exporter printed, and whether model.ep.pt2 is there."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        export.main([str(weights), str(package), "--photograph", str(program.picture("street.jpg")), "--traceback"])
    text = printed.getvalue()
    shares = [float(share) for share in re.findall(r"(\S+) of the deviation", text)]
    return {"largest_share": max(shares), "program": (package / programs.NAME).is_file()}


def found_by_program(millrace, recipe, options, out):
    return {Path(line["path"]).name: line["objects"] for line in verify.run(millrace, recipe, options, out).values()}


def has_area(one):
    """Untrained models without NMS return boxes with negative sides. Millrace drops them, Ultralytics does not."""
    return min(one["box"][2:]) > 0


def compare_boxes(ours, theirs):
    """Objects of both, largest difference of the corners of partners, and objects without a partner within the limit."""
    result = {"objects": 0, "largest_px": 0.0, "unmatched": 0}
    for name, original in theirs.items():
        own = ours.get(name, [])
        result["objects"] += sum(map(has_area, own))
        for some, others in ((own, original), (original, own)):
            last = min((o["score"] for o in others), default=1.0) if len(others) >= MOST else 0.0
            for one in filter(has_area, some):
                box = verify.corners(one["box"])[0]
                near = [abs(box - verify.corners(o["box"])[0]).max() for o in others if o["class"] == one["class"] and abs(o["score"] - one["score"]) < 0.01]
                distance = min(near, default=float("inf"))
                if distance <= BOX_LIMIT:
                    result["largest_px"] = max(result["largest_px"], float(distance))
                elif one["score"] > max(CONF, last) + EDGE:
                    result["unmatched"] += 1
    return {**result, "within": result["objects"] > 0 and result["unmatched"] == 0}


def objects(boxes, scores, classes):
    corner = [[*box[:2], box[2] - box[0], box[3] - box[1]] for box in boxes.double().tolist()]
    return [{"box": b, "score": s, "class": int(c)} for b, s, c in zip(corner, scores.tolist(), classes.tolist())]


def check_ultralytics(name, folder, files, run):
    import ultralytics

    detr = "detr" in name
    config = name.replace("yolov5nu", "yolov5n")
    model = seeded_detr(config, 640, 80) if detr else seeded_yolo(config)
    model.names = dict(enumerate(COCO_NAMES))
    model.task = {"seg": "segment", "pose": "pose"}.get(name.rpartition("-")[2], "detect")
    weights = save_ultralytics(folder / "seeded.pt", model)  # Ultralytics would download a file with a name that it knows
    package = folder / f"{name}.pkg"
    measures = exported(weights, package)
    described = yaml.safe_load((package / "model.yaml").read_text())
    recipe = folder / "detect.yaml"
    recipe.write_text(verify.DETECT)
    manifest = folder / "pictures.txt"
    manifest.write_text("".join(f"{file}\n" for file in files))
    settings = {"detect.conf": CONF, "detect.iou": IOU, "detect.max_detections": MOST}
    options = ["--input", manifest, "--detector", package, *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
    own = run(recipe, options)
    end_to_end = {"nms": False} if described["output"]["layout"] == "end_to_end" and not detr else {}
    original = (ultralytics.RTDETR if detr else ultralytics.YOLO)(str(weights))
    theirs = {}
    for file in files:
        # More than MOST, because Ultralytics drops some kinds of empty boxes after its limit.
        found = original.predict(str(file), rect=False, imgsz=640, conf=CONF, iou=IOU, max_det=3 * MOST, verbose=False, device="cpu", **end_to_end)[0]
        height, width = found.orig_shape
        boxes = found.boxes.xyxy.clone()  # those of RT-DETR are not cut at the border
        boxes[:, 0::2], boxes[:, 1::2] = boxes[:, 0::2].clamp(0, width), boxes[:, 1::2].clamp(0, height)
        theirs[file.name] = objects(boxes, found.boxes.conf, found.boxes.cls)
    return {**measures, "layout": described["output"]["layout"], **compare_boxes(own, theirs)}


def check_yolox(name, folder, files, run):
    from torchvision.ops import batched_nms

    onnx = program.DATA / "models" / "yolox_nano.onnx"
    package = folder / f"{name}.pkg"
    measures = exported(onnx, package)
    recipe, manifest = folder / "detect.yaml", folder / "pictures.txt"
    recipe.write_text(verify.DETECT)
    manifest.write_text("".join(f"{file}\n" for file in files))
    own = run(recipe, ["--input", manifest, "--detector", package, "--set", f"detect.conf={CONF}", "--set", f"detect.iou={IOU}"])
    theirs = {}
    for file in files:
        pixels = cv2.imread(str(file))
        view, scale = photograph.yolox_letterbox(pixels, 416, 416)
        raw = yolo_onnx.runtime_outputs(onnx, [view])
        boxes = yolo_onnx.corners_of_raw(raw, 416, 416, scale)[0].T
        boxes[:, 0::2], boxes[:, 1::2] = boxes[:, 0::2].clamp(0, pixels.shape[1]), boxes[:, 1::2].clamp(0, pixels.shape[0])
        scores, classes = (raw[0, :, 4:5] * raw[0, :, 5:]).max(1)
        kept = scores >= CONF
        boxes, scores, classes = boxes[kept], scores[kept], classes[kept]
        kept = batched_nms(boxes, scores.double(), classes, IOU)[:MOST]
        theirs[file.name] = objects(boxes[kept], scores[kept], classes[kept])
    return {**measures, "layout": "v8", **compare_boxes(own, theirs)}


def check_sam(name, folder, files, run):
    """Masks get the outline bias: those of seeded weights are noise."""
    from pycocotools import mask as coco_mask
    from ultralytics.models.sam import build

    family = sam_checkpoint.FAMILIES[name]
    torch.manual_seed(0)
    sam = export_case.perturbed(getattr(build, family.build)())
    weights = folder / f"{name}.pt"
    torch.save(sam.state_dict(), weights)
    del sam
    side = 1024

    def biased(sam, view, boxes):
        embedding, logits, iou = family.original(sam, view, boxes)
        places = positions(logits.shape[2], side // logits.shape[2])
        return embedding, logits + outline_bias(boxes, places, places), iou

    with mock.patch.dict(sam_checkpoint.FAMILIES, {name: family._replace(model=functools.partial(family.model, bias=True), original=biased)}):
        package = folder / f"{name}.pkg"
        measures = exported(weights, package)
    files = files[:1] if family.heavy else files
    recipe, manifest = folder / "segment.yaml", folder / "pictures.jsonl"
    recipe.write_text(verify.SEGMENT)
    verify.write_manifest(manifest, files, None)
    own = run(recipe, ["--input", manifest, "--segmenter", package])
    sam = sam_checkpoint.build(weights, name, torch.load(weights, weights_only=True))
    overlaps = []
    for file in files:
        pixels = cv2.imread(str(file))
        height, width = pixels.shape[:2]
        view, scale = family.prepare(pixels, side)
        boxes = torch.tensor([[x * width, y * height, (x + w) * width, (y + h) * height] for x, y, w, h in verify.BOXES]) * torch.tensor([*scale] * 2)
        _, logits, _ = biased(sam, view, boxes)
        if family.resize == "via_input":
            rows, columns = (int(length * scale[0] + 0.5) for length in (height, width))
            logits = F.interpolate(logits[None], (side, side), mode="bilinear", align_corners=False)[..., :rows, :columns]
            masks = F.interpolate(logits, (height, width), mode="bilinear", align_corners=False)[0] > 0
        else:
            masks = F.interpolate(logits[None], (height, width), mode="bilinear", align_corners=False)[0] > 0
        for mask, found in zip(masks, own[file.name]):
            other = coco_mask.encode(mask.numpy().astype("uint8", order="F"))
            overlaps.append(float(coco_mask.iou([found["rle"]], [other], [0])[0][0]))
    return {**measures, "masks": len(overlaps), "iou_min": min(overlaps), "within": len(overlaps) == 6 * len(files) and min(overlaps) >= IOU_LIMIT}


def check(name, millrace):
    """The measures of one family."""
    torch.set_num_threads(os.cpu_count())
    with tempfile.TemporaryDirectory(prefix="millrace-parity-") as folder:
        folder = Path(folder)
        files = pictures(folder, sizes_for(name))

        def run(recipe, options):
            return found_by_program(millrace, recipe, [*options, "--engine", "torchscript", "--precision", "fp32"], folder / "out")

        kind = check_yolox if name == "yolox_nano" else check_sam if name in sam_checkpoint.FAMILIES else check_ultralytics
        started = time.monotonic()
        row = kind(name, folder, files, run)
        return {"name": name, **row, "within": row["within"] and row["program"], "seconds": round(time.monotonic() - started)}


def table(rows):
    lines = ["| model | weights | outputs of the package against the original | program against the original software |", "|---|---|---|---|"]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['name']} | | | failed: {row['error']} |")
            continue
        result = (
            f"{row['masks']} masks: IoU at least {math.floor(row['iou_min'] * 1e5) / 1e5:.5f}"  # never rounded up
            if "masks" in row
            else f"{row['objects']} boxes: corners within {row['largest_px']:.3f} pixels, {row['unmatched']} in one list only"
        )
        kind = f" ({row['layout']})" if "layout" in row else ""
        weights = "trained" if row["name"] == "yolox_nano" else "seeded"
        share = f"{row['largest_share']:.1e} of the deviation" if row["largest_share"] else "equal"
        lines.append(f"| {row['name']}{kind} | {weights} | {share} | {result}{'' if row['program'] else ', **no model.ep.pt2**'} |")
    return "\n".join(lines) + "\n"


def main():
    millrace, out, *names = sys.argv[1:]
    if names and names[0] == "--one":
        print(json.dumps(check(names[1], millrace)))
        return
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=export_case.REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    rows = []
    for name in names or NAMES:
        # A process for each family returns its memory.
        done = subprocess.run([sys.executable, "-B", __file__, millrace, str(out), "--one", name], capture_output=True, text=True, check=False)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        rows.append(json.loads(last) if done.returncode == 0 else {"name": name, "within": False, "error": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]})
        print(json.dumps(rows[-1]), flush=True)
        found = {**machine.described(), "torch": torch.__version__, "commit": commit, "limits": {"box_px": BOX_LIMIT, "iou": IOU_LIMIT}, "models": rows}
        (out / "parity.json").write_text(json.dumps(found, indent=1) + "\n")
        (out / "parity.md").write_text(table(rows))
    print(table(rows))
    wrong = [row["name"] for row in rows if not row["within"]]
    if wrong:
        sys.exit(f"parity: beyond the limits, or without model.ep.pt2: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
