"""A depthwise convolution of 3 x 3 pixels as one kernel for GPUs, with the GELU that often follows it.

As a sum of shifted products, Inductor's code computes places and bounds nine times for each value. This kernel walks down
the rows of a strip: it loads three values for each result, and keeps three sums in registers.
"""

import torch
import triton
import triton.language as tl
from gpu_upscaling import TYPES, gelu
from torch import Tensor
from torch.library import triton_op, wrap_triton
from torch.nn import functional

BLOCK, SLICE, ROWS, WARPS = 16, 64, 32, 8  # four channels of a pixel for each thread


@triton.jit
def depthwise_kernel(
    images, taps, bias, result,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, GELU: tl.constexpr,
    BLOCK: tl.constexpr, SLICE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A block has ROWS rows of BLOCK pixels, and SLICE channels of them. Images have channels last.

    The sizes are constants: Inductor cannot link code with two kernels whose machine code is the same.
    """
    blocks = tl.cdiv(WIDTH, BLOCK)
    xs = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = (tl.program_id(0) // blocks) * SLICE + tl.arange(0, SLICE)[None, :]
    top = tl.program_id(1) * ROWS
    image = tl.program_id(2).to(tl.int64) * HEIGHT * WIDTH * CHANNELS  # 64 bits for the beginning of an image, 32 in it
    images += image
    result += image
    here = (xs < WIDTH) & (c < CHANNELS)
    left, right = here & (xs > 0), here & (xs < WIDTH - 1)
    add = tl.load(bias + c, mask=c < CHANNELS, other=0).to(tl.float32)
    w00, w01, w02 = tap(taps, 0, c, CHANNELS), tap(taps, 1, c, CHANNELS), tap(taps, 2, c, CHANNELS)
    w10, w11, w12 = tap(taps, 3, c, CHANNELS), tap(taps, 4, c, CHANNELS), tap(taps, 5, c, CHANNELS)
    w20, w21, w22 = tap(taps, 6, c, CHANNELS), tap(taps, 7, c, CHANNELS), tap(taps, 8, c, CHANNELS)
    above = tl.zeros((BLOCK, SLICE), tl.float32) + add  # the sum of the row above
    this = above
    for step in range(ROWS + 2):
        y = top + step - 1
        inside = (y >= 0) & (y < HEIGHT)
        at = images + (y * WIDTH + xs) * CHANNELS + c
        before = tl.load(at - CHANNELS, mask=left & inside, other=0).to(tl.float32)
        middle = tl.load(at, mask=here & inside, other=0).to(tl.float32)
        after = tl.load(at + CHANNELS, mask=right & inside, other=0).to(tl.float32)
        above += w20 * before + w21 * middle + w22 * after
        if step >= 2:
            if GELU:
                above = gelu(above)
            tl.store(result + ((y - 1) * WIDTH + xs) * CHANNELS + c, above.to(result.dtype.element_ty), mask=here & (y <= HEIGHT))
        above = this + w10 * before + w11 * middle + w12 * after
        this = add + w00 * before + w01 * middle + w02 * after


@triton.jit
def tap(taps, which, c, channels: tl.constexpr):
    return tl.load(taps + which * channels + c, mask=c < channels, other=0).to(tl.float32)


def possible(weight, stride, padding, dtype):
    """Whether the kernel computes depthwise convolutions with a weight of this shape and these arguments."""
    return dtype in TYPES and tuple(weight[1:]) == (1, 3, 3) and tuple(stride) == (1, 1) and tuple(padding) == (1, 1)


@triton_op("millrace::depthwise", mutates_args=())
def depthwise(images: Tensor, taps: Tensor, bias: Tensor, gelu: bool) -> Tensor:
    """The convolution of images [B, C, H, W], padded by a pixel, with taps [9, C] and bias [C]; then GELU if `gelu`.

    The result has its channels last in memory, and so should the images; others are copied.
    """
    return by_kernel(wrap_triton(depthwise_kernel), images, taps, bias, gelu)


def by_kernel(kernel, images, taps, bias, gelu):
    """Launches the kernel."""
    images = images.contiguous(memory_format=torch.channels_last)
    pictures, channels, height, width = images.shape
    result = torch.empty_like(images)
    grid = (triton.cdiv(width, BLOCK) * triton.cdiv(channels, SLICE), triton.cdiv(height, ROWS), pictures)
    kernel[grid](images, taps, bias, result, HEIGHT=height, WIDTH=width, CHANNELS=channels, GELU=gelu, BLOCK=BLOCK, SLICE=SLICE, ROWS=ROWS, num_warps=WARPS)
    return result


def plain(images, taps, bias, gelu):
    """The same without the kernel: its definition, for tests."""
    channels = taps.shape[1]
    result = functional.conv2d(images, taps.t().reshape(channels, 1, 3, 3), bias, padding=1, groups=channels)
    return functional.gelu(result) if gelu else result


depthwise.register_kernel("cpu")(plain)
