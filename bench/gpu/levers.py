"""The parts `levers` and `profile`: which way to run a method is fastest on this GPU, and why.

`levers` times each method in each way, as plain calls and as a CUDA graph:
- TorchScript as packaged, and with the weights of convolutions in channels-last order, as the program runs it
- the compiled libraries of each variant that is there

A record has the milliseconds of a call by CUDA events, and those in which the host asks for it.
A call is bound by launches if the host takes longer.
`rms` is the difference from TorchScript in fp32, as a share of the deviation.

`profile` lists the kernels of each call by their time, from CUPTI. It is a part of its own, and TorchScript comes last:
on an H200, a process crashed that timed and profiled a compiled call after profiles of TorchScript.
"""

import faulthandler
import functools
import os
import statistics
import time

from session import Session
from model_times import described, use_tf32
from program import side_of
from variants import TUNINGS, methods_of, packages, variant_of

ROWS = {"forward": (16, 4, 1), "encode": (16, 4, 1), "decode": (160, 64, 16)}  # of a call; a short session has only the first


def rows_of(method):
    return Session.few(ROWS[method][:1] if Session.short else ROWS[method], (2, 1) if method == "decode" else (1,))


def precision_of(package):
    return ("fp16" if described(package, "task: detect") else "bf16") if Session.gpu else "fp32"


def type_of(precision):
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def torchscript(package, precision, channels_last=True):
    """The frozen module, as the program makes it."""
    import torch
    import traces

    module = torch.jit.load(str(package / "model.ts"), map_location=Session.torch_device).to(type_of(precision)).eval()
    traces.adapt(module, tf32=False, device=Session.torch_device)
    if channels_last:
        for parameter in module.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return torch.jit.freeze(module, preserved_attrs=None if methods_of(package) == ["forward"] else ["encode", "decode"])


def library_call(file):
    """A compiled library as the program calls it."""
    import torch

    # For one thread: with the code for several, CUDA refuses to capture a call.
    runner = torch._C._aoti.AOTIModelContainerRunnerCuda(str(file), 1, "cuda", "", True) if Session.gpu else torch._C._aoti.AOTIModelContainerRunnerCpu(str(file), 1)
    # Compiled code takes the strides of a dense tensor for granted.
    return lambda *inputs: runner.run([value.contiguous() for value in inputs])


def inputs_of(package, method, rows, precision):
    import torch

    generator, device, kind = torch.Generator().manual_seed(1), Session.torch_device, type_of(precision)
    side = side_of(package)
    if method != "decode":
        return (torch.rand(rows, 3, side, side, generator=generator).to(device, kind),)
    pictures = max(1, min(16, rows // 4))
    corner = torch.rand(rows, 2, generator=generator) * side * 0.5
    boxes = torch.cat([corner, corner + side * (0.05 + 0.4 * torch.rand(rows, 2, generator=generator))], 1)
    images = torch.rand(pictures, 3, side, side, generator=generator).to(device)
    embedding = torchscript(package, "fp32").encode(images).to(kind)
    return embedding, boxes.to(device), (torch.arange(rows) * pictures // rows).to(device)


def first(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def timed(call, inputs, repeats):
    import torch

    times, host = [], []
    for _ in range(3):
        call(*inputs)
    for _ in range(repeats):
        if Session.gpu:
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
        at = time.perf_counter()
        call(*inputs)
        host.append(1e3 * (time.perf_counter() - at))
        if Session.gpu:
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
    times = times or host
    return {"ms": statistics.median(times), "ms_spread": [min(times), max(times)], "host_ms": statistics.median(host)}


def kernels(call, inputs, shown=25):
    """The kernels of a call by their time, from CUPTI."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA if Session.gpu else ProfilerActivity.CPU]) as seen:
        call(*inputs)
        if Session.gpu:
            torch.cuda.synchronize()
    time_of = "self_device_time_total" if Session.gpu else "self_cpu_time_total"
    rows = sorted(((event.key, event.count, getattr(event, time_of)) for event in seen.key_averages() if getattr(event, time_of) > 0), key=lambda row: -row[2])
    return {"launches": sum(row[1] for row in rows), "kernels_ms": sum(row[2] for row in rows) / 1e3, "kernels": [[name[:140], count, round(us, 1)] for name, count, us in rows[:shown]]}


def graph_of(call, inputs):
    import torch

    for _ in range(3):
        call(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = call(*inputs)

    def replay(*_):
        graph.replay()
        return out

    return replay


def call_of(inputs_folder, package, way, method, rows):
    if way.startswith("torchscript"):
        return getattr(torchscript(package, precision_of(package), "channels last" in way), method)
    return library_call(variant_of(inputs_folder, way.split(", ")[1], package) / f"{method}_{rows}.so")


def lever(inputs_folder, package, method, way, rows):
    import torch

    use_tf32("fp32")
    graph = way.endswith(", graph")
    with torch.inference_mode(way.startswith("torchscript")), torch.no_grad():
        inputs = inputs_of(package, method, rows, precision_of(package))
        wide = [value.float() if value.is_floating_point() else value for value in inputs]
        expected = first(getattr(torchscript(package, "fp32"), method)(*wide)).float().clone()
        plain = call_of(inputs_folder, package, way.removesuffix(", graph"), method, rows)
        call = graph_of(plain, inputs) if graph else plain
        found = first(call(*inputs)).float()
        rms = ((found - expected).square().mean().sqrt() / expected.std()).item()
        return {"rows": rows, "rms": rms, **timed(call, inputs, Session.few(20, 2))}


def profiled(inputs_folder, package, method, way, rows):
    import torch

    with torch.inference_mode(way.startswith("torchscript")), torch.no_grad():
        inputs = inputs_of(package, method, rows, precision_of(package))
        call = call_of(inputs_folder, package, way, method, rows)
        for _ in range(3):
            call(*inputs)
        return {"rows": rows, **kernels(call, inputs)}


def over(ways, what, measurement, results, inputs):
    """Measures each method in each way for which there is a variant."""
    import torch

    faulthandler.enable()
    torch._C._jit_set_profiling_mode(False)  # as the program does
    torch.backends.cuda.enable_cudnn_sdp(False)
    for way in ways:
        for package in packages(inputs):
            variant = variant_of(inputs, way.split(", ")[1], package) if way.startswith("compiled") else None
            for method, rows in ((method, rows) for method in methods_of(package) for rows in rows_of(method)):
                if way.startswith("compiled") and not (variant and (variant / f"{method}_{rows}.so").is_file()):
                    continue
                results.measure(functools.partial(measurement, inputs, package, method, way, rows), what=what, package=package.stem, method=method, options=way, batch=rows)
                if Session.gpu:
                    torch.cuda.empty_cache()


WAYS = ["torchscript, channels last", *(f"compiled, {tuning}" for tuning in TUNINGS), "torchscript"]


def levers(results, inputs):
    # Graphs come last, since a failed capture can leave CUDA in a bad state. A CPU has none.
    over([*WAYS, *([f"{way}, graph" for way in WAYS[:-1]] if Session.gpu else [])], "lever", lever, results, inputs)


def profile(results, inputs):
    os.environ["TEARDOWN_CUPTI"] = "0"  # PyTorch would unload CUPTI after each profile
    over([*WAYS[1:-1], WAYS[0]], "profile", profiled, results, inputs)
