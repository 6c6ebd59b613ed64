"""Trains the built-in models on drawn scenes: train.py OUT [--seed 0] [--only front left right segmenter] [--threads 2]

The script draws the scenes once and trains four models:
- the detector of the front view
- the detectors of the left and the right view, which start with the front detector's weights
- a segmenter for all three views, which starts with the front detector's trunk

It writes OUT/front.pkg, left.pkg, right.pkg and segmenter.pkg. If it was stopped, the same command resumes.
"""

import argparse
import copy
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import dataset
import demo_detector
import demo_segmenter
from packages import detector_package, segmenter_package
from scenes import VIEWS, WIDTH

SCENES = 1600  # of each view
FIRST_SEED = 100_000  # tests and demo use lower seeds
PAD = 114 / 255


@dataclass
class Plan:
    steps: int
    batch: int
    rate: float  # the highest learning rate
    # The share of the steps, at the end, that have the full square input. Earlier steps leave out most of the padding.
    square: float = 0.12


PLANS = {
    "front": Plan(5500, 8, 2e-3),
    "left": Plan(4500, 8, 1.5e-3),
    "right": Plan(4500, 8, 1.5e-3),
    "segmenter": Plan(7000, 4, 1.2e-3),
}
BOXES = 10  # prompts per picture in a step of the segmenter


class Average:
    """Exponential moving average of weights and norms. The trained model is this average."""

    def __init__(self, model):
        self.model = copy.deepcopy(model).eval()

    @torch.no_grad()
    def update(self, model, step):
        keep = min(0.998, (1 + step) / (10 + step))
        for own, other in zip(self.model.state_dict().values(), model.state_dict().values()):
            if own.dtype.is_floating_point:
                own.lerp_(other, 1 - keep)


def optimise(name, model, plan, batch_loss, log, partial):
    """Runs `plan` with AdamW, a warm-up and a cosine schedule. Returns the average model.

    batch_loss(step, square) returns the loss and numbers to print.
    If the processor has bf16 instructions, most of the arithmetic is in bf16, which saves a third of the time.
    Every 250 steps the state is written to the file `partial`, from which a later call resumes.
    """
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}], lr=plan.rate)
    average, first, shown, spent, began = Average(model), 0, None, 0.0, time.monotonic()
    short = bool(torch.cpu.get_capabilities().get("avx512_bf16"))  # without these instructions bf16 is slower than 32 bits
    if partial.exists():
        kept = torch.load(partial, weights_only=True)
        model.load_state_dict(kept["model"])
        average.model.load_state_dict(kept["average"])
        optimiser.load_state_dict(kept["optimiser"])
        first, shown, spent = kept["step"], np.array(kept["shown"]), kept["seconds"]
        log(f"{name}: resuming at step {first}")
    for step in range(first, plan.steps):
        share = step / plan.steps
        rate = plan.rate * min(1.0, (step + 1) / 200) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16, enabled=short):
            loss, numbers = batch_loss(step, share >= 1 - plan.square)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        average.update(model, step)
        numbers = np.array([loss.item(), *numbers])
        shown = numbers if shown is None else 0.98 * shown + 0.02 * numbers
        seconds = spent + time.monotonic() - began
        if (step + 1) % 100 == 0:
            log(f"{name} {step + 1}/{plan.steps} {seconds:.0f} s  " + " ".join(f"{value:.4f}" for value in shown))
        if (step + 1) % 250 == 0:
            state = {"model": model.state_dict(), "average": average.model.state_dict(), "optimiser": optimiser.state_dict()}
            torch.save({**state, "step": step + 1, "shown": shown.tolist(), "seconds": seconds}, partial.with_suffix(".new"))
            partial.with_suffix(".new").rename(partial)
    log(f"{name}: {spent + time.monotonic() - began:.0f} s")
    return average.model


def flipped(rng, picture, boxes, masks):
    """Mirrors a picture and its objects at random. Boxes are x1, y1, x2, y2 in its pixels."""
    height, width = picture.shape[:2]
    boxes = boxes.copy()
    if rng.random() < 0.5:
        picture, masks = picture[:, ::-1], masks[:, :, ::-1]
        boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
    if rng.random() < 0.5:
        picture, masks = picture[::-1], masks[:, ::-1]
        boxes[:, [1, 3]] = height - boxes[:, [3, 1]]
    return picture, boxes, masks


def tinted(rng, picture):
    """Changes exposure and white balance at random. The result is in 0..1."""
    gain = rng.uniform(0.8, 1.2) * rng.uniform(0.94, 1.06, 3)
    return np.clip(picture * (gain / 255).astype(np.float32), 0, 1)


def corner_boxes(scenes, scene, side):
    box = scenes.box[scenes.rows(scene)]
    return np.concatenate([box[:, :2], box[:, :2] + box[:, 2:]], 1) * (side / WIDTH)


def detector_loss(model, scenes, plan, seed):
    max_objects = max(np.diff(scenes.first))

    def batch_loss(step, square):
        rng = np.random.default_rng([seed, step])
        height = dataset.DETECTOR_SIDE if square else 256
        if model.centres.shape[0] != sum((height // s) * (dataset.DETECTOR_SIDE // s) for s in demo_detector.STRIDES):
            model.set_input(height, dataset.DETECTOR_SIDE)
        images = np.full((plan.batch, height, dataset.DETECTOR_SIDE, 3), PAD, np.float32)
        truth, labels = torch.zeros(plan.batch, max_objects, 4), torch.zeros(plan.batch, max_objects, dtype=torch.int64)
        present = torch.zeros(plan.batch, max_objects, dtype=torch.bool)
        for i, scene in enumerate(rng.integers(0, len(scenes), plan.batch)):
            rows = scenes.rows(scene)
            picture, boxes, _ = flipped(rng, scenes.detector[scene], corner_boxes(scenes, scene, dataset.DETECTOR_SIDE), scenes.mask[rows])
            images[i, : picture.shape[0]] = tinted(rng, picture)
            count = len(boxes)
            truth[i, :count], labels[i, :count], present[i, :count] = torch.from_numpy(boxes), torch.from_numpy(scenes.label[rows]), True
        images = torch.from_numpy(images).permute(0, 3, 1, 2)  # channels last in memory
        total, what, where = demo_detector.loss(model, images, truth, labels, present)
        return total, (what.item(), where.item())

    return batch_loss


def prompts(rng, boxes):
    """Boxes with errors like a detector's: each corner moves by a share of the box's size and part of a pixel."""
    size = np.concatenate([boxes[:, 2:] - boxes[:, :2]] * 2, 1)
    spread = np.where(rng.random((len(boxes), 1)) < 0.15, 0.10, 0.03)
    moved = boxes + rng.normal(0, 1, boxes.shape) * (spread * size + 0.15)
    return np.concatenate([np.minimum(moved[:, :2], moved[:, 2:] - 1), np.maximum(moved[:, 2:], moved[:, :2] + 1)], 1)


def segmenter_loss(model, sets, plan, seed):
    chances = np.array([len(scenes) for scenes in sets], float)

    def batch_loss(step, square):
        rng = np.random.default_rng([seed, step])
        torch.manual_seed(int(rng.integers(2**31)))  # the loss draws random places: the same ones after a resume
        side = dataset.SEGMENTER_SIDE
        images = np.full((plan.batch, side if square else 320, side, 3), PAD, np.float32)
        boxes, masks, index, asked, rows = [], [], [], [], []
        for i in range(plan.batch):
            scenes = sets[rng.choice(len(sets), p=chances / chances.sum())]
            scene = int(rng.integers(len(scenes)))
            own_boxes, own_masks = corner_boxes(scenes, scene, side), scenes.mask[scenes.rows(scene)]
            picture, own_boxes, own_masks = flipped(rng, scenes.segmenter[scene], own_boxes, own_masks)
            images[i, : picture.shape[0]] = tinted(rng, picture)
            chosen = rng.permutation(len(own_boxes))[:BOXES]
            rows += [len(index) + row for row in chosen]
            asked.append(prompts(rng, own_boxes[chosen]))
            boxes.append(own_boxes)
            masks.append(own_masks / np.float32(255))
            index += [i] * len(own_boxes)
        boxes, masks, asked = (torch.from_numpy(np.concatenate(parts).astype(np.float32)) for parts in (boxes, masks, asked))
        index = torch.tensor(index)
        embedding = model.encode(torch.from_numpy(images).permute(0, 3, 1, 2))
        x, y = model.places[: 4 * embedding.shape[3]], model.places[: 4 * embedding.shape[2]]
        claim = demo_segmenter.claim_loss(demo_segmenter.claims(embedding, x, y), x, y, index, boxes, masks)
        logits, iou = model.decode(embedding, asked, index[rows])
        total, reached, dice = demo_segmenter.loss(logits, iou, boxes[rows], masks[rows])
        return total + claim, (reached.item(), dice.item(), claim.item())

    return batch_loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=PLANS, default=list(PLANS), help="models to train (default: all); without a name: only draw scenes")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for view in VIEWS:
        dataset.make(out / "scenes" / view, view, SCENES, FIRST_SEED + 10_000 * arguments.seed, workers=arguments.threads)

    def log(line):
        print(line, flush=True)
        with open(out / "train.log", "a", encoding="utf-8") as file:
            print(line, file=file)

    def trained(name, make_model, make_loss):
        kept, partial = out / f"{name}.pt", out / f"{name}.partial.pt"
        model = make_model()
        if not kept.exists():
            plan = PLANS[name]
            model = model.to(memory_format=torch.channels_last).train()
            seed = arguments.seed * 100 + list(PLANS).index(name)
            model = optimise(name, model, plan, make_loss(model, plan, seed), log, partial)
            torch.save(model.state_dict(), kept.with_suffix(".new"))
            kept.with_suffix(".new").rename(kept)
            partial.unlink(missing_ok=True)
        model.load_state_dict(torch.load(kept, weights_only=True))
        return model.eval()

    def new_detector(base=None):
        torch.manual_seed(arguments.seed)
        model = demo_detector.Detector(6)
        if base is not None:
            # The other views have other classes, so the layers of their logits start from new weights.
            kept = {name: value for name, value in base.state_dict().items() if not (name.startswith("what.") and ".2." in name)}
            anew = model.load_state_dict(kept, strict=False)
            assert not anew.unexpected_keys and all(name.startswith("what.") and ".2." in name for name in anew.missing_keys), anew
        return model

    def new_segmenter():
        torch.manual_seed(arguments.seed)
        model = demo_segmenter.Segmenter()
        model.encoder.trunk.load_state_dict(front.trunk.state_dict())
        return model

    front = None
    if (out / "front.pt").exists():
        front = new_detector()
        front.load_state_dict(torch.load(out / "front.pt", weights_only=True))
    elif arguments.only and "front" not in arguments.only:
        sys.exit(f"{out}/front.pt is missing, and the other models start with its weights; train front first")
    for view in VIEWS:
        if view not in arguments.only:
            continue
        scenes = dataset.load(out / "scenes" / view)
        model = trained(view, lambda: new_detector(front), lambda model, plan, seed: detector_loss(model, scenes, plan, seed))
        front = model if view == "front" else front
        detector_package(model, view, arguments.seed, out / f"{view}.pkg")
    if "segmenter" in arguments.only:
        sets = [dataset.load(out / "scenes" / view) for view in VIEWS]
        model = trained("segmenter", new_segmenter, lambda model, plan, seed: segmenter_loss(model, sets, plan, seed))
        segmenter_package(model, arguments.seed, out / "segmenter.pkg")


if __name__ == "__main__":
    main()
