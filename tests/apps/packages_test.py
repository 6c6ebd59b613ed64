"""Damaged, wrong and faulty models, through the real program. The labels M1 to M10 group the faults."""

import hashlib
import io
import pickle
import shutil
import zipfile

import numpy
import torch
from pycocotools import mask as coco_mask

import program
from program import ENVIRONMENT, MISMATCH, OK, SOME_FAILED


BOXES = "stages: [decode, preprocess, detect, encode]\n"

DETECTOR_YAML = """schema: 1
name: stub
task: detect
architecture: stub
input: {{width: 64, height: 64, colour: rgb, scale: 0.00392156862745098, mean: [0, 0, 0], std: [1, 1, 1], resize: letterbox,
  filter: cv2_linear, rounding: down, padding: top_left, pad: [0, 0, 0]}}
output: {{layout: v8, boxes: 84}}
classes: [thing, other]
max_batch: 4
licence: none
files: {{model.ts: {sha256}}}
"""

SEGMENTER_YAML = """schema: 1
name: stub
task: segment
architecture: stub
input: {{width: 64, height: 64, colour: rgb, scale: 0.00392156862745098, mean: [0, 0, 0], std: [1, 1, 1], resize: longest_side,
  filter: pil_bilinear_antialias, pad: [0, 0, 0]}}
output: {{embedding: [1, 4, 4], logits: [16, 16], resize: via_input}}
max_batch: 4
max_boxes: 16
licence: none
files: {{model.ts: {sha256}}}
"""


class Detector(torch.nn.Module):
    """Finds one object in the middle. On a white picture it has the fault `fault`."""

    def __init__(self, fault: str):
        super().__init__()
        self.fault = fault

    def forward(self, images):
        count = images.shape[0]
        out = torch.zeros([count, 6, 84])
        out[:, 0:2, 0] = 32.0
        out[:, 2:4, 0] = 20.0
        out[:, 4, 0] = 0.9
        white = images.mean(dim=[1, 2, 3]) > 0.9
        if self.fault == "always":
            raise RuntimeError("it never works")
        if self.fault == "shape":
            return out[:, :, :80]
        if self.fault == "classes":
            return torch.zeros([count, 9, 84])
        if self.fault == "type":
            return out.to(torch.float64).to(torch.int64)
        for i in range(count):
            if bool(white[i]):
                if self.fault == "poison":
                    raise RuntimeError("this picture is poison")
                if self.fault == "nan_score":
                    out[i, 4, 3] = float("nan")
                if self.fault == "nan_box":
                    out[i, 0, 0] = float("nan")
                if self.fault == "inf_box":
                    out[i, 2, 0] = float("inf")
                if self.fault == "nothing":
                    out[i] = 0.0
                if self.fault == "outside":
                    out[i, 0:2, 0] = -500.0
                    out[i, 0:2, 1] = 60.0
                    out[i, 2:4, 1] = 1000.0
                    out[i, 4, 1] = 0.8
                    out[i, 0:2, 2] = 30.0
                    out[i, 2:4, 2] = -10.0
                    out[i, 4, 2] = 0.7
                if self.fault == "everywhere":
                    out[i, 0] = torch.arange(84) % 9 * 7.0 + 3.0
                    out[i, 1] = torch.arange(84) // 9 * 6.0 + 3.0
                    out[i, 2:4] = 4.0
                    out[i, 4] = 0.5
        return out


class Pair(torch.nn.Module):
    """Returns two tensors instead of the declared one."""

    def forward(self, images):
        return images, images


class Segmenter(torch.nn.Module):
    def __init__(self, fault: str):
        super().__init__()
        self.fault = fault

    @torch.jit.export
    def encode(self, images):
        return images.mean(dim=[1, 2, 3]).reshape(-1, 1, 1, 1).expand(-1, 1, 4, 4).contiguous()

    @torch.jit.export
    def decode(self, embedding, boxes, image_index):
        brightness = embedding[image_index].mean(dim=[1, 2, 3])
        logits = torch.ones([boxes.shape[0], 16, 16])
        quality = torch.ones([boxes.shape[0]]) * 0.5
        for i in range(boxes.shape[0]):
            if bool(brightness[i] > 0.7):
                if self.fault == "nan_logits":
                    logits[i, 3, 3] = float("nan")
                if self.fault == "nan_quality":
                    quality[i] = float("nan")
                if self.fault == "empty":
                    logits[i] = -1.0
                if self.fault == "checkers":
                    logits[i, ::2, ::2] = -1.0
        return logits, quality


class ModelCase(program.Case):
    def setUp(self):
        super().setUp()
        self.recipe = self.write("boxes.yaml", BOXES)
        self.input = self.folder / "in"
        for i in range(7):
            program.write_picture(self.input / f"{i}.png", 64, 48, seed=i)
        white = numpy.full((64, 64, 3), 255, numpy.uint8)
        program.Image.fromarray(white).save(self.input / "4.png")
        self.output = self.folder / "out"

    def make_package(self, module, yaml, name):
        folder = self.folder / name
        folder.mkdir()
        torch.jit.script(module.eval()).save(str(folder / "model.ts"))
        digest = hashlib.sha256((folder / "model.ts").read_bytes()).hexdigest()
        (folder / "model.yaml").write_text(yaml.format(sha256=digest))
        return folder

    def detector(self, fault):
        return self.make_package(Pair() if fault == "two" else Detector(fault), DETECTOR_YAML, f"detector_{fault}")

    def run_detector(self, folder, *more, output=None):
        return program.millrace("run", self.recipe, "--input", self.input, "--detector", folder, "--output", output or self.output, "-q",
                                "--set", "batch.size=4", *more)

    def by_path(self, output):
        lines = program.lines(output)
        self.assertEqual([line["id"] for line in lines], list(range(7)))
        return {line["path"]: {k: v for k, v in line.items() if k != "exec"} for line in lines}

    def reference(self):
        """The lines of all pictures by path, of a detector without faults."""
        done = self.run_detector(self.detector(""), output=self.folder / "reference")
        self.assertEqual(done.code, OK, done)
        lines = self.by_path(self.folder / "reference")
        self.assertEqual({len(line["objects"]) for line in lines.values()}, {1})
        return lines


class Packages(ModelCase):
    """M1 to M3: faults found at the start, before any picture is read"""

    def check_refused(self, folder, *says, code=ENVIRONMENT):
        done = self.run_detector(folder)
        self.assertEqual(done.code, code, done)
        self.assertEqual(done.err.count("millrace: "), 1, done)
        for part in (str(folder), *says):
            self.assertIn(part, done.err)
        self.assertEqual(done.out, "")
        self.assertFalse(self.output.exists())

    def test_files_that_are_not_models(self):
        good = self.detector("")
        whole = (good / "model.ts").read_bytes()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("notes.txt", "x")
        checkpoint = io.BytesIO()
        torch.save({"weight": torch.zeros(3)}, checkpoint)
        engine = b"ftrt" + bytes(100)
        for name, data, says in (("zero", b"", "empty"), ("cut", whole[: len(whole) // 2], "cut off"), ("page", b"<!doctype html><html>login</html>", "web page"),
                                 ("pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n", "git lfs pull"),
                                 ("pickle", pickle.dumps({"a": 1}, protocol=2), "pickle"), ("archive", archive.getvalue(), "zip"),
                                 ("checkpoint", checkpoint.getvalue(), "model.ts"), ("engine", engine, "model.ts"),
                                 ("other", whole + b"x", "model.ts")):
            with self.subTest(name):
                folder = self.folder / name
                shutil.copytree(good, folder)
                (folder / "model.ts").write_bytes(data)
                self.check_refused(folder, says)

    def test_invalid_packages(self):
        good = self.detector("")
        self.check_refused(self.folder / "nowhere", "no such folder")
        empty = self.folder / "empty"
        empty.mkdir()
        self.check_refused(empty, "has no model.yaml")
        self.check_refused(good / "model.ts", "TorchScript")
        without = self.folder / "without"
        shutil.copytree(good, without)
        (without / "model.ts").unlink()
        self.check_refused(without, "model.ts")
        for name, text, says in (("typo", ("max_batch", "max_bach"), "misspelling"), ("tabs", ("task: detect", "\ttask: detect"), "YAML"),
                                 ("lfs", (None, "version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"), ("nothing", (None, ""), "mapping"),
                                 ("outside", ("model.ts:", "../model.ts:"), "model.ts")):
            with self.subTest(name):
                folder = self.folder / name
                shutil.copytree(good, folder)
                yaml = folder / "model.yaml"
                yaml.write_text(yaml.read_text().replace(*text) if text[0] else text[1])
                self.check_refused(folder, "model.yaml", says)

    def test_a_segmenter_as_detector(self):
        self.check_refused(self.make_package(Segmenter(""), SEGMENTER_YAML, "sam"), "detector", "task: segment")

    def test_another_model_on_the_same_output(self):  # M3
        folder = self.detector("")
        self.assertEqual(self.run_detector(folder).code, OK)
        other = self.detector("nothing")
        done = self.run_detector(other)
        self.assertEqual(done.code, MISMATCH, done)
        self.assertIn("detect.model", done.err)
        (folder / "model.ts").write_bytes((other / "model.ts").read_bytes())  # a change of the file alone is found by its hash
        done = self.run_detector(folder)
        self.assertEqual(done.code, ENVIRONMENT, done)


class Outputs(ModelCase):
    """M4 to M7, M10: wrong outputs of a model"""

    def test_outputs_that_differ_from_the_declared_ones(self):  # M4
        for fault, says in (("shape", ("[1, 6, 84]", "[1, 6, 80]")), ("classes", ("[1, 6, 84]", "[1, 9, 84]")), ("type", ("f32", "i64")), ("two", ("forward",)),
                            ("always", ("it never works",))):
            with self.subTest(fault):
                folder = self.detector(fault)
                output = self.folder / f"out_{fault}"
                done = program.millrace("run", self.recipe, "--input", self.input, "--detector", folder, "--output", output, "-q")
                self.assertEqual(done.code, ENVIRONMENT, done)
                for part in (str(folder), *says):
                    self.assertIn(part, done.err)
                self.assertNotIn("Traceback", done.err)
                self.assertEqual(program.report(output)["state"], "failed")

    def test_a_picture_that_makes_the_model_fail(self):  # M5, M10
        expected = self.reference()
        del expected["4.png"]
        for fault, reason in (("nan_score", "non_finite"), ("nan_box", "non_finite"), ("inf_box", "non_finite"), ("poison", "model_failed")):
            with self.subTest(fault):
                output = self.folder / f"out_{fault}"
                done = self.run_detector(self.detector(fault), output=output)
                self.assertEqual(done.code, SOME_FAILED, done)
                lines = self.by_path(output)
                failed = lines.pop("4.png")
                self.assertEqual((failed["state"], failed["reason"]), ("failed", reason))
                self.assertEqual(done.err, f"millrace: 4.png: {reason}: {failed['detail']}\n")
                self.assertEqual(lines, expected)
                self.assertLessEqual(program.report(output)["calls"]["bisect_calls"], 6)
                if fault == "poison":
                    self.assertIn("this picture is poison", failed["detail"])
                    self.assertNotIn("\n", failed["detail"])

    def test_odd_boxes(self):  # M6
        expected = self.reference()
        for fault, count in (("nothing", 0), ("outside", 1), ("everywhere", 10)):
            with self.subTest(fault):
                output = self.folder / f"out_{fault}"
                done = self.run_detector(self.detector(fault), "--set", "detect.max_detections=10", output=output)
                self.assertEqual((done.code, done.err), (OK, ""), done)
                lines = self.by_path(output)
                odd = lines.pop("4.png")
                self.assertEqual(lines, {path: line for path, line in expected.items() if path != "4.png"})
                self.assertEqual(len(odd["objects"]), count)
                for found in odd["objects"]:
                    x, y, w, h = found["box"]
                    self.assertTrue(x >= 0 and y >= 0 and w > 0 and h > 0 and x + w <= 64 and y + h <= 64, found)
                self.assertEqual(program.report(output)["calls"]["truncated_detections"], int(fault == "everywhere"))

    def test_odd_masks(self):  # M5, M7
        detector = self.detector("")
        for fault, reason in (("", None), ("empty", None), ("checkers", None), ("nan_logits", "non_finite"), ("nan_quality", "non_finite")):
            with self.subTest(fault):
                output = self.folder / f"out_{fault}"
                segmenter = self.make_package(Segmenter(fault), SEGMENTER_YAML, f"segmenter_{fault}")
                done = program.millrace("run", "--input", self.input, "--detector", detector, "--segmenter", segmenter, "--output", output, "-q", "--set",
                                        "batch.size=4", "--set", "segment.box_batch=16")
                self.assertEqual(done.code, SOME_FAILED if reason else OK, done)
                lines = self.by_path(output)
                self.assertEqual({path: line.get("reason") for path, line in lines.items()}, {f"{i}.png": reason if i == 4 else None for i in range(7)})
                for path, line in lines.items():
                    for found in line.get("objects", []):
                        height, width = found["rle"]["size"]
                        self.assertEqual((width, height), (line["width"], line["height"]))
                        decoded = coco_mask.decode({**found["rle"], "counts": found["rle"]["counts"].encode()})
                        self.assertEqual(int(decoded.sum()), found["area"])
                        if path != "4.png" or fault == "":
                            self.assertEqual(found["area"], width * height)
                        elif fault == "empty":
                            self.assertEqual(found["area"], 0)


if __name__ == "__main__":
    program.main()
