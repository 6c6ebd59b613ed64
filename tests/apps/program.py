"""Functions for tests of the real program: they run it, read its output, and make pictures and packages.

Variables of the environment name the program (MILLRACE_PROGRAM), the packages (MILLRACE_TEST_PACKAGES) and the pictures
(MILLRACE_TEST_DATA). MILLRACE_TEST_WEIGHTS names the trained weights; by default they are next to the python set.
A test file ends with `program.main()`, which exits with 77 if every test in it was skipped.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MILLRACE_PROGRAM", "build/release/apps/millrace")
PACKAGES = Path(os.environ.get("MILLRACE_TEST_PACKAGES", "build/release/test-packages"))
DATA = Path(os.environ.get("MILLRACE_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

WEIGHTS = Path(os.environ.get("MILLRACE_TEST_WEIGHTS", Path(sys.prefix).parent / "test-weights"))

# Whether the program is built with a sanitizer, which needs memory of its own and makes it slow.
SANITIZED = os.environ.get("MILLRACE_SANITIZE", "") != ""

# Exit codes of apps/exit_code.hpp.
OK, INTERNAL, USAGE, SOME_FAILED, ENVIRONMENT, STORAGE, LOCKED, MISMATCH = 0, 1, 2, 3, 5, 6, 7, 8
INTERRUPTED, TERMINATED = 130, 143

# The quickest recipe: its lines show what was decoded, and it runs no model.
DECODE_ONLY = "stages: [decode, encode]\n"


class Finished:
    """An ended run of the program."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def millrace(*arguments, stdin=b"", cwd=None, env=None, timeout=240):
    """Runs the program to its end. Arguments may be bytes, for names that are not UTF-8."""
    done = subprocess.run([PROGRAM, *(a if isinstance(a, bytes) else str(a) for a in arguments)], input=stdin, cwd=cwd,
                          env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=False)
    return Finished(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def package(name):
    """A package of the test packages; skips the test if it is missing."""
    folder = PACKAGES / f"{name}.pkg"
    if not (folder / "model.yaml").is_file():
        raise unittest.SkipTest(f"{folder} is missing; tests/models/make_packages.sh makes it")
    return str(folder.resolve())


def picture(name):
    """A photograph of the test data; skips the test if it is missing."""
    file = DATA / "pictures" / name
    if not file.is_file():
        raise unittest.SkipTest(f"{file} is missing")
    return file.resolve()


def weights(name):
    """A trained checkpoint that only tests use; skips the test if it is missing."""
    file = WEIGHTS / name
    if not file.is_file():
        raise unittest.SkipTest(f"{file} is missing; tools/setup.sh weights fetches it")
    return file


def require_formats():
    """Makes the formats set importable, such as MONAI and nibabel. Skips the test if the set is missing."""
    formats = Path(sys.prefix).parent / "formats"
    if not (formats / ".complete").is_file():
        raise unittest.SkipTest(f"{formats} is missing; tools/setup.sh formats installs it")
    if str(formats) not in sys.path:
        sys.path.append(str(formats))  # at the end: torch and numpy are those of the Python set
    return formats


def copy_package(source, target, edit):
    """Copies a package and passes the text of its model.yaml through `edit`. The weights stay the same."""
    shutil.copytree(source, target)
    yaml = Path(target) / "model.yaml"
    yaml.write_text(edit(yaml.read_text()))
    return str(target)


def segments(output):
    """{name: bytes} of the finished segments of an output folder: data files and manifests."""
    return {f.name: f.read_bytes() for f in sorted((Path(output) / "segments").iterdir())}


def plan(output):
    return {f.name: f.read_bytes() for f in sorted((Path(output) / "plan").iterdir())}


def lines(output):
    """All segment lines in plan order."""
    files = sorted((Path(output) / "segments").glob("[0-9]*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def path_bytes(line):
    """The exact bytes of a line's path: of `path_b64` if it exists, else of `path`."""
    return base64.b64decode(line["path_b64"]) if "path_b64" in line else line["path"].encode()


def reports(output):
    """report.json of every attempt that wrote one, in order of their start."""
    runs = sorted((Path(output) / "runs").iterdir(), key=lambda f: (f.name.rsplit("-", 1)[0], int(f.name.rsplit("-", 1)[1])))
    return [json.loads((run / "report.json").read_text()) for run in runs if (run / "report.json").is_file()]


def report(output):
    return reports(output)[-1]


def tree(folder):
    """{relative path: SHA-256} of every file below a folder."""
    folder = Path(folder)
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.rglob("*")) if f.is_file()}


def raster(width, height, seed=0):
    """A smooth coloured raster with a few rectangles, RGB8; depends on its arguments alone."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    pixels = numpy.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x + y) * 255 // max(width + height - 2, 1)], 2)
    pixels = pixels.astype(numpy.uint8)
    for _ in range(4):
        left, top = random.integers(0, width), random.integers(0, height)
        pixels[top : top + height // 3 + 1, left : left + width // 3 + 1] = random.integers(0, 256, 3)
    return pixels


def write_picture(path, width=64, height=48, seed=0, **options):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(raster(width, height, seed)).save(path, **options)
    return path


def write_pictures(folder, count, width=64, height=48):
    """`count` different JPEGs 0000.jpg, 0001.jpg, ... in `folder`."""
    for i in range(count):
        write_picture(Path(folder) / f"{i:04}.jpg", width, height, seed=i, quality=90)
    return Path(folder)


class Case(unittest.TestCase):
    """A test with a folder of its own, `self.folder`, that is removed afterwards."""

    maxDiff = 2000

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="millrace-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def injecting(self, fault, path=None, log="/dev/null"):
        """The words before a command: strace injects `fault` into system calls of it, on `path` only if given. `log` gets the calls."""
        if shutil.which("strace") is None:
            self.skipTest("strace is not installed; tools/setup.sh check installs it")
        if SANITIZED:
            self.skipTest("LeakSanitizer does not run under ptrace")
        calls = fault.split(":")[0]
        only = ["-P", str(path)] if path else ["--seccomp-bpf"]  # the latter is quicker; with both, strace 6.1 sends no signal
        return ["strace", "-f", "-o", str(log), "-e", f"trace={calls}", "-e", f"inject={fault}", *only]

    def run_ok(self, *arguments, code=OK, **options):
        """Runs `millrace run` and checks its exit code."""
        done = millrace("run", *arguments, **options)
        self.assertEqual(done.code, code, done)
        return done


class _Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"skipped: {reason}", flush=True)


def main(needs_program=True):
    if needs_program and not Path(PROGRAM).is_file():
        print(f"skipped: {PROGRAM} is not built")
        sys.exit(77)
    result = unittest.main(exit=False, verbosity=2, testRunner=unittest.TextTestRunner(resultclass=_Result, verbosity=2)).result
    if result.wasSuccessful() and result.testsRun > 0 and len(result.skipped) == result.testsRun:
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)
