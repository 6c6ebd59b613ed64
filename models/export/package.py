"""Writes a model package: a folder with model.yaml, model.ts and further files. All exporters use it."""

import contextlib
import hashlib
import io
import logging
import os
import shutil
from pathlib import Path

from command_line import MODEL, end, unfinished

NEEDS = "the exporters need the interpreter of the Python set, which `millrace model` starts, unless MILLRACE_PYTHON names another one"

try:
    import torch
    import yaml
except ImportError as error:
    end(MODEL, f"{error}; {NEEDS}")

import methods

torch.backends.cudnn.allow_tf32 = False  # a trace keeps this setting: its fp32 must be fp32 on a GPU too

# Bounds for a correct fp32 copy: differences as a share of the output's standard deviation.
RMS_BOUND = 1e-5
MAX_BOUND = 1e-4
# The bound for boxes, in pixels of the picture.
BOX_BOUND = 0.5

COCO_NAMES = (
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,"
    "bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,"
    "skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,"
    "cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,"
    "potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
    "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
).split(",")

# The preprocessing of SAM and MobileSAM. torchvision resizes a PIL image, so the filter is antialiased bilinear.
# They pad the normalised picture with zeros, which are the mean before normalisation.
SAM_INPUT = {
    "colour": "rgb",
    "scale": 1.0,
    "mean": [123.675, 116.28, 103.53],
    "std": [58.395, 57.12, 57.375],
    "resize": "longest_side",
    "filter": "pil_bilinear_antialias",
    "pad": [123.675, 116.28, 103.53],
}

# The preprocessing of SAM 2: ImageNet's mean and deviation of values in 0..1. The whole input is the picture.
SAM2_INPUT = {
    "colour": "rgb",
    "scale": 1 / 255,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "resize": "stretch",
    "filter": "pil_bilinear_antialias",
}

# The preprocessing of Ultralytics' YOLO detectors.
ULTRALYTICS_INPUT = {
    "colour": "rgb",
    "scale": 1.0,
    "mean": [0.0, 0.0, 0.0],
    "std": [255.0, 255.0, 255.0],
    "resize": "letterbox",
    "filter": "cv2_linear",
    "rounding": "half_even",
    "padding": "centred",
    "pad": [114.0, 114.0, 114.0],
}


# The files that a package may have. model.yaml is written last, since it has the hashes of the others.
FILES = ("model.yaml", "model.ts", "model.ep.pt2", "classes.f32")
ORIGINAL_BYTES = 200  # the limit of models/package.cpp


class Refused(Exception):
    """The user's input cannot be exported. The text says where, what is wrong and what to do."""


class Differs(Exception):
    """The saved model does not compute the same as the original. The text says how much it differs."""


def quiet_threads(count=2):
    """Limits the threads of this process, since comparisons should not use the whole machine."""
    torch.set_num_threads(min(count, os.cpu_count() or 1))


def compare(name, saved, original, deviation=None, max_bound=None):
    """Prints the difference as a share of `deviation`, by default the standard deviation of `original`.

    Raises Differs beyond the bounds. `max_bound` replaces MAX_BOUND.
    """
    max_bound = MAX_BOUND if max_bound is None else max_bound
    difference = (saved.double() - original.double()).abs()
    deviation = original.double().std() if deviation is None else deviation
    deviation = deviation.clamp(min=1e-12)
    largest = (difference.max() / deviation).item()
    rms = (difference.pow(2).mean().sqrt() / deviation).item()
    print(f"{name}: largest difference {difference.max().item():.2e}, {largest:.2e} of the deviation (allowed {max_bound:g}), rms {rms:.2e} ({RMS_BOUND:g})")
    if not (largest <= max_bound and rms <= RMS_BOUND):
        raise Differs(f"{name}: the saved model differs from the original by {largest:.2e} (rms {rms:.2e}), allowed are {max_bound:g} (rms {RMS_BOUND:g})")


def compare_boxes(name, saved, original):
    """Prints the largest difference of box corners, in pixels of the picture. Raises Differs beyond the bound."""
    largest = (saved.double() - original.double()).abs().max().item()
    print(f"{name}: boxes differ by at most {largest:.2e} pixels of the picture (allowed {BOX_BOUND:g})")
    if not largest <= BOX_BOUND:
        raise Differs(f"{name}: a box of the saved model is {largest:.2g} pixels from the original's, allowed are {BOX_BOUND:g}")


def original_of(*words):
    """The key `original` of model.yaml: software, version and model. A file may contain words of any length."""
    return " ".join(" ".join(words).split()).encode(errors="replace")[:ORIGINAL_BYTES].decode(errors="ignore")


def read_names(file, weights, count, one="class", many="classes"):
    """Names of the `count` classes, or other outputs, of `weights` from a text file, one per line."""
    try:
        given = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file}: cannot be read as text ({error}); --names takes a file with one {one} name per line") from error
    if len(given) != count:
        raise Refused(f"{file}: has {len(given)} names, and {weights} has {count} {many}; --names takes a file with one {one} name per line")
    return given


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_target(folder):
    """Raises Refused unless `folder` does not exist, is empty, or is a package that this module wrote."""
    folder = Path(folder)
    if folder.is_dir():
        names = sorted(f.name for f in folder.iterdir())
        others = [name for name in names if name not in FILES]
        if not others and (not names or "model.yaml" in names):
            return
        there = f"a folder with {', '.join((others or names)[:3])} in it"
    elif folder.exists() or folder.is_symlink():
        there = "a file"
    else:
        return
    raise Refused(f"{folder}: is {there}, not a model package, so it was not replaced; name another OUT.pkg, or remove it")


class Yaml(yaml.SafeDumper):
    """Writes booleans as yes and no, a tensor on one line, and no anchors, like docs/packages.md."""

    def ignore_aliases(self, data):
        return True


def represent_mapping(dumper, value):
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True if value.keys() == {"shape", "dtype"} else None)


Yaml.add_representer(dict, represent_mapping)
Yaml.add_representer(bool, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:bool", "yes" if value else "no"))


def write_yaml(file, document):
    """Writes `document` in the style of a model.yaml, with its keys in their order."""
    text = yaml.dump(document, None, Yaml, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    Path(file).write_text(text, encoding="utf-8")


def write_package(folder, description, module, check=None, files=None, source=None):
    """Writes `module` (TorchScript) and `description` to the package `folder`.

    `description` has the keys of model.yaml except schema, methods and files.
    `files` are further files of the package, by name: bytes. If `module` is None, model.ts is one of them.
    `source` is the model before tracing, and examples of at least two rows for each method, by name. If torch.export
    takes the model, the package gets a model.ep.pt2.
    The folder appears whole or not at all: it is made under another name and renamed at the end.
    Before that, `check` gets its loaded model.
    """
    folder = Path(os.path.abspath(folder))
    aside = folder.with_name(folder.name + ".part")
    for replaced in (folder, aside):  # a killed export leaves `aside`
        check_target(replaced)
    shutil.rmtree(aside, ignore_errors=True)
    unfinished.append(aside)
    try:
        aside.mkdir(parents=True)
        if module is not None:
            module.save(str(aside / "model.ts"))
        for name, data in (files or {}).items():
            (aside / name).write_bytes(data)
        declared = methods.TASKS[description["task"]](description)
        programs = write_programs(aside, declared, *source) if source else ()
        hashes = {name: sha256(aside / name) for name in ("model.ts", *programs, *(files or {}))}
        write_yaml(aside / "model.yaml", {"schema": 1, **description, "methods": declared, "files": hashes})
        if check:
            check(load(aside))
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        unfinished.remove(aside)
    print(f"wrote {folder}")


def write_programs(folder, declared, model, inputs):
    """Writes model.ep.pt2 and compares it with model.ts. Returns its name, or nothing if torch.export refuses the model."""
    import programs  # it imports this module

    logging.disable(logging.CRITICAL)
    try:
        # torch.export prints the graph that it refuses.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exported = {name: programs.export(model, name, method, inputs[name]) for name, method in declared.items()}
    except Exception as error:  # torch.export throws many types
        reason = (str(error).strip() or type(error).__name__).split("\n")[0][:200]
        print(f"no {programs.NAME}, so 'millrace compile' cannot use this package: torch.export refuses the model ({reason})")
        return ()
    finally:
        logging.disable(logging.NOTSET)
    programs.write(folder / programs.NAME, exported)
    programs.check(folder / programs.NAME, inputs, load(folder).float())  # model.ts may have its weights in 16 bits
    return (programs.NAME,)


def load(folder):
    """The saved module, loaded again."""
    return torch.jit.load(str(Path(folder) / "model.ts")).eval()
