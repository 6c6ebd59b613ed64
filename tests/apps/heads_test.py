"""`millrace model --task classify` and `--task regress`: the classes and values of a run are those of PyTorch."""

import contextlib
import functools
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
import program
import small_embedder
import torch
from PIL import Image
from program import millrace
from torch import nn

sys.path[:0] = [str(program.ROOT / "models/export")]

CATEGORIES, VALUES = (program.ROOT / f"configs/{name}.yaml" for name in ("categories", "values"))
CLASSES = ("anvil", "bell", "clock", "door")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
NEAR = 1e-4  # maximum difference from PyTorch
shared = None  # the folder of nets, packages and pictures


def setUpModule():
    global shared
    shared = Path(unittest.enterModuleContext(tempfile.TemporaryDirectory(prefix="millrace-test-")))
    torch.set_num_threads(1)
    for i, (width, height) in enumerate(((90, 70), (64, 101), (33, 48), (40, 40), (150, 60))):
        program.write_picture(shared / f"in/{i}.png", width, height, seed=i)


class Net(nn.Module):
    """`count` numbers that depend on every pixel. They are not finite for a dark picture."""

    def __init__(self, count, scale=1.0):
        super().__init__()
        torch.manual_seed(count)
        self.features = nn.Conv2d(3, 16, 5, stride=3)
        self.head = nn.Linear(16, count)
        self.scale = scale

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.scale * self.head(torch.relu(self.features(images)).mean(dim=[2, 3]))
        dark = images.amax(dim=[1, 2, 3]) <= -1.0
        return torch.where(dark[:, None], found / 0, found)


class Wrapped(nn.Module):
    """Its output in one of several forms."""

    def __init__(self, net):
        super().__init__()
        self.net = net


class Tuple(Wrapped):
    def forward(self, images: torch.Tensor):
        return self.net(images), images


class Logits(Wrapped):
    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"hidden": images, "logits": self.net(images)}


class Single(Wrapped):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)[:, 0]


class Squeezed(Wrapped):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images).squeeze()


class Mixed(Wrapped):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.net(images)
        return found - found.mean(0, keepdim=True)


@functools.cache
def net(count, scale=1.0):
    return Net(count, scale).eval()


def save(made, name):
    torch.jit.script(made.eval()).save(str(shared / name))
    return shared / name


def exported(file, *options):
    """Exports in this process, since importing torch takes seconds. Returns what it says, and raises SystemExit if it refuses."""
    import export

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        export.main([str(file), str(shared / f"{file.stem}.pkg"), *map(str, options)])
    return printed.getvalue()


@functools.cache
def classifier(activation):
    names = shared / "classes.txt"
    names.write_text("\n".join(CLASSES))
    exported(save(net(4, 20.0), f"{activation}.ts"), "--task", "classify", "--imgsz", 32, "--names", names, "--activation", activation, "--mean", *MEAN, "--std", *STD)
    return shared / f"{activation}.pkg"


def prepared(file, height=32, width=32, mean=MEAN, std=STD, shorter=None):
    """The input [1, 3, height, width] of a picture, by Pillow and numpy."""
    with Image.open(file) as opened:
        image = opened.convert("RGB")
    if shorter is None:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    else:
        long = int(shorter * max(image.size) / min(image.size))
        image = image.resize((long, shorter) if image.width >= image.height else (shorter, long), Image.Resampling.BILINEAR)
        left, top = (round((have - want) / 2) for have, want in zip(image.size, (width, height)))
        image = image.crop((left, top, left + width, top + height))
    values = (numpy.asarray(image).astype(numpy.float64) / 255 - mean) / std
    return torch.from_numpy(values.transpose(2, 0, 1)[None]).float()


def numbers(made, name, **options):
    with torch.inference_mode():
        return made(prepared(shared / "in" / name, **options))[0]


class Classify(program.Case):
    def lines(self, package, *options, recipe=CATEGORIES):
        out = self.folder / "out"
        self.run_ok(recipe, "--input", shared / "in", "--output", out, "--set", f"categorize.model={package}", *options)
        return program.lines(out)

    def test_probabilities_are_those_of_pytorch(self):
        for activation, function in (("softmax", lambda logits: logits.softmax(0)), ("sigmoid", torch.sigmoid)):
            for line in self.lines(classifier(activation)):
                expected = function(numbers(net(4, 20.0), line["path"]))
                best = expected.argsort(descending=True).tolist()
                self.assertEqual([entry[:2] for entry in line["categorize"]["top"]], [[index, CLASSES[index]] for index in best])
                for index, _, probability in line["categorize"]["top"]:
                    self.assertAlmostEqual(probability, expected[index].item(), delta=NEAR)
            counts = json.loads((self.folder / "out/reduced/categories.json").read_text())["categories"]["categorize"]["default"]
            self.assertEqual(sum(counts.values()), 5)
            (self.folder / "out").rename(self.folder / activation)
        self.assertEqual(len({line["categorize"]["top"][0][2] for line in program.lines(self.folder / activation)}), 5)  # the pictures differ

    def test_a_model_that_gives_probabilities(self):
        sums = nn.Sequential(net(4, 20.0), nn.Softmax(1))
        exported(save(sums, "sums.ts"), "--task", "classify", "--imgsz", 32, "--activation", "none", "--mean", *MEAN, "--std", *STD)
        for line in self.lines(shared / "sums.pkg", "--set", "categorize.top=1"):
            ((index, name, probability),) = line["categorize"]["top"]
            expected = numbers(sums, line["path"])
            self.assertEqual((index, name), (expected.argmax().item(), f"class {index}"))
            self.assertAlmostEqual(probability, expected.max().item(), delta=NEAR)
        done = millrace("run", CATEGORIES, "--input", shared / "in", "--output", self.folder / "n", "--set", f"categorize.model={shared / 'sums.pkg'}",
                        "--set", "categorize.temperature=2")
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("categorize.temperature divides logits, but the package sums gives probabilities (output.activation: none); leave it out", done.err)

    def test_the_package_is_described(self):
        done = millrace("inspect", classifier("sigmoid"))
        self.assertEqual(done.code, program.OK, done)
        for says in ("task +classify", "resize +stretched .*", "output +4 classes, sigmoid", "at most +64 pictures a call", "classes +anvil, bell, clock, door"):
            self.assertRegex(done.out, rf"(?m)^{says}$")

    def test_views_may_have_models_of_both_kinds(self):
        embedder = small_embedder.make(self.folder)
        recipe = self.write("recipe.yaml", f"""
stages: [decode, preprocess, categorize, encode]
views:
  - {{name: first, match: "[01].png", categorize: {{model: {embedder}}}}}
  - {{name: others, match: "*"}}
""")
        both = {line["path"]: line["categorize"] for line in self.lines(classifier("softmax"), recipe=recipe)}
        for package, names in ((embedder, ("0.png", "1.png")), (classifier("softmax"), ("2.png", "3.png", "4.png"))):
            out = self.folder / package.stem
            self.run_ok(CATEGORIES, "--input", shared / "in", "--output", out, "--set", f"categorize.model={package}")
            alone = {line["path"]: line["categorize"] for line in program.lines(out)}
            self.assertEqual({name: both[name] for name in names}, {name: alone[name] for name in names})

    def test_verify_compares_the_probabilities_of_all_classes(self):
        import verify

        pictures = sorted((shared / "in").iterdir())
        candidates = [["--set", "batch.size=4"], ["--set", "categorize.temperature=20"]]
        same, flat = verify.measures_of(program.PROGRAM, classifier("softmax"), pictures, candidates)
        self.assertEqual((same["pictures"], same["same_class"], same["within"]), (5, 1, True))
        self.assertGreater(same["cosine_min"], 0.99999)
        self.assertEqual((flat["same_class"], flat["within"]), (1, False))  # only the probabilities differ

    def test_the_same_bytes_for_any_number_of_threads(self):
        found = []
        for options in ((), ("--set", "threads.lanes=2", "--set", "threads.workers=3"), ("--device", "fake:2")):
            out = self.folder / str(len(found))
            self.run_ok(CATEGORIES, "--input", shared / "in", "--output", out, "--set", f"categorize.model={classifier('softmax')}", "--set", "batch.size=2",
                        "--set", "threads.team=1", *options)
            found.append((out / "segments/000000.jsonl").read_bytes())
        self.assertEqual(found[1:], found[:1] * 2)


class Regress(program.Case):
    def values(self, package, *options, source=None, code=program.OK):
        out = self.folder / f"out-{package.stem}"
        self.run_ok(VALUES, "--input", source or shared / "in", "--output", out, "--set", f"regress.model={package}", *options, code=code)
        return {line["path"]: line for line in program.lines(out)}

    def check(self, found, names, expected):
        self.assertEqual(list(found), list(names))
        for value, right in zip(found.values(), expected.tolist(), strict=True):
            self.assertAlmostEqual(value, right, delta=NEAR * max(1, abs(right)))

    def test_values_are_those_of_pytorch(self):
        """From the command to the lines. A centre is cut out of the picture, and channels are in reverse."""
        names = self.write("names.txt", "age\nbody mass\n")
        save(net(2, 40.0), "values.ts")
        words = ("--task", "regress", "--imgsz", 24, 32, "--names", names, "--colour", "bgr", "--shorter-side", 36, "--mean", *MEAN, "--std", *STD)
        done = millrace("model", shared / "values.ts", *words, env={"MILLRACE_PYTHON": sys.executable})
        self.assertEqual((done.code, done.err), (program.OK, ""), done)
        self.assertIn(f"configs/values.yaml --input PICTURES --set regress.model={shared}/values.pkg --output RESULTS", done.out)
        self.assertRegex(millrace("inspect", shared / "values.pkg").out, r"(?m)^values +age, body mass$")
        lines = self.values(shared / "values.pkg")
        self.assertEqual(len(lines), 5)
        for name, line in lines.items():
            image = prepared(shared / "in" / name, height=24, width=32, shorter=36, mean=MEAN[::-1], std=STD[::-1]).flip(1)
            with torch.inference_mode():
                self.check(line["regress"], ("age", "body mass"), net(2, 40.0)(image)[0])
        self.assertEqual(len({line["regress"]["age"] for line in lines.values()}), 5)

    def test_outputs_of_several_forms(self):
        for kind, count in ((Tuple, 3), (Logits, 3), (Single, 1)):
            file = save(kind(net(3)), f"{kind.__name__}.ts")
            said = exported(file, "--task", "regress", "--imgsz", 32, "--mean", *MEAN, "--std", *STD)
            self.assertIn(f"value 0 to value {count - 1}; for other names, add --names FILE", said)
            for name, line in self.values(file.with_suffix(".pkg")).items():
                self.check(line["regress"], [f"value {i}" for i in range(count)], numbers(net(3), name)[:count])

    def test_a_picture_without_finite_values_fails_alone(self):
        for name, colour in (("dark.png", 0), ("light.png", 200)):
            Image.new("RGB", (40, 40), (colour,) * 3).save(self.folder / name)
        exported(save(net(2), "dark.ts"), "--task", "regress", "--imgsz", 32, "--mean", 0.5, "--std", 0.5)
        lines = self.values(shared / "dark.pkg", source=self.folder / "*.png", code=program.SOME_FAILED)
        failed, good = (line for _, line in sorted(lines.items()))
        self.assertEqual((failed["state"], failed["reason"]), ("failed", "non_finite"))
        self.assertRegex(failed["detail"], "its value 'value 0' is -?inf, which is not finite")
        self.assertEqual((good["state"], list(good["regress"])), ("ok", ["value 0", "value 1"]))


class Refusals(program.Case):
    def check(self, says, file, *options):
        errors = io.StringIO()
        with self.subTest(says), contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as ended:
            exported(file, *options)
        self.assertEqual(ended.exception.code, program.ENVIRONMENT, errors.getvalue())
        self.assertIn(says, errors.getvalue())
        self.assertEqual(len(errors.getvalue().splitlines()), 1)
        self.assertFalse((shared / f"{file.stem}.pkg").exists())

    def test_exports(self):
        four, size = save(net(4), "four.ts"), ("--imgsz", 32)
        classify, regress = ("--task", "classify"), ("--task", "regress")
        names = self.write("names.txt", "a\nb\na\n")
        self.check("--task classify needs --imgsz, the side of the model's input", four, *classify)
        self.check("--imgsz 8 8 8: takes one or two whole numbers from 1 to 8192", four, *classify, "--imgsz", 8, 8, 8)
        self.check("--shorter-side 0: takes a whole number from 1 to 8192", four, *classify, *size, "--shorter-side", 0)
        self.check("--std 0: takes numbers above 0", four, *classify, *size, "--std", 0)
        self.check("--mean takes one number, or 3 for the channels, not 2", four, *classify, *size, "--mean", 1, 2)
        self.check("--roi has no meaning with --task classify; leave it out", four, *classify, *size, "--roi", 8)
        self.check("--activation has no meaning with --task regress; leave it out", four, *regress, *size, "--activation", "none")
        self.check("--imgsz has no meaning with --task semantic; leave it out", four, "--task", "semantic", *size)
        self.check("--task classify or regress, with --imgsz SIDE", four)
        self.check(f"has 3 names, and {four} has 4 classes; --names takes a file with one class name per line", four, *classify, *size, "--names", names)
        self.check("has 3 names, and", four, *regress, *size, "--names", names)
        self.check("has 'a' twice; the values become keys of the results", save(net(3), "three.ts"), *regress, *size, "--names", names)
        self.check("has one class, and softmax of one class is always 1", save(net(1), "one.ts"), *classify, *size, "--activation", "softmax")
        self.check("one.ts: cannot take pictures [3, 3, 4, 4]; are --imgsz and the three colours those of the training?", shared / "one.ts", *classify, "--imgsz", 4)
        self.check("into [3, 16, 10, 10]; expected [3, classes]", save(net(4).features, "pixels.ts"), *classify, *size)
        self.check("what it finds in a picture depends on the other pictures of a call", save(Mixed(net(4)), "mixed.ts"), *classify, *size)
        self.check("turns one picture into [4]; expected [1, 4]; does it remove dimensions of size 1?", save(Squeezed(net(4)), "squeezed.ts"), *classify, *size)
        torch.save(net(4).state_dict(), shared / "weights.pt")
        self.check("weights.pt: is no TorchScript", shared / "weights.pt", *classify, *size)
        done = millrace("model", four, shared / "one.ts", *classify, *size, env={"MILLRACE_PYTHON": sys.executable})
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("one.ts: --task classify takes one file; name it alone", done.err)

    def test_verify_has_no_measure_for_values(self):
        import package
        import verify

        with self.assertRaisesRegex(package.Refused, "its task is regress, and only detectors, segmenters, embedding models and classifiers can be compared"):
            verify.measures_of(program.PROGRAM, small_embedder.make_regressor(self.folder), [], [])

    def test_packages_of_other_tasks(self):
        package = classifier("softmax")
        for recipe, option, model, says in (
            (VALUES, "regress.model", package, "is named as the regressor (command line), but its model.yaml says task: classify; name a package of task regress"),
            (CATEGORIES, "categorize.model", program.package("yolox"), "says task: detect; name a package of task classify or embed"),
            (CATEGORIES, "categorize.top", 3, "no classifier is named: add --set categorize.model=PACKAGE"),
        ):
            done = millrace("run", recipe, "--input", shared / "in", "--output", self.folder / "out", "--set", f"{option}={model}")
            self.assertEqual(done.code, program.USAGE if option.endswith("top") else program.ENVIRONMENT, done)
            self.assertIn(says, done.err)


if __name__ == "__main__":
    program.main()
