#!/usr/bin/env python3
"""Makes the pictures of the README from a run: readme_pictures.py [--program build/release/apps/millrace], after `make demo`.

docs/images/overlay.jpg is a scene of the demo with what was found, docs/images/report.png what the run printed, as a terminal
shows it. Run by the Python set (`$(tools/setup.sh where)/python/bin/python`), whose fonts it uses.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parents[1]
SCENE = "front/0000.jpg"
FONTS = Path(matplotlib.get_data_path()) / "fonts/ttf"
PAPER, INK, FAINT = (24, 26, 31), (222, 224, 228), (140, 200, 140)
SIZE, MARGIN = 26, 36  # of letters and border, for screens of two pixels a point


def terminal(lines, file):
    plain, bold = (ImageFont.truetype(str(FONTS / name), SIZE) for name in ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"))
    across, down = plain.getlength("M"), round(SIZE * 1.35)
    width = round(max(len(line) for line in lines) * across) + 2 * MARGIN
    picture = Image.new("RGB", (width, len(lines) * down + 2 * MARGIN), PAPER)
    draw = ImageDraw.Draw(picture)
    for i, line in enumerate(lines):
        command = line.startswith("$ ")
        draw.text((MARGIN, MARGIN + i * down), line, FAINT if command else INK, bold if command else plain)
    picture.quantize(32).save(file, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", type=Path, default=Path("build/release/apps/millrace"))
    program = parser.parse_args().program
    pictures, out, images = ROOT / "build/demo/pictures", ROOT / "build/readme", ROOT / "docs/images"
    if not pictures.is_dir():
        sys.exit(f"{pictures} is not there: make demo draws it")
    shutil.rmtree(out, ignore_errors=True)
    images.mkdir(exist_ok=True)
    options = ["--input", "build/demo/pictures", "--output", "build/readme", "--format", "overlay,coco"]
    done = subprocess.run([str(program), "run", *options], cwd=ROOT, check=True, capture_output=True, text=True)
    shown = shlex.join(["millrace", "run", *options]).replace("build/readme", "out").replace("build/demo/", "")
    terminal([f"$ {shown}", *done.stdout.rstrip().splitlines()], images / "report.png")
    overlay = Image.open(out / "overlay" / SCENE)
    overlay.resize((1280, 720), Image.Resampling.LANCZOS).save(images / "overlay.jpg", quality=88, optimize=True)


if __name__ == "__main__":
    main()
