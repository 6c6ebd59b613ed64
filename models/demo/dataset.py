"""Draws scenes and stores them in the networks' sizes: dataset.py OUT --view front --scenes 1600 --seed 100000

OUT has the scenes of one view, in three files:
- detector.npy: u8 [N, 234, 416, 3], RGB, resized as Millrace resizes
- segmenter.npy: u8 [N, 288, 512, 3], the same
- objects.npz: one row per object, with scene, label, box and mask.
  The box is x, y, w, h in pixels of the scene. The mask is u8 [GRID, GRID] over the box.
  Its array `drawn` has the arguments: scenes, first seed, and 1 for held-out textures.
"""

import argparse
import multiprocessing
import sys
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from scenes import HEIGHT, VIEWS, WIDTH, draw

DETECTOR_SIDE, SEGMENTER_SIDE = 416, 512
GRID = 64  # a mask is stored at GRID x GRID points of its box


def resized(picture, side):
    """Converts a picture from BGR to RGB and scales its longer side to `side`.

    The filter is that of the packages: pil_bilinear_antialias.
    """
    size = (side, side * HEIGHT // WIDTH)
    return np.asarray(Image.fromarray(picture[..., ::-1]).resize(size, Image.Resampling.BILINEAR))


def seen(task):
    """A scene in both sizes, and labels, boxes and masks of its objects. `task` is (view, seed, textures)."""
    view, seed, textures = task
    cv2.setNumThreads(1)  # each core has a process already
    scene, _ = draw(view, seed, textures)
    masks = [
        cv2.resize(found.mask.astype(np.uint8) * 255, (GRID, GRID), interpolation=cv2.INTER_AREA if min(found.mask.shape) > GRID else cv2.INTER_LINEAR)
        for found in scene.objects
    ]
    return (
        resized(scene.picture, DETECTOR_SIDE),
        resized(scene.picture, SEGMENTER_SIDE),
        [found.label for found in scene.objects],
        [found.box for found in scene.objects],
        masks,
    )


def make(out, view, scenes, seed, textures="train", workers=2):
    """Draws scenes seed .. seed + scenes - 1, unless `out` has them. Ends the program if `out` has others."""
    out = Path(out)
    wanted = [scenes, seed, textures == "held_out"]
    if (out / "objects.npz").exists():
        kept = np.load(out / "objects.npz")
        if "drawn" not in kept or kept["drawn"].tolist() != wanted:
            sys.exit(f"{out}: does not have {scenes} scenes from seed {seed} with {textures} textures; remove it, run again")
        return
    out.mkdir(parents=True, exist_ok=True)
    rows = SEGMENTER_SIDE * HEIGHT // WIDTH
    small = np.lib.format.open_memmap(out / "detector.npy", "w+", np.uint8, (scenes, DETECTOR_SIDE * HEIGHT // WIDTH, DETECTOR_SIDE, 3))
    large = np.lib.format.open_memmap(out / "segmenter.npy", "w+", np.uint8, (scenes, rows, SEGMENTER_SIDE, 3))
    scene_of, labels, boxes, masks = [], [], [], []
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        tasks = ((view, seed + i, textures) for i in range(scenes))
        for i, (detector, segmenter, label, box, mask) in enumerate(pool.imap(seen, tasks, chunksize=4)):
            small[i], large[i] = detector, segmenter
            scene_of += [i] * len(label)
            labels, boxes, masks = labels + label, boxes + box, masks + mask
    columns = {"scene": np.array(scene_of, np.int64), "label": np.array(labels, np.int64), "box": np.array(boxes, np.float32), "mask": np.stack(masks)}
    np.savez(out / "objects.new.npz", drawn=np.array(wanted, np.int64), **columns)
    (out / "objects.new.npz").rename(out / "objects.npz")  # last: this file marks the folder as complete


@dataclass
class Scenes:
    """The arrays of a folder from make(). The objects of scene i are in rows first[i] : first[i + 1]."""

    detector: np.ndarray
    segmenter: np.ndarray
    label: np.ndarray
    box: np.ndarray
    mask: np.ndarray
    first: np.ndarray

    def __len__(self):
        return len(self.detector)

    def rows(self, scene):
        return slice(self.first[scene], self.first[scene + 1])


def load(folder):
    folder = Path(folder)
    objects = np.load(folder / "objects.npz")
    detector = np.load(folder / "detector.npy", mmap_mode="r")
    first = np.searchsorted(objects["scene"], np.arange(len(detector) + 1))
    return Scenes(detector, np.load(folder / "segmenter.npy", mmap_mode="r"), objects["label"], objects["box"], objects["mask"], first)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--view", choices=VIEWS, required=True)
    parser.add_argument("--scenes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--textures", choices=("train", "held_out"), default="train")
    arguments = parser.parse_args()
    make(arguments.out, arguments.view, arguments.scenes, arguments.seed, arguments.textures)


if __name__ == "__main__":
    main()
