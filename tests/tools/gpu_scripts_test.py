"""Scripts of the suite for GPU machines, without a GPU: peers in turns, the part `look`, the GPU's JPEG decoder with a fake library, and others."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GPU = SOURCE / "bench/gpu"
PACKAGES = pathlib.Path(os.environ["MILLRACE_TEST_PACKAGES"])
os.environ.setdefault("MILLRACE_BUNDLE", str(GPU))
sys.path.insert(0, str(GPU))

import dram  # noqa: E402
import look  # noqa: E402
import numpy as np  # noqa: E402
import peers  # noqa: E402
import processor  # noqa: E402
import records  # noqa: E402
import tables  # noqa: E402
import torch  # noqa: E402
import traces  # noqa: E402
from PIL import Image  # noqa: E402
from turns import Failed, Turns  # noqa: E402


def last_json(done):
    return json.loads(done.stdout.splitlines()[-1])


class RunLengths(unittest.TestCase):
    def test_on_the_device_are_those_of_the_host(self):
        masks = torch.rand(5, 7, 9, generator=torch.Generator().manual_seed(1)) > 0.5
        masks[1], masks[2], masks[3, 0, 0], masks[4, 0, 0] = True, False, True, False
        for found, mask in zip(peers.run_lengths_of(masks), masks, strict=True):
            np.testing.assert_array_equal(found, peers.run_lengths(mask.numpy()))
            self.assertEqual(found.sum(), mask.numel())


class Traces(unittest.TestCase):
    """Traces of packages were made with or without TF32.

    In both cases they get the requested setting, and their results do not change.
    """

    MODELS = (("yolov8n", None, "forward", 640), ("sam_small", ["encode", "decode"], "encode", 256))

    def load(self, package):
        return torch.jit.load(str(PACKAGES / f"{package}.pkg/model.ts")).eval()

    def test_flags_are_set_and_sizes_are_on_the_host_before_freezing_and_after(self):
        for package, methods, _, _ in self.MODELS:
            for tf32, benchmark in ((True, False), (False, True)):
                module = traces.adapt(self.load(package), tf32=tf32, benchmark=benchmark)
                for stage in (module, torch.jit.freeze(module, preserved_attrs=methods)):
                    nodes = [node for graph in traces.methods(stage) for node in traces.nodes(graph)]
                    inputs = [list(node.inputs()) for node in nodes if node.kind() == "aten::_convolution"]
                    self.assertTrue(inputs)
                    self.assertEqual({(own[traces.BENCHMARK].toIValue(), own[traces.ALLOW_TF32].toIValue()) for own in inputs}, {(benchmark, tf32)})
                    self.assertEqual({node.t("value").device.type for node in nodes if traces.is_size(node)}, {"cpu"})
                self.assertFalse([node for node in nodes if node.kind() == "aten::Int"])  # freezing computes sizes that are tensors

    def test_their_results_do_not_change(self):
        for package, _, method, side in self.MODELS:
            sample = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(2))
            with torch.no_grad():
                expected = getattr(self.load(package), method)(sample)
                for tf32 in (True, False):
                    torch.testing.assert_close(getattr(traces.adapt(self.load(package), tf32=tf32), method)(sample), expected)

    def test_tensors_that_a_trace_makes_are_made_where_it_runs(self):
        module = torch.jit.trace(lambda x: x + torch.arange(4, device="cpu"), torch.zeros(4), check_trace=False)
        with tempfile.TemporaryDirectory() as folder:
            module.save(f"{folder}/m.ts")
            module = traces.adapt(torch.jit.load(f"{folder}/m.ts"), tf32=True, device="meta")
        self.assertEqual(module(torch.zeros(4, device="meta")).device.type, "meta")


class Compiled(unittest.TestCase):
    class Half(torch.nn.Module):
        def __init__(self, wrong=False):
            super().__init__()
            self.wrong = wrong

        def forward(self, x):
            return x, -x if self.wrong else x

    def test_a_way_that_fails_or_is_wrong_is_reported_and_not_taken(self):
        def fails(step, sample):
            raise RuntimeError("not here\nnot there")

        def hangs(step, sample):
            try:
                time.sleep(60)
            except Exception:  # compilers also catch the exception and try another way
                time.sleep(60)

        ways, sample = peers.WAYS, (torch.arange(-4.0, 4.0),)
        try:
            peers.WAYS = {"plain": lambda step, _: step, "failing": fails, "wrong": lambda step, _: self.Half(wrong=True)}
            fastest = peers.Fastest(self.Half(), sample, "cpu", 0, *sample)
            self.assertEqual(fastest.name, "plain")
            self.assertEqual(fastest.tried["failing"], "RuntimeError: not here ... not there")
            self.assertIn("an IoU of 0.000", fastest.tried["wrong"])
            peers.WAYS = {"plain": lambda step, _: step, "hanging": hangs}
            begun = time.monotonic()
            fastest = peers.Fastest(self.Half(), sample, "cpu", 0, *sample, ready_seconds=peers.seconds_of_process() + 2)
            self.assertLess(time.monotonic() - begun, 30)
            self.assertEqual((fastest.name, fastest.tried["hanging"]), ("plain", "TooLong: compiling took too long"))
            fastest = peers.Fastest(self.Half(), sample, "cpu", 0, *sample, ready_seconds=0)
            self.assertEqual((fastest.name, fastest.tried["hanging"]), ("plain", "no time was left"))
            empty = (-torch.arange(1.0, 9.0),)
            peers.WAYS = {"plain": lambda step, _: step, "wrong": lambda step, _: self.Half(wrong=True)}
            self.assertIn("an IoU of 0.", peers.Fastest(self.Half(), empty, "cpu", 0, *empty).tried["wrong"])  # the masks are empty
            peers.WAYS = {"failing": fails}
            with self.assertRaisesRegex(RuntimeError, "no way to compile works.*not here"):
                peers.Fastest(self.Half(), sample, "cpu", 0, *sample)
        finally:
            peers.WAYS = ways


class Exported(unittest.TestCase):
    def test_the_step_with_exported_programs_has_the_results_of_torchscript(self):
        packages = [PACKAGES / f"{name}.pkg" for name in ("yolov8n", "mobile_sam")]
        step = peers.Step(*(peers.load(package, "cpu") for package in packages), "cpu", torch.float32)
        step.packages = packages
        generator = torch.Generator().manual_seed(1)
        pixels = [torch.randint(0, 256, (2, side, side, 3), dtype=torch.uint8, generator=generator) for side in (640, 1024)]
        sample = (*pixels, torch.tensor([[100.0, 100, 500, 600], [30, 40, 200, 90]]), torch.tensor([0, 1]))
        with torch.no_grad():
            for found, expected in zip(peers.exported(step, sample)(*sample), step(*sample), strict=True):
                self.assertLess(((found - expected).square().mean().sqrt() / expected.std()).item(), 1e-4)


# Rows as ncu 2025.3 wrote them.
NCU = """==PROF== Connected to process 2602 (/usr/bin/python3)
"ID","Process ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"
"0","2602","decode_64/upscaling_kernel","(32, 64, 1)","dram__bytes.sum","byte","140,216,576"
"0","2602","decode_64/upscaling_kernel","(32, 64, 1)","gpu__time_duration.sum","ns","916,864"
"1","2602","decode_64/void f<A/B, (int)2>(x)","(1, 2, 1)","dram__bytes.sum","byte","1,000"
"1","2602","decode_64/void f<A/B, (int)2>(x)","(1, 2, 1)","gpu__time_duration.sum","ns","2,000"
"2","2602","decode_64/upscaling_kernel","(32, 64, 1)","dram__bytes.sum","byte","4"
"2","2602","decode_64/upscaling_kernel","(32, 64, 1)","gpu__time_duration.sum","ns","1,136"
"3","2602","forward_16/pool","(1, 1, 1)","dram__bytes.sum","byte","0"
"3","2602","forward_16/pool","(1, 1, 1)","gpu__time_duration.sum","ns","5,000,000"
"""


class Dram(unittest.TestCase):
    def test_the_counters_of_ncu_are_summed_by_call_and_kernel(self):
        found = dram.totals(NCU)
        self.assertEqual(sorted(found), ["decode_64", "forward_16"])
        decode = found["decode_64"]
        self.assertEqual((decode["launches"], decode["dram_bytes"]), (3, 140217580))
        self.assertAlmostEqual(decode["kernels_ms"], 0.92)
        self.assertEqual(decode["kernels"], [["upscaling_kernel", 2, 918.0, 140216580], ["void f<A/B, (int)2>(x)", 1, 2.0, 1000]])
        self.assertEqual(found["forward_16"]["kernels_ms"], 5)

    def test_output_without_a_table_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "ncu gave no table: ==ERROR== no permission"):
            dram.totals("==ERROR== no permission")


class Look(unittest.TestCase):
    """Figures of the part `look`, from a program in the place of bench_look."""

    FIGURES = [{"method": "copies to the GPU", "options": "2 streams", "unit": "GB/s", "value": 50, "spread": [49, 51]},
               {"method": "kernels", "options": "letterbox to 640", "unit": "us a picture", "value": 12, "spread": [11, 13], "bytes": 9600000}]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        self.script("nvidia-smi", "echo 5, 16")
        for patch in (mock.patch.object(look, "BUNDLE", self.folder), mock.patch.dict(os.environ, {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"})):
            patch.start()
            self.addCleanup(patch.stop)
        self.records = []

    def script(self, name, text):
        (self.folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def program(self, figures, code=0):
        lines = "\n".join(map(json.dumps, figures))
        self.script("bench_look", f"cat <<'END'\n{lines}\nEND\necho a reason >&2\nexit {code}")
        return look.of_program(lambda measurement, **key: self.records.append(key | measurement()))

    def test_figures_get_the_roof_of_the_link_and_the_floor_of_their_bytes(self):
        self.assertEqual(self.program(self.FIGURES)["unit"], "s")
        copies, kernel = self.records
        self.assertEqual(copies | {"limit": 63.008, "limit_of": "PCIe 5.0 x16"}, copies)
        self.assertEqual((kernel["method"], kernel["options"], kernel["limit_of"]), ("kernels", "letterbox to 640", "its bytes at 4.8 TB/s"))
        self.assertAlmostEqual(kernel["limit"], 2)
        shown = tables.look([{"what": "look", **record} for record in self.records])
        self.assertIn("| copies to the GPU | 2 streams | 50 (49 to 51) | GB/s | 63: PCIe 5.0 x16 |", shown)

    def test_without_a_link_copies_have_no_roof(self):
        for said in ("echo N/A, 16", "exit 1", "echo 9, 16"):
            self.script("nvidia-smi", said)
            self.records.clear()
            self.program(self.FIGURES)
            self.assertNotIn("limit", self.records[0])

    def test_a_program_without_a_gpu_says_why_and_one_that_fails_is_a_failure(self):
        self.assertEqual(self.program([{"absent": "no CUDA-capable device is detected"}]), {"absent": "no CUDA-capable device is detected"})
        self.assertEqual(self.records, [])
        self.assertIn("| bench_look |  | absent, no driver |", tables.look([{"what": "look", "method": "bench_look", "absent": "no driver"}]))
        for figures, code in ((self.FIGURES, 1), ([], 0)):
            with self.assertRaisesRegex(Failed, f"exit code {code}: a reason"):
                self.program(figures, code)
        self.assertEqual(self.records, [])

    def test_threads_that_share_a_core_are_counted(self):
        for shared, expected in (("0,2 1,3 0,2 1,3", (4, 2, 2.0)), ("0 1 2 3", (4, 4, 1.0)), ("0-1 0-1 2,7 3", (4, 3, 4 / 3))):
            for thread, siblings in enumerate(shared.split()):
                file = self.folder / f"cpu{thread}/topology/thread_siblings_list"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(siblings + "\n")
            with mock.patch.object(os, "sched_getaffinity", return_value={0, 1, 2, 3}):
                found = processor.threads_per_core(self.folder)
            self.assertEqual((found["threads"], found["cores"], found["threads_per_core"]), expected)


class Numbers(unittest.TestCase):
    def test_shared_memory_limits_the_number_of_workers(self):
        self.assertEqual(peers.in_memory(8, 1 << 20, 1 << 30), (8, 2))
        self.assertEqual(peers.in_memory(8, 1 << 20, 15 << 20), (8, 1))
        self.assertEqual(peers.in_memory(8, 1 << 20, 10 << 20), (6, 1))
        self.assertEqual(peers.in_memory(8, 1 << 20, 0), (1, 1))


class WithPictures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pixels = (np.add.outer(np.add.outer(np.arange(96), 2 * np.arange(120)), np.arange(3)) % 256).astype(np.uint8)
        (self.folder / "pictures").mkdir()
        for name in ("a", "b"):
            Image.fromarray(self.pixels).save(self.folder / f"pictures/{name}.jpg", quality=90)

    def without(self, *modules):
        """An environment in which importing these modules fails."""
        for module in modules:
            (self.folder / "without" / module).mkdir(parents=True)
            (self.folder / "without" / module / "__init__.py").write_text("raise ImportError('none here')\n")
        return {**os.environ, "PYTHONPATH": str(self.folder / "without")} if modules else dict(os.environ)


class Scripts(WithPictures):
    def command(self, *more):
        (self.folder / "m.jsonl").write_text("".join(json.dumps({"path": str(path), "boxes": [[5, 5, 40, 30, 0]] * (1 + k)}) + "\n"
                                                     for k, path in enumerate(sorted((self.folder / "pictures").iterdir()))))
        return [sys.executable, "-B", GPU / "peers.py", self.folder / "m.jsonl", "--detector", PACKAGES / "yolov8n.pkg", "--segmenter", PACKAGES / "sam_small.pkg",
                "--device", "cpu", "--side", "256", "--batch", "3", "--workers", "1", "--compile-seconds", "0", *more]

    def test_without_opencv_pictures_are_read_by_pillow(self):
        done = subprocess.run(self.command(), input="2\n1\n", env=self.without("cv2"), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        settings, two, one = map(json.loads, done.stdout.splitlines())
        self.assertIn("Pillow", settings["imaging"])
        self.assertEqual((settings["batch"], settings["workers"], settings["dtype"]), (1, 1, "float32"))
        self.assertEqual((two["pictures"], one["pictures"]), (2, 1))

    def test_without_opencv_and_pillow_the_message_names_both(self):
        done = subprocess.run(self.command(), input="2\n", env=self.without("cv2", "PIL"), capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("neither OpenCV nor Pillow can be imported; install one of them", done.stderr)

    def test_the_tuned_script_takes_batches_that_are_not_full(self):
        script = Turns(*self.command("--tuned"), seconds=600)
        try:
            ways = {"torch.jit.freeze", "torch.jit.freeze, no fuser", "torch.jit.optimize_for_inference"}
            self.assertIn(script.settings["compiled"], ways)
            self.assertEqual(set(script.settings["tried"]), ways)
            self.assertTrue(all(isinstance(milliseconds, float) for milliseconds in script.settings["tried"].values()))
            self.assertEqual(script.settings["workers"], 1)
            for pictures in (1, 2):
                self.assertEqual(script(pictures, 60)["pictures"], pictures)
        finally:
            script.close()


class InTurns(unittest.TestCase):
    def test_a_script_does_not_outlive_its_owner(self):
        sleeper = "import os, time; print('{\"pid\": %d}' % os.getpid(), flush=True); time.sleep(60)"
        owner = f"import sys; from turns import Turns; print(Turns(sys.executable, '-c', {sleeper!r}, seconds=30).settings['pid'], flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", owner], cwd=GPU, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            pid = int(process.stdout.readline())
            process.kill()
        for _ in range(100):
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state == "Z":
                return
            time.sleep(0.1)
        self.fail(f"process {pid} still exists after ten seconds")

    def test_a_script_that_ends_or_hangs_fails_with_its_message(self):
        program = "import sys; print('chatter'); print('{}', flush=True); sys.stdin.readline(); sys.exit('no more')"
        script = Turns(sys.executable, "-c", program, seconds=20)
        with self.assertRaisesRegex(Failed, "no more"):
            script(1, 20)
        with self.assertRaisesRegex(Failed, "no answer in 0 s"):
            Turns(sys.executable, "-c", "import time; time.sleep(60)", seconds=0.3)
        with self.assertRaisesRegex(Failed, "nowhere"):
            Turns("/nowhere/at/all", seconds=1)


class HardwareDecoder(WithPictures):
    library = os.environ.get("MILLRACE_FAKE_NVJPEG")  # of tests/gpu/fake_nvjpeg.cpp

    def measure(self, fails="", library=None, env=None, engines="2x4", sizes=(5,)):
        done = subprocess.run([sys.executable, "-B", GPU / "nvjpeg.py", self.folder / "pictures", "--device", "cpu", "--seconds", "0", "--batch", *map(str, sizes),
                               "--library", library or self.library], env={**(env or os.environ), "FAKE_NVJPEG": fails, "FAKE_NVJPEG_ENGINES": engines, "FAKE_NVJPEG_PIXELS": "pattern"}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return last_json(done)

    def test_it_is_counted_timed_and_compared(self):
        found = self.measure()
        self.assertEqual((found["engines"], found["cores_per_engine"], found["pictures"], found["unsupported"]), (2, 4, 2, 0))
        self.assertGreater(found["pictures_per_s"], 0)
        self.assertEqual(found["batch_size"], 5)
        with Image.open(self.folder / "pictures/a.jpg") as decoded:
            difference = np.abs(np.asarray(decoded).astype(int) - self.pixels)
        self.assertAlmostEqual(found["mean_difference"], difference.mean(), delta=0.05)  # the decoders differ
        self.assertAlmostEqual(found["max_difference"], difference.max(), delta=3)
        self.assertIn("cv2", found["reference"])
        self.assertIn("Pillow", self.measure(env=self.without("cv2"))["reference"])

    def test_differences_are_exact_pixel_by_pixel(self):
        for name, value in (("a", 0), ("b", 255)):  # JPEG does not change a picture of one colour
            Image.new("RGB", (120, 96), (value,) * 3).save(self.folder / f"pictures/{name}.jpg", quality=100)
        found = self.measure()
        self.assertEqual(found["max_difference"], 255)
        self.assertAlmostEqual(found["mean_difference"], 127.5, delta=1e-9)

    def test_its_line_is_below_the_table_of_cores(self):
        shown = tables.decode([{"what": "decode", "workers": 2, "failed": "why"}, {"what": "hardware decoder", **self.measure()}])
        self.assertIn("| 2 | failed |", shown)
        self.assertRegex(shown, r"JPEG decoder: 2 engines of 4 cores, \d+ JPEGs/s, off from cv2 [\d.]+ by [\d.]+ of 255 in the mean and \d+ at most")
        self.assertIn("absent, nvjpegCreateEx: ARCH_MISMATCH", tables.hardware(self.measure("nvjpegCreateEx")))

    def test_batches_of_several_sizes_are_timed_and_the_largest_is_compared(self):
        found = self.measure(sizes=(5, 2))
        self.assertEqual((list(found["by_batch_size"]), found["batch_size"], found["pictures"]), (["2", "5"], 5, 2))
        self.assertEqual([found["pictures_per_s"], *found["spread"]], found["by_batch_size"]["5"])
        self.assertGreater(min(found["by_batch_size"]["2"]), 0)

    def test_a_step_that_fails_is_named_with_its_status(self):
        self.assertEqual(self.measure("nvjpegCreateEx"), {"absent": "nvjpegCreateEx: ARCH_MISMATCH"})
        self.assertEqual(self.measure("nvjpegGetHardwareDecoderInfo"), {"absent": "nvjpegGetHardwareDecoderInfo: ARCH_MISMATCH"})
        self.assertEqual(self.measure(engines="0x4"), {"absent": "nvjpegGetHardwareDecoderInfo: 0 engines"})
        self.assertEqual(self.measure("nvjpegDecodeBatched")["failed"], "nvjpegDecodeBatched: ARCH_MISMATCH")
        self.assertEqual(self.measure("nvjpegDecodeBatchedSupported")["failed"], "nvjpegDecodeBatchedSupported: none of 2 pictures")
        self.assertIn("loading /nowhere.so", self.measure(library="/nowhere.so")["absent"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
