"""The part `correct`: whether a GPU gives the results of the CPU."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from agreement import box_ap50, compare, misses
from session import BUNDLE, MODELS, OutOfTime, Session, libraries, run
from turns import end_with_parent
from program import lane_of, lines, millrace, packages_of, pictures_of, settings_of, write_blocks
from variants import engines


def judged(found, missed):
    return {"passed": not missed, **({"missed": "; ".join(missed)} if missed else {}), **found}


def correct(results, inputs):
    if Session.gpu:
        results.measure(kernels, what="kernels")
        for tool in () if Session.short else ("memcheck", "racecheck"):
            results.measure(functools.partial(sanitized, tool), what="sanitizer", tool=tool)
    results.measure(lambda: with_views(inputs, parity), what="parity")
    results.measure(lambda: with_views(inputs, precision), what="precision")
    results.measure(lambda: with_views(inputs, two_devices), what="two devices")
    # The last tuning first. A start with TorchScript takes longest.
    lanes = Session.few((3,) if Session.short else (1, 2, 3), (1, 2, 3))
    fewer = {"options": "3 lanes only"} if lanes == (3,) else {}
    for engine, words in list(reversed(engines(inputs).items()))[: 1 if Session.short else None]:
        results.measure(functools.partial(same_bytes, inputs, words, lanes), what="same bytes", **({"engine": engine} if engine else {}), **fewer)


def cases_run(output):
    """The number of test cases that ran, by doctest's output. doctest also passes if its filter leaves none."""
    found = re.search(r"test cases:\s*(\d+)", output)
    return int(found[1]) if found else 0


def kernels():
    done, wall = run(BUNDLE / "bin/cuda_test")
    print(done.stdout[-2500:])
    cases = cases_run(done.stdout)
    return {"passed": done.returncode == 0 and cases > 0, "cases": cases, "wall_s": wall, "summary": done.stdout.strip().splitlines()[-2:],
            **({} if done.returncode == 0 else {"exit_code": done.returncode, "error": done.stderr[-800:]})}


# Small test cases. The last one has letterboxes in float32, one of them with a triangle filter.
SANITIZED_CASES = 6  # how many they match
SANITIZED = ("*prompts*", "*failed batch*", "*masks whose outlines*", "*in 16 bits*", "*one upload*")


def sanitized(tool):
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    done, wall = run(sanitizer, "--tool", tool, "--error-exitcode", "9", BUNDLE / "bin/cuda_test", f"-tc={','.join(SANITIZED)}", timeout=180)
    cases = cases_run(done.stdout)
    return {"passed": done.returncode == 0 and cases == SANITIZED_CASES, "cases": cases, "wall_s": wall, "tail": (done.stdout + done.stderr)[-600:]}


def with_views(inputs, measurement):
    """Calls `measurement` with a folder of the drawn pictures by camera: front/0000.jpg for front-0000.jpg.

    By the folder, the program selects the built-in model of a picture.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for picture in pictures_of(inputs):
            camera, dash, name = picture.name.partition("-")
            place = folder / "pictures" / (f"{camera}/{name}" if dash else f"{picture.parent.name}/{camera}")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, place)
        return measurement(folder)


def finished(out, *arguments):
    """Runs Millrace, and returns lines, report and settings. Raises RuntimeError unless the exit code is 0."""
    done, report, _ = millrace(out, *arguments, "--set", "batch.size=16")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))} ended with exit code {done.returncode}: {done.stderr[-800:]}")
    return lines(out), report, settings_of(out, report)


def parity(folder):
    """Compares the built-in models on the GPU in fp32 with the CPU. Checks how often the host waited and copied."""
    pictures = ("--input", folder / "pictures")
    expected, _, _ = finished(folder / "cpu", *pictures, "--device", "cpu")
    lane, report, settings = finished(folder / "lane", *pictures, "--device", Session.device, "--precision", "fp32")
    calls, batches = report["calls"], lane_of(report)["items"]
    found = {**compare(expected, lane), "pictures": len(lane), "batches": batches, **{name: calls[name] for name in ("uploads", "waits", "downloads", "overflows")}, "settings": settings}
    missed = misses(found, largest_box_difference=("<=", 0.05), without_partner=("<=", 0.01 * found["objects"]), mask_iou_mean=(">=", 0.999), mask_iou_min=(">=", 0.98),
                    uploads=("==", len(lane)), waits=("==", 2 * batches + calls["overflows"]), downloads=("<=", batches + calls["overflows"]))
    return judged(found, missed if found["objects"] else ["no objects were found", *missed])


SHOWN, CANDIDATE = 0.5, 0.25  # minimum scores of an object, and of a candidate


def precision(folder):
    """Checks target T7: the default precision of the GPU against fp32.

    Masks are compared for the same boxes. Boxes are compared by their loss of AP50 against those of fp32.
    """
    pictures, on = ("--input", folder / "pictures", "--set", f"detect.conf={CANDIDATE}"), ("--device", Session.device, "--precision")
    wide, _, _ = finished(folder / "wide", *pictures, *on, "fp32")
    narrow, _, settings = finished(folder / "narrow", *pictures, *on, "auto")
    shown = [{**line, "objects": [o for o in line.get("objects", []) if o["score"] >= SHOWN]} for line in wide]
    (folder / "boxes.jsonl").write_text("".join(
        json.dumps({"path": str(folder / "pictures" / line["path"]), "boxes": [[*o["box"], o["class"]] for o in line["objects"]]}) + "\n" for line in shown))
    masks, _, _ = finished(folder / "masks", "--input", folder / "boxes.jsonl", *on, "auto")
    by_box = compare(shown, [{**line, "path": of["path"]} for line, of in zip(masks, shown, strict=True)])
    found = {**by_box, "box_ap50_loss_points": 100 * (1 - box_ap50(shown, narrow)), "settings": settings}
    missed = misses(found, without_partner=("==", 0), mask_iou_mean=(">=", 0.995), mask_iou_p1=(">=", 0.97), box_ap50_loss_points=("<=", 0.2))
    return judged(found, missed if found["objects"] else ["no objects were found", *missed])


def two_devices(folder):
    """Two logical devices on one GPU, each with its models, memory and lanes, must give the results of one device."""
    words = ("--input", folder / "pictures", "--precision", "fp32", "--set", "threads.lanes=2")
    one, _, _ = finished(folder / "one", *words, "--device", Session.device)
    two, report, settings = finished(folder / "two", *words, "--device", Session.two_devices)
    loads = [load["package"] for load in report["models"]["loads"]]
    found = {**compare(one, two), "devices": min(map(loads.count, loads), default=0), "settings": settings}
    missed = misses(found, devices=("==", 2), without_partner=("==", 0), largest_box_difference=("<=", 0.05), mask_iou_min=(">=", 0.98))
    return judged(found, missed if found["objects"] else ["no objects were found", *missed])


def interrupted(out, *arguments):
    """Starts Millrace, and interrupts it when the first results are there."""
    words = [str(word) for word in (BUNDLE / "bin/millrace", "run", "--output", out, "--quiet", *arguments)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, env={**os.environ, **libraries(words)}, preexec_fn=end_with_parent)
    while process.poll() is None and not any(file.stat().st_size for file in out.glob("segments/*")):
        if time.monotonic() > Session.deadline:
            process.kill()
            raise OutOfTime
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)


def blocks():
    """Pictures and their boxes. Batches differ in the number of decoder calls and in their sizes, up to three full calls."""
    counts = (10, 24, 3, 1, 22)
    return [(4, boxes) for boxes in counts] if Session.rehearsal else [(48, boxes) for boxes in counts * 4]


def same_bytes(inputs, engine, lanes):
    """These numbers of lanes, graphs and plain calls, and an interrupted run must write the lines of one lane. `engine`: words that choose it."""
    detector, segmenter = Session.few(packages_of(inputs)[1:], (MODELS / "front.pkg", MODELS / "segmenter.pkg"))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        manifest = folder / "pictures.jsonl"
        write_blocks(manifest, inputs / "pictures", blocks())
        # The plan has the team. In a rehearsal, its default depends on the lanes.
        words = ("--input", manifest, "--detector", detector, "--segmenter", segmenter, "--set", "detect.skip_with_boxes=no", "--device", Session.device, "--set", "threads.team=1", *engine)
        expected, _, settings = finished(folder / "plain", *words, "--set", "threads.lanes=1")
        graphs = ("no", "yes") if Session.gpu else ("no",)
        ways = {f"{number} lanes{', graphs' * (graph == 'yes')}": ("--set", f"threads.lanes={number}", "--set", f"models.graphs={graph}") for number in lanes for graph in graphs}
        different, launches = [], {}
        for name, way in ways.items():
            found, report, _ = finished(folder / name, *words, *way)
            launches[name] = report["calls"].get("graph_launches", 0)
            if found != expected:
                different.append(name)
        interrupted(folder / "resumed", *words, "--set", "batch.size=16")
        found, report, _ = finished(folder / "resumed", *words)
        if found != expected:
            different.append("resumed")
    resumed = report["items"]["resumed"]
    missed = [f"{name}: no call was a graph" for name, count in launches.items() if name.endswith("graphs") and not count]
    if not Session.rehearsal and not 0 < resumed < len(expected):  # the few pictures of a rehearsal can be done before the interrupt
        missed.append("the interrupted run had nothing to resume")
    return judged({"pictures": len(expected), "ways": [*ways, "resumed"], "different": different, "graph_launches": launches, "resumed_pictures": resumed, "settings": settings},
                  [*missed, *(f"{name} differs" for name in different)])
