"""encode and decode of SAM and MobileSAM for box prompts and one mask a box, restated for any number of pictures and boxes."""

import types

import torch
from torch import nn

from segmenter import outline_bias


def merge_patches(self, tokens):
    """Restates PatchMerging.forward for any batch: taking len() of the tokens bakes the batch into a trace."""
    grid = tokens.unflatten(1, self.input_resolution).movedim(3, 1) if tokens.dim() == 3 else tokens
    narrowed = self.act(self.conv2(self.act(self.conv1(grid))))
    return self.conv3(narrowed).flatten(2).transpose(1, 2)


class BoxPromptSam(nn.Module):
    """`sam` is a SAM of the ultralytics package with either image encoder; its modules are taken over and changed.

    The ViT's windows take their sizes from tensors, which a trace follows: only TinyViT's PatchMerging is restated. The original
    decoder repeats one picture for all boxes, ours takes each box's picture by index.
    """

    def __init__(self, sam, bias=False):
        super().__init__()
        self.encoder = sam.image_encoder
        for module in self.encoder.modules():
            if type(module).__name__ == "PatchMerging":
                module.forward = types.MethodType(merge_patches, module)
        self.prompt = sam.prompt_encoder
        self.decoder = sam.mask_decoder
        self.side = self.prompt.input_image_size[0]
        self.bias = bias
        self.register_buffer("position", self.prompt.get_dense_pe())

    def encode(self, images):
        return self.encoder(images)

    def decode(self, embedding, boxes, image_index):
        decoder = self.decoder
        corners, _ = self.prompt(points=None, boxes=boxes, masks=None)
        own = torch.cat([decoder.iou_token.weight, decoder.mask_tokens.weight])
        tokens = torch.cat([own.expand(boxes.shape[0], -1, -1), corners], dim=1)
        picture = (embedding + self.prompt.no_mask_embed.weight[0, :, None, None]).index_select(0, image_index)
        tokens, keys = decoder.transformer(picture, self.position, tokens)
        upscaled = decoder.output_upscaling(keys.transpose(1, 2).unflatten(2, embedding.shape[2:]))
        # Without multimask output only the first mask token is read.
        weights = decoder.output_hypernetworks_mlps[0](tokens[:, 1])
        logits = torch.einsum("nc,nchw->nhw", weights, upscaled)
        iou = decoder.iou_prediction_head(tokens[:, 0])[:, 0]
        if self.bias:
            logits = logits + outline_bias(boxes, logits.shape[1], logits.shape[2], self.side // logits.shape[1])
        return logits, iou
