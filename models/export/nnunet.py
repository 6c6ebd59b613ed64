"""Makes a package from a trained model of nnU-Net v2, for export.py.

The folder of such a model has plans.json, dataset.json, and a checkpoint for each fold. The plan has the architecture, the
size of a window and the normalisation; dataset.json has the labels. Several folds are an ensemble, as in nnU-Net.
What a package cannot express is refused, or printed as a note.
"""

import json

import torch
from torch import nn

import checkpoint
import nnunet_networks
import semantic
from command_line import SEMANTIC_OPTIONS
from package import Refused, original_of

FOLDER = "a folder of nnU-Net v2 has plans.json, dataset.json and fold_0/checkpoint_final.pth"
FROM_PLAN = tuple(option for option in SEMANTIC_OPTIONS if option not in ("mpp", "mean_of"))
NETWORKS = ("PlainConvUNet", "ResidualEncoderUNet")
NORMS = ("InstanceNorm", "BatchNorm")
ACTIVATIONS = {"LeakyReLU": nn.LeakyReLU, "ReLU": nn.ReLU}
# Arguments of a network that build() takes. Others must have the value that changes nothing.
KNOWN = ("n_stages", "features_per_stage", "conv_op", "kernel_sizes", "strides", "n_conv_per_stage", "n_blocks_per_stage", "n_conv_per_stage_decoder", "conv_bias",
         "norm_op", "norm_op_kwargs", "dropout_op", "dropout_op_kwargs", "nonlin", "nonlin_kwargs", "deep_supervision")  # fmt: skip
PICTURES = "NaturalImage2DIO"  # nnU-Net's reader of pictures
REORIENTED = "NibabelIOWithReorient"  # that turns volumes to RAS


class Slices(nn.Module):
    """A network of pictures for volumes: its windows are single slices along the slowest axis."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(images.squeeze(2)).unsqueeze(2)


def is_checkpoint(loaded):
    weights, trained = (loaded.get(key) if isinstance(loaded, dict) else None for key in ("network_weights", "init_args"))
    return isinstance(weights, dict) and all(map(torch.is_tensor, weights.values())) and isinstance(trained, dict)


def folds_of(folder):
    """The checkpoints of a trained model, one for each fold."""
    found = sorted(folder.glob("fold_*/checkpoint_final.pth"))
    if not found:
        raise Refused(f"{folder}: is a folder without fold_*/checkpoint_final.pth; name the file with the weights, a bundle of MONAI, or a trained model of nnU-Net: {FOLDER}")
    return found


def read_json(file):
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{file}: cannot be read as JSON ({error}); {FOLDER}") from error
    if not isinstance(read, dict):
        raise Refused(f"{file}: is no JSON object; {FOLDER}")
    return read


def configuration_of(file, plans, name):
    """The configuration of this name, with what it inherits."""
    resolved, visited = {}, []
    while name is not None:
        if name not in plans["configurations"] or name in visited:
            raise Refused(f"{file}: has no configuration '{name}', which the checkpoint was trained with; take the plans.json of its training")
        visited.append(name)
        resolved = plans["configurations"][name] | resolved
        name = plans["configurations"][name].get("inherits_from")
    if resolved.get("previous_stage"):
        raise Refused(f"{file}: '{visited[0]}' is the second stage of a cascade, and a package has one stage; train or take '3d_fullres'")
    return resolved


def architecture_of(configuration):
    """(name, arguments) of the network. Plans of earlier versions have its arguments in other keys."""
    if "architecture" in configuration:
        return configuration["architecture"]["network_class_name"].split(".")[-1], configuration["architecture"]["arch_kwargs"]
    name, counts = configuration["UNet_class_name"], configuration["n_conv_per_stage_encoder"]
    dimensions = len(configuration["patch_size"])
    return name, {
        "n_stages": len(counts),
        "features_per_stage": [min(configuration["UNet_base_num_features"] * 2**stage, configuration["unet_max_num_features"]) for stage in range(len(counts))],
        "kernel_sizes": configuration["conv_kernel_sizes"],
        "strides": configuration["pool_op_kernel_sizes"],
        "n_conv_per_stage" if name == "PlainConvUNet" else "n_blocks_per_stage": counts,
        "n_conv_per_stage_decoder": configuration["n_conv_per_stage_decoder"],
        "conv_bias": True,
        "norm_op": f"InstanceNorm{dimensions}d",
        "norm_op_kwargs": {"eps": 1e-5, "affine": True},
        "nonlin": "LeakyReLU",
        "nonlin_kwargs": {"inplace": True},
    }


def word_of(file, what, value, known):
    """The last part of a class's name, such as InstanceNorm of torch.nn.modules.instancenorm.InstanceNorm3d."""
    word = value.split(".")[-1]
    if word not in known:
        raise Refused(f"{file}: the network has {what} {value}; {', '.join(known)} are possible")
    return word


def network_of(file, configuration, inputs, classes):
    """The untrained network of a configuration."""
    name, options = architecture_of(configuration)
    name = word_of(file, "the architecture", name, NETWORKS)
    dimensions = len(configuration["patch_size"])
    if others := sorted(key for key, value in options.items() if key not in KNOWN and value):
        raise Refused(f"{file}: {name} has {', '.join(others)}, which packages cannot have; only networks as nnU-Net plans them are possible")
    norm = options.get("norm_op")
    activation = options.get("nonlin")
    shape = nnunet_networks.Shape(
        dimensions,
        word_of(file, "the normalisation", norm, [f"{one}{dimensions}d" for one in NORMS])[:-2] if norm else None,
        options.get("norm_op_kwargs") or {},
        ACTIVATIONS[word_of(file, "the activation", activation, ACTIVATIONS)] if activation else None,
        options.get("nonlin_kwargs") or {},
        options.get("dropout_op") is not None,
        bool(options.get("conv_bias", False)),
    )
    stages = options["n_stages"]

    def each(key, count=stages):
        value = options[key]
        values = [value] * count if isinstance(value, int) else list(value)
        if len(values) != count:
            raise Refused(f"{file}: {key} has {len(values)} values for {count} stages; take the plans.json of the training")
        return values

    counts = each("n_blocks_per_stage" if name == "ResidualEncoderUNet" else "n_conv_per_stage")
    return nnunet_networks.build(name, shape, inputs, classes, each("features_per_stage"), each("kernel_sizes"), each("strides"), counts,
                                 each("n_conv_per_stage_decoder", stages - 1))  # fmt: skip


def labels_of(file, dataset):
    """The names of labels 0, 1, ..."""
    labels = {name: value for name, value in dataset["labels"].items() if name != "ignore"}
    if any(isinstance(value, list) and len(value) > 1 for value in labels.values()):
        raise Refused(f"{file}: has regions, which overlap; a package has one label for each voxel")
    by_value = {value[0] if isinstance(value, list) else int(value): name for name, value in labels.items()}
    if sorted(by_value) != list(range(len(labels))):
        raise Refused(f"{file}: has the labels {sorted(by_value)}; expected 0 to {len(labels) - 1}")
    return [by_value[value] for value in range(len(labels))]


def scaling_of(file, plans, scheme, masked, channel):
    """The keys of model.yaml that do what the plan does with a channel. `masked`: zeros do not count, and stay."""
    if scheme == "ZScoreNormalization":
        return {"zscore": "nonzero" if masked else "nonzero_box"}
    if scheme == "CTNormalization":
        known = (plans.get("foreground_intensity_properties_per_channel") or plans["foreground_intensity_properties_by_modality"])[str(channel)]
        low, high = known["percentile_00_5"], known["percentile_99_5"]
        if not low < high:
            raise Refused(f"{file}: of channel {channel}, the percentiles 0.5 and 99.5 are {low:g} and {high:g}, so its values have no range; take the plans.json of the training")
        return {"clip": [low, high], "scale": 1, "mean": known["mean"], "std": max(known["std"], 1e-8)}
    if scheme == "RescaleTo01Normalization":
        return {"percentiles": [0, 100]}
    if scheme in ("NoNormalization", "RGBTo01Normalization"):
        return {"scale": 1 if scheme == "NoNormalization" else 1 / 255, "mean": 0, "std": 1}
    raise Refused(f"{file}: normalises with {scheme}, which packages cannot do")


def spacing_of(configuration, axes):
    """Sides of a voxel in mm as x, y, z; 0 for the axis across windows that are slices, which nnU-Net does not resample. None for pictures."""
    if not axes:
        return None
    spacing = [0] * (3 - len(configuration["spacing"])) + list(configuration["spacing"])
    return spacing if axes == "xyz" else spacing[::-1]


def notes_of(configuration, trained, axes, channels):
    """What nnU-Net does and a run does not, in sentences. `axes` is None for pictures."""
    masks = [masked for scheme, masked in zip(configuration["normalization_schemes"], configuration["use_mask_for_norm"]) if scheme == "ZScoreNormalization"]
    if masks:
        if any(masks):
            yield "nnU-Net's mean and deviation are of the inside of the head or body, with its holes. Those of the package are of all values that are not zero"
        if axes:
            yield "nnU-Net first cuts away the outer slices that are zero. The package has the same mean and deviation, but its windows cover the whole volume"
    if axes:
        yield "nnU-Net resamples volumes with splines of third order, and probabilities back. Millrace resamples linearly, and labels back"
    if axes and channels > 1:
        yield f"nnU-Net reads each channel from a file of its own (_0000, _0001). Millrace takes them from one NIfTI with {channels} volumes, in the same order"
    if mirrored := trained.get("inference_allowed_mirroring_axes"):
        names = axes[3 - len(configuration["patch_size"]) :] if axes else "yx"  # of the axes of a window
        yield f"nnU-Net also takes the mean over mirrored windows: add --set tiles.tta={','.join(sorted(names[axis] for axis in mirrored))}"
    yield "nnU-Net's windows overlap by half: add --set tiles.overlap=0.5"
    if trained.get("trainer_name", "nnUNetTrainer") != "nnUNetTrainer":
        yield f"the checkpoint is of the trainer {trained['trainer_name']}, whose network may differ from the plan. Compare the results with those of nnU-Net"


def read_plan(folder, trained, arguments):
    """(configuration, channels, names of the labels, notes). Sets the options of `arguments` that FROM_PLAN lists."""
    plans_file, dataset_file = folder / "plans.json", folder / "dataset.json"
    plans, dataset = read_json(plans_file), read_json(dataset_file)
    try:
        configuration = configuration_of(plans_file, plans, trained["init_args"].get("configuration"))
        pictures = plans.get("image_reader_writer") == PICTURES
        channels = len(dataset.get("channel_names") or dataset["modality"])
        if pictures and channels != 3:
            raise Refused(f"{dataset_file}: has {channels} channels; pictures have three")
        sides, axes = list(configuration["patch_size"]), None
        if not pictures:
            axes = {(0, 1, 2): "zyx", (2, 1, 0): "xyz"}.get(tuple(plans["transpose_forward"]))
            if axes is None:
                raise Refused(f"{plans_file}: its network takes the axes in the order {plans['transpose_forward']}; [0, 1, 2] (z, y, x) and [2, 1, 0] are possible")
            sides = [1] * (3 - len(sides)) + sides
        options = {"roi": sides, "axes": axes, "spacing": spacing_of(configuration, axes), "scale_first": bool(axes), "orientation": "RAS" if axes and plans.get("image_reader_writer") == REORIENTED else None, "colour": "rgb" if pictures else None, "activation": "softmax"}
        of_channels = [scaling_of(plans_file, plans, configuration["normalization_schemes"][channel], configuration["use_mask_for_norm"][channel], channel) for channel in range(channels)]
        options |= {"channels": channels} if axes and channels > 1 else {}
        options |= semantic.options_of(of_channels)
        for name, value in options.items():
            setattr(arguments, name, value)
        return configuration, channels, labels_of(dataset_file, dataset), list(notes_of(configuration, trained, axes, channels))
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{plans_file}: it, or dataset.json, is not as nnU-Net v2 writes it ({type(error).__name__}: {error}); {FOLDER}") from error


def load(file, trust):
    trained = checkpoint.load(file, trust)
    if not is_checkpoint(trained):
        raise Refused(f"{file}: is a checkpoint, and not one of nnU-Net v2; --task semantic takes TorchScript, which torch.jit.save wrote, or {FOLDER}")
    checkpoint.check_plain(file, trained["network_weights"])
    return trained


def export(files, out, arguments):
    """Makes the package of one checkpoint of nnU-Net, or of several folds."""
    for option in FROM_PLAN:
        if getattr(arguments, option) is not None:
            raise Refused(f"{files[0]}: --{option.replace('_', '-')} comes from the plan of nnU-Net; leave it out")
    first = load(files[0], arguments.trust)
    folder = files[0].absolute().parent.parent
    configuration, channels, names, notes = read_plan(folder, first, arguments)
    nets = []
    for file in files:
        trained = first if file is files[0] else load(file, arguments.trust)
        if file.absolute().parent.parent != folder or trained["init_args"].get("configuration") != first["init_args"].get("configuration"):
            raise Refused(f"{file}: belongs to another model than {files[0]}; an ensemble has folds of one model")
        net = network_of(folder / "plans.json", configuration, channels, len(names)).eval()
        architecture = type(net).__name__
        checkpoint.load_tensors(file, architecture, net, trained["network_weights"])
        net = nnunet_networks.slim(net)
        nets.append(torch.jit.script(Slices(net) if len(configuration["patch_size"]) < len(arguments.roi) else net))
    semantic.write(files, nets, out, arguments, architecture, original_of("nnU-Net v2", folder.name), names)
    for note in notes:
        print(f"note: {note}")
