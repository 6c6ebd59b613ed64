"""The same work, tuned for a CPU by someone who wants it to win: tuned.py MANIFEST.jsonl

It tries each step of STEPS in turn on the first pictures of the manifest, and keeps those that make it faster at all.
A trial runs with and without the step in turns. The trials have a process of their own, so that the program that
serves holds only the models that it uses. `ready` has the table: median seconds per picture with and without each step.
"""

import argparse
import functools
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import common
import cv2
import numpy
import torch
from pycocotools import mask as coco

STEPS = {
    "channels_last": "weights and pictures of encoder and detector in this layout",
    "traced": "the encoder as a frozen trace",
    "compiled": "encoder and detector by torch.compile",
    "frozen": "the same with torch._inductor.config.freezing, as `millrace compile` does",
    "decoder_traced": "the decoder as a trace for this number of boxes",
    "decoder_frozen": "the decoder by torch.compile with freezing, for this number of boxes",
    "box_by_box": "the decoder once for each box, so that its maps fit the cache",
    "masks_by_opencv": "OpenCV enlarges each mask, already in the column order of run lengths",
    "one_encode": "one call for the run lengths of all masks of a picture",
    "read_ahead": "a thread loads two calls ahead",
    "pairs": "the models take two pictures a call",
    "one_thread": "one thread computes, and another loads ahead",
    "workers": "a worker for each core, each with one thread and its own picture",
}
PAIRS, PICTURES = 5, 2
HOPELESS, ENOUGH = 1.1, 2  # a trial ends early if the step is this much slower in each of the first pairs


@functools.cache
def sam():
    return common.Sam()


@functools.cache
def models(kind, layout, batch):
    """Encoder and detector. Each kind has models of its own, because compiled code belongs to a model."""
    with tempfile.TemporaryDirectory() as folder:
        detector = common.detector(folder).model.fuse().eval().to(memory_format=layout)
    encoder = common.Sam().encoder.to(memory_format=layout)
    if kind == "traced":
        example = torch.zeros(batch, 3, common.SIDE, common.SIDE).contiguous(memory_format=layout)
        encoder = torch.jit.freeze(torch.jit.trace(encoder, example).eval())
    elif kind is not None:
        encoder, detector = (torch.compile(model, dynamic=False) for model in (encoder, detector))
    return encoder, detector


@functools.cache
def decoder(kind, boxes):
    """Logits of an embedding and this number of boxes."""
    if kind == "decoder_frozen":
        return torch.compile(common.Sam().decode, dynamic=False)
    if kind == "decoder_traced":
        own = common.Sam()
        own.sam.requires_grad_(False)  # a trace takes no constants that need gradients
        example = torch.zeros(1, 256, 64, 64), torch.tensor([[100.0, 100.0, 300.0, 300.0]]).repeat(boxes, 1)
        return torch.jit.trace(own.decode, example, check_trace=False)
    return sam().decode


class Tuned:
    def __init__(self, steps):
        self.steps = set(steps)
        self.compiled = None
        self.threads = 1 if self.steps & {"one_thread", "workers"} else os.cpu_count()
        self.batch = 2 if "pairs" in self.steps else 1
        self.layout = torch.channels_last if "channels_last" in self.steps else torch.contiguous_format

    def kind(self, *kinds):
        """The last of these steps that is in use."""
        return next((kind for kind in reversed(kinds) if kind in self.steps), None)

    def load(self, items):
        from ultralytics.data.augment import LetterBox

        loaded = []
        for path, boxes in items:
            pixels = common.read(path)
            small = LetterBox((640, 640), auto=False)(image=pixels)
            small = torch.from_numpy(numpy.ascontiguousarray(small[..., ::-1].transpose(2, 0, 1))).float() / 255
            image, part, size = sam().prepare(pixels[..., ::-1])
            loaded.append((small, image, part, size, boxes * (part[1] / size[1])))
        return loaded

    def ahead(self, groups):
        """Loads on a thread, two calls ahead."""
        ready = queue.Queue(maxsize=2)

        def work():
            torch.set_num_threads(1)
            for group in groups:
                ready.put(self.load(group))
            ready.put(None)

        threading.Thread(target=work, daemon=True).start()
        yield from iter(ready.get, None)

    @torch.no_grad()
    def work(self, loaded):
        """The masks of each of these pictures."""
        from ultralytics.utils.nms import non_max_suppression

        # It counts when a first call compiles, and only as a global setting.
        torch._inductor.config.freezing = bool(self.steps & {"frozen", "decoder_frozen"})
        encoder, detector = models(self.kind("traced", "compiled", "frozen"), self.layout, self.batch)
        # A compiled or traced model takes batches of one size only.
        padded = loaded + loaded[-1:] * (self.batch - len(loaded))
        non_max_suppression(detector(torch.stack([p[0] for p in padded]).contiguous(memory_format=self.layout))[0], 0.25, 0.7)
        embeddings = encoder(torch.cat([p[1] for p in padded]).contiguous(memory_format=self.layout)).contiguous()
        return [self.masks(embedding[None], *p[2:]) for embedding, p in zip(embeddings, loaded)]

    def masks(self, embedding, part, size, boxes):
        count = 1 if "box_by_box" in self.steps else len(boxes)
        decode = decoder(self.kind("decoder_traced", "decoder_frozen"), count)
        logits = [decode(embedding, some) for some in boxes.split(count)]
        if "masks_by_opencv" in self.steps:
            return [coco.encode(by_opencv(mask, part, size)) for some in logits for mask in some[:, 0].numpy()]
        masks = sam().full_size(torch.cat(logits), part, size).numpy()
        if "one_encode" in self.steps:
            return coco.encode(numpy.asfortranarray(masks.transpose(1, 2, 0).astype(numpy.uint8)))
        return [common.encode(mask) for mask in masks]

    def __call__(self, items):
        torch.set_num_threads(self.threads)
        groups = [items[i : i + self.batch] for i in range(0, len(items), self.batch)]
        if "workers" in self.steps:
            if not self.compiled:  # PyTorch 2.11 crashed when a thread of the pool compiled
                self.compiled = self.work(self.load(groups[0]))
            with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
                done = list(pool.map(lambda group: self.work(self.load(group)), groups))
        else:
            done = map(self.work, self.ahead(groups) if self.steps & {"read_ahead", "one_thread"} else map(self.load, groups))
        return [masks for group in done for masks in group]


def by_opencv(logits, part, size):
    """The mask [height, width] of `Sam.full_size`, in column order."""
    large = cv2.resize(logits.T, (common.SIDE, common.SIDE))[: part[1], : part[0]]
    return (cv2.resize(large, size) > 0).view(numpy.uint8).T


def seconds(run, items):
    begin = time.perf_counter()
    run(items)
    return (time.perf_counter() - begin) / len(items)


def trial(without, with_step, items):
    """The entry of the table: medians of pairs of runs, in turns that start with each in turn."""
    times = {without: [], with_step: []}
    for pair in range(PAIRS):
        for run in (without, with_step) if pair % 2 == 0 else (with_step, without):
            times[run].append(seconds(run, items))
        if pair + 1 == ENOUGH and all(b > HOPELESS * a for a, b in zip(times[without], times[with_step])):
            break
    medians = {"without": round(statistics.median(times[without]), 4), "with": round(statistics.median(times[with_step]), 4)}
    return {**medians, "pairs": len(times[without]), "kept": medians["with"] < medians["without"]}


def tune(build, items, steps):
    """The table of the steps. `build` makes the program that has some steps."""
    kept, table = [], []
    best = build(kept)
    best(items[:1])
    for step in steps:
        try:
            run = build([*kept, step])
            run(items[:1])  # compiles
            entry = trial(best, run, items)
        except Exception as error:  # a step that does not work here is no step
            entry = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}", "kept": False}
        if entry["kept"]:
            kept, best = [*kept, step], run
        table.append({"step": step, **entry})
        print(json.dumps(table[-1]), file=sys.stderr, flush=True)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest")
    parser.add_argument("--steps", nargs="*", choices=STEPS, default=list(STEPS), help="the steps to try (default: all)")
    parser.add_argument("--table", action="store_true", help="only print the table of the steps")
    arguments = parser.parse_args()
    common.quiet()
    if arguments.table:
        items = list(common.items(arguments.manifest))[:PICTURES]
        print(json.dumps(tune(Tuned, items, arguments.steps)))
        return
    table = []
    if arguments.steps:
        command = [sys.executable, __file__, arguments.manifest, "--table", "--steps", *arguments.steps]
        table = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
    run = Tuned([entry["step"] for entry in table if entry["kept"]])
    common.serve(run, arguments.manifest, {"threads": run.threads, "steps": table})


if __name__ == "__main__":
    main()
