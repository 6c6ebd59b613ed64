"""Claims about windows, each against another program or a second run: threads, sizes of calls, components, hashes, hostile files."""

import io

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

    def test_instances_are_the_components_of_the_labels(self):
        for recipe, sink in (("tiled", "png"), ("volume", "nifti")):
            out = self.run_on(recipe, recipe, sink, "semantic.instances=3")
            self.assertGreater(program.report(out)["calls"]["slabs_in"], 1)
            labels = self.labels(out)
            (line,) = program.lines(out)
            count = 0
            for entry in line["semantic"]:
                found = [(one["box"], one["pixels" if recipe == "tiled" else "voxels"]) for one in entry["instances"]]
                expected = [part for part in components(labels == entry["label"]) if part[1] >= 3]
                self.assertEqual(sorted(found), sorted(expected), (recipe, entry["label"]))
                count += len(found)
                self.assertEqual(len(expected[0][0]) // 2, labels.ndim)
            self.assertGreater(count, 5)

    def test_a_sigma_of_a_quarter_gives_the_values_of_monai(self):
        from monai.inferers import sliding_window_inference

        out = self.run_on("tiled", "out", "npy", "semantic.values=logits", "tiles.sigma=0.25")
        pixels = numpy.asarray(Image.open(self.items["tiled"]))
        inputs = torch.from_numpy(((pixels.astype(numpy.float32) / 255 - 0.5) / 0.25).transpose(2, 0, 1).copy())[None]
        net = small_semantic.Small(1).eval()
        values = numpy.load(out / "values/a.tif.npy")
        worst = {}
        for sigma in (0.25, 0.125):
            with torch.inference_mode():
                expected = sliding_window_inference(inputs, (32, 32), 4, net, overlap=0.5, mode="gaussian", sigma_scale=sigma)[0].permute(1, 2, 0).numpy()
            worst[sigma] = abs(values - expected).max()
        self.assertLessEqual(worst[0.25], 1e-5)
        self.assertGreater(worst[0.125], 1e-3)

    def test_a_line_names_its_label_files(self):
        for recipe, sinks in (("tiled", "png,tiff"), ("volume", "nifti")):
            named = []
            for name in ("first", "second"):
                out = self.run_on(recipe, f"{recipe}-{name}", sinks)
                (line,) = program.lines(out)
                files = [next(value for key, value in one.items() if key != "xxh3") for one in line["label_files"]]
                self.assertEqual(sorted(files), sorted(str(file.relative_to(out)) for folder in ("labels", "label_pyramids", "label_volumes") for file in (out / folder).glob("*")))
                named.append(line["label_files"])
            self.assertEqual(*named)
            other = self.run_on(recipe, f"{recipe}-other", sinks, "tiles.weights=constant")
            self.assertFalse({one["xxh3"] for one in program.lines(other)[0]["label_files"]} & {one["xxh3"] for one in named[0]})


def components(mask):
    """[(box, size)] of the connected parts: of a picture those of OpenCV, of a volume by flood fill."""
    if mask.ndim == 2:
        _, _, found, _ = cv2.connectedComponentsWithStats(mask.astype(numpy.uint8), connectivity=8)
        return [([int(side) for side in box], int(size)) for *box, size in found[1:]]
    left, parts = numpy.pad(mask, 1), []
    for start in map(tuple, numpy.argwhere(left)):
        if not left[start]:
            continue
        left[start] = False
        part, waiting = [start], [start]
        while waiting:
            z, y, x = waiting.pop()
            for step in numpy.argwhere(left[z - 1 : z + 2, y - 1 : y + 2, x - 1 : x + 2]):
                place = (z - 1 + int(step[0]), y - 1 + int(step[1]), x - 1 + int(step[2]))
                left[place] = False
                part.append(place)
                waiting.append(place)
        low, high = numpy.min(part, axis=0), numpy.max(part, axis=0)
        parts.append(([int(one) for one in (*(low - 1)[::-1], *(high - low + 1)[::-1])], len(part)))
    return parts


class Inputs(Case):
    def setUp(self):
        super().setUp()
        program.require_formats()

    def package(self, net, *words):
        torch.jit.script(net.eval()).save(str(self.folder / "net.ts"))
        done = program.millrace("model", self.folder / "net.ts", "--task", "semantic", "--activation", "none", *words)
        self.assertEqual(done.code, program.OK, done)
        return self.folder / "net.pkg"

    def run_on(self, recipe, item, package, sinks, *settings, code=program.OK):
        out = self.folder / f"out-{package.parent.name}"
        self.run_ok(program.ROOT / f"configs/{recipe}.yaml", "--input", item, "--output", out, "--format", sinks, *words_of((f"semantic.model={package}", *settings)), code=code)
        return out

    def test_an_affine_without_inverse(self):
        import nibabel

        affine = numpy.array([[1, 0, 0, 5], [1, 0, 0, 6], [0, 0, 1, 7], [0, 0, 0, 1]], float)
        voxels = numpy.random.default_rng(1).integers(0, 200, (12, 11, 10)).astype(numpy.int16)
        image = nibabel.Nifti1Image(voxels, numpy.eye(4))
        image.set_qform(None, 0)
        image.header["sform_code"] = 1
        for row, name in enumerate(("srow_x", "srow_y", "srow_z")):
            image.header[name] = affine[row]
        volume = self.folder / "in/flat.nii"
        volume.parent.mkdir()
        # nibabel refuses to write such an image, but its header has the bytes.
        image.header["vox_offset"], image.header["magic"] = 352, b"n+1"
        volume.write_bytes(image.header.binaryblock + bytes(4) + voxels.tobytes(order="F"))
        self.assertTrue((nibabel.load(volume).affine == affine).all())
        net = torch.nn.Conv3d(1, 3, 3, padding=1)
        package = self.package(net, "--roi", 8, 8, 8)
        out = self.run_on("volume", volume, package, "nifti")
        labels = nibabel.load(out / "label_volumes/flat.nii.nii.gz")
        self.assertTrue((labels.affine == affine).all(), labels.affine)
        self.assertEqual(labels.shape, voxels.shape)
        self.package(net, "--roi", 8, 8, 8, "--orientation", "RAS", "--out", self.folder / "turned")
        out = self.run_on("volume", volume, self.folder / "turned/net.pkg", "nifti", code=program.SOME_FAILED)
        (line,) = program.lines(out)
        self.assertEqual((line["reason"], line["detail"]),
                         ("unsupported_format", "this volume does not say how it lies, but the model needs the orientation RAS; correct its header"))

    def test_a_picture_with_nan_fails_alone(self):
        import tifffile

        raster = numpy.random.default_rng(2).random((50, 60, 2)).astype(numpy.float32)
        (self.folder / "in").mkdir()
        tifffile.imwrite(self.folder / "in/good.tif", raster, photometric="minisblack", planarconfig="contig")
        raster[20, 30, 1] = numpy.nan
        tifffile.imwrite(self.folder / "in/bad.tif", raster, photometric="minisblack", planarconfig="contig")
        package = self.package(torch.nn.Conv2d(2, 3, 3, padding=1), "--roi", 32, "--channels", 2, "--scale", 1)
        out = self.run_on("tiled", self.folder / "in", package, "png", "batch.size=2", "semantic.window_batch=4", code=program.SOME_FAILED)
        lines = {line["path"]: (line["state"], line.get("reason")) for line in program.lines(out)}
        self.assertEqual(lines, {"bad.tif": ("failed", "non_finite"), "good.tif": ("ok", None)})
        self.assertEqual([file.name for file in (out / "labels").iterdir()], ["good.tif.png"])

    def test_tiles_of_a_slide_are_those_that_tifffile_finds(self):
        import tifffile

        slide = program.DATA / "slides/CMU-1-Small-Region.svs"
        if not slide.is_file():
            self.skipTest(f"{slide} is missing")
        package = self.package(torch.nn.Identity(), "--roi", 512, "--scale", 1)
        out = self.run_on("tiled", slide, package, "npy", "semantic.values=logits", "tiles.overlap=0", "tiles.weights=constant")
        values = numpy.load(out / f"values/{slide.name}.npy")
        with tifffile.TiffFile(slide) as file:
            page = file.pages[0]
            self.assertEqual((values.shape, page.compression), (page.shape, tifffile.COMPRESSION.JPEG))
            tables, sides = page.jpegtables, (page.tilelength, page.tilewidth)
            across = -(-page.shape[1] // sides[1])
            for index, (offset, count) in enumerate(zip(page.dataoffsets, page.databytecounts, strict=True)):
                file.filehandle.seek(offset)
                # The tables stand before the tile's own markers. An Adobe marker says that its colours are not YCbCr.
                adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00" if page.photometric == tifffile.PHOTOMETRIC.RGB else b""
                tile = Image.open(io.BytesIO(tables[:-2] + adobe + file.filehandle.read(count)[2:]))
                y, x = index // across * sides[0], index % across * sides[1]
                expected = numpy.asarray(tile.convert("RGB"))[: page.shape[0] - y, : page.shape[1] - x]
                self.assertTrue((values[y : y + sides[0], x : x + sides[1]] == expected).all(), index)
        self.assertGreater(index, 100)


if __name__ == "__main__":
    program.main()
