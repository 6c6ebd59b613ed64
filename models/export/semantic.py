"""Makes a package from a semantic segmenter in TorchScript, for export.py. It gives logits or probabilities for each pixel or voxel.

`forward` of the file takes windows of pictures [B, 3, height, width] and returns [B, channels, height, width]. For volumes,
it takes [B, 1, x, y, z] or [B, 1, z, y, x]. If it returns a list, a tuple or a dictionary, the package takes the first tensor.
"""

import torch
from torch import nn

from package import Refused, compare, original_of, read_names, write_package

MAX_BATCH = 64
MAX_CHANNELS = 254


class First(nn.Module):
    """A scripted net whose output is a list or a tuple: the package needs one tensor."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(images)[0]


class Value(nn.Module):
    """A scripted net whose output is a dictionary, such as torchvision's: the tensor `out`."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(images)["out"]


def load(weights):
    try:
        return torch.jit.load(str(weights), map_location="cpu").eval().float()
    except RuntimeError as error:
        first = str(error).strip().split("\n")[0][:200]
        raise Refused(f"{weights}: is no TorchScript ({first}); --task semantic takes a file that torch.jit.save wrote") from error


def window_of(arguments):
    """The sides of a window, in the order of the model's axes."""
    roi = arguments.roi
    if not roi:
        raise Refused("--task semantic needs --roi, the side of a window or its height and width, such as --roi 512")
    if len(roi) > 3 or not all(1 <= side <= 8192 for side in roi):
        raise Refused(f"--roi {' '.join(map(str, roi))}: takes one to three whole numbers from 1 to 8192: a side, height and width, or three sides of a volume")
    if len(roi) < 3 and arguments.axes:
        raise Refused("--axes is for volumes, whose --roi has three sides; leave --axes out, or name three sides")
    return roi * 2 if len(roi) == 1 else roi


def one_tensor(weights, net, images):
    """`net`, or `net` with the first tensor of its output."""
    output = net(images)
    if isinstance(output, torch.Tensor):
        return net
    if isinstance(output, dict) and isinstance(output.get("out"), torch.Tensor):
        return torch.jit.script(Value(net))
    if isinstance(output, (list, tuple)) and output and isinstance(output[0], torch.Tensor):
        return torch.jit.script(First(net))
    raise Refused(f"{weights}: returns {type(output).__name__}; it must return a tensor, a list of tensors, or a dictionary with 'out'")


def for_channels(name, values, channels):
    if len(values) not in (1, channels):
        raise Refused(f"--{name} takes one number{f', or {channels} for the channels' if channels > 1 else ''}, not {len(values)}")
    return [float(value) for value in (values * channels)[:channels]]


def input_of(arguments, sides):
    """The section `input` of model.yaml."""
    volumes = len(sides) == 3
    if volumes and arguments.colour:
        raise Refused("--colour has no meaning for volumes; leave it out")
    axes = arguments.axes or "xyz"
    names = ("width", "height", "depth") if axes == "xyz" else ("depth", "height", "width")
    section = dict(zip(names, sides)) | {"axes": axes} if volumes else {"width": sides[1], "height": sides[0], "colour": arguments.colour or "rgb"}
    channels = 1 if volumes else 3
    scale = (1 if volumes else 1 / 255) if arguments.scale is None else arguments.scale
    return section | {"scale": scale, "mean": for_channels("mean", arguments.mean or [0], channels), "std": for_channels("std", arguments.std or [1], channels)}


def export(weights, out, arguments):
    sides = window_of(arguments)
    inputs = input_of(arguments, sides)
    rows = 3 if len(sides) == 2 else 2  # windows of volumes are large
    images = torch.rand(rows, len(inputs["mean"]), *sides, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        loaded = load(weights)
        net = one_tensor(weights, loaded, images)
        together = net(images)
        if together.dim() != images.dim() or together.shape[0] != rows or together.shape[2:] != images.shape[2:]:
            expected = ", ".join(map(str, (rows, "channels", *sides)))
            raise Refused(f"{weights}: turns windows {list(images.shape)} into {list(together.shape)}; expected [{expected}]; is the window a multiple of the net's stride?")
        channels = together.shape[1]
        if channels > MAX_CHANNELS:
            raise Refused(f"{weights}: has {channels} channels; at most {MAX_CHANNELS} are possible")
        for row in range(rows):  # a window must not depend on its neighbours in a call
            compare(f"window {row} alone and with others", together[row : row + 1], net(images[row : row + 1]), together.std())
    activation = arguments.activation or ("softmax" if channels > 1 else "sigmoid")
    if activation == "softmax" and channels == 1:
        raise Refused(f"{weights}: has one channel, and softmax of one channel is always 1; use --activation sigmoid or none")
    output = {"channels": channels, "activation": activation}
    if activation != "softmax" and (channels == 1 or arguments.threshold is not None):
        output["threshold"] = 0.5 if arguments.threshold is None else arguments.threshold
    elif arguments.threshold is not None:
        raise Refused("--threshold has no meaning with softmax, where the largest class wins; leave it out")
    if activation == "sigmoid" and "threshold" in output and not 0 < output["threshold"] < 1:
        raise Refused(f"--threshold {arguments.threshold}: must be a probability above 0 and below 1")
    names = read_names(arguments.names, weights, channels) if arguments.names else [f"class {k}" for k in range(channels)]
    description = {
        "name": out.stem,
        "task": "semantic",
        "architecture": loaded.original_name,
        "original": original_of("TorchScript", weights.name),
        "input": inputs,
        "max_batch": MAX_BATCH,
        "output": output,
        "classes": names,
        "licence": "that of the maker of the model",
    }

    def check(saved):
        with torch.inference_mode():
            compare("saved model", saved(images), together)

    write_package(out, description, net, check)
