"""Trained weights in windows: streets with their truth, vessels of the eye, and the brain in a scan of a head.

The weights and pictures are in the folder of MILLRACE_TEST_DATA; without it, these tests skip.
"""

import shutil
import sys
import types

import numpy
import program
import torch
from PIL import Image
from program import Case

sys.path.append(str(program.ROOT / "tests/models"))

STREET_MEAN, STREET_STD = (99.03, 97.37, 94.10), (76.07, 76.06, 75.37)  # in the order of the planes: blue, green, red
STREET_CLASSES = 11  # the truth has more, which do not count
WHOLE = (360, 480)
ROI = 240
EDGE = 4  # pixels next to the edge of a window that count as its edge


def windows_of(length, roi, overlap):
    """Where windows start along an axis."""
    step = max(int(roi * (1 - overlap)), 1)
    return [*range(0, length - roi, step), length - roi]


def near_edges(height, width, overlap):
    """Which pixels lie near an edge of a window inside the picture."""
    near = numpy.zeros((height, width), bool)
    for axis, length in enumerate((height, width)):
        for start in windows_of(length, ROI, overlap):
            for edge in (start, start + ROI):
                if 0 < edge < length:
                    place = [slice(None)] * 2
                    place[axis] = slice(max(edge - EDGE, 0), edge + EDGE)
                    near[tuple(place)] = True
    return near


class TrainedWeights(Case):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        if not program.DATA.is_dir():
            self.skipTest("MILLRACE_TEST_DATA names no folder with weights and pictures")

    def package(self, nets, *words):
        """The package of nets that torch.jit.script takes, by name: one model, or an ensemble."""
        for name, net in nets.items():
            torch.jit.script(net).save(str(self.folder / f"{name}.ts"))
        self.run_command("model", *(self.folder / f"{name}.ts" for name in nets), "--task", "semantic", *words)
        return self.folder / f"{next(iter(nets))}.pkg"

    def run_command(self, *words):
        done = program.millrace(*words)
        self.assertEqual(done.code, program.OK, done)
        return done

    def probabilities(self, package, pictures, out, *settings):
        words = [word for setting in settings for word in ("--set", setting)]
        self.run_command("run", program.ROOT / "configs/tiled.yaml", "--input", pictures, "--set", f"semantic.model={package}",
                         "--set", "semantic.values=probabilities", "--format", "png,npy", "--output", self.folder / out, *words)
        return {file.name.removesuffix(".npy"): numpy.load(file) for file in sorted((self.folder / out / "values").iterdir())}


class Streets(TrainedWeights):
    def setUp(self):
        super().setUp()
        import espnet

        net = espnet.load(program.DATA / "models/espnet_camvid.pth")
        # The training divides by the deviation, then by 255.
        deviation = [str(255 * std) for std in STREET_STD]
        self.net = self.package({"espnet": net}, "--roi", str(ROI), "--colour", "bgr", "--scale", "1",
                                "--mean", *map(str, STREET_MEAN), "--std", *deviation)
        self.truth = {}
        (self.folder / "in").mkdir()
        for file in sorted((program.DATA / "street").glob("*.truth.png")):
            picture = file.name.replace(".truth", "")
            shutil.copy(program.DATA / "street" / picture, self.folder / "in")
            self.truth[picture] = numpy.asarray(Image.open(file))

    def mean_iou(self, out):
        """The mean over the classes of intersection / union. Pixels without one of the classes in the truth do not count."""
        confusion = numpy.zeros((STREET_CLASSES + 1, STREET_CLASSES + 1), int)
        for picture, truth in self.truth.items():
            labels = numpy.asarray(Image.open(self.folder / out / "labels" / f"{picture}.png"))
            counted = truth < STREET_CLASSES
            numpy.add.at(confusion, (truth[counted], labels[counted]), 1)
        hits = confusion.diagonal()[:STREET_CLASSES]
        return (hits / (confusion.sum(0)[:STREET_CLASSES] + confusion.sum(1)[:STREET_CLASSES] - hits)).mean()

    def excess_at_edges(self, whole, tiled, overlap):
        """The mean difference to the whole picture near edges of windows, as a share of that elsewhere."""
        near, far = [], []
        for picture, values in tiled.items():
            difference = numpy.abs(values - whole[picture]).mean(axis=2)
            edges = near_edges(*difference.shape, overlap)
            near.append(difference[edges].mean())
            far.append(difference[~edges].mean())
        return numpy.mean(near) / numpy.mean(far)

    def test_windows_find_what_the_whole_picture_shows_and_leave_no_seams(self):
        self.assertEqual(len(self.truth), 12)
        whole = self.probabilities(self.net, self.folder / "in", "whole", f"tiles.roi={WHOLE[0]},{WHOLE[1]}")
        blended = self.probabilities(self.net, self.folder / "in", "blended", "tiles.overlap=0.5")
        seams = self.probabilities(self.net, self.folder / "in", "seams", "tiles.overlap=0", "tiles.weights=constant")
        figures = {out: self.mean_iou(out) for out in ("whole", "blended", "seams")}
        excess = {"blended": self.excess_at_edges(whole, blended, 0.5), "seams": self.excess_at_edges(whole, seams, 0)}
        for name, figure in figures.items():
            print(f"{name}: mean IoU {figure:.3f}" + (f", difference at edges of windows by that elsewhere {excess[name]:.3f}" if name in excess else ""))
        self.assertEqual(round(figures["whole"], 3), 0.522)
        self.assertGreater(figures["blended"], 0.45)
        self.assertLessEqual(excess["blended"], 1.1)
        self.assertGreater(excess["seams"], 1.1)


class Vessels(TrainedWeights):
    def setUp(self):
        super().setUp()
        import wnet

        self.wnet = wnet

    def reference(self, net, picture, roi, overlap, activation):
        """Blended outputs in windows, then `activation`, in PyTorch alone: [height, width, channels]."""
        pixels = torch.from_numpy(numpy.array(Image.open(picture).convert("RGB"))).permute(2, 0, 1)[None] / 255
        height, width = pixels.shape[2:]
        axis = torch.arange(roi) - (roi - 1) / 2
        factors = torch.exp(axis**2 / (-2 * (0.125 * roi) ** 2))
        weights = factors[:, None] * factors[None]
        weights = weights.clamp(min=max(weights.min().item(), 1e-3)).double()
        sums, total = None, torch.zeros(height, width, dtype=torch.float64)
        with torch.inference_mode():
            for top in windows_of(height, roi, overlap):
                for left in windows_of(width, roi, overlap):
                    outputs = net(pixels[:, :, top : top + roi, left : left + roi])[0].double()
                    if sums is None:
                        sums = torch.zeros(len(outputs), height, width, dtype=torch.float64)
                    sums[:, top : top + roi, left : left + roi] += outputs * weights
                    total[top : top + roi, left : left + roi] += weights
        return activation(sums / total).permute(1, 2, 0).numpy()

    def test_vessels_are_those_of_pytorch_with_the_same_windows(self):
        net = self.wnet.load(program.DATA / "models/wnet_drive.pth")
        package = self.package({"wnet": net}, "--roi", "512", "--threshold", "0.42")
        pictures = [program.DATA / "retina" / name for name in ("CHASEDB1_12R.png", "HRF_04_g.jpg")]
        (self.folder / "in").mkdir()
        for picture in pictures:
            shutil.copy(picture, self.folder / "in")
        found = self.probabilities(package, self.folder / "in", "out", "tiles.overlap=0.25", "batch.size=2")
        for picture in pictures:
            expected = self.reference(net, self.folder / "in" / picture.name, 512, 0.25, torch.sigmoid)
            worst = numpy.abs(found[picture.name] - expected).max()
            labels = numpy.asarray(Image.open(self.folder / "out/labels" / f"{picture.name}.png"))
            differs = (labels != (expected[:, :, 0] > 0.42)) & (numpy.abs(expected[:, :, 0] - 0.42) > 1e-4)
            print(f"{picture.name}: largest difference {worst:.1e}, vessels {labels.mean():.4f}")
            self.assertLess(worst, 1e-4)
            self.assertEqual(differs.sum(), 0)

    def test_arteries_and_veins_are_those_of_two_nets_together(self):
        nets = {name: self.wnet.load(program.DATA / f"models/big_wnet_{name}.pth") for name in ("drive_av", "hrf_av_1024")}
        names = self.write("names.txt", "background\nuncertain\nartery\nvein\n")
        picture = self.folder / "small.png"  # the trainings had pictures of about this width
        with Image.open(program.DATA / "retina/CHASEDB1_12R.png") as opened:
            opened.convert("RGB").resize((512, 492)).save(picture)
        window = ("--roi", "256", "--names", names)
        for mean_of, members, activation in (
            ("probabilities", lambda pixels: sum(net(pixels).softmax(1) for net in nets.values()) / 2, lambda values: values),
            ("logits", lambda pixels: sum(net(pixels) for net in nets.values()) / 2, lambda values: values.softmax(0)),
        ):
            package = self.package(nets, *window, "--mean-of", mean_of)
            found = self.probabilities(package, picture, mean_of)[picture.name]
            expected = self.reference(members, picture, 256, 0.25, activation)
            worst = numpy.abs(found - expected).max()
            labels = numpy.asarray(Image.open(self.folder / mean_of / "labels" / f"{picture.name}.png"))
            ordered = numpy.sort(expected, axis=2)
            differs = (labels != expected.argmax(axis=2)) & (ordered[:, :, -1] - ordered[:, :, -2] > 1e-4)
            shares = [(labels == label).mean() for label in range(4)]
            print(f"{mean_of}: largest difference {worst:.1e}, arteries {shares[2]:.4f}, veins {shares[3]:.4f}")
            self.assertLess(worst, 1e-4)
            self.assertEqual(differs.sum(), 0)
            self.assertGreater(min(shares[2:]), 0.01)  # the comparison is of vessels


class Same(torch.nn.Module):
    """Returns the pixels themselves."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


class Slide(TrainedWeights):
    def test_pixels_are_those_of_pillow_and_areas_follow_from_the_scanner(self):
        slide = program.DATA / "slides/CMU-1-Small-Region.svs"
        package = self.package({"same": Same()}, "--roi", "512", "--scale", "1")
        out = self.folder / "out"
        self.run_ok(program.ROOT / "configs/tiled.yaml", "--input", slide, "--set", f"semantic.model={package}", "--set", "semantic.values=logits",
                    "--set", "tiles.overlap=0", "--set", "tiles.weights=constant", "--format", "npy", "--output", out)  # fmt: skip
        with Image.open(slide) as opened:
            pixels = numpy.array(opened.convert("RGB"))
        self.assertEqual(pixels.shape, (2967, 2220, 3))
        self.assertTrue((numpy.load(out / f"values/{slide.name}.npy") == pixels).all())
        for entry in program.lines(out)[0]["semantic"]:
            self.assertAlmostEqual(entry["mm2"], entry["pixels"] * 0.000499**2, places=4)


class Recorded:
    """A model that keeps what it gets and what it returns."""

    def __init__(self, model):
        self.model = model

    def parameters(self):
        return self.model.parameters()

    def __call__(self, images):
        self.inputs, self.outputs = images, self.model(images)
        return self.outputs


def components(mask):
    """The connected components of a mask, as cc3d numbers them: 26 neighbours, background 0."""
    inside = torch.from_numpy(mask)[None] > 0
    labels = torch.arange(1, inside.numel() + 1, dtype=torch.float32).reshape(inside.shape) * inside
    while True:
        spread = torch.nn.functional.max_pool3d(labels, 3, 1, 1) * inside
        if torch.equal(spread, labels):
            return labels[0].unique(return_inverse=True)[1].numpy()
        labels = spread


class Brain(TrainedWeights):
    """deepbet's two nets, in TorchScript: one finds the head in a small copy, the other one the brain in the head."""

    def setUp(self):
        super().setUp()
        self.formats = program.require_formats()
        for name in ("fill_voids", "pandas", "tqdm", "cc3d"):  # deepbet imports them; only cc3d has a part in run_model
            sys.modules.setdefault(name, types.ModuleType(name))
        sys.modules["tqdm"].tqdm = None
        sys.modules["cc3d"].connected_components = components

    def test_masks_are_those_of_deepbet(self):
        import nibabel
        from deepbet import bet

        extraction = bet.BrainExtraction(no_gpu=True)
        nets = {"bbox_model": Recorded(extraction.bbox_model), "model": Recorded(extraction.model)}
        extraction.bbox_model, extraction.model = nets.values()
        head = nibabel.as_closest_canonical(nibabel.load(program.DATA / "volume/t1_crop.nii.gz"))
        extraction.run_model(head.get_fdata(dtype=numpy.float32))
        affine = head.affine @ numpy.diag([0.6, 0.8, 0.6, 1])
        for name, net in nets.items():
            crop, expected = net.inputs[0, 0].numpy(), net.outputs[0].permute(3, 2, 1, 0).numpy()
            volume = self.folder / f"{name}.nii.gz"
            nibabel.Nifti1Image(crop, affine).to_filename(volume)
            self.run_command("model", self.formats / f"data/models/{name}.pt", "--out", self.folder, "--task", "semantic", "--roi", "64", "64", "64",
                             "--activation", "none")
            out = self.folder / name
            sides = ",".join(map(str, crop.shape))
            self.run_command("run", program.ROOT / "configs/volume.yaml", "--input", volume, "--set", f"semantic.model={self.folder / name}.pkg", "--set",
                             f"tiles.roi={sides}", "--set", "semantic.values=probabilities", "--format", "nifti,npy", "--output", out)
            worst = numpy.abs(numpy.load(out / f"values/{volume.name}.npy") - expected).max()
            labels = nibabel.load(out / f"label_volumes/{volume.name}.nii.gz")
            numpy.testing.assert_array_equal(labels.affine, nibabel.load(volume).affine)
            found, mask = numpy.asarray(labels.dataobj) == 1, net.outputs[0, 1].numpy() > 0.5
            dice = 2 * (found & mask).sum() / (found.sum() + mask.sum())
            print(f"{name}: largest difference {worst:.1e}, Dice {dice:.6f}, {found.sum()} voxels")
            self.assertLess(worst, 1e-4)
            self.assertGreaterEqual(dice, 0.999)
            self.assertGreater(found.mean(), 0.05)


if __name__ == "__main__":
    program.main()
