"""Loads pickled checkpoints, with weights_only and a list of allowed classes.

With --trust it loads any pickle, which can run any code.
"""

import importlib
import pickle
import re
import warnings

import torch
from torch import nn

from package import Refused
from sniff import FETCH_AGAIN, SUPPORTED

# The classes of YOLOv8 and YOLO11 detectors. Checkpoints from before Ultralytics 8.0.44 name them without their file.
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
# Objects of the training in a checkpoint. They are read and thrown away.
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

# Models and heads of Ultralytics without an exporter.
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

WHAT_A_PICKLE_CAN_DO = "a pickle can run any command with your rights while it is loaded"


class LeftOver:
    """Replaces an object that exporters do not need. It keeps nothing of it."""

    def __init__(self, *arguments, **options):
        pass

    def __setstate__(self, state):
        pass


def shell(original):
    """A subclass that a pickle can fill but not construct.

    DetectionModel's constructor evaluates text of the checkpoint as Python.
    """

    def refuse(self, *arguments, **options):
        raise pickle.UnpicklingError(f"constructs a {original.__name__}, which a saved model does not need")

    return type(original.__name__, (original,), {"__init__": refuse, "shell_of": original})


def aliases(module, name):
    """The names that a class can have in a checkpoint."""
    return (f"{module}.{name}", f"ultralytics.nn.modules.{name}") if module.startswith("ultralytics.nn.modules.") else (f"{module}.{name}",)


KNOWN = {
    alias: (module, name)
    for module, names in {**ULTRALYTICS_CLASSES, **TORCH_CLASSES}.items()
    for name in names
    for alias in aliases(module, name)
}


def allowed_globals(names):
    """(class, name) pairs that weights_only may create, for the names of a checkpoint: its shell, or LeftOver."""
    allowed = {name: LeftOver for name in LEFT_OVERS}
    for alias in names & set(KNOWN):
        module, name = KNOWN[alias]
        allowed[alias] = shell(getattr(importlib.import_module(module), name))
    return [(made, alias) for alias, made in allowed.items()]


def names_in(path):
    """The classes and functions that a checkpoint's pickle uses, without those that torch allows. Loads nothing."""
    try:
        return set(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:  # a pickle from before PyTorch 1.6, or a damaged one: load() reports it
        return set()


def refuse_by_name(path, names):
    """Refuses checkpoints whose class names belong to a family without an exporter."""
    for name in sorted(names):
        module, _, last = name.rpartition(".")
        if module in ("ultralytics.nn.tasks", "ultralytics.nn.modules.head") and last not in ULTRALYTICS_CLASSES[module]:
            raise Refused(f"{path}: is {OTHER_KINDS.get(last, f'a model with {last}')} of Ultralytics; {SUPPORTED}")
        if module.split(".")[0] == "models" and module.split(".")[-1] in ("yolo", "common"):
            raise Refused(f"{path}: is a checkpoint of the YOLOv5 or YOLOv7 repositories (it contains {name}); {SUPPORTED}")


def load(path, trust=False):
    """Loads what torch.save wrote to `path`. Modules have their original classes."""
    names = names_in(path)
    refuse_by_name(path, names)
    warnings.filterwarnings("ignore")
    try:
        if trust:
            return torch.load(path, map_location="cpu", weights_only=False)
        with torch.serialization.safe_globals(allowed_globals(names)):
            return opened(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch has no common type: RuntimeError, EOFError, KeyError, AttributeError...
        raise refusal(path, names, error, trust) from error


def refusal(path, names, error, trust):
    first = str(error).strip().split("\n")[0][:200]
    asked = re.findall(r"GLOBAL (\S+)", str(error))  # a pickle from before PyTorch 1.6: names_in() cannot read its names
    foreign = sorted(names - set(KNOWN) - set(LEFT_OVERS)) or asked
    if isinstance(error, pickle.UnpicklingError) and not trust and (foreign or "constructs" in str(error)):
        holds = f"holds {', '.join(foreign[:3])}" if foreign else re.findall(r"constructs [^\n]*", str(error))[0]
        return Refused(
            f"{path}: was not loaded: it is a pickle that {holds}, and {WHAT_A_PICKLE_CAN_DO}; {SUPPORTED}; "
            f"if you trust the maker of the file, load it with --trust (make: TRUST=1)"
        )
    if isinstance(error, (ImportError, AttributeError)):
        return Refused(f"{path}: needs Python code that is not installed here ({first}); {SUPPORTED}")
    said = f"{type(error).__name__}: {first}"
    return Refused(f"{path}: is a pickle that PyTorch cannot load as a checkpoint ({said}); {FETCH_AGAIN}, or it was never a checkpoint")


def opened(loaded):
    """`loaded` with the original classes instead of their shells, and without LeftOver objects among its modules."""
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

    They can be below `model` or `state_dict`, and DataParallel puts `module.` before every name.
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
    raise Refused(f"{path}: is a PyTorch checkpoint that holds {held}, and no supported model; {SUPPORTED}")


def load_tensors(path, family, model, state):
    """Loads `state` into `model`. Refuses missing, additional and misshapen tensors, by name."""
    own = model.state_dict()
    faults = [
        f"{what} ({len(names)}: {', '.join(sorted(names)[:4])}{', ...' if len(names) > 4 else ''})"
        for what, names in (
            ("lacks tensors", own.keys() - state.keys()),
            ("has tensors that the architecture does not have", state.keys() - own.keys()),
            ("has tensors of other shapes", {key for key in own.keys() & state.keys() if own[key].shape != state[key].shape}),
        )
        if names
    ]
    if faults:
        raise Refused(f"{path}: looks like {family} but {', '.join(faults)}; it may be cut off, changed in its architecture, or another model")
    model.load_state_dict(state, strict=True)
