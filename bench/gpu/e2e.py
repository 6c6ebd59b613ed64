"""The part `e2e`: pictures per second of the whole program."""

import functools
import shutil
import statistics
from pathlib import Path

from session import Session, scratch
from program import millrace, packages_of, settings_of, write_manifest
from variants import engines


def e2e(results, inputs):
    name, *_ = packages_of(inputs)
    boxes = (10,) if Session.short else Session.few((10, 1, 5, 20, 50), (3,))
    for engine, words in reversed(engines(inputs).items()):
        of_engine = {"engine": engine} if engine else {}
        settings = [({"boxes_per_picture": count, "source": source}, []) for source in ("files", "memory") for count in boxes]
        settings += [({"boxes_per_picture": boxes[0], "source": "memory", "options": more}, [more]) for more in Session.few(
            ("models.graphs=yes", "segment.box_batch=64", "threads.lanes=1", "threads.lanes=2", "threads.lanes=4", "batch.size=32"), ("threads.lanes=1",))]
        # A start with TorchScript takes 20 s and more.
        for setting, options in settings[:2] if Session.short and not engine and len(engines(inputs)) > 1 else settings:
            known = next((r["pictures"] for r in results.document["records"]
                          if r["what"] == "e2e" and r["boxes_per_picture"] == setting["boxes_per_picture"] and r.get("engine") == (engine or None) and "pictures" in r), None)
            words_of_options = [*words, *(word for option in options for word in ("--set", option))]
            results.measure(functools.partial(whole_run, inputs, known, setting["boxes_per_picture"], setting["source"], words_of_options), what="e2e", models=name, **of_engine, **setting)


def whole_run(inputs, known, boxes, source, options):
    """The median of three runs, and details of the last one. `known` is the number of pictures, or None."""
    _, detector, segmenter = packages_of(inputs)
    rates, count = [], known or Session.few(400, 4)
    with scratch() as folder:
        where, folder = str(Path(folder).parent), Path(folder)
        for repeat in range(1 if known else 0, 2 if Session.short else Session.few(4, 2)):  # run 0 only finds the number of pictures
            write_manifest(folder / "m.jsonl", inputs / "pictures", count, boxes)
            done, report, wall = millrace(folder / "out", "--input", folder / "m.jsonl", "--device", Session.device, "--source", source,
                                          "--detector", detector, "--segmenter", segmenter, "--set", "detect.skip_with_boxes=no",
                                          *options)
            if done.returncode != 0:
                return {"failed": f"exit code {done.returncode} in repeat {repeat}: {done.stderr[-800:]}"}
            settings = settings_of(folder / "out", report)
            shutil.rmtree(folder / "out")
            rate = report["run_window"]["pictures_per_s"]
            if repeat == 0:
                count = max(count, int(Session.few(3, 0) * rate))  # three seconds each
            else:
                rates.append(rate)
    window = report["run_window"]
    gpu = next((r for r in window["resources"] if r["name"] == "GPU"), {})
    print("   ", report["verdict"]["sentence"], flush=True)
    return {"pictures_per_s": statistics.median(rates), "spread": [min(rates), max(rates)], "pictures": count, "wall_s": wall, "verdict": report["verdict"]["sentence"],
            "gpu_demand": gpu.get("utilisation"), "gpu": gpu, "cores_busy": window["cores_busy"] * window["cores"], "cores": window["cores"], "calls": report["calls"], "driver": report["gpus"],
            "warm_up_s": report["warm_up_s"], "start": report["start"], "settings": settings, "folder": where}
