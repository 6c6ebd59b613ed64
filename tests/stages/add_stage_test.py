#!/usr/bin/env python3
"""Follows docs/adding_a_stage.md in a copy of the sources: three new files, two lines, and nothing else.

    add_stage_test.py SOURCE FOLDER [CMAKE_OPTION ...]

Copies SOURCE to FOLDER/source, does what the page says, builds program and tests of the stages there without LibTorch, and runs them.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy
    from PIL import Image
except ImportError:
    print("skipped: Pillow or numpy is missing; tools/setup.sh python installs them")
    sys.exit(77)

SOURCE, FOLDER, OPTIONS = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
sys.path.insert(0, str(SOURCE / "tests" / "tools"))
from followed_page import FollowedPage, run


class AddStage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = FollowedPage(SOURCE, FOLDER, "adding_a_stage")
        cls.page.make(OPTIONS, "millrace", "stages_test")
        cls.millrace = cls.page.build / "apps" / "millrace"

    def test_three_files_and_two_lines(self):
        self.assertEqual(self.page.new_files(), ["stages/mean_color.cpp", "stages/mean_color.hpp", "tests/stages/mean_color_test.cpp"])
        changed = self.page.changed_lines()
        self.assertEqual([path for path, _ in changed], ["stages/CMakeLists.txt", "stages/registry.cpp"], changed)
        self.assertTrue(all(line.startswith("+") for _, line in changed), changed)

    def test_its_own_test_runs_with_those_of_the_stages(self):
        cases = run(self.page.build / "stages" / "stages_test", "--list-test-cases")
        self.assertIn("the mean of all pixels", cases)
        run(self.page.build / "stages" / "stages_test")

    def test_it_is_listed_with_its_options(self):
        listed = run(self.millrace, "stages")
        self.assertIn("mean_color", listed)
        self.assertIn("look at every n-th row and column only", listed)

    def test_its_value_stands_in_the_segment_lines(self):
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
                run(self.millrace, "run", folder / "recipe.yaml", "--input", folder / "in", "--output", out, "--set", f"mean_color.step={step}")
                lines = [json.loads(line) for line in (out / "segments" / "000000.jsonl").read_text().splitlines()]
                self.assertEqual([line["path"] for line in lines], sorted(expected))
                for line in lines:
                    self.assertEqual(line["state"], "ok")
                    mean = expected[line["path"]][::step, ::step].reshape(-1, 3).astype(float).mean(axis=0)
                    numpy.testing.assert_allclose(line["mean_color"], mean, atol=0.0051)

    def test_a_recipe_that_needs_what_it_reads_is_told_so(self):
        recipe = FOLDER / "recipe.yaml"
        recipe.write_text("stages: [mean_color, encode]\n")
        done = subprocess.run([self.millrace, "run", recipe, "--input", SOURCE, "--output", FOLDER / "none"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(b"put 'decode' before it", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
