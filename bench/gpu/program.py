"""Runs Millrace: writes its inputs, reads its lines and reports."""

import json
import re
from pathlib import Path

from session import BUNDLE, MODELS, run


def millrace(out, *arguments, timeout=400):
    done, wall = run(BUNDLE / "bin/millrace", "run", "--output", out, "--quiet", *arguments, timeout=timeout)
    reports = sorted(Path(out).glob("runs/*/report.json"))  # their names begin with the time
    return done, json.loads(reports[-1].read_text()) if reports else None, wall


def pictures_of(inputs):
    """The drawn pictures: in one folder, as in the bundle (front-0000.jpg), or by camera (front/0000.jpg)."""
    return sorted((inputs / "pictures").rglob("*.jpg"))


def lines(out):
    return [json.loads(line) for f in sorted(Path(out).glob("segments/[0-9]*.jsonl")) for line in f.read_text(encoding="utf-8").splitlines()]


def settings_of(out, report):
    """The settings of a run, and the values that Millrace chose for it."""
    plan = json.loads((Path(out) / "plan/plan.json").read_text())["settings"]
    lane = lane_of(report)
    return {"device": plan["device"], "precision": plan.get("precision"), "batch_size": report["batch_size"], "lanes": lane["concurrency"], "team": report["team"],
            "detect": plan["options"].get("detect"), "segment": plan["options"].get("segment"), "memory": report["memory"]}


def lane_of(report):
    return next(r for r in report["run_window"]["resources"] if r["name"] == "lane")


def write_manifest(file, pictures, count, boxes):
    """Writes `count` lines, each a picture with `boxes` boxes. The pictures repeat."""
    write_blocks(file, pictures, [(count, boxes)])


def write_blocks(file, pictures, blocks):
    """Writes the lines of each block (count, boxes), one block after another."""
    names = sorted(str(name) for name in pictures.rglob("*.jpg"))
    if not names:
        raise FileNotFoundError(f"no pictures in {pictures}")
    own = [[60 + 29 * i % 1400, 40 + 17 * i % 700, 380, 260, 0] for i in range(max(boxes for _, boxes in blocks))]
    wanted = (boxes for count, boxes in blocks for _ in range(count))
    file.write_text("".join(json.dumps({"path": names[i % len(names)], "boxes": own[:boxes]}) + "\n" for i, boxes in enumerate(wanted)))


def packages_of(inputs):
    """Name, detector and segmenter: the real architectures if `inputs` has them, else the built-in models."""
    if (inputs / "mobile_sam.pkg").is_dir():
        return "mobile_sam", inputs / "yolov8n.pkg", inputs / "mobile_sam.pkg"
    return "builtin", MODELS / "front.pkg", MODELS / "segmenter.pkg"


def side_of(package):
    return int(re.search(r"height: (\d+)", (package / "model.yaml").read_text())[1])
