"""Drawn scenes as the two networks see them, kept on disk: dataset.py OUT --view front --scenes 1600 --seed 100000

One folder a view: detector.npy u8 [N, 234, 416, 3] and segmenter.npy u8 [N, 288, 512, 3] (RGB, resized as millrace does it),
objects.npz with a row an object: scene, label, box (x, y, w, h in pixels of the scene), mask u8 [GRID, GRID] over its box; `drawn` says
what was asked for: scenes, first seed, whether the textures are those held out.
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
GRID = 64  # points across a box at which its mask is kept


def resized(picture, side):
    """BGR picture -> RGB, its longer side `side`, filtered as the packages say: pil_bilinear_antialias."""
    size = (side, side * HEIGHT // WIDTH)
    return np.asarray(Image.fromarray(picture[..., ::-1]).resize(size, Image.Resampling.BILINEAR))


def seen(task):
    view, seed, textures = task
    cv2.setNumThreads(1)
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
    """Draws scenes seed .. seed + scenes - 1, unless they are there. Ends the program where others are."""
    out = Path(out)
    wanted = [scenes, seed, textures == "held_out"]
    if (out / "objects.npz").exists():
        kept = np.load(out / "objects.npz")
        if "drawn" not in kept or kept["drawn"].tolist() != wanted:
            sys.exit(f"{out}: holds other scenes than {scenes} from seed {seed}; remove the folder, and they are drawn")
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
    (out / "objects.new.npz").rename(out / "objects.npz")  # last: by it the folder counts as done


@dataclass
class Scenes:
    """A folder of `make`, with the objects of scene i in rows first[i] : first[i + 1]."""

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
