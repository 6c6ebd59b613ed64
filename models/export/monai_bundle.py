"""Makes a package from a bundle of MONAI, as in its Model Zoo, for export.py.

The folder of a bundle has its configuration (monai_config.py) and its weights: models/model.ts, TorchScript, or
models/model.pt, tensors. For tensors, an installed MONAI makes the network that the configuration names. Windows,
scaling, voxels, classes and activation are those of the bundle. What a package cannot express is refused, or printed as
a note.
"""

import inspect
from pathlib import Path

import torch
from torch import nn

import checkpoint
import monai_config
import monai_transforms
import semantic
from command_line import SEMANTIC_OPTIONS
from monai_config import FOLDER
from package import Refused, compare, original_of
from sniff import check_readable

FROM_BUNDLE = tuple(option for option in SEMANTIC_OPTIONS if option not in ("roi", "mpp"))
WEIGHTS = ("model.ts", "model.pt")
NETWORKS = ("network_def", "network", "net", "model")
NETS = "monai.networks.nets"
# They read no file and download nothing, unless `pretrained` asks for it. Others do: Transchex always, HoVerNet if its arguments name a place.
KNOWN = ("AHNet", "AttentionUnet", "BasicUNet", "BasicUNetPlusPlus", "DynUNet", "FlexibleUNet", "HighResNet", "MedNeXt", "RegUNet", "SegResNet", "SegResNetDS", "SegResNetVAE", "SwinUNETR", "UNETR", "UNet", "VNet")
WINDOWS = ("SlidingWindowInferer", "SlidingWindowInfererAdapt", "SliceInferer")
NO_ARGUMENTS = ("_target_", "_desc_", "_requires_", "_mode_", "_disabled_")


class Turned(nn.Module):
    """A network of pictures [x, y], as MONAI reads them, for windows [height, width]."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(images.transpose(2, 3)).transpose(2, 3)


class Slices(nn.Module):
    """A network of pictures for volumes: its windows are single slices along the axis `axis` of [B, channels, x, y, z]."""

    def __init__(self, net, axis):
        super().__init__()
        self.net = net
        self.axis: int = axis

    def forward(self, images):
        return self.net(images.squeeze(self.axis)).unsqueeze(self.axis)


def folder_of(path):
    """The folder of the bundle that `path` is, or that has the weights `path` in models/; None for everything else."""
    path = Path(path).absolute()
    folder = path if path.is_dir() else path.parent.parent
    if not path.is_dir() and not (path.is_file() and path.parent.name == "models"):
        return None  # a wrong path is no reason to take other weights
    return folder if any((folder / "configs" / name).is_file() for name in ("metadata.json", *monai_config.CONFIGURATIONS)) else None


def weights_of(path, folder):
    """(file, kind) of the weights."""
    if not path.is_dir():
        return path, check_readable(path, ("torchscript",))
    file = next((file for name in WEIGHTS if (file := folder / "models" / name).is_file()), None)
    if file is None:
        raise Refused(f"{folder}: has neither models/model.ts nor models/model.pt; fetch the weights of the bundle, since its configuration alone is no model; {FOLDER}")
    return file, check_readable(file, ("torchscript",))


def instance(config, value, path):
    """The object that a value without references describes. Only KNOWN networks of MONAI, and layers of PyTorch inside, are made."""
    if isinstance(value, list):
        return [instance(config, one, [*path, index]) for index, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "_target_" not in value:
        return {key: instance(config, one, [*path, key]) for key, one in value.items()}
    target = str(value["_target_"])
    module, _, name = target.rpartition(".")
    nets = (not module or module == NETS or module.startswith(NETS + ".")) and monai_config.monai_module(NETS)
    made = getattr(nets or (torch.nn if module == "torch.nn" or module.startswith("torch.nn.modules") else None), name, None)
    if not (inspect.isclass(made) and issubclass(made, nn.Module)) or nets and made.__name__ not in KNOWN or value.get("_mode_", "default") != "default":
        config.refuse(path, f"makes {target!r}; without --trust, the exporter makes only layers of torch.nn and these networks of {NETS}: {', '.join(KNOWN)}. Add --trust if you trust the maker of the bundle")
    options = {key: instance(config, one, [*path, key]) for key, one in value.items() if key not in NO_ARGUMENTS}
    if "pretrained" in inspect.signature(made).parameters:
        options["pretrained"] = False  # it would download weights, and those of the bundle replace them
    try:
        return made(**options)
    except ImportError as error:
        raise Refused(f"{config.file}: {name} needs a Python package that is not installed ({first_line(error)}); install it next to MONAI, or take a bundle with models/model.ts") from error
    except Exception as error:  # MONAI checks its arguments with many types
        raise Refused(f"{config.file}: {'::'.join(map(str, path))}: MONAI's {name} cannot be made with these arguments ({type(error).__name__}: {first_line(error)})") from error


def first_line(error):
    return (str(error).strip() or "no reason given").split("\n")[0][:200]


def network_of(config, file):
    """The network of the bundle, with the weights of `file`."""
    path = next(([name] for name in NETWORKS if isinstance(config.data.get(name), dict) and "_target_" in config.data[name]), None)
    if path is None and config.trust and config.has("network"):
        path = ["network"]  # an expression
    if path is None:
        raise Refused(f"{config.file}: has no {' or '.join(NETWORKS[:2])} with a _target_, so the network of {file.name} is not known; take a bundle with models/model.ts")
    net = config.evaluated(path) if config.trust else instance(config, config.value(path), path)
    if not isinstance(net, nn.Module):
        config.refuse(path, f"is a {type(net).__name__}, and no network")
    state, found = checkpoint.state_dict_of(file, checkpoint.load(file, config.trust))
    name = type(net).__name__
    checkpoint.load_tensors(file, name, net, state)
    print(f"{file}: {len(state)} tensors of MONAI's {name}{found}")
    return net.eval()


def run(file, net, images):
    """The first tensor of what a network returns."""
    try:
        output = net(images)
    except ImportError as error:
        raise Refused(f"{file}: its network needs a Python package that is not installed ({first_line(error)}); install it next to MONAI") from error
    except (RuntimeError, ValueError, torch.jit.Error) as error:
        raise Refused(f"{file}: the network cannot take windows {list(images.shape)} of the bundle ({str(error).strip().splitlines()[-1][:200]})") from error
    return output[0] if isinstance(output, (list, tuple)) and len(output) else output


def script(file, net, images):
    """The network as TorchScript, compared with the original for two numbers of windows, and whether it was traced."""
    expected = run(file, net, images)
    if not torch.is_tensor(expected):
        raise Refused(f"{file}: its network returns a {type(expected).__name__}, and packages need one tensor with a value for each pixel")
    faults = []
    for make in (torch.jit.script, lambda net: torch.jit.trace(net, images, check_trace=False)):
        try:
            made = make(net)
            compare(f"TorchScript, {len(images)} windows", run(file, made, images), expected)
            compare("TorchScript, 1 window", run(file, made, images[:1]), run(file, net, images[:1]), expected.std())
            return made, len(faults) > 0
        except Exception as error:  # the compiler throws many types
            faults.append(first_line(error))
    raise Refused(f"{file}: its network cannot become TorchScript (script: {faults[0]}; trace: {faults[1]})")


def inferer_of(config, dimensions):
    """(sides of a window, axis of slices or None, notes), from the inferer. Without windows, the sides are None."""
    at, value = config.follow(["inferer"]) if config.has("inferer") else (["inferer"], {"_target_": "SimpleInferer"})
    kind = str(value.get("_target_")).removeprefix("monai.inferers.") if isinstance(value, dict) else str(value)
    if kind == "SimpleInferer":
        return None, None, ["MONAI gives the network whole images, without windows. The results of a run are the same for images of the size of a window"]
    if kind not in WINDOWS:
        config.refuse(at, f"is {kind}; the exporter takes {', '.join(WINDOWS)} and SimpleInferer")

    def option(name, default):
        found = config.value([*at, name]) if name in value else default
        return found[0] if isinstance(found, list) and len(set(found)) == 1 else found

    sides = config.value([*at, "roi_size"])
    axis = option("spatial_dim", 0) if kind == "SliceInferer" else None
    sides = [sides] * (2 if axis is not None else dimensions) if isinstance(sides, int) else list(sides)
    if not all(isinstance(side, int) and side > 0 for side in sides):
        sides = None  # those of each image
    settings, notes = [], []
    for name, default, known, setting in (("overlap", 0.25, 0.25, "tiles.overlap"), ("mode", "constant", "gaussian", "tiles.weights"), ("sigma_scale", 0.125, 0.125, "tiles.sigma")):
        found = option(name, default)
        if isinstance(found, list):
            notes.append(f"{name} of MONAI's windows is {found} for the axes. A run has one number for all: {setting}")
        elif found != known and not (name == "sigma_scale" and option("mode", "constant") == "constant"):
            settings.append(f"--set {setting}={found}")
    if settings:
        notes.append(f"to blend windows as the bundle does, add {' '.join(settings)}")
    if option("padding_mode", "constant") != "constant" or option("cval", 0):
        notes.append("MONAI fills windows that are larger than the image in another way. Millrace fills them with zeros")
    return sides, axis, notes


def format_of(file, metadata):
    """(key of the input, its description, key of the output, its description)."""
    data = metadata["network_data_format"]
    for name in ("inputs", "outputs"):
        if len(data[name]) != 1:
            raise Refused(f"{file}: the network has the {name} {', '.join(data[name])}; packages have one")
    return (*next(iter(data["inputs"].items())), *next(iter(data["outputs"].items())))


def names_of(file, found, channels):
    """The names of the channels of the output, if the metadata has them all, and a note."""
    by_number = {int(key): str(name) for key, name in (found.get("channel_def") or {}).items()}
    if sorted(by_number) == [0, 1] and channels == 1:
        return [by_number[1]], []  # the background has no channel
    if sorted(by_number) == list(range(channels)):
        return [by_number[channel] for channel in range(channels)], []
    return None, [f"{file.name} names {len(by_number)} of {channels} channels, so classes have numbers. --names FILE names them"]


def sides_of(config, described, arguments, dimensions):
    """The sides of a window in MONAI's order, the axis of slices, and notes."""
    sides, axis, notes = inferer_of(config, dimensions)
    if sides and arguments.roi is not None:
        raise Refused(f"{config.folder}: --roi comes from the bundle; leave it out, and set tiles.roi in a run for other windows")
    shape = described.get("spatial_shape") or []
    if not sides and arguments.roi is None and axis is None and shape and all(isinstance(side, int) and side > 0 for side in shape):
        sides = list(shape)
    if not sides:
        if arguments.roi is None:
            raise Refused(f"{config.folder}: names no size of windows, neither as roi_size of the inferer nor as spatial_shape; add --roi")
        sides = arguments.roi if len(arguments.roi) > 1 else arguments.roi * (2 if axis is not None else dimensions)
    if len(sides) != (2 if axis is not None else dimensions):
        raise Refused(f"{config.folder}: its windows have the sides {sides}, but its network takes {dimensions} dimensions")
    return sides, axis, notes


def dimensions_of(config, described):
    """How many dimensions the network takes."""
    for name in NETWORKS:
        for key in ("spatial_dims", "dimensions"):
            if config.has(name, key):
                return config.value([name, key])
    roi = config.value(["inferer", "roi_size"]) if config.has("inferer", "roi_size") else None
    return len(roi) if isinstance(roi, list) else len(described.get("spatial_shape") or [0] * 3)


def export(files, out, arguments):
    """Makes the package of one bundle."""
    folder = folder_of(files[0])
    if len(files) > 1:
        raise Refused(f"{files[0]}: belongs to a bundle of MONAI; a package has one bundle, so name it alone")
    for option in FROM_BUNDLE:
        if getattr(arguments, option) is not None:
            raise Refused(f"{files[0]}: --{option.replace('_', '-')} comes from the bundle; leave it out")
    file, kind = weights_of(files[0], folder)
    metadata_file = folder / "configs/metadata.json"
    metadata, config = monai_config.read(metadata_file), monai_config.Config(folder, arguments.trust)
    try:
        key, described, result, found = format_of(metadata_file, metadata)
        channels, outputs = int(described["num_channels"]), int(found["num_channels"])
        sides, axis, notes = sides_of(config, described, arguments, dimensions := dimensions_of(config, described))
        if dimensions not in (2, 3) or axis is not None and dimensions != 2:
            raise Refused(f"{config.file}: its network takes {dimensions} dimensions; pictures have 2 and volumes 3")
        volumes = dimensions == 3 or axis is not None
        before = monai_transforms.Before(config, key, channels, volumes)
        options, later = monai_transforms.after(config, result, outputs)
        names, more = names_of(metadata_file, found, outputs)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{config.file}: it, or metadata.json, is not as MONAI writes it ({type(error).__name__}: {error}); {FOLDER}") from error
    options |= {"axes": "xyz" if volumes else None, "channels": channels if channels != (1 if volumes else 3) else None, "colour": "rgb" if not volumes and channels == 3 else None} | before.options
    for name, value in options.items():
        setattr(arguments, name, value)
    net = semantic.load(file) if kind == "torchscript" else network_of(config, file)
    architecture = net.original_name if kind == "torchscript" else type(net).__name__
    images = torch.rand(2, channels, *sides, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        traced = False
        if kind != "torchscript":
            net, traced = script(file, net, images)
        net = semantic.one_tensor(file, net, images)
        if (given := net(images).shape[1]) != outputs:
            raise Refused(f"{metadata_file}: the output has {outputs} channels, but the network returns {given}; correct num_channels")
        if axis is not None:
            net = torch.jit.script(Slices(net, 2 + axis))
            sides = [*sides[:axis], 1, *sides[axis:]]
        elif before.turned:
            net = torch.jit.script(Turned(net))
            sides = sides[::-1]
    arguments.roi = sides
    semantic.write([file], [net], out, arguments, architecture, original_of("MONAI bundle", str(metadata.get("name") or folder.name), str(metadata.get("version") or "")), names)
    if traced:
        notes.append("the network was traced for its windows, so leave tiles.roi as it is")
    if volumes and channels > 1:
        notes.append(f"Millrace takes the channels of a volume from one NIfTI with {channels} volumes")
    if outputs > 1 and options["threshold"] is not None:
        notes.append("classes of MONAI may overlap. A package gives each pixel or voxel the class with the largest value above the threshold, and 0 for none")
    for note in [*before.notes, *notes, *later, *more]:
        print(f"note: {note}")
