"""Measures Millrace on a machine with a GPU: run.sh suite PART... --out RESULTS.json [--pictures FOLDER]

Parts, each under seven minutes: `correct` (kernels against the host, sanitizers, results of the GPU against those of the CPU),
`models` (time of each package's methods by batch), `e2e` (pictures a second of the whole program). What RESULTS.json holds already is
not measured again. Needs PyTorch; drawing pictures would need OpenCV, so they are brought along.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUNDLE = Path(os.environ["MILLRACE_BUNDLE"])
MODELS = BUNDLE / "share/millrace/models"


def run(*command, timeout=400, env=None):
    begun = time.monotonic()
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}, check=False)
    return done, time.monotonic() - begun


def machine():
    import torch

    gpu = torch.cuda.get_device_properties(0)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")), "")
    driver, _ = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {"gpu": gpu.name, "multiprocessors": gpu.multi_processor_count, "memory_bytes": gpu.total_memory, "driver": driver.stdout.strip(),
            "torch": torch.__version__, "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "commit": (BUNDLE / "commit").read_text().split("\n")[0]}


class Results:
    """Records by what was measured, written after each."""

    def __init__(self, file):
        self.file = file
        self.document = json.loads(file.read_text()) if file.is_file() else {"machine": machine(), "records": []}

    def has(self, **key):
        return any(all(record.get(k) == v for k, v in key.items()) for record in self.document["records"])

    def add(self, **record):
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


def correct(results, pictures):
    if not results.has(what="kernels"):
        done, wall = run(BUNDLE / "bin/cuda_test")
        print(done.stdout[-2500:])
        results.add(what="kernels", passed=done.returncode == 0, wall_s=wall, summary=done.stdout.strip().splitlines()[-2:])
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for tool in ("memcheck", "racecheck"):
        if results.has(what="sanitizer", tool=tool):
            continue
        cases = "*prompts*,*failed batch*,*more outline*"
        done, wall = run(sanitizer, "--tool", tool, "--error-exitcode", "9", BUNDLE / "bin/cuda_test", f"-tc={cases}", timeout=200)
        results.add(what="sanitizer", tool=tool, passed=done.returncode == 0, wall_s=wall, tail=(done.stdout + done.stderr)[-600:])
    if not results.has(what="parity"):
        with tempfile.TemporaryDirectory() as folder:
            outputs = {}
            for device, more in (("cpu", ("--set", "batch.size=16")), ("cuda", ())):
                done, report, wall = millrace(f"{folder}/{device}", "--input", pictures, "--device", device, *more)
                print(done.stderr[-1500:])
                if done.returncode != 0:
                    results.add(what="parity", passed=False, device=device, exit_code=done.returncode, error=done.stderr[-800:])
                    return
                outputs[device] = (lines(f"{folder}/{device}"), report)
                print(device, report["run_window"]["pictures_per_s"], report["calls"], flush=True)
            difference = compare(outputs["cpu"][0], outputs["cuda"][0])
            calls = outputs["cuda"][1]["calls"]
            ok = difference["without_partner"] <= 0.01 * difference["objects"] and difference["mask_iou_mean"] >= 0.999
            results.add(what="parity", passed=ok, **difference, uploads=calls["uploads"], waits=calls["waits"], downloads=calls["downloads"])


# models


def models(results, _pictures):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def time_ms(call, repeats=30):
        for _ in range(5):
            call()
        times = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times), statistics.quantiles(times, n=10)[8]

    for package in sorted(MODELS.glob("*.pkg")):
        description = (package / "model.yaml").read_text()
        side = int(re.search(r"height: (\d+)", description)[1])
        for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            with torch.inference_mode():
                module = torch.jit.load(str(package / "model.ts")).to("cuda", dtype).eval()
                for batch in (1, 4, 16, 64):
                    key = {"what": "model", "package": package.stem, "precision": precision, "batch": batch}
                    if results.has(**key):
                        continue
                    images = torch.rand(batch, 3, side, side, device="cuda", dtype=dtype) * 255
                    if "task: detect" in description:
                        median, p90 = time_ms(lambda module=module, images=images: module(images))
                        results.add(**key, method="forward", median_ms=median, p90_ms=p90, pictures_per_s=1000 * batch / median)
                        continue
                    median, p90 = time_ms(lambda module=module, images=images: module.encode(images))
                    embedding = module.encode(images)
                    boxes = torch.tensor([[40.0, 60.0, 200.0, 260.0]], device="cuda").repeat(10 * batch, 1)
                    index = torch.arange(batch, device="cuda").repeat_interleave(10)
                    decode, decode_p90 = time_ms(lambda module=module, e=embedding, b=boxes, i=index: module.decode(e, b, i))
                    results.add(**key, method="encode", median_ms=median, p90_ms=p90, pictures_per_s=1000 * batch / median, decode_10_boxes_ms=decode,
                                decode_p90_ms=decode_p90)


# e2e


def e2e(results, pictures):
    names = sorted(str(f.relative_to(pictures)) for f in Path(pictures).rglob("*.jpg"))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        listed = Path(folder) / "list.txt"
        settings = [("fp32", {"batch.size": 16}), ("fp32", {"batch.size": 16, "threads.lanes": 1}), ("fp32", {"batch.size": 32, "threads.lanes": 4}),
                    ("fp32", {"batch.size": 16, "segment.box_batch": 64, "segment.image_batch": 16})]
        for precision, options in settings:
            key = {"what": "e2e", "models": "builtin", "precision": precision, "options": json.dumps(options)}
            if results.has(**key):
                continue
            rates, report = [], None
            for repeat in range(3):
                listed.write_text("".join(f"{pictures}/{name}\n" for _ in range(20 + 60 * (repeat > 0)) for name in names))
                out = f"{folder}/out"
                done, report, wall = millrace(out, "--input", listed, "--device", "cuda", *[x for k, v in options.items() for x in ("--set", f"{k}={v}")])
                shutil.rmtree(out, ignore_errors=True)
                if done.returncode != 0:
                    results.add(**key, failed=done.stderr[-800:])
                    break
                if repeat > 0:
                    rates.append(report["run_window"]["pictures_per_s"])
            if not rates:
                continue
            items = report["items"]
            results.add(**key, pictures_per_s=statistics.median(rates), rates=rates, boxes_per_picture=items["objects"] / items["ok"], wall_s=wall,
                        verdict=report["verdict"]["sentence"], resources=report["run_window"]["resources"], calls=report["calls"],
                        cores_busy=report["run_window"]["cores_busy"])
            print("   ", report["verdict"]["sentence"], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=["correct", "models", "e2e"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pictures", type=Path, default=BUNDLE / "pictures")
    arguments = parser.parse_args()
    results = Results(arguments.out)
    print(json.dumps(results.document["machine"]), flush=True)
    for part in arguments.parts:
        print(part, flush=True)
        {"correct": correct, "models": models, "e2e": e2e}[part](results, arguments.pictures.resolve())
    failed = [r for r in results.document["records"] if r.get("passed") is False or "failed" in r]
    print(f"{len(results.document['records'])} records, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
