"""The part `models`: the time of each method of a model, and its share of the roof."""

import functools
import itertools
import statistics
import time

from costs import GFLOP, MEGABYTES
from session import MODELS, Session
from program import side_of
from records import failed


def product(precision):
    """Measures the roof of products, with large matrices."""
    import torch

    side = Session.few(8192, 256)
    use_tf32(precision)
    a, b = (torch.randn(side, side, device=Session.torch_device).to(getattr(torch, TYPES[precision])) for _ in range(2))
    median, _ = time_ms(lambda: a @ b)
    return {"tflop_per_s": 2 * side**3 / median / 1e9}


def copied():
    """Measures the roof of memory, with a large copy. Its bytes are read and written."""
    import torch

    x = torch.empty(Session.few(1 << 31, 1 << 20), dtype=torch.uint8, device=Session.torch_device)
    y = torch.empty_like(x)
    median, _ = time_ms(lambda: y.copy_(x))
    return {"gb_per_s": 2 * x.numel() / median / 1e6}


TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def use_tf32(precision):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


BOXES = 64  # in a call of a decoder


def time_ms(call, repeats=30):
    """Median and 9th decile of a call's milliseconds, by CUDA events. On a CPU: median and maximum, by a clock."""
    import torch

    repeats = Session.few(repeats, 2)
    for _ in range(Session.few(5, 1)):
        call()
    times = []
    if not Session.gpu:
        for _ in range(repeats):
            begun = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begun))
        return statistics.median(times), max(times)
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times), statistics.quantiles(times, n=10)[8]


def described(package, what):
    return what in (package / "model.yaml").read_text()


@functools.lru_cache(maxsize=1)
def loaded(package, precision):
    import torch
    import traces

    module = torch.jit.load(str(package / "model.ts"), map_location=Session.torch_device).to(getattr(torch, TYPES[precision])).eval()
    traces.adapt(module, tf32=precision == "tf32", device=Session.torch_device)
    return torch.jit.freeze(module, preserved_attrs=None if described(package, "task: detect") else ["encode", "decode"])


def roof(records, package, method, precision):
    """The minimum milliseconds of a row by the roofs measured on this machine, and the roof that limits it."""
    measured = {r["precision"]: r for r in records if r["what"] == "roof" and not failed(r)}
    if precision not in measured or "bytes" not in measured:
        raise LookupError(f"the roof in {precision} or the roof of memory was not measured")
    megabytes = MEGABYTES["torchscript"].get((package, method))
    product_ms = GFLOP[package, method] / measured[precision]["tflop_per_s"]
    if megabytes is None:
        return product_ms, "products alone: its bytes were not counted"
    bytes_ms = megabytes * (2 if TYPES[precision] == "float32" else 1) / measured["bytes"]["gb_per_s"]
    return max((product_ms, "products"), (bytes_ms, "bytes"))


def model(records, package, precision, batch, method):
    """Measures a method: its time, and its share of the roof."""
    import torch

    use_tf32(precision)
    try:
        with torch.inference_mode():
            module, side, rows = loaded(package, precision), side_of(package), batch
            images = torch.rand(batch, 3, side, side, device=Session.torch_device).to(getattr(torch, TYPES[precision]))
            if method == "decode":
                rows, embedding = Session.few(BOXES, 4), module.encode(images)
                boxes = torch.tensor([[0.1, 0.15, 0.4, 0.5]], device=Session.torch_device).mul(side).repeat(rows, 1)
                index = torch.arange(rows, device=Session.torch_device) % batch
                median, p90 = time_ms(lambda: module.decode(embedding, boxes, index))
            else:
                median, p90 = time_ms(lambda: getattr(module, method)(images))
    except RuntimeError as error:  # TorchScript has its own error for memory that ran out
        if "out of memory" not in str(error):
            raise
        return {"out_of_memory": str(error)[-200:]}
    floor_ms, bound = roof(records, package.stem, method, precision)
    return {"rows": rows, "median_ms": median, "p90_ms": p90, "ms_each": median / rows, "tflop_per_s": rows * GFLOP[package.stem, method] / median,
            "roof_ms_each": floor_ms, "roof_of": bound, "of_roof": floor_ms * rows / median}


def models(results, inputs):
    import torch

    torch._C._jit_set_profiling_mode(False)  # as the program does
    torch.backends.cuda.enable_cudnn_sdp(False)
    for precision in TYPES:
        results.measure(functools.partial(product, precision), what="roof", precision=precision)
    results.measure(copied, what="roof", precision="bytes")
    for package in [*sorted(inputs.glob("*.pkg")), *sorted(MODELS.glob("*.pkg"))]:
        methods = ["forward"] if described(package, "task: detect") else ["encode", "decode"]
        for precision, batch, method in itertools.product(Session.few(TYPES, ["bf16"]), Session.few((1, 4, 16, 64), (2,)), methods):
            results.measure(functools.partial(model, results.document["records"], package, precision, batch, method),
                            what="model", package=package.stem, precision=precision, batch=batch, method=method)
            if Session.gpu:
                torch.cuda.empty_cache()  # a large batch may have filled the memory
