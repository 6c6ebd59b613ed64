"""Compares outputs of detectors in the layouts of docs/packages.md: v8 and end_to_end."""

import torch

from package import BOX_BOUND, Differs, compare, compare_boxes

# Larger logits are compared as this one, a probability of 0.993.
# Above it, the logits of neighbouring float32 probabilities differ by more than the bound.
LARGEST_LOGIT = 5.0


def logits_of(probabilities):
    return torch.logit(probabilities.double().clamp(1e-30, 1 - 1e-7)).clamp(max=LARGEST_LOGIT)


def corners(output, scale):
    """Corners of the boxes of layout v8 in pixels of the picture, plus the padding, which has no effect on differences."""
    centre, size = output[:, :2].double(), output[:, 2:4].double()
    return torch.cat([centre - size / 2, centre + size / 2], dim=1) / scale


def check_v8(name, output, original, scale, deviation):
    compare_boxes(name, corners(output, scale), corners(original, scale))
    compare(f"{name}: logits", logits_of(output[:, 4:]), logits_of(original[:, 4:]), deviation=deviation)


def check_end_to_end(name, output, original, scale, deviation):
    """Compares the scores in their order, and each box with the nearest of its class and score in the other output.

    Rows with almost equal scores may change places. Those at the end of the list may be missing.
    """
    scores = [logits_of(rows[..., 4]) for rows in (output, original)]
    compare(f"{name}: logits of the best", *scores, deviation=deviation)
    largest, compared = 0.0, 0
    tolerance = 1e-3 * float(deviation)
    for own, other, own_scores, other_scores in zip(output.double(), original.double(), *scores):
        for a, b, a_scores, b_scores in ((own, other, own_scores, other_scores), (other, own, other_scores, own_scores)):
            certain = (a_scores > b_scores.min() + tolerance) | (len(b) == 1)
            candidates = (a[certain, None, 5] == b[None, :, 5]) & ((a_scores[certain, None] - b_scores[None]).abs() <= tolerance)
            distances = (a[certain, None, :4] - b[None, :, :4]).abs().amax(2).masked_fill(~candidates, torch.inf)
            compared += int(certain.sum())
            largest = max([largest, *distances.amin(1).tolist()])
    largest /= scale
    share = compared / (2 * output.shape[0] * output.shape[1])
    print(f"{name}: boxes differ by at most {largest:.2e} pixels of the picture (allowed {BOX_BOUND:g}), {share:.0%} of them compared")
    if not largest <= BOX_BOUND:
        raise Differs(f"{name}: a box of the saved model is {largest:.2g} pixels from the original's, allowed are {BOX_BOUND:g}")
    if share < 0.5:
        raise Differs(f"{name}: only {share:.0%} of the boxes have scores that tell them from the others; use another --photograph")


CHECKS = {"v8": check_v8, "end_to_end": check_end_to_end}
