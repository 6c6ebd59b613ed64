"""Makes a model package from a YOLOX ONNX file: yolox_onnx.py MODEL.onnx OUT.pkg

The reshapes in the ONNX files that YOLOX publishes have a fixed batch of 1.
The exporter removes it, so the package runs any batch.
"""

import argparse
import sys
import warnings
from pathlib import Path

from package import COCO_NAMES, NEEDS, Differs, Refused, compare, compare_boxes, quiet_threads, read_names, write_package

try:
    import numpy
    import onnx
    import onnxruntime
    import torch
    from onnx import numpy_helper
    from onnx2torch import convert
except ImportError as error:
    sys.exit(f"{error}; {NEEDS}")

import photograph
from sniff import SUPPORTED

STRIDES = [8, 16, 32]
# ONNX Runtime and PyTorch sum in different orders, so this bound is a share of the largest output.
# Against double precision, both have about the same error.
RUNTIME_BOUND = 2e-4


def dimensions(value):
    """Sizes of an input or output; 0 for a size that is open in the file."""
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def check_yolox(path, model):
    """Height, width and number of classes of a YOLOX. Raises Refused for all other ONNX files."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    shapes = [dimensions(value) for value in (*inputs, *graph.output)]
    looks = f"an ONNX model with inputs and outputs {', '.join(map(str, shapes))}"
    operations = {node.op_type for node in graph.node}
    pictures = len(inputs) == 1 and len(shapes[0]) == 4 and shapes[0][0] in (0, 1) and shapes[0][1] == 3 and min(shapes[0][2:]) >= 32
    if not pictures or len(graph.output) != 1:
        raise Refused(f"{path}: is {looks}, but YOLOX has one input [1, 3, height, width] and one output; {SUPPORTED}")
    height, width = shapes[0][2:]
    anchors = sum((height // stride) * (width // stride) for stride in STRIDES)
    if len(shapes[1]) != 3 or shapes[1][1] != anchors or shapes[1][2] < 6:
        raise Refused(f"{path}: is {looks}, but YOLOX at {width} x {height} has [1, {anchors}, 5 + classes]; {SUPPORTED}")
    if "Exp" in operations:
        raise Refused(f"{path}: is a YOLOX whose boxes are decoded inside; export it again without --decode_in_inference")
    return height, width, shapes[1][2] - 5


def read(path):
    try:
        model = onnx.load(str(path), load_external_data=False)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf's and the checker's own types
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise Refused(f"{path}: looks like an ONNX model but cannot be read as one ({first}); fetch it again") from error
    return model


def with_any_batch(model):
    """A copy whose reshapes take the first size from their input. YOLOX's exporter wrote the 1 of its example there."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in copy.graph.initializer}
    for node in copy.graph.node:
        shape = constants.get(node.input[1]) if node.op_type == "Reshape" else None
        sizes = numpy_helper.to_array(shape).copy() if shape is not None else numpy.zeros(0)
        if len(sizes) > 1 and sizes[0] == 1:
            sizes[0] = 0  # ONNX: as in the input
            shape.CopyFrom(numpy_helper.from_array(sizes, shape.name))
    return copy


def class_names(path, count, names):
    """Names from the file `names`, one per line; else COCO's, if there are 80 classes."""
    if names is None:
        if count != len(COCO_NAMES):
            raise Refused(f"{path}: has {count} classes without names; name them in a file, one per line, with --names FILE (make: NAMES=FILE)")
        return COCO_NAMES
    return read_names(names, path, count)


def corners(output, height, width, scale):
    """Corners of all boxes of raw outputs, in pixels of the picture."""
    cells = []
    for stride in STRIDES:
        y, x = torch.meshgrid(torch.arange(height // stride), torch.arange(width // stride), indexing="ij")
        cells.append(torch.stack([x.flatten(), y.flatten(), torch.full([x.numel()], stride)], dim=1))
    cells = torch.cat(cells).double()
    centre = (output[..., :2].double() + cells[:, :2]) * cells[:, 2:]
    half = output[..., 2:4].double().exp() * cells[:, 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1) / scale


def runtime_outputs(path, pictures):
    """Outputs of ONNX Runtime for the unchanged file, picture by picture."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return torch.cat([torch.from_numpy(session.run(None, {name: picture.numpy()})[0]) for picture in pictures])


def export(path, out, pixels, names=None):
    model = read(path)
    height, width, count = check_yolox(path, model)
    classes = class_names(path, count, names)
    print(f"{path}: YOLOX, {count} classes, input {width} x {height}")
    views, scales = zip(*(photograph.yolox_letterbox(view, height, width) for view in photograph.three_views(pixels)))
    reference = runtime_outputs(path, views)
    network = convert(with_any_batch(model)).eval()
    with torch.inference_mode():
        single = torch.cat([network(view) for view in views])
        traced = torch.jit.trace(network, views[2], check_trace=False)

    def check(saved):
        bound = RUNTIME_BOUND * reference.abs().max().item()
        for name, kept in (("the picture alone", slice(2, 3)), ("in a batch of 3", slice(0, 3))):
            with torch.inference_mode():
                output = saved(torch.cat(views)[kept])
            compare_boxes(f"{name}, against ONNX Runtime", *(corners(o, height, width, scales[0]) for o in (output, reference[kept])))
            largest = (output - reference[kept]).abs().max().item()
            share = largest / reference[kept, :, :4].double().std().item()
            suffix = f"(bound {bound:.2e}), {share:.2e} of the raw boxes' deviation"
            print(f"{name}, against ONNX Runtime: raw outputs differ by at most {largest:.2e} {suffix}")
            if not largest <= bound:
                raise Differs(f"{name}: the raw outputs differ from ONNX Runtime's by {largest:.2e}, allowed are {bound:.2e}")
            compare(f"{name}, against the same graph in PyTorch: raw boxes", output[..., :4], single[kept, :, :4])
            compare(f"{name}, against the same graph in PyTorch: scores", output[..., 4:], single[kept, :, 4:])

    write_package(
        out,
        {
            "name": Path(path).stem,
            "task": "detect",
            "architecture": "yolox",
            "input": {
                "width": width,
                "height": height,
                "colour": "bgr",
                "scale": 1.0,
                "mean": [0.0, 0.0, 0.0],
                "std": [1.0, 1.0, 1.0],
                "resize": "letterbox",
                "filter": "cv2_linear",
                "rounding": "down",
                "padding": "top_left",
                "pad": [114.0, 114.0, 114.0],
            },
            "output": {"layout": "yolox_raw", "strides": STRIDES},
            "classes": classes,
            "max_batch": 64,
            "licence": "Apache-2.0",
        },
        traced,
        check,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("onnx")
    parser.add_argument("out")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    quiet_threads()
    try:
        export(arguments.onnx, arguments.out, photograph.read(None))
    except (Refused, Differs) as error:
        sys.exit(f"yolox_onnx: {error}")


if __name__ == "__main__":
    main()
