#!/usr/bin/env python3
"""Follows the pages docs/adding_a_*.md in one copy of the sources.

    adding_test.py SOURCE FOLDER [CMAKE_OPTION ...]

Copies SOURCE to FOLDER/source, makes the changes of the pages, and counts the files and lines of each page.
Builds the program and the tests of the pages without LibTorch, and runs them.
The build folder of the copy is as deep as those of SOURCE, so that the compiler cache has nearly all objects.
Both folders remain for the next call.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from follow_page import Page, make_copy, run

try:
    import cv2
    import numpy
    from PIL import Image
except ImportError:
    print("skipped: OpenCV, Pillow or numpy is missing; tools/setup.sh python installs them")
    sys.exit(77)

SOURCE, FOLDER, OPTIONS = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
COPY = FOLDER / "source"
BUILD = COPY / "build" / "adding"
MILLRACE = BUILD / "apps" / "millrace"
PAGES = ("stage", "stage_with_opencv", "model_task", "device_operation", "sink", "reducer", "counter")
STAGE, OPENCV, TASK, OPERATION, SINK, REDUCER, COUNTER = (Page(SOURCE, f"adding_a_{what}.md") for what in PAGES)


def weights():
    """The bytes of an archive that looks like a TorchScript file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("model/data.pkl", "model/code/__torch__.py", "model/version"):
            archive.writestr(name, "")
    return file.getvalue()


WEIGHTS = weights()


def setUpModule():
    make_copy(SOURCE, COPY, [STAGE, OPENCV, TASK, OPERATION, SINK, REDUCER, COUNTER])
    run("cmake", "-S", COPY, "-B", BUILD, "-G", "Ninja", "-DMILLRACE_TORCH=OFF", "-DMILLRACE_CUDA=OFF", *OPTIONS)
    run("cmake", "--build", BUILD, "--parallel", os.environ.get("JOBS", "2"), "--target", "millrace", "stages_test", "io_test", "gpu_test")


class Case(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="millrace-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def costs(self, page, files, lines, changed):
        """Checks that the page adds `files` new files, and `lines` lines to exactly the files `changed`."""
        self.assertEqual(len(page.files), files, sorted(page.files))
        self.assertEqual(sorted(map(str, page.changed_files())), changed)
        self.assertEqual(page.added_lines(), lines, page.changes)
        for _, before, after in page.changes:
            self.assertEqual([line for line in after if line in before], before, "the page changes or removes a line; it may only add lines")

    def write_picture(self, name, width=64, height=48):
        (self.folder / "in").mkdir(exist_ok=True)
        random = numpy.random.default_rng(7)
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=numpy.uint8)).save(self.folder / "in" / name)

    def run_recipe(self, *options, code=0, stages="decode, encode"):
        recipe = self.folder / "recipe.yaml"
        recipe.write_text(f"stages: [{stages}]\n")
        done = subprocess.run([MILLRACE, "run", recipe, "--input", self.folder / "in", "--output", self.folder / "out", *options],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, code, done.stdout)
        return self.folder / "out"


class Tests(unittest.TestCase):
    def test_the_tests_of_the_pages_run_with_the_others(self):
        for program, cases in (("stages/stages_test", ["the mean of all pixels", "yolo: class, centre", "do not fit a slab are counted",
                                                        "each picture has its own scores", "a picture with edges is sharper"]),
                               ("io/io_test", ["failures: failed pictures by view and reason"]), ("gpu/gpu_test", ["mirrored"])):
            listed = run(BUILD / program, "--list-test-cases")
            for case in cases:
                self.assertIn(case, listed)
        run(BUILD / "stages/stages_test")
        run(BUILD / "io/io_test", "--source-file=*/reducers/*")
        run(BUILD / "gpu/gpu_test", "--test-case=mirrored*")


class Operation(Case):
    def test_four_files_and_a_line(self):
        """The kernel's file exists but is not compiled here: builds with CUDA find it by its name."""
        self.costs(OPERATION, 4, 1, ["gpu/CMakeLists.txt"])


class Sink(Case):
    def test_two_files_and_a_line(self):
        self.costs(SINK, 2, 1, ["stages/sinks/sink_table.cpp"])

    def test_it_is_known(self):
        self.assertIn("yolo (labels to train with)", run(MILLRACE, "stages"))
        self.write_picture("a.png")
        self.run_recipe("--format", "yolo")  # without a detector there are no objects, so no file is written
        self.assertIn(b"coco, overlay, png, yolo, tiff, nifti and npy", subprocess.run([MILLRACE, "run", self.folder / "recipe.yaml", "--format", "yollo"],
                                                                     stderr=subprocess.PIPE, check=False).stderr)


class Reducer(Case):
    def test_two_files_and_a_line(self):
        self.costs(REDUCER, 2, 1, ["io/reducers/reducer_table.cpp"])

    def test_it_prints_what_the_page_shows(self):
        for name in ("a.png", "b.jpg", "c.png"):
            self.write_picture(name)
        cut = self.folder / "in" / "b.jpg"
        cut.write_bytes(cut.read_bytes()[:-500])
        self.run_recipe(code=3)
        page = (SOURCE / "docs/adding_a_reducer.md").read_text(encoding="utf-8")
        shown = re.search(r"^\n```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
        self.assertEqual(run(MILLRACE, "reduce", "failures", "out/", cwd=self.folder), shown)
        self.assertEqual((self.folder / "out/reduced/failures.csv").read_text(), 'view,reason,pictures\n"default",truncated,1\n')


class StageWithOpenCv(Case):
    def test_four_files_and_two_lines(self):
        self.costs(OPENCV, 4, 2, ["stages/CMakeLists.txt", "stages/registry.cpp"])

    def test_it_measures_what_opencv_measures(self):
        for i in range(3):
            self.write_picture(f"{i}.png", 64 + i, 48)
        out = self.run_recipe(stages="decode, sharpness, encode")
        for line in map(json.loads, (out / "segments/000000.jsonl").read_text().splitlines()):
            gray = cv2.cvtColor(cv2.imread(str(self.folder / "in" / line["path"])), cv2.COLOR_BGR2GRAY)
            self.assertAlmostEqual(line["sharpness"], cv2.Laplacian(gray, cv2.CV_64F).var(), delta=0.001)
        shutil.rmtree(out)
        (BUILD / "lib/millrace/libmillrace_opencv.so").rename(BUILD / "lib/millrace/away.so")
        try:
            self.run_recipe(stages="decode, sharpness, encode", code=5)
        finally:
            (BUILD / "lib/millrace/away.so").rename(BUILD / "lib/millrace/libmillrace_opencv.so")


class Task(Case):
    def test_four_files_and_three_lines(self):
        self.costs(TASK, 4, 3, ["models/tasks.cpp", "stages/CMakeLists.txt", "stages/registry.cpp"])

    def test_its_package_is_known(self):
        """The package is read except for its weights, since the copy is built without LibTorch."""
        page = (SOURCE / "docs/adding_a_model_task.md").read_text(encoding="utf-8")
        described = next(text for text in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "task: score" in text)
        package = self.folder / "score.pkg"
        package.mkdir()
        (package / "model.ts").write_bytes(WEIGHTS)
        (package / "model.yaml").write_text(described.replace("SHA256", hashlib.sha256(WEIGHTS).hexdigest()))
        self.assertIn("2 numbers for a picture", run(MILLRACE, "inspect", package))
        (package / "model.yaml").write_text((package / "model.yaml").read_text().replace("task: score", "task: scores"))
        done = subprocess.run([MILLRACE, "inspect", package], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 5, done.stdout)
        self.assertIn(b"expected one of detect, segment, embed, score, classify, regress, semantic, got", done.stdout)


class Counter(Case):
    def test_only_the_files_of_its_stage_change(self):
        self.assertEqual(COUNTER.files, {})
        self.assertEqual(sorted(map(str, COUNTER.changed_files())), ["stages/decode.cpp", "stages/decode.hpp", "tests/stages/decode_test.cpp"])

    def test_it_is_in_the_report(self):
        self.write_picture("a.png")
        self.write_picture("b.png", 16, 16)
        out = self.run_recipe("--set", "gate.slab=4096")
        report = json.loads(next(out.glob("runs/*/report.json")).read_text())
        self.assertEqual(report["calls"]["reduced_pictures"], 1)


class Stage(Case):
    def test_three_files_and_two_lines(self):
        self.costs(STAGE, 3, 2, ["stages/CMakeLists.txt", "stages/registry.cpp"])

    def test_it_is_listed_with_its_options(self):
        listed = run(MILLRACE, "stages")
        self.assertIn("mean_color", listed)
        self.assertIn("look at every n-th row and column only", listed)

    def test_its_value_is_in_the_segment_lines(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "in").mkdir()
            (folder / "recipe.yaml").write_text("stages: [decode, mean_color, encode]\n")
            random = numpy.random.default_rng(7)
            expected = {}
            for i, (width, height) in enumerate([(1, 1), (33, 20), (64, 48)]):
                pixels = random.integers(0, 256, (height, width, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(folder / "in" / f"{i}.png")
                expected[f"{i}.png"] = pixels
            for step in (1, 2):
                out = folder / f"out{step}"
                run(MILLRACE, "run", folder / "recipe.yaml", "--input", folder / "in", "--output", out, "--set", f"mean_color.step={step}")
                lines = [json.loads(line) for line in (out / "segments" / "000000.jsonl").read_text().splitlines()]
                self.assertEqual([line["path"] for line in lines], sorted(expected))
                for line in lines:
                    self.assertEqual(line["state"], "ok")
                    mean = expected[line["path"]][::step, ::step].reshape(-1, 3).astype(float).mean(axis=0)
                    numpy.testing.assert_allclose(line["mean_color"], mean, atol=0.0051)

    def test_a_recipe_without_the_stage_before_it_is_refused(self):
        recipe = FOLDER / "recipe.yaml"
        recipe.write_text("stages: [mean_color, encode]\n")
        done = subprocess.run([MILLRACE, "run", recipe, "--input", SOURCE, "--output", FOLDER / "none"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(b"put 'decode' before it", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
