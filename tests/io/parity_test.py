#!/usr/bin/env python3
"""Reads what io/ writes with the tools people use: Python's json, pycocotools, Pillow.

    parity_test.py PATH/TO/io_sample_output

Exits 77 (skipped, with the reason) where the python set of tools/setup.sh is not installed."""
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

root = Path(__file__).resolve().parents[2]
python = Path(subprocess.run([root / "tools/setup.sh", "where"], check=True, capture_output=True, text=True).stdout.strip()) / "python/bin/python"
if Path(sys.prefix) != python.parent.parent:
    if not python.exists():
        print(f"skipped: {python} does not exist; tools/setup.sh python installs it")
        sys.exit(77)
    os.execv(python, [str(python), *sys.argv])

import numpy as np
from PIL import Image
from pycocotools import mask as mask_api
from pycocotools.coco import COCO


def path_of(record, key):
    return base64.b64decode(record["path_b64"], validate=True) if "path_b64" in record else record[key].encode()


def check_lines(out):
    frames = {}
    for line in (out / "segments/000000.jsonl").read_bytes().splitlines():
        frame = json.loads(line.decode("utf-8"))
        frames[frame["id"]] = frame
        path = path_of(frame, "path")
        # Python's "replace" follows the same recommendation of Unicode for what is not UTF-8.
        assert frame["path"] == path.decode("utf-8", "replace"), path
    assert sorted(frames) == list(range(40))
    return frames


def check_label_maps(out, frames):
    maps = 0
    for frame in frames.values():
        if frame["state"] != "ok":
            continue
        path = out.joinpath("labels").__fspath__().encode() + b"/" + path_of(frame, "path") + b".png"
        labels = np.asarray(Image.open(open(path, "rb"))).astype(np.int64)
        expected = np.zeros((frame["height"], frame["width"]), np.int64)
        order = sorted(range(len(frame["objects"])), key=lambda i: (frame["objects"][i]["score"], -i))
        for i in order:
            if "rle" in frame["objects"][i]:
                expected[mask_api.decode(frame["objects"][i]["rle"]) == 1] = i + 1
        assert labels.shape == expected.shape and (labels == expected).all(), path
        maps += 1
    assert maps > 20


def check_overlays(out, frames):
    for frame in frames.values():
        if frame["state"] == "ok":
            path = out.joinpath("overlay").__fspath__().encode() + b"/" + path_of(frame, "path") + b".jpg"
            picture = Image.open(open(path, "rb"))
            picture.load()
            assert picture.format == "JPEG" and picture.mode == "RGB" and picture.size == (frame["width"], frame["height"])


def load(path):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(path))


def check_coco(path, frames):
    """Every annotation as pycocotools sees it against the segment line it comes from; returns how many there are."""
    coco = load(path)
    assert coco.dataset["info"]["failed_pictures_left_out"] == sum(frame["state"] == "failed" for frame in frames.values())
    count = 0
    for image_id in coco.getImgIds():
        frame, image = frames[image_id], coco.imgs[image_id]
        assert path_of(image, "file_name") == path_of(frame, "path")
        annotations = coco.loadAnns(sorted(coco.getAnnIds(imgIds=[image_id])))
        assert len(annotations) == len(frame["objects"])
        for annotation, found in zip(annotations, frame["objects"]):
            count += 1
            assert annotation["bbox"] == found["box"] and annotation["score"] == found["score"]
            assert coco.cats[annotation["category_id"]]["name"] == found.get("name", f"class {found['class']}")
            if "rle" not in found:
                continue
            assert annotation["segmentation"] == found["rle"]
            mask = coco.annToMask(annotation)
            assert mask.shape == (image["height"], image["width"]) and mask.sum() == annotation["area"] == found["area"]
    with contextlib.redirect_stdout(io.StringIO()):
        results = coco.loadRes([a for a in coco.dataset["annotations"] if a["segmentation"]])
    assert len(results.anns) == sum(bool(a["segmentation"]) for a in coco.anns.values())
    return count


with tempfile.TemporaryDirectory() as folder:
    out = Path(folder) / "out"
    subprocess.run([sys.argv[1], out], check=True)
    frames = check_lines(out)
    check_label_maps(out, frames)
    check_overlays(out, frames)
    annotations = check_coco(out / "coco.json", frames)
    parts = sorted(out.glob("parts/coco-*.json"))
    assert len(parts) > 3 and sum(check_coco(part, frames) for part in parts) == annotations > 50
    ids = [annotation for part in parts for annotation in load(part).anns]
    assert sorted(ids) == list(range(1, annotations + 1))
    print(f"{annotations} annotations of {len(frames)} pictures read back the same, whole and in {len(parts)} parts")
