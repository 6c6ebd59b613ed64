"""Models that take the channels of the file: satellite bands, fluorescence, grey of 16 bits.

tifffile writes the pictures, and MONAI computes the windows. Both are in the formats set of tools/setup.sh; without it, the
tests skip.
"""

import shutil

import numpy
import program
import torch
import yaml
from PIL import Image
from torch import nn

ROI = 32
SAME_VALUE = 2e-5  # the logits have a standard deviation of about 1
TILES = {"tile": (32, 32), "planarconfig": "contig"}
PLANES = {"tile": (16, 16), "planarconfig": "separate", "compression": "zlib"}
STRIPS = {"rowsperstrip": 5, "planarconfig": "contig"}


class Net(nn.Module):
    """Three logits that depend on all channels and on the surroundings of a pixel."""

    def __init__(self, channels):
        super().__init__()
        torch.manual_seed(channels)
        self.only = nn.Conv2d(channels, 3, 5, padding=2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.only(images)


def raster_of(kind, channels, seed=1):
    """[height, width, channels] over the range of the type."""
    noise = numpy.random.default_rng(seed).random((70, 101, channels))
    if kind == numpy.float32:
        return (noise * 3 - 1).astype(kind)
    limits = numpy.iinfo(kind)
    return (noise * (float(limits.max) - limits.min) + limits.min).astype(kind)


class Channels(program.Case):
    def setUp(self):
        super().setUp()
        program.require_formats()

    def package(self, channels, *words):
        file = self.folder / f"bands{channels}.ts"
        torch.jit.script(Net(channels).eval()).save(str(file))
        done = program.millrace("model", file, "--task", "semantic", "--roi", ROI, "--activation", "none", "--channels", channels, *words)
        self.assertEqual(done.code, program.OK, done)
        return self.folder / f"bands{channels}.pkg"

    def write_tiff(self, name, raster, options):
        import tifffile

        path = self.folder / "in" / name
        path.parent.mkdir(exist_ok=True)
        planes = raster.transpose(2, 0, 1) if options["planarconfig"] == "separate" and raster.shape[2] > 1 else raster
        if raster.shape[2] == 1:
            planes, options = raster[..., 0], {key: value for key, value in options.items() if key != "planarconfig"}
        tifffile.imwrite(path, planes, photometric="minisblack", **options)
        return path

    def run_on(self, package, sinks="npy", code=program.OK):
        out = self.folder / "out"
        self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", self.folder / "in", "--set", f"semantic.model={package}",
                    "--set", "semantic.values=logits", "--set", "tiles.overlap=0.5", "--format", sinks, "--output", out, code=code)
        return out

    def assert_values(self, out, name, inputs):
        """The values of a picture are those of MONAI for these inputs of the net, [height, width, channels]."""
        from monai.inferers import sliding_window_inference

        net = Net(inputs.shape[2])
        with torch.inference_mode():
            planes = torch.from_numpy(numpy.ascontiguousarray(inputs.transpose(2, 0, 1), numpy.float32))[None]
            expected = sliding_window_inference(planes, (ROI, ROI), 4, net, overlap=0.5, mode="gaussian")[0].numpy().transpose(1, 2, 0)
        found = numpy.load(out / f"values/{name}.npy")
        self.assertEqual(found.shape, expected.shape)
        self.assertGreater(expected.std(), 0.1)
        self.assertLessEqual(abs(found - expected).max(), SAME_VALUE * max(1, abs(expected).max()))

    def test_values_of_the_file_reach_the_model(self):
        for kind, channels, options in (
            (numpy.uint16, 13, PLANES),
            (numpy.uint16, 1, STRIPS),
            (numpy.int16, 2, TILES),
            (numpy.uint8, 4, STRIPS),
            (numpy.uint8, 16, PLANES),
            (numpy.float32, 5, TILES),
            (numpy.float32, 1, TILES),
        ):
            with self.subTest(kind=kind.__name__, channels=channels):
                raster = raster_of(kind, channels)
                self.write_tiff("a.tif", raster, options)
                scale = 1.0 if kind == numpy.float32 else 1 / numpy.iinfo(kind).max
                out = self.run_on(self.package(channels, "--scale", scale, "--mean", 0.25, "--std", 0.5))
                self.assert_values(out, "a.tif", (raster.astype(numpy.float64) * scale - 0.25) / 0.5)
                for folder in (out, self.folder / f"bands{channels}.pkg"):
                    shutil.rmtree(folder)

    def test_labels_of_a_geotiff_have_its_place_on_earth(self):
        import tifffile

        raster = raster_of(numpy.uint16, 4)
        keys = (1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 32633)
        tags = [(33550, "d", 3, (10.0, 10.0, 0.0), True), (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 4649776.5, 0.0), True), (34735, "H", len(keys), keys, True)]
        self.write_tiff("a.tif", raster, TILES | {"extratags": tags})
        with tifffile.TiffFile(self.folder / "in/a.tif") as file:
            expected = file.geotiff_metadata
        self.assertEqual(expected["ModelPixelScale"], [10.0, 10.0, 0.0])
        out = self.run_on(self.package(4, "--scale", 1 / 65535), sinks="npy,tiff")
        with tifffile.TiffFile(out / "label_pyramids/a.tif.tif") as file:
            self.assertEqual(file.geotiff_metadata, expected)

    def test_statistics_of_each_channel(self):
        raster = raster_of(numpy.uint16, 3)
        raster[..., 1] //= 50
        self.write_tiff("a.tif", raster, TILES)
        out = self.run_on(self.package(3, "--zscore", "all", "--channel-wise"))
        values = raster.astype(numpy.float64)
        self.assert_values(out, "a.tif", (values - values.mean((0, 1))) / values.std((0, 1)))

    def test_a_model_with_one_channel_takes_grey_files_of_all_formats(self):
        grey, colours = raster_of(numpy.uint8, 1), raster_of(numpy.uint8, 3)
        self.write_tiff("a.tif", grey, TILES)
        Image.fromarray(grey[..., 0]).save(self.folder / "in/b.png")
        Image.fromarray(grey[..., 0].repeat(3, 1).reshape(*grey.shape[:2], 3)).save(self.folder / "in/c.png")
        Image.fromarray(colours).save(self.folder / "in/d.png")
        self.write_tiff("e.tif", colours, TILES)
        for words, inputs in (
            (("--scale", 1 / 255), grey / 255),
            (("--percentiles", 10, 90), (grey - numpy.percentile(grey, 10)) / (numpy.percentile(grey, 90) - numpy.percentile(grey, 10))),
        ):
            out = self.run_on(self.package(1, *words), code=program.SOME_FAILED)
            for name in ("a.tif", "b.png", "c.png"):
                self.assert_values(out, name, inputs)
            failed = {line["path"]: line for line in program.lines(out) if line["state"] == "failed"}
            self.assertEqual({name: line["reason"] for name, line in failed.items()}, dict.fromkeys(("d.png", "e.tif"), "unsupported_format"))
            self.assertIn("a picture with colours, but the model takes one channel; convert it to grey", failed["d.png"]["detail"])
            self.assertIn("a TIFF with 3 channels, but the model takes 1", failed["e.tif"]["detail"])
            for folder in (out, self.folder / "bands1.pkg"):
                shutil.rmtree(folder)


class Convert(program.Case):
    def convert(self, *words):
        torch.jit.script(Net(4).eval()).save(str(self.folder / "net.ts"))
        shutil.rmtree(self.folder / "net.pkg", ignore_errors=True)
        return program.millrace("model", self.folder / "net.ts", "--task", "semantic", *words)

    def test_options_become_keys_of_the_package(self):
        done = self.convert("--roi", 16, "--channels", 4, "--scale", 0.5, "--mean", 1, 2, 3, 4, "--std", 7)
        self.assertEqual(done.code, program.OK, done)
        written = yaml.safe_load((self.folder / "net.pkg/model.yaml").read_text())["input"]
        self.assertEqual(written, {"width": 16, "height": 16, "channels": 4, "scale": 0.5, "mean": [1, 2, 3, 4], "std": [7, 7, 7, 7]})

    def test_refusals(self):
        for says, *words in (
            ("--channels takes those of the file; leave one of them out", "--roi", 8, "--channels", 3, "--colour", "bgr"),
            ("--channels 17: takes a whole number from 1 to 16", "--roi", 8, "--channels", 17),
            ("--channels needs --scale, --zscore or --percentiles, since values are those of the file", "--roi", 8, "--channels", 4),
            ("net.ts: cannot take windows [3, 3, 8, 8]; are --roi and --channels those of the training? Given groups=1", "--roi", 8),
        ):
            done = self.convert(*words)
            self.assertEqual(done.code, program.ENVIRONMENT, done)
            self.assertIn(says, done.err)
            self.assertFalse((self.folder / "net.pkg").exists())


if __name__ == "__main__":
    program.main()
