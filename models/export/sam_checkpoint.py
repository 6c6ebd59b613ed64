"""Makes a model package from an original checkpoint of SAM, MobileSAM or SAM 2. export.py calls it."""

from importlib.metadata import version
from pathlib import Path
from typing import Callable, NamedTuple

import torch
from torch import nn

import photograph
from box_prompt_sam import BoxPromptSam, original_outputs
from box_prompt_sam2 import BoxPromptSam2
from box_prompt_sam2 import original_outputs as original_outputs_of_sam2
from checkpoint import load_tensors, state_dict_of
from package import Refused, SAM2_INPUT, SAM_INPUT, compare, original_of
from segmenter import write_segmenter
from sniff import SUPPORTED

# Prefix of a key, and the family of a checkpoint that has it. The first match counts.
OTHER_FAMILIES = (
    ("mask_decoder.hf_", "HQ-SAM"),
    ("mask_decoder.final_output_upscaling_layers.", "EfficientSAM"),
    ("detector.", "SAM 3"),
    ("backbone.backbone.", "YOLOX as a checkpoint: convert it with YOLOX's tools/export_onnx.py, and name the ONNX file"),
    ("model.0.conv.", "the weights of a YOLO model of Ultralytics without the model itself: save it with model.save('FILE.pt')"),
)
# Buffers that follow from the architecture. Some releases store them; the originals do not.
DERIVED = ("pixel_mean", "pixel_std")
# Weights of SAM 2 that only videos need.
VIDEO = (
    "maskmem_tpos_enc",
    "mask_downsample.",
    "memory_attention.",
    "memory_encoder.",
    "no_mem_pos_enc",
    "no_obj_embed_spatial",
    "no_obj_ptr",
    "obj_ptr_proj.",
    "obj_ptr_tpos_proj.",
)
# The checkpoints are Apache-2.0. The traced encoders are code of the ultralytics package.
LICENCE = "Apache-2.0 (weights), AGPL-3.0 (architecture)"
BOXES = ((0.1, 0.1, 0.5, 0.6), (0.3, 0.4, 0.95, 0.9), (0.45, 0.05, 0.6, 0.3), (0.0, 0.0, 1.0, 1.0))  # as shares of the picture


class Sam2(nn.Module):
    """The parts of SAM 2 that pictures need."""

    def __init__(self, sam):
        super().__init__()
        self.image_encoder, self.sam_prompt_encoder, self.sam_mask_decoder = sam.image_encoder, sam.sam_prompt_encoder, sam.sam_mask_decoder
        self.no_mem_embed = sam.no_mem_embed


class Family(NamedTuple):
    build: str  # a function of ultralytics.models.sam.build
    software: str = "segment_anything"  # whose checkpoints and preprocessing these are
    heavy: bool = False  # a picture takes many seconds on few cores, so batches are small
    parts: Callable = lambda sam: sam
    model: type = BoxPromptSam
    original: Callable = original_outputs
    prepare: Callable = photograph.sam_longest_side
    input: dict = SAM_INPUT
    resize: str = "via_input"


SAM2 = {
    "software": "sam2",
    "parts": Sam2,
    "model": BoxPromptSam2,
    "original": original_outputs_of_sam2,
    "prepare": photograph.sam2_square,
    "input": SAM2_INPUT,
    "resize": "direct",
}
FAMILIES = {
    "mobile_sam": Family("build_mobile_sam", "MobileSAM"),
    "sam_vit_b": Family("build_sam_vit_b", heavy=True),
    "sam_vit_l": Family("build_sam_vit_l", heavy=True),
    "sam_vit_h": Family("build_sam_vit_h", heavy=True),
    "sam2_hiera_tiny": Family("build_sam2_t", **SAM2),
    "sam2_hiera_small": Family("build_sam2_s", **SAM2),
    "sam2_hiera_base_plus": Family("build_sam2_b", heavy=True, **SAM2),
    "sam2_hiera_large": Family("build_sam2_l", heavy=True, **SAM2),
}
# Families by the width of the encoder, and by width and number of blocks.
VIT = {768: "sam_vit_b", 1024: "sam_vit_l", 1280: "sam_vit_h"}
HIERA = {(96, 12): "sam2_hiera_tiny", (96, 16): "sam2_hiera_small", (112, 24): "sam2_hiera_base_plus", (144, 48): "sam2_hiera_large"}


def family_of(path, state):
    """A key of FAMILIES. Raises Refused for all others, with their name."""
    for prefix, look in OTHER_FAMILIES:
        if any(key.startswith(prefix) for key in state):
            raise Refused(f"{path}: looks like {look}; {SUPPORTED}")
    patches = state.get("image_encoder.trunk.patch_embed.proj.weight")
    if patches is not None:
        size = patches.shape[:1].numel(), len({key.split(".")[3] for key in state if key.startswith("image_encoder.trunk.blocks.")})
        if size in HIERA:
            return HIERA[size]
        raise Refused(f"{path}: looks like a SAM 2 with an image encoder of width {size[0]} and {size[1]} blocks; {SUPPORTED}")
    if "image_encoder.patch_embed.seq.0.c.weight" in state:
        return "mobile_sam"
    position = state.get("image_encoder.pos_embed")
    if position is not None and "mask_decoder.iou_token.weight" in state:
        width = position.shape[-1:].numel()
        if width in VIT:
            return VIT[width]
        raise Refused(f"{path}: looks like a SAM with an image encoder of width {width}; {SUPPORTED}")
    raise Refused(f"{path}: holds {len(state)} tensors of an unknown model ({', '.join(list(state)[:3])}, ...); {SUPPORTED}")


def build(path, family, state):
    """The architecture of the ultralytics package with exactly the checkpoint's weights."""
    from ultralytics.models.sam import build as architectures

    sam = FAMILIES[family].parts(getattr(architectures, FAMILIES[family].build)())
    skipped = DERIVED + (VIDEO if family.startswith("sam2") else ())
    state = {key: value.float() for key, value in state.items() if not key.startswith(skipped) and not key.endswith(".attention_bias_idxs")}
    load_tensors(path, family, sam, state)
    return sam.eval()  # again: TinyViT's attention caches its biases when eval() is called


def mask_boxes(logits, side, scale):
    """Corners around each mask, in pixels of the picture; zeros for an empty mask. `scale` has input pixels per pixel of the picture."""
    found = torch.zeros(len(logits), 4)
    for i, mask in enumerate(logits > 0):
        rows, columns = mask.any(1).nonzero()[:, 0], mask.any(0).nonzero()[:, 0]
        if len(rows):
            found[i] = torch.stack([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) * side / logits.shape[2] / scale
    return found


def export(path, loaded, out, pixels):
    state, found = state_dict_of(path, loaded)
    name = family_of(path, state)
    family = FAMILIES[name]
    sam = build(path, name, state)
    model = family.model(sam).eval()
    side = model.side
    print(f"{path}: {name}, input {side} x {side}{found}")
    views = photograph.three_views(pixels)[1 if family.heavy else 0 :]
    views, scales = zip(*(family.prepare(view, side) for view in views))
    last, scale = len(views) - 1, torch.tensor([*scales[-1]] * 2)
    boxes = torch.tensor(BOXES) * torch.tensor([pixels.shape[1], pixels.shape[0]] * 2) * scale
    embedding, logits, iou = family.original(sam, views[last], boxes)

    def check(saved):
        with torch.inference_mode():
            alone = saved.encode(views[last])
            packed = saved.encode(torch.cat(views))
            compare("the picture alone: embedding", alone[:, : embedding.shape[1]], embedding)
            compare(f"in a batch of {len(views)}: embedding", packed[last:, : embedding.shape[1]], embedding)
            for where, batch, index in (("the picture alone", alone, 0), (f"in a batch of {len(views)}", packed, last)):
                ours = torch.tensor([True, False] * len(boxes))  # boxes of another picture between ours
                given = torch.where(ours, index, 0)
                found, quality = saved.decode(batch, boxes.repeat_interleave(2, 0), given)
                compare(f"{where}: logits", found[ours], logits)
                compare(f"{where}: predicted IoU", quality[ours], iou, deviation=torch.maximum(iou.double().std(), torch.tensor(0.1)))
                around = (mask_boxes(m, side, scale) for m in (found[ours], logits))
                difference = torch.sub(*around).abs().max().item()
                flipped = int(((found[ours] > 0) != (logits > 0)).sum())
                print(f"{where}: {flipped} of {logits.numel()} mask pixels differ, boxes around masks by up to {difference:.2g} picture pixels")

    with torch.inference_mode():
        whole = model.encode(views[last])
    original = original_of(family.software, name, f"(code of Ultralytics {version('ultralytics')})")
    write_segmenter(model, whole, boxes, Path(path).stem, name, LICENCE, family.input, out, views[last], check, resize=family.resize, original=original)
