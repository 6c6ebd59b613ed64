#!/usr/bin/env python3
"""The kernel of upscaling on the CPU, by Triton's interpreter; and what its machine code for GPUs needs."""

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

import gpu_upscaling  # noqa: E402
import torch  # noqa: E402
import triton_code  # noqa: E402

# Registers do not suffice on sm_75.
ARCHITECTURES = {architecture: size for architecture, size in triton_code.SHARED.items() if architecture > 75}
# Triton's interpreter has no products in bf16.
BOUNDS = {torch.float32: (1e-6, 1e-5), torch.float16: (1e-3, 1e-2)}  # rms and maximum, in standard deviations


def example(boxes, tokens, width, masks, details, dtype=torch.float32):
    """Arguments of `upscale`. Some boxes share a picture, and the last picture has none."""

    def noise(*shape):
        return torch.randn(shape).to(dtype)

    more = (noise(3, tokens, width), noise(3, tokens, 4, width // 2), torch.arange(boxes).flip(0) % 2) if details else (None,) * 3
    first, second = noise(width, width) / width**0.5, noise(width // 4, width // 2) / (width / 4) ** 0.5
    return [noise(boxes, tokens, width), first, noise(width), noise(width // 4), noise(width // 4), 1e-6, second, noise(width // 2), noise(boxes, masks, width // 8), *more]


def widened(arguments):
    return [value.double() if torch.is_tensor(value) and value.is_floating_point() else value for value in arguments]


class Upscaling(unittest.TestCase):
    def test_the_kernel_equals_its_definition(self):
        torch.manual_seed(0)
        block = gpu_upscaling.BLOCK
        tables = itertools.product(BOUNDS, ((1, 5), (3, block), (2, 2 * block + 9)), (128, 256), ((1, False), (1, True), (4, True)))
        for dtype, (boxes, tokens), width, (masks, details) in tables:
            with self.subTest(dtype=dtype, boxes=boxes, tokens=tokens, width=width, masks=masks, details=details):
                arguments = example(boxes, tokens, width, masks, details, dtype)
                expected = gpu_upscaling.plain(*widened(arguments))
                found = gpu_upscaling.by_kernel(gpu_upscaling.upscaling_kernel, *arguments)
                self.assertEqual((found.dtype, found.shape), (dtype, (boxes, masks, 16 * tokens)))
                difference = (found - expected).abs() / expected.std()
                rms, most = BOUNDS[dtype]
                self.assertLess(difference.square().mean().sqrt().item(), rms)
                self.assertLess(difference.max().item(), most)

    def test_tensors_may_have_any_layout(self):
        torch.manual_seed(0)
        arguments = example(2, 20, 128, 4, True)
        expected = gpu_upscaling.by_kernel(gpu_upscaling.upscaling_kernel, *arguments)
        for i in (0, 8, 9, 10):  # the others are weights of a package, which has them side by side
            moved = arguments[i].transpose(1, 2).contiguous().transpose(1, 2)
            self.assertFalse(moved.is_contiguous())
            torch.testing.assert_close(gpu_upscaling.by_kernel(gpu_upscaling.upscaling_kernel, *arguments[:i], moved, *arguments[i + 1 :]), expected, rtol=0, atol=0)

    def test_each_argument_matters(self):
        """The bounds find one that the kernel leaves out or takes from elsewhere."""
        torch.manual_seed(0)
        arguments = example(3, 20, 128, 2, True)
        expected = gpu_upscaling.plain(*widened(arguments))
        for i, value in enumerate(arguments):
            changed = 0.1 if i == 5 else 1 - value if i == 11 else value.roll(1, -1)
            found = gpu_upscaling.by_kernel(gpu_upscaling.upscaling_kernel, *arguments[:i], changed, *arguments[i + 1 :])
            self.assertGreater((found - expected).std().item(), 100 * BOUNDS[torch.float32][0] * expected.std().item(), i)

    def test_the_machine_code_keeps_its_values_in_registers(self):
        lines = triton_code.printed_by(__file__)
        self.assertEqual(len(lines), 2 * len(ARCHITECTURES))
        for architecture, details, shared, stack in lines:
            with self.subTest(architecture=architecture, details=details):
                self.assertLessEqual(shared, ARCHITECTURES[architecture])
                self.assertEqual(stack, 0, "registers go through memory")


def print_needs():
    """For each architecture, with and without details: shared memory, and memory for registers, in bytes."""
    tensors = ("image", "up1", "bias1", "gamma", "beta", "up2", "bias2", "weights", "detail1", "detail2", "logits")
    types = dict.fromkeys(tensors, "*bf16") | {"image_index": "*i64", "tokens": "i32", "epsilon": "fp32"}
    for architecture, details in itertools.product(ARCHITECTURES, (False, True)):
        constants = {"D": 256, "MASKS": 4 if details else 1, "DETAILS": details, "BLOCK": gpu_upscaling.BLOCK, "CHUNK": gpu_upscaling.CHUNK}
        shared, stack, _ = triton_code.needs(gpu_upscaling.upscaling_kernel, types, constants, architecture, num_warps=gpu_upscaling.WARPS, num_stages=gpu_upscaling.STAGES)
        print(architecture, int(details), shared, stack, flush=True)


if __name__ == "__main__":
    if COMPILES:
        print_needs()
    else:
        unittest.main(verbosity=2)
