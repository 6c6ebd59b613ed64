#!/usr/bin/env python3
"""The form of models for GPUs: it computes the same, and moves fewer bytes."""

import copy
import os
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models" / "export"), str(ROOT / "bench")]
PACKAGES = Path(os.environ.get("MILLRACE_TEST_PACKAGES", ROOT / "build/release/test-packages"))

import compile as compiler  # noqa: E402
import gpu_graph  # noqa: E402
import gpu_upscaling  # noqa: E402
import model_cost  # noqa: E402
import programs  # noqa: E402
import torch  # noqa: E402
from box_decoder import BoxDecoder  # noqa: E402
from box_decoder_test import architecture  # noqa: E402
from box_decoder_test import inputs as inputs_of  # noqa: E402
from box_prompt_sam import attend  # noqa: E402
from export_case import shallow_sams  # noqa: E402
from torch import nn  # noqa: E402
from torch._inductor import config, select_algorithm  # noqa: E402
from torch.nn import functional  # noqa: E402

aten = torch.ops.aten


class Attention(nn.Module):
    """With the names of TinyViT's."""

    def __init__(self, heads, channels, tokens):
        super().__init__()
        self.num_heads, self.key_dim, self.d, self.scale = heads, channels, channels, channels**-0.5
        self.norm, self.qkv, self.proj = nn.LayerNorm(heads * channels), nn.Linear(heads * channels, 3 * heads * channels), nn.Linear(heads * channels, heads * channels)
        self.attention_biases = nn.Parameter(torch.randn(heads, tokens))
        self.register_buffer("attention_bias_idxs", torch.randint(tokens, (tokens, tokens)))
        self.forward = types.MethodType(attend, self)


def exported(module, *inputs):
    return torch.export.export(module, inputs, strict=False).module()


def count(module, target):
    return len(module.graph.find_nodes(op="call_function", target=target))


def flop_and_operations(module, *inputs):
    """As model_cost counts a module that is not compiled."""
    with torch.no_grad():
        return model_cost.operations(torch.export.export(module, inputs, strict=False), inputs)


def rms(tensor):
    return tensor.double().square().mean().sqrt().item()


class Form(unittest.TestCase):
    def same(self, module, *inputs):
        """The form of the module for a GPU, after a comparison with the module, also in bf16."""
        expected = module(*inputs)
        short = [tensor.bfloat16() if tensor.is_floating_point() else tensor for tensor in inputs]
        original = copy.deepcopy(module).bfloat16()(*short)
        # As `millrace compile` does: the export is in float32, its weights become narrow.
        narrow = compiler.with_weights(torch.export.export(module, tuple(inputs), strict=False), torch.bfloat16)
        difference = gpu_graph.for_gpu(narrow)(*short).float() - expected
        # Roundings of 2^-9 add up. Those of the original are as large.
        self.assertLess(difference.square().mean().sqrt().item(), 0.01 * expected.std().item() + 2 * (original.float() - expected).square().mean().sqrt().item())
        changed = gpu_graph.for_gpu(exported(module, *inputs))
        difference = changed(*inputs) - expected
        self.assertLess(difference.abs().max().item(), 1e-5 * expected.std().item())
        # As `millrace compile` does.
        torch.testing.assert_close(exported(changed, *inputs)(*inputs), changed(*inputs), rtol=0, atol=0)
        return changed

    @torch.no_grad()
    def test_attention(self):
        torch.manual_seed(0)
        for heads, channels, tokens in ((1, 8, 5), (3, 32, 49), (2, 16, 196)):
            with self.subTest(heads=heads, tokens=tokens):
                changed = self.same(Attention(heads, channels, tokens), torch.randn(4, tokens, heads * channels))
                self.assertEqual((count(changed, aten.softmax.int), count(changed, aten.scaled_dot_product_attention.default)), (0, 1))

    @torch.no_grad()
    def test_relative_positions(self):
        from ultralytics.models.sam.modules.blocks import REAttention

        torch.manual_seed(0)
        for size, channels, heads in (((14, 14), 32, 2), ((6, 5), 16, 1), ((3, 8), 8, 3), ((1, 4), 8, 1)):
            with self.subTest(size=size, heads=heads):
                attention = REAttention(channels * heads, num_heads=heads, use_rel_pos=True, input_size=size)
                for positions in (attention.rel_pos_h, attention.rel_pos_w):
                    positions.normal_(0, 0.5)
                inputs = torch.randn(3, *size, channels * heads)
                changed = exported(self.same(attention, inputs), inputs)
                self.assertEqual((count(changed, aten.softmax.int), count(changed, aten.scaled_dot_product_attention.default)), (0, 1))
                (node,) = changed.graph.find_nodes(op="call_function", target=aten.scaled_dot_product_attention.default)
                self.assertEqual(node.args[0].meta["val"].shape[3] % 8, 0)

        # In bf16, the form is closer to double precision than the original: it rounds no sums of scores and positions.
        for size in ((14, 14), (32, 32)):
            with self.subTest(size=size):
                attention = REAttention(64, num_heads=2, use_rel_pos=True, input_size=size)
                for positions in (attention.rel_pos_h, attention.rel_pos_w):
                    positions.normal_(0, 0.5)
                attention.bfloat16()
                inputs = torch.randn(2, *size, 64).bfloat16()
                exact = copy.deepcopy(attention).double()(inputs.double())
                own = gpu_graph.for_gpu(exported(attention, inputs))(inputs)
                self.assertLess(rms(own - exact), rms(attention(inputs) - exact))

        class Scores(nn.Module):
            """Sums over a grid of keys that are none of ours: `change` names the difference."""

            def __init__(self, change):
                super().__init__()
                self.change = change

            def forward(self, q, k, v, down, across):
                scores = (q @ k.transpose(1, 2)).view(2, 4, 4, 4, 4)
                if self.change == "broadcast positions":
                    across = across[:1]
                if self.change == "rows and columns of keys change places":
                    scores = scores + down[:, :, :, None] + across[..., None]
                else:
                    scores = torch.add(scores, down[..., None], alpha=2 if self.change == "twice the positions" else 1) + across[:, :, :, None]
                scores = scores.view(2, 16, 16)
                weights = scores.softmax(1 if self.change == "a softmax over queries" else 2)
                if self.change == "somebody reads the scores":
                    return weights @ v + scores.mean()
                return (weights @ v) + (weights.mean() if self.change == "somebody reads the weights" else 0)

        inputs = (*torch.randn(3, 2, 16, 8), *torch.randn(2, 2, 4, 4, 4))
        for change in (None, "rows and columns of keys change places", "broadcast positions", "twice the positions", "a softmax over queries", "somebody reads the scores", "somebody reads the weights"):
            with self.subTest(change=change):
                changed = exported(self.same(Scores(change), *inputs), *inputs)
                self.assertEqual(count(changed, aten.scaled_dot_product_attention.default), int(change is None))

    @torch.no_grad()
    def test_depthwise_convolutions(self):
        torch.manual_seed(0)
        for kernel in (1, 3, (3, 1)):
            for stride in (1, 2):
                for padding in (0, 1, (2, 0)):
                    for bias in (True, False):
                        with self.subTest(kernel=kernel, stride=stride, padding=padding, bias=bias):
                            module = nn.Conv2d(6, 6, kernel, stride, padding, groups=6, bias=bias)
                            changed = self.same(module, torch.randn(2, 6, 17, 12))
                            self.assertEqual(count(changed, aten.conv2d.default), 0)

    @torch.no_grad()
    def test_batch_norms(self):
        torch.manual_seed(0)
        for groups in (1, 2, 6):
            for bias in (True, False):
                with self.subTest(groups=groups, bias=bias):
                    norm = nn.BatchNorm2d(12 if groups < 6 else 6, eps=1e-3)
                    for values in (norm.weight, norm.bias, norm.running_mean):
                        values.copy_(torch.randn(values.shape))
                    norm.running_var.copy_(torch.rand(norm.running_var.shape) + 0.1)
                    module = nn.Sequential(nn.Conv2d(6, norm.num_features, 3, padding=1, groups=groups, bias=bias), norm).eval()
                    changed = self.same(module, torch.randn(2, 6, 17, 12))
                    self.assertEqual((count(changed, aten.batch_norm.default), count(changed, aten.conv2d.default)), (0, 0 if groups == 6 else 1))
        # Somebody else reads the result of the convolution, or there is none.
        convolution, norm = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)

        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.convolution, self.norm = convolution, norm

            def forward(self, images):
                result = self.convolution(images)
                return self.norm(result) + result

        for module in (Twice().eval(), nn.Sequential(nn.ReLU(), norm).eval()):
            changed = self.same(module, torch.randn(2, 3, 8, 8))
            self.assertEqual(count(changed, aten.batch_norm.default), 1)

    @torch.no_grad()
    def test_other_operations_stay(self):
        torch.manual_seed(0)
        for module in (nn.Conv2d(6, 6, 5, groups=6), nn.Conv2d(6, 6, 3), nn.Conv2d(6, 12, 3, groups=6), nn.Conv2d(6, 6, 3, groups=2), nn.Conv2d(6, 6, 3, dilation=2, groups=6)):
            with self.subTest(module):
                changed = self.same(module, torch.randn(2, 6, 17, 12))
                self.assertEqual(count(changed, aten.conv2d.default), 1)

        class Scores(nn.Module):
            """Somebody reads the scores too."""

            def forward(self, q, k, v, bias):
                scores = (q @ k.transpose(2, 3) * 0.5 + bias).softmax(3)
                return scores @ v + scores.sum()

        class Shifted(nn.Module):
            """The number is no bias."""

            def forward(self, q, k, v):
                return (q @ k.transpose(2, 3) * 0.5 + 1e-6).softmax(3) @ v

        class Plain(nn.Module):
            def forward(self, q, k, v, bias):
                return (q @ k.transpose(2, 3) * 0.5 + bias).softmax(3) @ v

        q, k, v = torch.randn(3, 2, 3, 7, 8)
        one, ones = torch.randn(3, 7, 7), torch.randn(4, 1, 1, 7, 7)  # the second gives the scores a dimension more
        for module, inputs, fused in ((Plain(), (q, k, v, one), 1), (Scores(), (q, k, v, one), 0), (Shifted(), (q, k, v), 0), (Plain(), (q, k, v, ones), 0)):
            with self.subTest(type(module).__name__, fused=fused):
                changed = self.same(module, *inputs)
                self.assertEqual((count(changed, aten.softmax.int), count(changed, aten.scaled_dot_product_attention.default)), (1 - fused, fused))

    @torch.no_grad()
    def test_upscaling(self):
        class Logits(nn.Module):
            def __init__(self, decoder, more=None):
                super().__init__()
                self.decoder, self.more = decoder, more

            def forward(self, embedding, corners, image_index):
                logits = self.decoder.batch(embedding, corners, image_index)[0]
                return logits if self.more is None else logits + self.more(corners)

        everything = mock.patch.object(gpu_upscaling, "TYPES", (torch.float32, torch.bfloat16))  # for an exact comparison
        for kind, channels, masks, fused in (("sam", 128, 1, 1), ("sam2", 128, 4, 1), ("sam", 64, 1, 0)):
            with self.subTest(kind, channels=channels):
                prompt, original = architecture(kind, 0, channels=channels, side=8)
                embedding = inputs_of(prompt, details=kind == "sam2")[2]
                index = torch.tensor([1, 0, 2, 1, 1])
                decoder = Logits(BoxDecoder(prompt, original).eval())
                with everything:
                    changed = self.same(decoder, embedding, torch.randn(5, 3 if kind == "sam2" else 2, channels), index)
                found = changed.graph.find_nodes(op="call_function", target=torch.ops.millrace.upscale.default)
                self.assertEqual(len(found), fused)
                self.assertEqual(count(changed, aten.gelu.default), 2 - 2 * fused)
                # In float32, no kernel is made.
                index = torch.tensor([0])
                plain = gpu_graph.for_gpu(exported(decoder, embedding, torch.randn(1, 3 if kind == "sam2" else 2, channels), index))
                self.assertEqual(count(plain, torch.ops.millrace.upscale.default), 0)
                for node in found:
                    self.assertEqual(len(node.args[8].args[0]), masks)
                    self.assertEqual([tensor is None for tensor in node.args[9:]], [kind == "sam"] * 3)

    @torch.no_grad()
    def test_other_upscalings_stay(self):
        torch.manual_seed(0)

        with_details = ("one index", "two indices", "broadcast features", "twice the features")

        class Upscaling(nn.Module):
            """As at the end of a box decoder. `change` names one difference."""

            def __init__(self, change=None, width=128):
                super().__init__()
                self.change = change
                shapes = {"up1": (width, width), "bias1": (width,), "gamma": (width // 4,), "beta": (width // 4,), "up2": (width // 4, width // 2), "bias2": (width // 2,)}
                for name, shape in shapes.items():
                    self.register_buffer(name, torch.randn(shape) / shape[0] ** 0.5)

            def forward(self, image, weight, details, index, other):
                y = first = image @ self.up1 + self.bias1
                if self.change == "broadcast features":
                    details = details[:, :1]
                if self.change in with_details:
                    y = torch.add(y, details.index_select(0, index), alpha=2 if self.change == "twice the features" else 1)
                y = norm = functional.layer_norm(y.unflatten(2, [4, -1]), [self.gamma.shape[0]], self.gamma, self.beta, *([] if self.change == "the usual epsilon" else [1e-6]))
                y = functional.gelu(y, approximate="tanh" if self.change == "another GELU" else "none") @ self.up2 + self.bias2
                if self.change in with_details:
                    y = y + details.unflatten(2, [4, -1]).repeat(1, 1, 1, 2).index_select(0, other if self.change == "two indices" else index)
                y = functional.gelu(y).unflatten(3, [4, -1]).flatten(1, 3)
                weight = weight[:1] if self.change == "broadcast weights" else weight
                total = (y * weight[:, None]).sum(1 if self.change == "another sum" else 2)
                more = {"two read the first product": first, "two read the norm": norm, "two read the places": y}.get(self.change)
                return total if more is None else total + more.mean()

        inputs = (torch.randn(5, 12, 128), torch.randn(5, 16), torch.randn(3, 12, 128), torch.tensor([2, 0, 1, 0, 2]), torch.tensor([1, 0, 1, 0, 2]))
        fused = (None, "one index", "the usual epsilon")
        for change in (*fused, *with_details[1:], "broadcast weights", "another GELU", "another sum", "two read the first product", "two read the norm", "two read the places"):
            with self.subTest(change=change):
                with mock.patch.object(gpu_upscaling, "TYPES", (torch.float32, torch.bfloat16)):
                    changed = self.same(Upscaling(change), *inputs)
                self.assertEqual(count(changed, torch.ops.millrace.upscale.default), change in fused)

    def check_encoder(self, own, other):
        self.assertLess(rms(own - other), 1e-5 * other.std().item())
        self.assertLess((own - other).abs().max().item(), 1e-4 * other.std().item())

    @torch.no_grad()
    def test_the_encoder_of_a_small_sam(self):
        """A ViT with one layer that attends in windows, and one that sees the whole picture."""
        torch.manual_seed(0)
        with shallow_sams() as sams:
            encoder = sams["sam_shallow"]().image_encoder.eval()
        for name, parameter in encoder.named_parameters():
            if "pos" in name:  # they are zeros without a checkpoint
                parameter.normal_(0, 0.5)
        picture = torch.randn(1, 3, 1024, 1024)
        changed = exported(gpu_graph.for_gpu(exported(encoder, picture)), picture)
        self.assertEqual((count(changed, aten.softmax.int), count(changed, aten.scaled_dot_product_attention.default)), (0, 2))
        self.check_encoder(changed(picture), encoder(picture))

    @torch.no_grad()
    def test_the_encoder_of_mobile_sam(self):
        package = PACKAGES / "mobile_sam.pkg"
        if not (package / programs.NAME).is_file():
            self.skipTest(f"{package} has no {programs.NAME}; tests/models/make_packages.sh makes it")
        encode = programs.load(package / programs.NAME)["encode"]
        picture = torch.randn(1, 3, 1024, 1024, generator=torch.Generator().manual_seed(0))
        expected = encode.module()(picture)
        changed = gpu_graph.for_gpu(encode.module())
        self.assertEqual((count(changed, aten.softmax.int), count(changed, aten.scaled_dot_product_attention.default)), (0, 10))
        (own,), (other,) = changed(picture), expected
        self.check_encoder(own, other)
        kernels = model_cost.kernels_of(package, "encode", 4)
        moved = sum(size for size, _ in kernels) / 4 / 1e6
        print(f"{moved:.0f} MB a picture")
        self.assertLess(moved, 1750)
        self.assertGreater(moved, 500)  # its tensors of 256 x 256 alone
        # Nine shifts would otherwise compute nine GELUs, each with an erf.
        self.assertLess(max(sum(operation.startswith("erf") for operation in operations) for _, operations in kernels), 4)


class Options(unittest.TestCase):
    """What the options of `millrace compile` change, on a described GPU."""

    def options(self, module, images, autotune):
        """Those that the compiler gets."""
        program = torch.export.export(module, (images,), strict=False)
        declared = {"row": "picture"}
        with mock.patch.object(torch._inductor, "aoti_compile_and_package", side_effect=model_cost.Counted) as call, \
             mock.patch.object(compiler, "with_weights", lambda program, dtype, device: program.module()):
            with self.assertRaises(model_cost.Counted):
                compiler.compile_call(program, (images,), declared, "cuda", images.dtype, Path("none.so"), autotune)
        return call.call_args.kwargs["inductor_configs"]

    def chosen(self, module, images, autotune):
        """The kernels that Inductor calls for products and convolutions, and the Triton kernels that it would also measure."""
        called, measured, described_gpu = [], set(), model_cost.described_gpu

        def choose(selector, name, choices, *more, **options):
            called.append(name)
            return choices[0].output_node()

        def with_options():
            yield from described_gpu()
            yield config.patch(self.options(module, images, autotune))
            yield mock.patch.object(select_algorithm.AlgorithmSelectorCache, "__call__", choose)
            yield mock.patch.object(select_algorithm.TritonTemplate, "generate", lambda template, *more, **options: measured.add(template.name))

        with torch.no_grad(), mock.patch.object(model_cost, "described_gpu", with_options):
            model_cost.kernels(torch.export.export(module, (images,), strict=False), (images,))
        return called, sorted(measured)

    def test_convolutions_of_one_pixel_are_products_and_kernels_are_searched(self):
        module = nn.Sequential(nn.Conv2d(64, 128, 1), nn.Conv2d(128, 64, 3)).bfloat16()
        images = torch.randn(2, 64, 32, 32).bfloat16()
        self.assertEqual(self.chosen(module, images, autotune=True), (["addmm", "convolution"], ["convolution2d", "mm"]))
        self.assertEqual(self.chosen(module, images, autotune=False), (["addmm", "convolution"], []))


class Cost(unittest.TestCase):
    """bench/model_cost.py, with counts made by hand."""

    def test_a_convolution_and_its_bias(self):
        images, results, weights = 2 * 6 * 8 * 10, 2 * 12 * 8 * 10, 12 * 6 * 9
        for bias in (True, False):
            flop, found = flop_and_operations(nn.Conv2d(6, 12, 3, padding=1, bias=bias), torch.randn(2, 6, 8, 10))
            self.assertEqual(flop, 2 * results * 6 * 9)
            self.assertEqual(sorted(found), [("bias", 4 * (12 + 2 * results))] * bias + [("convolution", 4 * (images + weights + results))])
        flop, _ = flop_and_operations(nn.Conv2d(6, 6, 3, padding=1, groups=6), torch.randn(2, 6, 8, 10))
        self.assertEqual(flop, 2 * images * 9)

    def test_an_attention(self):
        class Attention(nn.Module):
            def forward(self, q, k, v):
                return functional.scaled_dot_product_attention(q, k, v)

        class Products(nn.Module):
            def forward(self, q, k, v):
                return (q @ k.transpose(2, 3)).softmax(3) @ v

        q, k, v = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
        scores, bound = 2 * 3 * 7 * 5, 4 * (q.numel() + k.numel() + v.numel() + q.numel())
        flop, ((name, size),) = flop_and_operations(Attention(), q, k, v)
        self.assertEqual((flop, name), (2 * 2 * scores * 8, "_scaled_dot_product_flash_attention"))
        self.assertTrue(bound <= size < bound + 4 * 100, size)  # it also writes a sum for each query
        flop, found = flop_and_operations(Products(), q, k, v)
        self.assertEqual(flop, 2 * 2 * scores * 8)
        self.assertEqual([name for name, _ in found], ["bmm", "_softmax", "bmm"])
        self.assertEqual(sum(size for _, size in found), bound + 4 * 4 * scores)

    def test_the_products_inside_our_kernel(self):
        class Upscaling(nn.Module):
            def forward(self, image, up1, up2, weights):
                width = image.shape[2]
                return torch.ops.millrace.upscale(image, up1, up1[0], up2[:, 0], up2[:, 0], 1e-6, up2, up1[0, : width // 2], weights, None, None, None)

        boxes, tokens, width, masks = 5, 12, 128, 3
        inputs = (torch.randn(boxes, tokens, width), torch.randn(width, width), torch.randn(width // 4, width // 2), torch.randn(boxes, masks, width // 8))
        flop, _ = flop_and_operations(Upscaling(), *inputs)
        self.assertEqual(flop, 2 * boxes * tokens * (width * width + 4 * width // 4 * width // 2 + 16 * masks * width // 8))

    def test_unfused_operations_go_through_memory_and_fused_ones_do_not(self):
        class Three(nn.Module):
            def forward(self, x, y):
                return x.relu().unflatten(1, [2, 4]).transpose(1, 2) * y.sigmoid().expand(16, 4, 2)  # repeats its values, without a copy

        x, y = torch.randn(16, 8), torch.randn(1, 1, 2)
        flop, found = flop_and_operations(Three(), x, y)
        self.assertEqual((flop, found), (0, [("relu", 4 * 2 * 128), ("sigmoid", 4 * 2 * 2), ("mul", 4 * (128 + 2 + 128))]))
        with torch.no_grad():
            ((size, _),) = model_cost.kernels(torch.export.export(Three(), (x, y), strict=False), (x, y))
        self.assertEqual(size, 4 * (128 + 2 + 128))


if __name__ == "__main__":
    unittest.main()
