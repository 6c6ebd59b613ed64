"""The plan names the CPU instructions of models. A resumed run uses the same ones on any CPU, or is refused."""

import json
import signal
import subprocess
import time
import unittest

import program
from program import Case, millrace

LEVELS = ("sse4.1", "avx2", "avx512")
# Variables with which a user limits one of the libraries to older instructions.
LIMITED_CPUS = ({"ATEN_CPU_CAPABILITY": "default"}, {"ONEDNN_MAX_CPU_ISA": "SSE41"}, {"DNNL_MAX_CPU_ISA": "sse41"}, {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
             {"MKL_CBWR": "COMPATIBLE"})


class CpuLevels(Case):
    def setUp(self):
        super().setUp()
        program.write_pictures(self.folder / "in", 3, 90, 70)

    def words(self, out, *more):
        return ("run", "--input", self.folder / "in", "--output", self.folder / out, "--detector", program.package("yolov8n"), "--segmenter",
                program.package("sam_small"), "--device", "cpu", "--set", "threads.team=1", "--set", "detect.conf=0.001", "--set",
                "detect.max_detections=5", *more)

    def bytes_of(self, out, *more, **env):
        """(bytes of the run's segment, level in its plan)."""
        done = millrace(*self.words(out, *more), env=env)
        self.assertEqual(done.code, program.OK, done)
        return (self.folder / out / "segments/000000.jsonl").read_bytes(), self.level(out)

    def level(self, out):
        return json.loads((self.folder / out / "plan/plan.json").read_text())["settings"]["cpu_level"]

    def best(self):
        level = next(line.split()[2].rstrip(",:") for line in millrace("doctor").out.splitlines() if line.startswith("CPU level"))
        self.assertIn(level, LEVELS)
        if level == "sse4.1":
            raise unittest.SkipTest("this CPU has one level only")
        return level

    def test_a_level_repeats_its_bytes_and_another_level_has_others(self):
        best = self.best()
        seen = {}
        for level in LEVELS[: LEVELS.index(best) + 1]:
            first, planned = self.bytes_of(f"{level}-a", "--set", f"device.cpu={level}")
            self.assertEqual(planned, level)
            self.assertEqual(self.bytes_of(f"{level}-b", "--set", f"device.cpu={level}")[0], first)
            seen[level] = first
        self.assertNotEqual(seen["sse4.1"], seen[best])  # else this test could not fail; avx2 and avx512 may agree
        self.assertEqual(self.bytes_of("auto"), (seen[best], best))
        for i, pretence in enumerate(LIMITED_CPUS):  # a limit on one library limits all three
            self.assertEqual(self.bytes_of(f"less{i}", **pretence), (seen["sse4.1"], "sse4.1"), pretence)

    def test_bf16_takes_a_level_of_its_own_and_repeats_its_bytes(self):
        self.best()
        line = next(line for line in millrace("doctor").out.splitlines() if line.startswith("CPU level"))
        if "for bf16 " not in line:
            raise unittest.SkipTest("this CPU has no bf16")
        level = line.partition("for bf16 ")[2].split(":")[0]
        fast = ("--precision", "segment=bf16")
        whole, planned = self.bytes_of("bf16", *fast)
        self.assertEqual(planned, level)
        self.assertEqual(json.loads((self.folder / "bf16/plan/plan.json").read_text())["settings"]["precision"], "detect fp32, segment bf16")
        self.assertEqual(self.bytes_of("again", *fast), (whole, level))
        self.assertNotEqual(self.bytes_of("fp32")[0], whole)
        done = millrace(*self.words("bf16", *fast), env={"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"})
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertIn(f"needs a CPU with '{level}'; this machine has at most 'avx512'", done.err)

    def test_a_plan_keeps_its_level_on_a_cpu_with_a_higher_one(self):
        self.best()
        whole, _ = self.bytes_of("whole", **LIMITED_CPUS[0])
        # The first attempt is killed in the middle, on a CPU with a lower level.
        running = subprocess.Popen([program.PROGRAM, *map(str, self.words("cut"))], env={**program.os.environ, **LIMITED_CPUS[0]}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        while running.poll() is None and not list((self.folder / "cut").glob("segments/*.part")):
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
        self.assertEqual(self.level("cut"), "sse4.1")
        self.assertEqual(self.bytes_of("cut"), (whole, "sse4.1"))

    def test_a_plan_is_refused_on_a_cpu_with_a_lower_level(self):
        best = self.best()
        before, _ = self.bytes_of("out")
        for more in ((), ("--dry-run",)):
            done = millrace(*self.words("out", *more), env=LIMITED_CPUS[0])
            self.assertEqual(done.code, program.MISMATCH, done)
            self.assertIn(f"needs a CPU with '{best}'; this machine has at most 'sse4.1'", done.err)
            self.assertIn(f"Continue on a machine with '{best}', or use a new output folder", done.err)
        done = millrace(*self.words("out", "--set", "device.cpu=sse4.1"))
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertIn(f'cpu_level: "{best}" in the plan, "sse4.1" now', done.err)
        self.assertEqual((self.folder / "out/segments/000000.jsonl").read_bytes(), before)

    def test_the_plan_names_the_instructions_of_mkl(self):
        best = self.best()
        maker = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("vendor_id"))
        for level in LEVELS[: LEVELS.index(best) + 1]:
            self.bytes_of(level, "--set", f"device.cpu={level}")
            found = json.loads((self.folder / level / "plan/plan.json").read_text())["settings"]["mkl_instructions"]
            held = maker == "GenuineIntel" or level == "sse4.1"
            self.assertIn(found, [level] if held else [f"{maker} {highest}" for highest in LEVELS])

    def test_a_level_is_refused_if_no_model_runs_on_a_cpu(self):
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        done = millrace("run", recipe, "--input", self.folder / "in", "--output", self.folder / "out", "--set", "device.cpu=sse4.1")
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("device.cpu is 'sse4.1', but no model of this run computes on a CPU; leave it out", done.err)

    def test_unknown_levels_and_levels_above_this_cpu_are_refused(self):
        done = millrace(*self.words("out", "--set", "device.cpu=sse"))
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("device.cpu is 'sse'; it can be auto, amx, avx512_bf16, avx512, avx2 or sse4.1", done.err)
        done = millrace(*self.words("out", "--set", "device.cpu=avx512"), env=LIMITED_CPUS[0])
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("device.cpu is 'avx512', but this machine has at most 'sse4.1'", done.err)
        done = millrace(*self.words("out", "--precision", "segment=bf16"), env=LIMITED_CPUS[0])
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("device.precision names bf16, but models compute with the instructions 'sse4.1', which have no bf16", done.err)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    program.main()
