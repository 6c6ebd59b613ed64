#!/usr/bin/env python3
"""Follows docs/adding_a_stage.md in a copy of the sources: three new files, two lines, and nothing else.

    add_stage_test.py SOURCE FOLDER [CMAKE_OPTION ...]

Copies SOURCE to FOLDER/source, does what the page says, builds program and tests of the stages there without LibTorch, and runs them. The
copy's build folder lies as deep as those of SOURCE, so that the compiler cache knows nearly all of it; both stay for the next time.
"""

import difflib
import json
import os
import re
import shutil
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
COPY = FOLDER / "source"
BUILD = COPY / "build" / "add_stage"
TOP = ["CMakeLists.txt", "LICENSE", "apps", "base", "bench", "cmake", "configs", "docs", "gpu", "io", "models", "pipeline", "run", "stages", "tests", "tools"]


def source_files(root):
    """Relative paths of the files that are built from."""
    found = set()
    for top in TOP:
        path = root / top
        candidates = [path] if path.is_file() else path.rglob("*")
        found |= {p.relative_to(root) for p in candidates if p.is_file() and "__pycache__" not in p.parts}
    return found


def write_if_new(path, text):
    """Writes only what differs, so that the next build finds little to do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def instructions():
    """What the page says: {new file: its content} and {file: (line before, new line)}."""
    page = SOURCE / "docs" / "adding_a_stage.md"
    text = page.read_text(encoding="utf-8")
    files = {Path(new): (page.parent / example).read_text(encoding="utf-8")
             for new, example in re.findall(r"^- \[`([^`]+)`\]\(([^)]+)\)", text, re.MULTILINE)}
    lines = {}
    for name, body in re.findall(r"^```diff\n--- (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        before, new = body.splitlines()
        assert before.startswith(" ") and new.startswith("+") and Path(name) not in lines, body
        lines[Path(name)] = (before[1:], new[1:])
    return files, lines


def make_copy():
    """Brings the copy to the state of SOURCE plus what the page says; returns the sources as they were, and the new files."""
    files, lines = instructions()
    originals = {path: (SOURCE / path).read_bytes() for path in source_files(SOURCE)}
    wanted = set(originals)
    for stale in source_files(COPY) - wanted - set(files):
        (COPY / stale).unlink()
    for path in sorted(wanted):
        target = COPY / path
        if path in lines:
            before, new = lines[path]
            text = originals[path].decode().splitlines(keepends=True)
            at = [i for i, line in enumerate(text) if line == before + "\n"]
            assert len(at) == 1, f"{path}: the line '{before}' stands there {len(at)} times"
            text.insert(at[0] + 1, new + "\n")
            write_if_new(target, "".join(text))
        elif not target.is_file() or originals[path] != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(originals[path])
            shutil.copymode(SOURCE / path, target)
    for path, text in files.items():
        write_if_new(COPY / path, text)
    assert set(lines) <= wanted, f"{set(lines) - wanted} is to be changed and is not there"
    return originals, set(files)


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}\n{text[-6000:]}"
    return text


class AddStage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.originals, cls.new_files = make_copy()
        run("cmake", "-S", COPY, "-B", BUILD, "-G", "Ninja", "-DMILLRACE_TORCH=OFF", "-DMILLRACE_CUDA=OFF", *OPTIONS)
        run("cmake", "--build", BUILD, "--parallel", os.environ.get("JOBS", "2"), "--target", "millrace", "stages_test")
        cls.millrace = BUILD / "apps" / "millrace"

    def test_three_files_and_two_lines(self):
        self.assertEqual(source_files(COPY) - set(self.originals), self.new_files)
        self.assertEqual(len(self.new_files), 3)
        changed = []
        for path, before in self.originals.items():
            after = (COPY / path).read_bytes()
            if after != before:
                diff = difflib.ndiff(before.decode().splitlines(), after.decode().splitlines())
                changed += [(str(path), line) for line in diff if line[0] in "+-"]
        self.assertEqual(sorted(path for path, _ in changed), ["stages/CMakeLists.txt", "stages/registry.cpp"], changed)
        self.assertTrue(all(line.startswith("+") for _, line in changed), changed)

    def test_its_own_test_runs_with_those_of_the_stages(self):
        cases = run(BUILD / "stages" / "stages_test", "--list-test-cases")
        self.assertIn("the mean of all pixels", cases)
        run(BUILD / "stages" / "stages_test")

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
