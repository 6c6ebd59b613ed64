"""What a trace took for given where it was made, set for where and how it runs: as the program does (models/engines/torch/torch_engine.cpp), for scripts in Python."""

import torch

BENCHMARK, ALLOW_TF32, INPUTS = 9, 12, 13  # of aten::_convolution
INTEGRAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def methods(module):
    """The graphs of a TorchScript module and its parts."""
    for part in module.modules():
        for name in part._c._method_names():
            yield part._c._get_method(name).graph


def nodes(block):
    for node in block.nodes():
        for inner in node.blocks():
            yield from nodes(inner)
        yield node


def is_size(node):
    """Whether it holds a single whole number as a tensor: on a GPU, each place that reckons with it would wait for the GPU."""
    if node.kind() != "prim::Constant" or not node.hasAttribute("value") or node.kindOf("value") != "t":
        return False
    value = node.t("value")
    return value.dim() == 0 and value.dtype in INTEGRAL


def adapt(module, tf32, benchmark=False, device=None):
    """Before its first call, since graphs of calls are copies: sizes go to the CPU, convolutions may or may not use TF32 and cuDNN's choice by trial,
    and tensors that the trace makes are made on the device, where one is named."""
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
