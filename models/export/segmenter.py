"""Shared by our SAM-like segmenters: the contract of encode and decode, the bias for benchmarks, and the export.

    encode(images [B, 3, H, W]) -> embedding [B, C, h, w]
    decode(embedding [B, C, h, w], boxes [N, 4], image_index [N] i64) -> logits [N, 4h, 4w], predicted IoU [N]

Boxes are x1, y1, x2, y2 in input pixels. image_index has the picture of each box, 0 to B - 1.
So one call can decode boxes of many pictures.
"""

import copy

import torch
from torch import nn

from package import compare, load, write_package


class BoxPrompt(nn.Module):
    """A segmenter whose decode calls a BoxDecoder. Subclasses have `encode`, `corners` (prompt tokens of boxes),
    `side`, `bias` and `positions`.
    """

    def set_decoder(self, decoder):
        # A trace would fix the number of boxes in the decoder's loop, so it is scripted.
        self.decoder = torch.jit.script(decoder.eval())
        self.batched = [decoder]  # in a list: as a module of its own, it would be in model.ts too

    def for_export(self):
        """A copy with the same weights for torch.export, which takes no scripted decoder."""
        other = copy.copy(self)
        other._modules = {**self._modules, "decoder": self.batched[0]}
        return other

    def decode(self, embedding, boxes, image_index):
        logits, iou = self.decoder(embedding, self.corners(boxes), image_index)
        logits, iou = logits.float(), iou.float()
        if self.bias:
            logits = logits + outline_bias(boxes, self.positions, self.positions)
        return logits, iou


def positions(count, stride):
    """Centres of the low-resolution logits along one side, in input pixels: [count].

    Keep the result as a plain tensor. In a trace, torch.arange would have a fixed device.
    A buffer would be converted to 16 bits with the weights.
    """
    return (torch.arange(count) + 0.5) * stride


def outline_bias(boxes, x, y):
    """4 (1 - ((x - cx) / rx)^2 - ((y - cy) / ry)^2) for each box at these positions: [N, len(y), len(x)].

    Masks of seeded weights are noise. With this bias, they have outlines like real objects.
    """
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    radius = ((boxes[:, 2:] - boxes[:, :2]) / 2).clamp(min=0.5)  # so that the bias of a box without a size is finite
    across = ((x[None, :] - centre[:, :1]) / radius[:, :1]).square()
    down = ((y[None, :] - centre[:, 1:]) / radius[:, 1:]).square()
    return 4 * (1 - down[:, :, None] - across[:, None, :])


def random_boxes(count, side):
    corner = torch.rand(count, 2) * side * 0.5
    return torch.cat([corner, corner + side * (0.05 + 0.4 * torch.rand(count, 2))], dim=1)


def write_segmenter(model, embedding, boxes, name, architecture, licence, preprocessing, out, picture, check=None, max_batch=16, max_boxes=256, resize="via_input", original=None):
    """Traces encode with one picture, decode with two boxes. Writes the package. `check` should test other counts.

    `resize` is how logits become masks of the picture, `original` the model's source: the keys of docs/packages.md.
    """
    with torch.inference_mode():
        example = {"encode": (picture,), "decode": (embedding, boxes[:2], torch.zeros(2, dtype=torch.int64))}
        traced = torch.jit.trace_module(model, example, check_trace=False)
        logits, _ = traced.decode(*example["decode"])
    exportable = model.for_export() if isinstance(model, BoxPrompt) else model
    # Not inference tensors: torch.export refuses those. The comparison takes all boxes: an rms of two numbers is chance.
    several = {"encode": (torch.cat([picture] * 2),), "decode": (torch.cat([embedding] * 3).clone(), boxes.clone(), 2 * (torch.arange(len(boxes)) % 2))}
    write_package(
        out,
        {
            "name": name,
            "task": "segment",
            "architecture": architecture,
            **({"original": original} if original else {}),
            "input": {"width": model.side, "height": model.side, **preprocessing},
            "output": {"embedding": list(embedding.shape[1:]), "logits": list(logits.shape[1:]), "resize": resize},
            "max_batch": max_batch,
            "max_boxes": max_boxes,
            "licence": licence,
        },
        traced,
        check,
        source=(exportable, several),
    )


def export_segmenter(model, side, name, architecture, licence, preprocessing, out, original=None):
    """Writes the package of `model`. Compares the file with the model on noise, with pictures together and alone."""
    images = torch.randn(3, 3, side, side)
    boxes = random_boxes(7, side)
    image_index = torch.tensor([0, 2, 1, 1, 2, 0, 2])
    with torch.inference_mode():
        embedding = model.encode(images[:1])
    write_segmenter(model, embedding, boxes, name, architecture, licence, preprocessing, out, images[:1], original=original)
    saved = load(out)
    with torch.inference_mode():
        compare("encode at 1", saved.encode(images[:1]), embedding)
        embedding = model.encode(images)
        compare("encode at 3", saved.encode(images), embedding)
        logits, iou = saved.decode(embedding, boxes, image_index)
        reference_logits, reference_iou = model.decode(embedding, boxes, image_index)
        compare("decode packed", logits, reference_logits)
        compare("predicted IoU packed", iou, reference_iou)
        model.bias = False  # far from a box, the bias is so large that it would hide the weights
        plain, _ = model.decode(embedding, boxes, image_index)
        for picture in range(3):
            own = image_index == picture
            alone, _ = model.decode(embedding[picture : picture + 1], boxes[own], torch.zeros(int(own.sum()), dtype=torch.int64))
            compare(f"decode packed against picture {picture} alone", plain[own], alone)
        dependence = (plain - plain.mean(0)).std() / plain.std()
        transitions = ((logits > 0).transpose(1, 2).flatten(1).diff(dim=1)).sum(1).tolist()
        print(f"logits without bias: deviation {plain.std().item():.3f}, share that depends on the box {dependence.item():.3f}")
        print(f"transitions down the columns of each mask at {list(logits.shape[1:])}: {transitions}")
