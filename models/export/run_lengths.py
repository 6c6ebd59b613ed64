"""Overlap of masks in COCO's run lengths. It needs no other package, so it also works where pycocotools is missing."""


def counts_of(rle):
    """The runs of an RLE string in the format of pycocotools: pixels outside, inside, outside, and so on."""
    counts, at, text = [], 0, rle["counts"].encode()
    while at < len(text):
        value, shift, more = 0, 0, True
        while more:
            c = text[at] - 48
            value |= (c & 31) << (5 * shift)
            more = bool(c & 32)
            at += 1
            shift += 1
            if not more and c & 16:
                value |= -1 << (5 * shift)
        if len(counts) > 2:
            value += counts[-2]
        counts.append(value)
    return counts


def mask_iou(a, b):
    """IoU of two RLEs of one size, by walking their runs. Two empty masks have 1."""
    inter = union = 0
    runs = [counts_of(a), counts_of(b)]
    index, left, inside = [0, 0], [runs[0][0], runs[1][0]], [False, False]
    while index[0] < len(runs[0]) and index[1] < len(runs[1]):
        step = min(left)
        inter += step * (inside[0] and inside[1])
        union += step * (inside[0] or inside[1])
        for k in (0, 1):
            left[k] -= step
            if left[k] == 0:
                index[k] += 1
                inside[k] = not inside[k]
                if index[k] < len(runs[k]):
                    left[k] = runs[k][index[k]]
    return inter / union if union else 1.0
