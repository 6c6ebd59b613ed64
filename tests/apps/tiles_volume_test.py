"""Volumes in windows have the values of MONAI, and their labels lie where the volume lies in space.

The formats set of tools/setup.sh has MONAI and nibabel; without it, these tests skip.
"""

import numpy
import program
import small_semantic
import torch
from program import Case
from tiles_skip_test import blended
from torch import nn

AXES = {"xyz": (0, 1, 2), "zyx": (2, 1, 0)}  # of the model, from [x, y, z]
ROI = (12, 10, 8)  # x, y, z
# Sides of a volume, overlap, weights, order of the model's axes, windows in a call, classes.
RUNS = (
    ((30, 21, 17), 0.5, "gaussian", "xyz", 3, 3),
    ((30, 21, 17), 0.25, "constant", "zyx", 1, 3),
    ((12, 10, 8), 0, "gaussian", "zyx", 2, 3),
    ((7, 25, 1), 0.75, "gaussian", "xyz", 5, 3),
    ((13, 4, 40), 0, "constant", "xyz", 4, 3),
    ((30, 21, 17), 0.25, "gaussian", "xyz", 6, 1),
    ((13, 11, 9), 0.75, "constant", "zyx", 7, 14),
    ((25, 10, 30), 0.5, "constant", "xyz", 8, 1),
    ((30, 21, 17), 0.5, "gaussian", "zyx", 9, 14),
)


def net_of(classes):
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv3d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv3d(6, classes, 5, padding=2)).eval()


class Volumes(Case):
    def setUp(self):
        super().setUp()
        program.require_formats()
        torch.set_num_threads(1)
        self.net = net_of(3)
        torch.jit.script(self.net).save(str(self.folder / "net.ts"))

    def package(self, axes, spacing=(), orientation="", classes=3):
        out = self.folder / "-".join((axes, *map(str, spacing), orientation, str(classes)))
        torch.jit.script(net_of(classes)).save(str(self.folder / "net.ts"))
        sides = [ROI[axis] for axis in AXES[axes]]
        done = program.millrace("model", self.folder / "net.ts", "--task", "semantic", "--roi", *sides, "--axes", axes, "--mean", 50, "--std", 100, "--out", out,
                                *(("--spacing", *spacing) if spacing else ()), *(("--orientation", orientation) if orientation else ()))
        self.assertEqual(done.code, program.OK, done)
        self.assertIn("volume.yaml", done.out)
        return out / "net.pkg"

    def write(self, path, sides, seed=0, **options):
        import nibabel

        voxels = numpy.random.default_rng(seed).integers(-300, 300, sides).astype(numpy.int16)
        affine = numpy.array([[-0.5, 0.1, 0, 10], [0, 2, 0, -20], [0, 0, 3, 30], [0, 0, 0, 1]])
        image = nibabel.Nifti1Image(voxels, affine)
        image.header.set_slope_inter(0.25, 7)
        path.parent.mkdir(exist_ok=True)
        nibabel.save(image, path)
        return path

    def run_on(self, volume, package, out, *settings, code=program.OK, sinks="nifti,npy"):
        words = [word for setting in settings for word in ("--set", setting)]
        return self.run_ok(program.ROOT / "configs/volume.yaml", "--input", volume, "--set", f"semantic.model={package}", "--output", out, "--format", sinks,
                           *words, code=code)

    def compare(self, volume, out, overlap, weights, axes, mirrored=()):
        """The largest difference of the values to MONAI's; checks labels, their place in space, and the line."""
        import nibabel
        from monai.inferers import sliding_window_inference

        image = nibabel.load(volume)
        order = AXES[axes]
        voxels = torch.from_numpy((image.get_fdata(dtype=numpy.float32).transpose(order) - 50) / 100)
        with torch.inference_mode():
            expected = sliding_window_inference(voxels[None, None], [ROI[axis] for axis in order], 2, small_semantic.mirrored(self.net, [2 + order.index("xyz".index(axis)) for axis in mirrored]),
                                                overlap=overlap, mode=weights)[0].numpy()
        expected = expected.transpose(0, *(1 + order.index(axis) for axis in range(3)))  # [channel, x, y, z]
        values = numpy.load(out / "values" / f"{volume.name}.npy").transpose(3, 2, 1, 0)
        self.assertEqual(values.shape, expected.shape)
        labels = nibabel.load(out / "label_volumes" / f"{volume.name}.nii.gz")
        self.assertEqual(labels.get_data_dtype(), numpy.uint8)
        self.assertTrue((labels.affine == image.affine).all())
        # One value is that of class 1, and the other one is 0: sigmoid(value) > 0.5 where the value is positive.
        scores = numpy.concatenate([0 * expected, expected]) if len(expected) == 1 else expected
        best = numpy.sort(scores, axis=0)
        clear = best[-1] - best[-2] > 1e-5
        found = numpy.asarray(labels.dataobj)
        self.assertTrue((found == scores.argmax(0))[clear].all())
        (line,) = program.lines(out)
        counts = {one["label"]: one["voxels"] for one in line["semantic"]}
        self.assertEqual(counts, {int(label): int((found == label).sum()) for label in numpy.unique(found)})
        litres = numpy.prod(image.header.get_zooms()[:3]) / 1000
        for one in line["semantic"]:
            self.assertAlmostEqual(one["ml"], one["voxels"] * litres, delta=max(1e-3 * one["ml"], 5e-5))  # lines have 4 decimals
        return numpy.abs(values - expected).max()

    def compare_with_double_precision(self, volume, out, overlap):
        """The same against sums in double precision, for gaussian weights and the axes xyz."""
        import nibabel

        voxels = (nibabel.load(volume).get_fdata(dtype=numpy.float32) - 50) / 100
        expected, _ = blended(self.net, voxels[None], ROI, overlap, numpy.zeros(voxels.shape, bool))
        values = numpy.load(out / f"values/{volume.name}.npy").transpose(3, 2, 1, 0)
        self.assertEqual(values.shape, expected.shape)
        self.assertLessEqual(abs(values - expected).max(), 1e-5)

    def test_values_are_those_of_monai(self):
        packages = {}
        for number, (sides, overlap, weights, axes, in_call, classes) in enumerate(RUNS):
            with self.subTest(sides=sides, overlap=overlap, weights=weights, axes=axes, in_call=in_call, classes=classes):
                self.net = net_of(classes)
                if (axes, classes) not in packages:
                    packages[axes, classes] = self.package(axes, classes=classes)
                volume = self.write(self.folder / f"in/{number}.nii.gz", sides, seed=number)
                out = self.folder / f"out{number}"
                self.run_on(volume, packages[axes, classes], out, "semantic.values=logits", f"tiles.overlap={overlap}", f"tiles.weights={weights}",
                            f"semantic.window_batch={in_call}")
                self.assertLess(self.compare(volume, out, overlap, weights, axes), 1e-5)
                if number == 0:
                    self.compare_with_double_precision(volume, out, overlap)
                # Without values, labels leave slice by slice.
                slabs = self.folder / f"slabs{number}"
                self.run_on(volume, packages[axes, classes], slabs, f"tiles.overlap={overlap}", f"tiles.weights={weights}", f"semantic.window_batch={in_call}", sinks="nifti")
                self.assertEqual(program.tree(slabs / "label_volumes"), program.tree(out / "label_volumes"))

    def test_volumes_are_resampled_to_the_voxels_of_the_package_and_labels_go_back(self):
        import nibabel
        from monai.inferers import sliding_window_inference

        volume = self.write(self.folder / "in/a.nii.gz", (33, 26, 17))
        image = nibabel.load(volume)
        zooms = numpy.array(image.header.get_zooms()[:3])  # 0.51, 2.0, 3
        for number, (axes, spacing) in enumerate((("xyz", (1, 1, 1)), ("zyx", (0.4, 2.7, 5)), ("xyz", (0.9, 0, 0)), ("zyx", (0.51, 2, 3)))):
            with self.subTest(axes=axes, spacing=spacing):
                package = self.package(axes, spacing)
                wanted = numpy.where(numpy.array(spacing) > 0, spacing, zooms)
                sides = [round(float(side)) for side in numpy.array(image.shape) * zooms / wanted]
                order = AXES[axes]
                voxels = torch.from_numpy(image.get_fdata(dtype=numpy.float32))
                resampled = nn.functional.interpolate(voxels[None, None], size=sides, mode="trilinear", align_corners=False)[0, 0]
                inputs = ((resampled - 50) / 100).permute(order).contiguous()
                with torch.inference_mode():
                    expected = sliding_window_inference(inputs[None, None], [ROI[axis] for axis in order], 2, self.net, overlap=0.5, mode="gaussian")[0].numpy()
                expected = expected.transpose(0, *(1 + order.index(axis) for axis in range(3)))  # [channel, x, y, z]
                out = self.folder / f"spacing{number}"
                self.run_on(volume, package, out, "semantic.values=logits", "tiles.overlap=0.5")
                values = numpy.load(out / "values/a.nii.gz.npy").transpose(3, 2, 1, 0)
                self.assertEqual(values.shape, (len(expected), *sides))
                self.assertLess(abs(values - expected).max(), 1e-4)
                labels = nibabel.load(out / "label_volumes/a.nii.gz.nii.gz")
                self.assertTrue((labels.affine == image.affine).all())
                places = [((numpy.arange(count) + 0.5) * side / count).astype(int) for count, side in zip(image.shape, sides)]
                found = numpy.asarray(labels.dataobj)
                self.assertTrue((found == values.argmax(0)[numpy.ix_(*places)]).all())
                self.assertGreater(len(numpy.unique(found)), 2)
                (line,) = program.lines(out)
                self.assertEqual((line["width"], line["height"]), image.shape[:2])
                self.assertEqual({one["label"]: one["voxels"] for one in line["semantic"]}, {int(label): int((found == label).sum()) for label in numpy.unique(found)})
                # Without values, labels leave slice by slice.
                slabs = self.folder / f"spacing-slabs{number}"
                self.run_on(volume, package, slabs, "tiles.overlap=0.5", sinks="nifti")
                self.assertEqual(program.tree(slabs / "label_volumes"), program.tree(out / "label_volumes"))

    def write_in(self, codes, sides, seed):
        """A volume whose axes have these directions, a little turned, with voxels of 1, 2 and 3 mm."""
        import nibabel

        directions = numpy.zeros((3, 3))
        for axis, code in enumerate(codes):
            space = next(index for index, pair in enumerate(("LR", "PA", "IS")) if code in pair)
            directions[space, axis] = 1 if code in "RAS" else -1
        angle = 0.2
        turn = numpy.array([[numpy.cos(angle), -numpy.sin(angle), 0], [numpy.sin(angle), numpy.cos(angle), 0], [0, 0, 1]])
        affine = numpy.eye(4)
        affine[:3, :3] = turn @ directions @ numpy.diag([1, 2, 3])
        affine[:3, 3] = (10, -20, 30)
        self.assertEqual("".join(nibabel.aff2axcodes(affine)), codes)
        path = self.folder / f"in/{codes}.nii.gz"
        path.parent.mkdir(exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(numpy.random.default_rng(seed).normal(50, 100, sides).astype(numpy.float32), affine), path)
        return path

    def test_volumes_are_turned_to_the_orientation_of_the_package(self):
        import nibabel
        from monai.inferers import sliding_window_inference
        from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform

        for number, (codes, wanted, axes, spacing, mirrored) in enumerate((
            ("LPS", "RAS", "xyz", (), ""),
            ("PIR", "RAS", "xyz", (), ""),
            ("PIR", "RAS", "zyx", (), "x"),
            ("ASL", "LPI", "zyx", (), ""),
            ("SLA", "RAS", "xyz", (1, 1, 1), "y"),
            ("IRP", "LPS", "zyx", (2.2, 0, 1.5), ""),
            ("RAS", "RAS", "xyz", (), ""),
        )):  # fmt: skip
            with self.subTest(codes=codes, wanted=wanted, axes=axes, spacing=spacing, mirrored=mirrored):
                volume = self.write_in(codes, (19, 23, 17), seed=number)
                image = nibabel.load(volume)
                there = ornt_transform(io_orientation(image.affine), axcodes2ornt(wanted))
                back = ornt_transform(axcodes2ornt(wanted), io_orientation(image.affine))
                voxels = torch.from_numpy(numpy.ascontiguousarray(apply_orientation(image.get_fdata(dtype=numpy.float32), there)))
                oriented_zooms = [0.0] * 3
                for axis, (to, _) in enumerate(there):
                    oriented_zooms[int(to)] = float(image.header.get_zooms()[axis])
                sides = [round(side * zoom / asked) if asked else side for side, zoom, asked in zip(voxels.shape, oriented_zooms, spacing or (0, 0, 0))]
                voxels = nn.functional.interpolate(voxels[None, None], size=sides, mode="trilinear", align_corners=False)[0, 0]
                order = AXES[axes]
                inputs = ((voxels - 50) / 100).permute(order).contiguous()
                net = small_semantic.mirrored(self.net, [2 + order.index("xyz".index(axis)) for axis in mirrored])
                with torch.inference_mode():
                    expected = sliding_window_inference(inputs[None, None], [ROI[axis] for axis in order], 2, net, overlap=0.5, mode="gaussian")[0].numpy()
                expected = expected.transpose(0, *(1 + order.index(axis) for axis in range(3)))  # [channel, x, y, z] of the model
                expected = numpy.stack([apply_orientation(channel, back) for channel in expected])
                out = self.folder / f"turned{number}"
                settings = ("semantic.values=logits", "tiles.overlap=0.5", *([f"tiles.tta={mirrored}"] if mirrored else []))
                self.run_on(volume, self.package(axes, spacing, wanted), out, *settings)
                values = numpy.load(out / f"values/{volume.name}.npy").transpose(3, 2, 1, 0)
                self.assertEqual(values.shape, expected.shape)
                self.assertLess(abs(values - expected).max(), 1e-4)
                labels = nibabel.load(out / f"label_volumes/{volume.name}.nii.gz")
                self.assertTrue(numpy.allclose(labels.affine, image.affine))
                self.assertEqual(labels.shape, image.shape)
                # Without values, labels leave slice by slice.
                slabs = self.folder / f"turned-slabs{number}"
                self.run_on(volume, self.package(axes, spacing, wanted), slabs, *settings[1:], sinks="nifti")
                self.assertEqual(program.tree(slabs / "label_volumes"), program.tree(out / "label_volumes"))

    def test_a_volume_that_does_not_say_how_it_lies(self):
        import nibabel

        path = self.folder / "in/a.nii"
        path.parent.mkdir()
        image = nibabel.Nifti1Image(numpy.zeros((9, 8, 7), numpy.float32), None)
        nibabel.save(image, path)
        self.run_on(path, self.package("xyz", (), "RAS"), self.folder / "out", sinks="nifti", code=program.SOME_FAILED)
        (line,) = program.lines(self.folder / "out")
        self.assertEqual((line["reason"], line["detail"]), ("unsupported_format", "this volume does not say how it lies, but the model needs the orientation RAS; correct its header"))

    def test_mirrored_windows_have_the_mean(self):
        volume = self.write(self.folder / "in/a.nii", (30, 20, 25))
        for number, (axes, mirrored) in enumerate((("xyz", "x"), ("xyz", "yz"), ("zyx", "z"), ("zyx", "xyz"))):
            with self.subTest(axes=axes, mirrored=mirrored):
                out = self.folder / f"tta{number}"
                self.run_on(volume, self.package(axes), out, "semantic.values=logits", "tiles.overlap=0.5", f"tiles.tta={','.join(mirrored)}",
                            "semantic.window_batch=3")
                self.assertLess(self.compare(volume, out, 0.5, "gaussian", axes, mirrored), 1e-5)

    def test_background_cannot_be_found_in_values_that_are_scaled_first(self):
        done = program.millrace("model", self.folder / "net.ts", "--task", "semantic", "--roi", *ROI, "--spacing", 1, 1, 1, "--scale-first", "--zscore", "all")
        self.assertEqual(done.code, program.OK, done)
        done = program.millrace("run", program.ROOT / "configs/volume.yaml", "--input", self.write(self.folder / "in/a.nii", (9, 9, 9)), "--set",
                                f"semantic.model={self.folder / 'net.pkg'}", "--output", self.folder / "out", "--set", "tiles.skip_below=0")
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("scales volumes before it resamples them; leave them out", done.err)

    def test_windows_of_another_size(self):
        volume = self.write(self.folder / "in/a.nii", (20, 20, 20))
        package = self.package("xyz")
        self.run_on(volume, package, self.folder / "out", "tiles.roi=8,9,10", sinks="nifti")
        self.assertGreater(program.report(self.folder / "out")["calls"]["windows"], 8)
        done = program.millrace("run", program.ROOT / "configs/volume.yaml", "--input", volume, "--set", f"semantic.model={package}", "--output",
                                self.folder / "no", "--set", "tiles.roi=8,9")
        self.assertEqual(done.code, program.USAGE)
        self.assertIn("tiles.roi has 2 numbers, but the windows of", done.err)

    def test_a_dry_run_states_the_size_of_the_sums(self):
        done = program.millrace("run", program.ROOT / "configs/volume.yaml", "--input", self.write(self.folder / "in/a.nii", (30, 21, 17)), "--set",
                                f"semantic.model={self.package('zyx')}", "--output", self.folder / "out", "--dry-run")
        self.assertEqual(done.code, program.OK, done)
        # 8 slices of three channels and the weights, in four bytes each
        self.assertIn("\n  windows of 12 x 10 x 8 voxels; the sums of a volume take 128 B for each voxel of a slice\n", done.out)

    def test_formats_and_options_of_pictures_are_refused_before_the_run(self):
        volume = self.write(self.folder / "in/a.nii", (30, 21, 17))
        picture_package = small_semantic.make(self.folder)
        for recipe, package, words, text in (
            ("tiled", self.package("zyx"), (), "the format png writes labels of pictures, but 'net' takes volumes; use --format nifti, or the recipe configs/volume.yaml"),
            ("volume", self.package("zyx"), ("--format", "png,tiff"), "the format tiff writes labels of pictures"),
            ("volume", picture_package, (), "takes pictures; use --format png, or the recipe configs/tiled.yaml"),
            ("volume", self.package("zyx"), ("--format", "nifti,overlay"), "the format overlay is for pictures, but 'net' takes volumes; leave overlay out"),
            ("volume", self.package("zyx"), ("--mpp", 1), "decode.level and decode.mpp are for slides, but"),
        ):
            with self.subTest(text):
                done = program.millrace("run", program.ROOT / f"configs/{recipe}.yaml", "--input", volume, "--set", f"semantic.model={package}", "--output", self.folder / "refused", *words)
                self.assertEqual(done.code, program.USAGE, done)
                self.assertIn(text, done.err)
                self.assertFalse((self.folder / "refused/segments").exists())
        # With one format that fits, the others make no files.
        self.run_on(volume, self.package("zyx"), self.folder / "out", sinks="png,nifti")
        self.assertTrue((self.folder / "out/label_volumes/a.nii.nii.gz").is_file())

    def test_bad_volumes_fail_alone(self):
        good = self.write(self.folder / "in/good.nii.gz", (20, 12, 9))
        whole = good.read_bytes()
        (self.folder / "in/cut.nii.gz").write_bytes(whole[: len(whole) // 2])
        (self.folder / "in/text.nii.gz").write_text("no volume")
        program.write_picture(self.folder / "in/picture.png")
        self.run_on(self.folder / "in", self.package("xyz"), self.folder / "out", sinks="nifti", code=program.SOME_FAILED)
        lines = {line["path"]: line for line in program.lines(self.folder / "out")}
        self.assertEqual({path: line.get("reason") for path, line in lines.items()},
                         {"good.nii.gz": None, "cut.nii.gz": "truncated", "text.nii.gz": "not_an_image", "picture.png": "unsupported_format"})
        self.assertIn("a picture, but the windows of the model are volumes", lines["picture.png"]["detail"])


if __name__ == "__main__":
    program.main()
