"""Compares two runs on the same pictures: boxes, masks, average precision. Lists figures that miss their bounds."""

import math
import operator
import statistics
import sys

from exporters import EXPORTERS

sys.path.append(str(EXPORTERS))
from run_lengths import mask_iou  # noqa: E402


PAIRED = 0.5  # pixels: objects of one class are the same if x, y, w and h of their boxes differ by at most this


def compare(reference, other):
    """Counts pairs of objects and objects without a partner. Compares the boxes and masks of the pairs."""
    same, alone, box_difference, ious = 0, 0, 0.0, []
    for a, b in zip(reference, other, strict=True):
        if (a["path"], a["state"]) != (b["path"], b["state"]):
            raise ValueError(f"{a['path']} is {a['state']}, but the other run has {b['path']}, which is {b['state']}")
        rest = list(b.get("objects", []))
        for found in a.get("objects", []):
            def distance(o, found=found):
                return max(abs(p - q) for p, q in zip(o["box"], found["box"], strict=True)) if o["class"] == found["class"] else 1e9
            best = min(rest, key=distance, default=None)
            if best is None or distance(best) > PAIRED:
                alone += 1
                continue
            rest.remove(best)
            same += 1
            box_difference = max(box_difference, distance(best))
            if "rle" in found:
                ious.append(mask_iou(found["rle"], best["rle"]))
        alone += len(rest)
    return {"objects": same, "without_partner": alone, "largest_box_difference": box_difference, "masks": len(ious),
            "mask_iou_mean": statistics.fmean(ious) if ious else None, "mask_iou_min": min(ious, default=None),
            "mask_iou_p1": percentile(ious, 0.01) if ious else None}


def percentile(values, share):
    """A percentile, interpolated linearly between two values, as numpy does."""
    at = share * (len(values) - 1)
    low, ordered = int(at), sorted(values)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(values) - 1)] - ordered[low])


def box_iou(a, b):
    inter = math.prod(max(0.0, min(a[k] + a[k + 2], b[k] + b[k + 2]) - max(a[k], b[k])) for k in (0, 1))
    return inter / (a[2] * a[3] + b[2] * b[3] - inter)


def box_ap50(truth, found):
    """Average precision at IoU 0.5 over 101 recalls. All classes share one ranking."""
    open_ones = [list(line.get("objects", [])) for line in truth]
    total = sum(map(len, open_ones))
    ranked = sorted(((o["score"], at, o) for at, line in enumerate(found) for o in line.get("objects", [])), key=lambda one: -one[0])
    points, hits = [], 0
    for seen, (_, at, candidate) in enumerate(ranked, 1):
        partners = [o for o in open_ones[at] if o["class"] == candidate["class"] and box_iou(o["box"], candidate["box"]) >= 0.5]
        if partners:
            open_ones[at].remove(max(partners, key=lambda o: box_iou(o["box"], candidate["box"])))
            hits += 1
        points.append((hits, hits / seen))
    return statistics.fmean(max((p for reached, p in points if 100 * reached >= recall * total), default=0.0) for recall in range(101))


def misses(found, **bounds):
    """Sentences about the figures that miss their bounds. A figure that is None misses its bound."""
    return [f"{name} is {found[name]}, not {sign} {bound}" for name, (sign, bound) in bounds.items()
            if found[name] is None or not {"<=": operator.le, ">=": operator.ge, "==": operator.eq}[sign](found[name], bound)]
