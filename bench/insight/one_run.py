"""One real run of the program: its settings, what surrounds it, and what its report says."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import scenery
import surroundings

ROOT = Path(__file__).resolve().parents[2]
DETECT = "[decode, preprocess, detect, encode]"
SEGMENT = "[decode, preprocess, detect, segment, postprocess, encode]"
ONE, TWO = (0,), (0, 1)
IN_MEMORY = "memory"  # of `input.source`: decodes each picture once


@dataclass(frozen=True)
class Setup:
    """A run. The boxes of a manifest make a share of the pictures skip the detector or the segmenter."""

    pictures: int
    stages: str = SEGMENT
    team: int = 1
    boxes: int = 5  # of each picture: the detector keeps as many
    form: str = "plain"
    cheaper: float = 0  # share of the pictures that are not progressive
    skip_detect: float = 0  # share of the pictures with boxes in the manifest
    skip_segment: float = 0  # share of the pictures without an object
    formats: tuple = ()
    source: str = "files"
    options: dict = field(default_factory=dict)  # for --set
    cores: tuple = TWO
    hogs: int = 0
    hog_nice: int = 0
    quota: float = 0  # cores
    disk: dict = field(default_factory=dict)  # limits of a slow disk, for the pictures or the output
    output_on_disk: bool = False
    latency_s: float = 0  # of opening a picture
    interval_s: float = 0  # between two names on stdin

    def needs_root(self):
        return bool(self.quota or self.disk)


class Runner:
    """Runs setups in a work folder, and removes everything at the end."""

    def __init__(self, program, work, photographs=None, scale=1.0):
        self.program, self.work, self.scale = program, work, scale
        self.made = scenery.prepare(work / "pictures", photographs)
        self.stack = contextlib.ExitStack()
        self.disk, self.library = None, None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stack.close()

    def slow_disk(self):
        if self.disk is None:
            self.disk = surroundings.SlowDisk(self.work)
            self.stack.callback(self.disk.end)
        return self.disk

    def latency(self):
        if self.library is None:
            self.library = surroundings.latency_library(self.work)
        return self.library

    def input(self, setup, folder):
        """The pictures and a manifest or list of them."""
        count = max(12, round(setup.pictures * self.scale))
        paths = scenery.links(folder / "pictures", self.made, setup.form, count, setup.cheaper)
        if setup.disk and not setup.output_on_disk:
            shutil.rmtree(self.disk.folder / "pictures", ignore_errors=True)
            shutil.copytree(folder / "pictures", self.disk.folder / "pictures")
            paths = [self.disk.folder / "pictures" / path.name for path in paths]
        if setup.interval_s:
            return "-", paths
        own = [[60 + 29 * i % 320, 40 + 17 * i % 440, 380, 260, 0] for i in range(setup.boxes)]
        lines = []
        for number, path in enumerate(paths):
            line = {"path": str(path)}
            for share, boxes in ((setup.skip_detect, own), (setup.skip_segment, [])):
                if int((number + 1) * share) > int(number * share):
                    line["boxes"] = boxes
            lines.append(json.dumps(line))
        manifest = folder / "pictures.jsonl"
        manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(manifest), paths

    def words(self, setup, source, output):
        values = {
            "threads.team": setup.team,
            "gate.frames": 16,
            # With nearly every box, each picture has the same number of boxes.
            "detect.conf": 0.0001,
            "detect.max_detections": setup.boxes,
            "input.source": setup.source,
        }
        if setup.skip_segment:
            values["detect.skip_with_boxes"] = "no"
        recipe = output.parent / "recipe.yaml"
        recipe.write_text(f"stages: {setup.stages}\n", encoding="utf-8")
        models = ["--detector", ROOT / "models/builtin/front.pkg"]
        if setup.stages == SEGMENT:
            models += ["--segmenter", ROOT / "models/builtin/segmenter.pkg"]
        words = [self.program, "run", recipe, "--input", source, "--output", output, "--quiet", "--device", "cpu", *models]
        if setup.formats:
            words += ["--format", ",".join(setup.formats)]
        for name, value in {**values, **setup.options}.items():
            words += ["--set", f"{name}={value}"]
        return [str(word) for word in words]

    def run(self, setup, keep=None):
        """Runs the program once. With `keep`, the folder of results stays there."""
        folder = self.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            if setup.disk:
                self.slow_disk().slow_down({}, False)
            source, paths = self.input(setup, folder)
            output = folder / "out"
            if setup.disk:
                self.disk.slow_down(setup.disk, setup.output_on_disk)
                stack.callback(self.disk.free)
                if setup.output_on_disk:
                    shutil.rmtree(self.disk.folder / "run", ignore_errors=True)
                    output = self.disk.folder / "run/out"
                    output.parent.mkdir()
            quota = surroundings.Quota(setup.quota) if setup.quota else None
            if quota:
                stack.callback(quota.end)
            hogs = surroundings.Hogs(setup.hogs, setup.hog_nice, setup.cores) if setup.hogs else None
            if hogs:
                stack.callback(hogs.end)
            environment = dict(os.environ)
            if setup.latency_s:
                environment |= {"LD_PRELOAD": str(self.latency()), "INSIGHT_LATENCY_S": str(setup.latency_s)}

            def start():
                os.sched_setaffinity(0, setup.cores)
                if quota:
                    quota.join()

            begin, own_s, busy_s = time.monotonic(), own_and_children_s(), surroundings.machine_busy_s()
            busy_s -= hogs.all_cpu_s() if hogs else 0
            process = subprocess.Popen(
                self.words(setup, source, output), env=environment, preexec_fn=start, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            writer = threading.Thread(target=write_names, args=(process.stdin, paths, setup.interval_s), daemon=True)
            writer.start()
            error = process.stderr.read()
            if process.wait() != 0:
                sys.exit(f"real.py: the program failed with {process.returncode}: {error}")
            writer.join()
            end = time.monotonic()
            busy_s = surroundings.machine_busy_s() - busy_s - (hogs.all_cpu_s() if hogs else 0)
            strangers = (busy_s - own_and_children_s() + own_s) / (end - begin)
            (file,) = output.glob("runs/*/report.json")
            report = json.loads(file.read_text(encoding="utf-8"))
            result = measured(report)
            result["load"] = round(os.getloadavg()[0], 2)
            result["strangers"] = round(strangers, 3)
            if hogs:
                cores = hogs.cores_since(end - report["run_window"]["wall_s"])
                result["hog_cores"] = cores and round(cores, 3)
            if keep is not None:
                shutil.rmtree(keep, ignore_errors=True)
                shutil.copytree(output, keep)
        return result


def own_and_children_s():
    """CPU seconds of this script and of the programs that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def write_names(stream, paths, interval_s):
    """Writes the names of pictures to the program, one in each interval. Without an interval, it writes nothing."""
    begin = time.monotonic()
    with contextlib.suppress(BrokenPipeError), stream:
        for number, path in enumerate(paths if interval_s else []):
            time.sleep(max(0.0, begin + number * interval_s - time.monotonic()))
            stream.write(f"{path}\n")
            stream.flush()


def measured(report):
    """The figures of a report that the proofs use."""
    if report["items"]["failed"]:
        sys.exit(f"real.py: pictures failed: {report['items']['failed']}")
    window, verdict = report["run_window"], report["verdict"]
    stages = {}
    for resource in window["resources"]:
        for part in resource.get("parts") or [resource]:
            items = max(part["items"], 1)
            stages[part["name"]] = {
                "ms": round(1e3 * part["busy_s"] / items, 2),
                "core_ms": None if part["core_s"] is None else round(1e3 * part["core_s"] / items, 2),
                "busy": round(part["utilisation"], 3),
            }
    return {
        "pictures_per_s": window["pictures_per_s"],
        "wall_s": round(window["wall_s"], 2),
        "objects": report["items"]["objects"] / max(report["items"]["ok"], 1),
        "named": verdict["bottleneck"],
        "sentence": verdict["sentence"],
        "other_cores": verdict["other_cores"],
        "cores_busy": round(verdict["cores_busy"], 3),
        "without_credits": round(verdict["source_without_credits"], 3),
        "stages": stages,
    }
