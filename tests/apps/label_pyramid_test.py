"""Label pyramids that no classic TIFF holds: libvips and tifffile read their last rows, behind 4 GB of the file.

The formats set of tools/setup.sh has libvips and tifffile; without it, these tests skip.
`make tiles-memory` also writes labels that deflate cannot make smaller (MILLRACE_TILES_MEMORY=full).
"""

import os
import subprocess
import unittest
from pathlib import Path

import libvips
import numpy
import program
from program import Case

SAMPLE = Path(os.environ.get("MILLRACE_SAMPLE_LABELS", "build/release/io/io_sample_labels")).resolve()
FULL = os.environ.get("MILLRACE_TILES_MEMORY") == "full"
TILE = 512
MAX_CLASSIC = 2**32


class Pyramids(Case):
    def setUp(self):
        super().setUp()
        program.require_formats()

    def sample(self, width, height, begin, kind):
        file = self.folder / f"{width}x{height}.tif"
        subprocess.run([SAMPLE, file, str(width), str(height), str(begin), kind], check=True, timeout=1800 if FULL else 240)
        return file

    def last_rows(self, file, width, height, rows=100):
        """Checks that both libraries agree on the last rows of each page, and returns those of the first one."""
        import tifffile

        first = None
        with tifffile.TiffFile(file) as tiff:
            self.assertEqual(len(tiff.pages), libvips.pages(file))
            for number, page in enumerate(tiff.pages):
                self.assertEqual(page.shape, tuple(-(-side // 2**number) for side in (height, width)))
                by_libvips = libvips.read(file, number, last_rows=rows)[:, :, 0]
                last = len(page.dataoffsets) - 1
                tiff.filehandle.seek(page.dataoffsets[last])
                tile, (_, _, top, left, _), _ = page.decode(tiff.filehandle.read(page.databytecounts[last]), last)
                self.assertEqual((top, left), ((page.imagelength - 1) // TILE * TILE, (page.imagewidth - 1) // TILE * TILE))
                inside = tile.reshape(TILE, TILE)[: page.imagelength - top, : page.imagewidth - left]
                count = min(rows, inside.shape[0])
                self.assertTrue((by_libvips[-count:, left:] == inside[-count:]).all(), number)
                first = by_libvips if first is None else first
        return first

    def test_libraries_read_what_lies_behind_4_gb(self):
        import tifffile

        # Its tiles have just more than 4 GB before compression. Labels of few classes take little of it, hence the hole.
        width, height = 1, 3_905_025
        file = self.sample(width, height, MAX_CLASSIC + 100_000_000, "plain")
        with tifffile.TiffFile(file) as tiff:
            self.assertTrue(tiff.is_bigtiff)
            self.assertGreater(min(offset for page in tiff.pages for offset in page.dataoffsets), MAX_CLASSIC)
        rows = numpy.arange(height - 100, height)
        self.assertEqual(self.last_rows(file, width, height)[:, 0].tolist(), (rows // 1000 % 250).tolist())

    @unittest.skipUnless(FULL, "make tiles-memory runs it: it takes minutes, and 4.5 GB of the disk")
    def test_labels_that_deflate_cannot_make_smaller(self):
        import tifffile

        for side, big in ((54_272, False), (54_273, True)):
            with self.subTest(side=side):
                file = self.sample(side, side, 0, "noisy")
                print(f"{side} x {side}: {file.stat().st_size:,} bytes")
                self.assertGreater(file.stat().st_size, 4e9 * 0.98)
                with tifffile.TiffFile(file) as tiff:
                    self.assertEqual(tiff.is_bigtiff, big)
                self.last_rows(file, side, side)
                file.unlink()


if __name__ == "__main__":
    program.main(needs_program=False)
