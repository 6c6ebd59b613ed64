"""Counts what calls of a package's models ask of a GPU: model_cost.py PACKAGE... [--rows 16] [--boxes 160] [--top N]

Prints a table: FLOP, bytes in memory and launches of each method, as packaged and compiled, in bfloat16.

- As packaged: TorchScript launches a kernel for each operation that is no view. It reads its inputs and writes its results.
- Compiled: Inductor, the compiler of `millrace compile`, chooses and fuses the kernels. Each reads and writes its tensors.

It needs no GPU, because it describes an H200 to PyTorch. Nothing is compiled or run.
The counts are its own: each kernel moves each of its tensors once. Only products and convolutions have FLOP.
Run it with the interpreter of the Python set.
"""

import argparse
import contextlib
import copy
import logging
import math
import sys
import types
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "export"))

import compile as compiler  # noqa: E402
import gpu_graph  # noqa: E402
import gpu_upscaling  # noqa: E402
import programs  # noqa: E402
import torch  # noqa: E402
from torch._dynamo.device_interface import CudaInterface  # noqa: E402
from torch._inductor import compile_fx, config  # noqa: E402
from torch._inductor.decomposition import select_decomp_table  # noqa: E402
from torch._inductor.exc import InductorError  # noqa: E402
from torch._inductor.fx_passes import fuse_attention, joint_graph  # noqa: E402
from torch._inductor.graph import GraphLowering  # noqa: E402
from torch._inductor.virtualized import V  # noqa: E402
from torch._subclasses import fake_tensor  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils import _pytree  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

H200 = types.SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=141 << 30,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    L2_cache_size=50 << 20,
)


class Counted(Exception):
    """Ends the compilation once the kernels are chosen."""


def described_gpu():
    """Patches: PyTorch sees an H200 that it never calls."""

    def h200(device=None):
        return H200

    def index(*device):
        return 0

    patches = {"is_available": lambda: True, "device_count": lambda: 1, "current_device": index, "get_device_properties": h200}
    patches |= {"get_device_capability": lambda device=None: (H200.major, H200.minor), "_lazy_init": index, "synchronize": index, "set_device": index}
    patches |= {"_exchange_device": index, "_maybe_exchange_device": index, "set_rng_state": index, "get_rng_state": lambda device=None: torch.zeros(16)}
    for name, function in patches.items():
        yield mock.patch.object(torch.cuda, name, function)
    yield mock.patch.object(torch._C, "_cuda_getCurrentRawStream", index, create=True)
    for holder in (CudaInterface, CudaInterface.Worker):
        yield mock.patch.object(holder, "get_device_properties", staticmethod(h200))
    yield mock.patch.object(CudaInterface, "get_compute_capability", staticmethod(lambda device=None: 90))
    # These would make tensors on the GPU. Our models have no pattern of attention that the second would find.
    yield mock.patch.object(fake_tensor, "init_gpu_context", index)
    yield mock.patch.object(fuse_attention, "_sfdp_init", index)
    # These options would run kernels: to choose them, and to fold constants.
    runs_kernels = ("max_autotune", "shape_padding", "joint_graph_constant_folding")
    yield config.patch({**compiler.inductor_options("cuda"), **dict.fromkeys(runs_kernels, False)})


def attention(q, k, v, mask=None, scale=None):
    """The kernel of attention that PyTorch takes on a GPU. To choose it, PyTorch would ask the GPU."""
    if mask is None and q.shape[3] == v.shape[3]:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, scale=scale)[0]
    mask = mask if mask is None else mask.expand(*q.shape[:3], k.shape[2])
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, mask, False, scale=scale)[0]


def on_a_gpu(program):
    """A copy of the program's graph, changed so that it can be traced for the described GPU, and its weights."""
    graph_module = copy.deepcopy(program.graph_module)
    tensors = {**program.state_dict, **program.constants}
    kept = [tensors[spec.target] for spec in program.graph_signature.input_specs if spec.target is not None]
    for node in list(graph_module.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph_module.graph.erase_node(node)
        elif node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default  # strides on a GPU may be others than those of the export
        elif node.target is torch.ops.aten.scaled_dot_product_attention.default:
            node.target = attention
        elif "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda")}
    graph_module.recompile()
    return graph_module, kept


def fake(mode, tensors):
    """These tensors on the described GPU, without values."""
    with mode:
        return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in tensors]


def moved(tensor):
    """The bytes of a tensor's values. A stride of 0 repeats them."""
    return tensor.element_size() * math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)


class Unfused(TorchDispatchMode):
    """Collects the name and the bytes of each operation that is no view."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        inputs, results = ([t for t in _pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)] for tree in ((args, kwargs), result))
        places = {t.untyped_storage()._cdata for t in inputs}
        view = all(t.untyped_storage()._cdata in places for t in results) and not function._schema.is_mutable
        name = function.overloadpacket.__name__
        if view or name.startswith(("empty", "new_empty")):
            return result
        size = sum(map(moved, (*inputs, *results)))
        if name == "convolution" and args[2] is not None:
            # cuDNN has no bias. Another kernel adds it to the result.
            size -= moved(args[2])
            self.found.append(("bias", moved(args[2]) + 2 * moved(result)))
        self.found.append((name, size))
        return result


def operations(program, inputs):
    """FLOP of a call of an exported program, and name and bytes of each operation that is no view, not fused with others."""
    graph_module, kept = on_a_gpu(program)
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.millrace.upscale.default):
        node.target = gpu_upscaling.plain  # the counter of FLOP looks into no kernel
    graph_module.recompile()
    mode, unfused, flop = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), Unfused(), FlopCounterMode(display=False)
    with contextlib.ExitStack() as patches:
        for patch in described_gpu():
            patches.enter_context(patch)
        tensors = fake(mode, (*kept, *inputs))
        with torch.no_grad(), mode, unfused, flop:
            graph_module(*tensors)
    return flop.get_total_flops(), unfused.found


def kernels(program, inputs):
    """Each kernel of a compiled call of an exported program: its bytes, and the operations in it. `inputs` have the shapes of the export."""
    graph_module, kept = on_a_gpu(program.run_decompositions({}))
    found = []

    def count(graph):
        graph.init_wrapper_code()
        graph._update_scheduler()
        for node, words in graph.count_bytes()[1]:
            operations = [origin.name for part in node.get_nodes() if part.node is not None for origin in part.node.get_origins()]
            found.append((4 * words, operations))
        raise Counted

    table = dict(select_decomp_table())
    # Its decomposition would call CUDA.
    table[torch.ops.aten.index_select.default] = lambda x, dim, index: torch.ops.aten.index.Tensor(x, [None] * dim + [index])
    with contextlib.ExitStack() as patches:
        for patch in (*described_gpu(), mock.patch.object(GraphLowering, "compile_to_module", count)):
            patches.enter_context(patch)
        mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
        fakes = fake(mode, (*kept, *inputs))
        with mode:
            traced = make_fx(lambda *values: graph_module(*values), decomposition_table=table)(*fakes)
        with V.set_fake_mode(mode):
            joint_graph.joint_graph_passes(traced)
        with contextlib.suppress(Counted, InductorError):  # Inductor wraps Counted
            compile_fx.compile_fx_inner(traced, fakes, is_inference=True)
    if not found:
        raise RuntimeError("Inductor chose no kernels")
    return found


def exported(package, method, rows, for_gpu):
    """A method of a package with weights in bfloat16, and inputs of a call. `for_gpu`: as `millrace compile` changes it.

    Otherwise, batch norms are folded, as in TorchScript when its models are frozen.
    """
    described, _ = compiler.read_package(package)
    inputs = compiler.example(described["methods"][method], rows, described, torch.bfloat16, "cpu")
    module = compiler.with_weights(programs.load(package / programs.NAME)[method], torch.bfloat16)
    with torch.no_grad():
        if for_gpu:
            module = gpu_graph.for_gpu(module)
        else:
            gpu_graph.fold_batch_norms(module)
            module.recompile()
        return torch.export.export(module, inputs, strict=False), inputs


def kernels_of(package, method, rows):
    """The kernels of a compiled call of a package's method, in bfloat16."""
    return kernels(*exported(package, method, rows, for_gpu=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, nargs="+", metavar="package")
    parser.add_argument("--rows", type=int, default=16, help="pictures or crops of a call (default 16)")
    parser.add_argument("--boxes", type=int, default=160, help="boxes of a call (default 160)")
    parser.add_argument("--top", type=int, default=0, help="kernels to list, those with the most bytes (default 0)")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    print("| method | rows a call | variant | GFLOP a row | MB a row | launches a call |\n|---|---|---|---|---|---|")
    for package in arguments.packages:
        described, _ = compiler.read_package(package)
        for method, declared in described["methods"].items():
            rows = arguments.boxes if declared["row"] == "box" else arguments.rows
            for variant in ("as packaged", "compiled"):
                program, inputs = exported(package, method, rows, variant == "compiled")
                flop, found = operations(program, inputs)
                found = [(size, name) for name, size in found]
                if variant == "compiled":
                    found = [(size, ", ".join(names[:6])) for size, names in kernels(program, inputs)]
                print(f"| `{method}` of {package.stem} | {rows} | {variant} | {flop / rows / 1e9:.1f} | {sum(size for size, _ in found) / rows / 1e6:.0f} | {len(found)} |", flush=True)
                for size, names in sorted(found, reverse=True)[: arguments.top]:
                    print(f"{size / rows / 1e6:8.2f} MB  {names}")


if __name__ == "__main__":
    main()
