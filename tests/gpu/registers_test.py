"""What each kernel of Millrace needs on each architecture: no local memory beyond registers, and at most 80 of those.

    registers_test.py NVCC FLAG...

FLAG are those of the build. The architectures are those of a bundle (tools/gpu_bundle.sh).

A kernel that spills registers goes through memory, and one with many registers leaves room for few threads.
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NVCC, *FLAGS = sys.argv[1:]
ARCHITECTURES = sorted(set(re.findall(r"\b(\d\d)-real", (ROOT / "tools/gpu_bundle.sh").read_text())))
MAX_REGISTERS = 80

# A block of 1024 threads leaves 64 registers to each, so the values of the loop do not all fit.
SPILLS = """namespace millrace {
__global__ void __launch_bounds__(1024) spills(const float* in, float* out) {
  float values[96];
  for (int i = 0; i < 96; ++i) values[i] = in[threadIdx.x * 96 + i];
  for (int round = 0; round < 9; ++round)
    for (int i = 0; i < 96; ++i) values[i] = values[i] * values[(i + 7) % 96] + values[(i + 11) % 96];
  for (int i = 0; i < 96; ++i) out[threadIdx.x * 96 + i] = values[i];
}
}  // namespace millrace
"""


def resources(source):
    """(kernel, architecture, registers, bytes of spilled registers and of the stack) of Millrace's kernels in this file."""
    flags = ["-std=c++20", "-O3", *FLAGS, "--resource-usage", "--cubin", "-I", ROOT]
    found = []
    for architecture in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            command = [NVCC, *flags, f"-arch=sm_{architecture}", "-o", Path(folder) / "out.cubin", source]
            done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        pattern = r"Compiling entry function '(\S+)' for 'sm_(\d+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers"
        for name, of, stack, stores, loads, registers in re.findall(pattern, done.stdout, re.DOTALL):
            if "8millrace" in name:  # those of CUB are not ours
                found.append((name, of, int(registers), int(stack) + int(stores) + int(loads)))
    return found


def too_large(kernels):
    return [kernel for kernel in kernels if kernel[2] > MAX_REGISTERS or kernel[3] > 0]


class Registers(unittest.TestCase):
    def test_kernels(self):
        sources = sorted([*ROOT.glob("gpu/ops/*.cu"), *ROOT.glob("gpu/streams/*.cu")])
        self.assertGreaterEqual(len(sources), 4)
        self.assertGreaterEqual(len(ARCHITECTURES), 4)
        for source in sources:
            with self.subTest(source.name):
                kernels = resources(source)
                self.assertEqual({kernel[1] for kernel in kernels}, set(ARCHITECTURES))
                for name in re.findall(r"^__global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(", source.read_text(), re.MULTILINE):
                    of_kernel = {kernel[1] for kernel in kernels if f"{len(name)}{name}" in kernel[0]}  # as in mangled names
                    self.assertEqual(of_kernel, set(ARCHITECTURES), name)
                self.assertEqual(too_large(kernels), [])

    def test_a_planted_kernel_that_spills_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "spills.cu"
            source.write_text(SPILLS)
            self.assertEqual(len(too_large(resources(source))), len(ARCHITECTURES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
