"""Pictures with broken tiles or strips: with tiles.bad=skip, only the broken pixels have no class."""

import io
import json
import signal
import struct
import subprocess
import time
import zlib

import numpy
import program
import small_semantic
from PIL import Image
from program import Case

NONE, LZW, JPEG, DEFLATE = 1, 5, 7, 8
HOLE = 255
ZERO = 120  # becomes 0 when the pixels are normalised


def encoded(pixels, compression):
    """The data of one tile or strip."""
    if compression == DEFLATE:
        return zlib.compress(pixels.tobytes())
    file = io.BytesIO()
    if compression == JPEG:
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        return file.getvalue()
    Image.fromarray(pixels).save(file, "TIFF", compression="tiff_lzw", tiffinfo={278: len(pixels)})
    with Image.open(file) as opened:
        ((at,), (size,)) = opened.tag_v2[273], opened.tag_v2[279]
    return file.getvalue()[at : at + size]


def write_tiff(path, pixels, sides, compression, broken=()):
    """Writes tiles of these sides, or strips if a side is as wide as the picture. Returns the rectangles of broken parts."""
    height, width, _ = pixels.shape
    tiled = sides[1] != width
    parts, rectangles = [], []
    for top in range(0, height, sides[0]):
        for left in range(0, width, sides[1]):
            part = pixels[top : top + sides[0], left : left + sides[1]]
            if tiled:
                part = numpy.pad(part, ((0, sides[0] - part.shape[0]), (0, sides[1] - part.shape[1]), (0, 0)))
            data = encoded(numpy.ascontiguousarray(part), compression)
            if len(parts) in broken:
                data = b"x" * 20 + data[20:]
                rectangles.append((slice(top, top + sides[0]), slice(left, left + sides[1])))
            parts.append(data)
    at = 8
    offsets = []
    for part in parts:
        offsets.append(at)
        at += len(part) + len(part) % 2
    lists = at  # of offsets and sizes, and the bits of three samples
    directory = lists + 8 * len(parts) + 6
    fields = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, directory - 6), (259, 3, 1, compression), (262, 3, 1, 6 if compression == JPEG else 2), (277, 3, 1, 3)]
    for tag, value in ((322, sides[1]), (323, sides[0])) if tiled else ((278, sides[0]),):
        fields.append((tag, 4, 1, value))
    for tag, begin in zip((324, 325) if tiled else (273, 279), (lists, lists + 4 * len(parts))):
        fields.append((tag, 4, len(parts), begin))
    with open(path, "wb") as file:
        file.write(struct.pack("<2sHI", b"II", 42, directory))
        for part in parts:
            file.write(part + b"\0" * (len(part) % 2))
        file.write(struct.pack(f"<{2 * len(parts)}I3H", *offsets, *map(len, parts), 8, 8, 8))
        file.write(struct.pack("<H", len(fields)))
        for field in sorted(fields):
            file.write(struct.pack("<HHII", *field))
        file.write(bytes(4))
    return rectangles


class Holes(Case):
    def setUp(self):
        super().setUp()
        made = small_semantic.make(self.folder)
        self.package = program.copy_package(
            made, self.folder / "zero.pkg", lambda text: text.replace("0.0039215686274509803", "0.015625").replace("[0.5, 0.5, 0.5]", "[1.875, 1.875, 1.875]"))
        (self.folder / "in").mkdir()

    def words(self, picture, out, *settings):
        settings = (f"semantic.model={self.package}", "tiles.overlap=0.5", *settings)
        return [str(word) for word in ("run", program.ROOT / "configs/tiled.yaml", "--input", picture, "--output", out, "--format", "png,tiff",
                                       *(word for setting in settings for word in ("--set", setting)))]

    def labels(self, out, name):
        """The labels of the PNG, after a check that the first page of the pyramid has the same."""
        with Image.open(out / f"labels/{name}.png") as png, Image.open(out / f"label_pyramids/{name}.tif") as tiff:
            labels = numpy.asarray(png)
            self.assertTrue((numpy.asarray(tiff) == labels).all())
        return labels

    def check(self, name, pixels, holes):
        """Writes the picture with its holes filled; the labels must be those of it. Returns its line."""
        filled = pixels.copy()
        mask = numpy.zeros(pixels.shape[:2], bool)
        for hole in holes:
            filled[hole] = ZERO
            mask[hole] = True
        write_tiff(self.folder / f"in/filled-{name}", filled, (64, filled.shape[1]), DEFLATE)
        self.run_ok(*self.words(self.folder / "in", self.folder / f"out-{name}", "tiles.bad=skip", "batch.size=2")[1:])
        out = self.folder / f"out-{name}"
        expected, labels = self.labels(out, f"filled-{name}"), self.labels(out, name)
        self.assertTrue((labels == numpy.where(mask, HOLE, expected)).all())
        self.assertGreater(len(numpy.unique(labels[~mask])), 2)
        lines = {line["path"]: line for line in program.lines(out)}
        self.assertNotIn("hole_pixels", lines[f"filled-{name}"])
        line = lines[name]
        self.assertEqual(line["hole_pixels"], mask.sum())
        self.assertEqual({entry["label"]: entry["pixels"] for entry in line["semantic"]}, {label: (labels[~mask] == label).sum() for label in range(4) if (labels[~mask] == label).any()})
        report = program.report(out)
        self.assertEqual(report["calls"]["pictures_with_holes"], 1)
        self.assertIn(f"1 picture with tiles or strips that cannot be read, and were left out: {name}", report["notes"])

    def test_broken_tiles_and_strips_are_holes_and_all_other_pixels_have_their_class(self):
        pixels = program.raster(300, 200, seed=5)
        for name, sides, compression, broken in (
            ("tiles.lzw.tif", (64, 80), LZW, (0, 6, 7, 15)),
            ("tiles.deflate.tif", (64, 64), DEFLATE, (8, 19)),
            ("tiles.jpeg.tif", (64, 64), JPEG, (1, 7, 12)),
            ("strips.lzw.tif", (16, 300), LZW, (0, 7)),
            ("strips.deflate.tif", (50, 300), DEFLATE, (3,)),
            ("strips.jpeg.tif", (16, 300), JPEG, (4, 5)),
        ):
            with self.subTest(name):
                for file in (self.folder / "in").iterdir():
                    file.unlink()
                shown = pixels
                if compression == JPEG:
                    write_tiff(self.folder / "whole.tif", pixels, sides, compression)
                    with Image.open(self.folder / "whole.tif") as opened:
                        shown = numpy.asarray(opened.convert("RGB"))
                holes = write_tiff(self.folder / "in" / name, pixels, sides, compression, broken)
                self.check(name, shown, holes)

    def test_a_picture_of_broken_tiles_only_has_no_class(self):
        holes = write_tiff(self.folder / "in/all.tif", program.raster(100, 90), (32, 32), DEFLATE, range(12))
        self.assertEqual(len(holes), 12)
        self.run_ok(*self.words(self.folder / "in", self.folder / "out", "tiles.bad=skip")[1:])
        (line,) = program.lines(self.folder / "out")
        self.assertEqual((line["hole_pixels"], line["semantic"]), (9000, []))
        self.assertEqual(numpy.unique(self.labels(self.folder / "out", "all.tif")).tolist(), [HOLE])

    def test_without_the_option_the_picture_fails_and_names_the_tile(self):
        write_tiff(self.folder / "in/a.tif", program.raster(300, 200), (64, 64), DEFLATE, (7,))
        for settings in ((), ("tiles.bad=fail",)):
            out = self.folder / f"out{len(settings)}"
            self.run_ok(*self.words(self.folder / "in", out, *settings)[1:], code=program.SOME_FAILED)
            (line,) = program.lines(out)
            self.assertEqual(line["reason"], "corrupt_data")
            self.assertIn("tile 7 at column 128, row 64 cannot be read: ", line["detail"])
            self.assertNotIn("hole_pixels", line)

    def run_injected(self, fault, picture, out):
        """The picture's line after a run in which strace injects `fault` into system calls on its file."""
        log = self.folder / "calls.txt"
        words = [*self.injecting(fault, picture, log), program.PROGRAM, *self.words(picture, out, "tiles.bad=skip"), "--quiet"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        if "ptrace" in done.stderr and "not permitted" in done.stderr:
            self.skipTest("this machine does not allow ptrace")
        self.assertIn("(INJECTED)", log.read_text())
        (line,) = program.lines(out)
        return line

    def test_a_disk_that_fails_leaves_no_hole(self):
        picture = self.folder / "in/a.tif"
        write_tiff(picture, program.raster(300, 200), (16, 16), DEFLATE)
        self.run_ok(*self.words(picture, self.folder / "whole", "tiles.bad=skip")[1:])
        # strace counts the calls of each thread. The thread that opens the file makes fewer, and those that read pixels more.
        line = self.run_injected("read,pread64:error=EIO:when=15+", picture, self.folder / "lasting")
        self.assertEqual((line["state"], line["reason"]), ("failed", "io_error"))
        self.assertRegex(line["detail"], r"^tile \d+ at column \d+, row \d+ cannot be read: read failed: Input/output error$")
        for call in (15, 18, 25):
            out = self.folder / f"once{call}"
            self.run_injected(f"read:error=EIO:when={call}", picture, out)
            self.assertEqual(program.segments(out), program.segments(self.folder / "whole"))

    def test_after_a_kill_the_holes_of_finished_rows_remain(self):
        picture = self.folder / "in/tall.tif"
        write_tiff(picture, program.raster(256, 4096), (64, 64), DEFLATE, (1, 2, 5, 200, 255))
        settings = ("tiles.bad=skip", "tiles.overlap=0.75", "semantic.window_batch=1")
        self.run_ok(*self.words(picture, self.folder / "whole", *settings)[1:])
        out = self.folder / "killed"
        unfinished = out / "unfinished/0"
        process = subprocess.Popen([program.PROGRAM, *self.words(picture, out, *settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (unfinished.is_file() and unfinished.stat().st_size > 2000):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(), -signal.SIGKILL)
        self.assertTrue(unfinished.is_file())
        self.run_ok(*self.words(picture, out, *settings)[1:])
        reports = [program.report(folder)["calls"] for folder in (self.folder / "whole", out)]
        self.assertLess(reports[1]["windows"], reports[0]["windows"], "the second attempt begins behind the finished rows")
        self.assertEqual(reports[1]["pictures_with_holes"], 1)
        for folder in ("labels", "label_pyramids"):
            self.assertEqual(program.tree(out / folder), program.tree(self.folder / "whole" / folder))
        self.assertEqual(program.segments(out), program.segments(self.folder / "whole"))
        self.assertEqual(json.loads((out / "segments/000000.jsonl").read_text())["hole_pixels"], 5 * 64 * 64)


if __name__ == "__main__":
    program.main()
