"""Pictures and volumes larger than memory: peak memory does not depend on their height, and a kill costs little.

`make tiles-memory` compares pictures of 60,000 x 60,000 pixels and volumes of 2,000 slices (MILLRACE_TILES_MEMORY=full).
"""

import gzip
import json
import os
import random
import signal
import struct
import subprocess
import sys
import zlib

import hostile_pictures
import program
import small_semantic
from PIL import Image
from program import Case

SEED = 7
KILLS = 20
Image.MAX_IMAGE_PIXELS = None  # it warns of large pictures
FULL = os.environ.get("MILLRACE_TILES_MEMORY") == "full"


def write_tall(path, width, height):
    """A TIFF of strips, which the program reads in parts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(program.raster(width, height)).save(path, compression="tiff_adobe_deflate")
    return path


def write_pages(path, pages, part):
    """A BigTIFF with these pages. All strips and tiles are the same bytes of the file, `part`, which begin at PART.

    A page has (tag, type, values), as the TIFF 6.0 specification and libtiff's BigTIFF design have them. Types are 2: text, 3: 16 bits, 4: 32, 16: 64.
    """
    file = bytearray(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0) + part)
    link = 8  # where the place of the next directory belongs
    for page in pages:
        entries = b""
        for tag, kind, values in page:
            packed = struct.pack(f"<{len(values)}{ {2: 'B', 3: 'H', 4: 'I', 16: 'Q'}[kind]}", *values)
            entries += struct.pack("<HHQ", tag, kind, len(values)) + (packed.ljust(8, b"\0") if len(packed) <= 8 else struct.pack("<Q", len(file)))
            file += packed if len(packed) > 8 else b""
        struct.pack_into("<Q", file, link, len(file))
        file += struct.pack("<Q", len(page)) + entries + bytes(8)
        link = len(file) - 8
    path.write_bytes(file)
    return path


PART = 16


def write_repeated(path, width, height, rows=64):
    """A huge picture in a small file."""
    strip = zlib.compress(program.raster(width, rows).tobytes())
    strips = -(-height // rows)
    return write_pages(path, [[(256, 4, [width]), (257, 4, [height]), (258, 3, [8, 8, 8]), (259, 3, [8]), (262, 3, [2]), (273, 16, [PART] * strips), (277, 3, [3]),
                               (278, 4, [rows]), (279, 4, [len(strip)] * strips), (284, 3, [1])]], strip)


def write_slide(path, width, height, side=256):
    """A slide with the marks of Trestle, whose pixels OpenSlide gives. Level 1 has this size, and level 0 twice the sides."""
    tile = zlib.compress(program.raster(side, side).tobytes())
    pages = []
    for x, y in ((2 * width, 2 * height), (width, height)):
        tiles = -(-x // side) * -(-y // side)
        pages.append([(256, 4, [x]), (257, 4, [y]), (258, 3, [8, 8, 8]), (259, 3, [8]), (262, 3, [2]), (270, 2, b"Objective Power=20\0"), (277, 3, [3]), (284, 3, [1]),
                      (305, 2, b"MedScan\0"), (322, 4, [side]), (323, 4, [side]), (324, 16, [PART] * tiles), (325, 4, [len(tile)] * tiles)])
    return write_pages(path, pages, tile)


def write_volume(path, sides):
    """A NIfTI of bytes that grow along each row and change with the slice. Its header has sizes, types, offset and spacing, as nifti1.h has them."""
    x, y, z = sides
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, x, y, z, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 2, 8)
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 0, 0, 0, 0)
    struct.pack_into("<f", header, 108, 352)
    header[344:348] = b"n+1\0"
    path.parent.mkdir(parents=True, exist_ok=True)
    plane = bytes(value * 255 // max(x - 1, 1) for value in range(x)) * y
    with gzip.open(path, "wb", 1) as file:
        file.write(header)
        for index in range(z):
            begin = index % x
            file.write(plane[begin:] + plane[:begin])
    return path


class Large(Case):
    recipe = "tiled"

    def words(self, picture, out, *settings):
        return [str(word) for word in ("run", program.ROOT / f"configs/{self.recipe}.yaml", "--input", picture, "--set", f"semantic.model={self.package}",
                                       "--output", out, *(word for setting in settings for word in ("--set", setting)))]

    def peak(self, picture, out, *settings, code=program.OK):
        """Peak resident memory of a run in MB. A small process starts it: Linux counts the memory of the one that starts it too."""
        script = ("import os, sys; _, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0); print(used.ru_maxrss / 1024); "
                  "sys.exit(os.waitstatus_to_exitcode(status))")
        words = [sys.executable, "-c", script, program.PROGRAM, *self.words(picture, out, *settings), "--quiet"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=7200 if FULL else 240)
        self.assertEqual(done.returncode, code, done)
        return float(done.stdout)

    def compare_peaks(self, low, high, *settings):
        """The peak of the higher item is within 10 % of the lower one's."""
        small, large = (self.peak(item, self.folder / f"out-{item.name}", "threads.lanes=1", *settings) for item in (low, high))
        print(f"peak of {low.name}: {small:.0f} MB, of {high.name}: {large:.0f} MB, {large / small - 1:+.1%}")
        self.assertLess(large, 1.1 * small)

    def check_kills(self, item, kills, folder, *settings):
        """After this many kills within one item, its line and its files in `folder` are those of a run without a kill.

        An attempt dies when it begins the third to sixth write of finished rows. The first write of a new file is its header.
        """
        self.run_ok(*self.words(item, self.folder / "whole", *settings)[1:])
        out = self.folder / "killed"
        chance = random.Random(SEED)
        unfinished, sizes = out / "unfinished/0", []
        for kill in range(kills):
            fault = f"write:signal=KILL:when={chance.randint(3, 6)}"
            done = subprocess.run([*self.injecting(fault, unfinished), program.PROGRAM, *self.words(item, out, *settings)], capture_output=True, text=True, check=False, timeout=240)
            self.assertEqual(done.returncode, -signal.SIGKILL, f"kill {kill}: {done}")
            sizes.append(unfinished.stat().st_size)
        print(f"the file of finished rows after each of {kills} kills: {sizes} bytes")
        self.assertEqual(sizes, sorted(set(sizes)), "each attempt adds rows")
        self.run_ok(*self.words(item, out, *settings)[1:])
        self.assertFalse((out / "unfinished").exists())
        self.assertEqual(program.segments(out), program.segments(self.folder / "whole"))
        self.assertEqual(program.tree(out / folder), program.tree(self.folder / "whole" / folder))
        calls = [report["calls"]["window_calls"] for report in (program.report(self.folder / "whole"), program.report(out))]
        print(f"calls of windows without a kill, and after the last one: {calls}")
        self.assertLess(calls[1], calls[0], "the last attempt begins behind the finished rows")
        self.assertEqual(json.loads((out / "segments/000000.manifest.json").read_text())["ok"], 1)


class LargeVolumes(Large):
    recipe = "volume"

    def setUp(self):
        super().setUp()
        self.package = small_semantic.make_volumes(self.folder)

    def test_14_classes_of_192_slices_need_little_memory(self):
        tiny = self.peak(write_volume(self.folder / "tiny.nii.gz", (8, 8, 8)), self.folder / "tiny", "tiles.roi=8,8,8", "threads.lanes=1")
        large = self.peak(write_volume(self.folder / "large.nii.gz", (192, 192, 192)), self.folder / "large", "threads.lanes=1")
        print(f"192 x 192 x 192 with 14 classes: {large - tiny:.0f} MB above a volume of 8 x 8 x 8; all values have {14 * 192**3 * 4 / 1e6:.0f} MB")
        self.assertLess(large - tiny, 400)
        self.assertEqual(sum(entry["voxels"] for entry in program.lines(self.folder / "large")[0]["semantic"]), 192**3)

    def test_peak_memory_does_not_depend_on_the_depth(self):
        side, low, high = (512, 200, 2000) if FULL else (96, 96, 480)
        volumes = [write_volume(self.folder / f"{depth}-slices.nii.gz", (side, side, depth)) for depth in (low, high)]
        self.compare_peaks(*volumes, "gate.slab=3G")
        self.assertEqual(sum(entry["voxels"] for entry in program.lines(self.folder / f"out-{high}-slices.nii.gz")[0]["semantic"]), side * side * high)

    def test_after_kills_within_one_volume_the_bytes_are_the_same(self):
        volume = write_volume(self.folder / "in/deep.nii.gz", (48, 40, 240))
        self.check_kills(volume, KILLS // 4, "label_volumes", "tiles.roi=16,16,16", "tiles.overlap=0.75", "semantic.window_batch=3")


class LargePictures(Large):
    def setUp(self):
        super().setUp()
        self.package = small_semantic.make(self.folder)

    def test_peak_memory_does_not_depend_on_the_height(self):
        width, low, high = (60_000, 6_000, 60_000) if FULL else (2048, 1024, 8192)
        settings = ("tiles.roi=512", "gate.slab=3G") if FULL else ("tiles.roi=128",)
        pictures = [write_repeated(self.folder / f"{height}-rows.tif", width, height) for height in (low, high)]
        self.compare_peaks(*pictures, "tiles.overlap=0", *settings)
        with Image.open(self.folder / f"out-{high}-rows.tif/labels/{high}-rows.tif.png") as labels:
            self.assertEqual(labels.size, (width, high))

    def test_peak_memory_of_a_slide_does_not_depend_on_its_height(self):
        width, low, high = 1024, 9 * 1024, 36 * 1024  # also of the lower one, OpenSlide keeps as many tiles as its cache holds
        slides = [write_slide(self.folder / f"{height}-rows.tif", width, height) for height in (low, high)]
        # No window needs the model, which would take most of the time.
        self.compare_peaks(*slides, "decode.level=1", "tiles.roi=128", "tiles.overlap=0", "tiles.skip_above=-1")
        (line,) = program.lines(self.folder / f"out-{high}-rows.tif")
        self.assertEqual((line["height"], line["width"]), (high, width))
        # Otherwise this would measure libtiff.
        self.peak(slides[0], self.folder / "small", "decode.level=1", "gate.slab=30M", code=program.SOME_FAILED)
        self.assertIn("OpenSlide's cache", program.lines(self.folder / "small")[0]["detail"])

    def test_hostile_tiffs_need_little_memory(self):
        """The largest claims 100,000 x 100,000 pixels, and so 17 million windows."""
        usual = self.peak(write_tall(self.folder / "good.tif", 64, 64), self.folder / "good")
        for file in hostile_pictures.catalogue():
            if file.name.endswith(".tif"):
                (self.folder / "in" / file.name).parent.mkdir(exist_ok=True)
                (self.folder / "in" / file.name).write_bytes(file.data)
        entries = [(256, 4, 1, 200_000_000), (257, 4, 1, 10), (258, 3, 1, 8), (273, 4, 1, 8), (277, 3, 1, 1), (279, 4, 1, 64)]
        (self.folder / "in/claims_200000000.tif").write_bytes(hostile_pictures.tiff(entries))
        expected = {"claims_100000.tif": "corrupt_data", "claims_200000000.tif": "too_large", "directory_loop.tif": None, "float.tif": "unsupported_format",
                    "many_entries.tif": "corrupt_data", "many_strips.tif": "truncated", "picture.tif": None, "two_pages.tif": None}
        for level in (0, 1):  # OpenSlide refuses them
            output = self.folder / f"level{level}"
            peak = self.peak(self.folder / "in", output, f"decode.level={level}", code=program.SOME_FAILED)
            reasons = {line["path"]: line.get("reason") for line in program.lines(output)}
            self.assertEqual(reasons, expected if level == 0 else dict.fromkeys(expected, "unsupported_format"))
            self.assertLess(peak, usual + 128)

    def test_after_kills_within_one_picture_the_bytes_are_the_same(self):
        picture = write_tall(self.folder / "in/tall.tif", 1024, 6144)
        self.check_kills(picture, KILLS, "labels", "tiles.roi=64", "tiles.overlap=0.5", "semantic.window_batch=3")


if __name__ == "__main__":
    program.main()
