#!/usr/bin/env python3
"""Makes the pictures of the README and of docs/report.md from a run. Run it after `make demo`.

    readme_pictures.py [--program build/release/apps/millrace]

It writes:

    docs/images/overlay.jpg      a scene of the demo with the objects found
    docs/images/report.png       the report of the run as a terminal shows it, without the path of the temporary folder
    docs/images/report_page.png  report.html of the run, down to the time of the stages

Needs the Python set, whose fonts it uses, and the browser set: `$(tools/setup.sh where)/python/bin/python tools/readme_pictures.py`.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parents[1]
SCENE = "front/0000.jpg"
COMMAND = ["run", "--input", "pictures", "--output", "out", "--format", "overlay,coco"]
PAGE_WIDTH = 1280
FONTS = Path(matplotlib.get_data_path()) / "fonts/ttf"
PAPER, INK, COMMAND_INK = (24, 26, 31), (222, 224, 228), (140, 200, 140)
SIZE, MARGIN = 26, 36  # pixels of the font and the border, for screens with two pixels a point


def terminal(lines, file):
    plain, bold = (ImageFont.truetype(str(FONTS / name), SIZE) for name in ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"))
    across, down = plain.getlength("M"), round(SIZE * 1.35)
    width = round(max(len(line) for line in lines) * across) + 2 * MARGIN
    picture = Image.new("RGB", (width, len(lines) * down + 2 * MARGIN), PAPER)
    draw = ImageDraw.Draw(picture)
    for i, line in enumerate(lines):
        command = line.startswith("$ ")
        draw.text((MARGIN, MARGIN + i * down), line, COMMAND_INK if command else INK, bold if command else plain)
    picture.quantize(32).save(file, optimize=True)


def top_of_page(file, picture):
    sys.path.append(str(ROOT / "tests/apps"))
    import browser

    with browser.chromium() as chromium:
        page = chromium.new_page(viewport={"width": PAGE_WIDTH, "height": 2000}, color_scheme="light")
        page.goto(file.as_uri())
        last = page.get_by_role("region", name="Where the time went").bounding_box()
        page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": PAGE_WIDTH, "height": last["y"] + last["height"] + 20})
    Image.open(picture).convert("RGB").quantize(128).save(picture, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/apps/millrace")
    program = parser.parse_args().program.resolve()
    pictures, images = ROOT / "build/demo/pictures", ROOT / "docs/images"
    if not pictures.is_dir():
        sys.exit(f"{pictures} does not exist; run 'make demo', which draws it")
    images.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "pictures").symlink_to(pictures)
        done = subprocess.run([str(program), *COMMAND], cwd=folder, check=True, capture_output=True, text=True)
        shown = done.stdout.rstrip().replace(f"{folder}/", "")
        terminal([f"$ millrace {' '.join(COMMAND)}", *shown.splitlines()], images / "report.png")
        top_of_page(next((folder / "out/runs").glob("*/report.html")), images / "report_page.png")
        overlay = Image.open(folder / f"out/overlay/{SCENE}.jpg")
        overlay.resize((1280, 720), Image.Resampling.LANCZOS).save(images / "overlay.jpg", quality=88, optimize=True)


if __name__ == "__main__":
    main()
