"""Lays textured, lit pieces on a picture and records which pixels of each stay visible."""

from dataclasses import dataclass

import cv2
import numpy as np

from textures import surface

WIDTH, HEIGHT = 1920, 1080


@dataclass
class Drawn:
    """One object of a scene. Its box encloses the visible pixels: x, y, width, height."""

    label: int
    box: tuple
    mask: np.ndarray  # bool [height, width] of the box: the visible pixels
    covered: float  # share of its silhouette that something else hides


@dataclass
class Patch:
    """A piece to lay on the picture. Pixels with an opacity above 0.5 belong to it."""

    colour: np.ndarray  # float32 [h, w, 3], 0..255
    alpha: np.ndarray  # float32 [h, w], 0..1
    lit: bool  # shaded, and casts a shadow

    @property
    def inside(self):
        return self.alpha > 0.5


def shade(distance, depth, light):
    """Lambert shading and highlight of a relief that rises from the shape's edge over `depth` pixels: [h, w] each."""
    rise = np.clip(distance / depth, 0, 1)
    height = cv2.GaussianBlur(np.sqrt(1 - (1 - rise) ** 2) * depth, (0, 0), max(0.6, depth / 14))
    slope_y, slope_x = np.gradient(height)
    length = np.sqrt(slope_x**2 + slope_y**2 + 1)
    facing = (light[2] - light[0] * slope_x - light[1] * slope_y) / length
    half = np.array([light[0], light[1], light[2] + 1.0])
    half /= np.linalg.norm(half)
    glance = np.clip((half[2] - half[0] * slope_x - half[1] * slope_y) / length, 0, 1)
    return 0.30 + 0.85 * np.clip(facing, 0, 1), 150 * glance**40


def make_patch(rng, polygons, length, hue, textures, light):
    """Fills a shape with a texture. `polygons` are in -1..1. Without a `light`, the piece is a flat print."""
    scale = max(1, int(np.ceil(64 / length)))  # small pieces are drawn larger and averaged down
    angle = rng.uniform(0, 2 * np.pi)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turned = [polygon @ turn.T for polygon in polygons]
    corners = np.concatenate(turned)
    low, high = corners.min(axis=0), corners.max(axis=0)
    zoom = length * scale / (high - low).max()
    size = np.ceil((high - low) * zoom).astype(int) + 8
    size += -size % scale
    points = [((p - (low + high) / 2) * zoom + size / 2 - 0.5) * 16 for p in turned]
    alpha = np.zeros((size[1], size[0]), np.uint8)
    cv2.fillPoly(alpha, [np.round(p).astype(np.int32) for p in points], 255, cv2.LINE_AA, 4)
    colour = surface(rng, int(size[0]), int(size[1]), hue, textures)
    if light is not None:
        distance = cv2.distanceTransform((alpha > 127).astype(np.uint8), cv2.DIST_L2, 5)
        depth = max(2.0, distance.max() * rng.uniform(0.75, 1.0))
        diffuse, highlight = shade(distance, depth, light)
        colour = colour * diffuse[..., None] + highlight[..., None]
    alpha = alpha.astype(np.float32) / 255
    if scale > 1:
        shrunk = (size[0] // scale, size[1] // scale)
        colour = cv2.resize(colour.astype(np.float32), shrunk, interpolation=cv2.INTER_AREA)
        alpha = cv2.resize(alpha, shrunk, interpolation=cv2.INTER_AREA)
    return Patch(np.clip(colour, 0, 255).astype(np.float32), alpha, light is not None)


class Table:
    """The unfinished picture, and the id of the object that each pixel shows (0: none)."""

    def __init__(self, picture, light):
        self.picture = picture
        self.owner = np.zeros((HEIGHT, WIDTH), np.int16)
        self.light = light
        self.laid = {}  # object id -> class, pixels of the whole silhouette, window in the picture

    def window(self, x, y, patch):
        height, width = patch.alpha.shape
        return (slice(y, y + height), slice(x, x + width))

    def lay(self, x, y, patch, identity=0, label=None):
        at = self.window(x, y, patch)
        if patch.lit:
            self.cast_shadow(x, y, patch)
        opacity = patch.alpha[..., None]
        self.picture[at] = self.picture[at] * (1 - opacity) + patch.colour * opacity
        self.owner[at][patch.inside] = identity
        if identity:
            self.laid[identity] = (label, int(patch.inside.sum()), at)

    def cast_shadow(self, x, y, patch):
        height, width = patch.alpha.shape
        reach = max(2, int(0.05 * max(height, width)))
        shift = np.round(-reach * self.light[:2] / np.linalg.norm(self.light[:2])).astype(int)
        spread = cv2.copyMakeBorder(patch.alpha, *(3 * reach,) * 4, cv2.BORDER_CONSTANT)
        spread = cv2.GaussianBlur(spread, (0, 0), 0.6 * reach)
        x0, y0 = x - 3 * reach + shift[0], y - 3 * reach + shift[1]
        left, top = max(0, -x0), max(0, -y0)
        cut = spread[top : HEIGHT - y0, left : WIDTH - x0]
        target = self.picture[max(0, y0) : max(0, y0) + cut.shape[0], max(0, x0) : max(0, x0) + cut.shape[1]]
        target *= (1 - 0.5 * cut)[..., None]

    def drawn(self):
        """The visible parts of the objects, in the order in which they were laid."""
        for identity, (label, full, at) in self.laid.items():
            seen = self.owner[at] == identity
            rows, columns = np.nonzero(seen.any(axis=1))[0], np.nonzero(seen.any(axis=0))[0]
            if len(rows) == 0:
                continue
            mask = seen[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            box = (int(at[1].start + columns[0]), int(at[0].start + rows[0]), mask.shape[1], mask.shape[0])
            yield Drawn(label, box, mask.copy(), 1 - np.count_nonzero(mask) / full)
