"""Pictures per second of the blocks of a run. A block has pictures that follow each other, each with the same number of boxes.

So one run measures several numbers of boxes in turns: on a GPU, a start with TorchScript takes 20 s and more.
The times come from timeline.json, which each run writes: begin and end of each batch in a lane.
"""

import statistics

from turns import Failed


def batches_of(timeline, blocks):
    """The batches in the order of their pictures: number of the block or None, begin and end in a lane in s, pictures.

    `blocks` are (pictures, boxes) in their order. A batch with pictures of two blocks belongs to neither.
    Raises Failed if the timeline lacks batches.
    """
    edges, total = [], 0
    for pictures, _ in blocks:
        edges.append((total, total + pictures))
        total += pictures
    found, first = [], 0
    for _, _, pictures, _, begin, *stages_ms in sorted(timeline["batches"], key=lambda batch: batch[1]):
        block = next((number for number, (low, high) in enumerate(edges) if low <= first and first + pictures <= high), None)
        found.append((block, begin, begin + sum(stages_ms) / 1000, pictures))
        first += pictures
    if first != total:
        raise Failed(f"timeline.json has {first} of {total} pictures; it leaves out the middle of a long run")
    return found


def window_of(batches, block, skipped, fewest):
    """The part of block number `block` that counts: its pictures, seconds, and how many lanes were busy in the mean.

    It begins and ends when a batch of the block leaves its lane, and no lane has a batch of another block meanwhile.
    So it does not matter in which order batches leave.
    The first `skipped` batches that leave do not count: they entered the pipeline at the rate of the block before.
    Raises Failed if fewer than `fewest` batches count.
    """
    own = [number for number, batch in enumerate(batches) if batch[0] == block]
    if own:
        before, after = batches[: own[0]], batches[own[-1] + 1 :]
        low, high = max((batch[2] for batch in before), default=float("-inf")), min((batch[1] for batch in after), default=float("inf"))
        left = sorted((end, pictures) for _, _, end, pictures in (batches[number] for number in own) if low < end <= high)[skipped:]
    if not own or len(left) <= fewest:
        raise Failed(f"block {block} is too short: of its {len(own)} full batches, {max(len(left) - 1, 0) if own else 0} count, and at least {fewest} must")
    begun, ended = left[0][0], left[-1][0]
    busy = sum(max(0.0, min(batches[number][2], ended) - max(batches[number][1], begun)) for number in own)
    return {"pictures": sum(pictures for _, pictures in left[1:]), "seconds": ended - begun, "lanes_busy": busy / (ended - begun)}


def rates(timeline, blocks, skipped, fewest):
    """By number of boxes, the median rate of its blocks with its spread, or why there is none. The last block does not count: it only follows."""
    batches, found = batches_of(timeline, blocks), {}
    for boxes in dict.fromkeys(boxes for _, boxes in blocks[:-1]):
        try:
            windows = [window_of(batches, number, skipped, fewest) for number, (_, own) in enumerate(blocks[:-1]) if own == boxes]
        except Failed as error:
            found[boxes] = {"failed": str(error)}
            continue
        each = [window["pictures"] / window["seconds"] for window in windows]
        found[boxes] = {"pictures_per_s": statistics.median(each), "spread": [min(each), max(each)], "windows": windows}
    return found
