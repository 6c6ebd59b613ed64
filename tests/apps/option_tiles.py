"""Runs that show the effect of the options of tiles and semantic, for options_test.py."""

import io
import struct

import cv2
import numpy
import program
import small_semantic
from option_case import OptionCase
from PIL import Image


class TilesOptions(OptionCase):
    def semantic(self, **values):
        """Labels of a picture of 100 x 80 pixels as bytes; self.lines has its line."""
        program.write_picture(self.input / "0.jpg", 100, 80)
        package = self.folder / "small_semantic.pkg"
        values.setdefault("semantic__model", package if package.exists() else small_semantic.make(self.folder))
        self.lines = self.go("stages: [decode, tiles, semantic, encode]\nencode: {format: [png]}\n", "--input", self.input, **values)
        return (self.out / "labels/0.jpg.png").read_bytes()

    def windows(self, **values):
        """The number of windows, and of calls."""
        self.semantic(**values)
        calls = program.report(self.out)["calls"]
        return calls["windows"], calls["window_calls"]

    def decode_volume(self):
        header = bytearray(352)
        struct.pack_into("<i", header, 0, 348)
        struct.pack_into("<8h", header, 40, 4, 9, 8, 7, 2, 1, 1, 1)  # two volumes
        struct.pack_into("<2h", header, 70, 2, 8)  # of bytes
        struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 1, 0, 0, 0)
        struct.pack_into("<f", header, 108, 352)
        header[344:348] = b"n+1\0"
        self.input.mkdir()
        (self.input / "a.nii").write_bytes(header + bytes(504) + bytes([200]) * 504)
        found = []
        for volume in (0, 1):
            self.go("stages: [decode, tiles, semantic, encode]\nencode: {format: [npy]}\n", semantic__model=self.volumes(), semantic__values="logits",
                    decode__volume=volume)
            found.append(numpy.load(self.out / "values/a.nii.npy"))
        self.assertFalse((found[0] == found[1]).any())

    def volumes(self):
        """The package of a segmenter for volumes."""
        package = self.folder / "small_volumes.pkg"
        return package if package.exists() else small_semantic.make_volumes(self.folder)

    def tiles_roi(self):
        self.assertEqual([self.windows(tiles__overlap=0, tiles__roi=roi)[0] for roi in (32, 50, "80,100")], [4 * 3, 2 * 2, 1])

    def tiles_overlap(self):
        self.assertEqual([self.windows(tiles__overlap=overlap)[0] for overlap in (0, 0.5)], [4 * 3, 6 * 4])

    def tiles_weights(self):
        self.assertNotEqual(*(self.semantic(tiles__weights=weights) for weights in ("gaussian", "constant")))

    def tiles_sigma(self):
        self.assertNotEqual(*(self.semantic(tiles__sigma=sigma) for sigma in (0.05, 0.5)))

    def tiles_align(self):
        # Windows of 32 start at 0, 24, 48, 68 without, and at 0, 16, 32, 48, 64, 80 with multiples of 16.
        self.assertEqual([self.windows(tiles__align=align)[0] for align in (1, 16)], [4 * 3, 6 * 4])

    def tiles_bad(self):
        program.write_picture(self.input / "0.tif", 64, 64, compression="tiff_adobe_deflate")
        with Image.open(self.input / "0.tif") as opened:
            at = opened.tag_v2[273][-1]  # of the last strip
        whole = (self.input / "0.tif").read_bytes()
        (self.input / "0.tif").write_bytes(whole[:at] + bytes(9) + whole[at + 9 :])
        model = small_semantic.make(self.folder)
        for bad, code in (("fail", program.SOME_FAILED), ("skip", program.OK)):
            (line,) = self.go("stages: [decode, tiles, semantic, encode]\n", code=code, semantic__model=model, tiles__bad=bad)
            self.assertEqual("hole_pixels" in line, bad == "skip")

    def tiles_tta(self):
        self.assertEqual([self.windows(tiles__tta=axes, semantic__window_batch=4)[1] for axes in ("", "x", "x,y")], [3, 6, 12])
        self.assertNotEqual(*(self.semantic(tiles__tta=axes) for axes in ("", "x,y")))

    def tiles_skip_above(self):
        self.assertEqual([self.windows(tiles__skip_above=bound)[1] > 0 for bound in (-1, 300, "")], [False, True, True])

    def tiles_skip_below(self):
        self.assertEqual([self.windows(tiles__skip_below=bound)[1] > 0 for bound in (-1, 300, "")], [True, False, True])

    def tiles_mask(self):
        masks = self.folder / "masks"
        program.write_picture(masks / "0.png", 10, 8)
        whole = self.windows(tiles__mask=masks)[1]
        Image.new("L", (10, 8)).save(masks / "0.png")
        self.assertEqual((whole > 0, self.windows(tiles__mask=masks)[1]), (True, 0))

    def semantic_model(self):
        self.assertNotEqual(*(self.semantic(semantic__model=small_semantic.make(self.folder, f"semantic{seed}", seed)) for seed in (1, 2)))

    def semantic_window_batch(self):
        self.assertEqual([self.windows(tiles__overlap=0, semantic__window_batch=size)[1] for size in (1, 5, 100)], [12, 3, 2])  # the package allows 8

    def semantic_values(self):
        sums = []
        for values in ("logits", "probabilities"):
            self.semantic(semantic__values=values, encode__format="npy,png")
            sums.append(numpy.load(self.out / "values/0.jpg.npy").sum(axis=2))
        self.assertLess(abs(sums[1] - 1).max(), 1e-5)
        self.assertGreater(abs(sums[0] - 1).max(), 0.1)

    def semantic_instances(self):
        labels = numpy.array(Image.open(io.BytesIO(self.semantic(semantic__instances=3))))
        listed = {entry["label"]: [(part["box"], part["pixels"]) for part in entry["instances"]] for entry in self.lines[0]["semantic"]}
        for label, parts in listed.items():
            # OpenCV numbers components by their first pixel too. Number 0 is everything else.
            _, _, found, _ = cv2.connectedComponentsWithStats((labels == label).astype(numpy.uint8), connectivity=8)
            self.assertEqual(parts, [(list(map(int, box)), int(pixels)) for *box, pixels in found[1:] if pixels >= 3])
        self.assertGreater(sum(map(len, listed.values())), 4)
        self.semantic()
        self.assertNotIn("instances", self.lines[0]["semantic"][0])

    def points(self, **values):
        """The values of all points of the first heatmap of a picture of 100 x 80 pixels, the best first."""
        program.write_picture(self.input / "0.png", 100, 80)
        package = self.folder / "heatmaps.pkg"
        if not package.exists():
            small_semantic.write(self.folder, "heatmaps", small_semantic.Small(1), small_semantic.YAML.replace("softmax", "softmax, kind: heatmaps"))
        (line,) = self.go("stages: [decode, tiles, semantic, encode]\n", semantic__model=package, **values)
        return [value for _, _, value in line["points"][0]["points"]]

    def semantic_points(self):
        best = self.points(semantic__points=50, semantic__point_threshold=0)
        self.assertGreater(len(best), 10)
        self.assertEqual(best, sorted(best, reverse=True))
        self.assertEqual(self.points(semantic__points=3, semantic__point_threshold=0), best[:3])
        self.assertEqual(self.points(semantic__point_threshold=0), best[:1])

    def semantic_point_threshold(self):
        every = self.points(semantic__points=1000, semantic__point_threshold=0)
        least = every[len(every) // 2] - 5e-6  # values of the line are rounded to 1e-5
        self.assertEqual(self.points(semantic__points=1000, semantic__point_threshold=least), [value for value in every if value >= least])
        self.assertEqual(self.points(semantic__points=1000), [value for value in every if value >= 0.5])
