"""Profiles the encoder of a segmenter on a CPU by operation: encoder_profile.py PACKAGE [--out FILE.json] [--runs 5]

It runs the TorchScript of the package and its export as Inductor compiles it, both in float32.
The time of an operation is its own time in torch.profiler, the median of the runs. FLOP and bytes come from the shapes
of TorchScript's tensors: each operation reads its inputs and writes its outputs. The floor of an operation is its FLOP
at the speed of a matrix product, or its bytes at the speed of a copy if they take longer. Both speeds are measured before and after; the faster counts.
Run it with the interpreter of the Python set and tcmalloc.
"""

import argparse
import collections
import json
import os
import statistics
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "export"))

import compile as compiler  # noqa: E402
import machine  # noqa: E402
import programs  # noqa: E402
import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

# Part of the name of an operation or of a compiled kernel, and its kind. The first that fits counts.
KINDS = (
    ("softmax", "softmax"),
    ("gelu", "GELU"),
    ("layer_norm", "layer norm"),
    ("batch_norm", "batch norm"),
    ("bmm", "products of attention"),
    ("addmm", "linear layers"),
    ("linear", "linear layers"),
    ("mm", "linear layers"),
    ("copy", "copies"),
    ("clone", "copies"),
    ("reorder", "copies"),
    ("constant_pad", "copies"),
    ("cat", "copies"),
    ("index", "copies"),
    ("add", "additions and products of elements"),
    ("mul", "additions and products of elements"),
)


def kind(name, shapes):
    """The kind of an operation, by its name and the shapes of its inputs."""
    if "conv" in name and "fused" not in name:
        weight = shapes[1]
        return "depthwise convolutions" if weight[1] == 1 and weight[0] > 1 else "1 x 1 convolutions" if list(weight[2:]) == [1, 1] else "other convolutions"
    return next((found for part, found in KINDS if part in name), "other")


class Counts(TorchDispatchMode):
    """Counts calls and bytes by kind. Views move nothing."""

    def __init__(self):
        super().__init__()
        self.found = collections.defaultdict(lambda: {"calls": 0, "mb": 0, "gflop": 0})

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        with FlopCounterMode(display=False) as flop:
            out = function(*args, **(kwargs or {}))
        inputs, outputs = ([t for t in tree_leaves(some) if isinstance(t, torch.Tensor)] for some in ((args, kwargs), out))
        places = {t.untyped_storage().data_ptr() for t in inputs}
        if function._schema.is_mutable or any(t.untyped_storage().data_ptr() not in places for t in outputs):
            entry = self.found[kind(function.name(), [list(t.shape) for t in inputs])]
            entry["calls"] += 1
            entry["mb"] += sum(t.nbytes for t in inputs + outputs) / 1e6
            entry["gflop"] += flop.get_total_flops() / 1e9
        return out


def times(encode, images, runs):
    """Milliseconds of each kind, and of a call without the profiler."""
    found, whole = collections.defaultdict(list), []
    for _ in range(runs):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            encode(images)
        sums = collections.Counter()
        for event in profile.events():
            sums[kind(event.name, event.input_shapes)] += event.self_cpu_time_total / 1000
        for name, milliseconds in sums.items():
            found[name].append(milliseconds)
        whole.append(1000 * machine.seconds(lambda: encode(images), 1))
    return {name: round(statistics.median(each), 2) for name, each in found.items()}, round(statistics.median(whole), 1)


def encoders(package, images):
    """The encoder in TorchScript as the engine holds it, and compiled as `millrace compile` does."""
    script = torch.jit.load(package / "model.ts").eval()
    for weight in script.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    script = torch.jit.freeze(script, preserved_attrs=["encode", "decode"])
    torch._inductor.config.freezing = True
    torch._inductor.config.cpp.enable_kernel_profile = True
    export = torch.compile(programs.load(package / programs.NAME)["encode"].module(), dynamic=False)
    return {"torchscript": script.encode, "compiled": export}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    described, _ = compiler.read_package(arguments.package)
    (images,) = compiler.example(described["methods"]["encode"], 1, described, torch.float32, "cpu")
    record = machine.described() | {"torch": torch.__version__, "threads": torch.get_num_threads(), "allocator": os.environ.get("LD_PRELOAD", "glibc")}
    record |= {"floors": [machine.floors()], "call_ms": {}, "operations": {}}
    with torch.no_grad():
        both = encoders(arguments.package, images)
        for encode in both.values():
            encode(images)  # warms up, and compiles
            encode(images)
        with Counts() as counts:
            both["torchscript"](images)
        rows = {name: {key: round(value, 2) for key, value in entry.items()} for name, entry in counts.found.items()}
        for name, encode in both.items():
            each, record["call_ms"][name] = times(encode, images, arguments.runs)
            for operation, milliseconds in each.items():
                rows.setdefault(operation, {})[f"{name}_ms"] = milliseconds
    record["floors"].append(machine.floors())
    product_speed, copy_speed = (max(measured[key] for measured in record["floors"]) for key in ("fp32_gflop_per_s", "copy_gb_per_s"))
    for entry in rows.values():
        if "mb" in entry:
            product, copy = entry["gflop"] / product_speed, entry["mb"] / 1000 / copy_speed
            entry |= {"floor_ms": round(1000 * max(product, copy), 2), "floor_of": "FLOP" if product > copy else "bytes"}
    record["operations"] = dict(sorted(rows.items(), key=lambda row: -row[1].get("torchscript_ms", 0)))
    record["load"] = os.getloadavg()[0]
    for name, entry in record["operations"].items():
        print(f"{name:36}", ", ".join(f"{key} {value}" for key, value in entry.items()))
    print(record["call_ms"], record["floors"])
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
