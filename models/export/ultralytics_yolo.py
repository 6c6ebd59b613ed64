"""Makes a model package from a detector of Ultralytics: YOLOv3 to YOLO26, and RT-DETR. export.py calls it.

Models of segments (-seg) and of poses (-pose) give their boxes.
"""

from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import photograph
from checkpoint import check_finite, check_plain
from detections import CHECKS, LARGEST_LOGIT
from package import Refused, ULTRALYTICS_INPUT, original_of, write_package
from sniff import SUPPORTED

# Heads whose boxes come from the branches of a Detect head.
YOLO_HEADS = ("Detect", "v10Detect", "Segment", "Segment26", "Pose", "Pose26")
# Heads that have no boxes for Millrace, or need more inputs than a picture.
OTHER_HEADS = {
    "OBB": "a model of rotated boxes (OBB)",
    "OBB26": "a model of rotated boxes (OBB)",
    "Classify": "a classifier",
    "WorldDetect": "a model that searches for texts (YOLO-World)",
    "YOLOEDetect": "a model that searches for texts (YOLOE)",
    "YOLOESegment": "a model that searches for texts (YOLOE)",
    "YOLOESegment26": "a model that searches for texts (YOLOE)",
    "Depth": "a model of depth",
    "SemanticSegment": "a model of semantic segmentation",
}

# RT-DETR sees the whole picture, stretched.
RTDETR_INPUT = {**{key: value for key, value in ULTRALYTICS_INPUT.items() if key not in ("rounding", "padding", "pad")}, "resize": "stretch"}
RTDETR_STRIDE = 32  # of its coarsest features


def is_checkpoint(loaded):
    """Whether a loaded file is a checkpoint of Ultralytics: a dict with a whole model in it."""
    return isinstance(loaded, dict) and any(isinstance(loaded.get(key), nn.Module) for key in ("ema", "model"))


def head_of(path, model):
    layers = getattr(model, "model", None)
    head = layers[-1] if isinstance(layers, nn.Sequential) and len(layers) else None
    kind = type(head).__name__
    if kind in OTHER_HEADS:
        raise Refused(f"{path}: is {OTHER_HEADS[kind]}, and its output is not a list of boxes; {SUPPORTED}")
    if kind not in (*YOLO_HEADS, "RTDETRDecoder"):
        raise Refused(f"{path}: holds a {type(model).__name__} whose last layer is {kind}, not a head with boxes; {SUPPORTED}")
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
    check_plain(path, model.state_dict())
    model.float()
    check_finite(path, model)
    return model.eval()


def class_names(path, model, count):
    names = getattr(model, "names", None)
    if isinstance(names, dict):
        names = [names.get(i) for i in range(len(names))]
    if not isinstance(names, (list, tuple)) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise Refused(f"{path}: has {count} classes, but its list of names is not complete; set model.names in Python and save it again")
    return list(names)


def input_size(path, loaded, largest, imgsz):
    """Height and width: from --imgsz, else the training, else 640. Rounded up to multiples of `largest`, the largest stride."""
    arguments = loaded.get("train_args")
    size = imgsz or (arguments.get("imgsz") if isinstance(arguments, dict) else None) or 640
    size = list(size) if isinstance(size, (list, tuple)) else [size]
    if len(size) not in (1, 2) or not all(isinstance(side, int) and 1 <= side <= 8192 for side in size):
        raise Refused(f"{path}: an input of {size} pixels; --imgsz takes one side or height and width, from 1 to 8192")
    rounded = [-(-side // largest) * largest for side in (size * 2)[:2]]
    if rounded != (size * 2)[:2]:
        print(f"input rounded up to {rounded[0]} x {rounded[1]}: the detector's largest stride is {largest}")
    return rounded


def has_one_to_one(head):
    """Whether a head was also trained for one box per object (YOLOv10, YOLO26). Millrace then uses these boxes, without NMS."""
    return getattr(head, "one2one_cv2", None) is not None or getattr(head, "cv2", None) is None


class YoloHead(nn.Module):
    """The head of a YOLO with constant anchors, and boxes in float32 in any precision of the model.

    In 16 bits a box would be off by up to a pixel at stride 32.
    v8: [B, 4 + classes, anchors]; end_to_end: [B, boxes, 6] (docs/packages.md).
    """

    def __init__(self, head, height, width):
        super().__init__()
        # Ultralytics' model reads them: its number, its inputs and its kind.
        self.i, self.f, self.type = head.i, head.f, head.type
        self.end_to_end = has_one_to_one(head)
        branches = head.one2one if self.end_to_end else head.one2many
        self.boxes, self.scores = branches["box_head"], branches["cls_head"]
        # Plain tensors, which no conversion of the weights changes.
        self.bins = torch.arange(head.reg_max, dtype=torch.float32)[:, None] if head.reg_max > 1 else None
        cells = []
        for stride in (int(stride) for stride in head.stride):
            y, x = torch.meshgrid(torch.arange(height // stride), torch.arange(width // stride), indexing="ij")
            cells.append(torch.stack([x.flatten() + 0.5, y.flatten() + 0.5, torch.full([x.numel()], stride)]))
        cells = torch.cat(cells, 1)  # [3, anchors]
        self.centres, self.strides = cells[:2], cells[2]
        self.kept = min(int(head.max_det), cells.shape[1]) if self.end_to_end else cells.shape[1]

    def corners(self, features):
        """The lower and the upper corner of all boxes in input pixels, each [B, 2, anchors]."""
        sides = torch.cat([branch(level).flatten(2) for branch, level in zip(self.boxes, features)], 2).float()
        if self.bins is not None:
            sides = (sides.unflatten(1, (4, self.bins.shape[0])).softmax(2) * self.bins).sum(2)
        before, after = sides.chunk(2, 1)
        return (self.centres - before) * self.strides, (self.centres + after) * self.strides

    def best(self, corners, scores):
        """The boxes with the best scores, each [x0, y0, x1, y1, score, class]. A box can be there with several classes."""
        classes = scores.shape[1]
        _, anchors = scores.amax(1).topk(self.kept)
        taken = scores.gather(2, anchors[:, None].expand(-1, classes, -1))
        values, pairs = taken.transpose(1, 2).flatten(1).topk(self.kept)
        anchors = anchors.gather(1, pairs // classes)
        boxes = corners.gather(2, anchors[:, None].expand(-1, 4, -1))
        return torch.cat([boxes, values[:, None], (pairs % classes)[:, None].float()], 1).transpose(1, 2)

    def forward(self, features):
        lower, upper = self.corners(features)
        scores = torch.cat([branch(level).flatten(2) for branch, level in zip(self.scores, features)], 2).float().sigmoid()
        if self.end_to_end:
            return self.best(torch.cat([lower, upper], 1), scores)
        return torch.cat([(lower + upper) / 2, upper - lower, scores], 1)


def in_pixels(found, size):
    """RT-DETR's rows [x, y, w, h, score, class], as shares of the input, with corners in pixels."""
    centres, halves = found[..., :2], found[..., 2:4] / 2
    return torch.cat([torch.cat([centres - halves, centres + halves], 2) * size, found[..., 4:]], 2)


class InPrecisionOf(TorchFunctionMode):
    """Converts the constants of the code inside to the precision of `like`. A trace would keep them in float32."""

    def __init__(self, like):
        super().__init__()
        self.like = like

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        constant = function in (torch.as_tensor, torch.Tensor.to) and result.is_floating_point()
        return result.type_as(self.like) if constant else result


class RtDetr(nn.Module):
    """RT-DETR with boxes as corners in input pixels: end_to_end."""

    def __init__(self, model, head, height, width):
        super().__init__()
        head.export = True  # one output
        with torch.no_grad():
            model(torch.zeros(1, 3, height, width))  # computes the anchors
        # As a buffer, they get the precision of the weights, which the decoder's layers expect.
        # The class has an attribute of this name, so a buffer needs another one.
        head.register_buffer("grid", head.__dict__.pop("anchors").clone())
        kind = type(head)
        head.__class__ = type(kind.__name__, (kind,), {"anchors": property(lambda self: self.grid)})
        self.model, self.head = model, head
        self.size = torch.tensor([width, height, width, height], dtype=torch.float32)

    def forward(self, images):
        with InPrecisionOf(self.head.grid):
            found = self.model(images)
        return in_pixels(found.float(), self.size)


def original_output(model, pictures):
    """The boxes of the model itself, without coefficients of masks and key points."""
    with torch.inference_mode():
        output = model(pictures)
    while not torch.is_tensor(output):  # the boxes come first
        output = output[0]
    return output


def logit_deviation(model, pictures, score_layers):
    """The deviation of all logits. A model without NMS returns only the best."""
    logits = []
    hooks = [layer.register_forward_hook(lambda _, __, output: logits.append(output.flatten())) for layer in score_layers]
    original_output(model, pictures)
    for hook in hooks:
        hook.remove()
    # Logits of an untrained model may be almost equal.
    return torch.cat(logits).clamp(max=LARGEST_LOGIT).double().std().clamp(min=0.1)


def prepared(model, head, height, width):
    """The model as Millrace calls it: one output in float32, for any number of pictures. Changes `model`."""
    if type(head).__name__ == "RTDETRDecoder":
        return RtDetr(model, head, height, width).eval()
    model.model[-1] = YoloHead(head, height, width).eval()
    return model


def traced(model, pictures):
    """The model as TorchScript. It fuses nothing: Millrace folds norms into convolutions when it loads a package."""
    with torch.inference_mode():
        return torch.jit.trace(model, pictures, check_trace=False)


def view_of(detr, pixels, height, width):
    """The input of Ultralytics' predictor, and the largest scale of the picture in it."""
    return photograph.ultralytics_stretch(pixels, height, width) if detr else photograph.ultralytics_letterbox(pixels, height, width)


def export(path, loaded, out, pixels, imgsz=None):
    model = model_of(path, loaded)
    head = head_of(path, model)
    detr = type(head).__name__ == "RTDETRDecoder"
    height, width = input_size(path, loaded, RTDETR_STRIDE if detr else max(int(stride) for stride in head.stride), imgsz)
    yaml = getattr(model, "yaml", None)
    architecture = Path(str((yaml if isinstance(yaml, dict) else {}).get("yaml_file") or "yolo")).stem
    boxes_of = "" if type(head).__name__ in ("Detect", "v10Detect", "RTDETRDecoder") else ", only its boxes"
    print(f"{path}: a detector of Ultralytics ({architecture}{boxes_of}), {head.nc} classes, input {width} x {height}")
    original = original_of("Ultralytics", version("ultralytics"), type(model).__name__, architecture)
    end_to_end = detr or has_one_to_one(head)
    layout = "end_to_end" if end_to_end else "v8"
    if detr:
        score_layers = head.dec_score_head[-1:]
    else:
        head.end2end = end_to_end  # Ultralytics' option nms=False
        score_layers = (head.one2one if end_to_end else head.one2many)["cls_head"]
    views, scales = zip(*(view_of(detr, view, height, width) for view in photograph.three_views(pixels)))
    # A batch against a batch: other algorithms of convolutions are chosen for it, whose rounding differs.
    inputs = {"the picture alone": views[2], "in a batch of 3": torch.cat(views)}
    originals = {name: original_output(model, pictures) for name, pictures in inputs.items()}
    deviation = logit_deviation(model, torch.cat(views), score_layers)
    names = class_names(path, model, head.nc)
    if detr:
        originals = {name: in_pixels(output, torch.tensor([width, height, width, height])) for name, output in originals.items()}
    model = prepared(model, head, height, width)
    with torch.inference_mode():
        kept = model(views[2]).shape[1 if end_to_end else 2]

    def check(saved):
        for name, original in originals.items():
            with torch.inference_mode():
                output = saved(inputs[name])
            original = original[:, :kept, :6] if end_to_end else original[:, : 4 + len(names)]
            CHECKS[layout](name, output, original, scales[0], deviation)

    write_package(
        out,
        {
            "name": Path(path).stem,
            "task": "detect",
            "architecture": architecture,
            "original": original,
            "input": {"width": width, "height": height, **(RTDETR_INPUT if detr else ULTRALYTICS_INPUT)},
            "output": {"layout": layout, "boxes": kept},
            "classes": names,
            "max_batch": 64,
            "licence": "AGPL-3.0",
        },
        traced(model, torch.cat(views[:2])),
        check,
        source=(model, {"forward": (torch.cat(views[:2]),)}),
    )
