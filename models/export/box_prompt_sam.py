"""encode and decode of SAM and MobileSAM for any number of pictures and boxes. Each box gives one mask."""

import math
import types

import torch
from torch import nn

from box_decoder import BoxDecoder
from segmenter import BoxPrompt, positions


def merge_patches(self, tokens):
    """Replaces PatchMerging.forward: its len() of the tokens would fix the batch size in a trace."""
    grid = tokens.unflatten(1, self.input_resolution).movedim(3, 1) if tokens.dim() == 3 else tokens
    narrowed = self.act(self.conv2(self.act(self.conv1(grid))))
    return self.conv3(narrowed).flatten(2).transpose(1, 2)


def attend(self, tokens):
    """Replaces TinyViT's Attention.forward: it caches its biases, whose type would be fixed in a trace."""
    parts = self.qkv(self.norm(tokens)).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
    queries, keys, values = parts.split([self.key_dim, self.key_dim, self.d], dim=3)
    scores = queries @ keys.transpose(2, 3) * self.scale + self.attention_biases[:, self.attention_bias_idxs]
    return self.proj((scores.softmax(3) @ values).transpose(1, 2).flatten(2))


class BoxPromptSam(BoxPrompt):
    """encode and decode of `sam`, a SAM of the ultralytics package with either image encoder.

    It takes over the modules of `sam` and changes them.
    With weights in 16 bits, the model computes in 16 bits.
    Positions stay in float32: boxes, their frequencies, and the bias.

    The ViT's windows take their sizes from tensors, which a trace follows. So only code of TinyViT is replaced.
    box_decoder.py replaces the mask decoder.
    """

    def __init__(self, sam, bias=False):
        super().__init__()
        self.encoder = sam.image_encoder
        for module in sam.modules():
            if type(module).__name__ == "PatchMerging":
                module.forward = types.MethodType(merge_patches, module)
            elif hasattr(module, "attention_biases"):
                module.forward = types.MethodType(attend, module)
        self.prompt = sam.prompt_encoder
        self.set_decoder(BoxDecoder(sam.prompt_encoder, sam.mask_decoder))
        self.side = self.prompt.input_image_size[0]
        self.bias = bias
        self.frequencies = self.prompt.pe_layer.positional_encoding_gaussian_matrix.detach().clone()  # a plain tensor stays in float32
        self.positions = positions(self.side // 4, 4)

    def corners(self, boxes):
        """Replaces PromptEncoder._embed_boxes: [N, 2, C]."""
        points = (boxes + 0.5).unflatten(1, (2, 2)) / self.side
        angles = 2 * math.pi * ((2 * points - 1) @ self.frequencies)
        kinds = torch.cat([self.prompt.point_embeddings[2].weight, self.prompt.point_embeddings[3].weight])
        return torch.cat([angles.sin(), angles.cos()], dim=-1).type_as(kinds) + kinds

    def encode(self, images):
        return self.encoder(images)


def original_outputs(sam, picture, boxes):
    """Embedding, logits and predicted IoU of one picture, by the original code, without multimask output."""
    with torch.inference_mode():
        embedding = sam.image_encoder(picture)
        sparse, dense = sam.prompt_encoder(points=None, boxes=boxes, masks=None)
        logits, iou = sam.mask_decoder(
            image_embeddings=embedding,
            image_pe=sam.prompt_encoder.get_dense_pe(),
            sparse_prompt_embeddings=sparse,
            dense_prompt_embeddings=dense,
            multimask_output=False,
        )
    return embedding, logits[:, 0], iou[:, 0]
