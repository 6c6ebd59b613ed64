"""The part `decode`: JPEGs per second by cores, and by the decoder of the GPU."""

import functools
import json
import os
import statistics
import sys
from pathlib import Path

from session import BUNDLE, Session, run, scratch
from program import millrace, write_manifest
from turns import Failed


def decode(results, inputs):
    """Measures JPEGs per second of 1 to 64 workers, and of the GPU's own decoder.

    600 pictures per worker take about six seconds if workers scale.
    Seven counts of workers have three runs each, with two seconds to start. Together they take less than three minutes.
    The GPU's decoder has one minute.
    """
    for workers in [n for n in Session.few((1, 2, 4, 8, 16, 32, 64), (1, 2)) if n <= len(os.sched_getaffinity(0))]:
        results.measure(functools.partial(jpegs, workers, inputs), what="decode", workers=workers)
    results.measure(functools.partial(hardware_decoder, inputs), what="hardware decoder")


def jpegs(workers, inputs, each=600, repeats=3):
    """Decodes `each` pictures per worker, `repeats` times."""
    rates = []
    with scratch() as folder:
        folder = Path(folder)
        (folder / "decode.yaml").write_text("stages: [decode, encode]\n")
        write_manifest(folder / "m.jsonl", inputs / "pictures", Session.few(each, 4) * workers, 0)
        for repeat in range(repeats):
            done, report, _ = millrace(folder / f"out{repeat}", folder / "decode.yaml", "--input", folder / "m.jsonl", "--device", "cpu", "--set",
                                       f"threads.workers={workers}", timeout=60)
            if done.returncode != 0:
                raise Failed(done.stderr[-800:] or f"exit code {done.returncode}")
            rates.append(report["run_window"]["pictures_per_s"])
    return {"pictures_per_s": statistics.median(rates), "spread": [min(rates), max(rates)], "cores": len(os.sched_getaffinity(0))}


def hardware_decoder(inputs, *more):
    done, _ = run(sys.executable, BUNDLE / "nvjpeg.py", inputs / "pictures", "--device", Session.torch_device, *more, timeout=60,
                  env=None if Session.gpu else {"CUDA_VISIBLE_DEVICES": ""})
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(done.stderr[-800:] or f"exit code {done.returncode}") from None
