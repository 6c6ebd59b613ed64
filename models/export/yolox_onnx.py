"""A model package from a YOLOX ONNX file: yolox_onnx.py MODEL.onnx OUT.pkg

The ONNX files that YOLOX publishes have a batch of 1 baked into their reshapes, so the package says max_batch: 1.
"""

import argparse
import sys
import warnings
from pathlib import Path

from package import COCO_NAMES, NEEDS, load, quiet_threads, write_package

try:
    import onnx
    import onnxruntime
    import torch
    from onnx2torch import convert
except ImportError as error:
    sys.exit(f"{error}; {NEEDS}")

STRIDES = [8, 16, 32]
# ONNX Runtime and PyTorch sum in different orders, so here the bound is on the largest output, not on rounding alone.
RUNTIME_BOUND = 2e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("onnx")
    parser.add_argument("out")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    quiet_threads()

    model = onnx.load(arguments.onnx)
    dimensions = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    if len(dimensions) != 4 or dimensions[:2] != [1, 3]:
        parser.error(f"{arguments.onnx}: expected an input of shape [1, 3, height, width], got {dimensions}")
    height, width = dimensions[2:]

    torch.manual_seed(0)
    picture = torch.rand(dimensions) * 255
    network = convert(model).eval()
    with torch.inference_mode():
        traced = torch.jit.trace(network, picture, check_trace=False)

    anchors = sum((height // stride) * (width // stride) for stride in STRIDES)
    output = traced(picture)
    if list(output.shape) != [1, anchors, 5 + len(COCO_NAMES)]:
        parser.error(f"{arguments.onnx}: expected an output of shape [1, {anchors}, {5 + len(COCO_NAMES)}], got {list(output.shape)}")

    write_package(
        arguments.out,
        {
            "name": Path(arguments.onnx).stem,
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
            "classes": COCO_NAMES,
            "max_batch": 1,
            "licence": "Apache-2.0",
        },
        traced,
    )

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(arguments.onnx, options, providers=["CPUExecutionProvider"])
    with torch.inference_mode():
        saved = load(arguments.out)(picture)
    reference = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: picture.numpy()})[0])
    largest = (saved - reference).abs().max().item()
    bound = RUNTIME_BOUND * reference.abs().max().item()
    print(f"forward: largest difference from ONNX Runtime {largest:.2e}, bound {bound:.2e}")
    if not largest <= bound:
        raise SystemExit("the saved model differs from the ONNX file")


if __name__ == "__main__":
    main()
