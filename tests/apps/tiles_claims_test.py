"""Claims about windows, each against another program or a second run: threads, sizes of calls, components, tiles, affines."""

import io
import json

import cv2
import numpy
import program
import small_semantic
import torch
from PIL import Image
from program import Case


def words_of(settings):
    return [word for setting in settings for word in ("--set", setting)]


def write_nifti(path, voxels, affine=None):
    import nibabel

    path.parent.mkdir(exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels, numpy.eye(4) if affine is None else affine), path)
    return path


class Calls(Case):
    def setUp(self):
        super().setUp()
        program.require_formats()
        self.packages = {"tiled": small_semantic.make(self.folder), "volume": small_semantic.make_volumes(self.folder)}
        Image.fromarray(program.raster(150, 400, seed=3)).save(self.folder / "a.tif", compression="tiff_lzw")
        voxels = numpy.random.default_rng(4).integers(0, 200, (30, 26, 40)).astype(numpy.int16)
        self.items = {"tiled": self.folder / "a.tif", "volume": write_nifti(self.folder / "a.nii.gz", voxels)}

    def run_on(self, recipe, name, sinks, *settings):
        settings = (f"semantic.model={self.packages[recipe]}", f"tiles.roi={'32' if recipe == 'tiled' else '16,12,8'}", "tiles.overlap=0.5", *settings)
        self.run_ok(program.ROOT / f"configs/{recipe}.yaml", "--input", self.items[recipe], "--output", self.folder / name, "--format", sinks, *words_of(settings))
        return self.folder / name

    def test_items_that_are_read_in_slabs_have_the_same_bytes_for_any_number_of_threads(self):
        for recipe, sink, folder in (("tiled", "png", "labels"), ("volume", "nifti", "label_volumes")):
            first = None
            for threads in (1, 2, 8):
                out = self.run_on(recipe, f"{recipe}{threads}", sink, "semantic.window_batch=3", f"threads.lanes={threads}", f"threads.workers={threads}")
                self.assertGreater(program.report(out)["calls"]["slabs_in"], 1)
                found = (out / "segments/000000.jsonl").read_bytes(), program.tree(out / folder)
                self.assertEqual(len(found[1]), 1)
                first = first or found
                self.assertEqual(found, first, (recipe, threads))

    def test_windows_in_calls_of_another_size_have_the_same_values(self):
        for recipe in self.items:
            expected = None
            for size in (1, 4, 5):
                out = self.run_on(recipe, f"{recipe}{size}", "png,npy" if recipe == "tiled" else "nifti,npy", "semantic.values=logits", f"semantic.window_batch={size}")
                calls = program.report(out)["calls"]
                self.assertEqual(calls["window_calls"], -(-calls["windows"] // size))
                (file,) = (out / "values").iterdir()
                values, labels = numpy.load(file), self.labels(out)
                self.assertEqual(values.shape[:-1], labels.shape)
                expected = values if expected is None else expected
                self.assertLessEqual(abs(values - expected).max(), 1e-5, (recipe, size))
                best = numpy.sort(expected, axis=-1)
                self.assertTrue((labels == expected.argmax(-1))[best[..., -1] - best[..., -2] > 1e-5].all(), (recipe, size))
            self.assertGreater(len(numpy.unique(labels)), 2)

    def labels(self, out):
        """[y, x] of a picture, [z, y, x] of a volume."""
        import nibabel

        (file,) = (out / ("labels" if (out / "labels").is_dir() else "label_volumes")).iterdir()
        return numpy.asarray(Image.open(file)) if file.suffix == ".png" else numpy.asarray(nibabel.load(file).dataobj).transpose(2, 1, 0)


if __name__ == "__main__":
    program.main()
