"""The exporter of torchvision's classifiers: packages agree with the original, with trained and with seeded weights."""

import shlex
from importlib.metadata import version
from unittest import mock

import export_case
import numpy
import torch
import yaml
from export_case import ExportCase, picture
from PIL import Image
from torchvision import models

import package
import photograph
import program
import torchvision_classifier

PHOTOGRAPHS = ("street.jpg", "room.jpg", "picture1.jpg", "picture2.jpg", "picture3.jpg")


def seeded(architecture, classes=1000):
    """A classifier with seeded weights, norms and last layer. In a new ViT the last layer is all zeros."""
    torch.manual_seed(0)
    model = models.get_model(architecture, weights=None, num_classes=classes).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    torch.nn.init.normal_(model.get_submodule(torchvision_classifier.tensors_of(architecture)[1]).weight, 0, 0.05)
    return model


def prepared(pixels, description):
    """The model input [1, 3, height, width] for a picture.

    Pillow and numpy make it as the `input` of model.yaml says.
    """
    rows, columns = pixels.shape[:2]
    shorter, height, width = (description[key] for key in ("shorter_side", "height", "width"))
    resized = (shorter, int(shorter * rows / columns)) if columns <= rows else (int(shorter * columns / rows), shorter)
    values = numpy.asarray(Image.fromarray(pixels[:, :, ::-1].copy()).resize(resized, Image.Resampling.BILINEAR))
    top, left = round((resized[1] - height) / 2), round((resized[0] - width) / 2)
    values = values[top : top + height, left : left + width].astype(numpy.float64)
    values = (values * description["scale"] - description["mean"]) / description["std"]
    return torch.from_numpy(values.transpose(2, 0, 1)[None]).float()


class ClassifierCase(ExportCase):
    def save(self, state, name="x.pth"):
        torch.save(state, self.folder / name)
        return self.folder / name

    def written(self, done, *printed):
        described = self.check_written(done, "in a batch of 3: logits", *printed, others=["classes.f32"])
        self.assertEqual((described["task"], described["output"]["normalised"]), ("embed", False))
        self.assertEqual(described["matrix"], {"file": "classes.f32", "bias": True})
        self.assertEqual(described["files"]["classes.f32"], package.sha256(self.out / "classes.f32"))
        return described

    def logits(self, described, images):
        """(vectors of the package, their logits from its matrix)."""
        count, dimensions = len(described["classes"]), described["output"]["dimensions"]
        values = torch.from_numpy(numpy.fromfile(self.out / "classes.f32", "<f4"))
        self.assertEqual(len(values), count * (dimensions + 1))
        with torch.inference_mode():
            vectors = package.load(self.out).embed(images)
        return vectors, vectors @ values[: count * dimensions].reshape(count, dimensions).T + values[count * dimensions :]

    def hold_original(self, described, original):
        """Checks that logits of three pictures, together and one by one, are those of `original`.

        In 16 bits, vectors must keep their direction.
        """
        _, pixels = picture()
        images = torch.cat([prepared(view, described["input"]) for view in photograph.three_views(pixels)])
        with torch.inference_mode():
            expected = original(images)
        _, together = self.logits(described, images)
        self.hold_logits(together, expected)
        vectors, alone = self.logits(described, images[2:])
        self.hold_logits(alone, expected[2:])
        for dtype in (torch.float16, torch.bfloat16):
            with torch.inference_mode():
                narrowed = package.load(self.out).to(dtype).embed(images[2:].to(dtype))
            self.assertEqual(narrowed.dtype, torch.float32)
            self.assertGreater(torch.cosine_similarity(narrowed, vectors).min().item(), 0.999, dtype)


class Trained(ClassifierCase):
    def test_mobilenet_v2_finds_the_classes_that_torchvision_finds(self):
        weights = program.weights("mobilenet_v2-b0353104.pth")
        options, _ = picture()
        described = self.written(self.export(weights, *options), "preset V1, since the SHA-256 says that the file is torchvision's own")
        self.assertEqual((described["name"], described["architecture"]), ("mobilenet_v2-b0353104", "mobilenet_v2"))
        self.assertEqual((described["input"]["shorter_side"], described["output"]["dimensions"]), (256, 1280))
        self.assertEqual(described["original"], f"torchvision {version('torchvision')} MobileNetV2 mobilenet_v2")
        original = models.mobilenet_v2()
        original.load_state_dict(torch.load(weights, weights_only=True))
        transforms = models.MobileNet_V2_Weights.IMAGENET1K_V1.transforms()
        for name in PHOTOGRAPHS:
            with self.subTest(name), Image.open(program.picture(name)) as opened:
                rgb = opened.convert("RGB")
                image = transforms(rgb)[None]
                self.assertLess((prepared(numpy.asarray(rgb)[:, :, ::-1], described["input"]) - image).abs().max().item(), 1e-5)
                with torch.inference_mode():
                    expected = original.eval()(image).softmax(1)[0]
                found = self.logits(described, image)[1].softmax(1)[0]
                self.assertLess((found - expected).abs().max().item(), 1e-4)
                best = found.topk(5).indices.tolist()
                self.assertEqual(best, expected.topk(5).indices.tolist())
                if name == "street.jpg":
                    named = [(described["classes"][index], round(found[index].item(), 2)) for index in best[:2]]
                    self.assertEqual(named, [("minibus", 0.47), ("police van", 0.44)])


class Seeded(ClassifierCase):
    def test_own_classes(self):
        original = seeded("mobilenet_v2", 3)
        path = self.save(original.state_dict())
        described = self.written(self.export(path), "the 3 classes are named 0 to 2", "preset V1, the default", "; --preset V2: 232")
        self.assertEqual(described["classes"], ["0", "1", "2"])
        self.hold_original(described, original)
        names = self.folder / "names.txt"
        names.write_text("bolt\nno\nwasher\n")
        described = self.written(self.export(path, "--names", names, "--preset", "V2"), "preset V2, as --preset says")
        self.assertEqual((described["classes"], described["input"]["shorter_side"]), (["bolt", "no", "washer"], 232))
        names.write_text("bolt\n")
        self.assertIn("has 1 names", str(self.export(path, "--names", names).refusal))

    def test_an_old_wrapped_checkpoint(self):
        """A checkpoint of an old DataParallel: names begin with `module.`, and norms do not count batches.

        The tensors are below `state_dict`, in half precision.
        """
        original = seeded("resnet18").half().float()
        state = {f"module.{name}": value.half() for name, value in original.state_dict().items() if not name.endswith("num_batches_tracked")}
        path = self.save({"epoch": 90, "state_dict": state})
        described = self.written(self.export(path), "vectors of 512, taken from below 'state_dict', 'module.' taken off its names")
        self.assertEqual((described["architecture"], described["classes"][:2]), ("resnet18", ["tench", "goldfish"]))
        self.hold_original(described, original)

    def test_the_other_families(self):
        for architecture, options in (("mobilenet_v3_small", ()), ("efficientnet_b1", ("--preset", "V2")), ("convnext_tiny", ()), ("vit_b_16", ())):
            with self.subTest(architecture):
                original = seeded(architecture, 10)
                state = original.state_dict()
                for present, former in ((".mlp.0.", ".mlp.linear_1."), (".mlp.3.", ".mlp.linear_2.")):  # names of the published ViT
                    state = {name.replace(present, former): value for name, value in state.items()}
                described = self.written(self.export(self.save(state), *options), f"torchvision's {architecture}, 10 classes")
                self.hold_original(described, original)

    def test_every_architecture_is_recognised(self):
        for architectures in torchvision_classifier.FAMILIES.values():
            for architecture in architectures:
                shapes, head = torchvision_classifier.tensors_of(architecture)
                state = {name: torch.empty(shape, device="meta") for name, shape in shapes.items() if not name.startswith(head)}
                self.assertTrue(torchvision_classifier.is_state_dict(state))
                self.assertEqual(torchvision_classifier.architecture_of(state), architecture)

    def test_a_file_is_known_by_its_content(self):
        with mock.patch.object(torchvision_classifier, "sha256", lambda path: "7ebf99e0" + "0" * 56):
            done = self.export(self.save(seeded("mobilenet_v2", 3).state_dict()))
        self.assertEqual(self.written(done, "preset V2, since the SHA-256")["input"]["shorter_side"], 232)

    def test_millrace_model_prints_how_to_run_it(self):
        weights = self.save(seeded("mobilenet_v2", 3).state_dict(), "my classes.pth")
        done = self.run_model(weights, "--preset", "V2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("preset V2, as --preset says", done.stdout)
        words = shlex.split(done.stdout.splitlines()[-1])
        package_set = f"categorize.model={self.folder / 'my classes.pkg'}"
        expected = [str(export_case.REPOSITORY / "configs/categories.yaml"), "--input", "PICTURES", "--set", package_set, "--output", "RESULTS"]
        self.assertEqual(words[words.index("run") + 1 :], expected)
        done = self.run_model(weights, self.save(seeded("resnet18", 3).state_dict(), "other.pth"))
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertIn("my classes.pth: is an embedder, which has its own recipe", done.stderr)
        self.assertFalse((self.folder / "other.pkg").exists())


class Refused(ClassifierCase):
    def test_weights_that_do_not_fit(self):
        state = seeded("resnet18", 10).state_dict()
        for edit, says in (
            (lambda s: s.update({"fc.weight": torch.zeros(10, 100)}), "has tensors of other shapes (1: fc.weight)"),
            (lambda s: s.update({"conv1.weight": torch.zeros(64, 3, 3, 3)}), "has tensors of other shapes (1: conv1.weight)"),
            (lambda s: s.update({"fc.1.weight": s.pop("fc.weight"), "fc.1.bias": s.pop("fc.bias")}), "lacks tensors (2: fc.bias, fc.weight)"),
            (lambda s: s.pop("layer4.1.conv2.weight"), "lacks tensors (1: layer4.1.conv2.weight)"),
            (lambda s: s.update(extra=torch.zeros(1)), "has tensors that the architecture does not have (1: extra)"),
        ):
            with self.subTest(says):
                edited = dict(state)
                edit(edited)
                self.check_refused(self.save(edited), "looks like resnet18 but", says)

    def test_options(self):
        path = self.save(seeded("resnet18", 10).state_dict())
        self.check_refused(path, "torchvision has no preset V2 of resnet18; --preset takes V1", options=("--preset", "V2"))
        self.check_refused(path, "--imgsz is for detectors;", "leave --imgsz out", options=("--imgsz", 224))
        sam = self.save({"image_encoder.trunk.pos_embed": torch.zeros(1)}, "sam.pt")
        for option in ("--names", "--preset"):
            self.check_refused(sam, f"{option} is for", f"leave {option} out", options=(option, "V1"))

    def test_filters_that_packages_do_not_support(self):
        for architecture, says in (("efficientnet_b0", "take another architecture"), ("efficientnet_b1", "--preset V2 is bilinear")):
            with self.subTest(architecture):
                path = self.save(models.get_model(architecture, weights=None, num_classes=2).state_dict())
                self.check_refused(path, f"preset V1 of {architecture} resizes pictures with a bicubic filter", says)


if __name__ == "__main__":
    program.main(needs_program=False)
