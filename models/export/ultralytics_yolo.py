"""Makes a model package from a detector of Ultralytics: YOLOv8, YOLO11. export.py calls it."""

import types
from pathlib import Path

import torch
from torch import nn

import photograph
from package import Refused, ULTRALYTICS_INPUT, compare, compare_boxes, write_package
from sniff import SUPPORTED

TESTED = ("yolov8", "yolo11")


def is_checkpoint(loaded):
    """Whether a loaded file is a checkpoint of Ultralytics: a dict with a whole model in it."""
    return isinstance(loaded, dict) and any(isinstance(loaded.get(key), nn.Module) for key in ("ema", "model"))


def head_of(path, model):
    layers = getattr(model, "model", None)
    head = layers[-1] if isinstance(layers, nn.Sequential) and len(layers) else None
    if type(head).__name__ != "Detect":
        raise Refused(f"{path}: holds a {type(model).__name__} whose last layer is {type(head).__name__}, not a Detect head; {SUPPORTED}")
    if getattr(head, "one2one_cv2", None) is not None:
        raise Refused(f"{path}: is an end-to-end detector of Ultralytics (YOLOv10, YOLO26), whose output is different; {SUPPORTED}")
    return head


def model_of(path, loaded):
    """The model in float32, ready to run with the installed code."""
    model = next(loaded[key] for key in ("ema", "model") if isinstance(loaded.get(key), nn.Module))
    head_of(path, model)
    channels = next((module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d)), 3)
    if channels != 3:
        raise Refused(f"{path}: takes pictures of {channels} channels, but Millrace has only red, green and blue; {SUPPORTED}")
    for module in model.modules():
        if isinstance(module, nn.Upsample) and not hasattr(module, "recompute_scale_factor"):
            module.recompute_scale_factor = None  # checkpoints from before PyTorch 1.11
    return model.float().eval()


def class_names(path, model, count):
    names = getattr(model, "names", None)
    if isinstance(names, dict):
        names = [names.get(i) for i in range(len(names))]
    if not isinstance(names, (list, tuple)) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise Refused(f"{path}: has {count} classes, but its list of names is not complete; set model.names in Python and save it again")
    return list(names)


def input_size(path, loaded, head, imgsz):
    """Height and width: from --imgsz, else the training, else 640. Rounded up to multiples of the largest stride."""
    arguments = loaded.get("train_args")
    size = imgsz or (arguments.get("imgsz") if isinstance(arguments, dict) else None) or 640
    size = list(size) if isinstance(size, (list, tuple)) else [size]
    if len(size) not in (1, 2) or not all(isinstance(side, int) and 1 <= side <= 8192 for side in size):
        raise Refused(f"{path}: an input of {size} pixels; --imgsz takes one side or height and width, from 1 to 8192")
    largest = max(int(stride) for stride in head.stride)
    rounded = [-(-side // largest) * largest for side in (size * 2)[:2]]
    if rounded != (size * 2)[:2]:
        print(f"input rounded up to {rounded[0]} x {rounded[1]}: the detector's largest stride is {largest}")
    return rounded


# Larger logits are compared as this one, a probability of 0.993.
# Above it, the logits of neighbouring float32 probabilities differ by more than the bound.
LARGEST_LOGIT = 5.0


def logits_of(probabilities):
    return torch.logit(probabilities.double().clamp(1e-30, 1 - 1e-7)).clamp(max=LARGEST_LOGIT)


def corners(output, scale):
    """Corners of all boxes in pixels of the picture, plus the padding, which has no effect on differences."""
    centre, size = output[:, :2].double(), output[:, 2:4].double()
    return torch.cat([centre - size / 2, centre + size / 2], dim=1) / scale


def original_outputs(model, pictures):
    """Boxes and logits of the model itself, picture by picture."""
    with torch.inference_mode():
        found = [model(picture) for picture in pictures]
    return torch.cat([output for output, _ in found]), torch.cat([raw["scores"] for _, raw in found]).clamp(max=LARGEST_LOGIT)


def expected_distances(self, boxes):
    """Replaces DFL.forward. Always in float32: a distance in bfloat16 is off by up to a pixel at stride 32."""
    return (boxes.unflatten(1, (4, self.c1)).float().softmax(2) * self.bins).sum(2)


def decoded_boxes(self, found):
    """Replaces Detect._get_decode_boxes, which computes the anchors again for another batch."""
    return self.decode_bboxes(self.dfl(found["boxes"]), self.anchors.unsqueeze(0)) * self.strides


def traced(model, head, picture):
    """The model as TorchScript. It fuses nothing: Millrace folds norms into convolutions when it loads a package."""
    prepare(model, head, picture)
    with torch.inference_mode():
        return torch.jit.trace(model, picture, check_trace=False)


def prepare(model, head, picture):
    """Changes the head for trace and export: one output, constant anchors, distances in float32."""
    for module in head.modules():
        if type(module).__name__ == "DFL":
            module.bins = torch.arange(module.c1, dtype=torch.float32)[:, None]  # a plain tensor stays in float32
            module.forward = types.MethodType(expected_distances, module)
    head.export = True  # one output: boxes xywh in input pixels and class probabilities
    head.shape = None
    with torch.no_grad():  # torch.export takes no tensors of inference_mode()
        model(picture)  # computes the anchors
    head._get_decode_boxes = types.MethodType(decoded_boxes, head)


def export(path, loaded, out, pixels, imgsz=None):
    model = model_of(path, loaded)
    head = head_of(path, model)
    height, width = input_size(path, loaded, head, imgsz)
    yaml = getattr(model, "yaml", None)
    architecture = Path(str((yaml if isinstance(yaml, dict) else {}).get("yaml_file") or "yolo")).stem
    print(f"{path}: a detector of Ultralytics ({architecture}), {head.nc} classes, input {width} x {height}")
    if not architecture.startswith(TESTED):
        print(f"note: tests cover YOLOv8 and YOLO11; only the comparison below covers {architecture}")
    views, scales = zip(*(photograph.ultralytics_letterbox(view, height, width) for view in photograph.three_views(pixels)))
    boxes, logits = original_outputs(model, views)

    def check(saved):
        for name, kept in (("the picture alone", slice(2, 3)), ("in a batch of 3", slice(0, 3))):
            with torch.inference_mode():
                output = saved(torch.cat(views)[kept])
            compare_boxes(name, corners(output, scales[0]), corners(boxes[kept], scales[0]))
            compare(f"{name}: logits", logits_of(output[:, 4:]), logits[kept])

    write_package(
        out,
        {
            "name": Path(path).stem,
            "task": "detect",
            "architecture": architecture,
            "input": {"width": width, "height": height, **ULTRALYTICS_INPUT},
            "output": {"layout": "v8", "strides": [int(stride) for stride in head.stride]},
            "classes": class_names(path, model, head.nc),
            "max_batch": 64,
            "licence": "AGPL-3.0",
        },
        traced(model, head, views[2]),
        check,
        source=(model, {"forward": (torch.cat(views[:2]),)}),
    )
