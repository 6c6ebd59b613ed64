"""Writes model.ep.pt2: the methods of a package as exported programs (torch.export), which can be compiled.

The number of rows of each method is dynamic. A program has the weights of its method only.
"""

import warnings

import torch
from torch import nn
from torch.export.graph_signature import InputKind
from torch.export.pt2_archive._package import load_pt2, package_pt2

from package import compare

NAME = "model.ep.pt2"


class Method(nn.Module):
    """A method of `model` as `forward`, because torch.export takes only that."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *inputs):
        return getattr(self.model, self.name)(*inputs)


def dynamic_shapes(declared, symbols="BN"):
    """The sides of a method's inputs that differ from call to call: those that model.yaml declares by these symbols."""
    symbols = {name: torch.export.Dim(name, min=1, max=declared["maximum"]) for name in symbols}
    return tuple({axis: symbols[size] for axis, size in enumerate(tensor["shape"]) if size in symbols} for tensor in declared["inputs"].values())


def without_unused(program):
    """Removes the weights that only other methods use. torch.export takes all weights of the module."""
    places = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in list(program.graph_signature.input_specs):
        if spec.kind == InputKind.USER_INPUT or places[spec.arg.name].users:
            continue
        program.graph_signature.input_specs.remove(spec)
        program.graph.erase_node(places[spec.arg.name])
        for values in (program.state_dict, program.constants):
            values.pop(spec.target, None)
    program.example_inputs = None  # the archive would contain them
    return program


def export(model, name, declared, inputs):
    """The method `name` of `model`, as declared in model.yaml. `inputs` are examples with at least two rows."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = model if name == "forward" else Method(model, name)
        # forward(*inputs) has one argument: a tuple.
        shapes = dynamic_shapes(declared)
        return without_unused(torch.export.export(module, inputs, dynamic_shapes=shapes if name == "forward" else (shapes,), strict=False))


def write(path, programs):
    package_pt2(str(path), exported_programs=programs)


def load(path):
    """The exported programs of a file, by method."""
    return load_pt2(str(path)).exported_programs


def check(path, inputs, saved):
    """Compares the programs of a file with the TorchScript model `saved`. Raises Differs beyond the bounds."""
    for name, program in load(path).items():
        with torch.no_grad():
            outputs = [call(*inputs[name]) for call in (program.module(), getattr(saved, name))]
        for i, (own, other) in enumerate(zip(*([output] if torch.is_tensor(output) else output for output in outputs))):
            # A few predicted IoUs may be almost equal.
            compare(f"{NAME}, {name}, output {i}", own, other, deviation=torch.maximum(other.double().std(), torch.tensor(0.1)))
