"""Vectors and classes of pictures and objects are those of PyTorch.

They have the same bytes for any number of threads and after kills.
"""

import hashlib
import json
import math

import numpy
import resume_test
import small_embedder
import torch
from PIL import Image, ImageOps

import program
from program import millrace

PHOTOGRAPHS = ("picture1.jpg", "picture2.jpg", "picture3.jpg", "room.jpg", "street.jpg")
SAME_VECTOR = 0.99999  # minimum cosine

def side_rows(output, column):
    """The rows of a side column of all segments as one array in float32."""
    parts = []
    for manifest in sorted((output / "segments").glob("[0-9]*.manifest.json")):
        for described in json.loads(manifest.read_text())["columns"]:
            if described["name"] == column:
                rows = numpy.fromfile(manifest.with_name(manifest.name.replace("manifest.json", f"{column}.f16")), "<f2")
                parts.append(rows.reshape(described["rows"], described["width"]))
    return numpy.concatenate(parts).astype(numpy.float32)


def cosine(a, b):
    a, b = a.astype(numpy.float64), b.astype(numpy.float64)
    return a @ b / math.sqrt((a @ a) * (b @ b))


class Base(program.Case):
    def input_with_boxes(self, count, every=1):
        """Makes pictures of many sizes, one of them broken; each `every`-th has 0 to 4 boxes in the manifest."""
        rows = []
        for i in range(count):
            program.write_picture(self.folder / "in" / f"{i:03}.jpg", 60 + 17 * (i % 5), 50 + 23 * (i % 4), seed=i)
            rows.append({"path": f"{i:03}.jpg"})
            if i % every == 0:
                rows[-1]["boxes"] = [[1 + 3 * j, 2, 20 + j, 15 + i % 7, j] for j in range(i % 5)]
        broken = self.folder / "in/003.jpg"
        broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
        return self.write("in/list.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


class Trained(Base):
    """MobileNetV2 with its trained weights, in torchvision and in Millrace."""

    def setUp(self):
        super().setUp()
        from torchvision import models

        self.package = program.package("mobilenet_v2")
        self.model = models.mobilenet_v2()
        self.model.load_state_dict(torch.load(program.weights("mobilenet_v2-b0353104.pth"), weights_only=True))
        self.model.eval()
        self.transforms = models.MobileNet_V2_Weights.IMAGENET1K_V1.transforms()
        for name in PHOTOGRAPHS:
            (self.folder / "in").mkdir(exist_ok=True)
            (self.folder / "in" / name).symlink_to(program.picture(name))

    def vector(self, image):
        with torch.inference_mode():
            return self.model.features(self.transforms(image)[None]).mean([2, 3])[0]

    @staticmethod
    def rgb(name):
        with Image.open(program.picture(name)) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")

    def test_the_top_5_are_torchvisions(self):
        out = self.folder / "out"
        done = self.run_ok(program.ROOT / "configs/categories.yaml", "--input", self.folder / "in", "--output", out, "--set", f"categorize.model={self.package}")
        self.assertIn("categories: categorize, view default:", done.err + done.out)
        for line in program.lines(out):
            with self.subTest(line["path"]), torch.inference_mode():
                expected = self.model.classifier(self.vector(self.rgb(line["path"]))).softmax(0)
                best = expected.topk(5)
                top = line["categorize"]["top"]
                self.assertEqual([index for index, _, _ in top], best.indices.tolist())
                for (_, _, probability), value in zip(top, best.values.tolist(), strict=True):
                    self.assertAlmostEqual(probability, value, delta=1e-4)
        counts = json.loads((out / "reduced/categories.json").read_text())
        self.assertEqual(counts["categories"]["categorize"]["default"]["minibus"], 1)
        self.assertEqual(sum(counts["categories"]["categorize"]["default"].values()), 5)

    def test_vectors_of_pictures_are_torchvisions(self):
        out = self.folder / "out"
        self.run_ok(program.ROOT / "configs/objects.yaml", "--input", self.folder / "in", "--output", out, "--detector", program.package("yolox"), "--set",
                    f"embed.model={self.package}", "--set", "embed.of=picture")
        rows = side_rows(out, "embed")
        self.assertEqual(rows.shape, (5, 1280))
        for line in program.lines(out):
            self.assertGreaterEqual(cosine(rows[line["embed"]], self.vector(self.rgb(line["path"])).numpy()), SAME_VECTOR, line["path"])

    def test_vectors_of_objects_are_those_of_their_crops(self):
        out = self.folder / "out"
        self.run_ok(program.ROOT / "configs/objects.yaml", "--input", self.folder / "in", "--output", out, "--detector", program.package("yolox"), "--set",
                    f"embed.model={self.package}")
        rows = side_rows(out, "embed")
        compared = 0
        for line in program.lines(out):
            image = self.rgb(line["path"])
            for found in line["objects"]:
                x, y, width, height = found["box"]  # rounded to 0.01: a box that ends near a whole pixel may have one more row
                if any(abs(edge - round(edge)) < 0.011 for edge in (x, y, x + width, y + height)):
                    continue
                corners = (max(0, math.floor(x)), max(0, math.floor(y)), min(image.width, math.ceil(x + width)), min(image.height, math.ceil(y + height)))
                self.assertGreaterEqual(cosine(rows[found["embed"]], self.vector(image.crop(corners)).numpy()), SAME_VECTOR, (line["path"], found))
                compared += 1
        self.assertGreater(compared, 10)


class SameBytes(Base):
    def arguments(self):
        self.input_with_boxes(40)
        recipe = self.write("recipe.yaml", "stages: [decode, preprocess, detect, embed, encode]\nembed: {of: objects}\n")
        return [recipe, "--input", self.folder / "in/list.jsonl", "--set", f"embed.model={small_embedder.make(self.folder)}", "--set", "batch.size=3", "--set",
                "threads.team=1"]

    def test_for_1_2_and_8_threads_and_on_devices(self):
        arguments = self.arguments()
        first = None
        for i, change in enumerate((["--set", "threads.workers=1"], ["--set", "threads.workers=2", "--set", "threads.lanes=2"],
                                    ["--set", "threads.workers=8", "--set", "threads.lanes=3", "--set", "gate.frames=7"])):
            out = self.folder / f"out{i}"
            self.run_ok(*arguments, *change, "--output", out, code=program.SOME_FAILED)
            found = program.segments(out)
            first = first or found
            self.assertEqual(found, first, change)
        self.assertEqual(side_rows(out, "embed").shape, (sum(i % 5 for i in range(40) if i != 3), 24))
        on_devices = self.folder / "devices"
        self.run_ok(*arguments, "--device", "fake:2", "--output", on_devices, code=program.SOME_FAILED)
        for name in ("000000.jsonl", "000000.embed.f16"):
            self.assertEqual((on_devices / "segments" / name).read_bytes(), (out / "segments" / name).read_bytes(), name)
        done = millrace("status", out, "--verify")
        self.assertEqual(done.code, program.OK, done)
        column = out / "segments/000000.embed.f16"
        column.write_bytes(column.read_bytes()[:-2] + b"xx")
        done = millrace("status", out, "--verify")
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertIn("000000.embed.f16", done.out + done.err)


class Killed(resume_test.Kills):
    """A side column has the same bytes after 20 kills."""

    test_with_a_model = test_three_segments = None  # resume_test runs these tests of the base class

    def test_a_side_column(self):
        package = small_embedder.make(self.folder)
        rows = []
        for i in range(60):
            program.write_picture(self.folder / "in" / f"{i:03}.png", 60, 50, seed=i)
            rows.append(json.dumps({"path": f"{i:03}.png", "boxes": [[1 + 3 * j, 2, 20, 15] for j in range(1 + i % 3)]}))
        manifest = self.write("in/list.jsonl", "\n".join(rows))
        recipe = self.write("recipe.yaml", "stages: [decode, preprocess, detect, embed, encode]\nembed: {of: objects}\n")
        self.check([recipe, "--input", manifest, "--set", f"embed.model={package}", "--set", "batch.size=2", "--set", "threads.team=1"], kills=20, step=12)
        self.assertEqual(side_rows(self.folder / "whole", "embed").shape, (120, 24))


class OneUpload(Base):
    def test_five_stages_with_models_share_one_decode_and_one_upload(self):
        self.input_with_boxes(12, every=2)
        recipe = self.write("recipe.yaml", f"""
stages:
  - decode
  - preprocess
  - detect
  - segment
  - {{name: scenes, stage: categorize, model: {small_embedder.make(self.folder, "scenes", 1)}}}
  - {{name: styles, stage: categorize, model: {small_embedder.make(self.folder, "styles", 2)}, top: 2}}
  - {{name: looks, stage: embed, model: {small_embedder.make(self.folder, "looks", 3)}, of: objects}}
  - postprocess
  - encode
""")
        lines = {}
        for device in ("cpu", "fake:2"):
            out = self.folder / f"out-{device[:4]}"
            self.run_ok(recipe, "--input", self.folder / "in/list.jsonl", "--output", out, "--device", device, "--detector", program.package("yolov8n"),
                        "--segmenter", program.package("sam_small"), "--set", "detect.conf=0.001", "--set", "detect.max_detections=3",
                        "--set", "threads.team=1", "--set", "batch.size=4", code=program.SOME_FAILED)
            report = program.report(out)
            (decode,) = [part for resource in report["run_window"]["resources"] for part in resource.get("parts", ()) if part["name"] == "decode"]
            self.assertEqual(decode["items"], 12)
            self.assertGreater(report["calls"]["detector_calls"], 0)
            if device != "cpu":
                self.assertEqual(report["calls"]["uploads"], 11)  # one is broken
            lines[device] = (out / "segments/000000.jsonl").read_bytes(), (out / "segments/000000.looks.f16").read_bytes()
        self.assertEqual(lines["cpu"], lines["fake:2"])
        good = [line for line in program.lines(out) if line["state"] == "ok"]
        self.assertEqual({len(line["scenes"]["top"]) for line in good}, {4})
        self.assertEqual({len(line["styles"]["top"]) for line in good}, {2})
        self.assertTrue(any(line["scenes"]["top"][0] != line["styles"]["top"][0] for line in good))
        self.assertEqual(side_rows(out, "looks").shape, (sum(len(line["objects"]) for line in good), 24))
        self.assertTrue(all({"rle", "looks"} <= set(found) for line in good for found in line["objects"]))


class Simulated(Base):
    def test_vectors_of_a_simulated_model_are_zeros(self):
        """The host does the work of a real run: every picture is processed, and each object has its row."""
        table = program.ROOT / "bench/host/h200.yaml"
        model = small_embedder.make(self.folder)
        out = self.folder / "out"
        recipe = self.write("recipe.yaml", f"""
stages: [decode, preprocess, detect, {{name: scenes, stage: categorize, model: {model}}}, {{name: looks, stage: embed, model: {model}, of: objects}}, encode]
""")
        self.run_ok(recipe, "--input", self.input_with_boxes(12), "--output", out, "--engine", f"simulated:{table}", code=program.SOME_FAILED)
        good = [line for line in program.lines(out) if line["state"] == "ok"]
        self.assertEqual(len(good), 11)
        rows = side_rows(out, "looks")
        self.assertEqual(rows.shape, (sum(len(line["objects"]) for line in good), 24))
        self.assertFalse(rows.any())
        self.assertEqual({round(line["scenes"]["top"][0][2], 6) for line in good}, {0.25})


class Views(Base):
    def test_a_view_overrides_any_option_of_any_stage(self):
        for name in ("day/1.jpg", "night/1.jpg"):
            program.write_picture(self.folder / "in" / name, 60, 50, seed=7)
        first, second = (small_embedder.make(self.folder, name, seed) for name, seed in (("first", 1), ("second", 2)))
        recipe = self.write("recipe.yaml", f"""
stages:
  - decode
  - preprocess
  - {{name: scenes, stage: categorize, model: {first}}}
  - {{name: looks, stage: embed, model: {first}}}
  - encode
views:
  - {{name: day, match: day/*, scenes: {{top: 2, temperature: 5}}}}
  - {{name: night, match: night/*, scenes: {{model: {second}}}, looks: {{model: {second}}}, encode: {{format: overlay}}}}
""")
        out = self.folder / "out"
        self.run_ok(recipe, "--input", self.folder / "in", "--output", out)
        alone = {}
        for name, model, options in (("day", first, ("--set", "categorize.top=2", "--set", "categorize.temperature=5")), ("night", second, ())):
            alone_out = self.folder / f"alone-{name}"
            plain = self.write("plain.yaml", "stages: [decode, preprocess, categorize, embed, encode]\n")
            self.run_ok(plain, "--input", self.folder / "in" / name, "--output", alone_out, "--set", f"categorize.model={model}", "--set", f"embed.model={model}",
                        *options)
            (line,) = program.lines(alone_out)
            alone[name] = line["categorize"]["top"], side_rows(alone_out, "embed")[0].tolist()
        rows = side_rows(out, "looks")
        found = {line["view"]: (line["scenes"]["top"], rows[line["looks"]].tolist()) for line in program.lines(out)}
        self.assertEqual(found, alone)
        self.assertEqual([len(found[view][0]) for view in ("day", "night")], [2, 4])
        self.assertEqual([path.stem for path in (out / "overlay").rglob("*.*")], ["1.jpg"])  # only one view has this format


class Refused(Base):
    def test_recipes_and_options_that_cannot_work_are_refused(self):
        small = small_embedder.make(self.folder)
        program.write_pictures(self.folder / "in", 1, 90, 70)
        bare = program.copy_package(small, self.folder / "bare.pkg", lambda text: text.replace("classes: [anvil, bell, clock, door]\n", "")
                                    .replace("matrix: {file: classes.f32, bias: no}\n", ""))
        wide = program.copy_package(small, self.folder / "wide.pkg", lambda text: text.replace("dimensions: 24", "dimensions: 25"))
        wide_matrix = numpy.zeros(4 * 25, "<f4").tobytes()
        (self.folder / "wide.pkg/classes.f32").write_bytes(wide_matrix)
        yaml = self.folder / "wide.pkg/model.yaml"
        yaml.write_text(yaml.read_text().replace(hashlib.sha256((small / "classes.f32").read_bytes()).hexdigest(), hashlib.sha256(wide_matrix).hexdigest()))
        cases = (
            (("stages: [decode, preprocess, embed, encode]\n", "--set", f"embed.model={small}", "--set", "embed.of=faces"), program.USAGE, "picture or objects"),
            (("stages: [decode, preprocess, embed, encode]\n",), program.USAGE, "embed.model=PACKAGE"),
            (("stages: [decode, preprocess, embed, encode]\n", "--set", f"embed.model={small}", "--set", "embed.of=objects"), program.USAGE, "put 'detect' before it"),
            (("stages: [decode, preprocess, categorize, encode]\n", "--set", f"categorize.model={bare}"), program.USAGE, "no matrix of classes"),
            (("stages: [decode, preprocess, detect, encode]\n", "--detector", program.package("yolox"), "--set", "detect.classes=unicorn"), program.USAGE,
              "has no class 'unicorn'"),
            (("stages: [decode, preprocess, {name: cars, stage: detect}, encode]\n",), program.USAGE, "can be in a recipe only once"),
            (("stages: [decode, preprocess, {name: a.b, stage: embed}, encode]\n",), program.USAGE, "leave the dot out"),
            ((f"stages: [decode, preprocess, {{name: objects, stage: categorize, model: {small}}}, encode]\n",), program.USAGE, "choose another name"),
            ((f"stages: [decode, preprocess, {{name: Looks, stage: embed, model: {small}}}, encode]\n",), program.USAGE, "choose another name"),
            ((f"stages: [decode, preprocess, detect, {{name: score, stage: embed, of: objects, model: {small}}}, encode]\n",), program.USAGE,
             "choose another name"),
            ((f"stages: [decode, preprocess, embed, encode]\nviews:\n  - {{name: a, match: a*, embed: {{model: {small}}}}}\n"
              f"  - {{name: b, match: b*, embed: {{model: {wide}}}}}\n",), program.USAGE, "rows of different widths"),
            (("stages: [decode, preprocess, detect, encode]\n", "--detector", small), program.ENVIRONMENT, "says task: embed"),
        )
        for (recipe, *options), code, says in cases:
            with self.subTest(says):
                done = millrace("run", self.write("recipe.yaml", recipe), "--input", self.folder / "in", "--output", self.folder / "out", *options)
                self.assertEqual(done.code, code, done)
                self.assertIn(says, done.err)
                dry = millrace("run", self.folder / "recipe.yaml", "--input", self.folder / "in", "--output", self.folder / "out", *options, "--dry-run")
                self.assertEqual((dry.code, dry.err), (done.code, done.err))


if __name__ == "__main__":
    program.main()
