"""Prints tables and draws a plot of the suite's results: tables.py RESULTS.json [--images docs/images] > tables.md

Next to the results are the roof of an H200 and predictions for compiled models.
The roof is the time in which its memory moves the bytes that the kernels read and write; their FLOP take less.
A prediction is a range: at least the rate of the kernels that were measured, at most that of kernels after named repairs.
"""

import argparse
import json
import statistics
from pathlib import Path

import matplotlib
from costs import BYTES_PER_S, COMPILED_MS, MEGABYTES

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def roof_s(engine, package, method):
    """Seconds of a picture, or of a box of a decoder, at the roof of memory. None if its bytes were not counted."""
    megabytes = MEGABYTES[engine].get((package, method))
    return None if megabytes is None else 1e6 * megabytes / BYTES_PER_S


def roof_rate(engine, boxes):
    """Pictures per second if the GPU runs only the models, at their roof."""
    return 1 / (roof_s(engine, "yolov8n", "forward") + roof_s(engine, "mobile_sam", "encode") + boxes * roof_s(engine, "mobile_sam", "decode"))


def predicted_rates(boxes):
    """Lowest and highest predicted pictures per second of compiled models, if the GPU runs only the models."""
    return [16e3 / (COMPILED_MS["yolov8n", "forward"][limit] + COMPILED_MS["mobile_sam", "encode"][limit] + boxes / 10 * COMPILED_MS["mobile_sam", "decode"][limit]) for limit in (1, 0)]


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def of(records, what):
    return [record for record in records if record["what"] == what]


def verdict(found):
    if not found:
        return "not run"
    bad = [record for record in found if not record.get("passed")]
    return "passed" if not bad else "FAILED (" + "; ".join(f"{r['engine']}: " * ("engine" in r) + (r.get("missed") or "see the JSON") for r in bad) + ")"


def correct(records):
    lines = []
    for name, found in [("kernels against the host", of(records, "kernels"))] + [
            (f"{tool}", [r for r in of(records, "sanitizer") if r["tool"] == tool]) for tool in ("memcheck", "racecheck")]:
        cases = f", {found[0]['cases']} cases" if found and "cases" in found[0] else ""
        lines.append(f"- {name}: {verdict(found)}{cases}")
    for what, name in (("parity", "the built-in models in fp32 against the CPU"), ("precision", "the default precision against fp32, masks for the same boxes"),
                       ("two devices", "two devices on one GPU against one, in fp32"),
                       ("same bytes", "the same lines with 1 to 3 lanes, CUDA graphs or plain calls, and after an interruption")):
        found = of(records, what)
        figures = found[0] if found and found[0].get("objects") else None
        lines.append(f"- {name}: {verdict(found)}" + (
            f"; {figures['objects']} objects, {figures['without_partner']} without a partner, boxes off by at most {figures['largest_box_difference']:.3f} pixel, "
            f"mask IoU {figures['mask_iou_mean']:.5f} in the mean, {figures['mask_iou_p1']:.5f} at the 1st percentile, minimum {figures['mask_iou_min']:.5f}" if figures else "") + (
            f"; box AP50 against the boxes of fp32 {figures['box_ap50_loss_points']:.2f} points lost" if figures and "box_ap50_loss_points" in figures else ""))
    lines += [f"- {part['part']}: ended early, see the JSON" for part in of(records, "part")]
    return "\n".join(lines) + "\n"


def models(records):
    rows = []
    for r in of(records, "model"):
        if "ms_each" not in r:
            rows.append([r["package"], r["method"], r["precision"], r["batch"], "", "", "", "out of memory" if "out_of_memory" in r else "FAILED", ""])
            continue
        roof = roof_s("torchscript", r["package"], r["method"]) if r["precision"] in ("bf16", "fp16") else None
        rows.append([r["package"], r["method"], r["precision"], r["rows"], f"{1000 * r['ms_each']:.1f}", f"{r['tflop_per_s']:.1f}", percent(r["of_roof"]), r["roof_of"].split(":")[0],
                     f"{1e6 * roof:.0f}" if roof else ""])
    return table(["package", "method", "precision", "rows a call", "us a row", "TFLOP/s", "of the roof", "bound by", "us at the roof of an H200"], rows)


def levers(records):
    rows = []
    for r in of(records, "lever"):
        if "ms" not in r:
            rows.append([r["package"], r["method"], r["options"], "failed", "", "", ""])
            continue
        rows.append([r["package"], r["method"], r["options"], r["rows"], f"{r['ms']:.2f} ({r['ms_spread'][0]:.2f} to {r['ms_spread'][1]:.2f})", f"{1000 * r['ms'] / r['rows']:.0f}",
                     f"{r['host_ms']:.2f}", f"{r['rms']:.1e}"])
    return table(["package", "method", "way", "rows a call", "ms a call", "us a row", "ms of the host to launch it", "rms from fp32"], rows)


def dram(records):
    rows = [[r["package"], r["method"], r["batch"], *(("failed", "", "", "") if "kernels_ms" not in r else (
             f"{r['kernels_ms']:.2f}", f"{r['dram_bytes'] / r['batch'] / 1e6:.0f}", f"{r['dram_bytes'] / r['kernels_ms'] / 1e9:.2f}", r["launches"]))] for r in of(records, "dram")]
    return table(["package", "method", "rows", "ms of its kernels", "MB a row", "TB/s", "launches"], rows)


def e2e(records):
    rows = []
    for r in of(records, "e2e"):
        if "pictures_per_s" not in r:
            rows.append([r["boxes_per_picture"], r["source"], r.get("engine", "torchscript"), r.get("options", ""), "failed", *[""] * 6])
            continue
        compiled = "engine" in r
        run = r.get("run", r)  # older records are of a run each
        several = len({boxes for _, boxes in run.get("blocks", [])}) > 1
        # Those of a run with several numbers of boxes are of none of them.
        of_run = ["", "", ""] if several else [percent(run["gpu_demand"]), f"{run['cores_busy']:.1f}", run["verdict"].split(":")[0]]
        lanes = statistics.median(window["lanes_busy"] for window in r["windows"]) if "windows" in r else None
        rows.append([r["boxes_per_picture"], r["source"], r.get("engine", "torchscript"), r.get("options", ""), f"{r['pictures_per_s']:.0f} ({r['spread'][0]:.0f} to {r['spread'][1]:.0f})",
                     "{:.0f} to {:.0f}".format(*predicted_rates(r["boxes_per_picture"])) if compiled else "", f"{roof_rate('compiled' if compiled else 'torchscript', r['boxes_per_picture']):.0f}",
                     "" if lanes is None else f"{lanes:.1f} of {run['settings']['lanes']}", *of_run])
    return table(["boxes a picture", "source", "engine", "options", "pictures/s", "predicted", "roof of the models", "lanes busy", "GPU demand", "cores busy", "verdict"], rows)


def peers(records):
    rows = []
    for r in of(records, "peer"):
        if "pictures_per_s" not in r:
            rows.append([r["tool"], "failed", "", "", ""])
            continue
        rows.append([r["tool"] + ", first turn" * r.get("only_first_turns", False), f"{r['pictures_per_s']:.1f} ({r['spread'][0]:.1f} to {r['spread'][1]:.1f})",
                     f"{r['millrace_is_faster_by']:.1f} ({r['ratio_spread'][0]:.1f} to {r['ratio_spread'][1]:.1f})" if "millrace_is_faster_by" in r else "",
                     r["settings"].get("compiled", ""), r["settings"].get("imaging", "")])
    return table(["", "pictures/s", "Millrace is faster by", "compiled", "pictures read by"], rows)


def decode(records):
    rows = [[r["workers"], f"{r['pictures_per_s']:.0f} ({r['spread'][0]:.0f} to {r['spread'][1]:.0f})" if "pictures_per_s" in r else "failed"] for r in of(records, "decode")]
    return table(["workers", "JPEGs/s"], rows) + "".join(hardware(r) for r in of(records, "hardware decoder"))


def hardware(r):
    if "pictures_per_s" not in r:
        return f"\nThe GPU's own JPEG decoder: {'absent, ' + r['absent'] if 'absent' in r else 'failed'}\n"
    return (f"\nThe GPU's own JPEG decoder: {r['engines']} engines of {r['cores_per_engine']} cores, {r['pictures_per_s']:.0f} JPEGs/s, "
            f"off from {r['reference']} by {r['mean_difference']:.2f} of 255 in the mean and {r['max_difference']} at most\n")


def look(records):
    rows = []
    for r in of(records, "look"):
        shown = [f"{r['value']:.4g} ({r['spread'][0]:.4g} to {r['spread'][1]:.4g})" if "spread" in r else f"{r['value']:.4g}", r["unit"]] if "value" in r else [
            f"absent, {r['absent']}" if "absent" in r else "failed", ""]
        rows.append([r["method"], r.get("options", ""), *shown, f"{r['limit']:.3g}: {r['limit_of']}" if "limit" in r else ""])
    return table(["what", "", "median (spread)", "unit", "floor of a time, roof of a rate"], rows)


def plot(records, file):
    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120)
    boxes = range(1, 51)
    low, high = zip(*(predicted_rates(b) for b in boxes), strict=True)
    axes.fill_between(boxes, low, high, color="0.88", label="compiled models, predicted")
    for engine, line in (("compiled", "--"), ("torchscript", ":")):
        axes.plot(boxes, [roof_rate(engine, b) for b in boxes], color="0.6", linestyle=line, label=f"roof of the models, {engine}")
    measured = [r for r in of(records, "e2e") if "options" not in r and "pictures_per_s" in r]
    for engine in sorted({r.get("engine", "") for r in measured}):
        for source, style in (("memory", "o-"), ("files", "s-")):
            points = sorted((r["boxes_per_picture"], r["pictures_per_s"], r["spread"]) for r in measured if (r["source"], r.get("engine", "")) == (source, engine))
            if points:
                x, y, spread = zip(*points, strict=True)
                name = {"memory": "decoded pictures in memory", "files": "JPEG files"}[source]
                axes.errorbar(x, y, [[b - low for b, (low, _) in zip(y, spread, strict=True)], [high - b for b, (_, high) in zip(y, spread, strict=True)]],
                              fmt=style, capsize=3, label=f"{name}, {engine or 'torchscript'}")
    axes.set(xlabel="boxes a picture", ylabel="pictures/s", ylim=(0, None), xlim=(0, 51))
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--images", type=Path, default=Path(__file__).resolve().parents[2] / "docs/images")
    arguments = parser.parse_args()
    document = json.loads(arguments.results.read_text())
    machine, records = document["machine"], document["records"]
    commits = sorted({r["commit"][:7] + ("-dirty" if r["commit"].endswith("-dirty") else "") for r in records})
    print(f"{machine['gpu']}, {machine['cores']} cores ({machine['cpu']}), PyTorch {machine['torch']}, commit {', '.join(commits)}; {arguments.results.name}\n")
    for part in (look, correct, models, levers, dram, e2e, peers, decode):
        print(part(records))
    plot(records, arguments.images / "gpu-e2e.png")


if __name__ == "__main__":
    main()
