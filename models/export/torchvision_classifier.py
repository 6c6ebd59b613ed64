"""Makes a package from a torchvision classifier, for export.py. Its last layer becomes the matrix of classes."""

import functools
from importlib.metadata import version
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torchvision import models

import photograph
from checkpoint import load_tensors, state_dict_of
from package import Refused, compare, original_of, read_names, sha256, write_package

# A tensor that only this family has, and the family's architectures. Their tensors differ in names or shapes.
# Smaller ones come first: resnet34 has all tensors of resnet18.
# So both have the same number in common with a cut resnet18.
FAMILIES = {
    "features.1.conv.0.0.weight": ("mobilenet_v2",),
    "features.1.block.0.0.weight": ("mobilenet_v3_small", "mobilenet_v3_large"),
    "layer1.0.conv1.weight": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2"),
    "features.1.0.block.0.0.weight": ("efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3"),
    "features.1.0.block.0.weight": ("convnext_tiny", "convnext_small"),
    "encoder.pos_embedding": ("vit_b_16",),
}
# Names of the layers of a ViT's MLP: in published checkpoints, and in torchvision now.
FORMER_NAMES = ((".mlp.linear_1.", ".mlp.0."), (".mlp.linear_2.", ".mlp.3."))
LICENCE = "BSD-3-Clause for the architecture; the weights have the licence of their maker"


class Embedder(nn.Module):
    """A classifier without its last layer. `head` is the name of that layer, a Linear."""

    def __init__(self, classifier, head):
        super().__init__()
        self.classifier = classifier
        classifier.set_submodule(head, nn.Identity())

    def embed(self, images):
        return self.classifier(images).float()


def is_state_dict(state):
    """Whether these are the tensors of a supported classifier."""
    return any(key in state for key in FAMILIES)


def with_present_names(state):
    """`state` with the present names of torchvision, and with the counters of norms, which PyTorch has since 0.4.1."""
    renamed = {}
    for name, value in state.items():
        for former, present in FORMER_NAMES:
            name = name.replace(former, present)
        renamed[name] = value
    for norm in [name.removesuffix("running_mean") for name in renamed if name.endswith(".running_mean")]:
        renamed.setdefault(norm + "num_batches_tracked", torch.tensor(0))
    return renamed


@functools.cache
def tensors_of(architecture):
    """The shapes of an architecture's tensors, by name, and the name of its last layer."""
    with torch.device("meta"):
        model = models.get_model(architecture, weights=None)
    head = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
    return {name: value.shape for name, value in model.state_dict().items()}, head


def architecture_of(state):
    """The architecture with the largest number of tensors in common with `state`."""

    def common(architecture):
        shapes, _ = tensors_of(architecture)
        return sum(name in state and state[name].shape == shape for name, shape in shapes.items())

    return max(next(names for key, names in FAMILIES.items() if key in state), key=common)


def build(path, architecture, head, state):
    """The architecture with the checkpoint's weights and its number of classes."""
    weight = state.get(f"{head}.weight")
    classes = len(weight) if weight is not None and weight.dim() == 2 and weight.numel() else 1000
    model = models.get_model(architecture, weights=None, num_classes=classes)
    load_tensors(path, architecture, model, state)
    return model.eval()


def preset_of(path, architecture, asked):
    """The published weights whose preprocessing the package uses: by --preset, the file's hash, or the first."""
    published = {weights.name.removeprefix("IMAGENET1K_"): weights for weights in models.get_model_weights(architecture)}
    if asked and asked not in published:
        raise Refused(f"{path}: torchvision has no preset {asked} of {architecture}; --preset takes {', '.join(published)}")
    digest = sha256(path)[:8]  # torchvision's file names contain it
    own = [name for name, weights in published.items() if weights.url.endswith(f"-{digest}.pth")]
    if asked:
        name, why = asked, "as --preset says"
    elif own:
        name, why = own[0], "since the SHA-256 says that the file is torchvision's own"
    else:
        name, why = next(iter(published)), "the default, since a checkpoint does not say how its pictures were resized"
    filters = {each: weights.transforms().interpolation.value for each, weights in published.items()}
    others = [other for other in published if other != name and filters[other] == "bilinear"]
    if filters[name] != "bilinear":
        advice = f"--preset {others[0]} is bilinear, if these weights were trained for it" if others else "take another architecture"
        raise Refused(f"{path}: preset {name} of {architecture} resizes pictures with a {filters[name]} filter, but packages have only bilinear ones; {advice}")
    sides = {each: weights.transforms().resize_size[0] for each, weights in published.items()}
    choices = "".join(f"; --preset {other}: {sides[other]}" for other in others)
    print(f"preset {name}, {why}: the shorter side of a picture becomes {sides[name]} pixels{choices}")
    return published[name]


def class_names(path, count, names, weights):
    """Names from the file `names`, one per line; else ImageNet's, if there are 1000 classes; else numbers."""
    if names is not None:
        return read_names(names, path, count)
    if count == len(weights.meta["categories"]):
        return list(weights.meta["categories"])
    print(f"the {count} classes are named 0 to {count - 1}; for other names, add --names FILE (make: NAMES=FILE), one name per line")
    return [str(index) for index in range(count)]


def input_of(preset):
    return {
        "width": preset.crop_size[0],
        "height": preset.crop_size[0],
        "colour": "rgb",
        "scale": 1 / 255,
        "mean": list(preset.mean),
        "std": list(preset.std),
        "resize": "centre_crop",
        "shorter_side": preset.resize_size[0],
        "filter": "pil_bilinear_antialias",
        "pad": [0.0, 0.0, 0.0],
    }


def matrix_bytes(linear):
    """The content of classes.f32: rows of the matrix, then the bias."""
    return b"".join(part.detach().numpy().astype("<f4").tobytes() for part in (linear.weight, linear.bias))


def read_matrix(data, classes):
    """Matrix [classes, dimensions] and bias [classes] from the bytes of classes.f32."""
    values = torch.frombuffer(bytearray(data), dtype=torch.float32)
    return values[:-classes].reshape(classes, -1), values[-classes:]


def export(path, loaded, out, pixels, names=None, asked=None):
    state, found = state_dict_of(path, loaded)
    state = with_present_names(state)
    architecture = architecture_of(state)
    _, head = tensors_of(architecture)
    model = build(path, architecture, head, state)
    linear = model.get_submodule(head)
    print(f"{path}: torchvision's {architecture}, {linear.out_features} classes, vectors of {linear.in_features}{found}")
    weights = preset_of(path, architecture, asked)
    preset = weights.transforms()
    classes = class_names(path, linear.out_features, names, weights)
    views = torch.stack([preset(Image.fromarray(view[:, :, ::-1])) for view in photograph.three_views(pixels)])
    matrix = matrix_bytes(linear)
    with torch.inference_mode():
        logits = torch.cat([model(view[None]) for view in views])
        embedder = Embedder(model, head).eval()
        traced = torch.jit.trace_module(embedder, {"embed": views[2:]}, check_trace=False)

    def check(saved):
        rows, bias = read_matrix(matrix, len(classes))
        for name, kept in (("the picture alone", slice(2, 3)), ("in a batch of 3", slice(0, 3))):
            with torch.inference_mode():
                vectors = saved.embed(views[kept])
            compare(f"{name}: logits", vectors @ rows.T + bias, logits[kept])

    write_package(
        out,
        {
            "name": Path(path).stem,
            "task": "embed",
            "architecture": architecture,
            "original": original_of("torchvision", version("torchvision"), type(model).__name__, architecture),
            "input": input_of(preset),
            "output": {"dimensions": linear.in_features, "normalised": False},
            "classes": classes,
            "matrix": {"file": "classes.f32", "bias": True},
            "max_batch": 64,
            "licence": LICENCE,
        },
        traced,
        check,
        {"classes.f32": matrix},
        source=(embedder, {"embed": (views[:2],)}),
    )
