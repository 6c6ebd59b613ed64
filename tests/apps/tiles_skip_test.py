"""tiles.skip_above and tiles.skip_below: windows of glass or air need no model, and change nothing else."""

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


if __name__ == "__main__":
    program.main()
