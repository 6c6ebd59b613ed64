"""Adapts a TorchScript trace to the device and the settings of this run, for scripts in Python.

A trace stores those with which it was made. The program does the same in models/engines/torch/prepare_module.cpp.
"""

import torch

BENCHMARK, ALLOW_TF32, INPUTS = 9, 12, 13  # of aten::_convolution
INTEGRAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def methods(module):
    """The graphs of a TorchScript module and its parts."""
    for part in module.modules():
        for name in part._c._method_names():
            yield part._c._get_method(name).graph


def nodes(block):
    """All nodes of a block; those of inner blocks come before their node."""
    for node in block.nodes():
        for inner in node.blocks():
            yield from nodes(inner)
        yield node


def is_size(node):
    """Whether the node is one whole number as a tensor. On a GPU, each use of its value would wait for the GPU."""
    if node.kind() != "prim::Constant" or not node.hasAttribute("value") or node.kindOf("value") != "t":
        return False
    value = node.t("value")
    return value.dim() == 0 and value.dtype in INTEGRAL


def adapt(module, tf32, benchmark=False, device=None):
    """Adapts the graphs of `module` and returns it. Call it before the module's first call, which copies the graphs.

    - Sizes move to the CPU.
    - `tf32` allows TF32 in convolutions; `benchmark` lets cuDNN choose algorithms by trial.
    - If `device` is given, the trace makes its tensors there.
    """
    for graph in methods(module):
        for node in list(nodes(graph)):
            if is_size(node):
                node.t_("value", node.t("value").cpu())
            elif device and node.kind() == "prim::Constant" and node.hasAttribute("value") and node.output().type().kind() == "DeviceObjType":
                node.s_("value", str(torch.empty(0, device=device).device))
            elif node.kind() == "aten::_convolution" and node.inputsSize() == INPUTS:
                for place, value in ((BENCHMARK, benchmark), (ALLOW_TF32, tf32)):
                    with graph.insert_point_guard(node):
                        node.replaceInput(place, graph.insertConstant(value))
        graph.lint()
    return module
