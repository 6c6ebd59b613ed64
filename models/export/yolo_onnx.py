"""Makes a model package from a YOLO in ONNX. export.py calls it.

It knows YOLOX, the outputs of Ultralytics' exporter (YOLOv8 and later), and those of YOLOv5 and YOLOv7.
The shape of the output distinguishes them. For YOLOX, its values do too: boxes can be raw or decoded.
Many files have a fixed batch of 1. The exporter removes it where the graph allows that.
"""

import ast
import dataclasses
import functools
import inspect
import re
import tempfile
from pathlib import Path

from command_line import MODEL, end
from package import COCO_NAMES, NEEDS, ULTRALYTICS_INPUT, Differs, Refused, compare, compare_boxes, original_of, read_names, write_package

try:
    import numpy
    import onnx
    import onnxruntime
    import torch
    from onnx import numpy_helper
    from onnx.external_data_helper import uses_external_data
    from onnx2torch import convert
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    end(MODEL, f"{error}; {NEEDS}")

import photograph
from detections import CHECKS, corners, logits_of
from sniff import SUPPORTED

STRIDES = [8, 16, 32]
ANCHORS = 3  # of a cell, in YOLOv5 and YOLOv7
# ONNX Runtime and PyTorch sum in different orders. Against double precision, both have about the same error.
RUNTIME_SCORE_BOUND = 2e-4  # for probabilities
RUNTIME_DEVIATIONS = 10  # for logits of models without NMS: the bound of other comparisons, times this

YOLOX_INPUT = {
    "colour": "bgr",
    "scale": 1.0,
    "mean": [0.0, 0.0, 0.0],
    "std": [1.0, 1.0, 1.0],
    "resize": "letterbox",
    "filter": "cv2_linear",
    "rounding": "down",
    "padding": "top_left",
    "pad": [114.0, 114.0, 114.0],
}


@dataclasses.dataclass
class Form:
    """The form of an output."""

    kind: str  # yolox_raw, yolox, anchors (YOLOv5, YOLOv7), v8, end_to_end
    classes: int | None  # None: the output does not tell
    boxes: int
    architecture: str

    @property
    def layout(self):
        return "end_to_end" if self.kind == "end_to_end" else "v8"

    @property
    def input(self):
        return YOLOX_INPUT if self.kind.startswith("yolox") else ULTRALYTICS_INPUT


class Boxes(nn.Module):
    """The network with its output in a layout of docs/packages.md, in float32."""

    def __init__(self, network, kind, height, width):
        super().__init__()
        self.network, self.kind = network, kind
        self.cells = cells_of(height, width).float()  # a plain tensor, which no conversion of the weights changes

    def forward(self, images):
        found = self.network(images).float()
        if self.kind in ("v8", "end_to_end"):
            return found
        centres, sides = found[..., :2], found[..., 2:4]
        if self.kind == "yolox_raw":
            strides = self.cells[:, 2:]
            centres, sides = (centres + self.cells[:, :2]) * strides, sides.exp() * strides
        return torch.cat([centres, sides, found[..., 4:5] * found[..., 5:]], 2).transpose(1, 2)


def cells_of(height, width):
    """Column, row and stride of the cells of all strides [cells, 3]."""
    cells = []
    for stride in STRIDES:
        y, x = torch.meshgrid(torch.arange(height // stride), torch.arange(width // stride), indexing="ij")
        cells.append(torch.stack([x.flatten(), y.flatten(), torch.full([x.numel()], stride)], dim=1))
    return torch.cat(cells)


def dimensions(value):
    """Sizes of an input or output; 0 for a size that is open in the file."""
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def metadata_of(model):
    """What Ultralytics' exporter wrote next to the graph."""
    return {entry.key: entry.value for entry in model.metadata_props}


def maker_of(model):
    """The software that made a file, and its version."""
    metadata = metadata_of(model)
    return (metadata["author"], metadata.get("version", "")) if "author" in metadata else (model.producer_name, model.producer_version)


def literal(text):
    """The value of a Python literal in the metadata; None if it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def looks_of(model):
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    return inputs, f"an ONNX model with inputs and outputs {', '.join(str(dimensions(value)) for value in (*inputs, *model.graph.output))}"


def input_size(path, model, imgsz):
    """Height and width of the input. Raises Refused for models with other inputs."""
    task = metadata_of(model).get("task", "detect")
    if task != "detect":
        raise Refused(f"{path}: is an ONNX model of Ultralytics for the task {task}; export the package from its .pt file")
    if any(node.op_type == "NonMaxSuppression" for node in model.graph.node):
        raise Refused(f"{path}: contains non-maximum suppression, which Millrace does itself; export it again without (Ultralytics: nms=None)")
    inputs, looks = looks_of(model)
    shape = dimensions(inputs[0]) if len(inputs) == 1 else []
    if len(shape) != 4 or shape[1] not in (0, 3) or len(model.graph.output) != 1:
        raise Refused(f"{path}: is {looks}, but a YOLO has one input [1, 3, height, width] and one output; {SUPPORTED}")
    if shape[0] > 1:
        raise Refused(f"{path}: is {looks}: it takes {shape[0]} pictures in every call; export it again with a batch of 1 or an open batch")
    if min(shape[2:]) > 0:
        if imgsz:
            raise Refused(f"{path}: has a fixed input of {shape[3]} x {shape[2]} pixels; leave --imgsz out")
        size = shape[2:]
    else:
        size = imgsz or literal(metadata_of(model).get("imgsz")) or 640
    size = list(size) if isinstance(size, (list, tuple)) else [size]
    size = (size * 2)[:2]
    if not all(isinstance(side, int) and 32 <= side <= 8192 and side % 32 == 0 for side in size):
        raise Refused(f"{path}: an input of {size} pixels; sides of a YOLO are multiples of 32, from 32 to 8192 (--imgsz)")
    return size


def form_of(path, model, output, height, width):
    """The Form of `output`, which ONNX Runtime computed for a picture. Raises Refused for others."""
    named = re.search(r"(?:YOLO|RT-?DETR)\S*", metadata_of(model).get("description", ""))
    name = named[0].lower() if named else None
    cells = len(cells_of(height, width))
    rows, columns = output.shape[1:] if output.ndim == 3 else (0, 0)
    if rows == cells and columns >= 6:
        # Decoded centres are near their cells. Raw ones are offsets.
        table = cells_of(height, width)
        centres = (table[:, :2] + 0.5) * table[:, 2:]
        decoded = (output[0, :, :2] - centres).abs().mean() < output[0, :, :2].abs().mean()
        return Form("yolox" if decoded else "yolox_raw", columns - 5, rows, "yolox")
    if rows == ANCHORS * cells and columns >= 6:
        return Form("anchors", columns - 5, rows, name or "yolov5")
    if columns == 6 and rows <= 1000:
        if output[0, :, :4].abs().max() <= 2:
            raise Refused(f"{path}: has boxes as shares of the input, as RT-DETR has; export the package from its .pt file")
        return Form("end_to_end", None, rows, name or "yolov10")
    if 5 <= rows < columns:
        return Form("v8", rows - 4, columns, name or "yolov8")
    raise Refused(f"{path}: is {looks_of(model)[1]}, whose output of {list(output.shape)} is not that of a known YOLO; {SUPPORTED}")


def class_names(path, form, model, names):
    """Names from the file `names`, one per line; else those in the metadata; else COCO's, if there are 80 classes."""
    given = literal(metadata_of(model).get("names"))
    given = [given.get(i) for i in range(len(given))] if isinstance(given, dict) else given
    count = form.classes or (len(given) if isinstance(given, list) else None)
    if names is not None:
        if count is None:
            raise Refused(f"{path}: does not tell how many classes it has; export the package from its .pt file")
        return read_names(names, path, count)
    if isinstance(given, list) and len(given) == count and all(isinstance(name, str) and name for name in given):
        return given
    if count != len(COCO_NAMES):
        classes = f"{count} classes" if count else "classes"
        raise Refused(f"{path}: has {classes} without names; name them in a file, one per line, with --names FILE (make: NAMES=FILE)")
    return COCO_NAMES


def is_elsewhere(message):
    """Whether a tensor anywhere in a message of protobuf has its numbers in another file."""
    if isinstance(message, onnx.TensorProto):
        return uses_external_data(message)
    fields = [([found] if hasattr(found, "ListFields") else found) for field, found in message.ListFields() if field.message_type]
    return any(is_elsewhere(one) for found in fields for one in found)


def read(path):
    try:
        model = onnx.load(str(path), load_external_data=False)
        elsewhere = is_elsewhere(model)
        if not elsewhere:
            onnx.checker.check_model(model)
    except Exception as error:  # protobuf's and the checker's own types
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise Refused(f"{path}: looks like an ONNX model but cannot be read as one ({first}); fetch it again") from error
    if elsewhere:
        raise Refused(f"{path}: keeps weights in other files, which the exporter does not open; export it again into one file (PyTorch: external_data=False)")
    return model


def with_fixed_sizes(path, model, height, width):
    """The graph for one picture of this size, without the operations that compute sizes. ONNX Runtime folds them."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    inputs, _ = looks_of(fixed)
    for dimension, size in zip(inputs[0].type.tensor_type.shape.dim, (1, 3, height, width)):
        dimension.dim_value = size
    fixed.graph.output[0].type.tensor_type.ClearField("shape")
    with tempfile.TemporaryDirectory(prefix="millrace-export-") as folder:
        file = Path(folder) / "fixed.onnx"
        options = runtime_options()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(file)
        run_or_refuse(path, lambda: onnxruntime.InferenceSession(fixed.SerializeToString(), options, providers=["CPUExecutionProvider"]))
        return onnx.load(str(file))


def with_any_batch(model):
    """Makes reshapes take their first size from their input. The graph has the 1 of its example there."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        shape = constants.get(node.input[1]) if node.op_type == "Reshape" else None
        sizes = numpy_helper.to_array(shape).copy() if shape is not None else numpy.zeros(0)
        if len(sizes) > 1 and sizes[0] == 1:
            sizes[0] = 0  # ONNX: as in the input
            shape.CopyFrom(numpy_helper.from_array(sizes, shape.name))
    return model


def reshape(x, sizes):
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(sizes)])


def part(x, starts, ends, axes, steps):
    index = [slice(None)] * x.ndim
    for start, stop, axis, step in zip(starts, ends, axes, steps):
        index[axis] = slice(start, min(stop, x.shape[axis]) if stop > 0 else stop, step)
    return x[tuple(index)]


def with_constants(network):
    """Makes constant sizes of operations numbers of the graph. torch.export cannot read them from tensors."""

    def value_of(node):
        return functools.reduce(getattr, node.target.split("."), network).tolist()

    for node in list(network.graph.nodes):
        module = network.get_submodule(node.target) if node.op == "call_module" else None
        kind, call = type(module).__name__, None
        if kind not in ("OnnxReshape", "OnnxSlice", "OnnxResize", "OnnxSplit13"):
            continue
        given = inspect.signature(module.forward).bind(*node.args, **node.kwargs).arguments
        x, *others = given.values()
        if not all(other is None or other.op == "get_attr" for other in others):
            continue
        sizes = {name: value_of(other) for name, other in list(given.items())[1:] if other is not None}
        if kind == "OnnxReshape":
            call = (reshape, (x, sizes["shape"]), {})
        elif kind == "OnnxSlice":
            starts, ends = sizes["starts"], sizes["ends"]
            axes, steps = sizes.get("axes", list(range(len(starts)))), sizes.get("steps", [1] * len(starts))
            call = (part, (x, starts, ends, axes, steps), {}) if min(steps) > 0 else None
        elif kind == "OnnxResize" and sizes.get("scales"):
            call = (F.interpolate, (x,), {"scale_factor": sizes["scales"][2:], "mode": {"linear": "bilinear"}.get(module.onnx_mode, module.onnx_mode)})
        elif kind == "OnnxSplit13" and "split" in sizes:
            call = (torch.split, (x, sizes["split"]), {"dim": module.axis})
        if call:
            with network.graph.inserting_before(node):
                node.replace_all_uses_with(network.graph.call_function(*call))
            network.graph.erase_node(node)
    network.graph.eliminate_dead_code()
    network.recompile()
    return network


def runtime_options():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    return options


def run_or_refuse(path, call):
    try:
        return call()
    except Exception as error:  # onnxruntime has a type for each status
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise Refused(f"{path}: ONNX Runtime cannot run it ({first}); export the package from the original checkpoint") from error


def runtime_outputs(path, pictures):
    """Outputs of ONNX Runtime for the unchanged file, picture by picture."""

    def run():
        session = onnxruntime.InferenceSession(str(path), runtime_options(), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return torch.cat([torch.from_numpy(session.run(None, {name: picture.numpy()})[0]) for picture in pictures])

    return run_or_refuse(path, run)


def converted(path, model, height, width):
    try:
        return with_constants(convert(with_any_batch(with_fixed_sizes(path, model, height, width))).eval())
    except NotImplementedError as error:
        operation = re.search(r"operation_type='?(\w+)", str(error))
        what = f"the operation {operation[1]}" if operation else str(error).split("\n")[0][:200]
        raise Refused(f"{path}: uses {what}, which cannot be converted to PyTorch; export the package from the original checkpoint") from error


def takes_batches(module, views):
    """Why the module cannot take several pictures in a call; None if it can."""
    with torch.inference_mode():
        single = torch.cat([module(view) for view in views])
        try:
            together = module(torch.cat(views))
        except Exception as error:  # any operation can fail
            return (str(error).strip() or type(error).__name__).split("\n")[0][:120]
    if together.shape != single.shape:
        return f"the output for 3 pictures has the shape {list(together.shape)}"
    if (together - single).abs().max() > 0.5:
        return "its results differ from those of single pictures"
    return None


def corners_of_raw(output, height, width, scale):
    """Corners of all boxes of a raw YOLOX, in double precision and pixels of the picture: a twin of Boxes for the comparison."""
    cells = cells_of(height, width).double()
    centre = (output[..., :2].double() + cells[:, :2]) * cells[:, 2:]
    half = output[..., 2:4].double().exp() * cells[:, 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1).transpose(1, 2) / scale


def compare_with_runtime(name, output, reference, form, size, scale):
    """Compares an output in the layout of the package with that of ONNX Runtime in the form of the file."""
    if form.layout == "end_to_end":
        deviation = RUNTIME_DEVIATIONS * logits_of(reference[..., 4]).std().clamp(min=0.1)
        return CHECKS["end_to_end"](name, output, reference, scale, deviation)
    if form.kind == "v8":
        boxes, scores = corners(reference, scale), reference[:, 4:]
    else:
        scores = (reference[..., 4:5] * reference[..., 5:]).transpose(1, 2)
        boxes = corners_of_raw(reference, *size, scale) if form.kind == "yolox_raw" else corners(reference.transpose(1, 2), scale)
    compare_boxes(name, corners(output, scale), boxes)
    largest = (output[:, 4:] - scores).abs().max().item()
    print(f"{name}: scores differ by at most {largest:.2e} (allowed {RUNTIME_SCORE_BOUND:g})")
    if not largest <= RUNTIME_SCORE_BOUND:
        raise Differs(f"{name}: a score differs from ONNX Runtime's by {largest:.2e}, allowed are {RUNTIME_SCORE_BOUND:g}")
    return None


def export(path, out, pixels, names=None, imgsz=None):
    model = read(path)
    height, width = input_size(path, model, imgsz)
    pictures = photograph.three_views(pixels)
    # YOLOX's form does not depend on the colours or the place of the picture in the input.
    view, _ = photograph.ultralytics_letterbox(pixels, height, width)
    form = form_of(path, model, runtime_outputs(path, [view]), height, width)
    classes = class_names(path, form, model, names)
    print(f"{path}: {form.architecture} in ONNX, {form.kind} boxes, {len(classes)} classes, input {width} x {height}")
    letterbox = photograph.yolox_letterbox if form.input is YOLOX_INPUT else photograph.ultralytics_letterbox
    views, scales = zip(*(letterbox(picture, height, width) for picture in pictures))
    reference = runtime_outputs(path, views)
    module = Boxes(converted(path, model, height, width), form.kind, height, width).eval()
    reason = takes_batches(module, views)
    if reason:
        print(f"the graph takes one picture in a call, so the package has max_batch: 1 and no model.ep.pt2, which 'millrace compile' needs ({reason})")
    example = views[2] if reason else torch.cat(views[:2])
    with torch.inference_mode():
        traced = torch.jit.trace(module, example, check_trace=False)

    def check(saved):
        for name, kept in (("the picture alone", slice(2, 3)), ("in a batch of 3", slice(0, 3)))[: 1 if reason else 2]:
            with torch.inference_mode():
                output, same = saved(torch.cat(views)[kept]), module(torch.cat(views)[kept])
            compare_with_runtime(f"{name}, against ONNX Runtime", output, reference[kept], form, (height, width), scales[0])
            if form.layout == "v8":
                compare(f"{name}, against the same graph in PyTorch: boxes", output[:, :4], same[:, :4])
                compare(f"{name}, against the same graph in PyTorch: scores", output[:, 4:], same[:, 4:])

    write_package(
        out,
        {
            "name": Path(path).stem,
            "task": "detect",
            "architecture": form.architecture,
            "original": original_of(*maker_of(model), form.architecture, "in ONNX"),
            "input": {"width": width, "height": height, **form.input},
            "output": {"layout": form.layout, "boxes": form.boxes},
            "classes": classes,
            "max_batch": 1 if reason else 64,
            "licence": "Apache-2.0" if form.architecture == "yolox" else metadata_of(model).get("license", "not known; ask the source of the weights"),
        },
        traced,
        check,
        source=None if reason else (module, {"forward": (example,)}),
    )
