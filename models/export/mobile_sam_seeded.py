"""Makes a MobileSAM with random weights from a seed, for tests and benchmarks: mobile_sam_seeded.py --seed N OUT.pkg

The architecture is that of the installed `ultralytics` package. --small makes a tiny model with the same contract.
"""

import argparse
import warnings
from importlib.metadata import version

from package import SAM_INPUT, original_of, quiet_threads  # first, since it prints advice if torch is missing

import torch

from box_prompt_sam import BoxPromptSam
from segmenter import export_segmenter
from small_sam import SmallSam


def perturb(module):
    """Changes every parameter randomly: with the default initialisation, masks hardly depend on the box."""
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
                # larger queries and keys, so that softmaxes are not flat
                parameter.mul_(2.0 if "q_proj" in name or "k_proj" in name else 1.5)


def seeded(seed):
    """A SAM of the ultralytics package with random weights from `seed`."""
    from ultralytics.models.sam.build import build_mobile_sam

    torch.manual_seed(seed)
    sam = build_mobile_sam().eval()
    with torch.no_grad():
        perturb(sam.prompt_encoder)
        perturb(sam.mask_decoder)
    return sam


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bias", action=argparse.BooleanOptionalAction, default=True, help="give the masks outlines like those of real objects")
    parser.add_argument("--small", action="store_true", help="a tiny model with the same contract and an input of 256")
    parser.add_argument("out")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    quiet_threads()

    if arguments.small:
        model = SmallSam(arguments.seed, arguments.bias).eval()
        architecture, licence, original = "small_sam", "Apache-2.0", None
    else:
        model = BoxPromptSam(seeded(arguments.seed), arguments.bias).eval()
        architecture, licence = "mobile_sam", "AGPL-3.0"
        original = original_of("Ultralytics", version("ultralytics"), "SAMModel", architecture)
    name = f"{architecture}-seed{arguments.seed}"
    export_segmenter(model, model.side, name, architecture, licence, SAM_INPUT, arguments.out, original)


if __name__ == "__main__":
    main()
