"""Overlays of a semantic segmenter: each class has a tint and an outline. Class 0 of the small net is the background here."""

import numpy
import program
import small_semantic
from PIL import Image
from program import Case

# Of classes 1 to 3 (io/sinks/overlay.cpp).
COLOURS = numpy.array([(0, 0, 0), (86, 180, 233), (0, 158, 115), (204, 121, 167)])


class Overlay(Case):
    def test_classes_are_tinted_and_outlined_and_the_background_is_not(self):
        package = small_semantic.write(self.folder, "net", small_semantic.Small(1), small_semantic.YAML.replace("anvil", "background"))
        noise = numpy.random.default_rng(3).integers(0, 256, (48, 64, 3), numpy.uint8)
        (self.folder / "in").mkdir()
        Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(self.folder / "in/a.png")
        pixels = numpy.asarray(Image.open(self.folder / "in/a.png"))
        out = self.folder / "out"
        self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", self.folder / "in", "--set", f"semantic.model={package}", "--format", "png,overlay", "--output", out)
        labels = numpy.asarray(Image.open(out / "labels/a.png.png"))
        self.assertEqual(numpy.unique(labels).tolist(), [0, 1, 2, 3])
        found = numpy.asarray(Image.open(out / "overlay/a.png.jpg").convert("RGB")).astype(float)
        edges = numpy.zeros(labels.shape, bool)
        for first, second in ((numpy.s_[1:], numpy.s_[:-1]), (numpy.s_[:, 1:], numpy.s_[:, :-1])):
            meets = labels[first] != labels[second]
            edges[first] |= meets
            edges[second] |= meets
        colours, share = COLOURS[labels], numpy.where(edges, 1, 0.4) * (labels > 0)
        expected = pixels * (1 - share[..., None]) + colours * share[..., None]
        # The list of classes is in the upper left corner. A JPEG changes single pixels of such fine edges.
        self.assertLess(abs(found - expected)[:, 160:].mean(), 10)
        for label in range(4):
            there = (labels == label) & (numpy.arange(640) >= 160)
            self.assertGreater(there.sum(), 500)
            self.assertLess(abs((found - expected)[there].mean(0)).max(), 4)


if __name__ == "__main__":
    program.main()
