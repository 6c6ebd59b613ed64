"""The built-in packages: their size and cost, when the program uses them, that a mask follows its box, and compiled code."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import cv2
import numpy as np
import torch
import yaml
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).resolve().parents[2]
BUILTIN = ROOT / "models/builtin"
PROGRAM = os.environ.get("MILLRACE_PROGRAM", "build/release/apps/millrace")
sys.path.insert(0, str(ROOT / "models/demo"))
import dataset  # noqa: E402
import scenes  # noqa: E402

DETECTORS = list(scenes.VIEWS)
SEED = 3001  # of scenes that no training and no other test uses


def description(name):
    return yaml.safe_load((BUILTIN / f"{name}.pkg/model.yaml").read_text())


def load(name):
    return torch.jit.load(str(BUILTIN / f"{name}.pkg/model.ts"))


def gflop(function, *inputs):
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        function(*inputs)
    return counter.get_total_flops() / 1e9


class Packages(unittest.TestCase):
    def test_they_are_small_and_hold_16_bits(self):
        files = [file for file in BUILTIN.rglob("*") if file.is_file()]
        self.assertEqual(len(files), 8, files)
        self.assertLessEqual(sum(file.stat().st_size for file in files), 8_000_000)
        for name in [*DETECTORS, "segmenter"]:
            types = {value.dtype for value in load(name).state_dict().values() if value.is_floating_point()}
            self.assertEqual(types, {torch.float16}, name)

    def test_their_quality_was_measured_and_is_above_the_bars(self):
        for name in DETECTORS:
            quality = description(name)["quality"]
            self.assertGreaterEqual(quality["box AP50"], 0.90, name)
            self.assertGreaterEqual(quality["held-out scenes"], 100, name)
        quality = description("segmenter")["quality"]
        self.assertGreaterEqual(quality["mean mask IoU"], 0.85)
        self.assertGreaterEqual(quality["held-out scenes"], 300)

    def test_classes_are_those_of_the_scenes(self):
        for name in DETECTORS:
            self.assertEqual(tuple(description(name)["classes"]), scenes.VIEWS[name].classes)

    def test_their_cost_is_within_the_limits(self):
        for name in DETECTORS:
            self.assertLessEqual(gflop(load(name).float(), torch.rand(1, 3, 416, 416)), 1.2, name)
        segmenter = load("segmenter").float()
        picture, box = torch.rand(1, 3, 512, 512), torch.tensor([[100.0, 100.0, 200.0, 220.0]])
        with torch.inference_mode():
            embedding = segmenter.encode(picture)
        self.assertEqual(list(embedding.shape[2:]), [32, 32])
        self.assertGreaterEqual(embedding.shape[1], 64)
        decode = gflop(segmenter.decode, embedding, box, torch.zeros(1, dtype=torch.int64))
        self.assertLessEqual(gflop(segmenter.encode, picture) + decode, 6.0)


class Program(unittest.TestCase):
    """When the built-in models run, and the messages about it."""

    NOTE = "no model is named, so the built-in ones run"

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="millrace-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.pictures = self.folder / "pictures"
        (self.pictures / "left").mkdir(parents=True)
        cv2.imwrite(str(self.pictures / "left/0.jpg"), np.full((40, 60, 3), 90, np.uint8))

    def run_program(self, *options, program=PROGRAM):
        command = [program, "run", "--input", self.pictures, *options]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)

    def dry_run(self, *options, program=PROGRAM):
        done = self.run_program("--output", self.folder / "out", "--dry-run", *options, program=program)
        self.assertEqual(done.returncode, 0, done)
        return done

    def test_one_note_for_pictures_that_are_not_drawn_scenes(self):
        done = self.dry_run()
        self.assertEqual(len(done.stderr.splitlines()), 1, done)
        for part in (self.NOTE, "drawn scenes", "millrace model yolov8n.pt", "--detector", "--segmenter"):
            self.assertIn(part, done.stderr)
        for package in DETECTORS:
            self.assertIn(f"{package}.pkg", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^  view left: 1, detector builtin-left-\d$")

    def test_a_run_prints_the_note_before_and_under_the_table(self):
        done = self.run_program("--output", self.folder / "out")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(self.NOTE, done.stderr)
        table, _, below = done.stdout.partition("note: ")
        self.assertIn("pictures/s", table)
        self.assertIn(self.NOTE, " ".join(below.split()))
        (report,) = (self.folder / "out/runs").glob("*/report.json")
        self.assertIn(self.NOTE, report.read_text())

    def test_without_the_input_there_is_no_note(self):
        self.pictures = self.folder / "pictres"
        done = self.run_program("--output", self.folder / "out")
        self.assertEqual(done.returncode, 2, done)
        self.assertNotIn(self.NOTE, done.stderr)
        self.assertFalse((self.folder / "out").exists())

    def test_no_note_for_drawn_scenes(self):
        (self.pictures / scenes.TRUTH).write_text("{}")
        self.assertEqual(self.dry_run().stderr, "")

    def test_a_quiet_run_prints_the_note_too(self):
        done = self.run_program("--output", self.folder / "out", "--quiet")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done)
        self.assertEqual(len(done.stderr.splitlines()), 1, done)
        self.assertIn(self.NOTE, done.stderr)

    def test_a_note_names_the_built_in_models_that_the_user_names(self):
        named = ("--detector", BUILTIN / "front.pkg", "--segmenter", BUILTIN / "segmenter.pkg")
        done = self.dry_run(*named)
        self.assertNotIn("left.pkg", done.stdout)
        self.assertEqual(len(done.stderr.splitlines()), 1, done)
        self.assertNotIn(self.NOTE, done.stderr)
        for part in ("built-in models run", "builtin-front-", "builtin-segmenter-", "drawn scenes"):
            self.assertIn(part, done.stderr)
        (self.pictures / scenes.TRUTH).write_text("{}")
        self.assertEqual(self.dry_run(*named).stderr, "")

    def test_label_maps_without_masks_get_a_note(self):
        (self.pictures / scenes.TRUTH).write_text("{}")
        recipe = self.folder / "detect.yaml"
        recipe.write_text("stages: [decode, preprocess, detect, encode]\n")
        self.assertIn("makes empty label maps", self.dry_run(recipe, "--format", "png").stderr)
        self.assertEqual(self.dry_run(recipe, "--format", "overlay").stderr, "")
        self.assertEqual(self.dry_run("--format", "png").stderr, "")

    def test_an_installed_program_uses_its_own_models(self):
        shutil.copytree(BUILTIN, self.folder / "share/millrace/models")
        (self.folder / "bin").mkdir()
        shutil.copy2(PROGRAM, self.folder / "bin")
        done = self.dry_run(program=self.folder / "bin" / Path(PROGRAM).name)
        self.assertIn(f"({self.folder}/share/millrace/models/left.pkg)", done.stdout)


def paste(found):
    whole = np.zeros((scenes.HEIGHT, scenes.WIDTH), bool)
    x, y, width, height = found.box
    whole[y : y + height, x : x + width] = found.mask
    return whole


def iou(a, b):
    union = np.count_nonzero(a | b)
    return np.count_nonzero(a & b) / union if union else 0.0


def load_segmenter(dtype):
    return load("segmenter").to(dtype).eval()


def embedding(segmenter, dtype, picture):
    """The picture is at the top left of the input, and grey fills the rest."""
    side = dataset.SEGMENTER_SIDE
    pixels = torch.from_numpy(dataset.resized(picture, side).copy()).permute(2, 0, 1).float() / 255
    image = torch.full((1, 3, side, side), 114 / 255)
    image[0, :, : pixels.shape[1], : pixels.shape[2]] = pixels
    return segmenter.encode(image.to(dtype))


def masks(segmenter, embedded, boxes):
    """Full-size masks of boxes x1, y1, x2, y2 in pixels of the scene: bool [N, HEIGHT, WIDTH]."""
    side = dataset.SEGMENTER_SIDE
    rows = side * scenes.HEIGHT // scenes.WIDTH
    logits, _ = segmenter.decode(embedded, boxes * (side / scenes.WIDTH), torch.zeros(len(boxes), dtype=torch.int64))
    large = F.interpolate(logits.float()[:, None], size=(side, side), mode="bilinear")
    return (F.interpolate(large[:, :, :rows], size=(scenes.HEIGHT, scenes.WIDTH), mode="bilinear")[:, 0] > 0).numpy()


class MaskFollowsBox(unittest.TestCase):
    """Masks of 100 objects of at least 40 pixels in drawn scenes.

    The boxes are their own, shifted ones, and those of their neighbours.
    """

    @classmethod
    @torch.inference_mode()
    def setUpClass(cls):
        torch.set_num_threads(2)
        cls.segmenter = load_segmenter(torch.float32)
        cls.scenes, count, seed = [], 0, SEED
        while count < 100:
            scene, _ = scenes.draw(DETECTORS[seed % 3], seed, "held_out")
            objects = [found for found in scene.objects if max(found.box[2:]) >= 40]
            cls.scenes.append((embedding(cls.segmenter, torch.float32, scene.picture), objects))
            count += len(objects)
            seed += 1

    @torch.inference_mode()
    def masks(self, embedding, boxes):
        """Masks at full size for boxes x, y, w, h in pixels of the scene."""
        boxes = torch.tensor(np.array(boxes, np.float32))
        return masks(self.segmenter, embedding, torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1))

    def test_a_box_that_is_off_by_a_tenth_still_gives_its_object(self):
        random = np.random.default_rng(5)
        straight, shifted = [], []
        for embedding, objects in self.scenes:
            boxes = np.array([found.box for found in objects], float)
            moved = boxes.copy()
            moved[:, :2] += random.choice([-0.1, 0.1], (len(boxes), 2)) * boxes[:, 2:]
            for found, own, other in zip(objects, self.masks(embedding, boxes), self.masks(embedding, moved)):
                truth = paste(found)
                straight.append(iou(own, truth))
                shifted.append(iou(other, truth))
        print(f"{len(straight)} objects: mean IoU {np.mean(straight):.3f}, with boxes shifted by a tenth {np.mean(shifted):.3f}")
        self.assertGreaterEqual(len(straight), 100)
        self.assertGreaterEqual(np.mean(straight), 0.85)
        self.assertGreaterEqual(np.mean(shifted), 0.70)

    @torch.inference_mode()
    def test_bfloat16_gives_nearly_the_masks_of_float32(self):
        narrow = load_segmenter(torch.bfloat16)
        overlaps = []
        for seed in (SEED, SEED + 1):
            scene, _ = scenes.draw(DETECTORS[seed % 3], seed, "held_out")
            x, y, width, height = torch.tensor([found.box for found in scene.objects if max(found.box[2:]) >= 40]).float().T
            boxes = torch.stack([x, y, x + width, y + height], 1)
            wide, short = (
                masks(model, embedding(model, dtype, scene.picture), boxes)
                for model, dtype in ((self.segmenter, torch.float32), (narrow, torch.bfloat16))
            )
            overlaps += [iou(a, b) for a, b in zip(wide, short)]
        print(f"{len(overlaps)} masks: mean IoU of bfloat16 with float32 {np.mean(overlaps):.4f}")
        self.assertGreaterEqual(np.mean(overlaps), 0.97)

    def test_the_box_of_another_object_gives_the_other_object(self):
        own, foreign = [], []
        for embedding, objects in self.scenes:
            truths = [paste(found) for found in objects]
            masks = self.masks(embedding, [found.box for found in objects])
            for i, mask in enumerate(masks):
                own.append(iou(mask, truths[i]))
                foreign.append(max((iou(mask, truth) for j, truth in enumerate(truths) if j != i), default=0.0))
        print(f"{len(own)} objects: IoU with the object of the box {np.mean(own):.3f}, with any other {np.mean(foreign):.3f}")
        right = np.mean(np.array(own) > np.array(foreign))
        self.assertLessEqual(np.mean(foreign), 0.10)
        self.assertGreaterEqual(right, 0.97)

    def test_a_box_on_bare_ground_takes_nothing_of_the_object(self):
        taken = []
        for embedding, objects in self.scenes:
            for found in objects:
                x, y, width, height = found.box
                away = (x + 1.5 * width if x + 2.5 * width < scenes.WIDTH else x - 1.5 * width, y, width, height)
                if away[0] < 0:
                    continue
                mask = self.masks(embedding, [away])[0]
                truth = paste(found)
                taken.append(np.count_nonzero(mask & truth) / np.count_nonzero(truth))
        print(f"{len(taken)} boxes moved off their object: {np.mean(taken):.4f} of it is still taken")
        self.assertGreaterEqual(len(taken), 80)
        self.assertLessEqual(np.mean(taken), 0.02)


class Compiled(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="millrace-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def run_ok(self, *command):
        environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
        done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, check=False)
        if "compiled models need a CPU with AVX2" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def test_a_copy_of_a_detector_can_be_compiled_and_finds_the_same(self):
        package, pictures = self.folder / "front.pkg", self.folder / "pictures"
        self.run_ok(sys.executable, "-B", ROOT / "models/demo/packages.py", BUILTIN / "front.pkg", package)
        self.assertEqual((package / "model.ts").read_bytes(), (BUILTIN / "front.pkg/model.ts").read_bytes())
        copied = yaml.safe_load((package / "model.yaml").read_text())
        own = description("front")
        self.assertEqual(copied["files"].pop("model.ts"), own["files"].pop("model.ts"))
        self.assertEqual(list(copied.pop("files")), ["model.ep.pt2"])
        self.assertEqual(list(copied.pop("methods")), ["forward"])
        self.assertEqual(copied, {key: own[key] for key in own if key != "files"})
        pictures.mkdir()
        for seed in (SEED, SEED + 1):
            _, jpeg = scenes.draw("front", seed, "held_out")
            (pictures / f"{seed}.jpg").write_bytes(jpeg)
        out = self.run_ok(PROGRAM, "compile", package, "--images", pictures)
        self.assertRegex(out, r"2 pictures: (\d+) boxes, reference \1, \1 of them in both; largest shift 0\.0")
        recipe = self.folder / "detect.yaml"
        recipe.write_text("stages: [decode, preprocess, detect, encode]\n")
        found = []
        for detector in (BUILTIN / "front.pkg", package):
            output = self.folder / f"out{len(found)}"
            out = self.run_ok(PROGRAM, "run", recipe, "--input", pictures, "--detector", detector, "--output", output)
            self.assertEqual("compiled builtin-front-" in out, detector == package, out)
            lines = map(json.loads, (output / "segments/000000.jsonl").read_text().splitlines())
            found.append([sorted(entry["class"] for entry in line["objects"]) for line in lines])
        self.assertEqual(found[0], found[1])
        self.assertGreater(sum(map(len, found[0])), 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
