"""Measures the loss of quality in 16 bits: precision.py [--scenes 20] [--out FILE.json]

Runs the built-in packages in float32 and in bfloat16 on held-out scenes, and compares:
- the loss of box AP50: at most 0.2 points
- the IoU of each mask with the float32 mask of the same box: mean at least 0.995, 1st percentile at least 0.97

Weights, activations and input pictures are in bfloat16. Boxes stay in float32, as a lane passes them.
The exit code is 1 if a bound is missed.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import torch
from torch.nn import functional as F
from torchvision.ops import batched_nms

import dataset
import scenes
from quality import CANDIDATE_SCORE, FIRST_SEED, FOUND_SCORE, ROOT, average_precision

MIN_MEAN, MIN_P1, MAX_LOSS = 0.995, 0.97, 0.2
PAD = 114 / 255


def load(models, name, dtype):
    return torch.jit.load(str(models / f"{name}.pkg/model.ts")).to(dtype).eval()


def letterboxed(picture, side, pad):
    """[1, 3, side, side] in 0..1, the picture at the top left."""
    pixels = torch.from_numpy(dataset.resized(picture, side).copy()).permute(2, 0, 1).float() / 255
    image = torch.full((1, 3, side, side), pad)
    image[0, :, : pixels.shape[1], : pixels.shape[2]] = pixels
    return image


def detect(model, dtype, picture):
    """Boxes x1, y1, x2, y2 in pixels of the scene, scores, labels."""
    output = model(letterboxed(picture, dataset.DETECTOR_SIDE, PAD).to(dtype))[0].float().T
    scores, labels = output[:, 4:].max(1)
    kept = scores >= CANDIDATE_SCORE
    centre, size = output[kept, :2], output[kept, 2:4]
    boxes = torch.cat([centre - size / 2, centre + size / 2], 1) * (scenes.WIDTH / dataset.DETECTOR_SIDE)
    kept_scores, kept_labels = scores[kept], labels[kept]
    chosen = batched_nms(boxes, kept_scores, kept_labels, 0.45)[:100]
    return boxes[chosen], kept_scores[chosen], kept_labels[chosen]


def embedding(model, dtype, picture):
    return model.encode(letterboxed(picture, dataset.SEGMENTER_SIDE, PAD).to(dtype))


def masks(model, embedded, boxes):
    """Full-size masks of boxes x1, y1, x2, y2 in pixels of the scene: bool [N, HEIGHT, WIDTH]."""
    side = dataset.SEGMENTER_SIDE
    rows = side * scenes.HEIGHT // scenes.WIDTH
    logits, _ = model.decode(embedded, boxes * (side / scenes.WIDTH), torch.zeros(len(boxes), dtype=torch.int64))
    large = F.interpolate(logits.float()[:, None], size=(side, side), mode="bilinear")
    return (F.interpolate(large[:, :, :rows], size=(scenes.HEIGHT, scenes.WIDTH), mode="bilinear")[:, 0] > 0).numpy()


@torch.inference_mode()
def compare(models, count):
    truth, results, overlaps = scenes.Truth(), {torch.float32: [], torch.bfloat16: []}, []
    segmenter = {dtype: load(models, "segmenter", dtype) for dtype in results}
    for view in scenes.VIEWS:
        detector = {dtype: load(models, view, dtype) for dtype in results}
        for number in range(count):
            scene, _ = scenes.draw(view, FIRST_SEED + number, "held_out")
            truth.add(view, f"{view}/{number:04}.jpg", scene)
            image, shown = len(truth.document["images"]), None
            for dtype, found in results.items():
                boxes, scores, labels = detect(detector[dtype], dtype, scene.picture)
                if dtype == torch.float32:
                    shown = boxes[scores >= FOUND_SCORE]
                for box, score, label in zip(boxes.tolist(), scores.tolist(), labels.tolist()):
                    corner = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
                    category = truth.category[scenes.VIEWS[view].classes[label]]
                    found.append({"image_id": image, "category_id": category, "bbox": corner, "score": score})
            if len(shown) == 0:
                continue
            reference, narrow = (masks(model, embedding(model, dtype, scene.picture), shown) for dtype, model in segmenter.items())
            both, either = (reference & narrow).sum((1, 2)), (reference | narrow).sum((1, 2))
            overlaps += [a / b if b else 1.0 for a, b in zip(both.tolist(), either.tolist())]
    ap = {dtype: average_precision(truth.document, found) for dtype, found in results.items()}
    return {
        "what": "precision",
        "scenes": len(truth.document["images"]),
        "masks": len(overlaps),
        "AP50 float32": ap[torch.float32],
        "AP50 bfloat16": ap[torch.bfloat16],
        "AP50 loss in points": 100 * (ap[torch.float32] - ap[torch.bfloat16]),
        "mask IoU mean": float(np.mean(overlaps)),
        "mask IoU 1st percentile": float(np.percentile(overlaps, 1)),
        "torch": torch.__version__,
        "processor": {key: torch.cpu.get_capabilities().get(key) for key in ("cpu_name", "avx512_bf16", "amx_bf16")},
        "commit": subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenes", type=int, default=20, help="of each view (default 20)")
    parser.add_argument("--models", type=Path, default=ROOT / "models/builtin")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    figures = compare(arguments.models, arguments.scenes)
    print(json.dumps(figures, indent=2))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    good = (
        figures["AP50 loss in points"] <= MAX_LOSS
        and figures["mask IoU mean"] >= MIN_MEAN
        and figures["mask IoU 1st percentile"] >= MIN_P1
    )
    if not good:
        bounds = f"AP50 loss at most {MAX_LOSS} points, mask IoU mean at least {MIN_MEAN}, 1st percentile at least {MIN_P1}"
        sys.exit(f"precision: a bound is missed: {bounds}")
    print("precision: passed")


if __name__ == "__main__":
    main()
