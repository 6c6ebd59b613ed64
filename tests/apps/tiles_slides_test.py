"""Levels and micrometres of slides: the model sees the pixels that libvips, tifffile and a reference in NumPy give.

The formats set of tools/setup.sh has libvips and tifffile; without it, these tests skip.
"""

import re
import shutil
import unittest

import libvips
import numpy
import program
import torch
from PIL import Image
from program import Case

ROI = 64
WIDTH, HEIGHT = 512, 384
MPP = 0.5  # of level 0
TIFF = f"tile,pyramid,tile-width={ROI},tile-height={ROI},xres={1000 / MPP},yres={1000 / MPP},resunit=cm"


class Same(torch.nn.Module):
    """Its logits are the colours, so the values of a run are the pixels that the model saw."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


def drawn(height=HEIGHT, width=WIDTH, seed=0):
    """Smooth colours with edges: uint8 [height, width, 3]."""
    y, x = numpy.mgrid[:height, :width]
    noise = numpy.random.default_rng(seed).integers(0, 30, (height, width, 3))
    waves = numpy.stack([100 + 90 * numpy.sin(x / 9), 100 + 90 * numpy.cos(y / 7), 120 * ((x // 40 + y // 30) % 2)], axis=2)
    return (waves + noise).clip(0, 255).astype(numpy.uint8)


def triangle(length, new):
    """Weights of a triangle filter, [new, length]: as wide as the reduction, in double precision."""
    scale = length / new
    centres = (numpy.arange(new) + 0.5) * scale - 0.5
    weights = numpy.maximum(0, 1 - numpy.abs(numpy.arange(length) - centres[:, None]) / max(scale, 1))
    return weights / weights.sum(axis=1, keepdims=True)


def resized(pixels, height, width):
    return numpy.einsum("yi,xj,ijc->yxc", triangle(pixels.shape[0], height), triangle(pixels.shape[1], width), pixels.astype(float), optimize=True)


class Base(Case):
    def setUp(self):
        super().setUp()
        program.require_formats()
        torch.jit.script(Same().eval()).save(str(self.folder / "same.ts"))
        self.export()
        self.input = self.folder / "in"
        self.input.mkdir()
        self.runs = 0

    def export(self, *options):
        shutil.rmtree(self.folder / "same.pkg", ignore_errors=True)
        words = ["--task", "semantic", "--roi", ROI, "--scale", 1, "--mean", 0, 0, 0, "--std", 1, 1, 1, "--out", self.folder]
        done = program.millrace("model", self.folder / "same.ts", *words, *options)
        self.assertEqual(done.code, program.OK, done)

    def go(self, *words, source=None, settings=(), formats="png", code=program.OK):
        self.runs += 1
        self.out = self.folder / f"out{self.runs}"
        settings = [word for setting in (f"semantic.model={self.folder / 'same.pkg'}", *settings) for word in ("--set", setting)]
        self.done = self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", source or self.input, "--output", self.out, "--format", formats, *settings, *words, code=code)
        return {line["path"]: line for line in program.lines(self.out)}

    def seen(self, name, *words, settings=(), formats="png,npy"):
        """The pixels that the model saw; checks that the labels are those of these pixels, and have their size."""
        line = self.go(*words, source=self.input / name, settings=("semantic.values=logits", *settings), formats=formats)[name]
        values = numpy.load(self.out / f"values/{name}.npy")
        pixels = numpy.rint(values)
        self.assertLess(abs(values - pixels).max(), 0.01)  # windows are blended in float32
        with Image.open(self.out / f"labels/{name}.png") as labels:
            self.assertTrue((numpy.asarray(labels) == values.argmax(axis=2)).all())
        self.assertEqual((line["height"], line["width"]), pixels.shape[:2])
        return pixels.astype(numpy.uint8)

    def write_slide(self, name, pixels=None, options=f"{TIFF},compression=deflate"):
        libvips.write(self.input / name, drawn() if pixels is None else pixels, options)
        return self.input / name

    def write_trestle(self, name):
        """A slide with the marks of Trestle, whose pixels OpenSlide gives; returns its levels."""
        import tifffile

        levels = [drawn()[:: 2**level, :: 2**level] for level in range(3)]
        # Trestle keeps micrometres a pixel in the tag of the resolution.
        marks = {"tile": (ROI // 2, ROI // 2), "photometric": "rgb", "compression": "zlib", "software": "MedScan", "description": "Objective Power=20", "metadata": None,
                 "resolution": (MPP, MPP)}
        with tifffile.TiffWriter(self.input / name) as file:
            for level in levels:
                file.write(level, **marks)
        return levels


class Levels(Base):
    def test_a_level_has_the_pixels_that_tifffile_reads(self):
        import tifffile

        with tifffile.TiffFile(self.write_slide("a.tif")) as slide:
            levels = [page.asarray() for page in slide.pages]
        self.assertEqual([level.shape[:2] for level in levels], [(384, 512), (192, 256), (96, 128), (48, 64)])
        for number, level in enumerate(levels):
            with self.subTest(level=number):
                self.assertTrue((self.seen("a.tif", "--level", number) == level).all())

    def test_levels_in_jpeg_have_the_pixels_that_libvips_reads(self):
        slide = self.write_slide("a.tif", options=f"{TIFF},compression=jpeg,Q=90")
        for level in (0, 1, 2):
            with self.subTest(level=level):
                self.assertTrue((self.seen("a.tif", "--level", level) == libvips.read(slide, level)).all())

    def test_openslide_gives_levels_and_micrometres_of_a_vendor(self):
        levels = self.write_trestle("a.tif")
        for level, pixels in enumerate(levels):
            self.assertTrue((self.seen("a.tif", "--level", level) == pixels).all(), level)
            self.assertTrue((self.seen("a.tif", "--mpp", MPP * 2**level) == pixels).all(), level)
        pixels = self.seen("a.tif", "--mpp", 1.3)
        self.assertEqual(pixels.shape, (round(192 / 1.3), round(256 / 1.3), 3))
        self.assertLessEqual(abs(pixels - resized(levels[1], *pixels.shape[:2])).max(), 1.01)

    def test_alpha_is_blended_over_white(self):
        colours, alpha = drawn(), drawn(seed=1)[:, :, :1]
        slide = self.write_slide("a.tif", numpy.concatenate([colours, alpha], axis=2))
        level = libvips.read(slide, 1).astype(float)
        opaque = level[:, :, 3:] / 255
        expected = level[:, :, :3] * opaque + 255 * (1 - opaque)
        self.assertLessEqual(abs(self.seen("a.tif", "--level", 1) - expected).max(), 0.51)

    def test_other_windows_see_the_same_pixels(self):
        self.write_slide("a.tif")
        for words in (("--level", 1), ("--mpp", 1.3)):
            first, second = (self.seen("a.tif", *words, settings=settings) for settings in ((), ("tiles.roi=24,100", "tiles.overlap=0.6")))
            self.assertTrue((first == second).all(), words)

    def test_libvips_reads_the_label_pyramid_of_a_level(self):
        self.write_slide("a.tif", drawn(1800, 2600), options=f"{TIFF},compression=deflate")
        self.go("--level", 1, formats="png,tiff")
        with Image.open(self.out / "labels/a.tif.png") as opened:
            labels = numpy.asarray(opened)
        self.assertEqual(labels.shape, (900, 1300))
        pyramid = self.out / "label_pyramids/a.tif.tif"
        self.assertGreater(libvips.pages(pyramid), 1)
        for page in range(libvips.pages(pyramid)):
            self.assertTrue((libvips.read(pyramid, page)[:, :, 0] == labels[:: 2**page, :: 2**page]).all(), page)

    def test_a_slide_of_aperio(self):
        slide = program.DATA / "slides/CMU-1-Small-Region.svs"
        if not slide.is_file():
            raise unittest.SkipTest(f"{slide} is missing")
        shutil.copy(slide, self.input / "a.svs")
        # The slide has one level, with 0.499 micrometres a pixel.
        whole, by_micrometres = self.seen("a.svs"), self.seen("a.svs", "--mpp", 0.5)
        self.assertEqual(whole.shape, (2967, 2220, 3))
        self.assertTrue((whole == by_micrometres).all())
        self.assertTrue((whole == libvips.read(slide)).all())
        self.assertIn("this slide has 1 level, ", self.go("--level", 1, code=program.SOME_FAILED)["a.svs"]["detail"])
        height, width = round(2967 * 0.499 / 2), round(2220 * 0.499 / 2)
        pixels = self.seen("a.svs", "--mpp", 2)
        self.assertEqual(pixels.shape, (height, width, 3))
        self.assertLessEqual(abs(pixels - resized(whole, height, width)).max(), 1.01)  # each of two passes rounds by half a level


class Micrometres(Base):
    def test_pixels_are_those_of_a_level_or_resampled_from_it(self):
        slide = self.write_slide("a.tif")
        levels = [libvips.read(slide, page) for page in range(4)]
        # Level and micrometres of its pixels.
        for mpp, level, of_level in ((0.497, 0, 0.5), (0.5, 0, 0.5), (0.7, 0, 0.5), (0.98, 0, 0.5), (0.995, 1, 1), (1.009, 1, 1), (1.3, 1, 1), (1.97, 1, 1), (2, 2, 2), (4, 3, 4),
                                     (9, 3, 4)):
            with self.subTest(mpp=mpp):
                pixels, whole = self.seen("a.tif", "--mpp", mpp), levels[level]
                if abs(of_level / mpp - 1) <= 0.01:
                    self.assertTrue((pixels == whole).all())
                    continue
                height, width = (round(side * of_level / mpp) for side in whole.shape[:2])
                self.assertEqual(pixels.shape, (height, width, 3))
                self.assertLessEqual(abs(pixels - resized(whole, height, width)).max(), 1.01)  # each of two passes rounds by half a level
                self.assertTrue((pixels == numpy.asarray(Image.fromarray(whole).resize((width, height), Image.Resampling.BILINEAR))).all())

    def test_what_is_finer_than_the_slide_and_a_slide_without_micrometres(self):
        self.write_slide("a.tif")
        self.assertEqual(self.go("--mpp", 0.3, code=program.SOME_FAILED)["a.tif"]["detail"],
                         "the finest pixels of this slide have 0.5 micrometres, so it has none of 0.3; name a larger decode.mpp")
        import tifffile

        tifffile.imwrite(self.input / "a.tif", drawn(), tile=(ROI, ROI), photometric="rgb")  # unit of resolution: none
        line = self.go("--mpp", 1, code=program.SOME_FAILED)["a.tif"]
        self.assertEqual((line["reason"], line["detail"]),
                         ("unsupported_format", "this slide does not say how many micrometres a pixel has; use decode.level, not decode.mpp"))

    def test_level_and_micrometres_exclude_each_other(self):
        self.write_slide("a.tif")
        done = program.millrace("run", program.ROOT / "configs/tiled.yaml", "--input", self.input, "--output", self.folder / "out", "--level", 1, "--mpp", 1)
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("decode.level and decode.mpp both choose the pixels of a slide; give one of them", done.err)


class AskedMicrometres(Base):
    """The package asks for micrometres, and labels have the pixels of level 0."""

    def ask(self, mpp):
        """As `--mpp` of the exporter, which takes some seconds."""
        file = self.folder / "same.pkg/model.yaml"
        head, colour, rest = re.sub(r"  mpp: .*\n", "", file.read_text()).partition("  colour: rgb\n")
        file.write_text(f"{head}{colour}  mpp: {mpp}\n{rest}")

    def back(self, name, mpp):
        """Checks labels, areas and sizes of a run of a package with `mpp`."""
        pixels = self.seen(name, "--mpp", mpp)
        self.ask(mpp)
        line = self.go(source=self.input / name, settings=("semantic.values=logits",), formats="png,npy,tiff")[name]
        values = numpy.load(self.out / f"values/{name}.npy")
        self.assertTrue((numpy.rint(values) == pixels).all())  # the model sees what it sees in a run with --mpp
        self.assertEqual((line["height"], line["width"]), (HEIGHT, WIDTH))
        rows, columns = (((numpy.arange(side) + 0.5) * of_model / side).astype(int) for side, of_model in zip((HEIGHT, WIDTH), values.shape))
        expected = values.argmax(axis=2)[rows][:, columns]
        with Image.open(self.out / f"labels/{name}.png") as labels:
            self.assertTrue((numpy.asarray(labels) == expected).all())
        self.assertTrue((libvips.read(self.out / f"label_pyramids/{name}.tif")[:, :, 0] == expected).all())
        for entry in line["semantic"]:
            self.assertEqual(entry["pixels"], (expected == entry["label"]).sum())
            self.assertAlmostEqual(entry["mm2"], entry["pixels"] * (MPP / 1000) ** 2, delta=1e-5 * entry["mm2"])
        return line

    def test_labels_have_the_pixels_of_the_file(self):
        self.write_slide("a.tif")
        self.write_trestle("b.tif")
        for name, mpp in (("a.tif", 0.5), ("a.tif", 1.3), ("a.tif", 40), ("b.tif", 0.7), ("b.tif", 1)):
            with self.subTest(name=name, mpp=mpp):
                line = self.back(name, mpp)
                # With 40, the picture fits a window, but its labels do not.
                self.assertFalse(any("rle" in entry for entry in line["semantic"]))

    def test_a_run_may_choose_other_pixels(self):
        self.write_slide("a.tif")
        chosen = {words: self.seen("a.tif", *words) for words in (("--mpp", 2), ("--level", 2), ("--level", 0))}
        self.ask(1.3)
        for words, pixels in chosen.items():
            self.assertTrue((self.seen("a.tif", *words) == pixels).all(), words)

    def test_pictures_without_micrometres_fail_unless_the_run_takes_their_pixels(self):
        import tifffile

        self.ask(1)
        Image.fromarray(drawn()).save(self.input / "a.png")
        tifffile.imwrite(self.input / "b.tif", drawn(), tile=(ROI, ROI), photometric="rgb")
        tifffile.imwrite(self.input / "c.tif", drawn(), photometric="rgb")  # strips
        self.write_slide("d.tif", options=TIFF.replace(str(1000 / MPP), str(1000 / 1.1)))  # coarser
        lines = self.go(code=program.SOME_FAILED)
        for name, detail in (("a.png", "has none; if its pixels have the right size, give such pictures a run of their own with decode.level=0"),
                             ("b.tif", "use decode.level, not decode.mpp"), ("c.tif", "or leave out decode.mpp and set decode.level=0 for its pixels as they are"),
                             ("d.tif", "have 1.1 micrometres, so it has none of 1; name a larger decode.mpp")):
            self.assertEqual((name, lines[name]["reason"]), (name, "unsupported_format"))
            self.assertTrue(lines[name]["detail"].endswith(detail), lines[name])
        self.assertEqual({line["state"] for line in self.go("--level", 0).values()}, {"ok"})

    def test_a_hole_in_a_level_has_the_pixels_of_the_file(self):
        import tifffile

        slide = self.write_slide("a.tif")
        pixels = numpy.repeat(numpy.repeat(libvips.read(slide, 1), 2, axis=0), 2, axis=1)  # with 1, windows see level 1 as it is
        with tifffile.TiffFile(slide) as file:
            middle = file.pages[1].dataoffsets[5]  # at column 64, row 64
        with open(slide, "r+b") as file:
            file.seek(middle)
            file.write(b"x" * 40)
        self.ask(1)
        line = self.go(settings=("tiles.bad=skip",))["a.tif"]
        expected = pixels.argmax(axis=2)
        expected[128:256, 128:256] = 255
        with Image.open(self.out / "labels/a.tif.png") as labels:
            self.assertTrue((numpy.asarray(labels) == expected).all())
        self.assertEqual(line["hole_pixels"], 128 * 128)
        self.assertEqual(sum(entry["pixels"] for entry in line["semantic"]), WIDTH * HEIGHT - 128 * 128)

    def test_what_needs_whole_pictures_is_refused_before_the_run(self):
        self.write_slide("a.tif")
        self.ask(1)
        needs = "but the format overlay needs whole pictures, which are not resampled; leave the format overlay out, or take pixels as they are with decode.level=0"
        for words, text in (((), "same.pkg' asks for micrometres a pixel, "), (("--mpp", 1), "decode.level or decode.mpp is given, "), (("--level", 1), "decode.level or decode.mpp is given, ")):
            self.go(*words, formats="overlay,png", code=program.USAGE)
            self.assertIn(text + needs, self.done.err)
            self.assertFalse((self.out / "segments").exists())
        self.assertEqual(self.go("--level", 0, formats="overlay")["a.tif"]["state"], "ok")

    def test_profile_measures_calls_on_pixels_as_they_are(self):
        self.write_slide("a.tif")
        self.ask(1)
        done = program.millrace("profile", program.ROOT / "configs/tiled.yaml", "--input", self.input, "--set", f"semantic.model={self.folder / 'same.pkg'}", "--batches", 1, "--seconds", 0, "--set", "threads.team=1")
        self.assertEqual(done.code, program.OK, done)
        self.assertNotIn("could be decoded", done.out + done.err)

    def test_points_have_the_pixels_of_the_file(self):
        self.write_slide("a.tif")
        self.export("--heatmaps")
        most = ("semantic.points=200",)
        seen = self.go("--mpp", 1.3, formats="", settings=most)["a.tif"]
        self.ask(1.3)
        back = self.go(formats="", settings=most)["a.tif"]
        shape = numpy.array([seen["width"], seen["height"]])
        for of_model, of_file in zip(seen["points"], back["points"]):
            self.assertGreater(len(of_model["points"]), 10)
            expected = numpy.array(of_model["points"])
            expected[:, :2] *= numpy.array([WIDTH, HEIGHT]) / shape
            numpy.testing.assert_allclose(numpy.array(of_file["points"]), expected, atol=0.003)

    def test_options_of_the_exporter(self):
        self.ask(1.3)
        asked = (self.folder / "same.pkg/model.yaml").read_text()
        self.export("--mpp", 1.3)
        self.assertEqual(sorted((self.folder / "same.pkg/model.yaml").read_text().splitlines()), sorted(asked.splitlines()))
        for words, text in ((("--mpp", 0), "--mpp 0: takes micrometres above 0, and up to 1000"),
                            (("--mpp", 1, "--channels", 3), "--mpp has no meaning with --channels and --channel, because only RGB of 8 bits is resampled"),
                            (("--mpp", 1, "--channel", "scale=1"), "--mpp has no meaning with --channels and --channel"),
                            (("--mpp", 1, "--roi", 8, 8, 8), "--mpp is for pictures; leave it out, and use --spacing for volumes")):
            with self.subTest(words=words):
                done = program.millrace("model", self.folder / "same.ts", "--task", "semantic", "--roi", ROI, "--out", self.folder / "other", *words)
                self.assertEqual(done.code, program.ENVIRONMENT, done)
                self.assertIn(text, done.err)


class BadSlides(Base):
    def test_bad_slides_fail_alone(self):
        import tifffile

        good = self.write_slide("good.tif")
        whole = good.read_bytes()
        with tifffile.TiffFile(good) as slide:
            middle = slide.pages[1].dataoffsets[5]  # in the second row of four tiles
        (self.input / "tile.tif").write_bytes(whole[:middle] + b"x" * 40 + whole[middle + 40 :])
        self.write_trestle("trestle.tif")
        with tifffile.TiffFile(self.input / "trestle.tif") as slide:
            middle = slide.pages[1].dataoffsets[8 * 2]  # in the third row of eight tiles
        with open(self.input / "trestle.tif", "r+b") as file:
            file.seek(middle)
            file.write(b"x" * 40)
        (self.input / "cut.tif").write_bytes(whole[: len(whole) // 2])
        self.write_slide("one.tif", options="tile,compression=deflate")
        self.write_slide("strips.tif", options="compression=deflate")
        (self.input / "text.ndpi").write_text("no slide")
        (self.input / "text.MRXS").write_text("no slide")
        (self.input / "empty.bif").write_bytes(b"")
        Image.fromarray(drawn()).save(self.input / "photo.jpg")
        Image.fromarray(drawn()).save(self.input / "picture.png")
        (self.input / "folder.svs").mkdir()
        lines = self.go("--level", 1, code=program.SOME_FAILED)
        unknown = "OpenSlide does not know this kind of slide, or its header is broken"
        read_whole = "this picture is read whole, and has no levels or micrometres"
        expected = {
            "cut.tif": ("unsupported_format", unknown),
            "empty.bif": ("empty", "the file has no bytes"),
            "one.tif": ("unsupported_format", "this slide has 1 level, so there is no level 1; they count from 0"),
            "photo.jpg": ("unsupported_format", read_whole),
            "picture.png": ("unsupported_format", read_whole),
            "strips.tif": ("unsupported_format", unknown),
            "text.MRXS": ("unsupported_format", unknown),
            "text.ndpi": ("unsupported_format", unknown),
            "tile.tif": ("corrupt_data", "tile 5 at column 64, row 64 cannot be read: "),
            "trestle.tif": ("corrupt_data", "rows 64 to 95 of level 1 cannot be read: "),
        }
        self.assertEqual({name: line["reason"] for name, line in lines.items() if line["state"] == "failed"}, {name: reason for name, (reason, _) in expected.items()})
        for name, (_, detail) in expected.items():
            self.assertTrue(lines[name]["detail"].startswith(detail), lines[name])
        self.assertEqual((lines["good.tif"]["state"], lines["good.tif"]["height"], lines["good.tif"]["width"]), ("ok", HEIGHT // 2, WIDTH // 2))
        self.assertEqual(set(lines), {*expected, "good.tif"})  # a folder is no slide
        self.assertNotIn("TIFFReadDirectory", self.done.err)  # libtiff prints nothing
        alone = self.folder / f"out{self.runs}/labels/good.tif.png"
        self.seen("good.tif", "--level", 1)
        self.assertEqual(alone.read_bytes(), (self.out / "labels/good.tif.png").read_bytes())

    def test_a_folder_with_the_name_of_a_slide(self):
        for name in ("a.svs", "b.ndpi"):
            (self.input / name).mkdir()
        source = self.write("list.txt", "".join(f"{self.input / name}\n" for name in ("a.svs", "b.ndpi")))
        lines = self.go("--level", 1, source=source, code=program.SOME_FAILED)
        self.assertEqual([line["reason"] for line in lines.values()], ["not_regular"] * 2)

    def test_recipes_without_windows_do_not_read_another_size(self):
        Image.fromarray(drawn()).save(self.input / "a.png")
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.run_ok(recipe, "--input", self.input, "--output", self.folder / "out", "--level", 1, code=program.SOME_FAILED)
        self.assertEqual(program.lines(self.folder / "out")[0]["reason"], "unsupported_format")

    def test_memory_of_a_slide_is_limited(self):
        self.write_trestle("a.tif")  # OpenSlide keeps 32 MB of tiles
        line = self.go("--level", 1, settings=("gate.slab=30M",), code=program.SOME_FAILED)["a.tif"]
        self.assertEqual(line["reason"], "too_large")
        self.assertRegex(line["detail"], r"^one row of its tiles and OpenSlide's cache need 33\.\d+ MB, more than gate.slab: 256x32 pixels; raise gate.slab$")


if __name__ == "__main__":
    program.main()
