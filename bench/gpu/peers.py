"""What people do without Millrace, with the same packages, pictures and boxes: peers.py MANIFEST.jsonl --detector D --segmenter S [--tuned]

Without --tuned: the usual script, one process and one picture at a time, in float32. With it: pictures are decoded by as many processes as
there are cores, models run compiled, in 16 bits and in batches, and masks become run lengths in processes too. The manifest gives the boxes;
the detector runs as well. Prints one line of JSON.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from torch.nn import functional as F

DETECTOR_SIDE = 640
PAD = 114


def letterbox(pixels, side):
    height, width = pixels.shape[:2]
    scale = min(side / height, side / width)
    rows, columns = round(height * scale), round(width * scale)
    out = np.full((side, side, 3), PAD, np.uint8)
    top, left = (side - rows) // 2, (side - columns) // 2
    out[top : top + rows, left : left + columns] = cv2.resize(pixels, (columns, rows), interpolation=cv2.INTER_LINEAR)
    return out


def longest_side(pixels, side):
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    rows, columns = round(height * scale), round(width * scale)
    out = np.zeros((side, side, 3), np.uint8)
    out[:rows, :columns] = cv2.resize(pixels, (columns, rows), interpolation=cv2.INTER_AREA)
    return out, (rows, columns)


def prepare(path, side):
    """Both inputs of a picture as bytes, the part of the segmenter's that it fills, and its size."""
    pixels = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
    filled, part = longest_side(pixels, side)
    return letterbox(pixels, DETECTOR_SIDE), filled, part, pixels.shape[:2]


def run_lengths(mask):
    """COCO's runs down the columns, zeros first."""
    flat = mask.T.reshape(-1)
    places = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs = np.diff(np.concatenate([[0], places, [flat.size]]))
    return runs if not flat[0] else np.concatenate([[0], runs])


def run_lengths_of(masks):
    return [run_lengths(mask) for mask in masks]


class Pictures(torch.utils.data.Dataset):
    def __init__(self, items, side):
        self.items, self.side = items, side

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        cv2.setNumThreads(0)
        small, filled, part, size = prepare(self.items[index]["path"], self.side)
        return torch.from_numpy(small), torch.from_numpy(filled), part, size, self.items[index]["boxes"]


def mean_and_std(device, dtype):
    return (torch.tensor(values, device=device, dtype=dtype)[:, None, None] for values in ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)))


def corners(boxes, part, size, device):
    xywh = torch.tensor(boxes, dtype=torch.float32, device=device)[:, :4]
    return torch.cat([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], 1) * (part[1] / size[1])


def full_size(logits, side, part, size):
    large = F.interpolate(logits[:, None].float(), size=(side, side), mode="bilinear")[:, :, : part[0], : part[1]]
    return F.interpolate(large, size=size, mode="bilinear")[:, 0] > 0


@torch.inference_mode()
def usual(items, detector, segmenter, side, device):
    mean, std = mean_and_std(device, torch.float32)
    objects = 0
    for item in items:
        small, filled, part, size = prepare(item["path"], side)
        detector(torch.from_numpy(small).to(device).permute(2, 0, 1)[None].float() / 255)
        image = (torch.from_numpy(filled).to(device).permute(2, 0, 1).float() - mean) / std
        embedding = segmenter.encode(image[None])
        boxes = corners(item["boxes"], part, size, device)
        logits, _ = segmenter.decode(embedding, boxes, torch.zeros(len(boxes), dtype=torch.int64, device=device))
        objects += len(run_lengths_of(full_size(logits, side, part, size).cpu().numpy()))
    return objects


class Tuned:
    """Models, decoders and encoders are there before a run, and serve all of them."""

    def __init__(self, items, detector, segmenter, side, device, batch, workers):
        self.side, self.device, self.dtype = side, device, torch.bfloat16
        self.detector = torch.jit.freeze(detector.to(torch.float16))
        self.segmenter = torch.jit.freeze(segmenter.to(self.dtype), preserved_attrs=["encode", "decode"])
        self.loader = torch.utils.data.DataLoader(Pictures(items, side), batch_size=batch, num_workers=workers, prefetch_factor=4, collate_fn=list,
                                                  pin_memory=device != "cpu", persistent_workers=True)
        self.pool = multiprocessing.get_context("forkserver").Pool(workers)
        self.keep = 8 * batch

    @torch.inference_mode()
    def __call__(self):
        side, device, dtype = self.side, self.device, self.dtype
        mean, std = mean_and_std(device, dtype)
        objects, pending = 0, []
        for pictures in self.loader:
            small = torch.stack([picture[0] for picture in pictures]).to(device, non_blocking=True)
            filled = torch.stack([picture[1] for picture in pictures]).to(device, non_blocking=True)
            self.detector(small.permute(0, 3, 1, 2).half() / 255)
            embedding = self.segmenter.encode((filled.permute(0, 3, 1, 2).to(dtype) - mean) / std)
            boxes = [corners(own, part, size, device) for _, _, part, size, own in pictures]
            counts = [len(own) for own in boxes]
            logits, _ = self.segmenter.decode(embedding, torch.cat(boxes), torch.arange(len(boxes), device=device).repeat_interleave(torch.tensor(counts, device=device)))
            for (_, _, part, size, _), own in zip(pictures, logits.split(counts), strict=True):
                pending.append(self.pool.apply_async(run_lengths_of, (full_size(own, side, part, size).cpu().numpy(),)))
            while len(pending) > self.keep:
                objects += len(pending.pop(0).get())
        return objects + sum(len(one.get()) for one in pending)


def load(package, device):
    module = torch.jit.load(str(package / "model.ts"), map_location=device).eval()
    return module.float()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--detector", type=Path, required=True)
    parser.add_argument("--segmenter", type=Path, required=True)
    parser.add_argument("--side", type=int, default=1024, help="of the segmenter's input")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    items = [json.loads(line) for line in arguments.manifest.read_text().splitlines()]
    models = load(arguments.detector, arguments.device), load(arguments.segmenter, arguments.device)
    if arguments.tuned:
        once = Tuned(items, *models, arguments.side, arguments.device, arguments.batch, arguments.workers)
    else:
        def once():
            return usual(items, *models, arguments.side, arguments.device)
    rates = []
    for repeat in range(1 + arguments.repeats):  # the first warms up
        begun = time.monotonic()
        objects = once()
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        assert objects == sum(len(item["boxes"]) for item in items)
        if repeat > 0:
            rates.append(len(items) / (time.monotonic() - begun))
    print(json.dumps({"pictures_per_s": statistics.median(rates), "spread": [min(rates), max(rates)]}))


if __name__ == "__main__":
    main()
