"""DICOM series and NIfTIs with several volumes: the model sees their values, and labels lie at their place in space.

The formats set of tools/setup.sh has pydicom and nibabel; without it, these tests skip.
"""

import os

import dicom_series
import numpy
import program
import torch
from dicom_series import OBLIQUE
from program import Case
from torch import nn

SIDES = (40, 24, 16)  # slices, rows, columns: multiples of the side of a window, so that windows never overlap


class Both(nn.Module):
    """Gives the values, and the values with the other sign."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.cat([values, -values], 1)


def numbers(kind, seed=0, sides=SIDES):
    """Numbers of all sizes [slice, row, column]."""
    limits = numpy.iinfo(kind)
    return numpy.random.default_rng(seed).integers(limits.min, limits.max, sides, endpoint=True).astype(kind)


class VolumeCase(Case):
    def setUp(self):
        super().setUp()
        program.require_formats()
        torch.jit.script(Both()).save(str(self.folder / "net.ts"))
        done = program.millrace("model", self.folder / "net.ts", "--task", "semantic", "--roi", 8, 8, 8, "--axes", "xyz", "--mean", 0, "--std", 1, "--out",
                                self.folder / "made")
        self.assertEqual(done.code, program.OK, done)

    def words(self, volumes, out):
        return ["run", program.ROOT / "configs/volume.yaml", "--input", volumes, "--output", out, "--format", "nifti,npy", "--set",
                f"semantic.model={self.folder / 'made/net.pkg'}", "--set", "semantic.values=logits", "--set", "tiles.overlap=0", "--set", "tiles.weights=constant"]

    def go(self, volumes, out, *more, code=program.OK):
        """A run. Returns its lines by path."""
        done = program.millrace(*self.words(volumes, out), *more)
        self.assertEqual(done.code, code, done)
        self.errors = done.err
        return {line["path"]: line for line in program.lines(out)}

    def seen(self, out, name):
        """The values that the model saw [slice, row, column]."""
        return numpy.load(out / "values" / f"{name}.npy")[..., 0]

    def labels(self, out, name):
        import nibabel

        return nibabel.load(out / "label_volumes" / f"{name}.nii.gz")


class Series(VolumeCase):
    def test_values_and_place(self):
        from pydicom.uid import ImplicitVRLittleEndian, RLELossless

        signed, unsigned, bytes8 = numbers(numpy.int16, 1), numbers(numpy.uint16, 2), numbers(numpy.uint8, 3)
        narrow = (numbers(numpy.int16, 4) >> 4).astype(numpy.int16)  # 12 bits
        wide = numbers(numpy.uint32, 5)
        cases = {
            "signed": (dicom_series.series(signed, slope=0.25, intercept=-1024), signed * 0.25 - 1024),
            "down": (dicom_series.series(unsigned, step=-1.25), unsigned[::-1]),
            "oblique": (dicom_series.series(bytes8, directions=OBLIQUE), bytes8),
            # The other four bits belong to something else.
            "narrow": (dicom_series.series((narrow & 0xFFF | 0x5000).view(numpy.int16), stored=12), narrow),
            "wide": (dicom_series.series(wide), wide),
            "odd": (dicom_series.series(bytes8[:, :5, :5]), bytes8[:, :5, :5]),
            "one": (dicom_series.series(signed[:1]), signed[:1]),
            "implicit": (dicom_series.series(signed, directions=OBLIQUE, step=-3), signed[::-1]),
            "rle": (dicom_series.series(signed // 4096), signed // 4096),
            "rle8": (dicom_series.series(bytes8 // 64), bytes8 // 64),
        }
        for one in cases["implicit"][0]:
            one.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
        for name in ("rle", "rle8"):
            for one in cases[name][0]:
                one.compress(RLELossless)
        # Each slice may have a slope of its own, as in PET.
        pet = dicom_series.series(unsigned)
        for number, one in enumerate(pet):
            one.RescaleSlope, one.RescaleIntercept = str(number + 0.5), "0"
        cases["pet"] = (pet, unsigned * (numpy.arange(SIDES[0]) + 0.5)[:, None, None])
        # The gantry of a CT was tilted: slices lie above each other along z, but are not at a right angle to it.
        tilted = dicom_series.series(signed, directions=((1, 0, 0), (0, 0.96, 0.28)))
        for number, one in enumerate(tilted):
            one.ImagePositionPatient = [0, 0, number * 2]
        cases["tilted"] = (tilted, signed)

        names = {}
        for seed, (name, (slices, _)) in enumerate(cases.items()):
            dicom_series.write(self.folder / "in" / name, slices, seed)
            names[name] = f"{name}/IM000.dcm"  # the first in the order of names
        self.assertEqual(set(lines := self.go(self.folder / "in", self.folder / "out")), set(names.values()))
        for name, (_, values) in cases.items():
            with self.subTest(name):
                seen = self.seen(self.folder / "out", names[name])
                numpy.testing.assert_array_equal(seen, values.astype(numpy.float32))
                labels = self.labels(self.folder / "out", names[name])
                numpy.testing.assert_array_equal(numpy.asarray(labels.dataobj).T, seen < 0)
                affine, spacing = dicom_series.affine(self.folder / "in" / name)
                numpy.testing.assert_allclose(labels.affine, affine, rtol=1e-6, atol=1e-5)
                numpy.testing.assert_allclose(labels.header.get_zooms(), spacing, rtol=1e-6)
                self.assertEqual(labels.header.get_xyzt_units()[0], "mm")
                millilitres = abs(numpy.linalg.det(affine[:3, :3])) / 1000
                for one in lines[names[name]]["semantic"]:
                    self.assertAlmostEqual(one["ml"], one["voxels"] * millilitres, delta=1e-3 * one["ml"])

    def test_compressed_by_others(self):
        from io import BytesIO

        from PIL import Image
        from pydicom.uid import JPEG2000Lossless, JPEGBaseline8Bit, JPEGLosslessSV1, JPEGLSLossless

        signed, unsigned, bytes8 = numbers(numpy.int16, 1)[:5], numbers(numpy.uint16, 2)[:5], (numbers(numpy.uint8, 3)[:5] // 64 + 90).astype(numpy.uint8)

        def pillow(pixels, *kind, **options):
            file = BytesIO()
            Image.fromarray(pixels).save(file, *kind, **options)
            return file.getvalue()

        cases = {}

        def case(name, voxels, values, syntax, compress):
            cases[name] = (dicom_series.series(voxels), values)
            for one, pixels in zip(cases[name][0], voxels):
                dicom_series.fragments(one, syntax, compress(pixels))

        case("lossless", unsigned, unsigned, JPEGLosslessSV1, lambda pixels: dicom_series.jpeg_lossless(pixels, 16))
        case("lossless_signed", signed, signed, JPEGLosslessSV1, lambda pixels: dicom_series.jpeg_lossless(pixels.view(numpy.uint16), 16))
        case("lossless8", bytes8, bytes8, JPEGLosslessSV1, lambda pixels: dicom_series.jpeg_lossless(pixels, 8))
        case("lossless12", unsigned >> 4, unsigned >> 4, JPEGLosslessSV1, lambda pixels: dicom_series.jpeg_lossless(pixels, 12))
        case("jpeg2000", unsigned, unsigned, JPEG2000Lossless, lambda pixels: pillow(pixels, "JPEG2000", no_jp2=True))
        case("jpeg", bytes8, numpy.stack([numpy.asarray(Image.open(BytesIO(pillow(pixels, "JPEG", quality=90)))) for pixels in bytes8]), JPEGBaseline8Bit,
             lambda pixels: pillow(pixels, "JPEG", quality=90))
        # The example of the standard, ITU-T T.87, annex H.3.
        example = numpy.array([[0, 0, 90, 74], [68, 50, 43, 205], [64, 145, 145, 145], [100, 145, 145, 145]], numpy.uint8)[None]
        coded = bytes.fromhex("FFD8FFF7000B080004000401011100FFDA0008010100000000C000006C80208E01C00000574000006EE6000001BC18000005D800009160FFD9")
        case("jpeg_ls", example, example, JPEGLSLossless, lambda _: coded)
        for name, (slices, _) in cases.items():
            dicom_series.write(self.folder / "in" / name, slices)
        self.go(self.folder / "in", self.folder / "out")
        for name, (_, values) in cases.items():
            with self.subTest(name):
                numpy.testing.assert_array_equal(self.seen(self.folder / "out", f"{name}/IM000.dcm"), values.astype(numpy.float32))

    def test_bad_series_fail_alone_and_name_the_file(self):
        from pydicom.uid import ExplicitVRBigEndian, RLELossless

        voxels = numbers(numpy.int16)
        expected = {"good": None}
        root = self.folder / "in"
        dicom_series.write(root / "good", dicom_series.series(voxels))

        def case(name, reason, sentence, change=lambda slices: None, after=lambda paths: None, named=(20,)):
            """A series with a fault in its slice 20. The sentence of its failure has the names of the files with numbers `named`."""
            slices = dicom_series.series(voxels)
            slices = change(slices) or slices
            paths = dicom_series.write(root / name, slices, seed=len(expected))
            after(paths)
            expected[name] = (reason, sentence, [paths[number].name for number in named])

        def tag(name, value):
            def change(slices):
                if value is None:
                    delattr(slices[20], name)
                else:
                    setattr(slices[20], name, value)

            return change

        def absurd(slices):
            for one in slices:
                one.compress(RLELossless)
                one.Rows, one.Columns = 65534, 65535

        case("gap", "corrupt_data", "are 5 mm apart, but most slices 2.5 mm: is a file missing?", after=lambda paths: paths[20].unlink(), named=(19, 21))
        case("moved", "corrupt_data", "are 2.47 mm apart", tag("ImagePositionPatient", [-10.5, 20.25, 79.97]), named=(19, 20))
        case("twice", "corrupt_data", "has the same position as", tag("ImagePositionPatient", [-10.5, 20.25, 82.5]), named=(20, 21))
        case("sideways", "corrupt_data", "is shifted sideways from", tag("ImagePositionPatient", [-10.4, 20.25, 80]))
        case("turned", "corrupt_data", "has another ImageOrientationPatient than", tag("ImageOrientationPatient", [0, 1, 0, -1, 0, 0]))
        case("series", "corrupt_data", "is of another series than", tag("SeriesInstanceUID", "1.2.3.5"))
        case("two_series", "corrupt_data", "is of another series than", lambda slices: slices + dicom_series.series(voxels, series="1.2.3.5"), named=())
        case("spacing", "corrupt_data", "has another PixelSpacing than", tag("PixelSpacing", [0.7, 0.6]))
        case("size", "corrupt_data", "has another size than", lambda slices: slices.__setitem__(20, dicom_series.series(voxels[:, :, 1:])[20]))
        case("format", "corrupt_data", "has another format of pixels than", tag("PixelRepresentation", 0))
        case("position", "unsupported_format", "it has no ImagePositionPatient (0020,0032), so it is no slice", tag("ImagePositionPatient", None))
        case("orientation", "unsupported_format", "it has no ImageOrientationPatient (0020,0037)", tag("ImageOrientationPatient", None))
        case("skewed", "corrupt_data", "not two of length 1 at a right angle", tag("ImageOrientationPatient", [1, 0, 0, 0.5, 1, 0]))
        case("slope", "corrupt_data", "its RescaleSlope (0028,1053) cannot be used", tag("RescaleSlope", 0))
        case("frames", "unsupported_format", "it has several frames", tag("NumberOfFrames", 3))
        case("colour", "unsupported_format", "its pixels are in colour (RGB)", tag("PhotometricInterpretation", "RGB"))
        case("absurd", "too_large", "a slice of 65535x65534 voxels", absurd, named=())
        case("rows", "corrupt_data", "its pixels have 768 bytes, but its rows and columns need 32000", tag("Rows", 1000))
        case("text", "not_an_image", "no DICOM file", after=lambda paths: paths[20].write_text("This is a long text about no picture. " * 9))
        case("empty", "empty", "the file has no bytes", after=lambda paths: paths[20].write_bytes(b""))
        case("cut", "truncated", "it ends inside its pixels", after=lambda paths: os.truncate(paths[20], paths[20].stat().st_size - 100))
        case("cut_header", "truncated", "its header ends early", after=lambda paths: os.truncate(paths[20], 500))
        case("pipe", "not_regular", "a pipe, socket or device", after=lambda paths: (paths[20].unlink(), os.mkfifo(paths[20])))
        case("gone", "vanished", "the file", after=lambda paths: (paths[20].unlink(), paths[20].symlink_to("nothing")))

        def big_endian(slices):
            slices[20].file_meta.TransferSyntaxUID = ExplicitVRBigEndian
            slices[20]._read_implicit, slices[20]._read_little = False, False

        case("endian", "unsupported_format", "its transfer syntax is 1.2.840.10008.1.2.2", big_endian)
        # Only reading the pixels finds these.
        packed = dicom_series.jpeg_lossless(voxels[0].view(numpy.uint16), 16)
        other_size = dicom_series.jpeg_lossless(voxels[0, :9].view(numpy.uint16), 16)
        no_code = packed[:300] + b"\xff\x00" * 40 + b"\xff\xd9"  # the code of ones is not in the table
        for name, reason, sentence, data in (("cut_jpeg", "truncated", "its compressed pixels end early", packed[:300]),
                                             ("bad_jpeg", "corrupt_data", "its compressed pixels cannot be decoded", no_code),
                                             ("other_jpeg", "corrupt_data", "its header and its compressed pixels contradict each other", other_size)):
            def jpeg(slices, data=data):
                for number, one in enumerate(slices):
                    dicom_series.fragments(one, "1.2.840.10008.1.2.4.70", data if number == 20 else packed)

            case(name, reason, sentence, jpeg)

        def cut_rle(slices):
            for one in slices:
                one.compress(RLELossless)
            slices[20].PixelData = slices[20].PixelData[:400] + b"\xfe\xff\xdd\xe0\0\0\0\0"

        case("cut_rle", "truncated", "it ends", cut_rle)
        (root / "text_only").mkdir()
        (root / "text_only/a.dcm").write_text("This is a long text about no picture. " * 9)
        thin = dicom_series.series(voxels[:1])
        del thin[0].SliceThickness
        dicom_series.write(root / "thin", thin)

        lines = {os.path.dirname(path): line for path, line in self.go(root, self.folder / "out", code=program.SOME_FAILED).items()}
        self.assertEqual(len(lines), len(expected) + 2)
        self.assertEqual(lines["text_only"]["reason"], "not_an_image")
        self.assertEqual(lines["thin"]["reason"], "unsupported_format")
        self.assertIn("is the only slice, and has no SliceThickness (0018,0050)", lines["thin"]["detail"])
        for name, fault in expected.items():
            with self.subTest(name):
                if fault is None:
                    self.assertEqual(lines[name]["state"], "ok")
                    continue
                reason, sentence, files = fault
                self.assertIn(sentence, lines[name].get("detail", ""))
                self.assertEqual(lines[name]["reason"], reason)
                for file in files:
                    self.assertIn(f"'{file}'", lines[name]["detail"])
        self.assertNotIn("gdcm", self.errors.lower())

    def test_files_and_lists(self):
        voxels = numbers(numpy.int16)[:4]
        paths = dicom_series.write(self.folder / "in", dicom_series.series(voxels))
        (self.folder / "in/._IM001.dcm").write_text("an attribute file of another system")
        # Any of its files stands for a series.
        self.assertEqual(set(self.go(paths[2], self.folder / "out")), {paths[2].name})
        numpy.testing.assert_array_equal(self.seen(self.folder / "out", paths[2].name), voxels)
        self.assertEqual(program.report(self.folder / "out")["read_bytes"], sum(path.stat().st_size for path in paths))
        other = paths[0].rename(self.folder / "in/slice")
        lines = self.go(other, self.folder / "other", code=program.SOME_FAILED)
        self.assertIn("a DICOM file without the extension .dcm", lines["slice"]["detail"])

    def test_other_recipes_fail_volumes_in_words(self):
        import nibabel

        dicom_series.write(self.folder / "in", dicom_series.series(numbers(numpy.int16)[:3]))
        nibabel.save(nibabel.Nifti1Image(numbers(numpy.int16), numpy.eye(4)), self.folder / "in/a.nii")
        done = program.millrace("run", program.ROOT / "configs/detect_segment.yaml", "--input", self.folder / "in", "--output", self.folder / "out")
        self.assertEqual(done.code, program.SOME_FAILED, done)
        words = {line["path"]: (line["reason"], line["detail"]) for line in program.lines(self.folder / "out")}
        self.assertEqual(words, {path: ("not_an_image", f"no picture: it looks like {kind}, which configs/volume.yaml reads")
                                 for path, kind in (("IM000.dcm", "a slice of a DICOM volume"), ("a.nii", "a NIfTI volume"))})


class SeveralVolumes(VolumeCase):
    def test_volume_of_a_nifti(self):
        import nibabel

        voxels = numbers(numpy.int16, sides=(16, 24, 8, 3))
        (self.folder / "in").mkdir()
        for name in ("a.nii", "b.nii.gz"):
            nibabel.save(nibabel.Nifti1Image(voxels, numpy.diag([-1, 2, 3, 1])), self.folder / "in" / name)
        for volume in (None, 0, 1, 2):
            out = self.folder / f"out{volume}"
            self.go(self.folder / "in", out, *([] if volume is None else ["--volume", volume]))
            for name in ("a.nii", "b.nii.gz"):
                numpy.testing.assert_array_equal(self.seen(out, name), voxels[..., volume or 0].T)
                self.assertEqual(self.labels(out, name).shape, voxels.shape[:3])
        nibabel.save(nibabel.Nifti1Image(voxels[..., 0], numpy.eye(4)), self.folder / "in/c.nii")
        dicom_series.write(self.folder / "in", dicom_series.series(numbers(numpy.int16)[:3]))
        lines = self.go(self.folder / "in", self.folder / "beyond", "--volume", 3, code=program.SOME_FAILED)
        words = {path: (line["reason"], line["detail"]) for path, line in lines.items()}
        for path, many in (("a.nii", "NIfTI has 3 volumes"), ("b.nii.gz", "NIfTI has 3 volumes"), ("c.nii", "NIfTI has 1 volume"),
                           ("IM000.dcm", "a DICOM series is 1 volume")):
            self.assertEqual(words[path][0], "unsupported_format")
            self.assertIn(f"{many}, so there is no volume 3; they count from 0", words[path][1])


if __name__ == "__main__":
    program.main()
