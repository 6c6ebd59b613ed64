"""Heatmaps: the program finds the centres of dots, also between pixels, and the same points as NumPy in its own values.

The formats set of tools/setup.sh has nibabel and pydicom; without it, the tests of volumes skip.
"""

import itertools

import dicom_series
import numpy
import program
import torch
from PIL import Image
from program import Case
from torch import nn

NAMES = ("left eye", "nose")


def blobs(dimensions, channels, radius=6, sigma=2.0):
    """A net that turns the dots of each of the first two channels into Gaussians with a top of 1."""
    line = torch.exp(-(torch.arange(-radius, radius + 1) ** 2) / (2 * sigma**2))
    kernel = line
    for _ in range(dimensions - 1):
        kernel = kernel[..., None] * line
    net = (nn.Conv2d, nn.Conv3d)[dimensions - 2](channels, 2, 2 * radius + 1, padding=radius, bias=False)
    with torch.no_grad():
        net.weight.zero_()
        for channel in range(2):
            net.weight[channel, min(channel, channels - 1)] = kernel * (1 - channel / 4 if channels == 1 else 1)
    return torch.jit.script(net.eval())


def draw(picture, centre, brightness=200.0):
    """Adds a dot: its brightness is shared by the pixels around the centre, as in linear interpolation. The centre of pixel i is i + 0.5."""
    low = numpy.floor(numpy.array(centre) - 0.5).astype(int)
    for corner in itertools.product((0, 1), repeat=len(centre)):
        share = [1 - abs(position - 0.5 - place) for position, place in zip(centre, low + corner)]
        picture[tuple(low + corner)] += brightness * numpy.prod(share)


def maxima(values, least, most):
    """Points of a heatmap as [first axis, ..., value], the best first; of equal neighbours the first one counts."""
    padded = numpy.pad(values.astype(float), 1, constant_values=-numpy.inf)
    inner = tuple(slice(1, -1) for _ in values.shape)
    largest = values >= least
    shifts = list(itertools.product((-1, 0, 1), repeat=values.ndim))
    for number, shift in enumerate(shifts):
        there = padded[tuple(slice(1 + step, 1 + step + side) for step, side in zip(shift, values.shape))]
        if number < len(shifts) // 2:
            largest &= there < padded[inner]
        elif number > len(shifts) // 2:
            largest &= there <= padded[inner]
    points = []
    for at in numpy.argwhere(largest):
        place = []
        for axis, position in enumerate(at):
            low, here, high = (padded[tuple(at + 1 + (numpy.arange(values.ndim) == axis) * step)] for step in (-1, 0, 1))
            inside = 0 < position < values.shape[axis] - 1 and low + high < 2 * here
            place.append(position + 0.5 + ((low - high) / (2 * (low - 2 * here + high)) if inside else 0))
        points.append([*place, float(values[tuple(at)])])
    return sorted(points, key=lambda point: -point[-1])[:most]


class Points(Case):
    def package(self, net, *words):
        torch.set_num_threads(1)
        net.save(str(self.folder / "net.ts"))
        names = self.write("names.txt", "\n".join(NAMES) + "\n")
        done = program.millrace("model", self.folder / "net.ts", "--task", "semantic", "--heatmaps", "--names", names, *words)
        self.assertEqual(done.code, program.OK, done)
        self.assertIn("configs/points.yaml --input PICTURES --set semantic.model=", done.out)
        return self.folder / "net.pkg"

    def go(self, package, picture, name, *settings, formats="", code=program.OK):
        """The value of `points` of the only picture."""
        words = [word for setting in settings for word in ("--set", setting)]
        self.out = self.folder / f"out-{name}"
        self.done = self.run_ok(program.ROOT / "configs/points.yaml", "--input", picture, "--set", f"semantic.model={package}", "--output", self.out,
                                *(("--format", formats) if formats else ()), *words, code=code)
        if code != program.OK:
            return None
        (line,) = program.lines(self.out)
        self.assertNotIn("semantic", line)
        self.assertEqual([(entry["class"], entry["name"]) for entry in line["points"]], list(enumerate(NAMES)))
        self.mm = [entry.get("mm") for entry in line["points"]]
        return [entry["points"] for entry in line["points"]]

    def check(self, found, expected, tolerance=6e-4):
        self.assertEqual([len(points) for points in found], [len(points) for points in expected])
        for points, others in zip(found, expected):
            for point, other in zip(points, others):
                self.assertLess(abs(numpy.array(point) - other).max(), tolerance)

    def near(self, found, centres, tolerance):
        """Checks that the points are these centres, in any order."""
        self.assertEqual(len(found), len(centres))
        places = numpy.array(found)[:, :-1]
        for centre in centres:
            self.assertLess(abs(places - centre).max(axis=1).min(), tolerance)

    def dots(self, height=300, width=210, count=7):
        """A picture with dots in two of its colours, and their centres as x, y. The dots of a colour differ in brightness."""
        random = numpy.random.default_rng(4)
        picture = numpy.zeros((height, width, 3))
        centres = []
        for channel in range(2):
            # Not at the upper and lower edge: the weights of all windows are small there, so one that sees a part of a blob counts too.
            rows = numpy.linspace(20, height - 20, count) + random.uniform(-0.5, 0.5, count)
            columns = random.uniform(6, width - 6, count)
            for number, (row, column) in enumerate(zip(rows, columns)):
                draw(picture[:, :, channel], (row, column), 240 - 15 * number)
            centres.append(list(zip(columns, rows)))
        return numpy.round(picture).astype(numpy.uint8), centres

    def test_dots_are_found_between_pixels_in_pictures_of_any_kind(self):
        pixels, centres = self.dots()
        (self.folder / "in").mkdir()
        Image.fromarray(pixels).save(self.folder / "in/a.png")
        Image.fromarray(pixels).save(self.folder / "in/a.tif", compression="tiff_adobe_deflate")
        package = self.package(blobs(2, 3), "--roi", 64)
        settings = ("semantic.points=100", "semantic.point_threshold=0.3", "tiles.overlap=0.5", "semantic.window_batch=3")
        # Values are kept for the whole picture; without them, they leave slab by slab.
        whole = self.go(package, self.folder / "in/a.png", "values", *settings, "semantic.values=probabilities", formats="npy")
        values = numpy.load(self.out / "values/a.png.npy")
        self.assertEqual(values.shape, (*pixels.shape[:2], 2))
        self.assertEqual(self.mm, [None, None])
        expected = [[[x, y, value] for y, x, value in maxima(values[:, :, channel], 0.3, 100)] for channel in range(2)]
        self.check(whole, expected)
        for points, there in zip(whole, centres):
            self.near(points, there, 0.1)
            self.assertEqual([point[-1] for point in points], sorted((point[-1] for point in points), reverse=True))
        self.assertEqual(self.go(package, self.folder / "in/a.png", "png", *settings), whole)
        self.assertEqual(self.go(package, self.folder / "in/a.tif", "tif", *settings), whole)
        calls = program.report(self.out)["calls"]
        self.assertGreater(calls["slabs_in"], 3)
        self.assertGreater(calls["slabs_out"], 3)
        self.assertFalse((self.out / "unfinished").exists() and any((self.out / "unfinished").iterdir()))
        # By default, the best point of each channel.
        best = self.go(package, self.folder / "in/a.tif", "best", "tiles.overlap=0.5", "semantic.window_batch=3", formats="overlay")
        self.assertEqual(best, [points[:1] for points in whole])
        overlay = numpy.asarray(Image.open(self.out / "overlay/a.tif.jpg").convert("RGB")).astype(int)
        x, y = best[0][0][:2]
        edge = overlay[int(y), int(x) - 6 : int(x) - 2]  # a box of 8 pixels in orange is around it
        self.assertLess(abs(edge - (230, 159, 0)).sum(axis=1).min(), 90)
        # Skipped windows have no values.
        self.assertEqual(self.go(package, self.folder / "in/a.tif", "skipped", *settings, "tiles.skip_above=-1"), [[], []])

    def volume(self, sides, affine, centres, brightness=900.0):
        import nibabel

        voxels = numpy.zeros(sides)
        for centre in centres:
            draw(voxels, centre, brightness)
        nibabel.save(nibabel.Nifti1Image(voxels.astype(numpy.int16), affine), self.folder / "a.nii.gz")
        return self.folder / "a.nii.gz"

    def test_dots_are_found_in_volumes_and_lie_where_they_lie_in_the_file(self):
        program.require_formats()
        import nibabel

        sides, centres = (40, 33, 29), [(8.3, 20.8, 6.5), (30.1, 9.25, 20.9)]
        affine = numpy.array([[-0.9, 0.1, 0, 70], [0.1, 1, 0.2, -50], [0, -0.2, 2, 30], [0, 0, 0, 1]])  # x goes to the left
        volume = self.volume(sides, affine, centres)
        settings = ("semantic.points=9", "semantic.point_threshold=0.3", "tiles.overlap=0.5")
        for number, words in enumerate(((), ("--orientation", "SAR"), ("--axes", "zyx"))):
            with self.subTest(words=words):
                package = self.package(blobs(3, 1), "--roi", 24, 20, 16, "--std", 900, *words)
                whole = self.go(package, volume, f"values{number}", *settings, "semantic.values=probabilities", formats="npy")
                values = numpy.load(self.out / "values/a.nii.gz.npy").transpose(3, 2, 1, 0)
                self.assertEqual(values.shape, (2, *sides))
                self.check(whole, [maxima(of_channel, 0.3, 9) for of_channel in values])
                for points, mm in zip(whole, self.mm):
                    self.near(points, centres, 0.1)
                    places = nibabel.affines.apply_affine(affine, numpy.array(points)[:, :3] - 0.5)
                    self.assertLess(abs(places - mm).max(), 3e-3)
                self.assertEqual(self.go(package, volume, f"slabs{number}", *settings), whole)

    def test_points_of_a_dicom_series_have_their_place_in_the_body(self):
        program.require_formats()
        voxels = numpy.zeros((20, 24, 28))  # [slice, row, column]
        draw(voxels, (8.3, 14.6, 11.9), 900.0)
        dicom_series.write(self.folder / "in", dicom_series.series(voxels.astype(numpy.int16), directions=dicom_series.OBLIQUE))
        package = self.package(blobs(3, 1), "--roi", 16, 16, 16, "--std", 900)
        (point,), _ = self.go(package, self.folder / "in", "dicom", "tiles.overlap=0.5")
        self.near([point], [(11.9, 14.6, 8.3)], 0.1)
        affine, _ = dicom_series.affine(self.folder / "in")
        self.assertLess(abs(affine @ [*(numpy.array(point[:3]) - 0.5), 1] - [*self.mm[0][0], 1]).max(), 3e-3)

    def test_points_of_resampled_volumes_go_back(self):
        program.require_formats()
        sides, centres = (30, 25, 20), [(8.3, 16.75, 6.4), (20.6, 9.3, 14.2)]
        # Dots of several voxels, which an interpolation does not change much.
        grid = numpy.stack(numpy.meshgrid(*(numpy.arange(side) + 0.5 for side in sides), indexing="ij"), -1)
        voxels = sum(900 * numpy.exp(-((grid - centre) ** 2).sum(-1) / (2 * 2.5**2)) for centre in centres)
        import nibabel

        nibabel.save(nibabel.Nifti1Image(voxels.astype(numpy.int16), numpy.diag([1, 1, 2, 1])), self.folder / "a.nii.gz")
        net = blobs(3, 1, radius=0)
        package = self.package(net, "--roi", 16, 16, 16, "--std", 900, "--spacing", 0.8, 1.3, 2)
        settings = ("semantic.points=9", "tiles.overlap=0.5")
        whole = self.go(package, self.folder / "a.nii.gz", "values", *settings, "semantic.values=probabilities", formats="npy")
        values = numpy.load(self.out / "values/a.nii.gz.npy").transpose(3, 2, 1, 0)
        self.assertEqual(values.shape[1:], (38, 19, 20))
        ratio = numpy.array([*sides, 1]) / [*values.shape[1:], 1]
        self.check(whole, [[numpy.array(point) * ratio for point in maxima(of_channel, 0.5, 9)] for of_channel in values])
        for points, mm in zip(whole, self.mm):
            self.near(points, centres, 0.2)
            self.assertLess(abs((numpy.array(points)[:, :3] - 0.5) * (1, 1, 2) - mm).max(), 2e-3)
        self.assertEqual(self.go(package, self.folder / "a.nii.gz", "slabs", *settings), whole)

    def test_what_needs_labels_is_refused(self):
        pixels, _ = self.dots(40, 40, 2)
        Image.fromarray(pixels).save(self.folder / "a.png")
        package = self.package(blobs(2, 3), "--roi", 32, "--activation", "sigmoid")
        for number, (settings, formats, text) in enumerate(((("semantic.instances=3",), "", "semantic.instances lists parts of classes"),
                                                            (("semantic.values=logits",), "npy", "use probabilities"), ((), "png", "leave png out"),
                                                            ((), "overlay,tiff", "leave tiff out"), ((), "nifti", "leave nifti out"))):
            self.go(package, self.folder / "a.png", f"refused{number}", *settings, formats=formats, code=program.USAGE)
            self.assertIn(text, self.done.err)
            self.assertFalse(self.out.exists())
        done = program.millrace("model", self.folder / "net.ts", "--task", "semantic", "--heatmaps", "--roi", 32, "--threshold", 0.5)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("--threshold has no meaning with --heatmaps", done.err)


if __name__ == "__main__":
    program.main()
