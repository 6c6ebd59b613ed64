"""Measures the CPU time that the host needs for a picture when a GPU does the rest: bench/host.py [--out FILE.json]

Runs the program with a simulated engine (bench/host/h200.yaml).
Models, resizing and outlines compute nothing, but take the time that a GPU would take.
Each picture has --boxes boxes, whose masks have 960 runs.

Counts CPU time by thread, in two ways: with JPEG files, and with decoded pictures in memory.
The difference of the workers' time is the time of decoding.
Target T5 limits the CPU time without decoding to 2 ms per picture. The exit code is 1 if T5 is missed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import cv2

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "models/demo"), str(ROOT / "bench/gpu")]
import scenes  # noqa: E402
from processor import processor  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("MILLRACE_PROGRAM", ROOT / "build/release/apps/millrace"))
TARGET_MS = 2.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def draw(folder, count):
    """Writes JPEGs of 1920 x 1080 at quality 90 and returns their paths."""
    names = []
    for seed in range(count):
        scene, _ = scenes.draw("front", 900_000 + seed, "held_out")
        names.append(folder / f"{seed}.jpg")
        cv2.imwrite(str(names[-1]), scene.picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])
    return names


def write_manifest(file, names, pictures, boxes):
    """Writes `pictures` lines, each a picture with `boxes` boxes. The pictures of `names` are repeated."""
    width, height = scenes.WIDTH, scenes.HEIGHT
    own = [[100 + 150 * i % (width - 500), 60 + 70 * i % (height - 300), 400, 250, 0] for i in range(boxes)]
    lines = (json.dumps({"path": str(names[i % len(names)]), "boxes": own}) for i in range(pictures))
    file.write_text("\n".join(lines) + "\n")


def thread_seconds(pid):
    """(name, CPU seconds so far) of each thread, by its id."""
    seconds = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            text = (task / "stat").read_text()
        except OSError:
            continue  # the thread has ended
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        seconds[int(task.name)] = (name.rstrip("0123456789").strip(), (int(fields[11]) + int(fields[12])) * TICK_S)
    return seconds


def run(manifest, folder, table, source):
    """Runs the program once: pictures per second, and CPU ms per picture, in total and by thread."""
    command = [PROGRAM, "run", "--input", manifest, "--output", folder / "out", "--engine", f"simulated:{table}", "--source", source, "-q",
               "--detector", ROOT / "models/builtin/front.pkg", "--segmenter", ROOT / "models/builtin/segmenter.pkg", "--set", "detect.skip_with_boxes=no"]
    seen = {}
    with subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            try:
                seen.update(thread_seconds(process.pid))
            except OSError:
                pass
            time.sleep(0.02)
        error = process.stderr.read()
    if process.returncode != 0:
        sys.exit(f"host: the program failed: {error}")
    (report,) = [json.loads(file.read_text()) for file in (folder / "out/runs").glob("*/report.json")]
    window, items = report["run_window"], report["items"]
    by_thread = {}
    for name, seconds in seen.values():
        by_thread[name] = by_thread.get(name, 0) + seconds * 1e3 / items["ok"]
    rate = window["pictures_per_s"]
    return {"pictures_per_s": rate, "cpu_ms": window["cpu_s"] / window["committed"] * 1e3, "by_thread_ms": by_thread, "objects": items["objects"] / items["ok"]}


def median_of(runs):
    names = {name for one in runs for name in one["by_thread_ms"]}
    return {
        "pictures_per_s": statistics.median(one["pictures_per_s"] for one in runs),
        "cpu_ms": statistics.median(one["cpu_ms"] for one in runs),
        "cpu_ms_spread": [min(one["cpu_ms"] for one in runs), max(one["cpu_ms"] for one in runs)],
        "by_thread_ms": {name: round(statistics.median(one["by_thread_ms"].get(name, 0) for one in runs), 4) for name in sorted(names)},
    }


def by_step(memory, files):
    """CPU ms per picture from JPEG, by step.

    The rest is the work of threads that live too short for thread_seconds() to see them.
    """
    thread, decoded = files["by_thread_ms"], memory["by_thread_ms"]
    encode = decoded.get("worker", 0)
    steps = {"source": thread.get("source", 0), "read": thread.get("read", 0), "decode": thread.get("worker", 0) - encode, "lane": thread.get("lane", 0), "encode": encode,
             "commit": thread.get("commit", 0)}
    return {**steps, "rest": files["cpu_ms"] - sum(steps.values())}


def machine():
    return {**processor(), "cores": len(os.sched_getaffinity(0)), "kernel": os.uname().release}


def commit():
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return head + ("-dirty" if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pictures", type=int, default=3000)
    parser.add_argument("--boxes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--table", type=pathlib.Path, default=ROOT / "bench/host/h200.yaml")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        names = draw(folder, 16)
        manifest = folder / "pictures.jsonl"
        results = {}
        for source, share in (("memory", 1), ("files", 4)):  # decoding takes most of the time, so fewer pictures are enough
            write_manifest(manifest, names, arguments.pictures // share, arguments.boxes)
            runs = []
            for _ in range(arguments.repeats + 1):
                runs.append(run(manifest, folder, arguments.table, source))
                subprocess.run(["rm", "-rf", str(folder / "out")], check=True)
            results[source] = median_of(runs[1:])  # the first warms up
    memory, files = results["memory"], results["files"]
    figures = {
        "what": "host", "boxes_per_picture": arguments.boxes, "table": arguments.table.name, **results,
        "T5_ms": memory["cpu_ms"], "decode_ms": files["cpu_ms"] - memory["cpu_ms"],
        "host_bound_pictures_per_s": {str(cores): round(cores * 1e3 / files["cpu_ms"]) for cores in (8, 16, 32)},
        "host_bound_without_decoding": {str(cores): round(cores * 1e3 / memory["cpu_ms"]) for cores in (8, 16, 32)},
        "by_step_ms": by_step(memory, files), "pictures": arguments.pictures, "repeats": arguments.repeats, "machine": machine(), "commit": commit(),
    }
    print(json.dumps(figures, indent=2))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"host: T5 {'holds' if memory['cpu_ms'] <= TARGET_MS else 'is missed'}: {memory['cpu_ms']:.2f} ms of a core outside decoding (at most {TARGET_MS})")
    sys.exit(memory["cpu_ms"] > TARGET_MS)


if __name__ == "__main__":
    main()
