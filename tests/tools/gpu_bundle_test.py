"""The bundle for GPU machines, made of this build: its content, and that it works from another folder."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["MILLRACE_PROGRAM"]).resolve().parents[1]


class Bundle(unittest.TestCase):
    def run_it(self, *words, code=0, **env):
        done = subprocess.run([str(word) for word in words], cwd=self.folder, env={**os.environ, "PYTHON": sys.executable, **env}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_it_holds_what_is_needed_and_runs_elsewhere(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        made = self.folder / "made/gpu-bundle"
        self.run_it(SOURCE / "tools/gpu_bundle.sh", made, MILLRACE_BUNDLE_BUILD=str(BUILD))
        bundle = self.folder / "elsewhere"
        shutil.move(made, bundle)
        self.assertLess(sum(file.stat().st_size for file in bundle.rglob("*")), 48 << 20)
        libraries = {file.name.split(".so")[0] for file in (bundle / "lib").iterdir()}
        self.assertLessEqual({"libtbb", "libopencv_core", "libboost_program_options", "libjpeg"}, libraries)
        self.assertFalse({name for name in libraries if name.startswith(("libtorch", "libc10", "libcud", "libc", "libstdc++")) and not name.startswith("libcrypto")})
        programs = [bundle / "bin" / program for program in ("millrace", "cuda_test", "bench_look")]
        programs += [bundle / "lib/millrace" / plugin for plugin in ("libmillrace_torch.so", "libmillrace_torch_graph.so", "libmillrace_overlay.so")]
        for program in programs:  # no path of the build is left
            self.assertNotIn("runpath", self.run_it("readelf", "-d", program).lower())

        said = self.run_it(bundle / "run.sh", "millrace", "doctor", code=5)  # code 5: the plug-in for rare formats is not in the bundle
        self.assertIn(os.path.dirname(__import__("torch").__file__), said)
        pictures = self.folder / "inputs/pictures"
        pictures.mkdir(parents=True)
        self.run_it(sys.executable, SOURCE / "models/demo/scenes.py", self.folder / "drawn", "--scenes", "1")
        for picture in (self.folder / "drawn").rglob("*.jpg"):
            shutil.copy(picture, pictures / f"{picture.parent.name}-{picture.name}")
        said = self.run_it(bundle / "run.sh", "suite", "look", "correct", "decode", "--rehearse", "--inputs", pictures.parent, "--out", "results.json", CUDA_VISIBLE_DEVICES="")
        self.assertIn(" 0 failed", said)
        self.assertIn("method=bench_look  absent=", said)

        (bundle / "torch").write_text("1.0.0\n")
        self.assertIn("this bundle is built for 1.0.0", self.run_it(bundle / "run.sh", "millrace", "doctor", code=1))
        self.assertIn("has no PyTorch", self.run_it(bundle / "run.sh", "millrace", "doctor", code=1, PYTHON="false"))

    def test_a_file_that_is_too_large_is_refused(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        build = self.folder / "build"
        (build / "lib/millrace").mkdir(parents=True)
        for part in ("apps", "gpu", "bench"):
            (build / part).symlink_to(BUILD / part)
        for plugin in (BUILD / "lib/millrace").glob("*.so"):
            (build / "lib/millrace" / plugin.name).symlink_to(plugin)
        large = build / "lib/millrace/libmillrace_nifti.so"
        large.unlink()
        with open(self.folder / "zeros", "wb") as zeros:
            zeros.truncate(48 << 20)
        self.run_it("objcopy", "--add-section", f".planted={self.folder / 'zeros'}", BUILD / "lib/millrace/libmillrace_nifti.so", large)
        said = self.run_it(SOURCE / "tools/gpu_bundle.sh", self.folder / "bundle", code=1, MILLRACE_BUNDLE_BUILD=str(build))
        self.assertRegex(said, r"bundle has \d+ bytes, more than the maximum of 50331648")


if __name__ == "__main__":
    if not (BUILD / "gpu/cuda_test").is_file():
        print("skipped: this build has no CUDA, so it has no GPU code for a bundle; install nvcc and build again")
        sys.exit(77)
    unittest.main(verbosity=2)
