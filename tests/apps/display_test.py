"""Millrace reads pictures as a viewer shows them: orientation, colours, depth, transparency."""

import numpy
import program
from PIL import Image
from program import Case


class Pictures(Case):
    """The overlay of each kind of picture looks as in a viewer."""

    def overlay(self, out, name):
        """The pixels of an overlay. Without objects it is the picture itself."""
        return numpy.asarray(Image.open(out / "overlay" / f"{name}.jpg").convert("RGB")).astype(int)

    def run_folder(self, *more):
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        out = self.folder / "out"
        self.run_ok(recipe, "--input", self.folder / "in", "--output", out, "--format", "overlay", *more)
        return out, {line["path"]: line for line in program.lines(out)}

    def write_orientations(self, pixels):
        """Writes 1.jpg to 8.jpg. Each is stored with another orientation, and all look the same in a viewer."""
        undo = [lambda a: a, numpy.fliplr, lambda a: numpy.rot90(a, 2), numpy.flipud, lambda a: a.transpose(1, 0, 2), numpy.rot90,
                lambda a: numpy.rot90(a, 2).transpose(1, 0, 2), lambda a: numpy.rot90(a, -1)]
        (self.folder / "in").mkdir()
        for orientation, stored in enumerate(undo, 1):
            exif = Image.Exif()
            exif[0x0112] = orientation
            Image.fromarray(numpy.ascontiguousarray(stored(pixels))).save(self.folder / f"in/{orientation}.jpg", quality=98, subsampling=0, exif=exif)

    def test_eight_orientations_are_one_picture(self):
        pixels = program.raster(120, 80, seed=3)
        self.write_orientations(pixels)
        out, lines = self.run_folder()
        for orientation in range(1, 9):
            name = f"{orientation}.jpg"
            self.assertEqual((lines[name]["width"], lines[name]["height"]), (120, 80), name)
            self.assertLess(abs(self.overlay(out, name) - pixels).mean(), 3, name)

    def test_eight_orientations_have_the_same_boxes(self):
        original = Image.open(program.picture("street.jpg")).convert("RGB")
        pixels = numpy.asarray(original)
        self.write_orientations(pixels)
        recipe = self.write("detect.yaml", "stages: [decode, preprocess, detect, encode]\n")
        self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / "out", "--detector", program.package("yolox"), "--set", "detect.conf=0.5")
        lines = program.lines(self.folder / "out")
        first = lines[0]["objects"]
        self.assertGreaterEqual(len(first), 4)
        for line in lines[1:]:
            self.assertEqual([o["name"] for o in line["objects"]], [o["name"] for o in first], line["path"])
            for here, there in zip(line["objects"], first):
                # Each file has other JPEG blocks: pixels differ by the loss of JPEG, and boxes by a few pixels.
                self.assertLess(max(abs(a - b) for a, b in zip(here["box"], there["box"])), 6, line["path"])

    def test_grey_cmyk_sixteen_bits_alpha_palette(self):
        pixels = program.raster(90, 60, seed=5)
        grey = pixels.mean(2).astype(numpy.uint8)
        folder = self.folder / "in"
        folder.mkdir()
        Image.fromarray(grey).save(folder / "grey.jpg", quality=98)
        Image.fromarray(pixels).convert("CMYK").save(folder / "cmyk.jpg", quality=98)
        Image.fromarray(grey.astype(numpy.uint16) * 257).save(folder / "grey16.png")
        Image.fromarray(numpy.dstack([pixels, numpy.full(grey.shape, 255, numpy.uint8)])).save(folder / "opaque.png")
        clear = numpy.dstack([pixels, numpy.full(grey.shape, 255, numpy.uint8)])
        clear[:, 45:, 3] = 0
        Image.fromarray(clear).save(folder / "clear.png")
        Image.fromarray(pixels).quantize(255).save(folder / "palette.png")
        for name in ("a.bmp", "a.webp", "a.tif"):
            Image.fromarray(pixels).save(folder / name, **({"lossless": True} if name.endswith("webp") else {}))
        out, lines = self.run_folder()
        self.assertEqual({line["state"] for line in lines.values()}, {"ok"})
        shown = {"grey.jpg": numpy.dstack([grey] * 3), "grey16.png": numpy.dstack([grey] * 3), "cmyk.jpg": pixels, "opaque.png": pixels,
                 "palette.png": numpy.asarray(Image.open(folder / "palette.png").convert("RGB")), "a.bmp": pixels, "a.webp": pixels, "a.tif": pixels}
        for name, expected in shown.items():
            self.assertLess(abs(self.overlay(out, name) - expected).mean(), 4, name)
        self.assertLess(abs(self.overlay(out, "clear.png")[:, :40] - pixels[:, :40]).mean(), 4)


if __name__ == "__main__":
    program.main()
