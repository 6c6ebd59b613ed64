"""The photograph for comparisons of models, and the preprocessing of each family."""

from pathlib import Path

import cv2
import numpy
import torch
from PIL import Image

from package import Refused, SAM2_INPUT, SAM_INPUT


def drawn(seed=0, width=810, height=1080):
    """The default picture for comparisons: gradients, edges and grain, BGR uint8."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float32)
    pixels = numpy.stack([x / width, y / height, (x + y) / (width + height)], axis=2) * 160 + 40
    for _ in range(40):
        centre = [int(random.integers(0, width)), int(random.integers(0, height))]
        size = [int(v) for v in random.integers(10, 200, 2)]
        colour = [float(v) for v in random.integers(0, 256, 3)]
        if random.random() < 0.5:
            cv2.ellipse(pixels, centre, size, float(random.integers(0, 180)), 0, 360, colour, -1)
        else:
            cv2.rectangle(pixels, centre, [c + s for c, s in zip(centre, size)], colour, -1)
    pixels = cv2.GaussianBlur(pixels, (0, 0), 1.2) + random.normal(0, 6, pixels.shape)
    return pixels.clip(0, 255).astype(numpy.uint8)


def read(path):
    """Pixels of the photograph, BGR uint8, or of a drawn picture if `path` is None. Prints which."""
    if path is None:
        print("comparing on a picture drawn from a seed; to use a photograph of yours, add --photograph FILE (make: PHOTOGRAPH=FILE)")
        return drawn()
    pixels = cv2.imread(str(path), cv2.IMREAD_COLOR) if Path(path).is_file() else None
    if pixels is None:
        raise Refused(f"{path}: {'cannot be read as a picture' if Path(path).exists() else 'does not exist'}; --photograph takes a JPEG or PNG file")
    print(f"comparing on {path} ({pixels.shape[1]} x {pixels.shape[0]})")
    return pixels


def three_views(pixels):
    """A batch of different pictures of one size: the picture mirrored, upside down, and unchanged."""
    return [numpy.ascontiguousarray(view) for view in (pixels[:, ::-1], pixels[::-1], pixels)]


def planes(pixels):
    return torch.from_numpy(numpy.ascontiguousarray(pixels.transpose(2, 0, 1))).float()


def ultralytics_letterbox(pixels, height, width):
    """The input of Ultralytics' own letterbox, [1, 3, height, width], RGB in 0..1, and the picture's scale in it."""
    from ultralytics.data.augment import LetterBox

    boxed = LetterBox((height, width), auto=False)(image=pixels)
    return planes(boxed[:, :, ::-1])[None] / 255, min(height / pixels.shape[0], width / pixels.shape[1])


def ultralytics_stretch(pixels, height, width):
    """The input of Ultralytics' RT-DETR, [1, 3, height, width], RGB in 0..1, and the smaller scale of the picture in it."""
    from ultralytics.data.augment import LetterBox

    stretched = LetterBox((height, width), auto=False, scale_fill=True)(image=pixels)
    return planes(stretched[:, :, ::-1])[None] / 255, min(height / pixels.shape[0], width / pixels.shape[1])


def yolox_letterbox(pixels, height, width):
    """YOLOX's input: at the top left on 114, sides rounded down, BGR in 0..255; and the scale of the picture in it."""
    scale = min(height / pixels.shape[0], width / pixels.shape[1])
    rows, columns = int(pixels.shape[0] * scale), int(pixels.shape[1] * scale)
    padded = numpy.full((height, width, 3), 114, numpy.uint8)
    padded[:rows, :columns] = cv2.resize(pixels, (columns, rows), interpolation=cv2.INTER_LINEAR)
    return planes(padded)[None], scale


def sam_longest_side(pixels, side):
    """SAM's input, and the scales of the picture in it along x and y.

    The longest side is `side`, by Pillow's antialiased bilinear filter. It is normalised, with zeros at the right and bottom.
    """
    scale = side / max(pixels.shape[:2])
    rows, columns = (int(length * scale + 0.5) for length in pixels.shape[:2])
    resized = numpy.asarray(Image.fromarray(pixels[:, :, ::-1]).resize((columns, rows), Image.Resampling.BILINEAR))
    mean, std = (torch.tensor(SAM_INPUT[key])[:, None, None] for key in ("mean", "std"))
    padded = torch.zeros(1, 3, side, side)
    padded[0, :, :rows, :columns] = (planes(resized) - mean) / std
    return padded, (scale, scale)


def sam2_square(pixels, side):
    """SAM 2's input: both sides are `side`, by the same filter; and the scales of the picture in it along x and y."""
    resized = numpy.asarray(Image.fromarray(pixels[:, :, ::-1]).resize((side, side), Image.Resampling.BILINEAR))
    mean, std = (torch.tensor(SAM2_INPUT[key])[:, None, None] for key in ("mean", "std"))
    return ((planes(resized) / 255 - mean) / std)[None], (side / pixels.shape[1], side / pixels.shape[0])
