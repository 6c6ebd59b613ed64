"""tiles.skip_above, tiles.skip_below and tiles.mask: windows of background need no model, and change nothing else."""

import itertools
import re

import numpy
import program
import small_semantic
import torch
from PIL import Image
from program import Case


def starts(length, side, overlap):
    found = [0]
    while found[-1] + side < length:
        found.append(min(found[-1] + int(side * (1 - overlap)), length - side))
    return found


def blended(net, values, roi, overlap, empty):
    """Logits [channels, ...] in double precision without the windows that are all empty, and the number of these windows.

    `values` are the normalised ones [channels, ...], at least as large as a window on every axis. Without a window, logits are NaN.
    """
    bells = [numpy.exp(-0.5 * ((numpy.arange(side) - (side - 1) / 2) / (side / 8)) ** 2) for side in roi]
    weight = bells[0]
    for bell in bells[1:]:
        weight = numpy.multiply.outer(weight, bell)
    weight = numpy.maximum(weight, max(weight.min(), 1e-3))
    sums, total, skipped = 0, numpy.zeros(empty.shape), 0
    for corner in itertools.product(*(starts(length, side, overlap) for length, side in zip(empty.shape, roi))):
        window = tuple(slice(start, start + side) for start, side in zip(corner, roi))
        if empty[window].all():
            skipped += 1
            continue
        with torch.inference_mode():
            output = net(torch.from_numpy(values[(slice(None), *window)].copy())[None])[0].double().numpy()
        sums = numpy.zeros((len(output), *empty.shape)) if isinstance(sums, int) else sums
        sums[(slice(None), *window)] += weight * output
        total[window] += weight
    with numpy.errstate(invalid="ignore"):
        return sums / total, skipped


class Skip(Case):
    def check(self, values, labels, expected):
        """Values [..., channels] and labels of a run."""
        untouched = numpy.isnan(expected[0])
        self.assertGreater(untouched.sum(), 100)
        self.assertGreater((~untouched).sum(), 100)
        expected = numpy.moveaxis(expected, 0, -1)
        self.assertLessEqual(numpy.abs(values - expected)[~untouched].max(), 1e-5)
        self.assertEqual(numpy.abs(values[untouched]).max(), 0)
        self.assertTrue((labels == numpy.where(untouched, 0, values.argmax(-1))).all())
        self.assertGreater(len(numpy.unique(labels)), 2)

    def test_windows_of_glass(self):
        package = small_semantic.make(self.folder)
        pixels = program.raster(230, 170, seed=2) // 2
        pixels[40:150, :] = 240
        pixels[120:, 100:] = 221
        pixels[90, 30, 2] = 220  # one channel of one pixel
        empty = (pixels > 220).all(axis=2)
        normalised = ((pixels.astype(numpy.float32) * numpy.float32(1 / 255) - 0.5) / 0.25).transpose(2, 0, 1)
        expected, skipped = blended(small_semantic.Small(1).eval(), normalised, (32, 32), 0.5, empty)
        pictures = self.folder / "in"
        pictures.mkdir()
        Image.fromarray(pixels).save(pictures / "a.png")
        Image.fromarray(pixels).save(pictures / "b.tif", compression="tiff_lzw")
        program.write_picture(pictures / "c.png", 100, 90)
        runs = {}
        for name, picture, settings in (("packed", pictures, ("semantic.values=logits", "batch.size=3", "encode.format=png,npy")),
                                        ("slabs", pictures, ("batch.size=3",)), ("alone", pictures / "b.tif", ()),
                                        ("all", pictures / "b.tif", ("tiles.skip_above=",))):
            out = self.folder / name
            settings = (f"semantic.model={package}", "tiles.overlap=0.5", "semantic.window_batch=3", "tiles.skip_above=220", *settings)
            self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", picture, "--output", out, *(word for one in settings for word in ("--set", one)))
            runs[name] = program.report(out)["calls"]
        self.assertEqual([runs[name]["windows_skipped"] for name in runs], [2 * skipped, 2 * skipped, skipped, 0])
        self.assertLess(runs["alone"]["window_calls"], runs["all"]["window_calls"])
        self.assertEqual(runs["alone"]["windows"], runs["all"]["windows"])
        for name in ("a.png", "b.tif"):
            labels = numpy.asarray(Image.open(self.folder / f"packed/labels/{name}.png"))
            self.check(numpy.load(self.folder / f"packed/values/{name}.npy"), labels, expected)
        for folder in ("slabs", "alone"):
            for file in (self.folder / folder / "labels").iterdir():
                self.assertEqual(file.read_bytes(), (self.folder / "packed/labels" / file.name).read_bytes(), file)
        line = (self.folder / "alone/segments/000000.jsonl").read_bytes()
        packed = (self.folder / "slabs/segments/000000.jsonl").read_bytes().splitlines(keepends=True)[1]
        self.assertEqual(re.sub(rb'"id": \d+', b"", line), re.sub(rb'"id": \d+', b"", packed))

    def test_windows_of_air(self):
        program.require_formats()
        import nibabel

        package = small_semantic.make_volumes(self.folder)
        stored = numpy.random.default_rng(4).integers(-50, 200, (40, 44, 36)).astype(numpy.int16)
        stored[:, :30, :] = -801
        stored[20, 5, 5] = -800
        volume = nibabel.Nifti1Image(stored, numpy.eye(4))
        volume.header.set_slope_inter(0.5, -500)  # so the threshold is that of the values, -900
        nibabel.save(volume, self.folder / "ct.nii.gz")
        voxels = stored.astype(numpy.float32) * numpy.float32(0.5) - 500
        roi = (16, 12, 8)
        expected, skipped = blended(small_semantic.SmallVolumes(1).eval(), ((voxels - 100) / 50)[None], roi, 0.25, voxels < -900)
        out = self.folder / "out"
        self.run_ok(program.ROOT / "configs/volume.yaml", "--input", self.folder / "ct.nii.gz", "--output", out, "--format", "npy,nifti",
                    *(word for one in (f"semantic.model={package}", "semantic.values=logits", "tiles.roi=16,12,8", "tiles.skip_below=-900") for word in ("--set", one)))
        calls = program.report(out)["calls"]
        self.assertEqual((calls["windows_skipped"], calls["window_calls"]), (skipped, calls["windows"] - skipped))
        values = numpy.load(out / "values/ct.nii.gz.npy").transpose(2, 1, 0, 3)
        self.check(values, numpy.asarray(nibabel.load(out / "label_volumes/ct.nii.gz.nii.gz").dataobj), expected)

    def test_windows_outside_a_mask(self):
        """The masks are the label maps of a run over pictures of a tenth of the size."""
        package = small_semantic.make(self.folder)
        small = program.raster(24, 17, seed=3) // 2
        small[5:, :14] = 240
        pixels = numpy.kron(small, numpy.ones((10, 10, 1), numpy.uint8))
        pixels += program.raster(240, 170, seed=4) // 32
        for folder, raster in (("small", small), ("in", pixels)):
            (self.folder / folder).mkdir()
            Image.fromarray(raster).save(self.folder / folder / "a.png")
            Image.fromarray(raster).save(self.folder / folder / "b.tif", compression="tiff_lzw")
        words = [word for one in (f"semantic.model={package}", "tiles.overlap=0.5", "tiles.skip_above=230") for word in ("--set", one)]
        self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", self.folder / "small", "--output", self.folder / "masks", "--format", "png,tiff", *words, "--set", "tiles.roi=4")
        mask = numpy.asarray(Image.open(self.folder / "masks/labels/a.png.png"))
        normalised = ((pixels.astype(numpy.float32) * numpy.float32(1 / 255) - 0.5) / 0.25).transpose(2, 0, 1)
        expected, skipped = blended(small_semantic.Small(1).eval(), normalised, (32, 32), 0.5, numpy.kron(mask, numpy.ones((10, 10), int)) == 0)
        runs = {}
        for name, folder, settings in (("png", "labels", ("semantic.values=logits", "encode.format=png,npy")), ("tiff", "label_pyramids", ("semantic.window_batch=3",))):
            out = self.folder / name
            settings = (f"semantic.model={package}", "tiles.overlap=0.5", f"tiles.mask={self.folder}/masks/{folder}", *settings)
            self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", self.folder / "in", "--output", out, *(word for one in settings for word in ("--set", one)))
            runs[name] = program.report(out)["calls"]
            self.assertEqual(runs[name]["windows_skipped"], 2 * skipped)
        self.assertEqual(runs["png"]["window_calls"], runs["png"]["windows"] - 2 * skipped)
        labels = {file: numpy.asarray(Image.open(self.folder / file)) for file in ("png/labels/a.png.png", "png/labels/b.tif.png", "tiff/labels/b.tif.png")}
        self.check(numpy.load(self.folder / "png/values/b.tif.npy"), labels["png/labels/b.tif.png"], expected)
        self.assertTrue((labels["png/labels/a.png.png"] == labels["png/labels/b.tif.png"]).all())
        self.assertTrue((labels["tiff/labels/b.tif.png"] == labels["png/labels/b.tif.png"]).mean() > 0.999)  # ties: other calls

    def test_masks_of_volumes(self):
        program.require_formats()
        import nibabel

        package = small_semantic.make_volumes(self.folder)
        voxels = numpy.random.default_rng(4).integers(0, 200, (40, 44, 36)).astype(numpy.int16)
        (self.folder / "in").mkdir()
        (self.folder / "masks").mkdir()
        marked = numpy.zeros((20, 11, 18), numpy.uint8)
        marked[:, :4, :] = 3
        for name, affine in (("ct", numpy.eye(4)), ("turned", numpy.diag([-1, 1, 1, 1])), ("none", None), ("flat", None), ("wide", None)):
            nibabel.save(nibabel.Nifti1Image(voxels, numpy.eye(4)), self.folder / f"in/{name}.nii.gz")
            if affine is not None:
                nibabel.save(nibabel.Nifti1Image(marked, affine), self.folder / f"masks/{name}.nii.gz")
        program.write_picture(self.folder / "masks/flat.png", 44, 40)
        nibabel.save(nibabel.Nifti1Image(marked.astype(numpy.int64), numpy.eye(4), dtype="int64"), self.folder / "masks/wide.nii")
        roi = (16, 12, 8)
        empty = numpy.kron(marked, numpy.ones((2, 4, 2), int)) == 0
        expected, skipped = blended(small_semantic.SmallVolumes(1).eval(), ((voxels.astype(numpy.float32) - 100) / 50)[None], roi, 0.25, empty)
        out = self.folder / "out"
        settings = (f"semantic.model={package}", "semantic.values=logits", "tiles.roi=16,12,8", f"tiles.mask={self.folder}/masks")
        self.run_ok(program.ROOT / "configs/volume.yaml", "--input", self.folder / "in", "--output", out, "--format", "npy,nifti",
                         *(word for one in settings for word in ("--set", one)), code=program.SOME_FAILED)
        self.assertEqual(program.report(out)["calls"]["windows_skipped"], skipped)
        values = numpy.load(out / "values/ct.nii.gz.npy").transpose(2, 1, 0, 3)
        self.check(values, numpy.asarray(nibabel.load(out / "label_volumes/ct.nii.gz.nii.gz").dataobj), expected)
        lines = {line["path"]: line for line in program.lines(out)}
        for name, reason, words in (("turned", "unsupported_format", "other directions"), ("none", "vanished", "no mask of this picture, such as none.png"),
                                    ("flat", "unsupported_format", "it is a picture, but its item is a volume"), ("wide", "unsupported_format", "a NIfTI of INT64")):
            line = lines[f"{name}.nii.gz"]
            self.assertEqual(line["reason"], reason)
            self.assertIn(words, line["detail"])

    def test_masks_that_are_not_there_or_not_read(self):
        package = small_semantic.make(self.folder)
        (self.folder / "masks").mkdir()
        program.write_picture(self.folder / "in/deep.png", 60, 50)
        program.write_picture(self.folder / "in/palette.png", 60, 50)
        Image.fromarray(numpy.ones((5, 6), numpy.uint16)).save(self.folder / "masks/deep.png")
        palette = Image.fromarray(numpy.ones((5, 6), numpy.uint8)).convert("P")
        palette.save(self.folder / "masks/palette.tif")
        words = ("--input", self.folder / "in", "--set", f"semantic.model={package}")
        result = self.run_ok(program.ROOT / "configs/tiled.yaml", *words, "--output", self.folder / "no", "--set", f"tiles.mask={self.folder}/no", code=program.USAGE)
        self.assertIn(f"tiles.mask is '{self.folder}/no', which is no folder", result.err)
        self.run_ok(program.ROOT / "configs/tiled.yaml", *words, "--output", self.folder / "out", "--set", f"tiles.mask={self.folder}/masks", code=program.SOME_FAILED)
        deep, whole = program.lines(self.folder / "out")
        self.assertIn("masks/deep.png: it is a PNG of 16 bits; write it with 8 bits, or as TIFF", deep["detail"])
        self.assertEqual(whole["state"], "ok")
        self.assertEqual(program.report(self.folder / "out")["calls"]["windows_skipped"], 0)

    def test_small_numbers_of_16_bits_in_three_channels_count(self):
        program.require_formats()
        import tifffile

        package = small_semantic.make(self.folder)
        program.write_picture(self.folder / "in/a.png", 60, 50)
        (self.folder / "masks").mkdir()
        for value, skipped in ((0, True), (1, False)):
            tifffile.imwrite(self.folder / "masks/a.tif", numpy.full((5, 6, 3), value, numpy.uint16), photometric="rgb")
            out = self.folder / f"out{value}"
            self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", self.folder / "in", "--output", out, "--set", f"semantic.model={package}", "--set", f"tiles.mask={self.folder}/masks")
            calls = program.report(out)["calls"]
            self.assertEqual(calls["windows_skipped"], calls["windows"] if skipped else 0)


if __name__ == "__main__":
    program.main()
