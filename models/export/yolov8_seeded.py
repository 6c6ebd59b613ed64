"""Makes a YOLOv8n with random weights from a seed, for tests and benchmarks: yolov8_seeded.py --seed N OUT.pkg"""

import argparse
import sys
import warnings
from importlib.metadata import version

from package import COCO_NAMES, NEEDS, ULTRALYTICS_INPUT, compare, load, original_of, quiet_threads, write_package
from ultralytics_yolo import head_of, prepared, traced

try:
    import torch
    from torch.nn import functional as F
    from ultralytics.nn.tasks import DetectionModel
except ImportError as error:
    sys.exit(f"{error}; {NEEDS}")

SIDE = 640


def soft_noise(batch, pixels=SIDE):
    """Noise at several scales, with many contrasts and colours: closer to photographs than white noise."""
    scales = [F.interpolate(torch.rand(batch, 3, side, side) - 0.5, pixels, mode="bilinear") for side in (5, 20, 80, 320)]
    contrast, colour = 1 + 4 * torch.rand(batch, 1, 1, 1), 0.2 + 0.6 * torch.rand(batch, 3, 1, 1)
    return (colour + contrast * torch.stack(scales).mean(0)).clamp(0, 1)


def seeded(seed, config="yolov8n.yaml", pixels=SIDE, kind=DetectionModel, classes=len(COCO_NAMES)):
    """The architecture with random weights from `seed`.

    Its norms fit its activations on inputs of `pixels`, and few anchors have a score above 0.25.
    """
    torch.manual_seed(seed)
    model = kind(config, nc=classes, verbose=False)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    head = model.model[-1]
    pictures = soft_noise(12, pixels)
    with torch.no_grad():
        for norm in norms:
            norm.weight.uniform_(0.8, 1.2)
            norm.bias.uniform_(-0.2, 0.2)
            norm.momentum = 1.0  # take over the statistics of this batch
        model.train()(pictures)
        model.eval()
        logits = []
        branches = [branch for name in ("cv3", "one2one_cv3") for branch in getattr(head, name, None) or ()]
        hooks = [branch[-1].register_forward_hook(lambda _, __, output: logits.append(output)) for branch in branches]
        model(pictures)
        for branch, hook, level in zip(branches, hooks, logits):
            hook.remove()
            last = branch[-1]
            spread, mean = level.std(dim=(0, 2, 3)), level.mean(dim=(0, 2, 3))
            last.weight.mul_((1.2 / spread)[:, None, None, None])
            last.bias.copy_((last.bias - mean) * 1.2 / spread - 6)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    quiet_threads()

    model = seeded(arguments.seed)
    pictures = soft_noise(3)
    with torch.inference_mode():
        originals = {batch: model(pictures[:batch])[0] for batch in (1, 3)}  # before prepared() changes the head
    model = prepared(model, head_of(arguments.out, model), SIDE, SIDE)
    module = traced(model, pictures[:2])
    write_package(
        arguments.out,
        {
            "name": f"yolov8n-seed{arguments.seed}",
            "task": "detect",
            "architecture": "yolov8",
            "original": original_of("Ultralytics", version("ultralytics"), "DetectionModel", "yolov8n"),
            "input": {"width": SIDE, "height": SIDE, **ULTRALYTICS_INPUT},
            "output": {"layout": "v8", "boxes": model.model[-1].kept},
            "classes": COCO_NAMES,
            "max_batch": 64,
            "licence": "AGPL-3.0",
        },
        module,
        source=(model, {"forward": (pictures[:2],)}),
    )
    saved = load(arguments.out)
    with torch.inference_mode():
        for batch, original in originals.items():
            print(f"forward at {batch}: best score {original[:, 4:].max().item():.3f}, {tuple(original.shape)}")
            found = saved(pictures[:batch])
            compare(f"boxes at {batch}", found[:, :4], original[:, :4])
            compare(f"logits at {batch}", found[:, 4:].logit(1e-6), original[:, 4:].logit(1e-6))


if __name__ == "__main__":
    main()
