"""Makes a copy of a built-in package that `millrace compile` takes: packages.py IN.pkg OUT.pkg

The built-in packages have no model.ep.pt2, since these files would more than double their size in the repository.
The copy has the same model.ts, and a model.ep.pt2 with the same weights.

train.py uses this module too: detector_package() and segmenter_package() write the trained networks as packages, with
weights in 16 bits. They compare each package with its network.
"""

import argparse
import copy
import sys
import warnings
from pathlib import Path

import torch
import yaml

import dataset
import demo_detector
import demo_segmenter
import scenes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "export"))
from package import Refused, compare, load, write_package  # noqa: E402

LICENCE = "Apache-2.0"
COLOURS = {"colour": "rgb", "scale": 1.0, "mean": [0.0, 0.0, 0.0], "std": [255.0, 255.0, 255.0]}
FILTER, PAD = "pil_bilinear_antialias", [114.0, 114.0, 114.0]
CHECKED_SEED = 99_999  # of the scenes that package and network are compared on


def rounded(model):
    """A copy for inference. Weights are rounded to 16 bits but compute in 32, as in a loaded package."""
    return demo_detector.fuse(copy.deepcopy(model).eval()).half().float()


def scenes_of(views, side):
    """One drawn scene per view, as the networks see it: [views, 3, side, side]."""
    pictures = torch.full((len(views), 3, side, side), PAD[0] / 255)
    for picture, view in zip(pictures, views):
        pixels = torch.from_numpy(dataset.resized(scenes.draw(view, CHECKED_SEED)[0].picture, side).copy())
        picture[:, : pixels.shape[0]] = pixels.permute(2, 0, 1) / 255
    return pictures


def detector_package(model, view, seed, out):
    """Writes the package of a view to the folder `out` and checks it. `seed` is that of the training."""
    model = rounded(model)
    model.set_input(demo_detector.SIDE, demo_detector.SIDE)
    pictures = scenes_of([view] * 2 + [other for other in scenes.VIEWS if other != view], demo_detector.SIDE)

    def check(saved):
        saved = saved.float()
        for batch in (1, 4):
            found, wanted = saved(pictures[:batch]), model(pictures[:batch])
            compare(f"{view}: boxes at {batch}", found[:, :4], wanted[:, :4])
            compare(f"{view}: logits at {batch}", found[:, 4:].logit(1e-6), wanted[:, 4:].logit(1e-6))

    with torch.inference_mode():
        traced = torch.jit.trace(copy.deepcopy(model), pictures[:1], check_trace=False)
        write_package(
            out,
            {
                "name": f"builtin-{view}-{seed}",
                "task": "detect",
                "architecture": "millrace-demo-detector",
                "input": {
                    "width": demo_detector.SIDE,
                    "height": demo_detector.SIDE,
                    **COLOURS,
                    "resize": "letterbox",
                    "filter": FILTER,
                    "rounding": "half_even",
                    "padding": "top_left",
                    "pad": PAD,
                },
                "output": {"layout": "v8", "boxes": len(model.strides)},
                "classes": list(scenes.VIEWS[view].classes),
                "max_batch": 64,
                "licence": LICENCE,
            },
            traced.half(),
            check,
        )


def prompts():
    """Seven boxes in three pictures, and the number of the picture of each."""
    side = demo_segmenter.SIDE
    corner = torch.rand(7, 2) * side * 0.5
    return torch.cat([corner, corner + side * (0.05 + 0.4 * torch.rand(7, 2))], 1), torch.tensor([0, 2, 1, 1, 2, 0, 2])


def segmenter_package(model, seed, out):
    model = rounded(model)
    side = demo_segmenter.SIDE
    images = scenes_of(scenes.VIEWS, side)
    boxes, index = prompts()

    def check(saved):
        saved = saved.float()
        compare("segmenter: encode at 3", saved.encode(images), embedding)
        saved_logits, saved_iou = saved.decode(embedding, boxes, index)
        compare("segmenter: decode packed", saved_logits, logits)
        compare("segmenter: predicted IoU packed", saved_iou, iou)
        for picture in range(3):
            own = index == picture
            alone, _ = saved.decode(embedding[picture : picture + 1], boxes[own], torch.zeros(int(own.sum()), dtype=torch.int64))
            compare(f"segmenter: picture {picture} alone", alone, logits[own])

    with torch.inference_mode():
        embedding = model.encode(images)
        example = {"encode": (images[:1],), "decode": (embedding[:1], boxes[:2], torch.zeros(2, dtype=torch.int64))}
        traced = torch.jit.trace_module(copy.deepcopy(model), example, check_trace=False)
        logits, iou = model.decode(embedding, boxes, index)
        write_package(
            out,
            {
                "name": f"builtin-segmenter-{seed}",
                "task": "segment",
                "architecture": "millrace-demo-segmenter",
                "input": {"width": side, "height": side, **COLOURS, "resize": "longest_side", "filter": FILTER, "pad": PAD},
                "output": {"embedding": list(embedding.shape[1:]), "logits": list(logits.shape[1:]), "resize": "via_input"},
                "max_batch": 16,
                "max_boxes": 64,
                "licence": LICENCE,
            },
            traced.half(),
            check,
        )


def compilable_package(package, out):
    """Copies a package that this module wrote, and adds a model.ep.pt2."""
    description = yaml.safe_load((package / "model.yaml").read_text(encoding="utf-8"))
    detects = description["task"] == "detect"
    model = demo_detector.fuse((demo_detector.Detector(len(description["classes"])) if detects else demo_segmenter.Segmenter()).eval())
    model.load_state_dict(load(package).float().state_dict())
    images = scenes_of(scenes.VIEWS, description["input"]["width"])
    with torch.no_grad():  # torch.export refuses tensors of inference mode
        inputs = {"forward": (images,)} if detects else {"encode": (images,), "decode": (model.encode(images), *prompts())}
    for made_anew in ("schema", "methods", "files"):
        description.pop(made_anew, None)
    write_package(out, description, None, files={"model.ts": (package / "model.ts").read_bytes()}, source=(model, inputs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("package", type=Path, metavar="IN.pkg")
    parser.add_argument("out", type=Path, metavar="OUT.pkg")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    try:
        compilable_package(arguments.package, arguments.out)
    except (Refused, OSError) as error:
        sys.exit(f"packages: {error}")


if __name__ == "__main__":
    main()
