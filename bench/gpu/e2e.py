"""The part `e2e`: pictures per second of the whole program.

One run measures all numbers of boxes per picture, in blocks (blocks.py). Other settings need runs of their own.
"""

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blocks import rates
from costs import COMPILED_MS
from program import millrace, packages_of, settings_of, write_blocks
from session import Session, scratch
from turns import Failed
from variants import engines, variant_of

BLOCK_S = 3  # if the GPU is as fast as rough_rate() says
# With TorchScript, an H200 computed 289 pictures/s with ten boxes. The time of its compiled kernels allows 513.
OF_TORCHSCRIPT = 0.56
EDGES = 160  # pictures of a block that do not count: at its begin those in flight, at its end those of the other lanes


def rough_rate(engine, boxes):
    """Pictures per second of an H200. Only the sizes of blocks depend on it."""
    kernels_ms = sum(COMPILED_MS[call][1] for call in (("yolov8n", "forward"), ("mobile_sam", "encode"))) / 16 + boxes * COMPILED_MS["mobile_sam", "decode"][1] / 160
    return (1 if engine else OF_TORCHSCRIPT) * 1000 / kernels_ms


def blocks_for(engine, counts):
    """Blocks (pictures, boxes) of all `counts` in turns, and a last one that keeps the lanes busy until the others end."""
    each = [(32 * math.ceil((BLOCK_S * rough_rate(engine, boxes) + EDGES) / 32) if not Session.rehearsal else 6, boxes) for boxes in counts]
    return each * (1 if Session.short else Session.few(3, 2)) + [(Session.few(EDGES, 2), counts[0])]


def has_64(inputs, engine):
    """Whether calls of 64 boxes have a library. Otherwise they would be padded to 160."""
    return (variant_of(inputs, engine, inputs / "mobile_sam.pkg") / "decode_64.so").exists()


def e2e(results, inputs):
    name, *_ = packages_of(inputs)
    counts = (10,) if Session.short else Session.few((10, 1, 5, 20, 50), (3, 1))
    for engine, words in reversed(engines(inputs).items()):
        of_engine = {"engine": engine} if engine else {}
        runs = [({"source": source}, counts) for source in ("files", "memory")]
        runs += [({"source": "memory", "options": option}, counts[:1]) for option in Session.few(
            ("models.graphs=yes", "segment.box_batch=64", "threads.lanes=1", "threads.lanes=2", "threads.lanes=4", "batch.size=32"), ("segment.box_batch=64",))]
        # A start with TorchScript takes 20 s and more.
        for setting, wanted in runs[:2] if Session.short and not engine and len(engines(inputs)) > 1 else runs:
            if engine and setting.get("options") == "segment.box_batch=64" and not has_64(inputs, engine):
                continue
            keys = {boxes: {"what": "e2e", "models": name, **of_engine, "boxes_per_picture": boxes, **setting} for boxes in wanted}
            missing = [boxes for boxes, key in keys.items() if not results.has(**key)]
            if not missing:
                continue
            more = [*words, *(["--set", setting["options"]] if "options" in setting else [])]
            with ThreadPoolExecutor(1) as pool:  # keeps the result or exception of the run for all of its records
                found = pool.submit(measured, inputs, blocks_for(engine, missing), setting["source"], more)
                for boxes in missing:
                    results.measure(lambda found=found, boxes=boxes: found.result()[boxes], **keys[boxes])


def measured(inputs, blocks, source, options):
    """By number of boxes, what blocks.rates() found, with details of the run under `run`. Raises Failed."""
    _, detector, segmenter = packages_of(inputs)
    # One lane: with more, blocks of a few pictures would be too short.
    options = [*options, *Session.few([], ["--set", "batch.size=1", "--set", "gate.frames=2", "--set", "threads.lanes=1"])]
    with scratch() as folder:
        where, folder = str(Path(folder).parent), Path(folder)
        write_blocks(folder / "m.jsonl", inputs / "pictures", blocks)
        done, report, wall = millrace(folder / "out", "--input", folder / "m.jsonl", "--device", Session.device, "--source", source, "--detector", detector,
                                      "--segmenter", segmenter, "--set", "detect.skip_with_boxes=no", *options)
        if done.returncode != 0:
            raise Failed(f"exit code {done.returncode}: {done.stderr[-800:]}")
        settings = settings_of(folder / "out", report)
        (timeline,) = (folder / "out").glob("runs/*/timeline.json")
        timeline = json.loads(timeline.read_text())
        shutil.rmtree(folder / "out")
    window = report["run_window"]
    gpu = next((r for r in window["resources"] if r["name"] == "GPU"), {})
    print("   ", report["verdict"]["sentence"], flush=True)
    run = {"blocks": blocks, "wall_s": wall, "verdict": report["verdict"]["sentence"], "gpu_demand": gpu.get("utilisation"), "gpu": gpu,
           "cores_busy": window["cores_busy"] * window["cores"], "cores": window["cores"], "calls": report["calls"], "driver": report["gpus"],
           "warm_up_s": report["warm_up_s"], "start": report["start"], "settings": settings, "folder": where}
    in_flight = math.ceil(window["gate"]["frames"] / report["batch_size"])
    return {boxes: {**record, "run": run} for boxes, record in rates(timeline, blocks, in_flight, Session.few(8, 2)).items()}
