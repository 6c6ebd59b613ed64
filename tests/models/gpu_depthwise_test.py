#!/usr/bin/env python3
"""The kernel of depthwise convolutions on the CPU, by Triton's interpreter; and what its machine code for GPUs needs."""

import itertools
import os
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models" / "export"), str(Path(__file__).resolve().parent)]
COMPILES = sys.argv[1:] == ["compile"]  # this process prints what machine code needs; the interpreter has no compiler
if not COMPILES:
    os.environ["TRITON_INTERPRET"] = "1"

import gpu_depthwise  # noqa: E402
import torch  # noqa: E402
import triton_code  # noqa: E402

TYPES = {torch.float32: 0, torch.float16: 2**-11}  # the rounding of a result. Triton's interpreter does not round to bf16 as a GPU does
BOUND = 5e-6  # for sums in float32 of about ten products near 1
MOST_REGISTERS = 80  # so that an SM has 24 warps


def example(pictures, channels, height, width, dtype=torch.float32):
    """Arguments of `depthwise` without the last one."""
    images = torch.randn(pictures, channels, height, width).to(dtype).contiguous(memory_format=torch.channels_last)
    return [images, (torch.randn(9, channels) / 3).to(dtype), torch.randn(channels).to(dtype)]


def by_kernel(*arguments):
    return gpu_depthwise.by_kernel(gpu_depthwise.depthwise_kernel, *arguments)


class Depthwise(unittest.TestCase):
    def test_the_kernel_equals_its_definition(self):
        torch.manual_seed(0)
        block, part, rows = gpu_depthwise.BLOCK, gpu_depthwise.SLICE, gpu_depthwise.ROWS
        # Exactly one block; several of each kind, the last ones partly filled; a pixel, whose neighbours are all outside.
        sizes = ((1, part, rows, block), (2, part + 6, 2 * rows + 3, block + 3), (1, 3, 1, 1), (1, 2 * part + 2, 5, 2 * block + 1))
        for dtype, size, gelu in itertools.product(TYPES, sizes, (False, True)):
            with self.subTest(dtype=dtype, size=size, gelu=gelu):
                arguments = example(*size, dtype)
                expected = gpu_depthwise.plain(*(tensor.double() for tensor in arguments), gelu)
                found = by_kernel(*arguments, gelu)
                self.assertEqual((found.dtype, found.shape), (dtype, expected.shape))
                self.assertTrue(found.is_contiguous(memory_format=torch.channels_last))
                torch.testing.assert_close(found.double(), expected, rtol=TYPES[dtype], atol=BOUND)

    def test_each_value_of_an_argument_matters(self):
        """The bounds find one that the kernel leaves out or takes from elsewhere."""
        torch.manual_seed(0)
        arguments = example(2, 5, 3, 4)
        expected = by_kernel(*arguments, True)
        for i, value in enumerate(arguments):
            for dimension in range(value.dim()):
                changed = by_kernel(*arguments[:i], value.roll(1, dimension).contiguous(memory_format=torch.channels_last) if i == 0 else value.roll(1, dimension), *arguments[i + 1 :], True)
                self.assertGreater((changed - expected).abs().max().item(), 100 * BOUND, (i, dimension))

    def test_images_may_have_any_layout(self):
        torch.manual_seed(0)
        images, *more = example(2, 6, 7, 5)
        torch.testing.assert_close(by_kernel(images.contiguous(), *more, False), by_kernel(images, *more, False), rtol=0, atol=0)

    def test_the_machine_code_keeps_its_values_in_registers(self):
        lines = triton_code.printed_by(__file__)
        self.assertEqual([line[0] for line in lines], list(triton_code.SHARED))
        for architecture, stack, registers in lines:
            with self.subTest(architecture=architecture):
                self.assertEqual(stack, 0)
                self.assertLessEqual(registers, MOST_REGISTERS)


def print_needs():
    """For each architecture: memory for registers in bytes, and the number of registers."""
    constants = {"HEIGHT": 256, "WIDTH": 256, "CHANNELS": 256, "GELU": True, "BLOCK": gpu_depthwise.BLOCK, "SLICE": gpu_depthwise.SLICE, "ROWS": gpu_depthwise.ROWS}
    for architecture in triton_code.SHARED:
        types = dict.fromkeys(("images", "taps", "bias", "result"), "*fp16" if architecture == 75 else "*bf16")
        _, stack, registers = triton_code.needs(gpu_depthwise.depthwise_kernel, types, constants, architecture, num_warps=gpu_depthwise.WARPS)
        print(architecture, stack, registers, flush=True)


if __name__ == "__main__":
    if COMPILES:
        print_needs()
    else:
        unittest.main(verbosity=2)
