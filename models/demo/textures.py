"""Textures of the drawn scenes: patterns made from a number. 'train' and 'held_out' have no pattern in common."""

from functools import lru_cache

import cv2
import numpy as np

SETS = {"train": range(0, 120), "held_out": range(1000, 1040)}
SIDE = 512


def smooth_noise(rng, cells):
    """Noise with `cells` bumps per side, about 0..1: [SIDE, SIDE]."""
    coarse = rng.random((cells, cells), dtype=np.float32)
    return cv2.resize(coarse, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)


def stripes(rng, x, y):
    bend = 0.6 * smooth_noise(rng, 4)
    return np.sin(2 * np.pi * (rng.integers(6, 20) * x + bend)) * rng.uniform(1, 4)


def checker(rng, x, y):
    count = rng.integers(5, 16)
    return np.sin(2 * np.pi * count * x) * np.sin(2 * np.pi * count * y) * 5


def dots(rng, x, y):
    count = rng.integers(6, 18)
    return (np.cos(2 * np.pi * count * x) + np.cos(2 * np.pi * count * y) - rng.uniform(0.2, 1.2)) * 4


def marble(rng, x, y):
    turbulence = sum(smooth_noise(rng, cells) / (i + 1) for i, cells in enumerate((4, 9, 20, 45)))
    return np.sin(2 * np.pi * (rng.uniform(1, 3) * x + 2.0 * turbulence)) * 1.5


def grain(rng, x, y):
    lines = cv2.resize(rng.standard_normal((rng.integers(6, 14), rng.integers(90, 200))).astype(np.float32), (SIDE, SIDE))
    return lines * 1.5


def speckle(rng, x, y):
    cells = int(rng.integers(60, 160))
    return (smooth_noise(rng, cells) - rng.uniform(0.35, 0.65)) * 8


def weave(rng, x, y):
    count = rng.integers(10, 26)
    over = np.sin(np.pi * count * x) * np.sin(np.pi * count * y) > 0
    return np.where(over, np.sin(2 * np.pi * count * x), np.sin(2 * np.pi * count * y)).astype(np.float32) * 2


FAMILIES = (stripes, checker, dots, marble, grain, speckle, weave)


@lru_cache(maxsize=256)
def pattern(number):
    """Pattern `number`, 0..1: float32 [SIDE, SIDE]."""
    rng = np.random.default_rng([20, number])
    steps = np.arange(SIDE, dtype=np.float32) / SIDE
    value = FAMILIES[number % len(FAMILIES)](rng, steps[None, :], steps[:, None])
    value = np.broadcast_to(value, (SIDE, SIDE)) + 0.3 * (smooth_noise(rng, 100) - 0.5)
    return (1 / (1 + np.exp(-value))).astype(np.float32)


def stretch(rng, number, width, height, zoom):
    """Pattern `number`, turned by a random angle and enlarged by `zoom`: [height, width]."""
    turn = cv2.getRotationMatrix2D((SIDE / 2, SIDE / 2), rng.uniform(0, 360), zoom)
    turn[:, 2] += rng.uniform(-SIDE / 2, SIDE / 2, 2)
    return cv2.warpAffine(pattern(number), turn, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)


def colour(hue, saturation, value):
    """Degrees, 0..1, 0..1 -> blue, green, red in 0..255."""
    pixel = np.array([[[hue % 360, np.clip(saturation, 0, 1), np.clip(value, 0, 1)]]], np.float32)
    return cv2.cvtColor(pixel, cv2.COLOR_HSV2BGR)[0, 0] * 255


def surface(rng, width, height, hue, textures):
    """A textured surface of about `hue`: float32 [height, width, 3], blue first."""
    number = int(rng.choice(SETS[textures]))
    mixed = stretch(rng, number, width, height, np.exp(rng.uniform(-1.0, 0.4)))[..., None]
    saturation, value = rng.uniform(0.45, 0.9), rng.uniform(0.5, 0.95)
    one = colour(hue + rng.normal(0, 7), saturation, value)
    other = colour(hue + rng.normal(0, 9), saturation * rng.uniform(0.5, 1.1), value * rng.uniform(0.45, 0.85))
    return one * mixed + other * (1 - mixed)


def ground(rng, width, height, hue, brightness, textures):
    """The background of a scene: float32 [height, width, 3], blue first."""
    number = int(rng.choice(SETS[textures]))
    mixed = stretch(rng, number, width, height, np.exp(rng.uniform(0.0, 1.1)))[..., None]
    value, contrast = rng.uniform(*brightness) / 255, rng.uniform(0.08, 0.3)
    one = colour(hue + rng.normal(0, 12), rng.uniform(0.1, 0.35), value * (1 + contrast))
    other = colour(hue + rng.normal(0, 12), rng.uniform(0.1, 0.35), value * (1 - contrast))
    return one * mixed + other * (1 - mixed)
