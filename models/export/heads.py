"""Makes a package from a classifier or a regressor in TorchScript, for export.py: --task classify and --task regress.

`forward` of the file takes pictures [B, 3, height, width]. It returns a logit or a probability for each class [B, classes], or
the values [B, values]. A regressor of one value may return [B]. If it returns a list, a tuple or a dictionary, the package
takes the first tensor, or that named `out` or `logits`.
"""

import numpy
import torch
from PIL import Image
from torch import nn

from package import Refused, compare, original_of, read_names, write_package

import photograph
import semantic

MAX_BATCH = 64
MAX_SIDE = 8192
MAX_VALUES = 1000


class Classifier(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    @torch.jit.export
    def classify(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)


class Regressor(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    @torch.jit.export
    def regress(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)


class Column(nn.Module):
    """A scripted net that returns [B]: the same as [B, 1]."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)[:, None]


# By task: the module with its method, and the words for one and for several of its outputs.
TASKS = {"classify": (Classifier, "class", "classes"), "regress": (Regressor, "value", "values")}


def input_of(arguments):
    """The section `input` of model.yaml."""
    sides = arguments.imgsz
    if not sides:
        raise Refused(f"--task {arguments.task} needs --imgsz, the side of the model's input or its height and width, such as --imgsz 224")
    if len(sides) > 2 or not all(1 <= side <= MAX_SIDE for side in sides):
        raise Refused(f"--imgsz {' '.join(map(str, sides))}: takes one or two whole numbers from 1 to {MAX_SIDE}: a side, or height and width")
    shorter = arguments.shorter_side
    if shorter is not None and not 1 <= shorter <= MAX_SIDE:
        raise Refused(f"--shorter-side {shorter}: takes a whole number from 1 to {MAX_SIDE}")
    mean, std = (semantic.for_channels(name, values or [default], 3) for name, values, default in (("mean", arguments.mean, 0), ("std", arguments.std, 1)))
    if not all(value > 0 for value in std):
        raise Refused(f"--std {' '.join(f'{value:g}' for value in arguments.std)}: takes numbers above 0")
    section = {
        "width": sides[-1],
        "height": sides[0],
        "colour": arguments.colour or "rgb",
        "scale": 1 / 255 if arguments.scale is None else arguments.scale,
        "mean": mean,
        "std": std,
        "resize": "stretch" if shorter is None else "centre_crop",
    }
    crop = {} if shorter is None else {"shorter_side": shorter, "pad": [0.0, 0.0, 0.0]}
    return section | crop | {"filter": "pil_bilinear_antialias"}


def example(pixels, described):
    """An input [3, height, width] for the comparison: the picture, stretched."""
    resized = Image.fromarray(pixels[:, :, ::-1].copy()).resize((described["width"], described["height"]), Image.Resampling.BILINEAR)
    values = photograph.planes(numpy.asarray(resized))
    mean, std = (torch.tensor(described[key])[:, None, None] for key in ("mean", "std"))
    return ((values if described["colour"] == "rgb" else values.flip(0)) * described["scale"] - mean) / std


def names_of(arguments, weights, count):
    _, one, many = TASKS[arguments.task]
    if not arguments.names:
        print(f"the {count} {many} are named {one} 0 to {one} {count - 1}; for other names, add --names FILE, one name per line")
        return [f"{one} {index}" for index in range(count)]
    names = read_names(arguments.names, weights, count, one, many)
    twice = next((name for name in names if names.count(name) > 1), None)
    if arguments.task == "regress" and twice is not None:
        raise Refused(f"{arguments.names}: has {twice!r} twice; the values become keys of the results, so give each its own name")
    return names


def activation_of(weights, asked, count):
    activation = asked or ("softmax" if count > 1 else "sigmoid")
    if activation == "softmax" and count == 1:
        raise Refused(f"{weights}: has one class, and softmax of one class is always 1; use --activation sigmoid or none")
    return activation


def export(weights, out, arguments):
    """Makes the package of a file."""
    task = arguments.task
    make, _, many = TASKS[task]
    if task == "regress" and arguments.activation is not None:
        raise Refused("--activation has no meaning with --task regress; leave it out")
    described = input_of(arguments)
    loaded = semantic.load(weights, task)
    pixels = photograph.read(arguments.photograph)
    images = torch.stack([example(view, described) for view in photograph.three_views(pixels)])
    with torch.inference_mode():
        net = semantic.one_tensor(weights, loaded, images, "pictures", "are --imgsz and the three colours those of the training?")
        together = net(images)
        if task == "regress" and together.dim() == 1:
            net = torch.jit.script(Column(net))
            together = together[:, None]
        if together.dim() != 2 or len(together) != len(images) or not together.shape[1]:
            raise Refused(f"{weights}: turns pictures {list(images.shape)} into {list(together.shape)}; expected [{len(images)}, {many}]")
        # Values of one picture in three views may be almost equal, so their size is the measure, and not their deviation.
        size = together.double().pow(2).mean().sqrt()
        semantic.check_rows(weights, net, images, together, "picture", size)
    count = together.shape[1]
    if task == "regress" and count > MAX_VALUES:
        raise Refused(f"{weights}: returns {count} values; at most {MAX_VALUES} are possible")
    description = {
        "name": out.stem,
        "task": task,
        "architecture": loaded.original_name,
        "original": original_of("TorchScript", weights.name),
        "input": described,
        "max_batch": MAX_BATCH,
        "output": {"values": count} if task == "regress" else {"activation": activation_of(weights, arguments.activation, count)},
        "names" if task == "regress" else "classes": names_of(arguments, weights, count),
        "licence": "that of the maker of the model",
    }

    def check(saved):
        for name, kept in (("the picture alone", slice(2, 3)), ("in a batch of 3", slice(0, 3))):
            with torch.inference_mode():
                compare(f"{name}: {many}", getattr(saved, task)(images[kept]), net(images[kept]), size)

    write_package(out, description, torch.jit.script(make(net)), check)
