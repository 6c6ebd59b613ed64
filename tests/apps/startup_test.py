"""Which libraries the program opens, and when: LibTorch only for models, OpenMP after its environment is set.

Also the messages about missing plug-ins.
"""

import os
import re
import shutil
import unittest
import unittest.mock
from pathlib import Path

import program
from program import Case, millrace

TORCH_PLUGIN = Path(program.PROGRAM).resolve().parents[1] / "lib/millrace/libmillrace_torch.so"
HEAVY = ("libtorch", "libc10", "libgomp", "libopencv", "libblas", "libmillrace_")
OMP = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "OMP_DYNAMIC", "OMP_PROC_BIND")


class Startup(Case):
    def setUp(self):
        super().setUp()
        program.write_pictures(self.folder / "in", 3, 90, 70)

    def models(self):
        return ("--detector", program.package("yolov8n"), "--segmenter", program.package("sam_small"), "--set", "detect.conf=0.001",
                "--set", "detect.max_detections=3")

    def opened(self, *words, code=program.OK, **env):
        """The ended command, and the file names of the libraries that the loader opened for it."""
        log = self.folder / "loader"
        done = millrace(*words, env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(log), **env})
        self.assertEqual(done.code, code, done)
        text = "".join(file.read_text(errors="replace") for file in self.folder.glob("loader.*"))
        for file in self.folder.glob("loader.*"):
            file.unlink()
        libraries = set(re.findall(r"file=([^ ;]+)", text))
        self.assertTrue(any("libyaml-cpp" in name for name in libraries), libraries)  # the loader did list what it opened
        return done, {Path(name).name for name in libraries}

    def heavy(self, libraries):
        return {name for name in libraries if name.startswith(HEAVY)}

    def test_only_models_open_libtorch(self):
        out = self.folder / "out"
        run = ("run", "--input", self.folder / "in", "--output", out, *self.models())
        decode = self.write("decode.yaml", program.DECODE_ONLY)
        for words in (("--version",), ("--help",), ("stages",), ("inspect", program.package("yolov8n")), (*run, "--dry-run"), (*run, "--print-config"),
                      ("run", decode, "--input", self.folder / "in", "--output", self.folder / "decoded")):
            with self.subTest(words[0]):
                self.assertEqual(self.heavy(self.opened(*words)[1]), set())
        libraries = self.heavy(self.opened(*run)[1])
        self.assertLessEqual({"libmillrace_torch.so", "libtorch_cpu.so", "libgomp.so.1"}, libraries)
        # OpenCV links a BLAS, whose functions would replace LibTorch's own.
        self.assertFalse({name for name in libraries if name.startswith(("libopencv", "libblas"))})
        for words in (("status", out), ("status", out, "--verify"), ("reduce", "categories", out), (*run, "--dry-run")):
            self.assertEqual(self.heavy(self.opened(*words)[1]), set())

    def test_overlays_open_opencv_and_change_nothing_else(self):
        lines = []
        for more in ((), ("--format", "overlay")):
            out = self.folder / f"out{len(lines)}"
            done, libraries = self.opened("run", "--input", self.folder / "in", "--output", out, *self.models(), *more)
            self.assertEqual("libmillrace_overlay.so" in libraries, bool(more), done)
            lines.append((out / "segments/000000.jsonl").read_bytes())
        self.assertEqual(*lines)
        self.assertTrue(list((out / "overlay").iterdir()))

    def test_doctor_opens_libtorch_and_names_its_version(self):
        done = millrace("doctor", env={"ATEN_CPU_CAPABILITY": "default"})
        self.assertRegex(done.out, r"LibTorch +\d+\.\d+\.\d+\S* with kernels for (DEFAULT|NO AVX), /\S*libtorch_cpu\.so")
        self.assertRegex(done.out, r"CPU level +sse4\.1")

    def test_a_plugin_that_is_missing_or_broken(self):
        other = self.folder / "plugins"
        other.mkdir()
        run = ("run", "--input", self.folder / "in", "--output", self.folder / "out", *self.models())
        missing = r"libmillrace_torch\.so, which runs models, is not in '.*plugins'; run 'make install' again, or set MILLRACE_PLUGIN_DIR"
        broken = r"plugins/libmillrace_torch\.so', which runs models, does not load \(.*\); run 'make install' again"
        for content, sentence in ((None, missing), (b"", broken), (b"no library", broken)):
            with self.subTest(content):
                if content is not None:
                    (other / "libmillrace_torch.so").write_bytes(content)
                for command in (run, ("doctor",)):
                    done = millrace(*command, env={"MILLRACE_PLUGIN_DIR": str(other)})
                    self.assertEqual(done.code, program.ENVIRONMENT, done)
                    self.assertRegex(done.err + done.out, sentence)
        # Commands without models need no plug-in. The run works with the plug-in.
        self.assertEqual(millrace("inspect", program.package("yolov8n"), env={"MILLRACE_PLUGIN_DIR": str(other)}).code, program.OK)
        self.assertEqual(millrace(*run).code, program.OK)

    def test_a_plugin_without_overlays_stops_before_a_plan_is_made(self):
        other = self.folder / "plugins"
        other.mkdir()
        shutil.copy(TORCH_PLUGIN, other)
        done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "out", *self.models(), "--format", "overlay",
                        env={"MILLRACE_PLUGIN_DIR": str(other)})
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("libmillrace_overlay.so, which draws overlays, is not in", done.err)
        self.assertFalse((self.folder / "out/plan/plan.json").exists())

    def test_a_plugin_of_another_build(self):
        other = self.folder / "plugins"
        other.mkdir()
        version = re.search(r"millrace (\S+)", millrace("--version").out)[1].encode()
        data = TORCH_PLUGIN.read_bytes()
        self.assertEqual(data.count(b"\0" + version + b"\0"), 1)
        (other / "libmillrace_torch.so").write_bytes(data.replace(b"\0" + version + b"\0", b"\0" + b"9" + version[1:] + b"\0"))
        done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "out", *self.models(),
                        env={"MILLRACE_PLUGIN_DIR": str(other)})
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn(f"belongs to millrace 9{version[1:].decode()} (interface", done.err)
        self.assertIn("so that both come from one build", done.err)

    def patched(self, old, new):
        """A folder with a copy of the plug-in in which `new` replaces `old`, of the same length."""
        other = self.folder / "plugins"
        other.mkdir()
        data = TORCH_PLUGIN.read_bytes()
        self.assertGreaterEqual(data.count(old), 1)
        self.assertEqual(len(old), len(new))
        (other / "libmillrace_torch.so").write_bytes(data.replace(old, new))
        return millrace("run", "--input", self.folder / "in", "--output", self.folder / "out", *self.models(), env={"MILLRACE_PLUGIN_DIR": str(other)})

    def test_libtorch_that_is_gone(self):
        done = self.patched(b"/site-packages/torch/lib", b"/site-packages/torch/bil")
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertRegex(done.err, r"which runs models, does not load \(\S*libtorch\S*: cannot open shared object file.*make install")

    def test_libtorch_of_another_version(self):
        version = re.search(r"LibTorch +(\d\S*) with", millrace("doctor").out)[1].encode()
        done = self.patched(b"\0" + version + b"\0", b"\0" + b"9" + version[1:] + b"\0")
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn(f"was built for LibTorch 9{version[1:].decode()} but found LibTorch {version.decode()} in", done.err)

    def team(self, **env):
        """The environment that LibTorch's OpenMP prints."""
        clean = {name: value for name, value in os.environ.items() if name not in OMP}
        with unittest.mock.patch.dict(os.environ, clean, clear=True):
            done = millrace("run", "--input", self.folder / "in", "--output", self.folder / f"out{len(env)}", *self.models(), "--set", "threads.team=3",
                            env={"OMP_DISPLAY_ENV": "true", **env})
        self.assertEqual(done.code, program.OK, done)
        found = dict(re.findall(r"(?:\[host\] )?(OMP_\w+) = '([^']*)'", done.err))
        self.assertEqual(done.err.count("OPENMP DISPLAY ENVIRONMENT BEGIN"), 1, done)  # loaded once, by one process
        return {name: found[name] for name in OMP}

    def test_openmp_finds_the_planned_team(self):
        self.assertEqual(self.team(), {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "3", "OMP_DYNAMIC": "FALSE", "OMP_PROC_BIND": "FALSE"})
        self.assertEqual(self.team(OMP_WAIT_POLICY="active", OMP_NUM_THREADS="64", OMP_DYNAMIC="true", OMP_PROC_BIND="close"),
                         {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "3", "OMP_DYNAMIC": "FALSE", "OMP_PROC_BIND": "CLOSE"})


if __name__ == "__main__":
    program.main()
