"""The values that a model of windows gets, by all scalings of a package, are those of MONAI and numpy.

The nets return their input, and one window has the whole item, so that the results are these values. Most comparisons need
the formats set of tools/setup.sh, and skip without it.
"""

import functools
import re

import numpy
import program
import small_semantic
import torch
import yaml
from PIL import Image
from torch import nn

SIDES = (19, 14, 11)  # x, y, z of a volume
ROI = 24
SAME = 2e-6  # largest difference to a computation in float64, as a share of the largest value
MONAI = 3e-5  # torch.quantile, which MONAI calls, finds the place between two values in float32

YAML = """schema: 1
name: {{name}}
task: semantic
architecture: same
input: {{{{{sides}, {scaling}}}}}
output: {{{{channels: {channels}, activation: none, threshold: 0.5}}}}
classes: [{classes}]
max_batch: 8
licence: none
files: {{{{model.ts: {{model}}}}}}
"""


class Same(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * 1


def setUpModule():
    torch.set_num_threads(1)


class Base(program.Case):
    def package(self, scaling, volumes=True, net=None, channels=None, sides=(ROI, ROI, ROI), colour="rgb"):
        """The package of a net, by default of the one that returns its input, with these keys of the section `input`."""
        channels = channels or (1 if volumes else 3)
        named = dict(zip(("width", "height", "depth"), sides)) if volumes else {"width": ROI, "height": ROI}
        of_kind = {"axes": "xyz"} if volumes else {} if scaling.startswith("channels:") else {"colour": colour}
        keys = ", ".join(f"{key}: {value}" for key, value in (named | of_kind).items())
        scaling = scaling.replace("{", "{{").replace("}", "}}")  # write() formats the text once more
        text = YAML.format(sides=keys, scaling=scaling, channels=channels, classes=", ".join(f"class {k}" for k in range(channels)))
        return small_semantic.write(self.folder, f"net-{len(list(self.folder.glob('net-*')))}", net or Same(), text)

    def run_on(self, items, package, recipe="volume", *settings, code=program.OK):
        out = self.folder / f"out-{len(list(self.folder.glob('out-*')))}"
        settings = (f"semantic.model={package}", "semantic.values=logits", *settings)
        self.run_ok(program.ROOT / f"configs/{recipe}.yaml", "--input", items, *(word for setting in settings for word in ("--set", setting)),
                    "--format", "npy", "--output", out, code=code)
        return out

    def inputs(self, items, package, recipe="volume"):
        """What the net gets of each item, by name: [z, y, x] or [height, width, channels]."""
        out = self.run_on(items, package, recipe)
        found = {file.name.removesuffix(".npy"): numpy.load(file) for file in (out / "values").iterdir()}
        return {name: values[..., 0] if recipe == "volume" else values for name, values in found.items()}

    def assert_same(self, found, expected, what, bound=SAME):
        expected = numpy.asarray(expected, numpy.float64)
        self.assertEqual(found.shape, expected.shape, what)
        self.assertTrue(numpy.isfinite(expected).all(), what)
        self.assertLessEqual(abs(found - expected).max(), bound * max(abs(expected).max(), 1e-3), what)


def voxels_of(kind):
    """Voxels [x, y, z], two thirds of them in a border of zeros."""
    random = numpy.random.default_rng(5)
    voxels = numpy.zeros(SIDES, kind)
    inner = random.gamma(2, 40, [side - 6 for side in SIDES])
    if kind == numpy.int16:
        inner = inner * 20 - 1000
    if kind == numpy.float32:
        inner = inner - 70
    if kind == numpy.uint8:
        inner = inner.clip(0, 255)
    inner[2, 3, 4] = 0
    voxels[2:-4, 3:-3, 4:-2] = inner.astype(kind)
    return voxels


class NiftiCase(Base):
    def setUp(self):
        super().setUp()
        program.require_formats()

    def write(self, name, voxels, slope=None):
        import nibabel

        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        image = nibabel.Nifti1Image(voxels, numpy.diag([0.7, 0.8, 2, 1]))
        if slope:
            image.header.set_slope_inter(*slope)
        nibabel.save(image, path)
        return path

    def read(self, path):
        import nibabel

        return nibabel.load(path).get_fdata(dtype=numpy.float32).transpose(2, 1, 0)


class Volumes(NiftiCase):
    def scalings(self):
        """Keys of the package, what another tool makes of a volume, and the largest difference to that."""
        from monai.transforms import NormalizeIntensity, ScaleIntensityRange, ScaleIntensityRangePercentiles

        def monai(transform):
            return lambda values: transform(values[None])[0]

        def nnunet_ct(values):  # nnU-Net's CTNormalization
            return (numpy.clip(values, -30.5, 90) - numpy.float32(12.5)) / numpy.float32(33)

        def nnunet_zscore(values):  # nnU-Net's ZScoreNormalization, after its crop to the values that are not zero
            inside = numpy.argwhere(values != 0)
            box = values[tuple(slice(first, last + 1) for first, last in zip(inside.min(0), inside.max(0)))].astype(numpy.float64)
            return (values - box.mean()) / max(box.std(), 1e-8)

        def clipped_zscore(values):
            return NormalizeIntensity()(numpy.clip(values, -20, 60)[None])[0]

        def from_percentiles(low, high, values):
            bounds = numpy.percentile(values.astype(numpy.float64), (low, high))
            return (values - bounds[0]) / (bounds[1] - bounds[0])

        yield "clip: [-30.5, 90], scale: 1, mean: [12.5], std: [33]", nnunet_ct, SAME
        yield "clip: [-57, 164], scale: 1, mean: [-57], std: [221]", monai(ScaleIntensityRange(-57, 164, 0, 1, clip=True)), SAME
        yield "zscore: all", monai(NormalizeIntensity()), SAME
        yield "zscore: nonzero", monai(NormalizeIntensity(nonzero=True)), SAME
        yield "zscore: nonzero_box", nnunet_zscore, SAME
        yield "zscore: all, clip: [-20, 60]", clipped_zscore, SAME
        for low, high in ((0.5, 99.5), (1, 99.9), (0, 100), (20.3, 91.9)):
            for clip in ("no", "yes"):
                keys = f"percentiles: [{low}, {high}], clip_to_percentiles: {clip}"
                yield keys, monai(ScaleIntensityRangePercentiles(low, high, 0, 1, clip=clip == "yes")), MONAI
                own = functools.partial(from_percentiles, low, high)
                yield keys, (lambda values, own=own: own(values).clip(0, 1)) if clip == "yes" else own, SAME

    def test_values_are_those_of_monai_and_numpy(self):
        volumes = [
            self.write("in/u8.nii", voxels_of(numpy.uint8)),
            self.write("in/i16.nii.gz", voxels_of(numpy.int16), slope=(0.25, 0)),
            self.write("in/f32.nii.gz", voxels_of(numpy.float32)),
        ]
        found = {}
        for keys, expected, bound in self.scalings():
            if keys not in found:
                found[keys] = self.inputs(self.folder / "in", self.package(keys))
            for volume in volumes:
                with self.subTest(keys, volume=volume.name):
                    inputs = found[keys][volume.name]
                    self.assert_same(inputs, expected(self.read(volume)), keys, bound)
                    self.assertGreater(len(numpy.unique(inputs)), 20)

    def test_a_volume_of_one_value_has_zeros(self):
        from monai.transforms import NormalizeIntensity, ScaleIntensityRangePercentiles

        for value in (0, 37.25):
            values = self.read(self.write(f"in/{value}.nii.gz", numpy.full(SIDES, value, numpy.float32)))
            self.assertFalse(NormalizeIntensity()(values[None]).any())
            self.assertFalse(ScaleIntensityRangePercentiles(1, 99, 0, 1, clip=True)(values[None]).any())
        for keys in ("zscore: all", "zscore: nonzero", "zscore: nonzero_box", "percentiles: [1, 99], clip_to_percentiles: yes",
                     "percentiles: [1, 99], clip_to_percentiles: no"):
            inputs = self.inputs(self.folder / "in", self.package(keys))
            self.assertEqual(len(inputs), 2)
            for name, values in inputs.items():
                self.assertFalse(values.any(), (keys, name))

    def test_equal_percentiles_neither_divide_nor_clip(self):
        from monai.transforms import ScaleIntensityRangePercentiles

        voxels = numpy.full(SIDES, 4, numpy.float32)
        voxels[3, 4, 5:8] = -90, 4.5, 1000
        volume = self.write("flat.nii.gz", voxels)
        found = self.inputs(volume, self.package("percentiles: [5, 95], clip_to_percentiles: yes"))[volume.name]
        self.assert_same(found, ScaleIntensityRangePercentiles(5, 95, 0, 1, clip=True)(self.read(volume)[None])[0], "equal")
        self.assertEqual(found.max(), 996)

    def test_values_that_are_not_finite_fail_the_volume_alone(self):
        self.write("in/good.nii.gz", voxels_of(numpy.float32))
        for name, value in (("nan", numpy.nan), ("infinite", numpy.inf)):
            voxels = voxels_of(numpy.float32)
            voxels[5, 6, 7] = value
            self.write(f"in/{name}.nii.gz", voxels)
        said = "slice 7 has values that are not finite, so the volume has no statistics; replace these values in the file"
        for keys in ("zscore: all", "percentiles: [1, 99], clip_to_percentiles: no"):
            out = self.run_on(self.folder / "in", self.package(keys), "volume", "batch.size=3", code=program.SOME_FAILED)
            self.assertEqual({line["path"]: (line.get("reason"), line.get("detail")) for line in program.lines(out)},
                             {"good.nii.gz": (None, None), "nan.nii.gz": ("non_finite", said), "infinite.nii.gz": ("non_finite", said)})
        for keys in ("zscore: all, clip: [-20, 60]", "clip: [-20, 60], scale: 1, mean: [0], std: [1]"):  # clipping makes infinity finite, as numpy.clip does
            out = self.run_on(self.folder / "in", self.package(keys), code=program.SOME_FAILED)
            self.assertEqual({line["path"]: line.get("reason") for line in program.lines(out)},
                             {"good.nii.gz": None, "nan.nii.gz": "non_finite", "infinite.nii.gz": None})

    def test_a_cut_volume_fails_with_its_slice(self):
        whole = self.write("whole.nii.gz", numpy.random.default_rng(1).normal(size=SIDES).astype(numpy.float32)).read_bytes()
        (self.folder / "cut.nii.gz").write_bytes(whole[: len(whole) // 2])
        out = self.run_on(self.folder / "cut.nii.gz", self.package("zscore: all"), code=program.SOME_FAILED)
        (line,) = program.lines(out)
        self.assertEqual(line["reason"], "truncated")
        self.assertRegex(line["detail"], r"^the data of this NIfTI end in slice \d of 11$")

    def test_many_windows_alone_or_packed_have_the_same_bytes_and_those_values_of_monai(self):
        from monai.inferers import sliding_window_inference
        from monai.transforms import NormalizeIntensity

        torch.manual_seed(2)
        net = nn.Sequential(nn.Conv3d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv3d(6, 3, 3, padding=1)).eval()
        random = numpy.random.default_rng(8)
        roi = (8, 10, 12)
        volumes = [self.write(f"in/{n}.nii.gz", random.normal(100 * n, 10 + 5 * n, (20 + 3 * n, 13, 16 - n)).astype(numpy.float32)) for n in range(3)]
        settings = ("volume", "tiles.overlap=0.5", "semantic.window_batch=5")
        for keys in ("zscore: all", "percentiles: [1, 99], clip_to_percentiles: no"):
            package = self.package(keys, net=net, channels=3, sides=roi)
            packed = self.run_on(self.folder / "in", package, *settings, "batch.size=3")
            for volume in volumes:
                alone = self.run_on(volume, package, *settings)
                file = f"values/{volume.name}.npy"
                self.assertEqual((alone / file).read_bytes(), (packed / file).read_bytes())
                if not keys.startswith("zscore"):
                    continue
                values = numpy.asarray(NormalizeIntensity()(self.read(volume)[None])[0]).transpose(2, 1, 0).copy()
                with torch.inference_mode():
                    expected = sliding_window_inference(torch.from_numpy(values)[None, None], roi, 4, net, overlap=0.5, mode="gaussian")
                self.assertLess(abs(numpy.load(packed / file) - expected[0].permute(3, 2, 1, 0).numpy()).max(), 1e-5)


class Pictures(Base):
    def test_values_are_those_of_monai(self):
        program.require_formats()
        from monai.transforms import NormalizeIntensity, ScaleIntensityRange, ScaleIntensityRangePercentiles

        random = numpy.random.default_rng(3)
        pixels = (random.gamma(2, 1, (17, 21, 3)) * (20, 35, 50)).clip(0, 255).astype(numpy.uint8)
        pixels[:3] = 0
        (self.folder / "in").mkdir()
        for name in ("a.png", "b.tif"):  # the second one is read in parts
            Image.fromarray(pixels).save(self.folder / "in" / name)
        planes = pixels.astype(numpy.float32).transpose(2, 0, 1)
        low, high = (numpy.array(bounds, numpy.float32)[:, None, None] for bounds in ((20, 0, 30), (90, 40, 31)))  # of the model's channels
        for keys, transform in (
            ("channels: [{clip: [20, 90], scale: 1, mean: 1, std: 4}, {clip: [0, 40], scale: 1, mean: 2, std: 5}, {clip: [30, 31], scale: 1, mean: 3, std: 8}]",
             lambda planes: (planes.clip(low, high) - [[[1]], [[2]], [[3]]]) / [[[4]], [[5]], [[8]]]),
            ("channels: [{zscore: all, clip: [20, 90]}, {zscore: all, clip: [0, 40]}, {zscore: all, clip: [30, 31]}]",
             lambda planes: NormalizeIntensity(channel_wise=True)(planes.clip(low, high))),
            ("clip: [20, 90], scale: 1, mean: [20, 20, 20], std: [70, 70, 70]", ScaleIntensityRange(20, 90, 0, 1, clip=True)),
            ("zscore: all, channel_wise: no", NormalizeIntensity()),
            ("zscore: all, channel_wise: yes", NormalizeIntensity(channel_wise=True)),
            ("zscore: nonzero, channel_wise: yes", NormalizeIntensity(nonzero=True, channel_wise=True)),
            ("percentiles: [2, 98], clip_to_percentiles: no, channel_wise: no", ScaleIntensityRangePercentiles(2, 98, 0, 1)),
            ("percentiles: [2, 98], clip_to_percentiles: yes, channel_wise: yes", ScaleIntensityRangePercentiles(2, 98, 0, 1, clip=True, channel_wise=True)),
        ):  # fmt: skip
            for colour in ("rgb",) if keys.startswith("channels:") else ("rgb", "bgr"):
                expected = numpy.asarray(transform(planes if colour == "rgb" else planes[::-1].copy())).transpose(1, 2, 0)
                inputs = self.inputs(self.folder / "in", self.package(keys, volumes=False, colour=colour), "tiled")
                self.assertEqual(set(inputs), {"a.png", "b.tif"})
                for name, found in inputs.items():
                    with self.subTest(keys, picture=name, colour=colour):
                        self.assert_same(found, expected, keys, MONAI if keys.startswith("percentiles") else SAME)


CHANNELS = (
    {"clip": (-300, 500), "scale": 0.5, "mean": 40, "std": 200},
    {"zscore": "nonzero_box"},
    {"percentiles": (2, 98), "clip_to_percentiles": "yes"},
    {"zscore": "nonzero", "clip": (-20, 90)},
    {"percentiles": (5, 90)},
    {"zscore": "all"},
)


def words_of(channels):
    return [str(word) for keys in channels for word in ("--channel", *(f"{key}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for key, value in keys.items()))]


def scaled_by(keys, values, box):
    """What becomes of the values of a channel, in float64. `box` has the slices of the values that are not zero in all channels."""
    if "clip" in keys:
        values = values.clip(*keys["clip"])
    if "scale" in keys:
        return (values * keys["scale"] - keys["mean"]) / keys["std"]
    if "percentiles" in keys:
        low, high = numpy.percentile(values, keys["percentiles"])
        return ((values.clip(low, high) if "clip_to_percentiles" in keys else values) - low) / (high - low)
    counted = {"all": values, "nonzero": values[values != 0], "nonzero_box": values[box]}[keys["zscore"]]
    result = (values - counted.mean()) / counted.std()
    return numpy.where(values == 0, 0, result) if keys["zscore"] == "nonzero" else result


def inputs_of(planes, channels=CHANNELS):
    """The input of a net, of [channel, ...]."""
    inside = numpy.argwhere((planes != 0).any(0))
    box = tuple(slice(first, last + 1) for first, last in zip(inside.min(0), inside.max(0)))
    return numpy.stack([scaled_by(keys, plane.astype(numpy.float64), box) for keys, plane in zip(channels, planes, strict=True)])


class Channels(NiftiCase):
    """Packages of `millrace model --channel`, whose channels are scaled in different ways, against PyTorch."""

    def convert(self, net, *words, channels=CHANNELS):
        file = self.folder / "net.ts"
        torch.jit.script(net).save(str(file))
        done = program.millrace("model", file, "--task", "semantic", "--activation", "none", *words, *words_of(channels))
        self.assertEqual(done.code, program.OK, done)
        return self.folder / "net.pkg"

    def compare(self, item, package, recipe, net, inputs):
        found = numpy.load(self.run_on(item, package, recipe) / f"values/{item.name}.npy")
        with torch.inference_mode():
            expected = net(torch.from_numpy(inputs)[None].float())[0].numpy()
        self.assertLess(abs(inputs).max(), 20)
        self.assert_same(found, expected.transpose(*range(len(inputs.shape) - 1, 0, -1), 0) if recipe == "volume" else expected.transpose(1, 2, 0), item.name, 1e-5)

    def test_volumes_also_resampled_before_and_after(self):
        import nibabel

        random = numpy.random.default_rng(11)
        voxels = numpy.zeros((*SIDES, len(CHANNELS)), numpy.float32)
        voxels[2:-4, 3:-3, 4:-2] = random.normal(30, 60, (13, 8, 5, len(CHANNELS)))
        voxels[..., 0] *= 12  # as CT next to MR
        voxels[1, 5, 6, 0] = -900  # the box has this place, where the other channels are zero
        voxels[5, 5, 5:7, 1:] = 0
        file = self.folder / "mixed.nii.gz"
        nibabel.save(nibabel.Nifti1Image(voxels, numpy.diag([1, 1, 2, 1])), file)
        planes = torch.from_numpy(voxels.transpose(3, 0, 1, 2).astype(numpy.float64))
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv3d(len(CHANNELS), 5, 3, padding=1), nn.ReLU(), nn.Conv3d(5, 2, 3, padding=1)).eval()

        def resampled(values):
            return nn.functional.interpolate(values[None], size=(SIDES[0], SIDES[1], 2 * SIDES[2]), mode="trilinear", align_corners=False)[0]

        self.compare(file, self.convert(net, "--roi", *SIDES), "volume", net, inputs_of(planes.numpy()))
        words = ("--roi", SIDES[0], SIDES[1], 2 * SIDES[2], "--spacing", 1, 1, 1)
        self.compare(file, self.convert(net, *words), "volume", net, inputs_of(resampled(planes).numpy()))
        before = resampled(torch.from_numpy(inputs_of(planes.numpy()))).numpy()
        self.compare(file, self.convert(net, *words, "--scale-first"), "volume", net, before)

    def test_pictures_of_8_bits_and_of_real_numbers(self):
        import tifffile

        random = numpy.random.default_rng(12)
        pixels = (random.gamma(2, 20, (17, 21, len(CHANNELS)))).clip(0, 255).astype(numpy.float32)
        pixels[:3] = 0
        torch.manual_seed(4)
        net = nn.Sequential(nn.Conv2d(len(CHANNELS), 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 2, 3, padding=1)).eval()
        package = self.convert(net, "--roi", 17, 21)
        for values in (pixels.astype(numpy.uint8), (pixels * 3 - 60 * (pixels > 0)).astype(numpy.float32)):
            file = self.folder / f"{values.dtype}.tif"
            tifffile.imwrite(file, values, photometric="minisblack", planarconfig="contig")
            self.compare(file, package, "tiled", net, inputs_of(values.transpose(2, 0, 1)))

    def test_planes_of_a_colour_also_of_files_that_are_no_rgb(self):
        random = numpy.random.default_rng(13)
        colours = random.integers(0, 256, (17, 21, 3)).astype(numpy.uint8)
        colours[:3] = 0
        torch.manual_seed(5)
        net = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 2, 3, padding=1)).eval()
        channels = [CHANNELS[index] for index in (0, 1, 3)]
        for colour in ("rgb", "bgr"):
            package = self.convert(net, "--roi", 17, 21, "--colour", colour, channels=channels)
            for name, mode in (("a.png", "RGB"), ("b.tif", "RGB"), ("c.tif", "L"), ("d.png", "L")):
                picture = Image.fromarray(colours).convert(mode)
                picture.save(self.folder / name)
                planes = numpy.asarray(picture.convert("RGB")).transpose(2, 0, 1)
                with self.subTest(colour=colour, name=name, mode=mode):
                    self.compare(self.folder / name, package, "tiled", net, inputs_of(planes[::-1] if colour == "bgr" else planes, channels))


class Convert(Base):
    """Options of `millrace model`."""

    def setUp(self):
        super().setUp()
        torch.jit.script(Same()).save(str(self.folder / "same.ts"))

    def convert(self, *words):
        return program.millrace("model", self.folder / "same.ts", "--task", "semantic", "--activation", "none", *words)

    def test_options_become_keys_of_the_package(self):
        for words, keys, says in (
            (("--roi", 8, 8, 8, "--clip", -1004, 1588, "--mean", 50, "--std", 141), {"clip": [-1004, 1588], "scale": 1, "mean": [50], "std": [141]},
             "clipped to -1004 .. 1588, (v * 1 - [50]) / [141]"),
            (("--roi", 8, "--channel", "clip=0,10", "--channel", "scale=0.5", "mean=2", "std=3", "--channel", "clip=40.5,50"),
             {"channels": [{"scale": 1, "mean": 0, "std": 1, "clip": [0, 10]}, {"scale": 0.5, "mean": 2, "std": 3}, {"scale": 1, "mean": 0, "std": 1, "clip": [40.5, 50]}]},
             "channel 0: clipped to 0 .. 10, (v * 1 - [0]) / [1]; channel 1: (v * 0.5 - [2]) / [3]; channel 2: clipped to 40.5 .. 50, (v * 1 - [0]) / [1]"),
            (("--roi", 8, 8, 8, "--channel", "zscore=nonzero", "clip=-3,3", "--channel", "percentiles=0.5,99.5", "clip_to_percentiles=yes", "--channel", "percentiles=0,100"),
             {"channels": [{"zscore": "nonzero", "clip": [-3, 3]}, {"clip_to_percentiles": True, "percentiles": [0.5, 99.5]}, {"clip_to_percentiles": False, "percentiles": [0, 100]}]},
             "channel 0: clipped to -3 .. 3, z-score of the values that are not zero; channel 1: percentiles 0.5 and 99.5 to 0 and 1, clipped; channel 2: percentiles 0 and 100 to 0 and 1"),
            (("--roi", 8, 8, 8, "--zscore", "nonzero_box"), {"zscore": "nonzero_box"}, "z-score of the values in the box of those that are not zero"),
            (("--roi", 8, "--zscore", "all", "--channel-wise"), {"zscore": "all", "channel_wise": True}, "z-score of all values of each channel"),
            (("--roi", 8, "--percentiles", 0.5, 99.5, "--clip-to-percentiles"), {"percentiles": [0.5, 99.5], "clip_to_percentiles": True, "channel_wise": False},
             "percentiles 0.5 and 99.5 to 0 and 1, clipped"),
        ):  # fmt: skip
            done = self.convert(*words)
            self.assertEqual(done.code, program.OK, done)
            written = yaml.safe_load((self.folder / "same.pkg/model.yaml").read_text())["input"]
            self.assertEqual({key: value for key, value in written.items() if key not in ("width", "height", "depth", "axes", "colour")}, keys)
            done = program.millrace("inspect", self.folder / "same.pkg")
            self.assertRegex(done.out, rf"(?m)^input +windows of .*, {re.escape(says)}$")

    def test_refusals(self):
        for says, *words in (
            ("--scale has no meaning with --zscore or --percentiles; leave it out", "--zscore", "all", "--scale", 1),
            ("--zscore and --percentiles contradict each other; leave one of them out", "--zscore", "all", "--percentiles", 1, 99),
            ("--clip-to-percentiles needs --percentiles, such as --percentiles 0.5 99.5", "--clip-to-percentiles"),
            ("--clip has no meaning with --percentiles; leave it out, or use --clip-to-percentiles", "--percentiles", 1, 99, "--clip", 0, 1),
            ("--channel-wise is for several channels, with --zscore or --percentiles; leave it out", "--channel-wise"),
            ("--clip 3 3: the first number must be below the second one", "--clip", 3, 3),
            ("--percentiles 99 1: takes two numbers from 0 to 100, the lower one first", "--percentiles", 99, 1),
            ("--channels is for all channels, and --channel for one; leave one of them out", "--channel", "scale=1", "--channels", 3),
            ("--clip-to-percentiles is for all channels, and --channel for one", "--channel", "scale=1", "--clip-to-percentiles"),
            ("--colour is for three channels, and --channel comes 1 times; leave --colour out for the channels of the file", "--channel", "scale=1", "--colour", "rgb"),
            ("--channel std=1e-60: takes a number above 0", "--channel", "std=1e-60"),
            ("--channel scale=1e39: takes a number", "--channel", "scale=1e39"),
            ("--channel clip=16777216,16777217: the first number must be below the second one", "--channel", "clip=16777216,16777217"),
            ("--channel comes 17 times; at most 16 channels are possible", *("--channel", "scale=1") * 17),
            ("--channel clip: takes KEY=VALUE with the keys clip, scale, mean, std, zscore, percentiles, clip_to_percentiles, such as clip=-1000,1000", "--channel", "clip"),
            ("--channel channel_wise=yes: takes KEY=VALUE", "--channel", "channel_wise=yes"),
            ("--channel mean=2: channel 1 has mean twice; leave one of them out", "--channel", "scale=1", "--channel", "mean=1", "mean=2"),
            ("--channel zscore=none: takes all, nonzero, nonzero_box", "--channel", "zscore=none"),
            ("--channel clip=1: takes two numbers with a comma between them", "--channel", "clip=1"),
            ("--channel clip=2,2: the first number must be below the second one", "--channel", "clip=2,2"),
            ("--channel scale=1,2: takes a number", "--channel", "scale=1,2"),
            ("--channel scale=nan: takes a number", "--channel", "scale=nan"),
            ("--channel std=0: takes a number above 0", "--channel", "std=0"),
            ("--channel percentiles=5,101: takes two numbers from 0 to 100, the lower one first", "--channel", "percentiles=5,101"),
            ("--channel clip_to_percentiles=maybe: takes yes, no", "--channel", "clip_to_percentiles=maybe"),
            ("--channel scale=1 zscore=all: scale has no meaning with zscore; leave one of them out", "--channel", "scale=1", "zscore=all"),
            ("percentiles has no meaning with zscore; leave one of them out", "--channel", "percentiles=1,99", "zscore=all"),
            ("clip has no meaning with percentiles; leave one of them out", "--channel", "percentiles=1,99", "clip=0,1"),
            ("clip_to_percentiles needs percentiles, such as percentiles=0.5,99.5", "--channel", "clip_to_percentiles=yes"),
        ):
            done = self.convert("--roi", 8, *words)
            self.assertEqual(done.code, program.ENVIRONMENT, done)
            self.assertIn(says, done.err)
            self.assertFalse((self.folder / "same.pkg").exists())


if __name__ == "__main__":
    program.main()
