"""Writes model.ep.pt2: the methods of a package as exported programs (torch.export), which can be compiled.

The number of rows of each method is dynamic. A program has the weights of its method only.
"""

import io
import json
import re
import warnings

import torch
from torch import nn
from torch.export.graph_signature import InputKind
from torch.export.pt2_archive._package import PT2ArchiveReader, load_pt2, package_pt2

from package import Refused, compare

NAME = "model.ep.pt2"

# What write() writes. torch.export also loads pickles, objects and machine code from an archive, and evaluates some texts.
TENSORS = re.compile(r"(weight|tensor)_\d+", re.ASCII)
RECORDS = re.compile(
    r"data/weights/weight_\d+|data/constants/tensor_\d+|data/weights/\w+_weights_config\.json|data/constants/\w+_constants_config\.json|"
    r"models/\w+\.json|data/sample_inputs/\w+\.pt|archive_format|archive_version|byteorder|\.data/version|\.data/serialization_id",
    re.ASCII,
)
# With / and -, because converted ONNX files have such names of weights.
WORD = re.compile(r"[\w./-]*", re.ASCII)
OPERATOR = re.compile(r"torch\.ops\.aten\.(?!from_file)[\w.]+|_operator\.\w+|torch\.sym_\w+", re.ASCII)
# Parts of a text that is evaluated: sizes with symbols, such as Mul(Integer(5), Symbol('s21', integer=True)).
SIZES = re.compile(
    r"\b(Symbol|Integer|Rational|Float|Add|Mul|Pow|Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|Equality|Unequality|GreaterThan|StrictGreaterThan|LessThan|StrictLessThan)\("
    r"|'s\d+'|\b(positive|integer)=True\b|\b\d+(\.\d+)?\b|[ ,()+*/%-]",
    re.ASCII,
)
# The same for comparisons of the sizes of inputs, such as L['inputs'][1].size()[0] == L['inputs'][2].size()[0].
GUARDS = re.compile(r"\bL\['\w+'\]|\.size\(\)|\[\d+\]|\b\d+\b| [=!<>]= | [<>+*/%-] |//", re.ASCII)
TREES = re.compile(r'"(type|context|children_spec)"|"builtins\.(tuple|list|dict)"|"(null|\[\])"|\bnull\b|\d+|[\s,:{}\[\]]', re.ASCII)
EVALUATED = {"expr_str": SIZES, "guards_code": GUARDS, "in_spec": TREES, "out_spec": TREES}


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


def is_harmless(key, text):
    """Whether reading a text of the JSON records runs no code. `key` is its key."""
    if key in EVALUATED:
        return not EVALUATED[key].sub("", text)
    if key in ("target", "as_operator"):
        return OPERATOR.fullmatch(text) is not None
    if key == "use_pickle":
        return text is False
    # Values of operators, notes for people, and a version.
    return key in ("as_string", "as_strings", "metadata", "torch_version") or WORD.fullmatch(text) is not None


def texts(value, key="", above=""):
    """All texts in a JSON value, with their keys. A note has the key of its mapping: metadata."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield "", name
            yield from texts(below, name, key)
    elif isinstance(value, list):
        for below in value:
            yield from texts(below, key, above)
    elif isinstance(value, str) or key == "use_pickle":
        yield (above if above == "metadata" and key not in EVALUATED else key), value


def check_archive(path):
    """Raises Refused if the file has more than write() writes. It uses the reader of load_pt2, so both see the same records."""

    def refuse(what):
        raise Refused(f"{path}: {what}, which could run code; use only packages whose maker you trust, or export the weights again")

    reader = PT2ArchiveReader(str(path))
    for name in reader.get_file_names():
        if not RECORDS.fullmatch(name):
            refuse(f"has the record {name[:100]!r}")
        if name.startswith("data/sample_inputs/"):
            try:
                if data := reader.read_bytes(name):
                    torch.load(io.BytesIO(data), weights_only=True)
            except Exception:  # from the unpickler
                refuse(f"{name}: has a pickle with more than tensors")
        elif name.endswith(".json"):
            for key, text in texts(json.loads(reader.read_bytes(name))):
                if key == "path_name" and not TENSORS.fullmatch(text) or not is_harmless(key, text):
                    refuse(f"{name}: has {key or 'the name'} {str(text)[:100]!r}")


def convert_weights(program, dtype):
    """Gives a program its floating-point weights in this type. Its plain tensors, such as positions, stay as they are."""
    for name, weight in program.state_dict.items():
        if weight.is_floating_point() and weight.dtype != dtype:
            converted = weight.to(dtype)
            program.state_dict[name] = nn.Parameter(converted, False) if isinstance(weight, nn.Parameter) else converted


def load(path):
    """The exported programs of a file, by method. Weights that halve.py stored in 16 bits are in float32."""
    check_archive(path)
    exported = load_pt2(str(path)).exported_programs
    for program in exported.values():
        convert_weights(program, torch.float32)
    return exported


def check(path, inputs, saved):
    """Compares the programs of a file with the TorchScript model `saved`. Raises Differs beyond the bounds."""
    for name, program in load(path).items():
        with torch.no_grad():
            outputs = [call(*inputs[name]) for call in (program.module(), getattr(saved, name))]
        for i, (own, other) in enumerate(zip(*([output] if torch.is_tensor(output) else output for output in outputs))):
            # A few predicted IoUs may be almost equal.
            compare(f"{NAME}, {name}, output {i}", own, other, deviation=torch.maximum(other.double().std(), torch.tensor(0.1)))
