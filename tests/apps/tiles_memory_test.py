"""Memory of pictures and volumes in windows: `gate.memory` admits only as many at once as fit, and `gate.slab` limits each.

The formats set of tools/setup.sh has pydicom; without it, the test of DICOM skips.
"""

import gzip

import numpy
import program
import small_semantic
from program import Case, millrace
from tiles_large_test import write_repeated, write_volume
from trace_file_test import Trace

ROI, CHANNELS = 32, 4  # of small_semantic
WIDTH, HEIGHT, STRIP = 320, 640, 64  # of the pictures, and rows in a strip
# Of each column: a strip as the file has it, and the same as RGB. The sums of a band of windows, with those of the weights.
# The labels of the band. The rows of this band and the next one.
NEEDED = WIDTH * (2 * STRIP * 3 + ROI * (CHANNELS + 1) * 4 + ROI + 2 * ROI * 3)


def memory_for(bytes_of_pictures):
    """The smallest gate.memory that has so many bytes for pictures. An eighth is for files."""
    return next(memory for memory in range(bytes_of_pictures, 2 * bytes_of_pictures) if memory - memory // 8 >= bytes_of_pictures)


class Large(Case):
    recipe = "tiled"

    def setUp(self):
        super().setUp()
        self.input = self.folder / "in"
        self.input.mkdir()

    def words(self, out, *settings):
        settings = [word for setting in (f"semantic.model={self.package}", "tiles.overlap=0", *settings) for word in ("--set", setting)]
        return ("run", program.ROOT / f"configs/{self.recipe}.yaml", "--input", self.input, "--output", self.folder / out, *settings)

    def go(self, out, *settings, more=(), code=program.OK):
        """{path: line} of a run."""
        self.run_ok(*self.words(out, *settings)[1:], *more, code=code)
        return {line["path"]: line for line in program.lines(self.folder / out)}


class Pictures(Large):
    def setUp(self):
        super().setUp()
        self.package = small_semantic.make(self.folder)

    def test_a_picture_needs_its_rows_and_the_sums_of_its_windows(self):
        write_repeated(self.input / "a.tif", WIDTH, HEIGHT, STRIP)
        self.assertEqual(self.go("enough", f"gate.slab={NEEDED}")["a.tif"]["state"], "ok")
        line = self.go("less", f"gate.slab={NEEDED - 1}", code=program.SOME_FAILED)["a.tif"]
        self.assertEqual((line["reason"], line["detail"]),
                         ("too_large", f"its pixels and the sums of its windows need {NEEDED} bytes, but gate.slab is {NEEDED - 1}; raise gate.slab, or lower tiles.roi"))

    def traced(self, out, memory):
        """How long pictures waited for memory, and whether the second one got it behind the last window of the first one."""
        file = self.folder / f"{out}.json"
        lines = self.go(out, f"gate.slab={NEEDED}", f"gate.memory={memory}", "threads.lanes=2", "batch.size=1", more=("--trace", file))
        self.assertEqual([line["state"] for line in lines.values()], ["ok"] * 2)
        trace = Trace(file)
        got_memory = {event["args"]["file"]: event["ts"] for event in trace.work("tiles")}  # the first stage behind the gate
        ends = {event["args"]["batch"]: event["ts"] + event["dur"] for event in trace.work("semantic")}
        return program.report(self.folder / out)["run_window"]["gate"]["mean_waiting_for_bytes"], got_memory["b.tif"] >= ends[0]

    def test_two_pictures_with_memory_for_one_run_one_after_another(self):
        for name in ("a.tif", "b.tif"):
            write_repeated(self.input / name, WIDTH, HEIGHT, STRIP)
        memory = memory_for(2 * NEEDED)
        waited, _ = self.traced("both", memory)
        self.assertEqual(waited, 0)
        for out, less in (("byte", memory - 1), ("one", 2 * NEEDED)):
            with self.subTest(out):
                self.assertEqual(self.traced(out, less)[1], True)
        self.assertEqual(program.tree(self.folder / "one/labels"), program.tree(self.folder / "both/labels"))

    def test_less_memory_than_two_of_the_largest_pictures_is_refused(self):
        done = millrace(*self.words("out", f"gate.slab={NEEDED}", f"gate.memory={2 * NEEDED - 1}", "batch.size=1"))
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("gate.memory is ", done.err)
        self.assertIn(": two batches of 1 picture with a slab of ", done.err)


class Volumes(Large):
    recipe = "volume"
    settings = ("tiles.roi=16,16,16", "gate.slab=1M")
    by_sums = "its pixels and the sums of its windows need "

    def setUp(self):
        super().setUp()
        self.package = small_semantic.make_volumes(self.folder)

    def check(self, expected, good):
        """Volumes fail with the beginning of the message that `expected` has, and the others are ok."""
        lines = self.go("out", *self.settings, code=program.SOME_FAILED)
        self.assertEqual({path: line["state"] for path, line in lines.items()}, {**dict.fromkeys(expected, "failed"), **dict.fromkeys(good, "ok")})
        for path, detail in expected.items():
            self.assertEqual(lines[path]["reason"], "too_large")
            self.assertTrue(lines[path]["detail"].startswith(detail), lines[path])
            self.assertIn("gate.slab", lines[path]["detail"])
        self.assertEqual(len(program.tree(self.folder / "out/label_volumes")), len(good))

    def test_a_nifti_that_needs_more_than_the_slab_fails_alone(self):
        by_slice = "a slice of this NIfTI has 400x400 voxels, more than gate.slab allows; raise gate.slab"
        for name, sides in (("good", (20, 20, 40)), ("slice", (400, 400, 2)), ("sums", (100, 100, 40))):
            file = write_volume(self.input / f"{name}.nii.gz", sides)
            (self.input / f"{name}_unpacked.nii").write_bytes(gzip.decompress(file.read_bytes()))
        self.check({"slice.nii.gz": by_slice, "slice_unpacked.nii": by_slice, "sums.nii.gz": self.by_sums, "sums_unpacked.nii": self.by_sums}, ["good.nii.gz", "good_unpacked.nii"])

    def test_a_dicom_series_that_needs_more_than_the_slab_fails_alone(self):
        program.require_formats()
        import dicom_series

        for name, sides in (("good", (20, 20, 20)), ("slice", (2, 300, 300)), ("sums", (20, 100, 100))):
            dicom_series.write(self.input / name, dicom_series.series(numpy.ones(sides, numpy.int16)))
        self.check({"slice/IM000.dcm": "'IM000.dcm': a slice of 300x300 voxels, more than gate.slab allows; raise gate.slab", "sums/IM000.dcm": self.by_sums}, ["good/IM000.dcm"])


if __name__ == "__main__":
    program.main()
