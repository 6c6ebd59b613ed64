"""Makes a package from a semantic segmenter in TorchScript, for export.py. It gives logits or probabilities for each pixel or voxel.

`forward` of the file takes windows of pictures [B, 3, height, width], or [B, N, height, width] with --channels N, or with
--channel for each of N channels. It returns [B, channels, height, width]. For volumes, it takes [B, 1, x, y, z] or
[B, 1, z, y, x]. If it returns a list, a tuple or a dictionary, the package takes the first tensor.

Several files, or one that returns [members, B, channels, ...], are an ensemble. The package has one network, which returns
the mean of its members. So a run treats an ensemble as it treats any other model.
"""

import math

import torch
from torch import nn

from package import Differs, Refused, compare, original_of, read_names, write_package

MAX_BATCH = 64
MAX_CHANNELS = 254
MAX_INPUT_CHANNELS = 16
# Keys of --channel and their words; the others have numbers.
OF_CHANNEL = {"clip": (), "scale": (), "mean": (), "std": (), "zscore": ("all", "nonzero", "nonzero_box"), "percentiles": (), "clip_to_percentiles": ("yes", "no")}
KEYS = ("out", "logits")  # of the tensor in an output that is a dictionary: torchvision's, and that of others
ALONE_BOUND = 1e-3  # largest difference of a window alone, as a share of the deviation; deepbet's nets have 4.2e-4


class First(nn.Module):
    """A scripted net whose output is a list or a tuple: the package needs one tensor."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(images)[0]


class Value(nn.Module):
    """A scripted net whose output is a dictionary, such as torchvision's: the tensor `key`."""

    def __init__(self, net, key):
        super().__init__()
        self.net = net
        self.key: str = key

    def forward(self, images):
        return self.net(images)[self.key]


class Members(nn.Module):
    """Scripted nets with outputs of one shape: [members, B, channels, ...]."""

    def __init__(self, nets):
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(self, images):
        outputs: list[torch.Tensor] = []
        for net in self.nets:
            outputs.append(net(images))
        return torch.stack(outputs)


class Mean(nn.Module):
    """A scripted net that returns [members, B, channels, ...]: the mean of what `activation` makes of each member."""

    def __init__(self, net, activation):
        super().__init__()
        self.net = net
        self.activation: str = activation

    def forward(self, images):
        members = self.net(images)
        if self.activation == "softmax":
            members = members.softmax(2)
        elif self.activation == "sigmoid":
            members = members.sigmoid()
        return members.mean(0)


def load(weights, task="semantic"):
    try:
        return torch.jit.load(str(weights), map_location="cpu").eval().float()
    except RuntimeError as error:
        first = str(error).strip().split("\n")[0][:200]
        raise Refused(f"{weights}: is no TorchScript ({first}); --task {task} takes a file that torch.jit.save wrote") from error


def window_of(arguments):
    """The sides of a window, in the order of the model's axes."""
    roi = arguments.roi
    if not roi:
        raise Refused("--task semantic needs --roi, the side of a window or its height and width, such as --roi 512")
    if len(roi) > 3 or not all(1 <= side <= 8192 for side in roi):
        raise Refused(f"--roi {' '.join(map(str, roi))}: takes one to three whole numbers from 1 to 8192: a side, height and width, or three sides of a volume")
    for name in ("axes", "orientation", "spacing"):
        if len(roi) < 3 and getattr(arguments, name):
            raise Refused(f"--{name} is for volumes, whose --roi has three sides; leave --{name} out, or name three sides")
    if arguments.scale_first and not arguments.spacing:
        raise Refused("--scale-first has no meaning without --spacing; leave it out")
    if arguments.orientation and sorted(next((pair for pair in ("LR", "AP", "IS") if letter in pair), "") for letter in arguments.orientation) != ["AP", "IS", "LR"]:
        raise Refused(f"--orientation {arguments.orientation}: takes three letters, one of R and L, one of A and P, one of S and I, such as RAS")
    if arguments.spacing and not all(0 <= side < math.inf for side in arguments.spacing):
        raise Refused(f"--spacing {' '.join(f'{side:g}' for side in arguments.spacing)}: takes three numbers of mm, or 0 for an axis that is not resampled")
    return roi * 2 if len(roi) == 1 else roi


def one_tensor(weights, net, images, rows="windows", advice="are --roi and --channels those of the training?"):
    """`net`, or `net` with the first tensor of its output."""
    try:
        output = net(images)
    except (RuntimeError, torch.jit.Error) as error:
        last = str(error).strip().split("\n")[-1].removeprefix("RuntimeError: ")[:200]
        raise Refused(f"{weights}: cannot take {rows} {list(images.shape)}; {advice} {last}") from error
    if isinstance(output, torch.Tensor):
        return net
    for key in KEYS:
        if isinstance(output, dict) and isinstance(output.get(key), torch.Tensor):
            return torch.jit.script(Value(net, key))
    if isinstance(output, (list, tuple)) and output and isinstance(output[0], torch.Tensor):
        return torch.jit.script(First(net))
    raise Refused(f"{weights}: returns {type(output).__name__}; it must return a tensor, a list of tensors, or a dictionary with {' or '.join(map(repr, KEYS))}")


def for_channels(name, values, channels):
    if len(values) not in (1, channels):
        raise Refused(f"--{name} takes one number{f', or {channels} for the channels' if channels > 1 else ''}, not {len(values)}")
    return [float(value) for value in (values * channels)[:channels]]


def channels_of(arguments, sides):
    """How many channels a window has."""
    return len(arguments.channel or ()) or arguments.channels or (1 if len(sides) == 3 else 3)


def input_of(arguments, sides):
    """The section `input` of model.yaml."""
    volumes = len(sides) == 3
    if volumes and arguments.colour:
        raise Refused("--colour has no meaning for volumes; leave it out")
    if arguments.mpp is not None:
        if volumes:
            raise Refused("--mpp is for pictures; leave it out, and use --spacing for volumes")
        if arguments.channels is not None or arguments.channel is not None and not arguments.colour:
            raise Refused("--mpp has no meaning with --channels and --channel, because only RGB of 8 bits is resampled; leave it out, or add --colour to --channel")
        if not 0 < arguments.mpp <= 1000:
            raise Refused(f"--mpp {arguments.mpp:g}: takes micrometres above 0, and up to 1000")
    if arguments.channel is not None:
        check_list(arguments)
    if arguments.channels is not None:
        check_channels(arguments, volumes)
    axes = arguments.axes or "xyz"
    names = ("width", "height", "depth") if axes == "xyz" else ("depth", "height", "width")
    if volumes:
        section = dict(zip(names, sides)) | {"axes": axes} | ({"orientation": arguments.orientation} if arguments.orientation else {}) | ({"spacing": arguments.spacing} if arguments.spacing else {})
        section |= {"scaled": "before_resampling"} if arguments.scale_first else {}
        section |= {"channels": arguments.channels} if channels_of(arguments, sides) > 1 and arguments.channel is None else {}
    else:
        of_file = arguments.channels is not None or arguments.channel is not None and not arguments.colour
        kind = {} if of_file else {"colour": arguments.colour or "rgb"}
        kind |= {"channels": arguments.channels} if arguments.channels is not None else {}
        section = {"width": sides[1], "height": sides[0]} | kind | ({"mpp": arguments.mpp} if arguments.mpp else {})
    if arguments.channel is not None:
        return section | {"channels": [channel_of(index, words) for index, words in enumerate(arguments.channel)]}
    return section | scaling_of(arguments, sides)


def check_channels(arguments, volumes):
    if arguments.colour:
        raise Refused("--colour orders the channels of RGB, and --channels takes those of the file; leave one of them out")
    if not 1 <= arguments.channels <= MAX_INPUT_CHANNELS:
        raise Refused(f"--channels {arguments.channels}: takes a whole number from 1 to {MAX_INPUT_CHANNELS}")
    if not volumes and arguments.scale is None and arguments.zscore is None and arguments.percentiles is None:
        raise Refused("--channels needs --scale, --zscore or --percentiles, since values are those of the file; for 8 bits, --scale 0.00392156862745098 gives 0 to 1")


def check_list(arguments):
    for name in ("channels", "scale", "mean", "std", "clip", "zscore", "percentiles", "clip_to_percentiles", "channel_wise"):
        if getattr(arguments, name) is not None:
            raise Refused(f"--{name.replace('_', '-')} is for all channels, and --channel for one; leave one of them out")
    if arguments.colour and len(arguments.channel) != 3:
        raise Refused(f"--colour is for three channels, and --channel comes {len(arguments.channel)} times; leave --colour out for the channels of the file")
    if len(arguments.channel) > MAX_INPUT_CHANNELS:
        raise Refused(f"--channel comes {len(arguments.channel)} times; at most {MAX_INPUT_CHANNELS} channels are possible")


def channel_of(index, words):
    """The keys of model.yaml for one channel, of words KEY=VALUE."""
    given = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in OF_CHANNEL or not value:
            raise Refused(f"--channel {word}: takes KEY=VALUE with the keys {', '.join(OF_CHANNEL)}, such as clip=-1000,1000")
        if key in given:
            raise Refused(f"--channel {word}: channel {index} has {key} twice; leave one of them out")
        given[key] = value_of(word, key, value)
    of_item = [key for key in ("zscore", "percentiles") if key in given]
    excluded = ("scale", "mean", "std", *of_item[1:], *(("clip",) if "percentiles" in of_item else ())) if of_item else ()
    for key in excluded:
        if key in given:
            raise Refused(f"--channel {' '.join(words)}: {key} has no meaning with {of_item[0]}; leave one of them out")
    if "clip_to_percentiles" in given and "percentiles" not in given:
        raise Refused(f"--channel {' '.join(words)}: clip_to_percentiles needs percentiles, such as percentiles=0.5,99.5")
    if "percentiles" in given:
        return {"clip_to_percentiles": False} | given
    return given if of_item else {"scale": 1.0, "mean": 0.0, "std": 1.0} | given


def value_of(word, key, value):
    """The value of a key of one channel."""
    if known := OF_CHANNEL[key]:
        if value not in known:
            raise Refused(f"--channel {word}: takes {', '.join(known)}")
        return {"yes": True, "no": False}.get(value, value)
    count = 2 if key in ("clip", "percentiles") else 1
    try:
        numbers = [float(number) for number in value.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(map(math.isfinite, single(numbers))):
        raise Refused(f"--channel {word}: takes {'two numbers with a comma between them' if count == 2 else 'a number'}")
    if key == "std" and single(numbers)[0] <= 0:
        raise Refused(f"--channel {word}: takes a number above 0")
    if key == "clip":
        check_clip(f"--channel {word}", numbers)
    if key == "percentiles":
        check_percentiles(f"--channel {word}", numbers)
    return numbers if count == 2 else numbers[0]


def single(numbers):
    """The numbers as a run has them, in float32."""
    return torch.tensor(numbers, dtype=torch.float32).tolist()


def check_clip(option, clip):
    low, high = single(clip)
    if not low < high:
        raise Refused(f"{option}: the first number must be below the second one")


def check_percentiles(option, percentiles):
    if not 0 <= percentiles[0] < percentiles[1] <= 100:
        raise Refused(f"{option}: takes two numbers from 0 to 100, the lower one first")


def options_of(channels):
    """The options for channels with these keys of model.yaml: --channel for each, or options for all if only mean and std differ."""
    first, *others = ({key: value for key, value in keys.items() if key not in ("mean", "std")} for keys in channels)
    if any(other != first for other in others):
        return {"channels": None, "channel": [[f"{key}={word_of(value)}" for key, value in keys.items()] for keys in channels]}
    if "scale" in first:
        numbers = {name: [keys[name] for keys in channels] for name in ("mean", "std")}
        return first | {name: values[:1] if len(set(values)) == 1 else values for name, values in numbers.items()}
    return first | ({"channel_wise": True} if others else {})


def word_of(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(repr, value)) if isinstance(value, (list, tuple)) else str(value)


def scaling_of(arguments, sides):
    """The keys of `input` that say how values become the input: by numbers, or by statistics of each item's values."""
    volumes = len(sides) == 3
    clip, zscore, percentiles = arguments.clip, arguments.zscore, arguments.percentiles
    of_item = zscore is not None or percentiles is not None
    for name in ("scale", "mean", "std"):
        if of_item and getattr(arguments, name) is not None:
            raise Refused(f"--{name} has no meaning with --zscore or --percentiles; leave it out")
    if zscore is not None and percentiles is not None:
        raise Refused("--zscore and --percentiles contradict each other; leave one of them out")
    if percentiles is None and arguments.clip_to_percentiles:
        raise Refused("--clip-to-percentiles needs --percentiles, such as --percentiles 0.5 99.5")
    if percentiles is not None and clip is not None:
        raise Refused("--clip has no meaning with --percentiles; leave it out, or use --clip-to-percentiles")
    alone = volumes and channels_of(arguments, sides) == 1
    if arguments.channel_wise and (alone or not of_item):
        raise Refused("--channel-wise is for several channels, with --zscore or --percentiles; leave it out")
    if clip is not None:
        check_clip(f"--clip {clip[0]:g} {clip[1]:g}", clip)
    if percentiles is not None:
        check_percentiles(f"--percentiles {percentiles[0]:g} {percentiles[1]:g}", percentiles)
    keys = {"clip": clip} if clip is not None else {}
    if of_item:
        keys |= {"zscore": zscore} if zscore is not None else {"percentiles": percentiles, "clip_to_percentiles": bool(arguments.clip_to_percentiles)}
        return keys if alone else keys | {"channel_wise": bool(arguments.channel_wise)}
    channels = channels_of(arguments, sides)
    scale = (1 if volumes else 1 / 255) if arguments.scale is None else arguments.scale
    return keys | {"scale": scale, "mean": for_channels("mean", arguments.mean or [0], channels), "std": for_channels("std", arguments.std or [1], channels)}


def expect(weights, output, shape, images):
    """Refuses an output that is not of this shape. None stands for any number."""
    if output.dim() != len(shape) or any(side not in (None, found) for side, found in zip(shape, output.shape)):
        expected = ", ".join("channels" if side is None else str(side) for side in shape)
        raise Refused(f"{weights}: turns windows {list(images.shape)} into {list(output.shape)}; expected [{expected}]; is the window a multiple of the net's stride?")


def join(files, nets, images, arguments):
    """(net of one output [B, channels, ...], activation of this output, number of members). Of one model, `net` is the model."""
    outputs = [net(images) for net in nets]
    stacked = len(nets) == 1 and outputs[0].dim() == images.dim() + 1
    one = outputs[0][0] if stacked and len(outputs[0]) else outputs[0]
    shape = [len(images), None, *images.shape[2:]]
    for file, output in zip(files, [one, *outputs[1:]]):
        expect(file, output, shape, images)
        shape[1] = output.shape[1]
    channels = shape[1]
    if channels > MAX_CHANNELS:
        raise Refused(f"{files[0]}: has {channels} channels; at most {MAX_CHANNELS} are possible")
    activation = arguments.activation or ("none" if arguments.heatmaps else "softmax" if channels > 1 else "sigmoid")
    if activation == "softmax" and channels == 1:
        raise Refused(f"{files[0]}: has one channel, and softmax of one channel is always 1; use --activation sigmoid or none")
    if len(nets) == 1 and not stacked:
        if arguments.mean_of:
            raise Refused(f"{files[0]}: is one model, and --mean-of is for several; leave it out, or name more files")
        return nets[0], activation, 1
    members = nets[0] if stacked else torch.jit.script(Members(nets))
    inside = activation if arguments.mean_of == "probabilities" else "none"
    return torch.jit.script(Mean(members, inside)), "none" if inside != "none" else activation, len(outputs[0]) if stacked else len(nets)


def check_rows(file, net, images, together, kind="window", deviation=None):
    """Refuses a net whose output for a window depends on the other windows of a call, or on their number."""
    deviation = together.std() if deviation is None else deviation
    try:
        for row in range(len(images)):
            others = torch.zeros_like(images)
            others[row] = images[row]
            compare(f"{kind} {row} with other neighbours", net(others)[row], together[row], deviation)
            alone = net(images[row : row + 1])
            if alone.shape != (1, *together.shape[1:]):
                raise Refused(f"{file}: turns one {kind} into {list(alone.shape)}; expected {[1, *together.shape[1:]]}; does it remove dimensions of size 1?")
            # A call of one window may use other kernels, which round differently. Where a net decides sharply, single values can differ more.
            compare(f"{kind} {row} alone", alone[0], together[row], deviation, ALONE_BOUND)
    except Differs as error:
        raise Refused(f"{file}: what it finds in a {kind} depends on the other {kind}s of a call; does it normalise over the batch?") from error


def export(files, out, arguments):
    """Makes the package of one file, or of an ensemble of several."""
    loaded = [load(file) for file in files]
    write(files, loaded, out, arguments, loaded[0].original_name, original_of("TorchScript", *(file.name for file in files)))


def write(files, loaded, out, arguments, architecture, original, names=None):
    """Makes the package of scripted nets, one for each file. `names` are those of the classes, if the files have them."""
    sides = window_of(arguments)
    inputs = input_of(arguments, sides)
    rows = 3 if len(sides) == 2 else 2  # windows of volumes are large
    images = torch.rand(rows, channels_of(arguments, sides), *sides, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        nets = [one_tensor(file, net, images) for file, net in zip(files, loaded)]
        net, activation, members = join(files, nets, images, arguments)
        together = net(images)
        check_rows(files[0], net, images, together)
    channels = together.shape[1]
    output = {"channels": channels, "activation": activation}
    if arguments.heatmaps:
        if arguments.threshold is not None:
            raise Refused("--threshold has no meaning with --heatmaps; leave it out, and set semantic.point_threshold in a run")
        output["kind"] = "heatmaps"
    elif activation != "softmax" and (channels == 1 or arguments.threshold is not None):
        output["threshold"] = 0.5 if arguments.threshold is None else arguments.threshold
    elif arguments.threshold is not None:
        raise Refused("--threshold has no meaning with softmax, where the largest class wins; leave it out")
    if "sigmoid" in (activation, arguments.activation) and "threshold" in output and not 0 < output["threshold"] < 1:
        raise Refused(f"--threshold {arguments.threshold}: must be a probability above 0 and below 1")
    if arguments.names:
        names = read_names(arguments.names, files[0], channels)
    description = {
        "name": out.stem,
        "task": "semantic",
        "architecture": architecture if members == 1 else f"{members} x {architecture}, mean of {arguments.mean_of or 'logits'}",
        "original": original,
        "input": inputs,
        "max_batch": MAX_BATCH,
        "output": output,
        "classes": names or [f"class {k}" for k in range(channels)],
        "licence": "that of the maker of the model",
    }

    def check(saved):
        with torch.inference_mode():
            compare("saved model", saved(images), together)

    write_package(out, description, net, check)
