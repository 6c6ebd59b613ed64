"""Both forms of the box decoder compute what the original mask decoders compute: box_decoder_test.py [-v]"""

import contextlib
import io
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models" / "export"), str(ROOT / "bench")]

import torch
from torch import nn

import package
import model_cost
import gpu_graph
from box_decoder import BoxDecoder, unshuffle
from mobile_sam_seeded import perturb
from segmenter import random_boxes

# Boxes of each call: the picture of each. Pictures may have no box, and their boxes need not be adjacent.
CALLS = ((0,), (2, 0), (1, 1, 1, 0, 2, 1, 0), (0,) * 23, (2, 1) * 12)
PICTURES = 3


def architecture(kind, seed, channels=64, heads=8, side=16):
    """A prompt encoder and a mask decoder of SAM or SAM 2 with seeded weights."""
    from ultralytics.models.sam.modules.blocks import SAM2TwoWayTransformer
    from ultralytics.models.sam.modules.decoders import MaskDecoder, SAM2MaskDecoder
    from ultralytics.models.sam.modules.encoders import PromptEncoder
    from ultralytics.models.sam.modules.transformer import TwoWayTransformer

    torch.manual_seed(seed)
    prompt = PromptEncoder(channels, (side, side), (16 * side, 16 * side), mask_in_chans=16)
    shape = {"depth": 2, "embedding_dim": channels, "num_heads": heads, "mlp_dim": 128}
    if kind == "sam":
        decoder = MaskDecoder(channels, TwoWayTransformer(**shape), iou_head_hidden_dim=channels)
    else:
        decoder = SAM2MaskDecoder(
            channels,
            SAM2TwoWayTransformer(**shape),
            iou_head_hidden_dim=channels,
            use_high_res_features=True,
            iou_prediction_use_sigmoid=True,
            dynamic_multimask_via_stability=True,
            pred_obj_scores=True,
            pred_obj_scores_mlp=True,
        )
        decoder.conv_s0 = decoder.conv_s1 = nn.Identity()  # the encoder of a package has them
    with torch.no_grad():
        for part in (prompt, decoder):
            perturb(part)
    return prompt.eval(), decoder.eval()


def inputs(prompt, details):
    """Embeddings of PICTURES pictures, their features of higher resolution, and both as our decoder takes them."""
    channels, (side, _) = prompt.embed_dim, prompt.image_embedding_size
    images = torch.randn(PICTURES, channels, side, side)
    parts = [torch.randn(PICTURES, channels // (8 // n), 4 * side // n, 4 * side // n) for n in (1, 2)] if details else []
    return images, parts, torch.cat([images, *(unshuffle(part, side) for part in reversed(parts))], 1)


def prompts(prompt, boxes, details):
    """Prompt tokens of boxes, and dense prompts. SAM 2 takes the corners of boxes as points."""
    if not details:
        return prompt(points=None, boxes=boxes, masks=None)
    return prompt(points=(boxes.unflatten(1, (2, 2)), torch.tensor([[2, 3]]).expand(len(boxes), -1)), boxes=None, masks=None)


def arguments(prompt, embedding, boxes, details):
    """The arguments of an original mask decoder for the boxes of one picture."""
    sparse, dense = prompts(prompt, boxes, details)
    given = {"image_pe": prompt.get_dense_pe(), "sparse_prompt_embeddings": sparse, "dense_prompt_embeddings": dense}
    if details:
        embedding, *details = (tensor.expand(len(boxes), -1, -1, -1) for tensor in (embedding, *details))
        given |= {"repeat_image": False, "high_res_features": details}
    return given | {"image_embeddings": embedding}


def original(prompt, decoder, embedding, boxes, details):
    """Prompt tokens, logits and predicted IoU of the boxes of one picture, without multimask output."""
    given = arguments(prompt, embedding, boxes, details)
    logits, quality = decoder(**given, multimask_output=False)[:2]
    return given["sparse_prompt_embeddings"], logits[:, 0], quality[:, 0]


class BoxDecoderTest(unittest.TestCase):
    def setUp(self):
        package.quiet_threads()

    def check(self, prompt, decoder, details=False):
        """Compares both forms with the original, picture by picture."""
        ours = BoxDecoder(prompt, decoder).eval()
        scripted = torch.jit.freeze(torch.jit.script(ours))
        images, parts, embedding = inputs(prompt, details)
        side = images.shape[3]
        for pictures in CALLS:
            index = torch.tensor(pictures)
            boxes = random_boxes(len(index), 16 * side)
            corners = torch.zeros(len(index), 3 if details else 2, ours.D)
            logits, quality = torch.zeros(len(index), 4 * side, 4 * side), torch.zeros(len(index))
            for i in set(pictures):
                own = index == i
                corners[own], logits[own], quality[own] = original(prompt, decoder, images[i : i + 1], boxes[own], [p[i : i + 1] for p in parts])
            for name, form in (("loop", ours.loop), ("scripted and frozen", scripted), ("batch", ours.batch)):
                with self.subTest(form=name, pictures=pictures):
                    found, iou = form(embedding, corners, index)
                    with contextlib.redirect_stdout(io.StringIO()):
                        package.compare(name, found, logits)
                    self.assertLess((iou - quality).abs().max().item(), 1e-5)

    @torch.inference_mode()
    def test_sam(self):
        for seed in range(3):
            with self.subTest(seed=seed):
                self.check(*architecture("sam", seed))

    @torch.inference_mode()
    def test_sam_2_and_its_rule_for_one_mask(self):
        for seed in range(3):
            prompt, decoder = architecture("sam2", seed)
            images, parts, _ = inputs(prompt, True)
            masks = decoder.predict_masks(**arguments(prompt, images[:1], random_boxes(40, 256), [p[:1] for p in parts]))[0]
            shares = decoder._get_stability_scores(masks[:, :1])
            middle = shares.sort(dim=0).values[19:21].mean().item()  # half of the boxes are above
            self.assertTrue(((shares > middle).sum(), (shares < middle).sum()) == (20, 20), shares)
            for kind, share in (("first mask", 0.0), ("best of the others", 1.1), ("both", middle)):
                with self.subTest(seed=seed, kind=kind):
                    decoder.dynamic_multimask_stability_thresh = share
                    self.check(prompt, decoder, details=True)

    @torch.no_grad()
    def test_a_gpu_moves_few_bytes_for_a_box(self):
        """In the compiled batched form, in 16 bits. bench/model_cost.py counts; the figures are in docs/performance_gpu.md."""
        ours = BoxDecoder(*architecture("sam", 0, channels=256, side=64)).eval().to(torch.bfloat16)
        boxes = 16
        call = (torch.randn(2, 256, 64, 64), torch.randn(boxes, 2, 256))
        call = (*(tensor.to(torch.bfloat16) for tensor in call), torch.arange(boxes) % 2)
        moved = {}
        exported = torch.export.export(ours, call, strict=False)
        for name, program in (("as it is", exported), ("for a GPU", torch.export.export(gpu_graph.for_gpu(exported.module()), call, strict=False))):
            moved[name] = sum(size for size, _ in model_cost.kernels(program, call)) / boxes / 1e6
        self.assertLess(moved["as it is"], 61)
        self.assertLess(moved["for a GPU"], 50)
        self.assertGreater(moved["for a GPU"], 20)  # the image tokens of a box have 2 MB, and ten kernels read them


if __name__ == "__main__":
    unittest.main()
