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

# A checkpoint may hold layers (subclasses of nn.Module) of these places, and the models of ultralytics.nn.tasks.
LAYERS = ("ultralytics.nn.modules", "torch.nn.modules")
MODELS = "ultralytics.nn.tasks"
# Checkpoints from before Ultralytics 8.0.44 name layers without their file.
BLOCKS = "ultralytics.nn.modules"
# Models that Ultralytics has renamed.
RENAMED = {"YOLOv10DetectionModel": "DetectionModel"}
# Objects of the training in a checkpoint: a place, and all of it. They are read and thrown away.
LEFT_OVERS = (
    "ultralytics.utils.",
    "ultralytics.yolo.utils.",
    "ultralytics.models.",
    "torch.nn.modules.loss.",
    "numpy.dtype",
    "numpy.core.multiarray.",
    "numpy._core.multiarray.",
    "numpy.ndarray",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.",
    "argparse.Namespace",
)

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


def layer_of(name):
    """The installed class of a layer or model that a checkpoint names; None if a checkpoint may not hold it.

    Only modules of installed packages are imported: those directly below LAYERS, and MODELS.
    """
    module, _, last = name.rpartition(".")
    package = module.rpartition(".")[0]
    if module == MODELS:
        last = RENAMED.get(last, last)
    elif module != BLOCKS and package not in LAYERS:
        return None
    try:
        found = getattr(importlib.import_module(module), last, None)
    except ImportError:
        return None
    is_layer = isinstance(found, type) and issubclass(found, nn.Module) and found.__module__.startswith((*LAYERS, MODELS))
    return found if is_layer else None


def is_left_over(name):
    return name.startswith(LEFT_OVERS)


def allowed_globals(names):
    """(class, name) pairs that weights_only may create, for the names of a checkpoint: its shell, or LeftOver."""
    allowed = []
    for name in names:
        layer = None if is_left_over(name) else layer_of(name)
        if layer is not None:
            allowed.append((shell(layer), name))
        elif is_left_over(name):
            allowed.append((LeftOver, name))
    return allowed


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
    foreign = sorted(name for name in names if not is_left_over(name) and layer_of(name) is None) or asked
    if isinstance(error, pickle.UnpicklingError) and not trust and (foreign or "constructs" in str(error)):
        holds = f"holds {', '.join(foreign[:3])}" if foreign else re.findall(r"constructs [^\n]*", str(error))[0]
        return Refused(
            f"{path}: was not loaded: it is a pickle that {holds}, and {WHAT_A_PICKLE_CAN_DO}; {SUPPORTED}; "
            f"if you trust the maker of the file, load it with --trust (make: TRUST=1)"
        )
    if isinstance(error, (ImportError, AttributeError)):
        return Refused(f"{path}: needs Python code that is not installed here ({first}); {SUPPORTED}")
    # The first sentence. PyTorch's next one may advise to load without weights_only, which is not safe.
    said = f"{type(error).__name__}: {first.split('. ')[0]}"
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
            check_plain(path, inside)
            if all(key.startswith("module.") for key in inside):
                inside = {key.removeprefix("module."): value for key, value in inside.items()}
                found += ", 'module.' taken off its names"
            return inside, found
    held = f"an object of type {type(loaded).__name__}"
    if isinstance(loaded, dict) and loaded:
        held = f"a dict with {', '.join(map(str, list(loaded)[:4]))}"
    raise Refused(f"{path}: is a PyTorch checkpoint that holds {held}, and no supported model; {SUPPORTED}")


def listed(names):
    return f"({len(names)}: {', '.join(sorted(names)[:4])}{', ...' if len(names) > 4 else ''})"


def is_plain(tensor):
    """Whether the file has all numbers of a tensor. A tensor of few bytes can claim any shape, and a copy would fill the memory."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized or tensor.is_complex():
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def check_plain(path, state):
    wrong = [name for name, tensor in state.items() if torch.is_tensor(tensor) and not is_plain(tensor)]
    if wrong:
        raise Refused(f"{path}: has tensors that are not a plain list of all their numbers {listed(wrong)}, as no original checkpoint has; fetch it from its maker")


def check_finite(path, model):
    wrong = [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if wrong:
        raise Refused(f"{path}: has weights that are NaN or infinite {listed(wrong)}; the training failed or the file is damaged, so take another checkpoint")


def load_tensors(path, family, model, state):
    """Loads `state` into `model`. Refuses missing, additional and misshapen tensors, and those that are not finite, by name."""
    own = model.state_dict()
    faults = [
        f"{what} {listed(names)}"
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
    check_finite(path, model)
