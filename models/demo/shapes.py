"""Outlines of the drawn objects, and of pieces without a class: polygons to fill by the even-odd rule.

Each function takes a random generator and returns a list of float arrays [points, 2]. Their scale does not matter.
"""

import numpy as np


def circle(radius=1.0, centre=(0, 0), points=64):
    angle = np.arange(points) / points * 2 * np.pi
    return np.stack([centre[0] + radius * np.cos(angle), centre[1] + radius * np.sin(angle)], axis=1)


def polar(radius, points=180):
    """The curve radius(angle)."""
    angle = np.arange(points) / points * 2 * np.pi
    distance = radius(angle)
    return np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)


def corners(*points):
    return np.array(points, float)


def ball(rng):
    return [circle()]


def ring(rng):
    return [circle(), circle(rng.uniform(0.45, 0.6))]


def cube(rng):
    tall = rng.uniform(0.85, 1.0)
    return [corners((-1, -tall), (1, -tall), (1, tall), (-1, tall))]


def star(rng):
    inner = rng.uniform(0.42, 0.5)
    angle = np.arange(10) * np.pi / 5
    return [np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.where(np.arange(10) % 2, inner, 1)[:, None]]


def rod(rng):
    half, radius = 1.0, rng.uniform(0.38, 0.46)
    turn = np.arange(33) / 32 * np.pi - np.pi / 2
    right = np.stack([half + radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    return [np.concatenate([right, -right])]


def cross(rng):
    a = rng.uniform(0.28, 0.36)
    return [corners((-a, -1), (a, -1), (a, -a), (1, -a), (1, a), (a, a), (a, 1), (-a, 1), (-a, a), (-1, a), (-1, -a), (-a, -a))]


def nut(rng):
    return [circle(points=6), circle(rng.uniform(0.4, 0.52))]


def gear(rng):
    teeth, depth = int(rng.integers(8, 12)), rng.uniform(0.16, 0.22)
    return [polar(lambda a: 1 - depth * (np.sin(a * teeth) < 0), 400), circle(0.22)]


def bolt(rng):
    head, shaft = rng.uniform(0.5, 0.6), rng.uniform(0.22, 0.28)
    return [corners((-1, -head), (-0.5, -head), (-0.5, -shaft), (1, -shaft), (1, shaft), (-0.5, shaft), (-0.5, head), (-1, head))]


def bracket(rng):
    a = rng.uniform(0.5, 0.65)
    return [corners((-1, -1), (1, -1), (1, -1 + a), (-1 + a, -1 + a), (-1 + a, 1), (-1, 1))]


def wedge(rng):
    return [corners((-1, -0.8), (1, -0.8), (rng.uniform(-0.3, 0.3), 0.9))]


def clip(rng):
    """A wide arc of constant thickness."""
    inner, half = rng.uniform(0.5, 0.6), rng.uniform(1.9, 2.2)
    turn = np.linspace(-half, half, 60)
    arc = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return [np.concatenate([arc, arc[::-1] * inner])]


def heart(rng):
    t = np.arange(120) / 120 * 2 * np.pi
    return [np.stack([16 * np.sin(t) ** 3, -13 * np.cos(t) + 5 * np.cos(2 * t) + 2 * np.cos(3 * t) + np.cos(4 * t)], axis=1)]


def drop(rng):
    t = np.arange(120) / 120 * 2 * np.pi
    return [np.stack([np.cos(t), rng.uniform(0.62, 0.78) * np.sin(t) * np.sin(t / 2) ** 1.5], axis=1)]


def bone(rng):
    shaft, knob = rng.uniform(0.18, 0.22), rng.uniform(0.34, 0.4)
    x = np.linspace(-1, 1, 120)
    half = np.sqrt(np.clip(knob**2 - (np.abs(x) - (1 - knob)) ** 2, 0, None))
    half = np.where(np.abs(x) < 1 - knob, np.maximum(half, shaft), half)
    return [np.concatenate([np.stack([x, half], axis=1), np.stack([x[::-1], -half[::-1]], axis=1)])]


def leaf(rng):
    wide = rng.uniform(0.42, 0.52)
    x = np.linspace(-1, 1, 60)
    edge = wide * (1 - np.abs(x) ** 1.6)
    return [np.concatenate([np.stack([x, edge], axis=1), np.stack([x[::-1], -edge[::-1]], axis=1)])]


def shell(rng):
    """A fan: half a disc with a scalloped rim."""
    turn = np.linspace(0, np.pi, 120)
    radius = 1 - 0.09 * np.abs(np.sin(turn * 6))
    return [np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)]


def flower(rng):
    depth = rng.uniform(0.26, 0.34)
    return [polar(lambda a: 1 - depth + depth * np.abs(np.cos(2.5 * a)) ** 0.7)]


SHAPES = {
    shape.__name__: shape
    for shape in (ball, ring, cube, star, rod, cross, nut, gear, bolt, bracket, wedge, clip, heart, drop, bone, leaf, shell, flower)
}


def random_piece(rng, lit):
    """An outline of no class: a strip or a ragged polygon. Lit pieces are never strips, which would look like rods."""
    if not lit and rng.random() < 0.35:
        wide = rng.uniform(0.06, 0.5)
        return [corners((-1, -wide), (1, -wide), (1, wide), (-1, wide))]
    count = int(rng.integers(5, 9))
    angle = np.sort(rng.uniform(0, 2 * np.pi, count)) + np.linspace(0, 0.5, count)
    radius = rng.uniform(0.25, 1, count) * (1.0 if rng.random() < 0.5 else np.linspace(0.5, 1, count))
    return [np.stack([radius * np.cos(angle), rng.uniform(0.5, 1) * radius * np.sin(angle)], axis=1)]
