"""Loading pickled checkpoints: with weights_only and a list of classes, or with --trust as any program that its author wrote."""

import importlib
import pickle
import re
import warnings

import torch
from torch import nn

from package import Refused
from sniff import FETCH_AGAIN, SUPPORTED

# The classes of YOLOv8 and YOLO11 detectors. Checkpoints before Ultralytics 8.0.44 name them without the file they are in.
ULTRALYTICS_CLASSES = {
    "ultralytics.nn.modules.conv": ("Conv", "DWConv", "Concat"),
    "ultralytics.nn.modules.block": ("Attention", "Bottleneck", "C2f", "C2PSA", "C3", "C3k", "C3k2", "DFL", "PSABlock", "SPPF"),
    "ultralytics.nn.modules.head": ("Detect",),
    "ultralytics.nn.tasks": ("DetectionModel",),
}
TORCH_CLASSES = {
    "torch.nn.modules.activation": ("Hardswish", "LeakyReLU", "ReLU", "SiLU"),
    "torch.nn.modules.batchnorm": ("BatchNorm2d",),
    "torch.nn.modules.container": ("ModuleList", "Sequential"),
    "torch.nn.modules.conv": ("Conv2d",),
    "torch.nn.modules.linear": ("Identity",),
    "torch.nn.modules.pooling": ("MaxPool2d",),
    "torch.nn.modules.upsampling": ("Upsample",),
}
# What a training leaves beside the model: read, and thrown away.
LEFT_OVERS = (
    *(f"ultralytics.{place}.IterableSimpleNamespace" for place in ("utils", "yolo.utils")),
    *(f"ultralytics.{place}.loss.{name}" for place in ("utils", "yolo.utils") for name in ("BboxLoss", "DFLoss", "v8DetectionLoss")),
    *(f"ultralytics.{place}.tal.TaskAlignedAssigner" for place in ("utils", "yolo.utils")),
    "torch.nn.modules.loss.BCEWithLogitsLoss",
    "numpy.dtype",
    *(f"{place}.multiarray.{name}" for place in ("numpy.core", "numpy._core") for name in ("scalar", "_reconstruct")),
    "numpy.ndarray",
    *(f"pathlib{place}.{name}Path" for place in ("", "._local") for name in ("Posix", "Windows")),
    "argparse.Namespace",
)

# Models and heads of Ultralytics that have no exporter here.
OTHER_KINDS = {
    "SegmentationModel": "a segmentation model (YOLO-seg, FastSAM)",
    "Segment": "a segmentation model (YOLO-seg, FastSAM)",
    "PoseModel": "a pose model",
    "Pose": "a pose model",
    "OBBModel": "a model of rotated boxes (OBB)",
    "OBB": "a model of rotated boxes (OBB)",
    "ClassificationModel": "a classifier",
    "Classify": "a classifier",
    "RTDETRDetectionModel": "RT-DETR",
    "RTDETRDecoder": "RT-DETR",
    "YOLOv10DetectionModel": "YOLOv10",
    "v10Detect": "YOLOv10",
}

WHAT_A_PICKLE_CAN_DO = "a pickle can run any command with your rights as it is loaded"


class LeftOver:
    """Stands for an object that exporting does not need: nothing of it is kept."""

    def __init__(self, *arguments, **options):
        pass

    def __setstate__(self, state):
        pass


def shell(original):
    """A subclass that can be filled but not constructed: DetectionModel's constructor evaluates text of the checkpoint as Python."""

    def refuse(self, *arguments, **options):
        raise pickle.UnpicklingError(f"constructs a {original.__name__}, which a saved model has no need to")

    return type(original.__name__, (original,), {"__init__": refuse, "shell_of": original})


def aliases(module, name):
    """The names under which a class may stand in a checkpoint."""
    return (f"{module}.{name}", f"ultralytics.nn.modules.{name}") if module.startswith("ultralytics.nn.modules.") else (f"{module}.{name}",)


KNOWN = {
    alias: (module, name)
    for module, names in {**ULTRALYTICS_CLASSES, **TORCH_CLASSES}.items()
    for name in names
    for alias in aliases(module, name)
}


def allowed_globals(names):
    """What weights_only may make of `names`: the class that stands for each."""
    allowed = {name: LeftOver for name in LEFT_OVERS}
    for alias in names & set(KNOWN):
        module, name = KNOWN[alias]
        allowed[alias] = shell(getattr(importlib.import_module(module), name))
    return [(made, alias) for alias, made in allowed.items()]


def names_in(path):
    """The classes and functions that a checkpoint's pickle asks for, beyond those that torch allows; nothing is loaded."""
    try:
        return set(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:  # a pickle of before PyTorch 1.6, or a damaged one: loading says so
        return set()


def refuse_by_name(path, names):
    """Refuses checkpoints whose class names say that they are of a family without an exporter."""
    for name in sorted(names):
        module, _, last = name.rpartition(".")
        if module in ("ultralytics.nn.tasks", "ultralytics.nn.modules.head") and last not in ULTRALYTICS_CLASSES[module]:
            raise Refused(f"{path}: is {OTHER_KINDS.get(last, f'a model with {last}')} of Ultralytics; {SUPPORTED}")
        if module.split(".")[0] == "models" and module.split(".")[-1] in ("yolo", "common"):
            raise Refused(f"{path}: is a checkpoint of the YOLOv5 or YOLOv7 repositories (it holds {name}); {SUPPORTED}")


def load(path, trust=False):
    """What torch.save wrote to `path`, its modules as they were saved."""
    names = names_in(path)
    refuse_by_name(path, names)
    warnings.filterwarnings("ignore")
    try:
        if trust:
            return torch.load(path, map_location="cpu", weights_only=False)
        with torch.serialization.safe_globals(allowed_globals(names)):
            return opened(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch passes on what its readers meet: RuntimeError, EOFError, KeyError, AttributeError...
        raise refusal(path, names, error, trust) from error


def refusal(path, names, error, trust):
    first = str(error).strip().split("\n")[0][:200]
    asked = re.findall(r"GLOBAL (\S+)", str(error))  # of a pickle of before PyTorch 1.6, whose names are not known beforehand
    foreign = sorted(names - set(KNOWN) - set(LEFT_OVERS)) or asked
    if isinstance(error, pickle.UnpicklingError) and not trust and (foreign or "constructs" in str(error)):
        holds = f"holds {', '.join(foreign[:3])}" if foreign else re.findall(r"constructs [^\n]*", str(error))[0]
        return Refused(
            f"{path}: is a pickle with more in it than weights and the classes known here (it {holds}), and {WHAT_A_PICKLE_CAN_DO}, so it was "
            f"not loaded; {SUPPORTED}; where you trust whoever made the file, --trust (make: TRUST=1) loads it nevertheless"
        )
    if isinstance(error, (ImportError, AttributeError)):
        return Refused(f"{path}: needs Python code that is not installed here ({first}); {SUPPORTED}")
    said = f"{type(error).__name__}: {first}"
    return Refused(f"{path}: is a pickle that PyTorch cannot load as a checkpoint ({said}); {FETCH_AGAIN}, or it was never a checkpoint")


def opened(loaded):
    """`loaded` with its shells turned into the classes that they stand for, and without left-overs among its modules."""
    seen = set()

    def visit(module):
        if id(module) in seen:
            return
        seen.add(id(module))
        module.__class__ = getattr(type(module), "shell_of", type(module))
        children = module.__dict__["_modules"]
        for name in [name for name, child in children.items() if child is not None and not isinstance(child, nn.Module)]:
            del children[name]
        for child in children.values():
            if child is not None:
                visit(child)

    for value in loaded.values() if isinstance(loaded, dict) else [loaded]:
        if isinstance(value, nn.Module):
            visit(value)
    return loaded


def state_dict_of(path, loaded):
    """The tensors of a checkpoint by name, and in words where they were found, if not at the top of the file.

    They may stand below `model` or `state_dict`, and DataParallel puts `module.` before every name.
    """
    below = {key: loaded.get(key) for key in ("model", "state_dict")} if isinstance(loaded, dict) else {}
    for place, inside in (("", loaded), *below.items()):
        if isinstance(inside, dict) and inside and all(isinstance(key, str) and torch.is_tensor(inside[key]) for key in inside):
            found = f", taken from below '{place}'" if place else ""
            if all(key.startswith("module.") for key in inside):
                inside = {key.removeprefix("module."): value for key, value in inside.items()}
                found += ", 'module.' taken off its names"
            return inside, found
    held = f"an object of type {type(loaded).__name__}"
    if isinstance(loaded, dict) and loaded:
        held = f"a dict with {', '.join(map(str, list(loaded)[:4]))}"
    raise Refused(f"{path}: is a PyTorch checkpoint that holds {held}, and no model known here; {SUPPORTED}")


def load_tensors(path, family, model, state):
    """Loads `state` into `model`, every tensor of it and no other; refuses what does not fit, by name."""
    own = model.state_dict()
    faults = [
        f"{what} ({len(names)}: {', '.join(sorted(names)[:4])}{', ...' if len(names) > 4 else ''})"
        for what, names in (
            ("lacks tensors", own.keys() - state.keys()),
            ("has tensors that the architecture has not", state.keys() - own.keys()),
            ("has tensors of other shapes", {key for key in own.keys() & state.keys() if own[key].shape != state[key].shape}),
        )
        if names
    ]
    if faults:
        raise Refused(f"{path}: looks like {family} but {', '.join(faults)}; it may be cut, fine-tuned with another architecture, or another model")
    model.load_state_dict(state, strict=True)
