"""The last part of a SAM decoder as one kernel for GPUs: image tokens and mask weights in, logits out.

Compilers end a kernel at each matrix product. Between its two products, upscaling has tensors of 2 and 4 MB a box.
This kernel keeps them in registers. Triton compiles it, and `millrace compile` puts it into the code of a variant.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton
from torch.nn import functional

TYPES = (torch.float16, torch.bfloat16)  # in float32, products do not run on matrix units, and registers do not suffice
SMALLEST = 16  # each side of a product, in Triton
BLOCK, CHUNK, WARPS, STAGES = 128, 32, 8, 3  # with these, registers suffice from sm_80 to sm_90


@triton.jit
def gelu(x):
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def upscaling_kernel(
    image, up1, bias1, gamma, beta, up2, bias2, weights, detail1, detail2, image_index, logits, tokens, epsilon,
    D: tl.constexpr, MASKS: tl.constexpr, DETAILS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """A block has the upscaling of BLOCK tokens of a box."""
    WIDE: tl.constexpr = D // 4
    NARROW: tl.constexpr = D // 8
    box = tl.program_id(1).to(tl.int64)  # 64 bits for the beginnings of a box, 32 for places in it
    image += box * tokens * D
    weights += box * MASKS * NARROW
    logits += box * MASKS * tokens * 16
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows < tokens)[:, None]
    wide, narrow, chunk = tl.arange(0, WIDE), tl.arange(0, NARROW), tl.arange(0, CHUNK)
    if DETAILS:
        picture = tl.load(image_index + box)
        detail1 += picture * tokens * D
        detail2 += picture * tokens * 16 * NARROW
    scale, shift = tl.load(gamma + wide).to(tl.float32)[None, :], tl.load(beta + wide).to(tl.float32)[None, :]
    for place in range(4):
        columns = place * WIDE + wide
        y = tl.load(bias1 + columns).to(tl.float32)[None, :] + tl.zeros((BLOCK, WIDE), tl.float32)
        if DETAILS:
            y += tl.load(detail1 + rows[:, None] * D + columns[None, :], mask=inside, other=0).to(tl.float32)
        for begin in range(0, D, CHUNK):
            x = tl.load(image + rows[:, None] * D + begin + chunk[None, :], mask=inside, other=0)
            y = tl.dot(x, tl.load(up1 + (begin + chunk[:, None]) * D + columns[None, :]), y, input_precision="ieee")
        y -= (tl.sum(y, 1) / WIDE)[:, None]
        y = gelu(y * tl.rsqrt(tl.sum(y * y, 1) / WIDE + epsilon)[:, None] * scale + shift).to(up2.dtype.element_ty)
        found = ()  # logits of the four places and, for each, of the masks
        for inner in tl.static_range(4):
            columns = inner * NARROW + narrow
            z = tl.load(bias2 + columns).to(tl.float32)[None, :] + tl.zeros((BLOCK, NARROW), tl.float32)
            if DETAILS:
                z += tl.load(detail2 + (rows[:, None] * 4 + place) * (4 * NARROW) + columns[None, :], mask=inside, other=0).to(tl.float32)
            z = gelu(tl.dot(y, tl.load(up2 + wide[:, None] * (4 * NARROW) + columns[None, :]), z, input_precision="ieee"))
            for mask in tl.static_range(MASKS):
                found += (tl.sum(z * tl.load(weights + mask * NARROW + narrow).to(tl.float32)[None, :], 1),)
        for mask in tl.static_range(MASKS):
            # Of two joins, the first makes the first of both new dimensions.
            even, odd = tl.join(found[mask], found[2 * MASKS + mask]), tl.join(found[MASKS + mask], found[3 * MASKS + mask])
            out = logits + (mask * tokens + rows[:, None]) * 16 + 4 * place + tl.arange(0, 4)[None, :]
            tl.store(out, tl.reshape(tl.join(even, odd), (BLOCK, 4)).to(logits.dtype.element_ty), mask=inside)


def possible(width, dtype):
    """Whether the kernel takes image tokens of this type, with this number of channels."""
    return dtype in TYPES and width >= 8 * SMALLEST and width & (width - 1) == 0


@triton_op("millrace::upscale", mutates_args=())
def upscale(
    image: Tensor, up1: Tensor, bias1: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, up2: Tensor, bias2: Tensor,
    weights: Tensor, detail1: Tensor | None, detail2: Tensor | None, image_index: Tensor | None,
) -> Tensor:  # fmt: skip
    """Logits [B, M, 16 N] from image tokens [B, N, D] and the weights of masks [B, M, D / 8].

    - up1 [D, D], bias1 [D]: the first transposed convolution, for its 2 x 2 places; gamma, beta [D / 4]: its LayerNorm
    - up2 [D / 4, D / 2], bias2 [D / 2]: the second one
    - detail1 [P, N, D], detail2 [P, N, 4, D / 2]: what SAM 2 adds to their results; image_index [B] has each box's picture
    """
    return by_kernel(wrap_triton(upscaling_kernel), image, up1, bias1, gamma, beta, epsilon, up2, bias2, weights, detail1, detail2, image_index)


def by_kernel(kernel, image, up1, bias1, gamma, beta, epsilon, up2, bias2, weights, detail1, detail2, image_index):
    """Launches the kernel."""
    image, weights, detail1, detail2 = (tensor if tensor is None else tensor.contiguous() for tensor in (image, weights, detail1, detail2))
    boxes, tokens, width = image.shape
    masks = weights.shape[1]
    logits = image.new_empty([boxes, masks, 16 * tokens])
    details = (image, image, image) if detail1 is None else (detail1, detail2, image_index)  # not read without DETAILS
    kernel[(triton.cdiv(tokens, BLOCK), boxes)](
        image, up1, bias1, gamma, beta, up2, bias2, weights, *details, logits, tokens, epsilon,
        D=width, MASKS=masks, DETAILS=detail1 is not None, BLOCK=BLOCK, CHUNK=CHUNK, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return logits


def plain(image, up1, bias1, gamma, beta, epsilon, up2, bias2, weights, detail1, detail2, image_index):
    """The same without the kernel: its definition, for tests."""
    y = image @ up1 + bias1
    if detail1 is not None:
        y = y + detail1[image_index]
    y = functional.layer_norm(y.unflatten(2, [4, -1]), [up1.shape[0] // 4], gamma, beta, epsilon)
    y = functional.gelu(y) @ up2 + bias2
    if detail2 is not None:
        y = y + detail2[image_index]
    y = functional.gelu(y).unflatten(3, [4, -1]).flatten(1, 3)
    return weights @ y.transpose(1, 2)


upscale.register_kernel("cpu")(plain)
