"""OME-TIFFs and ImageJ stacks: their planes reach the model as slices, channels and points in time.

tifffile writes the files. The model computes each pixel by itself, so that numpy gives the values without windows.
"""

import numpy
import program
import small_semantic
import torch

SIDES = (21, 30)  # lines and columns
SLICES = 5
WEIGHTS = numpy.random.default_rng(7).normal(size=(3, 3))  # [class, channel]
UM = {"PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 500.0, "PhysicalSizeYUnit": "nm", "PhysicalSizeZ": 0.002, "PhysicalSizeZUnit": "mm"}
SPACING = (0.00025, 0.0005, 0.002)  # mm
MM = {"PhysicalSizeX": 2.0, "PhysicalSizeXUnit": "mm", "PhysicalSizeY": 0.05, "PhysicalSizeYUnit": "cm"}  # 1 mm2
IMAGEJ = {"imagej": True, "resolution": (4, 2), "metadata": {"spacing": 2.0, "unit": "um"}}
TILES = {"tile": (16, 16)}
ZIP = {"compression": "zlib"}
STRIPS = {"rowsperstrip": 4}
U8, U16, I16, F32 = numpy.uint8, numpy.uint16, numpy.int16, numpy.float32
YAML = """schema: 1
name: {{name}}
task: semantic
architecture: small
input: {{{{width: 16, height: 16, {depth}scale: 0.01, mean: {mean}, std: {std}}}}}
output: {{{{channels: 3, activation: none}}}}
classes: [a, b, c]
max_batch: 8
licence: none
files: {{{{model.ts: {{model}}}}}}
"""


class Pixelwise(torch.nn.Module):
    def __init__(self, channels, volumes):
        super().__init__()
        self.only = (torch.nn.Conv3d if volumes else torch.nn.Conv2d)(channels, 3, 1, bias=False)
        weights = torch.from_numpy(WEIGHTS[:, :channels].astype(F32))
        self.only.weight.data = weights.reshape(3, channels, *[1] * (3 if volumes else 2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.only(images)


def raster(kind, *sides):
    noise = numpy.random.default_rng(sum(sides)).random((*sides, *SIDES))
    return (noise * (250 if kind == U8 else 5000) - (2000 if kind in (I16, F32) else 0)).astype(kind)


class Stacks(program.Case):
    def setUp(self):
        super().setUp()
        program.require_formats()
        (self.folder / "in").mkdir()

    def package(self, channels, volumes, more=""):
        depth = f"depth: 4, axes: zyx, {more}" if volumes else ""
        depth += "colour: rgb, " if channels == 0 else f"channels: {channels}, " if channels > 1 or not volumes else ""
        taken = channels or 3
        text = YAML.format(depth=depth, mean=[0.0] * taken, std=[1.0] * taken)
        return small_semantic.write(self.folder, f"net{channels}", Pixelwise(taken, volumes), text)

    def write_stack(self, name, values, axes, **options):
        import tifffile

        if "imagej" in options:
            options["metadata"] = {**options["metadata"], "axes": axes}
        else:
            options = {"ome": True, "metadata": {"axes": axes, **(UM if "Z" in axes else MM)}, **options}
        tifffile.imwrite(self.folder / "in" / name, values, **{"photometric": "minisblack", **options})

    def run_on(self, package, volumes, *settings, code=program.OK, sinks="npy"):
        out = self.folder / f"out{len(list(self.folder.glob('out*')))}"
        words = [word for setting in ("semantic.values=logits", *settings) for word in ("--set", setting)]
        self.run_ok(program.ROOT / f"configs/{'volume' if volumes else 'tiled'}.yaml", "--input", self.folder / "in", "--set", f"semantic.model={package}",
                    *words, "--format", sinks, "--output", out, code=code)
        return out

    def assert_values(self, out, name, values):
        """`values` are those of the file: [..., y, x, channel]."""
        expected = values.astype(numpy.float64) / 100 @ WEIGHTS[:, : values.shape[-1]].T
        found = numpy.load(out / f"values/{name}.npy")
        self.assertEqual(found.shape, expected.shape)
        self.assertLess(abs(found - expected).max(), 1e-4, name)
        self.assertGreater(expected.std(), 0.5)

    def assert_failures(self, out, says):
        """`says`: name -> reason and what the message says."""
        failed = {line["path"]: line for line in program.lines(out) if line["state"] == "failed"}
        self.assertEqual(failed.keys(), says.keys())
        for name, (reason, text) in says.items():
            self.assertEqual(failed[name]["reason"], reason)
            self.assertIn(text, failed[name]["detail"])

    def test_slices_are_a_volume_with_its_spacing(self):
        import nibabel

        kinds = {
            "strips.tif": (U16, "ZYX", ZIP | STRIPS),
            "tiles.tif": (F32, "ZYX", TILES),
            "bytes.tif": (U8, "ZYX", ZIP | TILES | {"bigtiff": True}),
            "signed.tif": (I16, "ZYX", {}),
            "swapped.tif": (U16, "ZYX", {"byteorder": ">"}),
            "imagej.tif": (U16, "ZYX", IMAGEJ),
            "times.tif": (U16, "TZYX", ZIP),
            "slices.tif": (U16, "ZTYX", ZIP),
        }
        values = {name: raster(kind, *[2 if axis == "T" else SLICES for axis in axes[:-2]]) for name, (kind, axes, _) in kinds.items()}
        for name, (_, axes, options) in kinds.items():
            self.write_stack(name, values[name], axes, **options)
        package = self.package(1, True)
        out = self.run_on(package, True, sinks="npy,nifti")
        for name, (_, axes, _) in kinds.items():
            with self.subTest(name=name):
                voxels = values[name].take(0, axes.index("T")) if "T" in axes else values[name]
                self.assert_values(out, name, voxels[..., None])
                labels = nibabel.load(out / f"label_volumes/{name}.nii.gz")
                self.assertEqual(labels.shape, (*SIDES[::-1], SLICES))
                self.assertTrue(numpy.allclose(labels.header.get_zooms(), SPACING), labels.header.get_zooms())
                self.assertEqual((labels.header["qform_code"], labels.header["sform_code"]), (0, 0))
                found = numpy.load(out / f"values/{name}.npy").argmax(-1)
                self.assertTrue((numpy.asarray(labels.dataobj).T == found).all())
        later = self.run_on(package, True, "decode.volume=1", code=program.SOME_FAILED)
        for name in ("times.tif", "slices.tif"):
            self.assert_values(later, name, values[name].take(1, kinds[name][1].index("T"))[..., None])
        says = "this {} has 1 point in time, so there is no point 1; they count from 0"
        self.assert_failures(later, {name: ("unsupported_format", says.format("ImageJ stack" if name == "imagej.tif" else "OME-TIFF"))
                                     for name, (_, axes, _) in kinds.items() if "T" not in axes})

    def test_volumes_with_channels(self):
        lengths = {"T": 3, "C": 2, "Z": SLICES}
        kinds = {axes.lower() + ".tif": (axes, TILES if number % 2 else ZIP | STRIPS)
                 for number, axes in enumerate(("CZYX", "ZCYX", "TZCYX", "TCZYX", "ZTCYX", "CTZYX", "ZCTYX", "CZTYX"))}
        kinds["imagej.tif"] = ("TZCYX", IMAGEJ)
        values = {}
        for name, (axes, options) in kinds.items():
            values[name] = raster(U16, *[lengths[axis] for axis in axes[:-2]])
            self.write_stack(name, values[name], axes, **options)
        package = self.package(2, True)
        for time in (0, 2):
            out = self.run_on(package, True, f"decode.volume={time}", code=program.SOME_FAILED if time else program.OK)
            for name, (axes, _) in kinds.items():
                if "T" not in axes and time:
                    continue
                with self.subTest(name=name, time=time):
                    voxels = values[name].take(time, axes.index("T")) if "T" in axes else values[name]
                    left = axes.replace("T", "")
                    self.assert_values(out, name, voxels.transpose([left.index(axis) for axis in "ZYXC"]))

    def test_channels_of_a_picture_are_pages_or_samples(self):
        kinds = {
            "strips.tif": (U16, "CYX", STRIPS | ZIP),
            "one_strip.tif": (U16, "CYX", {}),
            "tiles.tif": (U8, "CYX", TILES | ZIP),
            "real.tif": (F32, "CYX", TILES),
            "imagej.tif": (U16, "CYX", IMAGEJ | {"resolution": (0.5, 2), "metadata": {"unit": "mm"}}),
            "times.tif": (U16, "CTYX", TILES),
            "samples.tif": (U8, "YXS", {"photometric": "rgb", **TILES}),
        }
        values = {}
        for name, (kind, axes, options) in kinds.items():
            values[name] = raster(kind, *[{"C": 3, "T": 2}[axis] for axis in axes[:-2]]) if axes != "YXS" else raster(kind, 3).transpose(1, 2, 0)
            self.write_stack(name, values[name], axes, **options)
        package = self.package(3, False)
        out = self.run_on(package, False)
        for name, (_, axes, _) in kinds.items():
            with self.subTest(name=name):
                pixels = values[name].take(0, axes.index("T")) if "T" in axes else values[name]
                self.assert_values(out, name, pixels if axes == "YXS" else pixels.transpose(1, 2, 0))
        for line in program.lines(out):
            for one in line["semantic"]:
                self.assertAlmostEqual(one["mm2"], one["pixels"], delta=1e-3)
        later = self.run_on(package, False, "decode.volume=1", code=program.SOME_FAILED)
        self.assert_values(later, "times.tif", values["times.tif"][:, 1].transpose(1, 2, 0))
        # As RGB, a page with samples is what it is without OME-XML.
        plain = self.package(0, False)
        out = self.run_on(plain, False, code=program.SOME_FAILED)
        self.assert_values(out, "samples.tif", values["samples.tif"])
        text = "an {} with 3 channels in pages of their own, but the model takes RGB or volumes; give the package of a model of such pictures the number with --channels"
        self.assert_failures(out, {name: ("unsupported_format", text.format("ImageJ stack" if name == "imagej.tif" else "OME-TIFF"))
                                   for name in kinds if name != "samples.tif"})

    def test_a_file_of_bio_formats(self):
        import nibabel
        import tifffile

        name = "multi-channel-z-series.ome.tif"
        (self.folder / "in" / name).symlink_to(program.DATA / "slides" / name)
        values = tifffile.imread(program.DATA / "slides" / name)
        self.assertEqual((values.shape, values.dtype), ((3, 5, 167, 439), numpy.int8))
        out = self.run_on(self.package(3, True), True, "tiles.roi=4,64,128", sinks="npy,nifti")
        self.assert_values(out, name, values.transpose(1, 2, 3, 0))
        # It names no sizes of voxels.
        self.assertNotIn("ml", program.lines(out)[0]["semantic"][0])
        self.assertEqual(nibabel.load(out / f"label_volumes/{name}.nii.gz").header.get_zooms(), (1, 1, 1))

    def test_files_that_do_not_fit(self):
        import tifffile

        self.write_stack("good.tif", raster(U16, SLICES, 2), "ZCYX")
        self.write_stack("more.tif", raster(U16, SLICES, 3), "ZCYX")
        self.write_stack("flat.tif", raster(U16, 2), "CYX")
        text = tifffile.TiffFile(self.folder / "in/good.tif").ome_metadata
        self.assertIn('<TiffData IFD="0" PlaneCount="10"', text)
        pages = raster(U16, SLICES * 2)
        text = text.replace('IFD="0" PlaneCount="10"', "")
        for name, change in (("missing.tif", ('SizeZ="5"', 'SizeZ="6"')), ("wide.tif", ('SizeX="30"', 'SizeX="31"')), ("cut.tif", ("</OME>", "")),
                             ("spread.tif", ("<TiffData", '<TiffData IFD="0"><UUID FileName="b.tif">urn:uuid:1</UUID></TiffData><TiffData')),
                             ("none.tif", ("<TiffData", '<TiffData PlaneCount="9"'))):  # fmt: skip
            self.assertIn(change[0], text)
            tifffile.imwrite(self.folder / "in" / name, pages, photometric="minisblack", metadata=None, description=text.replace(*change).encode())
        out = self.run_on(self.package(2, True), True, code=program.SOME_FAILED)
        self.assert_values(out, "good.tif", raster(U16, SLICES, 2).transpose(0, 2, 3, 1))
        self.assert_failures(out, {
            "more.tif": ("unsupported_format", "an OME-TIFF with 3 channels, but the model takes 2"),
            "flat.tif": ("unsupported_format", "a picture, but the windows of the model are volumes"),
            "missing.tif": ("corrupt_data", "an OME-TIFF with 10 pages, but page 11 is one of its planes"),
            "wide.tif": ("corrupt_data", "its OME-XML names 31x21 pixels, but page 0 has 30x21"),
            "cut.tif": ("corrupt_data", "its OME-XML cannot be read at byte "),
            "spread.tif": ("unsupported_format", "an OME-TIFF that is spread over several files; convert it to one file"),
            "none.tif": ("corrupt_data", "it has 10 planes, but TiffData in its OME-XML gives some of them no page"),
        })  # fmt: skip

    def test_a_stack_does_not_say_how_it_lies(self):
        self.write_stack("a.tif", raster(U16, SLICES), "ZYX")
        out = self.run_on(self.package(1, True, "orientation: RAS, "), True, code=program.SOME_FAILED)
        self.assert_failures(out, {"a.tif": ("unsupported_format", "this volume does not say how it lies, but the model needs the orientation RAS; correct its header")})


if __name__ == "__main__":
    program.main()
