"""The same work, tuned for a CPU by someone who wants it to win: tuned.py MANIFEST.jsonl

It tries each step of STEPS in turn on the first pictures of the manifest, and keeps those that make it faster.
`ready` has the table: seconds per picture with and without each step.
"""

import contextlib
import queue
import sys
import tempfile
import threading
import time

import common
import numpy
import torch
from pycocotools import mask as coco

STEPS = ("channels_last", "traced", "compiled", "one_encode", "read_ahead", "pairs")
TRIALS, PICTURES = 3, 4
GAIN = 0.98  # a step stays if the seconds with it are at most this share of those without


class Tuned:
    def __init__(self, folder):
        self.yolo, self.folder = common.detector(folder), folder
        self.kept = set()
        self.build()

    def build(self):
        """Makes the models for the steps in `kept`."""
        self.sam = common.Sam()
        self.network = self.yolo.model.fuse().eval()
        formats = torch.channels_last if "channels_last" in self.kept else torch.contiguous_format
        self.sam.encoder.to(memory_format=formats)
        self.network.to(memory_format=formats)
        self.format = formats
        self.encoder, self.detector = self.sam.encoder, lambda x: self.network(x)[0]
        if "compiled" in self.kept:
            self.encoder, self.detector = torch.compile(self.encoder, dynamic=False), torch.compile(self.detector, dynamic=False)
        elif "traced" in self.kept:
            with torch.inference_mode():
                self.encoder = torch.jit.freeze(torch.jit.trace(self.encoder, torch.zeros(self.batch(), 3, 1024, 1024).contiguous(memory_format=formats)).eval())

    def batch(self):
        return 2 if "pairs" in self.kept else 1

    def load(self, item):
        from ultralytics.data.augment import LetterBox

        path, boxes = item
        pixels = common.read(path)
        small = LetterBox((640, 640), auto=False)(image=pixels)
        small = torch.from_numpy(numpy.ascontiguousarray(small[..., ::-1].transpose(2, 0, 1))).float() / 255
        image, part, size = self.sam.prepare(pixels[..., ::-1])
        return small, image, part, size, boxes * (part[1] / size[1])

    def ahead(self, items):
        """Loads on a thread, two pictures ahead."""
        ready = queue.Queue(maxsize=2)

        def work():
            for item in items:
                ready.put(self.load(item))
            ready.put(None)

        threading.Thread(target=work, daemon=True).start()
        yield from iter(ready.get, None)

    @torch.inference_mode()
    def __call__(self, items):
        from ultralytics.utils.nms import non_max_suppression

        results, group = [], []
        for loaded in self.ahead(items) if "read_ahead" in self.kept else map(self.load, items):
            group.append(loaded)
            if len(group) < self.batch() and len(results) + len(group) < len(items):
                continue
            # A traced model takes batches of one size only.
            padded = group + group[-1:] * (self.batch() - len(group))
            non_max_suppression(self.detector(torch.stack([g[0] for g in padded]).contiguous(memory_format=self.format)), 0.25, 0.7)
            embeddings = self.encoder(torch.cat([g[1] for g in padded]).contiguous(memory_format=self.format)).contiguous()
            for embedding, (_, _, part, size, boxes) in zip(embeddings, group):
                masks = self.sam.full_size(self.sam.decode(embedding[None], boxes), part, size).numpy()
                if "one_encode" in self.kept:
                    results.append(coco.encode(numpy.asfortranarray(masks.transpose(1, 2, 0).astype(numpy.uint8))))
                else:
                    results.append([common.encode(mask) for mask in masks])
            group = []
        return results


def seconds(run, items):
    run(items[:2])
    times = []
    for _ in range(TRIALS):
        begin = time.perf_counter()
        run(items)
        times.append((time.perf_counter() - begin) / len(items))
    return sorted(times)[TRIALS // 2]


def main():
    common.quiet()
    items = list(common.items(sys.argv[1]))
    table = []
    with tempfile.TemporaryDirectory() as folder:
        run = Tuned(folder)
        without = seconds(run, items[:PICTURES])
        for step in STEPS:
            run.kept.add(step)
            entry = {"step": step, "without": without}
            try:
                run.build()
                entry["with"] = seconds(run, items[:PICTURES])
            except Exception as error:  # a step that does not work here is no step
                entry["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            entry["kept"] = entry.get("with", without) <= GAIN * without and "with" in entry
            if entry["kept"]:
                without = entry["with"]
            else:
                run.kept.discard(step)
            table.append(entry)
        with contextlib.suppress(Exception):
            run.build()
        common.serve(run, sys.argv[1], {"threads": torch.get_num_threads(), "steps": table})


if __name__ == "__main__":
    main()
