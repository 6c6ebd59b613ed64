"""encode and decode of SAM 2 for any number of pictures and boxes. Each box gives one mask.

The embedding of a picture is one tensor, like SAM's. Its first D channels are the image embedding. The others are the
features of two and of four times the resolution, with the places of each cell as channels (`box_decoder.unshuffle`).
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from box_decoder import BoxDecoder, unshuffle
from segmenter import BoxPrompt, positions


class BoxPromptSam2(BoxPrompt):
    """encode and decode of `sam`: image_encoder, sam_prompt_encoder, sam_mask_decoder and no_mem_embed of SAM 2.

    The parts for videos do not take part: without a memory, the original adds `no_mem_embed` to each picture.
    """

    def __init__(self, sam, bias=False):
        super().__init__()
        self.trunk, self.neck = sam.image_encoder.trunk, sam.image_encoder.neck
        prompt, decoder = sam.sam_prompt_encoder, sam.sam_mask_decoder
        self.fine, self.coarse = decoder.conv_s0, decoder.conv_s1
        self.set_decoder(BoxDecoder(prompt, decoder))
        self.side = prompt.input_image_size[0]
        self.cells = prompt.image_embedding_size[0]
        self.bias = bias
        self.register_buffer("no_memory", sam.no_mem_embed.detach().clone().flatten()[:, None, None])
        self.register_buffer("position", self.trunk._get_pos_embed((self.side // 4, self.side // 4)).detach().clone())
        self.register_buffer("kinds", torch.cat([prompt.point_embeddings[2].weight, prompt.point_embeddings[3].weight]).detach().clone())
        self.register_buffer("no_point", prompt.not_a_point_embed.weight.detach().clone())
        self.frequencies = prompt.pe_layer.positional_encoding_gaussian_matrix.detach().clone()  # a plain tensor stays in float32
        self.positions = positions(4 * self.cells, self.side // (4 * self.cells))

    def corners(self, boxes):
        """SAM 2 takes the corners of a box as two points, and adds a token for "no further point": [N, 3, C]."""
        points = (boxes + 0.5).unflatten(1, (2, 2)) / self.side
        angles = 2 * math.pi * ((2 * points - 1) @ self.frequencies)
        corners = torch.cat([angles.sin(), angles.cos()], dim=-1).type_as(self.kinds) + self.kinds
        return torch.cat([corners, self.no_point.expand(boxes.shape[0], 1, -1)], dim=1)

    def encode(self, images):
        # Like the original forward_image(), without the maps that it drops and the positions of all maps.
        x = self.trunk.patch_embed(images) + self.position
        maps = []
        for i, block in enumerate(self.trunk.blocks):
            x = block(x)
            if i in self.trunk.stage_ends:
                maps.append(x.permute(0, 3, 1, 2))
        lateral = [convolution(m) for convolution, m in zip(self.neck.convs, reversed(maps))]
        image = lateral[1] + F.interpolate(lateral[0], scale_factor=2.0)
        details = (self.coarse(lateral[2]), self.fine(lateral[3]))
        return torch.cat([image + self.no_memory, *(unshuffle(detail, self.cells) for detail in details)], dim=1)


def original_outputs(sam, picture, boxes):
    """Embedding, logits and predicted IoU of one picture, as SAM2ImagePredictor computes them without multimask output."""
    with torch.inference_mode():
        *details, embedding = sam.image_encoder(picture)["backbone_fpn"]
        details = [convolution(detail) for convolution, detail in zip((sam.sam_mask_decoder.conv_s0, sam.sam_mask_decoder.conv_s1), details)]
        embedding = embedding + sam.no_mem_embed.flatten()[:, None, None]
        labels = torch.tensor([[2, 3]]).expand(len(boxes), -1)
        sparse, dense = sam.sam_prompt_encoder(points=(boxes.unflatten(1, (2, 2)), labels), boxes=None, masks=None)
        logits, iou, *_ = sam.sam_mask_decoder(
            image_embeddings=embedding.expand(len(boxes), -1, -1, -1),
            image_pe=sam.sam_prompt_encoder.get_dense_pe(),
            sparse_prompt_embeddings=sparse,
            dense_prompt_embeddings=dense,
            multimask_output=False,
            repeat_image=False,
            high_res_features=[detail.expand(len(boxes), -1, -1, -1) for detail in details],
        )
    return embedding, logits[:, 0], iou[:, 0]
