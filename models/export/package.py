"""Writing a model package: a folder with model.yaml and model.ts. Shared by the exporters beside it."""

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

# Bounds of a faithful fp32 copy: differences as a share of the output's standard deviation.
RMS_BOUND = 1e-5
MAX_BOUND = 1e-4

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


def quiet_threads(count=2):
    """Team size of this process: exporters compare results, and should not take a whole machine for it."""
    torch.set_num_threads(min(count, os.cpu_count() or 1))


def compare(name, saved, original, deviation=None):
    """Prints how far `saved` is from `original`, as a share of `deviation` (default: of the original), and ends the program beyond the bounds."""
    difference = (saved.double() - original.double()).abs()
    deviation = original.double().std() if deviation is None else deviation
    deviation = deviation.clamp(min=1e-12)
    largest = (difference.max() / deviation).item()
    rms = (difference.pow(2).mean().sqrt() / deviation).item()
    print(f"{name}: largest difference {difference.max().item():.2e}, {largest:.2e} of the deviation, rms {rms:.2e}")
    if not (largest <= MAX_BOUND and rms <= RMS_BOUND):
        sys.exit(f"{name}: the saved model differs from the original by more than {MAX_BOUND:g} (rms {RMS_BOUND:g})")


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_package(folder, description, module):
    """Writes `module` (TorchScript) and `description` (the keys of model.yaml but schema and files) to `folder`.

    The folder appears whole or not at all: it is made aside and renamed.
    """
    folder = Path(folder)
    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    module.save(str(aside / "model.ts"))
    document = {"schema": 1, **description, "files": {"model.ts": sha256(aside / "model.ts")}}
    with open(aside / "model.yaml", "w", encoding="utf-8") as file:
        yaml.safe_dump(document, file, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    print(f"wrote {folder}")


def load(folder):
    """The saved module as a reader gets it."""
    return torch.jit.load(str(Path(folder) / "model.ts")).eval()
