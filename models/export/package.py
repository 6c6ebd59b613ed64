"""Writing a model package: a folder with model.yaml, model.ts and what belongs to them. Shared by the exporters beside it."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

NEEDS = (
    "the exporters need the python set's interpreter: in the sources' folder, "
    'tools/setup.sh python; "$(tools/setup.sh where)/python/bin/python" models/export/... (models/export/README.md)'
)

try:
    import torch
    import yaml
except ImportError as error:
    sys.exit(f"{error}; {NEEDS}")

import methods

torch.backends.cudnn.allow_tf32 = False  # a trace holds it for good: its fp32 is to be fp32 on a GPU too

# Bounds of a faithful fp32 copy: differences as a share of the output's standard deviation.
RMS_BOUND = 1e-5
MAX_BOUND = 1e-4
# And of its boxes, in pixels of the picture.
BOX_BOUND = 0.5

COCO_NAMES = (
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,"
    "bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,"
    "skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,"
    "cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,"
    "potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
    "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
).split(",")

# What SAM and MobileSAM do to a picture: torchvision resizes a PIL image, which is antialiased bilinear, and the normalised
# picture is padded with zeros at the right and bottom: before normalisation that is the mean.
SAM_INPUT = {
    "colour": "rgb",
    "scale": 1.0,
    "mean": [123.675, 116.28, 103.53],
    "std": [58.395, 57.12, 57.375],
    "resize": "longest_side",
    "filter": "pil_bilinear_antialias",
    "pad": [123.675, 116.28, 103.53],
}

# What Ultralytics does to a picture for its YOLO detectors.
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


# The files that a package may have; the last two are written before the first.
FILES = ("model.yaml", "model.ts", "classes.f32")


class Refused(Exception):
    """What a person gave cannot be exported; the text says what it is, where, and what to do."""


class Differs(Exception):
    """The saved model does not compute what the original does; the text says by how much."""


def quiet_threads(count=2):
    """Team size of this process: exporters compare results, and should not take a whole machine for it."""
    torch.set_num_threads(min(count, os.cpu_count() or 1))


def compare(name, saved, original, deviation=None):
    """Prints how far `saved` is from `original`, as a share of `deviation` (default: of the original). Throws Differs beyond the bounds."""
    difference = (saved.double() - original.double()).abs()
    deviation = original.double().std() if deviation is None else deviation
    deviation = deviation.clamp(min=1e-12)
    largest = (difference.max() / deviation).item()
    rms = (difference.pow(2).mean().sqrt() / deviation).item()
    print(f"{name}: largest difference {difference.max().item():.2e}, {largest:.2e} of the deviation (allowed {MAX_BOUND:g}), rms {rms:.2e} ({RMS_BOUND:g})")
    if not (largest <= MAX_BOUND and rms <= RMS_BOUND):
        raise Differs(f"{name}: the saved model differs from the original by {largest:.2e} (rms {rms:.2e}); allowed are {MAX_BOUND:g} (rms {RMS_BOUND:g})")


def compare_boxes(name, saved, original):
    """Prints how far corners of boxes lie apart at most, in pixels of the picture. Throws Differs beyond the bound."""
    largest = (saved.double() - original.double()).abs().max().item()
    print(f"{name}: boxes differ by at most {largest:.2e} pixels of the picture (allowed {BOX_BOUND:g})")
    if not largest <= BOX_BOUND:
        raise Differs(f"{name}: a box of the saved model is {largest:.2g} pixels from the original's; allowed are {BOX_BOUND:g}")


def read_names(file, weights, count):
    """Names of the `count` classes of `weights` from a text file, one a line."""
    try:
        given = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file}: cannot be read as text ({error}); --names takes a file with one class name a line") from error
    if len(given) != count:
        raise Refused(f"{file}: has {len(given)} names, and {weights} has {count} classes; --names takes a file with one class name a line")
    return given


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_target(folder):
    """Refuses to replace what is there unless it is a package as written here, an empty folder or nothing."""
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
    raise Refused(f"{folder}: is {there}, not a model package, and is left alone; name another OUT.pkg, or remove it first")


class Yaml(yaml.SafeDumper):
    """Writes yes and no and a tensor in a line, as the documentation does, and no anchors."""

    def ignore_aliases(self, data):
        return True


def represent_mapping(dumper, value):
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True if value.keys() == {"shape", "dtype"} else None)


Yaml.add_representer(dict, represent_mapping)
Yaml.add_representer(bool, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:bool", "yes" if value else "no"))


def write_yaml(file, document):
    """Writes `document` as model.yaml is written, its keys in their order."""
    text = yaml.dump(document, None, Yaml, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    Path(file).write_text(text, encoding="utf-8")


def write_package(folder, description, module, check=None, files=None):
    """Writes `module` (TorchScript) and `description` (the keys of model.yaml but schema, methods and files) to `folder`.

    `files` are further files of the package, name to bytes. The folder appears whole or not at all: it is made aside, given to
    `check` if there is one, and renamed.
    """
    folder = Path(os.path.abspath(folder))
    aside = folder.with_name(folder.name + ".part")
    for replaced in (folder, aside):  # a killed export leaves the second
        check_target(replaced)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        module.save(str(aside / "model.ts"))
        for name, data in (files or {}).items():
            (aside / name).write_bytes(data)
        hashes = {name: sha256(aside / name) for name in ("model.ts", *(files or {}))}
        document = {"schema": 1, **description, "methods": methods.TASKS[description["task"]](description), "files": hashes}
        write_yaml(aside / "model.yaml", document)
        if check:
            check(load(aside))
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    print(f"wrote {folder}")


def load(folder):
    """The saved module as a reader gets it."""
    return torch.jit.load(str(Path(folder) / "model.ts")).eval()
