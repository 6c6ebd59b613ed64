"""Counts the bytes that compiled models read and write on a GPU: compiled_bytes.py PACKAGE METHOD ROWS [--top 10]

It needs no GPU. Inductor, the compiler of `millrace compile`, chooses and fuses the kernels for a described H200.
The count is its own: the tensors that each kernel reads and writes, each once. Nothing is compiled or run.
Run it with the interpreter of the Python set.
"""

import argparse
import contextlib
import logging
import sys
import types
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "export"))

import compile as compiler  # noqa: E402
import gpu_graph  # noqa: E402
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


def kernels(program, inputs):
    """Each kernel of a call of an exported program: its bytes, and the operations in it. `inputs` have the shapes of the export."""
    program = program.run_decompositions({})
    tensors = {**program.state_dict, **program.constants}
    kept = [tensors[spec.target] for spec in program.graph_signature.input_specs if spec.target is not None]
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)
        elif node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default  # strides on a GPU may be others than those of the export
        elif node.target is torch.ops.aten.scaled_dot_product_attention.default:
            node.target = attention
        elif "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda")}
    program.graph_module.recompile()
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
        with mode:
            fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in (*kept, *inputs)]
            traced = make_fx(lambda *values: program.graph_module(*values), decomposition_table=table)(*fakes)
        with V.set_fake_mode(mode):
            joint_graph.joint_graph_passes(traced)
        with contextlib.suppress(Counted, InductorError):  # Inductor wraps Counted
            compile_fx.compile_fx_inner(traced, fakes, is_inference=True)
    if not found:
        raise RuntimeError("Inductor chose no kernels")
    return found


def kernels_of(package, method, rows):
    """The kernels of a call of a package's method, in bfloat16."""
    described, _ = compiler.read_package(package)
    inputs = compiler.example(described["methods"][method], rows, described, torch.bfloat16, "cpu")
    module = gpu_graph.for_gpu(compiler.with_weights(programs.load(package / programs.NAME)[method], torch.bfloat16))
    with torch.no_grad():
        return kernels(torch.export.export(module, inputs, strict=False), inputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("method")
    parser.add_argument("rows", type=int, help="pictures, crops or boxes of a call")
    parser.add_argument("--top", type=int, default=10, help="kernels to list, those with the most bytes (default 10)")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    found = sorted(kernels_of(arguments.package, arguments.method, arguments.rows), key=lambda kernel: -kernel[0])
    million = 1e6 * arguments.rows
    print(f"{sum(size for size, _ in found) / million:.1f} MB a row in {len(found)} kernels of a call with {arguments.rows} rows")
    for size, operations in found[: arguments.top]:
        print(f"{size / million:8.2f} MB  {', '.join(operations[:6])}")


if __name__ == "__main__":
    main()
