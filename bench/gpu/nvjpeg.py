"""Measures the GPU's own JPEG decoder (NVJPG) through nvJPEG: nvjpeg.py PICTURES [--library FILE] [--device cuda]

Prints a line of JSON: engines and their cores, pictures per second, and the difference from the pixels of the host.
If there is no decoder, the line has `absent` with the step that said so.
If the decoder exists but decoding fails, it has `failed` with the step.
"""

import argparse
import ctypes
import importlib.util
import itertools
import json
import os
import statistics
import time
from pathlib import Path

# From nvjpeg.h.
STATUSES = ("SUCCESS", "NOT_INITIALIZED", "INVALID_PARAMETER", "BAD_JPEG", "JPEG_NOT_SUPPORTED", "ALLOCATOR_FAILURE", "EXECUTION_FAILED", "ARCH_MISMATCH",
            "INTERNAL_ERROR", "IMPLEMENTATION_NOT_SUPPORTED", "INCOMPLETE_BITSTREAM")
BACKEND_HARDWARE = 3
OUTPUT_RGBI = 5
COMPONENTS = 4


class Image(ctypes.Structure):
    _fields_ = [("channel", ctypes.c_void_p * COMPONENTS), ("pitch", ctypes.c_size_t * COMPONENTS)]


POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
FUNCTIONS = {
    "nvjpegCreateEx": (INT, POINTER, POINTER, ctypes.c_uint, POINTER),
    "nvjpegDestroy": (POINTER,),
    "nvjpegGetHardwareDecoderInfo": (POINTER, POINTER, POINTER),
    "nvjpegJpegStateCreate": (POINTER, POINTER),
    "nvjpegJpegStateDestroy": (POINTER,),
    "nvjpegJpegStreamCreate": (POINTER, POINTER),
    "nvjpegJpegStreamDestroy": (POINTER,),
    "nvjpegJpegStreamParseHeader": (POINTER, POINTER, SIZE, POINTER),
    "nvjpegDecodeBatchedSupported": (POINTER, POINTER, POINTER),
    "nvjpegGetImageInfo": (POINTER, POINTER, SIZE, POINTER, POINTER, POINTER, POINTER),
    "nvjpegDecodeBatchedInitialize": (POINTER, POINTER, INT, INT, INT),
    "nvjpegDecodeBatched": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
}


class StepFailed(Exception):
    pass


class Library:
    """The library nvJPEG. A function that fails raises StepFailed with its name and status."""

    def __init__(self, path):
        self.path = path
        try:
            self.functions = ctypes.CDLL(str(path))
        except OSError as error:
            raise StepFailed(f"loading {path}: {error}") from error

    def __call__(self, name, *arguments):
        try:
            function = getattr(self.functions, name)
        except AttributeError:
            raise StepFailed(f"{name}: not in {self.path}") from None
        function.argtypes, function.restype = FUNCTIONS[name], INT
        status = function(*arguments)
        if status != 0:
            raise StepFailed(f"{name}: {STATUSES[status] if 0 < status < len(STATUSES) else status}")


def candidates():
    """Where nvJPEG may be: Python packages of NVIDIA and torchvision, the CUDA toolkit, the paths of the loader."""
    names = []
    for package in ("nvidia", "torchvision"):
        found = importlib.util.find_spec(package)
        for folder in map(Path, found.submodule_search_locations if found else []):
            names += sorted(folder.glob("*/lib/libnvjpeg.so.*")) if package == "nvidia" else sorted(folder.with_name("torchvision.libs").glob("libnvjpeg*.so*"))
    for toolkit in dict.fromkeys([os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda", *map(str, sorted(Path("/usr/local").glob("cuda-*")))]):
        names += sorted(Path(toolkit, "lib64").glob("libnvjpeg.so*"))
    return [*names, "libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so"]


def load(path):
    reasons = []
    for name in [path] if path else candidates():
        try:
            return Library(name)
        except StepFailed as error:
            reasons.append(str(error))
    raise StepFailed("; ".join(reasons[-4:]))


class Decoder:
    """Decodes batches of pictures on the engines.

    It calls nvjpegDecodeBatched with a handle of the hardware backend: nvjpegDecode might decode elsewhere.
    """

    def __init__(self, library, device):
        self.functions, self.device, self.handle, self.state, self.stream = library, device, POINTER(), POINTER(), POINTER()
        library("nvjpegCreateEx", BACKEND_HARDWARE, None, None, 0, ctypes.byref(self.handle))

    def engines(self):
        engines, cores = ctypes.c_uint(), ctypes.c_uint()
        self.functions("nvjpegGetHardwareDecoderInfo", self.handle, ctypes.byref(engines), ctypes.byref(cores))
        if engines.value == 0:
            raise StepFailed("nvjpegGetHardwareDecoderInfo: 0 engines")
        return {"engines": engines.value, "cores_per_engine": cores.value}

    def prepare(self):
        self.functions("nvjpegJpegStateCreate", self.handle, ctypes.byref(self.state))
        self.functions("nvjpegJpegStreamCreate", self.handle, ctypes.byref(self.stream))

    def supports(self, jpeg):
        self.functions("nvjpegJpegStreamParseHeader", self.handle, jpeg, len(jpeg), self.stream)
        unsupported = INT(-1)
        self.functions("nvjpegDecodeBatchedSupported", self.handle, self.stream, ctypes.byref(unsupported))
        return unsupported.value == 0

    def size(self, jpeg):
        components, subsampling, widths, heights = INT(), INT(), (INT * COMPONENTS)(), (INT * COMPONENTS)()
        self.functions("nvjpegGetImageInfo", self.handle, jpeg, len(jpeg), ctypes.byref(components), ctypes.byref(subsampling), widths, heights)
        return heights[0], widths[0]

    def batch(self, jpegs):
        """Returns a function that decodes these JPEGs, and the tensors that it writes."""
        import torch

        outputs = [torch.zeros((*self.size(jpeg), 3), dtype=torch.uint8, device=self.device) for jpeg in jpegs]
        data = (POINTER * len(jpegs))(*(ctypes.cast(ctypes.c_char_p(jpeg), POINTER) for jpeg in jpegs))
        lengths = (SIZE * len(jpegs))(*(len(jpeg) for jpeg in jpegs))
        images = (Image * len(jpegs))()
        for image, output in zip(images, outputs, strict=True):
            image.channel[0], image.pitch[0] = output.data_ptr(), output.stride(0)
        stream = torch.cuda.current_stream().cuda_stream if self.device != "cpu" else None
        self.functions("nvjpegDecodeBatchedInitialize", self.handle, self.state, len(jpegs), 1, OUTPUT_RGBI)
        return lambda: self.functions("nvjpegDecodeBatched", self.handle, self.state, data, lengths, images, stream), outputs

    def wait(self):
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()

    def close(self):
        for name, value in (("nvjpegJpegStreamDestroy", self.stream), ("nvjpegJpegStateDestroy", self.state), ("nvjpegDestroy", self.handle)):
            if value:
                self.functions(name, value)


def differences(files, outputs):
    """Differences from the pixels that the host decodes, on a scale of 0 to 255."""
    import imaging
    import numpy as np

    total, count, largest = 0, 0, 0
    for file, output in zip(files, outputs, strict=True):
        difference = np.abs(imaging.read(file).astype(np.int16) - output.cpu().numpy())
        total, count, largest = total + int(difference.sum()), count + difference.size, max(largest, int(difference.max()))
    return {"mean_difference": total / count, "max_difference": largest, "reference": imaging.name}


def measure(decoder, folder, sizes, seconds):
    """Decodes batches of each of `sizes`. The comparison, and the rate with its spread, are of the largest."""
    files = sorted(folder.rglob("*.jpg"))[: max(sizes)]
    decoder.prepare()
    jpegs = {file: file.read_bytes() for file in files}
    files = [file for file in files if decoder.supports(jpegs[file])]
    if not files:
        raise StepFailed(f"nvjpegDecodeBatchedSupported: none of {len(jpegs)} pictures")
    by_size = {}
    for size in sorted(sizes):
        own = list(itertools.islice(itertools.cycle(files), size))
        decode, outputs = decoder.batch([jpegs[file] for file in own])
        decode()
        decoder.wait()
        rates = []
        for _ in range(3):
            begun, pictures = time.monotonic(), 0
            while pictures == 0 or time.monotonic() - begun < seconds:
                decode()
                decoder.wait()
                pictures += size
            rates.append(pictures / (time.monotonic() - begun))
        by_size[size] = [statistics.median(rates), min(rates), max(rates)]
    return {"pictures_per_s": by_size[size][0], "spread": by_size[size][1:], "batch_size": size, "by_batch_size": by_size, "pictures": len(files),
            "unsupported": len(jpegs) - len(files), **differences(files, outputs[: len(files)])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--library", help="path of nvJPEG (default: search Python packages and the toolkit)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, nargs="+", default=[64], metavar="PICTURES", help="sizes of batches (default 64)")
    parser.add_argument("--seconds", type=float, default=2, help="of each of three measurements of a size")
    arguments = parser.parse_args()
    found, decoder = {}, None
    try:
        decoder = Decoder(load(arguments.library), arguments.device)
        found = {**decoder.engines(), "library": str(decoder.functions.path)}
        found |= measure(decoder, arguments.pictures, arguments.batch, arguments.seconds)
    except Exception as error:  # of any type: the line of JSON must come on every machine
        found |= {"failed" if found else "absent": str(error) if isinstance(error, StepFailed) else f"{type(error).__name__}: {error}"[:400]}
    print(json.dumps(found), flush=True)
    if decoder:
        decoder.close()  # after the line: a crash here does not lose the measurement


if __name__ == "__main__":
    main()
