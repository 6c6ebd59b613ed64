"""A watched test runs if its command or a watched file changed, if it has not passed, and with MILLRACE_ALL_TESTS."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "when_changed.py"


class WhenChanged(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = self.folder / "checkout"
        (self.root / "tests" / "tools").mkdir(parents=True)
        (self.root / "models").mkdir()
        self.script = self.root / "tests" / "tools" / SCRIPT.name
        shutil.copy(SCRIPT, self.script)
        self.watched = self.root / "models" / "a.py"
        self.watched.write_text("1")
        self.data = self.folder / "data"
        self.data.mkdir()
        self.ran = self.folder / "ran"

    def times_run(self):
        return len(self.ran.read_text()) if self.ran.exists() else 0

    def run_watched(self, exit_code=0, watch=("models/**/*.py",), files=(), script=None, **environment):
        if script is None:
            script = self.script
        options = [*(f"--watch={glob}" for glob in watch), *(f"--file={name}" for name in files)]
        command = ["sh", "-c", f"printf x >> {self.ran}; echo said; exit {exit_code}"]
        done = subprocess.run([sys.executable, script, *options, "--", *command], capture_output=True, text=True, check=False,
                              env={**os.environ, "MILLRACE_DEPS": str(self.folder / "deps"), "MILLRACE_TEST_DATA": str(self.data), **environment})
        return done

    def test_a_test_that_passed_does_not_run_again(self):
        self.assertEqual(self.run_watched().returncode, 0)
        second = self.run_watched()
        self.assertEqual((second.returncode, self.times_run()), (0, 1))
        self.assertTrue(second.stdout.startswith("unchanged since it passed"))
        self.assertEqual(second.stdout.splitlines()[1:], ["said"])

    def test_a_changed_file_runs_it(self):
        self.run_watched()
        self.watched.write_text("2")
        self.run_watched()
        self.assertEqual(self.times_run(), 2)
        (self.root / "models" / "b.py").write_text("new")
        self.run_watched()
        self.assertEqual(self.times_run(), 3)

    def test_a_changed_program_or_new_data_run_it(self):
        program = self.root / "build" / "program"
        program.parent.mkdir()
        program.write_bytes(b"a")
        self.run_watched(files=[program])
        program.write_bytes(b"b")
        self.run_watched(files=[program])
        self.assertEqual(self.times_run(), 2)
        (self.data / "picture.jpg").write_bytes(b"x")
        self.run_watched(files=[program])
        self.assertEqual(self.times_run(), 3)

    def test_a_change_anywhere_in_a_folder_runs_it(self):
        folder = self.root / "build" / "packages" / "a.pkg"
        folder.mkdir(parents=True)
        for times, content in ((1, "a"), (1, "a"), (2, "b")):
            (folder / "model.ts").write_text(content)
            self.run_watched(files=[folder.parent])
            self.assertEqual(self.times_run(), times)

    def test_failures_and_skips_are_run_again(self):
        for code in (1, 77):
            before = self.times_run()
            self.assertEqual(self.run_watched(code).returncode, code)
            self.assertEqual(self.run_watched(code).returncode, code)
            self.assertEqual(self.times_run(), before + 2)

    def test_all_tests_can_be_asked_for(self):
        self.run_watched()
        self.run_watched(MILLRACE_ALL_TESTS="1")
        self.assertEqual(self.times_run(), 2)

    def test_a_clone_elsewhere_shares_what_passed(self):
        self.run_watched()
        other = self.folder / "other"
        shutil.copytree(self.root, other)
        self.run_watched(script=other / "tests" / "tools" / SCRIPT.name)
        self.assertEqual(self.times_run(), 1)

    def test_a_glob_that_names_nothing_is_an_error(self):
        done = self.run_watched(watch=["model/*"])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("names no file", done.stderr)


if __name__ == "__main__":
    unittest.main()
