"""Measures Millrace on a machine with a GPU: run.sh suite PART... [--inputs FOLDER] [--out RESULTS.json]

Parts: `correct` (kernels against the host, sanitizers, results of the GPU against those of the CPU, the default precision against fp32), `models`
(time of each package's methods by precision and batch, and which share of the roof that is), `e2e` (pictures a second of the whole program over boxes
a picture, also with decoded pictures in memory), `peers` (the usual Python script and a tuned one on the same work), `decode` (JPEGs a second over
cores). After seven minutes a part begins nothing, and what runs then is ended: it is left for another call (exit code 3). By arithmetic, which no GPU has
confirmed, all stay below that; e2e is 47 runs of three seconds, and needs a second call where starting takes more than six. What fails becomes a failed record, and the rest goes on (exit code 1). What RESULTS.json holds
already is not measured again, what failed is; its default name is <gpu>-<date>.json. FOLDER has yolov8n.pkg, mobile_sam.pkg and pictures/: without
the packages the built-in models alone are measured. tables.py makes the tables and plots of docs/performance.md from RESULTS.json. --rehearse goes
through everything on a CPU with next to no work: the figures mean nothing.
"""

import argparse
import functools
import itertools
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from agreement import box_ap50, compare, misses
from turns import Failed, Turns, end_with_parent

BUNDLE = Path(os.environ["MILLRACE_BUNDLE"])
MODELS = BUNDLE / "share/millrace/models"


class OutOfTime(Exception):
    """The part's time is up: what was asked for is left for the next call."""


class Place:
    """Where is measured, how often, and until when: a GPU, or a CPU for rehearsals."""

    device, two_devices, torch_device, rehearsal = "cuda", "cuda:0,0", "cuda", False
    deadline = float("inf")  # of the part, on the monotonic clock

    @classmethod
    def rehearse(cls):
        cls.device, cls.two_devices, cls.torch_device, cls.rehearsal = "fake:1", "fake:2", "cpu", True

    @classmethod
    def few(cls, many, few):
        return few if cls.rehearsal else many


def run(*command, timeout=400, env=None):
    """What became of a command, with all that it started; one that is not there, or takes too long, has failed like any other. None outlives its part."""
    begun = time.monotonic()
    timeout = min(timeout, Place.deadline - begun)
    if timeout <= 0:
        raise OutOfTime
    words = [str(part) for part in command]
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **libraries(words), **(env or {})},
                                   start_new_session=True, preexec_fn=end_with_parent)
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", str(error)), 0.0
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        if time.monotonic() >= Place.deadline:
            raise OutOfTime from None
        err += f"\nkilled after {timeout:.0f} s"
    return subprocess.CompletedProcess(words, process.returncode, out, err), time.monotonic() - begun


def libraries(words):
    """Where the bundle's programs find theirs, which are not for others."""
    path = os.environ.get("MILLRACE_LIBRARY_PATH")
    ours = any(word.startswith(str(BUNDLE / "bin")) for word in words)
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (path, os.environ.get("LD_LIBRARY_PATH"))))} if path and ours else {}


def commit():
    first, *rest = (BUNDLE / "commit").read_text().split("\n")
    return first + ("-dirty" if "with changes" in rest else "")


def scratch():
    """A folder in memory where there is room for the results of a run."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 8 << 30
    return tempfile.TemporaryDirectory(dir=memory if roomy else None)


def machine():
    import torch

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")), "")
    host = {"torch": torch.__version__, "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "commit": commit()}
    if Place.rehearsal:
        return {"gpu": "none: a rehearsal", **host}
    gpu = torch.cuda.get_device_properties(0)
    driver, _ = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {"gpu": gpu.name, "multiprocessors": gpu.multi_processor_count, "memory_bytes": gpu.total_memory, "driver": driver.stdout.strip(), **host}


def failed(record):
    return record.get("passed") is False or "failed" in record


# What tells one measurement from another; a name that a record does not have is None.
IDENTITY = ("what", "part", "tool", "package", "precision", "batch", "method", "models", "boxes_per_picture", "source", "options", "workers")


class OtherMachine(Exception):
    """What was measured elsewhere does not stand for this machine."""


def file_name(machine):
    """As in bench/results: nvidia-h200-2026-11-22.json."""
    gpu = "rehearsal" if Place.rehearsal else re.sub(r"[^a-z0-9]+", "-", machine["gpu"].lower()).strip("-")
    return f"{gpu}-{time.strftime('%Y-%m-%d', time.gmtime())}.json"


class Results:
    """Records by what was measured, written after each. Where no file is named, it is the first of its name, name-2, name-3 that is of this machine or new."""

    def __init__(self, file):
        here = machine()
        first, self.left = Path(file_name(here)), []
        numbered = (first if number == 1 else first.with_stem(f"{first.stem}-{number}") for number in itertools.count(1))
        for self.file in [file] if file else numbered:
            self.document = {"machine": here, "records": []}
            self.read()
            there = self.document["machine"]
            others = [f"{name} {there.get(name)!r}, and here it is {here.get(name)!r}" for name in ("gpu", "driver", "cpu", "cores") if there.get(name) != here.get(name)]
            if not others:
                return
            said = f"{self.file} is of another machine: {'; '.join(others)}"
            if file:
                raise OtherMachine(f"{said}. Name another file by --out")
            print(said, flush=True)

    def read(self):
        if self.file.is_file():
            self.document = json.loads(self.file.read_text())

    def write(self):
        """Whole or not at all: a session can end at any moment."""
        beside = self.file.with_name(self.file.name + ".new")
        beside.write_text(json.dumps(self.document, indent=1) + "\n")
        beside.replace(self.file)

    @staticmethod
    def same(a, b):
        return all(a.get(name) == b.get(name) for name in IDENTITY)

    def has(self, **key):
        """What failed is measured again."""
        return any(self.same(record, key) for record in self.document["records"] if not failed(record))

    def measure(self, measurement, **key):
        """Measures what is not there yet: `measurement` gives what its record says beside KEY. What it raises makes a failed record, and the next one has its turn."""
        if self.has(**key):
            return
        try:
            if time.monotonic() >= Place.deadline:
                raise OutOfTime
            found = measurement()
            if clash := sorted(set(found) & set(IDENTITY)):
                raise ValueError(f"a record of {key} says {clash} itself: it would not be found again")
        except OutOfTime:
            self.left.append(key)
            return
        except Exception:
            found = {"failed": traceback.format_exc()[-1200:]}
        self.add(**key, **found)

    def add(self, **record):
        self.forget_failed(record)
        record["commit"] = commit()
        record["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.document["records"].append(record)
        self.write()
        shown = {k: v for k, v in record.items() if not isinstance(v, (dict, list)) and k not in ("at", "commit") and (k == "failed" or len(str(v)) < 300)}
        print("  " + "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items()), flush=True)

    def forget_failed(self, key):
        self.document["records"] = [r for r in self.document["records"] if not (failed(r) and self.same(r, key))]


def millrace(out, *arguments, timeout=400):
    done, wall = run(BUNDLE / "bin/millrace", "run", "--output", out, "--quiet", *arguments, timeout=timeout)
    (report,) = [json.loads(f.read_text()) for f in Path(out).glob("runs/*/report.json")] or [None]
    return done, report, wall


def pictures_of(inputs):
    """The drawn pictures, flat as the bundle brings them (front-0000.jpg) or by camera (front/0000.jpg)."""
    return sorted((inputs / "pictures").rglob("*.jpg"))


def lines(out):
    return [json.loads(line) for f in sorted(Path(out).glob("segments/[0-9]*.jsonl")) for line in f.read_text(encoding="utf-8").splitlines()]


# correct


def judged(found, missed):
    return {"passed": not missed, **({"missed": "; ".join(missed)} if missed else {}), **found}


def correct(results, inputs):
    if not Place.rehearsal:
        results.measure(kernels, what="kernels")
        for tool in ("memcheck", "racecheck"):
            results.measure(functools.partial(sanitized, tool), what="sanitizer", tool=tool)
    results.measure(lambda: with_views(inputs, parity), what="parity")
    results.measure(lambda: with_views(inputs, precision), what="precision")
    results.measure(lambda: with_views(inputs, two_devices), what="two devices")


def cases_run(output):
    """As doctest says; it passes where a filter leaves none."""
    found = re.search(r"test cases:\s*(\d+)", output)
    return int(found[1]) if found else 0


def kernels():
    done, wall = run(BUNDLE / "bin/cuda_test")
    print(done.stdout[-2500:])
    cases = cases_run(done.stdout)
    return {"passed": done.returncode == 0 and cases > 0, "cases": cases, "wall_s": wall, "summary": done.stdout.strip().splitlines()[-2:],
            **({} if done.returncode == 0 else {"exit_code": done.returncode, "error": done.stderr[-800:]})}


SANITIZED = ("*prompts*", "*failed batch*", "*more outline*", "*in 16 bits*", "*one upload*")  # small ones; the last has letterboxes in float32, one with a triangle filter


def sanitized(tool):
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    done, wall = run(sanitizer, "--tool", tool, "--error-exitcode", "9", BUNDLE / "bin/cuda_test", f"-tc={','.join(SANITIZED)}", timeout=180)
    cases = cases_run(done.stdout)
    return {"passed": done.returncode == 0 and cases >= len(SANITIZED), "cases": cases, "wall_s": wall, "tail": (done.stdout + done.stderr)[-600:]}


def with_views(inputs, measurement):
    """The drawn pictures by camera, front/0000.jpg for front-0000.jpg, which is how the built-in models are told apart."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for picture in pictures_of(inputs):
            camera, dash, name = picture.name.partition("-")
            place = folder / "pictures" / (f"{camera}/{name}" if dash else f"{picture.parent.name}/{camera}")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, place)
        return measurement(folder)


def finished(out, *arguments):
    """A run in which every picture came out: its lines, its report, its settings."""
    done, report, _ = millrace(out, *arguments, "--set", "batch.size=16")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr[-800:]}")
    return lines(out), report, settings_of(out, report)


def settings_of(out, report):
    """What a run was set to, and what it made of it."""
    plan = json.loads((Path(out) / "plan/plan.json").read_text())["settings"]
    lane = lane_of(report)
    return {"device": plan["device"], "precision": plan.get("precision"), "batch_size": report["batch_size"], "lanes": lane["concurrency"], "team": report["team"],
            "detect": plan["options"].get("detect"), "segment": plan["options"].get("segment"), "memory": report["memory"]}


def lane_of(report):
    return next(r for r in report["run_window"]["resources"] if r["name"] == "lane")


def parity(folder):
    """The built-in models on the GPU in fp32 against the CPU, and how often the host waited and copied."""
    pictures = ("--input", folder / "pictures")
    expected, _, _ = finished(folder / "cpu", *pictures, "--device", "cpu")
    lane, report, settings = finished(folder / "lane", *pictures, "--device", Place.device, "--precision", "fp32")
    calls, batches = report["calls"], lane_of(report)["items"]
    found = {**compare(expected, lane), "pictures": len(lane), "batches": batches, **{name: calls[name] for name in ("uploads", "waits", "downloads", "overflows")}, "settings": settings}
    missed = misses(found, largest_box_difference=("<=", 0.05), without_partner=("<=", 0.01 * found["objects"]), mask_iou_mean=(">=", 0.999), mask_iou_min=(">=", 0.98),
                    uploads=("==", len(lane)), waits=("==", 2 * batches + calls["overflows"]), downloads=("<=", batches + calls["overflows"]))
    return judged(found, missed if found["objects"] else ["no objects were found", *missed])


SHOWN, CANDIDATE = 0.5, 0.25  # scores: of an object of the built-in models, and of one that might be


def precision(folder):
    """Target T7: the precision that a GPU has by default against fp32 on it, masks for the same boxes, and boxes by what they lose against those of fp32."""
    pictures, on = ("--input", folder / "pictures", "--set", f"detect.conf={CANDIDATE}"), ("--device", Place.device, "--precision")
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
    """Two logical devices, each with its models, memory and lanes, on one GPU: the results of one device."""
    words = ("--input", folder / "pictures", "--precision", "fp32", "--set", "threads.lanes=2")
    one, _, _ = finished(folder / "one", *words, "--device", Place.device)
    two, report, settings = finished(folder / "two", *words, "--device", Place.two_devices)
    loads = [load["package"] for load in report["models"]["loads"]]
    found = {**compare(one, two), "devices": min(map(loads.count, loads), default=0), "settings": settings}
    missed = misses(found, devices=("==", 2), without_partner=("==", 0), largest_box_difference=("<=", 0.05), mask_iou_min=(">=", 0.98))
    return judged(found, missed if found["objects"] else ["no objects were found", *missed])


# models


def side_of(package):
    return int(re.search(r"height: (\d+)", (package / "model.yaml").read_text())[1])


def product(precision):
    """A product of large matrices."""
    import torch

    side = Place.few(8192, 256)
    use_tf32(precision)
    a, b = (torch.randn(side, side, device=Place.torch_device).to(getattr(torch, TYPES[precision])) for _ in range(2))
    median, _ = time_ms(lambda: a @ b)
    return {"tflop_per_s": 2 * side**3 / median / 1e9}


def copied():
    """A large copy."""
    import torch

    x = torch.empty(Place.few(1 << 31, 1 << 20), dtype=torch.uint8, device=Place.torch_device)
    y = torch.empty_like(x)
    median, _ = time_ms(lambda: y.copy_(x))
    return {"gb_per_s": 2 * x.numel() / median / 1e6}


TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def use_tf32(precision):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


# FLOP of one picture, or of one box of a decoder, two for each multiply and add; of the built-in ones see models/demo/README.md.
GFLOP = {("yolov8n", "forward"): 8.7, ("mobile_sam", "encode"): 77.5, ("mobile_sam", "decode"): 3.6, ("front", "forward"): 1.2, ("left", "forward"): 1.2,
         ("right", "forward"): 1.2, ("segmenter", "encode"): 2.7, ("segmenter", "decode"): 0.22}
# Bytes that they read and write in 16 bits where each operation goes through memory (docs/performance.md, "What is predicted"); twice that in 32. Nobody counted the built-in ones'.
MB_IN_16_BITS = {("yolov8n", "forward"): 76, ("mobile_sam", "encode"): 963, ("mobile_sam", "decode"): 82}
BOXES = 64  # of a decoder's call


def time_ms(call, repeats=30):
    """Median and 9th decile of a call, by events."""
    import torch

    repeats = Place.few(repeats, 2)
    for _ in range(Place.few(5, 1)):
        call()
    times = []
    if Place.rehearsal:
        for _ in range(repeats):
            begun = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begun))
        return statistics.median(times), max(times)
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times), statistics.quantiles(times, n=10)[8]


def described(package, what):
    return what in (package / "model.yaml").read_text()


@functools.lru_cache(maxsize=1)
def loaded(package, precision):
    import torch
    import traces

    module = torch.jit.load(str(package / "model.ts"), map_location=Place.torch_device).to(getattr(torch, TYPES[precision])).eval()
    traces.adapt(module, tf32=precision == "tf32", device=Place.torch_device)
    return torch.jit.freeze(module, preserved_attrs=None if described(package, "task: detect") else ["encode", "decode"])


def roof(records, package, method, precision):
    """The least milliseconds of a row on this machine, by what was measured of it, and what bounds it."""
    measured = {r["precision"]: r for r in records if r["what"] == "roof" and not failed(r)}
    if precision not in measured or "bytes" not in measured:
        raise LookupError(f"the roof in {precision} or of the memory was not measured")
    megabytes = MB_IN_16_BITS.get((package, method))
    product_ms = GFLOP[package, method] / measured[precision]["tflop_per_s"]
    if megabytes is None:
        return product_ms, "products alone: its bytes were not counted"
    bytes_ms = megabytes * (2 if TYPES[precision] == "float32" else 1) / measured["bytes"]["gb_per_s"]
    return max((product_ms, "products"), (bytes_ms, "bytes"))


def model(records, package, precision, batch, method):
    """A method's time, and which share of the roof that is."""
    import torch

    use_tf32(precision)
    try:
        with torch.inference_mode():
            module, side, rows = loaded(package, precision), side_of(package), batch
            images = torch.rand(batch, 3, side, side, device=Place.torch_device).to(getattr(torch, TYPES[precision]))
            if method == "decode":
                rows, embedding = Place.few(BOXES, 4), module.encode(images)
                boxes = torch.tensor([[0.1, 0.15, 0.4, 0.5]], device=Place.torch_device).mul(side).repeat(rows, 1)
                index = torch.arange(rows, device=Place.torch_device) % batch
                median, p90 = time_ms(lambda: module.decode(embedding, boxes, index))
            else:
                median, p90 = time_ms(lambda: getattr(module, method)(images))
    except RuntimeError as error:  # TorchScript's own of memory that ran out too
        if "out of memory" not in str(error):
            raise
        return {"out_of_memory": str(error)[-200:]}
    least_ms, bound = roof(records, package.stem, method, precision)
    return {"rows": rows, "median_ms": median, "p90_ms": p90, "ms_each": median / rows, "tflop_per_s": rows * GFLOP[package.stem, method] / median,
            "roof_ms_each": least_ms, "roof_of": bound, "of_roof": least_ms * rows / median}


def models(results, inputs):
    import torch

    torch._C._jit_set_profiling_mode(False)  # as the program does
    for precision in TYPES:
        results.measure(functools.partial(product, precision), what="roof", precision=precision)
    results.measure(copied, what="roof", precision="bytes")
    for package in [*sorted(inputs.glob("*.pkg")), *sorted(MODELS.glob("*.pkg"))]:
        methods = ["forward"] if described(package, "task: detect") else ["encode", "decode"]
        for precision, batch, method in itertools.product(Place.few(TYPES, ["bf16"]), Place.few((1, 4, 16, 64), (2,)), methods):
            results.measure(functools.partial(model, results.document["records"], package, precision, batch, method),
                            what="model", package=package.stem, precision=precision, batch=batch, method=method)
            if not Place.rehearsal:
                torch.cuda.empty_cache()  # memory that a large batch took, or could not take


# e2e


def write_manifest(file, pictures, count, boxes):
    """`count` lines, each a picture with that many boxes; pictures come again."""
    names = sorted(str(name) for name in pictures.rglob("*.jpg"))
    if not names:
        raise FileNotFoundError(f"no pictures in {pictures}")
    own = [[60 + 29 * i % 1400, 40 + 17 * i % 700, 380, 260, 0] for i in range(boxes)]
    file.write_text("".join(json.dumps({"path": names[i % len(names)], "boxes": own}) + "\n" for i in range(count)))


def packages_of(inputs):
    """The real architectures where they were brought, else the built-in models."""
    if (inputs / "mobile_sam.pkg").is_dir():
        return "mobile_sam", inputs / "yolov8n.pkg", inputs / "mobile_sam.pkg"
    return "builtin", MODELS / "front.pkg", MODELS / "segmenter.pkg"


def e2e(results, inputs):
    name, *_ = packages_of(inputs)
    settings = [({"boxes_per_picture": boxes, "source": "memory"}, []) for boxes in Place.few((10, 1, 5, 20, 50), (3,))]
    settings += [({"boxes_per_picture": boxes, "source": "files"}, []) for boxes in Place.few((10, 1, 5, 20, 50), (3,))]
    settings += [({"boxes_per_picture": Place.few(10, 3), "source": "memory", "options": " ".join(more)}, more) for more in (
        ["threads.lanes=1"], ["threads.lanes=2"], ["threads.lanes=4"], ["batch.size=32"])[:Place.few(4, 1)]]
    for setting, options in settings:
        known = next((r["pictures"] for r in results.document["records"]
                      if r["what"] == "e2e" and r["boxes_per_picture"] == setting["boxes_per_picture"] and "pictures" in r), None)
        results.measure(functools.partial(whole_run, inputs, known, setting["boxes_per_picture"], setting["source"], options), what="e2e", models=name, **setting)


def whole_run(inputs, known, boxes, source, options):
    """Median of three runs, with what the last one says of itself."""
    _, detector, segmenter = packages_of(inputs)
    rates, count = [], known or Place.few(400, 4)
    with scratch() as folder:
        where, folder = str(Path(folder).parent), Path(folder)
        for repeat in range(1 if known else 0, Place.few(4, 2)):  # without a number of pictures that is known, the first run finds it
            write_manifest(folder / "m.jsonl", inputs / "pictures", count, boxes)
            done, report, wall = millrace(folder / "out", "--input", folder / "m.jsonl", "--device", Place.device, "--source", source,
                                          "--detector", detector, "--segmenter", segmenter, "--set", "detect.skip_with_boxes=no",
                                          *[word for option in options for word in ("--set", option)])
            if done.returncode != 0:
                return {"failed": f"exit code {done.returncode} in repeat {repeat}: {done.stderr[-800:]}"}
            settings = settings_of(folder / "out", report)
            shutil.rmtree(folder / "out")
            rate = report["run_window"]["pictures_per_s"]
            if repeat == 0:
                count = max(count, int(Place.few(3, 0) * rate))  # three seconds each
            else:
                rates.append(rate)
    window = report["run_window"]
    gpu = next((r for r in window["resources"] if r["name"] == "GPU"), {})
    print("   ", report["verdict"]["sentence"], flush=True)
    return {"pictures_per_s": statistics.median(rates), "spread": [min(rates), max(rates)], "pictures": count, "wall_s": wall, "verdict": report["verdict"]["sentence"],
            "gpu_demand": gpu.get("utilisation"), "gpu": gpu, "cores_busy": window["cores_busy"] * window["cores"], "cores": window["cores"], "calls": report["calls"], "driver": report["gpus"],
            "warm_up_s": report["warm_up_s"], "settings": settings, "folder": where}


# peers


def remaining(seconds):
    """So many, or what is left of the part's time."""
    left = Place.deadline - time.monotonic()
    if left <= 0:
        raise OutOfTime
    return min(seconds, left)


def why(error):
    """What a script that failed said; one that the part's time ended has not failed."""
    if time.monotonic() >= Place.deadline:
        raise OutOfTime from None
    return str(error) or "ended without a word"


def peers(results, inputs):
    """Millrace, the usual script and the tuned one in turns, on the same pictures and boxes.

    A turn is eight seconds of pictures, as many as a first turn that does not count says: with Millrace's start of ten, a round takes some 35 s.
    Loading and compiling take at most 120 + 210 s and usually half of that, so that four rounds end after five minutes. Past 300 s no round begins
    but the first two. The part's time ends what runs then: rounds that are complete count, and without one all is left for another call.
    """
    name, detector, segmenter = packages_of(inputs)
    if name == "builtin":
        print("  peers need yolov8n.pkg and mobile_sam.pkg: --inputs FOLDER")
        return
    key, tools = {"what": "peer", "models": name, "boxes_per_picture": 10}, ("millrace", "the usual script", "a tuned script")
    if all(results.has(**key, tool=tool) for tool in tools):
        return
    begun = time.monotonic()
    with scratch() as folder:
        folder = Path(folder)
        longest = Place.few(20000, 2)
        write_manifest(folder / "m.jsonl", inputs / "pictures", longest, 10)
        settings = {"millrace": {"source": "files"}}

        def ours(pictures, seconds):
            write_manifest(folder / "own.jsonl", inputs / "pictures", pictures, 10)
            done, report, _ = millrace(folder / "out", "--input", folder / "own.jsonl", "--device", Place.device, "--source", "files", "--detector", detector,
                                       "--segmenter", segmenter, "--set", "detect.skip_with_boxes=no", timeout=seconds)
            plan = folder / "out/plan/plan.json"
            settings["millrace"]["dtype"] = (re.findall(r'"precision": *"([^"]*)"', plan.read_text()) or [None])[0] if plan.is_file() else None
            shutil.rmtree(folder / "out", ignore_errors=True)
            if done.returncode != 0:
                raise Failed(done.stderr[-800:])
            return {"pictures": pictures, "pictures_per_s": report["run_window"]["pictures_per_s"]}

        turns, failures = {"millrace": ours}, {}
        rates, pictures = {tool: [] for tool in tools}, {"millrace": Place.few(400, 2), "the usual script": Place.few(12, 2), "a tuned script": Place.few(2048, 2)}
        try:
            for tool, seconds, more in (("the usual script", 120, []), ("a tuned script", 210, ["--tuned"])):
                few = Place.few([], ["--batch", "2", "--workers", "2", "--compile-seconds", "0"])
                try:
                    turns[tool] = Turns(sys.executable, BUNDLE / "peers.py", folder / "m.jsonl", "--detector", detector, "--segmenter", segmenter, "--device", Place.torch_device,
                                        "--side", side_of(segmenter), *more, *few, seconds=remaining(seconds))
                    settings[tool] = turns[tool].settings
                except Failed as error:
                    failures[tool] = why(error)
            for round_ in range(1 + Place.few(3, 2)):
                if round_ > 1 and time.monotonic() - begun > 300:
                    break
                for tool in [tool for tool in tools if tool in turns and tool not in failures]:
                    try:
                        if round_ == 0 and tool == "the usual script":
                            turns[tool](pictures[tool], remaining(60))  # its first pictures say less than the next ones
                        done = turns[tool](pictures[tool], remaining(60))
                    except Failed as error:
                        failures[tool] = why(error)
                        continue
                    rates[tool].append(done["pictures_per_s"])
                    if round_ == 0:
                        pictures[tool] = min(longest, max(pictures[tool], int(8 * rates[tool].pop())))
        except OutOfTime:
            complete = min((len(rates[tool]) for tool in tools if tool not in failures), default=0)
            if complete == 0:
                raise
            rates = {tool: own[:complete] for tool, own in rates.items()}
        finally:
            for script in turns.values():
                if script is not ours:
                    script.close()
    results.document["records"] = [r for r in results.document["records"] if any(r.get(k) != v for k, v in key.items())]  # only rates of one run are compared
    for tool in tools:
        if tool in failures:
            results.add(**key, tool=tool, settings=settings.get(tool, {}), failed=failures[tool])
            continue
        ratio = {}
        if tool != "millrace" and "millrace" not in failures:
            ratios = [own / other for own, other in zip(rates["millrace"], rates[tool], strict=True)]
            ratio = {"millrace_is_faster_by": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)]}
        results.add(**key, tool=tool, pictures_per_s=statistics.median(rates[tool]), spread=[min(rates[tool]), max(rates[tool])], **ratio, pictures=pictures[tool],
                    turns=len(rates[tool]), settings=settings[tool], wall_s=time.monotonic() - begun)


# decode


def decode(results, inputs):
    """JPEGs by one to 64 workers, and by the GPU's own decoder.

    600 pictures a worker are some six seconds where they scale: seven counts of workers, three runs each with two seconds to start, are under
    three minutes, and the GPU's decoder has one.
    """
    for workers in [n for n in Place.few((1, 2, 4, 8, 16, 32, 64), (1, 2)) if n <= len(os.sched_getaffinity(0))]:
        results.measure(functools.partial(jpegs, workers, inputs), what="decode", workers=workers)
    results.measure(functools.partial(hardware_decoder, inputs), what="hardware decoder")


def jpegs(workers, inputs):
    rates = []
    with scratch() as folder:
        folder = Path(folder)
        (folder / "decode.yaml").write_text("stages: [decode, encode]\n")
        write_manifest(folder / "m.jsonl", inputs / "pictures", Place.few(600, 4) * workers, 0)
        for repeat in range(3):
            done, report, _ = millrace(folder / f"out{repeat}", folder / "decode.yaml", "--input", folder / "m.jsonl", "--device", "cpu", "--set",
                                       f"threads.workers={workers}", timeout=60)
            if done.returncode != 0:
                raise Failed(done.stderr[-800:] or f"exit code {done.returncode}")
            rates.append(report["run_window"]["pictures_per_s"])
    return {"pictures_per_s": statistics.median(rates), "spread": [min(rates), max(rates)], "cores": len(os.sched_getaffinity(0))}


def hardware_decoder(inputs):
    done, _ = run(sys.executable, BUNDLE / "nvjpeg.py", inputs / "pictures", "--device", Place.torch_device, timeout=60,
                  env={"CUDA_VISIBLE_DEVICES": ""} if Place.rehearsal else None)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(done.stderr[-800:] or f"exit code {done.returncode}") from None


PARTS = {"correct": correct, "models": models, "e2e": e2e, "peers": peers, "decode": decode}


def guarded(part, results, work):
    """A part that ends early ends no other; its time is up at the deadline."""
    key = {"what": "part", "part": part}
    results.forget_failed(key)
    results.write()
    begun = time.monotonic()
    try:
        work()
    except OutOfTime:
        results.left.append(key)
    except Exception:
        results.add(**key, failed=traceback.format_exc()[-1200:])
    print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)


def apart(part, results, arguments, seconds):
    """A part in a process of its own: one that computes in Python can crash or hang, and it keeps memory of the GPU."""
    words = [sys.executable, __file__, part, "--out", results.file, "--inputs", arguments.inputs, "--minutes", str(arguments.minutes)]
    try:
        code = subprocess.run([*words, *(["--rehearse"] if arguments.rehearse else [])], timeout=seconds + 60, check=False, preexec_fn=end_with_parent).returncode
    finally:
        results.read()
    if code == LEFT:
        raise OutOfTime
    if code not in (0, 1):
        raise RuntimeError(f"its process ended with {code}")


LEFT = 3  # the exit code where something is left for another call


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, help="results, which are added to (default: <gpu>-<date>.json)")
    parser.add_argument("--inputs", type=Path, default=BUNDLE.with_name(BUNDLE.name + ".inputs"))
    parser.add_argument("--minutes", type=float, default=7, help="of each part (default 7): what would begin later, or takes longer, is left for another call")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    if any(part != "models" for part in arguments.parts) and not pictures_of(arguments.inputs):
        parser.error(f"no pictures/*.jpg in {arguments.inputs}: --inputs names the folder that comes with the bundle, gpu-bundle.inputs")
    if arguments.rehearse:
        Place.rehearse()
    try:
        results = Results(arguments.out)
    except OtherMachine as error:
        parser.error(str(error))
    print(results.file, json.dumps(results.document["machine"]), flush=True)
    for part in arguments.parts:
        print(part, flush=True)
        seconds = 60 * arguments.minutes
        if part == "models" and len(arguments.parts) > 1:
            guarded(part, results, lambda part=part, seconds=seconds: apart(part, results, arguments, seconds))
            continue
        Place.deadline = time.monotonic() + seconds
        guarded(part, results, lambda part=part: PARTS[part](results, arguments.inputs.resolve()))
        Place.deadline = float("inf")
    failures = sum(map(failed, results.document["records"]))
    print(f"{len(results.document['records'])} records, {failures} failed" + (f"; no time was left for {len(results.left)}, call again:" if results.left else ""))
    for key in results.left:
        print("  " + "  ".join(f"{k}={v}" for k, v in key.items()))
    sys.exit(LEFT if results.left else 1 if failures else 0)


if __name__ == "__main__":
    main()
