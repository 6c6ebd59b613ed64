"""Draws the figures of compare.py: plot.py OUT.png QUIET.json [BUSY.json]

Pictures per second against the boxes of a picture: medians, with bars from the slowest to the fastest turn.
"""

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

# Name in the JSON, name for people, colour, line.
SERIES = (
    ("millrace, bf16", "Millrace, segmenter in bf16", "#12a150", "-"),
    ("millrace", "Millrace", "#0b6e4f", "-"),
    ("tuned, tcmalloc, passive", "tuned Python script, tcmalloc, passive threads", "#e08a1e", "--"),
    ("tuned, tcmalloc", "tuned Python script, tcmalloc", "#c44536", "--"),
    ("script, tcmalloc", "usual Python script, tcmalloc", "#5b6b8c", "--"),
    ("script", "usual Python script", "#9aa5b8", ":"),
)


def draw(axes, record):
    boxes = sorted(map(int, record["seconds_per_picture"]))
    for name, label, colour, line in SERIES:
        if name not in record["seconds_per_picture"][str(boxes[0])]:
            continue  # this CPU has no bf16, or an older file has no passive threads
        turns = [record["seconds_per_picture"][str(y)][name] for y in boxes]
        speeds = [1 / statistics.median(times) for times in turns]
        spread = [[s - 1 / max(times) for s, times in zip(speeds, turns)], [1 / min(times) - s for s, times in zip(speeds, turns)]]
        axes.errorbar(boxes, speeds, yerr=spread, label=label, color=colour, linestyle=line, marker="o", markersize=4, capsize=3, linewidth=1.8)
    axes.set_xscale("log")
    axes.set_xticks(boxes, [str(y) for y in boxes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("boxes per picture")
    axes.grid(alpha=0.3)
    axes.set_title("with a busy process" if record["busy_process"] else "no other process", fontsize=10)


def main():
    out, *files = sys.argv[1:]
    records = [json.loads(Path(file).read_text()) for file in files]
    figure, all_axes = pyplot.subplots(1, len(records), figsize=(max(7.6, 4.6 * len(records) + 0.8), 4.5), sharey=True, squeeze=False)
    for axes, record in zip(all_axes[0], records):
        draw(axes, record)
    all_axes[0][0].set_ylabel("pictures per second")
    cpu = records[0]
    if any(record["cpu"] != cpu["cpu"] for record in records):
        sys.exit("the files are of different CPUs; draw one plot for each")
    figure.suptitle(f"YOLOv8n + MobileSAM, {cpu['cores']} cores of {cpu['cpu']}\n{cpu['instructions']}", fontsize=10)
    handles, labels = all_axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=2, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    main()
