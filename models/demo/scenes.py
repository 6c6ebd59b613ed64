"""Draws the scenes that the built-in models know: scenes.py OUT [--scenes 16] [--seed 1]

A scene is a picture of 1920x1080 from one of three cameras (views):
- 5 to 20 textured, lit objects of the view's six classes, 24 to 400 pixels long; a third are covered by 15 to 60 %
- at least 20 distractors of the same textures and colours: flat prints, and lit pieces of no class
- a textured ground
- blur, noise and JPEG artefacts

A scene depends only on (view, seed, textures).

The command writes OUT/<view>/<number>.jpg for each view and OUT/drawn-scenes.json, the truth as COCO annotations.
Needs numpy and OpenCV only (Debian: python3-numpy, python3-opencv).
"""

import argparse
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from render import HEIGHT, WIDTH, Table, make_patch
from shapes import SHAPES, random_piece
from textures import ground

OBJECTS = (5, 20)
LENGTHS = (24.0, 400.0)  # of an object, in pixels of the picture
LENGTH_SHAPE = (2.0, 1.2)  # parameters of the Beta distribution of their logarithms
PRINTS, PIECES = (64.0, 320.0), (96.0, 320.0)  # lengths of flat and of lit distractors
COVERED_SHARE = 1 / 3
COVER = (0.15, 0.60)
OBJECT_COVERS = 0.12  # share of the covers that are objects themselves; the others are flat pieces
TRIES = 30
TRUTH = "drawn-scenes.json"  # Millrace recognises a folder of drawn scenes by this file


@dataclass(frozen=True)
class View:
    """A camera: the classes that it sees, their colours, and the look of the place."""

    classes: tuple  # names of shapes.SHAPES
    hues: tuple  # of each class, in degrees
    ground_hue: float
    ground_value: tuple  # darkest and brightest mean grey of the ground
    warmth: float  # of the lamp: more red and less blue by this share


VIEWS = {
    "front": View(("ball", "ring", "cube", "star", "rod", "cross"), (5, 35, 120, 210, 275, 325), 30, (120, 170), 0.06),
    "left": View(("nut", "gear", "bolt", "bracket", "wedge", "clip"), (210, 35, 0, 120, 60, 300), 215, (70, 120), -0.06),
    "right": View(("heart", "drop", "bone", "leaf", "shell", "flower"), (350, 200, 50, 110, 20, 280), 90, (150, 200), 0.0),
}


@dataclass
class Scene:
    picture: np.ndarray  # uint8 [HEIGHT, WIDTH, 3], BGR
    objects: list


def place(rng, patch):
    height, width = patch.alpha.shape
    return int(rng.integers(0, WIDTH - width)), int(rng.integers(0, HEIGHT - height))


def lay_object(rng, table, patch, identity, label):
    """Lays an object where no other object is. Returns its corner, or None if it found no room."""
    for _ in range(TRIES):
        x, y = place(rng, patch)
        if not table.owner[table.window(x, y, patch)][patch.inside].any():
            table.lay(x, y, patch, identity, label)
            return (x, y)
    return None


def lay_cover(rng, table, below, cover, wanted, identity=0, label=None):
    """Moves `cover` towards the object `below` = (identity, x, y, patch) until it hides about the share `wanted` of it.

    Returns the corner of the cover, or None if no place was found.
    """
    target, tx, ty, patch = below
    height, width = cover.alpha.shape
    for _ in range(TRIES):
        angle = rng.uniform(0, 2 * np.pi)
        away = np.array([np.cos(angle), np.sin(angle)])
        centre = np.array([tx + patch.alpha.shape[1] / 2, ty + patch.alpha.shape[0] / 2])
        near, far = 0.0, (max(width, height) + max(patch.alpha.shape)) * 0.75
        for _ in range(9):
            middle = (near + far) / 2
            x, y = np.round(centre + away * middle - np.array([width, height]) / 2).astype(int)
            if x < 0 or y < 0 or x + width > WIDTH or y + height > HEIGHT:
                break
            seen = table.owner[table.window(x, y, cover)]
            under = seen[cover.inside]
            hidden = np.count_nonzero(under == target) / table.laid[target][1]
            if abs(hidden - wanted) < 0.03:
                if not ((under != 0) & (under != target)).any():
                    table.lay(x, y, cover, identity, label)
                    return (x, y)
                break
            near, far = (middle, far) if hidden > wanted else (near, middle)
    return None


def lay_all(rng, table, view, textures):
    light = table.light
    count = int(rng.integers(OBJECTS[0], OBJECTS[1] + 1))
    for _ in range(int(rng.integers(20, 33))):
        lit = rng.random() < 0.25
        length = np.exp(rng.uniform(*np.log(PIECES if lit else PRINTS)))
        piece = make_patch(rng, random_piece(rng, lit), length, rng.choice(view.hues), textures, light if lit else None)
        table.lay(*place(rng, piece), piece)

    def new_object():
        label = int(rng.integers(len(view.classes)))
        shortest, longest = np.log(LENGTHS)
        length = np.exp(shortest + (longest - shortest) * rng.beta(*LENGTH_SHAPE))
        patch = make_patch(rng, SHAPES[view.classes[label]](rng), length, view.hues[label], textures, light)
        return label, patch

    # The largest first, since they need the most room.
    # Covers go only to the larger two thirds, so that enough of an object stays visible.
    waiting = sorted((new_object() for _ in range(count)), key=lambda item: -item[1].alpha.size)
    to_cover = set(rng.permutation(max(2, count * 2 // 3))[: round(count * COVERED_SHARE)])
    identity = 0
    for position in range(count):
        if not waiting:
            break
        label, patch = waiting.pop(0)
        at = lay_object(rng, table, patch, identity + 1, label)
        if at is None:
            continue
        identity += 1
        if position not in to_cover:
            continue
        below, wanted = (identity, *at, patch), rng.uniform(COVER[0] + 0.03, COVER[1] - 0.03)
        if waiting and rng.random() < OBJECT_COVERS and waiting[0][1].inside.sum() > 1.2 * wanted * patch.inside.sum():
            label, cover = waiting[0]
            if lay_cover(rng, table, below, cover, wanted, identity + 1, label):
                waiting.pop(0)
                identity += 1
                continue
        for stretch in (1.0, 1.5, 2.0):
            length = np.clip(max(patch.alpha.shape) * stretch * rng.uniform(0.7, 1.2), 20, 400)
            cover = make_patch(rng, random_piece(rng, False), length, rng.choice(view.hues), textures, None)
            if lay_cover(rng, table, below, cover, wanted):
                break


@lru_cache(maxsize=1)
def noise_field():
    return np.random.default_rng(7).standard_normal((HEIGHT + 256, WIDTH + 256, 3), dtype=np.float32)


def photograph(rng, picture, view):
    """Adds what a camera adds: uneven light, the lamp's colour, blur, noise. Returns the picture and a JPEG quality."""
    across, down = rng.uniform(-0.15, 0.15, 2)
    x, y = np.linspace(-1, 1, WIDTH, dtype=np.float32), np.linspace(-1, 1, HEIGHT, dtype=np.float32)
    gain = rng.uniform(0.85, 1.1) * (1 + across * x[None, :] + down * y[:, None])
    warm = view.warmth + rng.uniform(-0.04, 0.04)
    picture *= gain[..., None] * np.array([1 - warm, 1, 1 + warm], np.float32)
    blur = rng.uniform(0, 1.4)
    if blur > 0.3:
        picture = cv2.GaussianBlur(picture, (0, 0), blur)
    dx, dy = rng.integers(0, 256, 2)
    picture += rng.uniform(2, 7) * noise_field()[dy : dy + HEIGHT, dx : dx + WIDTH]
    quality = int(rng.integers(60, 96))
    return np.clip(picture, 0, 255).astype(np.uint8), quality


def draw(view_name, seed, textures="train"):
    """Draws a scene and returns (Scene, bytes of its JPEG). The scene's picture is decoded from the JPEG.

    `textures` is 'train' or 'held_out'.
    """
    view = VIEWS[view_name]
    rng = np.random.default_rng([list(VIEWS).index(view_name), seed, textures == "held_out"])
    azimuth = rng.uniform(0, 2 * np.pi)
    light = np.array([np.cos(azimuth) * 0.62, np.sin(azimuth) * 0.62, 0.78])
    table = Table(ground(rng, WIDTH, HEIGHT, view.ground_hue, view.ground_value, textures), light)
    lay_all(rng, table, view, textures)
    picture, quality = photograph(rng, table.picture, view)
    jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return Scene(cv2.imdecode(jpeg, cv2.IMREAD_COLOR), list(table.drawn())), jpeg.tobytes()


def run_lengths(found):
    """COCO's uncompressed run lengths of an object's mask: down the columns, zeros first."""
    x, y, width, height = found.box
    whole = np.zeros((HEIGHT, WIDTH), bool)
    whole[y : y + height, x : x + width] = found.mask
    flat = whole.T.reshape(-1)
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate([[0], changes, [flat.size]]) if not flat[0] else np.concatenate([[0, 0], changes, [flat.size]])
    return {"size": [HEIGHT, WIDTH], "counts": np.diff(edges).tolist()}


class Truth:
    """The drawn objects as a COCO data set. Classes are numbered over all views, from 1."""

    def __init__(self):
        names = [name for view in VIEWS.values() for name in view.classes]
        self.document = {
            "info": {"description": "Scenes drawn by models/demo/scenes.py of Millrace"},
            "images": [],
            "annotations": [],
            "categories": [{"id": i + 1, "name": name} for i, name in enumerate(names)],
        }
        self.category = {name: i + 1 for i, name in enumerate(names)}

    def add(self, view_name, path, scene):
        image = len(self.document["images"]) + 1
        self.document["images"].append({"id": image, "file_name": path, "width": WIDTH, "height": HEIGHT})
        for found in scene.objects:
            self.document["annotations"].append(
                {
                    "id": len(self.document["annotations"]) + 1,
                    "image_id": image,
                    "category_id": self.category[VIEWS[view_name].classes[found.label]],
                    "bbox": list(found.box),
                    "area": int(np.count_nonzero(found.mask)),
                    "iscrowd": 0,
                    "segmentation": run_lengths(found),
                }
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenes", type=int, default=16, help="of each view (default 16)")
    parser.add_argument("--seed", type=int, default=1, help="of the first scene (default 1)")
    parser.add_argument("--textures", choices=("train", "held_out"), default="held_out")
    arguments = parser.parse_args()
    truth = Truth()
    for view_name in VIEWS:
        (arguments.out / view_name).mkdir(parents=True, exist_ok=True)
        for number in range(arguments.scenes):
            scene, jpeg = draw(view_name, arguments.seed + number, arguments.textures)
            path = f"{view_name}/{number:04}.jpg"
            (arguments.out / path).write_bytes(jpeg)
            truth.add(view_name, path, scene)
    (arguments.out / TRUTH).write_text(json.dumps(truth.document) + "\n")
    print(f"drew {len(truth.document['images'])} scenes with {len(truth.document['annotations'])} objects in {arguments.out}")


if __name__ == "__main__":
    main()
