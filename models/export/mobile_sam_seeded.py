"""MobileSAM with seeded random weights, for tests and benchmarks: mobile_sam_seeded.py --seed N OUT.pkg

The architecture is that of the installed `ultralytics` package. --small makes a tiny model with the same contract instead.
"""

import argparse
import types
import warnings

from package import SAM_INPUT, quiet_threads  # first: says what to do where torch is missing

import torch
from torch import nn

from segmenter import export_segmenter, outline_bias
from small_sam import SmallSam


def merge_patches(self, tokens):
    """Restates PatchMerging.forward for any batch: taking len() of the tokens bakes the batch into a trace."""
    grid = tokens.unflatten(1, self.input_resolution).movedim(3, 1) if tokens.dim() == 3 else tokens
    narrowed = self.act(self.conv2(self.act(self.conv1(grid))))
    return self.conv3(narrowed).flatten(2).transpose(1, 2)


def perturb(module):
    """Random changes to every parameter: default initialisation hardly lets the masks depend on the box."""
    for name, parameter in module.named_parameters():
        owner = name.rsplit(".", 1)[0]
        if "norm" in name or owner.endswith("output_upscaling.1"):
            parameter.add_(0.3 * torch.randn_like(parameter))
        elif parameter.dim() == 1:
            parameter.copy_(0.3 * torch.randn_like(parameter))
        else:
            parameter.mul_(1 + 0.1 * torch.randn_like(parameter))
            parameter.add_(0.1 * parameter.std() * torch.randn_like(parameter))
            if "embed" in name or "token" in name.split(".")[0]:
                continue
            parameter.mul_(1.7)  # default initialisation halves the signal in each layer
            if "cross_attn" in name or "final_attn" in name:
                # sharper queries and keys, so that the softmaxes are not flat
                parameter.mul_(2.0 if "q_proj" in name or "k_proj" in name else 1.5)


class MobileSam(nn.Module):
    """encode and decode of MobileSAM for box prompts and one mask a box."""

    def __init__(self, seed, bias):
        super().__init__()
        from ultralytics.models.sam.build import build_mobile_sam

        torch.manual_seed(seed)
        sam = build_mobile_sam().eval()
        self.encoder = sam.image_encoder
        for module in self.encoder.modules():
            if type(module).__name__ == "PatchMerging":
                module.forward = types.MethodType(merge_patches, module)
        self.prompt = sam.prompt_encoder
        self.decoder = sam.mask_decoder
        with torch.no_grad():
            perturb(self.prompt)
            perturb(self.decoder)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bias", action=argparse.BooleanOptionalAction, default=True, help="give the masks outlines like real ones")
    parser.add_argument("--small", action="store_true", help="a tiny model with the same contract and an input of 256")
    parser.add_argument("out")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    quiet_threads()

    if arguments.small:
        model = SmallSam(arguments.seed, arguments.bias).eval()
        architecture, licence = "small_sam", "Apache-2.0"
    else:
        model = MobileSam(arguments.seed, arguments.bias).eval()
        architecture, licence = "mobile_sam", "AGPL-3.0"
    name = f"{architecture}-seed{arguments.seed}"
    export_segmenter(model, model.side, name, architecture, licence, SAM_INPUT, arguments.out)


if __name__ == "__main__":
    main()
