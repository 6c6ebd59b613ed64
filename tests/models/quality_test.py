"""Runs the program with the built-in models on 42 held-out scenes, with CI's bounds.

`make demo-quality` runs all scenes.
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "models/demo/quality.py"
PROGRAM = os.environ.get("MILLRACE_PROGRAM", "build/release/apps/millrace")


def quality(folder, *arguments):
    command = [sys.executable, "-B", str(SCRIPT), "--program", PROGRAM, "--folder", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Quality(unittest.TestCase):
    def test_on_42_scenes(self):
        with tempfile.TemporaryDirectory(prefix="millrace-test-") as folder:
            done = quality(folder, "--scenes", "14", "--bars", "0.85", "0.80")
            print(done.stdout)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("quality: passed", done.stdout)

    def test_bars_that_are_not_reached_are_an_error(self):
        with tempfile.TemporaryDirectory(prefix="millrace-test-") as folder:
            done = quality(folder, "--scenes", "1", "--bars", "1.01", "1.01")
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("front: AP50", done.stderr)
            self.assertIn("mean mask IoU", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
