"""Measures Millrace on a machine with a GPU: run.sh suite PART... --out RESULTS.json [--inputs FOLDER]

Parts, each under seven minutes: `correct` (kernels against the host, sanitizers, results of the GPU against those of the CPU), `models` (time of
each package's methods by precision and batch), `e2e` (pictures a second of the whole program over boxes a picture, also with decoded pictures in
memory), `peers` (the usual Python script and a tuned one on the same work), `decode` (JPEGs a second over cores). What RESULTS.json holds already
is not measured again. FOLDER has yolov8n.pkg, mobile_sam.pkg and pictures/; without it the built-in models alone are measured. tables.py makes the
tables and plots of docs/performance.md from RESULTS.json. --rehearse goes through everything on a CPU with next to no work: the figures mean nothing.
"""

import argparse
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
from pathlib import Path

from turns import Failed, Turns

BUNDLE = Path(os.environ["MILLRACE_BUNDLE"])
MODELS = BUNDLE / "share/millrace/models"


class Place:
    """Where is measured, and how often: a GPU, or a CPU for rehearsals."""

    device, torch_device, rehearsal = "cuda", "cuda", False

    @classmethod
    def rehearse(cls):
        cls.device, cls.torch_device, cls.rehearsal = "fake:1", "cpu", True

    @classmethod
    def few(cls, many, few):
        return few if cls.rehearsal else many


def run(*command, timeout=400, env=None):
    """What became of a command, with all that it started; one that is not there, or takes too long, has failed like any other."""
    begun = time.monotonic()
    words = [str(part) for part in command]
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}, start_new_session=True)
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", str(error)), 0.0
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\nkilled after {timeout} s"
    return subprocess.CompletedProcess(words, process.returncode, out, err), time.monotonic() - begun


def machine():
    import torch

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")), "")
    host = {"torch": torch.__version__, "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "commit": (BUNDLE / "commit").read_text().split("\n")[0]}
    if Place.rehearsal:
        return {"gpu": "none: a rehearsal", **host}
    gpu = torch.cuda.get_device_properties(0)
    driver, _ = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {"gpu": gpu.name, "multiprocessors": gpu.multi_processor_count, "memory_bytes": gpu.total_memory, "driver": driver.stdout.strip(), **host}


def failed(record):
    return record.get("passed") is False or "failed" in record


class Results:
    """Records by what was measured, written after each."""

    def __init__(self, file):
        self.file = file
        self.document = json.loads(file.read_text()) if file.is_file() else {"machine": machine(), "records": []}

    def has(self, **key):
        """What failed is measured again."""
        return any(all(record.get(k) == v for k, v in key.items()) for record in self.document["records"] if not failed(record))

    @staticmethod
    def same(a, b):
        names = ("what", "tool", "package", "precision", "batch", "method", "models", "boxes_per_picture", "source", "options", "tuned", "workers")
        return all(a.get(name) == b.get(name) for name in names)

    def add(self, **record):
        self.document["records"] = [r for r in self.document["records"] if not (failed(r) and self.same(r, record))]
        record["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.document["records"].append(record)
        self.file.write_text(json.dumps(self.document, indent=1) + "\n")
        shown = {k: v for k, v in record.items() if not isinstance(v, (dict, list)) and k != "at" and len(str(v)) < 300}
        print("  " + "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items()), flush=True)


def millrace(out, *arguments, timeout=400):
    done, wall = run(BUNDLE / "bin/millrace", "run", "--output", out, "--quiet", *arguments, timeout=timeout)
    (report,) = [json.loads(f.read_text()) for f in Path(out).glob("runs/*/report.json")] or [None]
    return done, report, wall


def lines(out):
    return [json.loads(line) for f in sorted(Path(out).glob("segments/[0-9]*.jsonl")) for line in f.read_text(encoding="utf-8").splitlines()]


# correct


def columns(rle):
    """Uncompressed COCO counts of an RLE string; the format of pycocotools."""
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
    """IoU of two RLEs of one size, by walking their runs."""
    inter = union = 0
    runs = [columns(a), columns(b)]
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


def compare(reference, other):
    """Objects that agree (same class, box within 0.05 pixel), those that have no partner, and the IoU of their masks."""
    same, alone, box_difference, ious = 0, 0, 0.0, []
    for a, b in zip(reference, other, strict=True):
        assert (a["path"], a["state"]) == (b["path"], b["state"]), (a["path"], a["state"], b["state"])
        rest = list(b.get("objects", []))
        for found in a.get("objects", []):
            def distance(o, found=found):
                return max(abs(p - q) for p, q in zip(o["box"], found["box"], strict=True)) if o["class"] == found["class"] else 1e9
            best = min(rest, key=distance, default=None)
            if best is None or distance(best) > 0.5:
                alone += 1
                continue
            rest.remove(best)
            same += 1
            box_difference = max(box_difference, distance(best))
            if "rle" in found:
                ious.append(mask_iou(found["rle"], best["rle"]))
        alone += len(rest)
    return {"objects": same, "without_partner": alone, "largest_box_difference": box_difference,
            "mask_iou_mean": statistics.fmean(ious) if ious else None, "mask_iou_min": min(ious, default=None)}


def correct(results, inputs):
    pictures = inputs / "pictures"
    if not Place.rehearsal:
        kernels(results)
    if not results.has(what="parity"):
        parity(results, pictures)


def kernels(results):
    if not results.has(what="kernels"):
        done, wall = run(BUNDLE / "bin/cuda_test")
        print(done.stdout[-2500:])
        results.add(what="kernels", passed=done.returncode == 0, wall_s=wall, summary=done.stdout.strip().splitlines()[-2:])
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for tool in ("memcheck", "racecheck"):
        if results.has(what="sanitizer", tool=tool):
            continue
        cases = "*prompts*,*failed batch*,*more outline*,*in 16 bits*"
        done, wall = run(sanitizer, "--tool", tool, "--error-exitcode", "9", BUNDLE / "bin/cuda_test", f"-tc={cases}", timeout=200)
        results.add(what="sanitizer", tool=tool, passed=done.returncode == 0, wall_s=wall, tail=(done.stdout + done.stderr)[-600:])


def parity(results, pictures):
    """The built-in models on the GPU in fp32 against the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = []
        for device, more in (("cpu", ("--set", "batch.size=16")), (Place.device, ("--precision", "fp32", "--set", "batch.size=16"))):
            out = f"{folder}/{len(outputs)}"
            done, report, _ = millrace(out, "--input", pictures, "--device", device, *more)
            print(done.stderr[-1500:])
            if done.returncode != 0:
                results.add(what="parity", passed=False, device=device, exit_code=done.returncode, error=done.stderr[-800:])
                return
            outputs.append((lines(out), report))
            print(device, report["run_window"]["pictures_per_s"], report["calls"], flush=True)
        difference = compare(outputs[0][0], outputs[1][0])
        calls = outputs[1][1]["calls"]
        ok = difference["without_partner"] <= 0.01 * difference["objects"] and difference["mask_iou_mean"] >= 0.999
        results.add(what="parity", passed=ok, **difference, uploads=calls["uploads"], waits=calls["waits"], downloads=calls["downloads"])


# models


def side_of(package):
    return int(re.search(r"height: (\d+)", (package / "model.yaml").read_text())[1])


def roof(results):
    """What the GPU reaches at best: products of large matrices and a large copy; fractions of the first are what models are told by."""
    import torch

    side, size = Place.few(8192, 256), Place.few(1 << 31, 1 << 20)
    for precision, dtype in TYPES.items():
        if results.has(what="roof", precision=precision):
            continue
        use_tf32(precision)
        a, b = (torch.randn(side, side, device=Place.torch_device).to(getattr(torch, dtype)) for _ in range(2))
        median, _ = time_ms(lambda a=a, b=b: a @ b)
        results.add(what="roof", precision=precision, tflop_per_s=2 * side**3 / median / 1e9)
    if not results.has(what="roof", precision="bytes"):
        x = torch.empty(size, dtype=torch.uint8, device=Place.torch_device)
        y = torch.empty_like(x)
        median, _ = time_ms(lambda: y.copy_(x))
        results.add(what="roof", precision="bytes", gb_per_s=2 * size / median / 1e6)


TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def use_tf32(precision):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


# FLOP of one picture, or of one box of a decoder, two for each multiply and add; of the built-in ones see models/demo/README.md.
GFLOP = {("yolov8n", "forward"): 8.7, ("mobile_sam", "encode"): 77.5, ("mobile_sam", "decode"): 3.6, ("front", "forward"): 1.2, ("left", "forward"): 1.2,
         ("right", "forward"): 1.2, ("segmenter", "encode"): 2.7, ("segmenter", "decode"): 0.22}
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


def models(results, inputs):
    import torch

    torch._C._jit_set_profiling_mode(False)  # as the program does
    roof(results)
    roofs = {r["precision"]: r["tflop_per_s"] for r in results.document["records"] if r["what"] == "roof" and "tflop_per_s" in r}
    for package in [*sorted(inputs.glob("*.pkg")), *Place.few(sorted(MODELS.glob("*.pkg")), [])]:
        description = (package / "model.yaml").read_text()
        side = side_of(package)
        detects = "task: detect" in description
        for precision, name in Place.few(TYPES, {"bf16": "bfloat16"}).items():
            dtype = getattr(torch, name)
            use_tf32(precision)
            with torch.inference_mode():
                module = torch.jit.load(str(package / "model.ts"), map_location=Place.torch_device).to(dtype).eval()
                module = torch.jit.freeze(module, preserved_attrs=None if detects else ["encode", "decode"])
                for batch in Place.few((1, 4, 16, 64), (2,)):
                    key = {"what": "model", "package": package.stem, "precision": precision, "batch": batch}
                    if results.has(**key):
                        continue
                    images = torch.rand(batch, 3, side, side, device=Place.torch_device).to(dtype)

                    def add(method, rows, call, key=key, package=package):
                        median, p90 = time_ms(call)
                        tflops = rows * GFLOP[package.stem, method] / median
                        results.add(**key, method=method, rows=rows, median_ms=median, p90_ms=p90, ms_each=median / rows, tflop_per_s=tflops,
                                    of_roof=tflops / roofs[key["precision"]])

                    try:
                        if detects:
                            add("forward", batch, lambda module=module, images=images: module(images))
                            continue
                        add("encode", batch, lambda module=module, images=images: module.encode(images))
                        embedding = module.encode(images)
                        rows = Place.few(BOXES, 4)
                        boxes = torch.tensor([[0.1, 0.15, 0.4, 0.5]], device=Place.torch_device).mul(side).repeat(rows, 1)
                        index = torch.arange(rows, device=Place.torch_device) % batch
                        add("decode", rows, lambda module=module, e=embedding, b=boxes, i=index: module.decode(e, b, i))
                    except RuntimeError as error:  # TorchScript's own of memory that ran out too
                        if "out of memory" not in str(error):
                            raise
                        results.add(**key, method="out of memory", error=str(error)[-200:])
    if not Place.rehearsal:
        torch.cuda.empty_cache()  # the program's memory is planned with what is free


# e2e


def write_manifest(file, pictures, count, boxes):
    """`count` lines, each a picture with that many boxes; pictures come again."""
    names = sorted(str(name) for name in pictures.rglob("*.jpg"))
    own = [[60 + 29 * i % 1400, 40 + 17 * i % 700, 380, 260, 0] for i in range(boxes)]
    file.write_text("".join(json.dumps({"path": names[i % len(names)], "boxes": own}) + "\n" for i in range(count)))


def packages_of(inputs):
    """The real architectures where they were brought, else the built-in models."""
    if (inputs / "mobile_sam.pkg").is_dir():
        return "mobile_sam", inputs / "yolov8n.pkg", inputs / "mobile_sam.pkg"
    return "builtin", MODELS / "front.pkg", MODELS / "segmenter.pkg"


def e2e(results, inputs):
    name, detector, segmenter = packages_of(inputs)
    settings = [({"boxes_per_picture": boxes, "source": "memory"}, []) for boxes in Place.few((10, 1, 5, 20, 50), (3,))]
    settings += [({"boxes_per_picture": boxes, "source": "files"}, []) for boxes in Place.few((10, 1, 5, 20, 50), (3,))]
    settings += [({"boxes_per_picture": 10, "source": "memory", "options": " ".join(more)}, more) for more in (
        ["threads.lanes=1"], ["threads.lanes=2"], ["threads.lanes=4"], ["batch.size=32"])[:Place.few(4, 1)]]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        folder = Path(folder)
        for setting, options in settings:
            key = {"what": "e2e", "models": name, **setting}
            if results.has(**key):
                continue
            boxes = setting["boxes_per_picture"]
            known = next((r["pictures"] for r in results.document["records"] if r["what"] == "e2e" and r["boxes_per_picture"] == boxes and "pictures" in r), None)
            rates, report, count = [], None, known or Place.few(400, 4)
            for repeat in range(1 if known else 0, Place.few(4, 2)):  # without a number of pictures that is known, the first run finds it
                write_manifest(folder / "m.jsonl", inputs / "pictures", count, boxes)
                done, report, wall = millrace(folder / "out", "--input", folder / "m.jsonl", "--device", Place.device, "--source", setting["source"],
                                              "--detector", detector, "--segmenter", segmenter, "--set", "detect.skip_with_boxes=no",
                                              *[word for option in options for word in ("--set", option)])
                shutil.rmtree(folder / "out", ignore_errors=True)
                if done.returncode != 0:
                    results.add(**key, failed=done.stderr[-800:])
                    break
                rate = report["run_window"]["pictures_per_s"]
                if repeat == 0:
                    count = max(count, int(Place.few(4, 0) * rate))  # four seconds each
                else:
                    rates.append(rate)
            if not rates:
                continue
            window = report["run_window"]
            gpu = next((r for r in window["resources"] if r["name"] == "GPU"), {})
            results.add(**key, pictures_per_s=statistics.median(rates), spread=[min(rates), max(rates)], pictures=count, wall_s=wall, verdict=report["verdict"]["sentence"],
                        gpu_demand=gpu.get("utilisation"), gpu=gpu, cores_busy=window["cores_busy"], calls=report["calls"], driver=report["gpus"],
                        warm_up_s=report["warm_up_s"])
            print("   ", report["verdict"]["sentence"], flush=True)


# peers


def peers(results, inputs):
    """Millrace, the usual script and the tuned one in turns, on the same pictures and boxes.

    A turn is eight seconds of pictures, as many as a first turn that does not count says: with Millrace's start of ten, a round takes some 35 s.
    Loading and compiling take at most 90 + 210 s and usually half of that, so that four rounds end after five minutes. Past 300 s no round begins
    but the first two: at worst 370 s.
    """
    name, detector, segmenter = packages_of(inputs)
    if name == "builtin":
        print("  peers need yolov8n.pkg and mobile_sam.pkg: --inputs FOLDER")
        return
    key, tools = {"what": "peer", "models": name, "boxes_per_picture": 10}, ("millrace", "the usual script", "a tuned script")
    if all(results.has(**key, tool=tool) for tool in tools):
        return
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
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
        rates, pictures = {tool: [] for tool in tools}, {"millrace": Place.few(400, 2), "the usual script": Place.few(12, 2), "a tuned script": Place.few(512, 2)}
        try:
            for tool, seconds, more in (("the usual script", 90, []), ("a tuned script", 210, ["--tuned"])):
                few = Place.few([], ["--batch", "2", "--workers", "2", "--compile-seconds", "0"])
                try:
                    turns[tool] = Turns(sys.executable, BUNDLE / "peers.py", folder / "m.jsonl", "--detector", detector, "--segmenter", segmenter, "--device", Place.torch_device,
                                        "--side", side_of(segmenter), *more, *few, seconds=seconds)
                    settings[tool] = turns[tool].settings
                except Failed as error:
                    failures[tool] = str(error) or "ended without a word"
            for round_ in range(1 + Place.few(3, 2)):
                if round_ > 1 and time.monotonic() - begun > 300:
                    break
                for tool in [tool for tool in tools if tool in turns and tool not in failures]:
                    try:
                        done = turns[tool](pictures[tool], 60)
                    except Failed as error:
                        failures[tool] = str(error) or "ended without a word"
                        continue
                    rates[tool].append(done["pictures_per_s"])
                    if round_ == 0:
                        pictures[tool] = min(longest, max(pictures[tool], int(8 * rates[tool].pop())))
        finally:
            for script in turns.values():
                if script is not ours:
                    script.close()
    results.document["records"] = [r for r in results.document["records"] if any(r.get(k) != v for k, v in key.items())]  # only rates of one run are compared
    for tool in tools:
        if tool in failures:
            results.add(**key, tool=tool, **settings.get(tool, {}), failed=failures[tool])
            continue
        ratio = {}
        if tool != "millrace" and "millrace" not in failures:
            ratios = [own / other for own, other in zip(rates["millrace"], rates[tool], strict=True)]
            ratio = {"millrace_is_faster_by": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)]}
        results.add(**key, tool=tool, pictures_per_s=statistics.median(rates[tool]), spread=[min(rates[tool]), max(rates[tool])], **ratio, pictures=pictures[tool],
                    turns=len(rates[tool]), **settings[tool], wall_s=time.monotonic() - begun)


# decode


def decode(results, inputs):
    """JPEGs by one to 64 workers, and by the GPU's own decoder.

    600 pictures a worker are some six seconds where they scale: seven counts of workers, three runs each with two seconds to start, under three
    minutes. A run has at most 45 s, and after 200 s no further count begins: with the GPU's minute at most 395 s.
    """
    cores, begun = len(os.sched_getaffinity(0)), time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        folder = Path(folder)
        (folder / "decode.yaml").write_text("stages: [decode, encode]\n")
        for workers in [n for n in Place.few((1, 2, 4, 8, 16, 32, 64), (1, 2)) if n <= cores]:
            key = {"what": "decode", "workers": workers}
            if results.has(**key):
                continue
            if time.monotonic() - begun > 200:
                results.add(**key, failed="not begun: the counts before took too long")
                continue
            rates, done = [], None
            for _ in range(3):
                write_manifest(folder / "m.jsonl", inputs / "pictures", Place.few(600, 4) * workers, 0)
                done, report, _ = millrace(folder / "out", folder / "decode.yaml", "--input", folder / "m.jsonl", "--device", "cpu", "--set", f"threads.workers={workers}", timeout=45)
                shutil.rmtree(folder / "out", ignore_errors=True)
                if done.returncode != 0:
                    results.add(**key, failed=done.stderr[-800:] or f"exit code {done.returncode}")
                    break
                rates.append(report["run_window"]["pictures_per_s"])
            if done.returncode == 0:
                results.add(**key, pictures_per_s=statistics.median(rates), spread=[min(rates), max(rates)], cores=cores)
    if not results.has(what="hardware decoder"):
        done, _ = run(sys.executable, BUNDLE / "nvjpeg.py", inputs / "pictures", "--device", Place.torch_device, timeout=60,
                      env={"CUDA_VISIBLE_DEVICES": ""} if Place.rehearsal else None)
        try:
            found = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            found = {"failed": done.stderr[-800:] or f"exit code {done.returncode}"}
        results.add(what="hardware decoder", **found)


PARTS = {"correct": correct, "models": models, "e2e": e2e, "peers": peers, "decode": decode}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--inputs", type=Path, default=BUNDLE.with_name(BUNDLE.name + ".inputs"))
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    if arguments.rehearse:
        Place.rehearse()
    results = Results(arguments.out)
    print(json.dumps(results.document["machine"]), flush=True)
    for part in arguments.parts:
        print(part, flush=True)
        begun = time.monotonic()
        PARTS[part](results, arguments.inputs.resolve())
        print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)
    failures = sum(failed(record) for record in results.document["records"])
    print(f"{len(results.document['records'])} records, {failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
