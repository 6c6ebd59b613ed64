"""Scripts that do the same work without Millrace: peers.py MANIFEST.jsonl --detector D --segmenter S [--tuned]

They use the same packages, pictures and boxes. The manifest gives the boxes; the detector runs as well.

Without --tuned, it is the usual script: one process, one picture at a time, in float32.
With --tuned:
- One process per core (at most 32) decodes and shrinks pictures.
- Both models are one step in 16 bits, on batches of one shape.
- The step is compiled in every way that works here, and the fastest one is used.
- Masks become run lengths on the GPU.

When everything is loaded, compiled and warm, the script prints a line of JSON with its settings.
Each line of its input is a number of pictures. The script processes that many, from the first of the manifest.
Then it prints a line of JSON with its speed. So it can take turns with other programs.
"""

import argparse
import contextlib
import gc
import json
import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import imaging
import numpy as np
import torch
import traces
from exporters import EXPORTERS
from torch.nn import functional as F

DETECTOR_SIDE = 640
PAD = 114
AGREE = 0.9  # minimum IoU with the masks of float32; kernels in 16 bits differ where logits are about zero. 0: any masks


def letterbox(pixels, side):
    height, width = pixels.shape[:2]
    scale = min(side / height, side / width)
    rows, columns = round(height * scale), round(width * scale)
    out = np.full((side, side, 3), PAD, np.uint8)
    top, left = (side - rows) // 2, (side - columns) // 2
    out[top : top + rows, left : left + columns] = imaging.bilinear(pixels, rows, columns)
    return out


def longest_side(pixels, side):
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    rows, columns = round(height * scale), round(width * scale)
    out = np.zeros((side, side, 3), np.uint8)
    out[:rows, :columns] = imaging.averaged(pixels, rows, columns)
    return out, (rows, columns)


def prepare(path, side):
    """Inputs of both models as bytes, rows and columns of the segmenter's that the picture fills, and its size."""
    pixels = imaging.read(path)
    filled, part = longest_side(pixels, side)
    return letterbox(pixels, DETECTOR_SIDE), filled, part, pixels.shape[:2]


def run_lengths(mask):
    """Run lengths in the order of COCO: down the columns, zeros first."""
    flat = mask.T.reshape(-1)
    places = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs = np.diff(np.concatenate([[0], places, [flat.size]]))
    return runs if not flat[0] else np.concatenate([[0], runs])


def run_lengths_of(masks):
    """Run lengths of all masks of a picture. Only the places where runs begin are copied from the device."""
    flat = masks.transpose(1, 2).flatten(1)
    of, places = (flat[:, 1:] != flat[:, :-1]).nonzero().cpu().numpy().T
    bounds = np.searchsorted(of, np.arange(len(masks) + 1))
    out = []
    for begin, end, first in zip(bounds[:-1], bounds[1:], flat[:, 0].tolist(), strict=True):
        runs = np.diff(np.concatenate([[0], places[begin:end] + 1, [flat.shape[1]]]))
        out.append(np.concatenate([[0], runs]) if first else runs)
    return out


def mean_and_std(device, dtype):
    return (torch.tensor(values, device=device, dtype=dtype)[:, None, None] for values in ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)))


def corners(boxes, part, size):
    xywh = torch.tensor(boxes, dtype=torch.float32).reshape(len(boxes), -1)[:, :4]
    return torch.cat([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], 1) * (part[1] / size[1])


def full_size(logits, side, part, size):
    large = F.interpolate(logits[:, None].float(), size=(side, side), mode="bilinear")[:, :, : part[0], : part[1]]
    return F.interpolate(large, size=size, mode="bilinear")[:, 0] > 0


class Usual:
    WARM_UP = 4  # pictures: TorchScript's first call records shapes, and the next ones compile for them

    def __init__(self, items, models, arguments):
        self.items, (self.detector, self.segmenter) = items, models()
        self.side, self.device = arguments.side, arguments.device
        self.settings = {"batch": 1, "workers": 1, "dtype": "float32", "compiled": "TorchScript as it was packed"}
        try:
            self.warm_up()
        except RuntimeError as error:  # TorchScript's fused kernels do not compile on every GPU
            self.settings["without_fuser"] = reason(error)
            torch._C._jit_set_texpr_fuser_enabled(False)
            self.detector, self.segmenter = models()  # the first ones keep the kernels that failed
            self.warm_up()

    def warm_up(self):
        for _ in range(self.WARM_UP):
            self(1)

    @torch.inference_mode()
    def __call__(self, pictures):
        mean, std = mean_and_std(self.device, torch.float32)
        objects = 0
        for item in self.items[:pictures]:
            small, filled, part, size = prepare(item["path"], self.side)
            self.detector(torch.from_numpy(small).to(self.device).permute(2, 0, 1)[None].float().contiguous() / 255)
            image = (torch.from_numpy(filled).to(self.device).permute(2, 0, 1).float().contiguous() - mean) / std
            embedding = self.segmenter.encode(image[None])
            boxes = corners(item["boxes"], part, size).to(self.device)
            logits, _ = self.segmenter.decode(embedding, boxes, torch.zeros(len(boxes), dtype=torch.int64, device=self.device))
            masks = full_size(logits, self.side, part, size).cpu().numpy()
            objects += len([run_lengths(mask) for mask in masks])
        return objects


class Pictures(torch.utils.data.Dataset):
    def __init__(self, items, side):
        self.items, self.side = items, side

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        imaging.one_thread()
        small, filled, part, size = prepare(self.items[index]["path"], self.side)
        return torch.from_numpy(small), torch.from_numpy(filled), corners(self.items[index]["boxes"], part, size), part, size


def together(pictures):
    """Stacks pictures to a batch, in the worker."""
    small, filled, boxes, parts, sizes = zip(*pictures, strict=True)
    index = torch.arange(len(boxes)).repeat_interleave(torch.tensor([len(own) for own in boxes]))
    return torch.stack(small), torch.stack(filled), torch.cat(boxes), index, [len(own) for own in boxes], parts, sizes


def detects_in(device):
    return torch.float32 if device == "cpu" else torch.float16


class Step(torch.nn.Module):
    """Both models on a batch, with the scaling of its pixels."""

    def __init__(self, detector, segmenter, device, dtype, detector_dtype=None):
        super().__init__()
        self.detector, self.segmenter, self.dtype = detector, segmenter, dtype
        self.detects_in = detector_dtype or detects_in(device)
        mean, std = mean_and_std(device, dtype)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, small, filled, boxes, index):
        found = self.detector(small.permute(0, 3, 1, 2).to(self.detects_in) / 255)
        embedding = self.segmenter.encode((filled.permute(0, 3, 1, 2).to(self.dtype) - self.mean) / self.std)
        return found, self.segmenter.decode(embedding, boxes, index)[0]


def frozen(step, _):
    return Step(torch.jit.freeze(step.detector), torch.jit.freeze(step.segmenter, preserved_attrs=["encode", "decode"]), str(step.mean.device), step.dtype)


def optimized(step, sample):
    step = frozen(step, sample)
    return Step(torch.jit.optimize_for_inference(step.detector), torch.jit.optimize_for_inference(step.segmenter, other_methods=["encode", "decode"]),
                str(step.mean.device), step.dtype)


class Methods(torch.nn.Module):
    """The exported programs of a segmenter (model.ep.pt2), with the names of their methods."""

    def __init__(self, programs):
        super().__init__()
        self.encode, self.decode = programs["encode"], programs["decode"]


def exported(step, _):
    """The step with the exported programs of the same packages. torch.compile does not look into TorchScript."""
    sys.path.append(str(EXPORTERS))
    import programs
    from compile import with_weights

    device = step.mean.device
    detector, segmenter = ({name: with_weights(program, dtype, str(device)) for name, program in programs.load(package / programs.NAME).items()}
                           for package, dtype in zip(step.packages, (step.detects_in, step.dtype), strict=True))
    return Step(detector["forward"], Methods(segmenter), str(device), step.dtype)


def inductor(step, sample):
    return torch.compile(exported(step, sample), dynamic=False)


def unfused(step, sample):
    """Like frozen(). Fastest.compiled() turns off fused kernels for it, since they do not compile on every GPU."""
    return frozen(step, sample)


# The first is probably the fastest, and takes longest to compile.
WAYS = {"model.ep.pt2, torch.compile": inductor, "torch.jit.freeze": frozen, "torch.jit.freeze, no fuser": unfused,
        "torch.jit.optimize_for_inference": optimized}


def reason(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {' ... '.join(dict.fromkeys([lines[0][:200], lines[-1][:200]]))}"


LOADED = time.monotonic()
MAX_LOAD_SECONDS = 30  # seconds; some sandboxes report a wrong start of the process


def seconds_of_process():
    """Seconds since the process began, with the time to load Python and PyTorch."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    since_loaded = time.monotonic() - LOADED
    return min(max(since_loaded, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")), since_loaded + MAX_LOAD_SECONDS)


class TooLong(BaseException):
    """Compiling took too long. It is not an Exception, since compilers catch those and try other ways."""


class Fastest:
    """The step, compiled in the way that is fastest for this shape.

    `tried` has the milliseconds of each way, or why it was not used.
    `expected` are logits of the uncompiled step in float32.
    CUDA graphs come last, since a failed one can leave CUDA in a bad state.
    torch.compile has `seconds`. Once one way works, no other one starts after `ready_seconds` of the process.
    """

    def __init__(self, step, sample, device, seconds, expected, ready_seconds=float("inf")):
        self.cuda, self.tried, self.call, self.name, self.best_ms = device != "cpu", {}, None, None, float("inf")
        self.ready_seconds, calls = ready_seconds, {}
        # If no pixel or every pixel is in a mask, the level is the median: then half of the pixels are in masks.
        self.level = 0.0 if 0 < (expected > 0).float().mean().item() < 1 else expected.median().item()
        self.expected = expected > self.level
        if not self.expected.any() and AGREE > 0:
            raise RuntimeError("all logits of the reference are equal, so masks cannot be compared; use other pictures or models")
        for name, make in WAYS.items():
            if make is inductor and seconds == 0:
                continue
            call = self.attempt(name, lambda make=make: self.compiled(make, step, sample), seconds if make is inductor else float("inf"))
            if call:
                calls[name] = call
        for name in sorted(calls, key=self.tried.get) if self.cuda else ():
            self.attempt(f"{name}, CUDA graph", lambda call=calls[name]: self.graph(call), float("inf"))
        if self.call is None:
            raise RuntimeError(f"no way to compile works: {self.tried}")
        self.expected = None

    def attempt(self, name, make, seconds):
        """A call that works and gives the right masks, or None. Then `tried` has the reason."""
        seconds = min(seconds, self.ready_seconds - seconds_of_process() if self.call else float("inf"))
        if seconds < 1:
            self.tried[name] = "no time was left"
            return None
        before = signal.signal(signal.SIGALRM, self.too_long)
        call = None
        try:
            if seconds < float("inf"):
                signal.setitimer(signal.ITIMER_REAL, seconds, 10)  # repeats: an exception in a destructor is lost
            call = make()
            if not self.consider(name, call):
                call = None
        except (Exception, TooLong) as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.tried[name], call = reason(error), None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        gc.collect()
        return call

    @staticmethod
    def too_long(*_):
        raise TooLong("compiling took too long")

    def compiled(self, make, step, sample):
        fuses = torch._C._jit_texpr_fuser_enabled()
        try:
            torch._C._jit_set_texpr_fuser_enabled(fuses and make is not unfused)
            module = make(step, sample)
            for _ in range(3 if self.cuda else 1):  # TorchScript's first calls only record shapes
                module(*sample)
            self.wait()
        finally:
            torch._C._jit_set_texpr_fuser_enabled(fuses)
        return lambda: module(*sample)

    @staticmethod
    def graph(call):
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                out = call()
        except BaseException:
            torch.cuda.set_stream(torch.cuda.default_stream())  # a failed capture can leave its own stream
            raise

        def replay():
            graph.replay()
            return out

        return replay

    def consider(self, name, call):
        """Whether the call gives the right masks. If so, measures it and keeps the fastest."""
        masks = call()[1] > self.level
        inter, union = (masks & self.expected).sum().item(), (masks | self.expected).sum().item()
        if AGREE > 0 and inter < AGREE * union:
            self.tried[name] = f"wrong: masks have an IoU of {inter / union:.3f} with those of float32"
            return False
        self.wait()
        begun = time.perf_counter()
        calls = 10 if self.cuda else 1
        for _ in range(calls):
            call()
        self.wait()
        self.tried[name] = 1e3 * (time.perf_counter() - begun) / calls
        if self.tried[name] < self.best_ms:
            self.best_ms, self.call, self.name = self.tried[name], call, name
        return True

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()


MEMORY = Path("/dev/shm")  # workers pass batches to the script here


def in_memory(workers, batch_bytes, free):
    """The number of workers, and of batches that each prepares ahead.

    All batches leave a fifth of the free memory free. Two of them are in use or on their way.
    """
    batches = int(0.8 * free / batch_bytes) - 2
    if batches >= 2 * workers:
        return workers, 2
    return max(1, min(workers, batches)), 1


class Tuned:
    """The tuned script. Models and workers are loaded once and serve all turns."""

    def __init__(self, items, models, arguments):
        self.side, device, batch = arguments.side, arguments.device, arguments.batch
        self.cuda = device != "cpu"
        if not self.cuda:
            dtype = torch.float32  # on a CPU, kernels in 16 bits are no faster
        else:
            dtype = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
        torch.backends.cudnn.benchmark = True
        self.order = []  # indices of the pictures of a turn
        dataset = Pictures(items, self.side)
        rows = batch * max(1, *(len(item["boxes"]) for item in items))
        # One shape for all calls. The rest of a partial batch keeps old values, whose results are dropped.
        self.inputs = (torch.zeros(batch, DETECTOR_SIDE, DETECTOR_SIDE, 3, dtype=torch.uint8, device=device),
                       torch.zeros(batch, self.side, self.side, 3, dtype=torch.uint8, device=device),
                       torch.zeros(rows, 4, device=device), torch.zeros(rows, dtype=torch.int64, device=device))
        free = shutil.disk_usage(MEMORY).free
        workers, ahead = in_memory(arguments.workers, sum(part.nbytes for part in self.inputs), free)
        self.loader = torch.utils.data.DataLoader(dataset, batch_size=batch, sampler=self.order, num_workers=workers, prefetch_factor=ahead,
                                                  collate_fn=together, pin_memory=self.cuda, persistent_workers=True)
        self.fill(together([dataset[k % len(items)] for k in range(batch)])[:4])
        with torch.no_grad():
            expected = Step(*models(tf32=False), device, torch.float32, torch.float32)(*self.inputs)[1]
            detector, segmenter = models(benchmark=True)
            step = Step(detector.to(detects_in(device)), segmenter.to(dtype), device, dtype)
            step.packages = arguments.detector, arguments.segmenter
            self.step = Fastest(step, self.inputs, device, arguments.compile_seconds, expected, arguments.ready_seconds)
        self.masks_stream = torch.cuda.Stream(priority=-1) if self.cuda else None
        self.settings = {"batch": batch, "workers": workers, "prefetch": ahead, "shared_memory_free_bytes": free,
                         "dtype": f"{str(dtype)[6:]}, the detector {str(detects_in(device))[6:]}", "compiled": self.step.name, "tried": self.step.tried}
        self(min(len(items), 2 * batch * workers))

    def fill(self, parts):
        for own, part in zip(self.inputs, parts, strict=True):
            own[: len(part)].copy_(part, non_blocking=True)

    def masks(self, logits, ready, counts, filled, sizes):
        """Makes the masks of a batch on a separate stream, while the models run the next batch."""
        objects = 0
        with torch.cuda.stream(self.masks_stream):  # None: no change of stream
            if self.cuda:
                self.masks_stream.wait_event(ready)
                logits.record_stream(self.masks_stream)
            for own, part, size in zip(logits.split(counts), filled, sizes, strict=True):
                objects += len(run_lengths_of(full_size(own, self.side, part, size))) if len(own) else 0
        return objects

    @torch.no_grad()
    def __call__(self, pictures):
        self.order[:] = range(pictures)
        objects, before = 0, None
        for *parts, counts, filled, sizes in self.loader:
            self.fill(parts)
            logits = self.step.call()[1][: sum(counts)].clone()  # a CUDA graph writes the next logits to the same memory
            ready = torch.cuda.current_stream().record_event() if self.cuda else None
            if before:
                objects += self.masks(*before)
            before = logits, ready, counts, filled, sizes
        return objects + (self.masks(*before) if before else 0)


def load(package, device, tf32=True, benchmark=False):
    """Loads a package. Convolutions may use TF32, as is PyTorch's default, even if their trace forbids it."""
    module = torch.jit.load(str(package / "model.ts"), map_location=device).eval()
    return traces.adapt(module.float(), tf32=tf32, benchmark=benchmark, device=device)


def main():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--detector", type=Path, required=True)
    parser.add_argument("--segmenter", type=Path, required=True)
    parser.add_argument("--side", type=int, default=1024, help="of the segmenter's input")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=min(32, cores))
    parser.add_argument("--compile-seconds", type=int, default=120, help="limit of torch.compile; 0: do not try it")
    parser.add_argument("--ready-seconds", type=int, default=180, help="age of the process after which no further way to compile is tried")
    parser.add_argument("--rehearse", action="store_true", help="on a device that computes nothing: accept any masks, and do without TorchScript's fuser and cuDNN's attention")
    arguments = parser.parse_args()
    if arguments.rehearse:
        global AGREE
        AGREE = 0.0
        torch.backends.cuda.enable_cudnn_sdp(False)
        for name in [name for name, make in WAYS.items() if make in (frozen, optimized)]:
            del WAYS[name]
    items = [json.loads(line) for line in arguments.manifest.read_text().splitlines()]

    def models(**flags):
        return [load(package, arguments.device, **flags) for package in (arguments.detector, arguments.segmenter)]

    script = (Tuned if arguments.tuned else Usual)(items, models, arguments)

    def idle():
        if arguments.device != "cpu":
            torch.cuda.synchronize()
            with contextlib.suppress(RuntimeError):  # raised after a failed capture
                torch.cuda.empty_cache()  # leaves the memory to the next program

    idle()
    print(json.dumps({**script.settings, "imaging": imaging.name, "cores": cores}), flush=True)
    for line in sys.stdin:
        pictures = min(int(line), len(items))
        begun = time.monotonic()
        objects = script(pictures)
        seconds = time.monotonic() - begun  # run lengths are on the host, so the GPU has finished
        assert objects == sum(len(item["boxes"]) for item in items[:pictures])
        idle()
        print(json.dumps({"pictures": pictures, "pictures_per_s": pictures / seconds}), flush=True)


if __name__ == "__main__":
    main()
