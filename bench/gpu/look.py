"""The part `look`: what this machine can do, before anything else is measured. We predict half a minute.

Each figure is a record with its unit, and its spread over a few measurements.
`limit` is the floor of a time or the roof of a rate, where there is one.

- hardware threads of a core
- JPEGs per second of one worker, of half of the hardware threads and of all of them. The part `decode` measures this longer
- copies, launches and Millrace's own kernels, by the program bench_look
- JPEGs per second of the GPU's own decoder by the size of a batch
"""

import functools
import json
import os

from costs import BYTES_PER_S
from decode import hardware_decoder, jpegs
from processor import threads_per_core
from session import BUNDLE, Session, run
from turns import Failed

BATCHES = (1, 4, 7, 14, 28, 64)  # pictures that the GPU's decoder gets at once
GB_PER_S_OF_A_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # by generation of PCIe, in one direction


def look(results, inputs):
    measure = functools.partial(results.measure, what="look")
    measure(cores, method="threads of a core")
    rates, threads = {}, len(os.sched_getaffinity(0))
    for workers in sorted({1, max(1, threads // 2), threads}):
        measure(functools.partial(jpeg_rate, workers, inputs, rates), method="JPEGs by the host", options=counted(workers, "worker"))
    measure(functools.partial(of_program, measure), method="bench_look")
    measure(functools.partial(of_decoder, measure, inputs), method="JPEG decoders of the GPU")


def counted(number, what):
    return f"{number} {what}{'s' * (number != 1)}"


def cores():
    found = threads_per_core()
    return {"value": found.pop("threads_per_core"), "unit": "threads", **found}


def jpeg_rate(workers, inputs, rates):
    found = jpegs(workers, inputs, each=200, repeats=1)
    rates[workers] = found["pictures_per_s"]
    limit = {"limit": workers * rates[1], "limit_of": "each worker as fast as one alone"} if 1 in rates else {}
    return {"value": rates[workers], "unit": "JPEGs/s", **limit}


def link():
    """GB/s between host and GPU in one direction, and its name. None if the driver does not tell."""
    done, _ = run("nvidia-smi", "--query-gpu=pcie.link.gen.max,pcie.link.width.max", "--format=csv,noheader,nounits", timeout=20)
    try:
        generation, lanes = map(int, done.stdout.splitlines()[0].split(","))
        return GB_PER_S_OF_A_LANE[generation] * lanes, f"PCIe {generation}.0 x{lanes}"
    except (IndexError, KeyError, ValueError):
        return None


def limits(figure, of_link):
    if "bytes" in figure:  # kernels, in microseconds
        return {"limit": 1e6 * figure["bytes"] / BYTES_PER_S, "limit_of": "its bytes at 4.8 TB/s"}
    if figure["method"].startswith("copies") and of_link:
        return {"limit": of_link[0], "limit_of": of_link[1]}
    return {}


def of_program(measure):
    """Runs bench_look once, and makes a record of each of its figures."""
    done, wall_s = run(BUNDLE / "bin/bench_look", *Session.few([], ["--small"]), timeout=60)
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not figures:
        raise Failed(f"exit code {done.returncode}: {done.stderr[-800:]}")
    if "absent" in figures[0]:
        return figures[0]
    of_link = link()
    for figure in figures:
        key = {name: figure.pop(name) for name in ("method", "options")}
        measure(lambda figure=figure, key=key: {**figure, **limits(figure | key, of_link)}, **key)
    return {"value": wall_s, "unit": "s"}


def of_decoder(measure, inputs):
    found = hardware_decoder(inputs, "--batch", *BATCHES, "--seconds", Session.few(0.3, 0))
    if "by_batch_size" not in found:
        return found
    for size, (median, *spread) in found["by_batch_size"].items():
        measure(lambda median=median, spread=spread: {"value": median, "spread": spread, "unit": "JPEGs/s"}, method="JPEGs by the GPU", options=counted(int(size), "picture") + " a call")
    return {"value": found["engines"], "unit": "engines", "cores_per_engine": found["cores_per_engine"]}
