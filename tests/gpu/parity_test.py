#!/usr/bin/env python3
"""Compares the numeric core with the tools it has to agree with: OpenCV, Pillow, torchvision, Ultralytics, the original
SAM's resizing in PyTorch, pycocotools, ONNX Runtime. Usage: parity_test.py <path of the program parity>.

Exits 77 (skipped, with the reason) where the python set of tools/setup.sh is not installed."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

root = Path(__file__).resolve().parents[2]
python = Path(subprocess.run([root / "tools/setup.sh", "where"], check=True, capture_output=True, text=True).stdout.strip()) / "python/bin/python"
if Path(sys.prefix) != python.parent.parent:
    if not python.exists():
        print(f"skipped: {python} does not exist; tools/setup.sh python installs it")
        sys.exit(77)
    os.execv(python, [str(python), *sys.argv])

import cv2
import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from pycocotools import mask as coco

torch.set_num_threads(1)  # a team of two would wait for each other on a busy machine
data = Path(os.environ.get("MILLRACE_TEST_DATA", root.parent / "shared/data"))
rng = np.random.default_rng(1)
failures = []


class Parity:
    """One running driver; arrays go in and out by way of files."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.input, self.output = Path(folder) / "in", Path(folder) / "out"

    def __call__(self, command, array, dtype, *arguments):
        self.input.write_bytes(array if isinstance(array, bytes) else np.ascontiguousarray(array).tobytes())
        print(command, self.input, self.output, *arguments, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        assert answer == "ok", f"{command} {arguments}: {answer or 'the driver died'}"
        return np.frombuffer(self.output.read_bytes(), dtype)


def check(what, good, detail=""):
    if not good:
        failures.append(f"{what} {detail}")
        print(f"FAILED {what} {detail}")


def pictures():
    yield "noise", rng.integers(0, 256, (97, 131, 3), np.uint8)
    for name in ("street", "picture1"):
        file = data / f"pictures/{name}.jpg"
        if file.exists():
            yield name, np.asarray(Image.open(file).convert("RGB"))
        else:
            print(f"without {file}")


def test_resize(run):
    sizes = [(1, 1), (1, 9), (9, 1), (131, 97), (64, 48), (65, 97), (131, 50), (262, 194), (416, 312), (1024, 576), (33, 700), (66, 49)]
    inputs = [*pictures(), *((f"{w}x{h}", rng.integers(0, 256, (h, w, 3), np.uint8)) for w, h in [(1, 1), (1, 50), (50, 1), (2, 2), (5000, 3), (3, 5000), (32767, 1)])]
    for name, picture in inputs:
        height, width = picture.shape[:2]
        for w, h in sizes:
            for kind, expected in (("cv2", cv2.resize(picture, (w, h), interpolation=cv2.INTER_LINEAR)), ("pil", np.asarray(Image.fromarray(picture).resize((w, h), Image.BILINEAR)))):
                got = run("letterbox", picture, np.float32, kind, w, h, width, height).reshape(3, h, w).transpose(1, 2, 0)
                wrong = np.count_nonzero(got != expected)
                check(f"resize {kind} {name} to {w}x{h}", wrong == 0, f"{wrong} of {expected.size} values differ, by {np.abs(got - expected).max()} at most")


def yolox_input(picture, width, height):
    ratio = min(height / picture.shape[0], width / picture.shape[1])
    bgr = picture[:, :, ::-1].copy()
    resized = cv2.resize(bgr, (int(picture.shape[1] * ratio), int(picture.shape[0] * ratio)), interpolation=cv2.INTER_LINEAR)
    padded = np.full((height, width, 3), 114, np.uint8)
    padded[: resized.shape[0], : resized.shape[1]] = resized
    return padded.transpose(2, 0, 1).astype(np.float32)


def ultralytics_input(picture, width, height):
    from ultralytics.data.augment import LetterBox

    boxed = LetterBox((height, width), auto=False)(image=picture)
    return torch.from_numpy(np.ascontiguousarray(boxed.transpose(2, 0, 1))).float().div(255).numpy()


def sam_input(picture, side, _):
    scale = side / max(picture.shape[:2])
    height, width = int(picture.shape[0] * scale + 0.5), int(picture.shape[1] * scale + 0.5)
    resized = np.array(torchvision.transforms.functional.resize(Image.fromarray(picture), [height, width]))
    x = torch.as_tensor(resized).permute(2, 0, 1)
    mean, std = torch.tensor([123.675, 116.28, 103.53]).view(-1, 1, 1), torch.tensor([58.395, 57.12, 57.375]).view(-1, 1, 1)
    return F.pad((x - mean) / std, (0, side - width, 0, side - height)).numpy()


def sam2_input(picture, width, height):
    """SAM2Transforms of SAM 2: it resizes numbers in 0..1, so it never rounds to levels."""
    transforms = torchvision.transforms
    resized = transforms.Resize((height, width))(transforms.ToTensor()(picture.copy()))
    return transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])(resized).numpy()


def rtdetr_input(picture, width, height):
    from ultralytics.data.augment import LetterBox

    stretched = LetterBox((height, width), auto=False, scale_fill=True)(image=picture)
    return torch.from_numpy(np.ascontiguousarray(stretched.transpose(2, 0, 1))).float().div(255).numpy()


# Preset, its original, sizes, and by how much a value may differ. SAM 2: one level of 255, and the rounding of float32.
# Millrace resizes for SAM 2 as Pillow does, which rounds to levels after each of two directions.
INPUTS = (
    ("yolox", yolox_input, [(416, 416), (640, 384)], 0),
    ("ultralytics", ultralytics_input, [(640, 640), (320, 512)], 0),
    ("rtdetr", rtdetr_input, [(640, 640), (320, 512)], 0),
    ("sam", sam_input, [(1024, 1024)], 0),
    ("sam2", sam2_input, [(1024, 1024)], 1.001 / 255 / 0.224),
)


def test_letterbox(run):
    largest = {}
    inputs = [*pictures(), *((f"{w}x{h}", rng.integers(0, 256, (h, w, 3), np.uint8)) for w, h in [(1, 1), (333, 1000), (1000, 667), (641, 479), (640, 640), (1024, 33)])]
    for name, picture in inputs:
        for kind, original, sizes, allowed in INPUTS:
            for w, h in sizes:
                expected = original(picture, w, h)
                got = run("letterbox", picture, np.float32, kind, w, h, picture.shape[1], picture.shape[0]).reshape(3, h, w)
                difference = np.abs(got - expected)
                largest[kind] = max(largest.get(kind, 0.0), float(difference.max()))
                wrong = np.count_nonzero(~(difference <= allowed))  # NaN counts
                check(f"letterbox {kind} {name} into {w}x{h}", wrong == 0, f"{wrong} of {expected.size} values differ, by {difference.max()} at most, allowed are {allowed}")
    print("letterbox: largest difference", ", ".join(f"{kind} {value:.2g}" for kind, value in largest.items()))


def test_centre_crop(run):
    inputs = [*pictures(), *((f"{w}x{h}", rng.integers(0, 256, (h, w, 3), np.uint8)) for w, h in [(1, 1), (333, 1000), (1000, 667), (641, 479), (232, 232), (232, 300), (225, 224), (1024, 33), (7, 500), (2000, 3)])]
    transforms = torchvision.transforms.functional
    for name, picture in inputs:
        for side, w, h in [(232, 224, 224), (256, 224, 224), (233, 224, 224), (224, 224, 224), (100, 224, 224), (101, 224, 160), (37, 50, 41), (37, 20, 91), (1, 1, 1)]:
            resized = transforms.resize(Image.fromarray(picture), side)
            expected = np.asarray(transforms.center_crop(resized, [h, w])).astype(np.float32).transpose(2, 0, 1)
            got = run("letterbox", picture, np.float32, f"centre{side}", w, h, picture.shape[1], picture.shape[0]).reshape(3, h, w)
            wrong = np.count_nonzero(got != expected)
            check(f"centre {name} by {side} into {w}x{h}", wrong == 0, f"{wrong} of {expected.size} values differ, by {np.abs(got - expected).max()} at most")


def test_boxes_to_picture(run):
    from ultralytics.utils.ops import scale_boxes

    for width, height in [(810, 1080), (1920, 1080), (1000, 667), (333, 1000), (64, 64), (1, 1), (2000, 3)]:
        boxes = np.sort(rng.uniform(-20, 660, (500, 2, 2)).astype(np.float32), axis=1).reshape(-1, 4)
        got = run("to_picture", boxes, np.float32, "ultralytics", 640, 640, width, height).reshape(-1, 4)
        expected = scale_boxes((640, 640), torch.from_numpy(boxes.copy()), (height, width)).numpy()
        check(f"boxes to {width}x{height}", np.abs(got - expected).max() < 1e-3, f"differ by {np.abs(got - expected).max()}")


def test_nms(run):
    for count in (0, 1, 2, 30, 1000, 1001, 5000):
        for threshold in (0.0, 0.3, 0.45, 0.7):
            for whole in (False, True):
                corner, size = rng.uniform(0, 600, (count, 2)), rng.uniform(0, 200, (count, 2)) ** rng.uniform(0.3, 1)
                boxes = np.concatenate([corner, corner + size], 1).astype(np.float32)
                if whole:  # many equal overlaps, boxes without area, ties
                    boxes = np.round(boxes / 20) * 20
                scores = rng.uniform(0, 1, count).astype(np.float32)
                if whole:
                    scores = np.round(scores * 50) / 50
                classes = rng.integers(0, 5, count)
                packed = np.concatenate([boxes.ravel(), scores, classes]).astype(np.float32)
                tensors = torch.from_numpy(boxes), torch.from_numpy(scores)
                # nms is stable on ties; batched_nms of up to 1000 boxes shifts classes apart, exact on whole numbers only
                expected = torchvision.ops.nms(*tensors, threshold).numpy()
                got = run("nms", packed, np.int32, count, threshold, 1 << 30, 0)
                check(f"nms {count} at {threshold}", np.array_equal(got, expected), f"{len(got)} kept, {len(expected)} expected")
                got = run("nms", packed, np.int32, count, threshold, 1 << 30, 1)
                if count > 1000:
                    expected = torchvision.ops.batched_nms(*tensors, torch.from_numpy(classes), threshold).numpy()
                    # its last sort by score is not stable
                    same = np.array_equal(np.sort(got), np.sort(expected)) and np.array_equal(scores[got], scores[expected])
                    check(f"class-aware nms {count} at {threshold}", same, f"{len(got)} kept, {len(expected)} expected")
                elif whole:
                    expected = torchvision.ops.batched_nms(*tensors, torch.from_numpy(classes), threshold).numpy()
                    check(f"class-aware nms {count} at {threshold}", np.array_equal(got, expected), f"{len(got)} kept, {len(expected)} expected")
    count = 100_000
    corner, size = rng.uniform(0, 3000, (count, 2)), rng.uniform(1, 100, (count, 2))
    boxes, scores = np.concatenate([corner, corner + size], 1).astype(np.float32), rng.permutation(count).astype(np.float32) / count
    got = run("nms", np.concatenate([boxes.ravel(), scores, np.zeros(count)]).astype(np.float32), np.int32, count, 0.6, 1000, 1)
    best = np.argsort(-scores)[:3000]  # torchvision takes two minutes for all; what is kept first depends on the best only
    expected = best[torchvision.ops.nms(torch.from_numpy(boxes[best]), torch.from_numpy(scores[best]), 0.6).numpy()[:1000]]
    check("nms of 100,000 boxes", len(expected) == 1000 and np.array_equal(got, expected), f"{len(expected)} expected")


def looks(kind, height, width):
    if kind == "noise":
        return rng.standard_normal((height, width)) * 5
    coarse = torch.from_numpy(rng.standard_normal((1, 1, 9, 9)))
    smooth = F.interpolate(coarse, (height, width), mode="bicubic")[0, 0].numpy() * 12
    return smooth + rng.standard_normal((height, width)) * (0.02 if kind == "smooth" else 1.0)


def sam_mask(logits, input_size, crop, size):
    """The original's postprocess_masks, with threshold 0."""
    x = F.interpolate(torch.from_numpy(logits)[None, None], input_size, mode="bilinear", align_corners=False)
    x = F.interpolate(x[..., : crop[0], : crop[1]], size, mode="bilinear", align_corners=False)
    return (x[0, 0] > 0).numpy()


def fused():
    """PyTorch fuses multiply and add only in its AVX2 and AVX-512 kernels."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def test_masks(run):
    flips = pixels = small_flips = small_pixels = masks = 0
    cases = [(1080, 1920), (1333, 2000), (1080, 810), (480, 640), (427, 640), (3024, 4032), (1024, 1024), (720, 1280), (97, 131), (101, 40), (64, 48), (40, 60), (1, 1), (1, 500), (700, 1), (6000, 8000)]
    for height, width in cases:
        scale = 1024 / max(height, width)
        crop = int(height * scale + 0.5), int(width * scale + 0.5)
        for kind in ("smooth", "rough", "noise") * (1 if height * width > 5_000_000 else 3):
            logits = looks(kind, 256, 256).astype(np.float32)
            expected = sam_mask(logits, (1024, 1024), crop, (height, width))
            got = run("mask", logits, np.uint32, 256, 256, 1024, 1024, crop[1], crop[0], width, height, 0)
            area, bounds, counts = int(got[0]), got[1:5].astype(np.int64), got[5:]
            mask = np.repeat(np.arange(len(counts)) % 2, counts).astype(np.uint8).reshape(width, height).T
            wrong = np.count_nonzero(mask != expected)
            masks += 1
            if height + width <= 128:
                small_flips, small_pixels = small_flips + wrong, small_pixels + expected.size
            else:
                flips, pixels = flips + wrong, pixels + expected.size
            own = coco.encode(np.asfortranarray(mask))
            check(f"mask area {width}x{height}", area == int(coco.area(own)))
            check(f"mask bounds {width}x{height}", np.array_equal(bounds, coco.toBbox(own)), f"{bounds} {coco.toBbox(own)}")
            check(f"mask string {width}x{height}", coco.frPyObjects({"size": [height, width], "counts": counts.tolist()}, height, width)["counts"] == own["counts"])
    print(f"masks: {flips} of {pixels:,} pixels differ from PyTorch's, {small_flips} of {small_pixels:,} where width + height <= 128 ({masks} masks)")
    check("masks", flips == 0 if fused() else flips < 1e-6 * pixels, f"{flips} pixels flipped")
    check("small masks", small_flips <= 1e-3 * small_pixels, f"{small_flips} pixels flipped")


def test_rle(run):
    for width, height in [(1, 1), (7, 1), (1, 7), (64, 48), (641, 479), (3, 40000)]:
        for density in (0, 0.001, 0.1, 0.5, 1):
            mask = (np.cumsum(rng.uniform(size=(height, width)) < density).reshape(height, width) % 2).astype(np.uint8)
            expected = coco.encode(np.asfortranarray(mask))["counts"]
            got = run("encode", mask, np.uint8, width, height).tobytes()
            check(f"rle encode {width}x{height}", got == expected)
            check(f"rle decode {width}x{height}", np.array_equal(run("decode", expected, np.uint8, width, height).reshape(height, width), mask))


def test_heads(run):
    boxes = 8400
    output = np.concatenate([rng.uniform(0, 640, (4, boxes)), rng.uniform(0, 1, (80, boxes)) ** 8]).astype(np.float32)
    got = run("head", output, np.float32, 80, boxes, 0.9).reshape(-1, 6)
    best = output[4:].max(0)
    keep = best >= np.float32(0.9)
    centre, half = output[:2, keep].T, output[2:4, keep].T / 2
    check("v8 head", np.array_equal(got, np.concatenate([centre - half, centre + half, best[keep, None], output[4:, keep].argmax(0)[:, None].astype(np.float32)], 1)))

    model, picture = data / "models/yolox_nano.onnx", data / "pictures/street.jpg"
    if not (model.exists() and picture.exists()):
        print(f"without {model} and {picture}")
        return
    import onnxruntime

    pixels = np.asarray(Image.open(picture).convert("RGB"))
    height, width = pixels.shape[:2]
    tensor = run("letterbox", pixels, np.float32, "yolox", 416, 416, width, height).reshape(1, 3, 416, 416)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    output = session.run(None, {session.get_inputs()[0].name: tensor})[0]
    check("scores come after their sigmoid", 0 <= output[..., 4:].min() and output[..., 4:].max() <= 1)
    cells = np.concatenate([np.stack([*np.meshgrid(np.arange(416 // s), np.arange(416 // s)), np.full((416 // s,) * 2, s)], -1).reshape(-1, 3) for s in (8, 16, 32)])
    centres, sides = (output[0, :, :2] + cells[:, :2]) * cells[:, 2:], np.exp(output[0, :, 2:4]) * cells[:, 2:]
    decoded = np.concatenate([centres, sides, output[0, :, 4:5] * output[0, :, 5:]], 1).T.astype(np.float32)
    found = run("head", decoded, np.float32, 80, 3549, 0.3).reshape(-1, 6)
    order = run("nms", np.concatenate([found[:, :4].ravel(), found[:, 4], found[:, 5]]).astype(np.float32), np.int32, len(found), 0.45, 100, 1)
    boxes = run("to_picture", found[order, :4], np.float32, "yolox", 416, 416, width, height).reshape(-1, 4)
    persons = boxes[found[order, 5] == 0]
    for x, y in [(284, 630), (133, 646), (749, 645)]:
        near = [b for b in persons if abs((b[0] + b[2]) / 2 - x) < 20 and abs((b[1] + b[3]) / 2 - y) < 20]
        check(f"a person near {x}, {y}", any(110 <= b[2] - b[0] <= 170 and 420 <= b[3] - b[1] <= 520 for b in near), f"of {persons.round().tolist()}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = Parity(sys.argv[1], folder)
        for test in (test_resize, test_letterbox, test_centre_crop, test_boxes_to_picture, test_nms, test_masks, test_rle, test_heads):
            before, start = len(failures), time.monotonic()
            test(run)
            print(f"{test.__name__}: {'ok' if len(failures) == before else 'FAILED'} in {time.monotonic() - start:.1f} s", flush=True)
        run.process.stdin.close()
        run.process.wait()
    sys.exit(1 if failures else 0)


main()
