"""Pictures in windows have the values of MONAI. How windows are packed into calls changes no byte.

The nets are small and random. The formats set of tools/setup.sh has MONAI; without it, the comparisons skip.
"""

import functools
import math
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
import torch
from PIL import Image
from pycocotools import mask as coco_mask
from torch import nn

import program
import small_semantic
from program import millrace

ROI = 32
# Height and width of pictures: smaller than a window, as large, slightly larger, and several windows.
SIZES = ((1, 1), (1, 50), (20, 90), (31, 64), (32, 32), (33, 32), (64, 33), (70, 101))
CHANNELS = (1, 5, 14)
# Preprocessing of the net with this number of channels: colours in reverse, scale, mean, deviation.
PREPARED = {
    1: (False, 1 / 255, [0, 0, 0], [1, 1, 1]),
    5: (True, 1 / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    14: (False, 1, [120, 120, 120], [60, 60, 60]),
}
# Channels, overlap, weights, windows in a call, pictures in a batch. Each value of a column is in several rows.
RUNS = (
    (1, 0, "constant", 1, 1),
    (1, 0.25, "gaussian", 2, 2),
    (1, 0.5, "constant", 6, 3),
    (1, 0.75, "gaussian", 9, 1),
    (5, 0, "gaussian", 3, 2),
    (5, 0.25, "constant", 7, 3),
    (5, 0.5, "gaussian", 5, 2),
    (5, 0.75, "constant", 4, 1),
    (14, 0, "constant", 8, 3),
    (14, 0.25, "gaussian", 1, 2),
    (14, 0.5, "constant", 9, 1),
    (14, 0.75, "gaussian", 2, 3),
)
SAME_VALUE = 1e-5  # the values have a standard deviation of about 1

shared = None  # the folder of nets, packages and pictures


def setUpModule():
    global shared
    shared = Path(unittest.enterModuleContext(tempfile.TemporaryDirectory(prefix="millrace-test-")))
    torch.set_num_threads(1)
    write_pictures(shared / "in", seeds=1)


def smooth_noise(height, width, seed):
    """Random colours that change over a few pixels."""
    noise = numpy.random.default_rng([seed, height, width]).random((height + 4, width + 4, 3))
    means = numpy.lib.stride_tricks.sliding_window_view(noise, (5, 5), axis=(0, 1)).mean(axis=(3, 4))
    return (((means - 0.5) * 4 + 0.5).clip(0, 1) * 255).astype(numpy.uint8)


def write_pictures(folder, seeds):
    folder.mkdir()
    for seed in range(seeds):
        for height, width in SIZES:
            Image.fromarray(smooth_noise(height, width, seed)).save(folder / f"{height}x{width}-{seed}.png")


def pixels_of(picture):
    with Image.open(picture) as opened:
        return numpy.asarray(opened)


def prepared(pixels, channels):
    """The input of the net for a whole picture: float32 [3, height, width]."""
    in_reverse, scale, mean, deviation = (numpy.float32(number) for number in PREPARED[channels])
    values = pixels[:, :, ::-1] if in_reverse else pixels
    return numpy.ascontiguousarray(((values.astype(numpy.float32) * scale - mean) / deviation).transpose(2, 0, 1))


@functools.cache
def net(channels):
    """A net whose outputs have about mean 0 and deviation 1, so that pictures have many labels."""
    torch.manual_seed(channels)
    last = nn.ConvTranspose2d(8, channels, 2, stride=2)
    made = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(), last).eval()
    with torch.inference_mode():
        images = torch.from_numpy(prepared(smooth_noise(256, 256, seed=99), channels))[None]
        deviation, mean = torch.std_mean(made(images), dim=(0, 2, 3))
        last.weight.copy_(last.weight / deviation[None, :, None, None])
        last.bias.copy_((last.bias - mean) / deviation)
    return made


def save(made, file):
    torch.jit.script(made).save(str(file))
    return file


def convert(*words, cwd=None):
    return millrace("model", *words, cwd=cwd, env={"MILLRACE_PYTHON": sys.executable})


class Pair(nn.Module):
    """A net that returns its logits, and something else."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images: torch.Tensor):
        logits = self.inner(images)
        return logits, logits.mean()


class Second(nn.Module):
    """Makes the logits of another model from those of a net."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return 0.5 - 2 * logits.flip(1)


class Stacked(nn.Module):
    """An ensemble in one file: [members, B, channels, height, width]."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.second = Second()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = self.inner(images)
        return torch.stack([logits, self.second(logits)])


class Mixed(nn.Module):
    """A net whose windows depend on each other."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images - images.mean(0, keepdim=True)


class Named(Pair):
    """The same in the manner of torchvision."""

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.inner(images)
        return {"aux": logits * 2, "out": logits}


@functools.cache
def package(channels):
    """The package of the net, which `millrace model` makes."""
    in_reverse, scale, mean, deviation = PREPARED[channels]
    words = ["--task", "semantic", "--roi", ROI, "--out", shared / "packages", "--colour", "bgr" if in_reverse else "rgb", "--scale", scale]
    done = convert(save(net(channels), shared / f"net{channels}.ts"), *words, "--mean", *mean, "--std", *deviation)
    assert done.code == program.OK, done
    return shared / f"packages/net{channels}.pkg"


def starts(length, side, overlap):
    """Where windows begin on an axis that is at least as long as they are."""
    step = max(1, math.floor(side * (1 - overlap)))
    found = [0]
    while found[-1] + side < length:
        found.append(min(found[-1] + step, length - side))
    return found


def bell(side):
    return numpy.exp(-0.5 * ((numpy.arange(side) - (side - 1) / 2) / (side / 8)) ** 2)


def blended(values, roi, overlap, weights, channels):
    """What the run must give: [height, width, channels]. Only the net computes in float32; the sums are float64."""
    _, *size = values.shape
    whole = [max(pair) for pair in zip(size, roi)]
    inside = (slice(None), *(slice((long - short) // 2, (long - short) // 2 + short) for long, short in zip(whole, size)))
    padded = numpy.zeros((3, *whole), numpy.float32)
    padded[inside] = values
    weight = numpy.ones(roi)
    if weights == "gaussian":
        weight = numpy.outer(bell(roi[0]), bell(roi[1]))
        weight = numpy.maximum(weight, max(weight.min(), 1e-3))
    sums, total = numpy.zeros((channels, *whole)), numpy.zeros(whole)
    for y in starts(whole[0], roi[0], overlap):
        for x in starts(whole[1], roi[1], overlap):
            window = (slice(None), slice(y, y + roi[0]), slice(x, x + roi[1]))
            output = net(channels)(torch.from_numpy(padded[window].copy())[None])[0]
            sums[window] += weight * output.double().numpy()
            total[window[1:]] += weight
    return (sums / total)[inside].transpose(1, 2, 0)


def best_labels(values):
    """The label of each pixel, and by how much its value exceeds that of another label."""
    if values.shape[2] == 1:  # sigmoid(value) > 0.5
        return (values[:, :, 0] > 0).astype(numpy.uint8), numpy.abs(values[:, :, 0])
    ordered = numpy.sort(values, axis=2)
    return values.argmax(axis=2), ordered[:, :, -1] - ordered[:, :, -2]


class Base(program.Case):
    def tiled(self, channels, *settings, pictures=None, values="logits", name="out", code=program.OK):
        """Runs configs/tiled.yaml on pictures, by default on the shared ones; returns the output folder."""
        out = self.folder / name
        settings = (f"semantic.model={package(channels)}", f"semantic.values={values}", *settings)
        self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", pictures or shared / "in", *(word for setting in settings for word in ("--set", setting)),
                    "--format", "png,npy", "--output", out, code=code)
        return out

    def values(self, out, name):
        values = numpy.load(out / f"values/{name}.npy")
        self.assertEqual(values.dtype, numpy.float32)
        return values

    def labels(self, out, name):
        with Image.open(out / f"labels/{name}.png") as opened:
            self.assertEqual(opened.mode, "L")
            return numpy.asarray(opened)


class Blended(Base):
    """Values and labels are those of MONAI, and those of a reference in double precision."""

    def setUp(self):
        super().setUp()
        program.require_formats()

    def check(self, out, roi, overlap, weights, channels, mirrored=()):
        from monai.inferers import sliding_window_inference

        found = set()
        for picture in sorted((shared / "in").iterdir()):
            pixels = pixels_of(picture)
            inputs = prepared(pixels, channels)
            values, labels = self.values(out, picture.name), self.labels(out, picture.name)
            self.assertEqual(values.shape, (*pixels.shape[:2], channels))
            with torch.inference_mode():
                monai = sliding_window_inference(torch.from_numpy(inputs)[None], roi, 4, small_semantic.mirrored(net(channels), mirrored), overlap=overlap, mode=weights)
                monai = monai[0].permute(1, 2, 0).numpy()
                references = {"MONAI": monai}
                if not mirrored:
                    references["double precision"] = blended(inputs, roi, overlap, weights, channels)
            for name, expected in references.items():
                self.assertLessEqual(numpy.abs(values - expected).max(), SAME_VALUE, (picture.name, name))
                best, margin = best_labels(expected)
                self.assertFalse(((labels != best) & (margin >= SAME_VALUE)).any(), (picture.name, name))
            self.assertTrue((labels == best_labels(values)[0]).all(), picture.name)
            found |= set(labels.ravel().tolist())
        self.assertEqual(found, set(range(max(channels, 2))))  # the comparison is of all labels

    def test_every_overlap_weight_and_batch(self):
        for row in RUNS:
            channels, overlap, weights, window_batch, batch = row
            with self.subTest(row):
                settings = (f"tiles.roi={ROI}", f"tiles.overlap={overlap}", f"tiles.weights={weights}")
                out = self.tiled(channels, f"semantic.window_batch={window_batch}", f"batch.size={batch}", *settings, name="-".join(map(str, row)))
                self.check(out, (ROI, ROI), overlap, weights, channels)

    def test_mirrored_windows_have_the_mean(self):
        for axes, dimensions in (("x", (3,)), ("y", (2,)), ("x,y", (2, 3))):
            with self.subTest(axes):
                out = self.tiled(5, f"tiles.tta={axes}", "semantic.window_batch=3", "tiles.overlap=0.5", name=f"tta-{axes}")
                self.check(out, (ROI, ROI), 0.5, "gaussian", 5, dimensions)

    def test_the_window_of_the_package_and_another_one(self):
        self.check(self.tiled(5, name="own"), (ROI, ROI), 0.25, "gaussian", 5)
        self.check(self.tiled(5, "tiles.roi=24,40", "semantic.window_batch=3", name="other"), (24, 40), 0.25, "gaussian", 5)


class Results(Base):
    def test_probabilities_are_those_of_the_logits(self):
        for channels in (1, 5):  # sigmoid and softmax
            logits_out, out = self.tiled(channels, name=f"logits{channels}"), self.tiled(channels, values="probabilities", name=f"probabilities{channels}")
            for picture in sorted((shared / "in").iterdir()):
                logits = self.values(logits_out, picture.name).astype(numpy.float64)
                if channels == 1:
                    expected = 1 / (1 + numpy.exp(-logits))
                else:
                    powers = numpy.exp(logits - logits.max(axis=2, keepdims=True))
                    expected = powers / powers.sum(axis=2, keepdims=True)
                self.assertLessEqual(numpy.abs(self.values(out, picture.name) - expected).max(), 1e-6, (channels, picture.name))
            self.assertEqual(program.tree(out / "labels"), program.tree(logits_out / "labels"))
            self.assertEqual((out / "segments/000000.jsonl").read_bytes(), (logits_out / "segments/000000.jsonl").read_bytes())

    def test_segment_lines_describe_the_label_maps(self):
        for channels in CHANNELS:
            out = self.tiled(channels, "tiles.overlap=0.5", name=f"out{channels}")
            lines = program.lines(out)
            self.assertEqual([line["path"] for line in lines], sorted(picture.name for picture in (shared / "in").iterdir()))
            names = ["background", "class 0"] if channels == 1 else [f"class {k}" for k in range(channels)]
            for line in lines:
                with self.subTest(line["path"], channels=channels):
                    labels = self.labels(out, line["path"])
                    self.assertEqual(labels.shape, (line["height"], line["width"]))
                    present, counts = numpy.unique(labels, return_counts=True)
                    self.assertEqual([(one["label"], one["name"], one["pixels"]) for one in line["semantic"]],
                                     [(label, names[label], count) for label, count in zip(present.tolist(), counts.tolist())])
                    for one in line["semantic"]:
                        keys = {"label", "name", "pixels"} | ({"rle"} if line["height"] <= ROI else set())
                        self.assertEqual(set(one), keys)
                        if "rle" in one:
                            self.assertEqual(one["rle"]["size"], list(labels.shape))
                            self.assertTrue((coco_mask.decode(one["rle"]) == (labels == one["label"])).all(), one)

    def test_a_picture_above_the_limit_of_memory_fails(self):
        out = self.tiled(5, "gate.slab=200k", "batch.size=3", code=program.SOME_FAILED)
        lines = {line["path"]: line for line in program.lines(out)}
        failed = lines.pop("70x101-0.png")
        self.assertEqual((failed["state"], failed["reason"]), ("failed", "too_large"))
        self.assertRegex(failed["detail"], r"^its pixels and the sums of its windows need \d+ bytes, but gate.slab is 204800; raise gate.slab, or lower tiles.roi$")
        self.assertNotIn("semantic", failed)
        self.assertEqual({line["state"] for line in lines.values()}, {"ok"})
        for folder, suffix in (("labels", ".png"), ("values", ".npy")):
            self.assertEqual({file.name for file in (out / folder).iterdir()}, {path + suffix for path in lines})


class Recipes(Base):
    def test_windows_must_be_as_long_as_their_alignment(self):
        done = millrace("run", program.ROOT / "configs/tiled.yaml", "--input", shared / "in", "--set", f"semantic.model={package(5)}",
                        "--output", self.folder / "out", "--set", "tiles.align=64")
        self.assertEqual(done.code, program.USAGE, done)
        self.assertRegex(done.err, r"tiles.align is 64, but a side of the windows of '.*' has 32; no side may be shorter than tiles.align")

    def test_axes_of_mirrored_windows(self):
        for axes, says in (("x,z", r"tiles.tta has z, but the windows of '.*' are pictures; leave out z"),
                           ("x,q", "tiles.tta has 'q'; it lists axes: x, y, and of volumes z")):  # fmt: skip
            done = millrace("run", program.ROOT / "configs/tiled.yaml", "--input", shared / "in", "--set", f"semantic.model={package(5)}",
                            "--output", self.folder / "out", "--set", f"tiles.tta={axes}")
            self.assertEqual(done.code, program.USAGE, done)
            self.assertRegex(done.err, says)

    def test_a_dry_run_states_the_size_of_the_sums(self):
        done = millrace("run", program.ROOT / "configs/tiled.yaml", "--input", shared / "in", "--set", f"semantic.model={package(5)}", "--set", "tiles.roi=100,40",
                        "--output", self.folder / "out", "--dry-run")
        self.assertEqual(done.code, program.OK, done)
        # 100 rows of five channels and the weights, in four bytes each
        self.assertIn("\n  windows of 40 x 100 pixels; the sums of a picture take 2.4 kB for each pixel of its width\n", done.out)

    def test_a_tiff_is_decoded_whole_if_another_stage_needs_its_pixels(self):
        (self.folder / "in").mkdir()
        Image.open(shared / "in/70x101-0.png").save(self.folder / "in/a.tif")
        labels = {}
        for formats in ("png", "png,overlay"):
            out = self.folder / formats
            self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", self.folder / "in", "--set", f"semantic.model={package(5)}", "--output", out,
                        "--format", formats)
            labels[formats] = (out / "labels/a.tif.png").read_bytes()
            self.assertEqual(program.report(out)["calls"]["slabs_in"] > 0, formats == "png")
        self.assertEqual(labels["png"], labels["png,overlay"])
        self.assertTrue((self.folder / "png,overlay/overlay/a.tif.jpg").is_file())

    def test_a_pipe_in_a_list_fails_alone(self):
        os.mkfifo(self.folder / "pipe.tif")
        listed = self.write("list.txt", f"{self.folder / 'pipe.tif'}\n{shared / 'in/70x101-0.png'}\n")
        out = self.folder / "out"
        self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", listed, "--set", f"semantic.model={package(5)}", "--output", out, code=program.SOME_FAILED)
        self.assertEqual([line.get("reason") for line in program.lines(out)], ["not_regular", None])


class SameBytes(Base):
    def setUp(self):
        super().setUp()
        self.pictures = self.folder / "in"
        write_pictures(self.pictures, seeds=3)

    def packed(self, *settings, name, pictures=None):
        return self.tiled(5, "semantic.window_batch=5", "tiles.overlap=0.5", *settings, pictures=pictures or self.pictures, name=name)

    def test_for_any_number_of_threads_and_pictures_in_a_batch(self):
        first = None
        for threads in (1, 2, 8):
            for batch in (1, 3):
                out = self.packed(f"threads.lanes={threads}", f"threads.workers={threads}", f"batch.size={batch}", name=f"out-{threads}-{batch}")
                found = {folder: program.tree(out / folder) for folder in ("segments", "labels", "values")}
                # The plan, whose hash is in the manifest, has the size of batches and the threads of a lane.
                found["segments"] = {name: file for name, file in found["segments"].items() if name.endswith(".jsonl")}
                first = first or found
                self.assertEqual(len(found["values"]), 3 * len(SIZES))
                self.assertEqual(found, first, (threads, batch))

    def test_alone_and_with_others(self):
        packed = self.packed("batch.size=3", name="packed")
        lines = {program.path_bytes(line).decode(): line["id"] for line in program.lines(packed)}
        whole = (packed / "segments/000000.jsonl").read_bytes().splitlines()
        for name in ("1x1-2.png", "20x90-1.png", "33x32-1.png", "64x33-0.png", "70x101-2.png"):
            alone = self.packed(pictures=self.pictures / name, name=name)
            (line,) = (alone / "segments/000000.jsonl").read_bytes().splitlines()
            self.assertEqual(re.sub(rb'"id": \d+', f'"id": {lines[name]}'.encode(), line, count=1), whole[lines[name]])
            for file in (f"labels/{name}.png", f"values/{name}.npy"):
                self.assertEqual((alone / file).read_bytes(), (packed / file).read_bytes(), file)


class Convert(program.Case):
    """`millrace model --task semantic`."""

    def check(self, says, *words):
        done = convert(*words, cwd=self.folder)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertEqual(len(done.err.splitlines()), 1, done)
        self.assertIn(says, done.err)
        self.assertEqual([path for path in self.folder.rglob("*") if path.suffix in (".pkg", ".part")], [])

    def test_refusals(self):
        semantic, window = ("--task", "semantic"), ("--roi", ROI)
        for channels in (1, 5):
            save(net(channels), self.folder / f"net{channels}.ts")
        save(net(5)[:-1], self.folder / "half.ts")
        torch.save(net(5).state_dict(), self.folder / "net.pt")
        self.write("text.ts", "no net")
        self.check("--task semantic needs --roi, the side of a window or its height and width, such as --roi 512", "net5.ts", *semantic)
        self.check("--roi 0: takes one to three whole numbers from 1 to 8192", "net5.ts", *semantic, "--roi", 0)
        self.check("net1.ts: has one channel, and softmax of one channel is always 1; use --activation sigmoid or none", "net1.ts", *semantic, *window,
                   "--activation", "softmax")
        self.check("net.pt: is a checkpoint, and not one of nnU-Net v2; --task semantic takes TorchScript", "net.pt", *semantic)
        self.check("text.ts: is of an unknown kind", "text.ts", *semantic, *window)
        self.check("half.ts: turns windows [3, 3, 32, 32] into [3, 8, 16, 16]; expected [3, channels, 32, 32]", "half.ts", *semantic, *window)
        self.check("net1.ts: turns windows [3, 3, 32, 32] into [3, 1, 32, 32]; expected [3, 5, 32, 32]", "net5.ts", "net1.ts", *semantic, *window)
        save(Mixed(), self.folder / "mixed.ts")
        self.check("mixed.ts: what it finds in a window depends on the other windows of a call; does it normalise over the batch?", "mixed.ts", *semantic, *window)
        self.check("net5.ts: is one model, and --mean-of is for several; leave it out, or name more files", "net5.ts", *semantic, *window, "--mean-of", "logits")
        self.check("net.pt: --mean-of is for semantic segmenters", "net.pt", "--mean-of", "logits")
        self.check("net.pt: --roi is for semantic segmenters; leave it out, or add --task semantic", "net.pt", *window)

    def test_of_several_outputs_the_first_tensor_counts(self):
        plain = package(5)
        for kind, name in ((Pair, "pair"), (Named, "named")):
            save(kind(net(5)), self.folder / f"{name}.ts")
            done = convert(f"{name}.ts", "--task", "semantic", "--roi", ROI, "--colour", "bgr", "--mean", *PREPARED[5][2], "--std", *PREPARED[5][3], cwd=self.folder)
            self.assertEqual(done.code, program.OK, done)
            self.assertIn(f"architecture: {kind.__name__}", (self.folder / f"{name}.pkg/model.yaml").read_text())
            found = []
            for model in (plain, self.folder / f"{name}.pkg"):
                out = self.folder / f"{name}-{model.stem}"
                self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", shared / "in/70x101-0.png", "--set", f"semantic.model={model}", "--output", out)
                found.append((out / "labels" / "70x101-0.png.png").exists() and program.tree(out / "labels"))
            self.assertEqual(*found)

    def test_an_ensemble_gives_the_mean_of_its_members(self):
        save(net(5), self.folder / "first.ts")
        save(nn.Sequential(net(5), Second()), self.folder / "second.ts")
        save(Stacked(net(5)), self.folder / "both.ts")
        images = torch.rand(2, 3, ROI, ROI, generator=torch.Generator().manual_seed(7))
        with torch.inference_mode():
            members = torch.stack([net(5)(images), Second()(net(5)(images))])
        for mean_of, activation, expected in (("logits", "softmax", members.mean(0)), ("probabilities", "none", members.softmax(2).mean(0))):
            for files in (("first.ts", "second.ts"), ("both.ts",)):
                done = convert(*files, "--task", "semantic", "--roi", ROI, "--mean-of", mean_of, cwd=self.folder)
                self.assertEqual(done.code, program.OK, done)
                made = self.folder / f"{Path(files[0]).stem}.pkg"
                with torch.inference_mode():
                    difference = (torch.jit.load(str(made / "model.ts"))(images) - expected).abs().max().item()
                self.assertLessEqual(difference, 1e-6, (mean_of, files))
                description = (made / "model.yaml").read_text()
                self.assertIn(f"activation: {activation}", description)
                self.assertRegex(description, f"architecture: .*2 x .*, mean of {mean_of}")

    def test_the_package_is_described(self):
        done = millrace("inspect", package(5))
        self.assertEqual(done.code, program.OK, done)
        for says in (r"task +semantic", rf"input +windows of {ROI} x {ROI} BGR, .*", r"output +5 channels for each pixel, softmax", r"classes +class 0, .*, class 4"):
            self.assertRegex(done.out, rf"(?m)^{says}$")

    def test_the_printed_command_names_recipe_and_package(self):
        save(net(5), self.folder / "my net.ts")
        done = convert("my net.ts", "--task", "semantic", "--roi", ROI, cwd=self.folder)
        self.assertEqual((done.code, done.err), (program.OK, ""), done)
        self.assertIn(f"configs/tiled.yaml --input PICTURES --set 'semantic.model={self.folder}/my net.pkg' --output RESULTS", done.out)


if __name__ == "__main__":
    program.main()
