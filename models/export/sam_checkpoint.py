"""Makes a model package from an original checkpoint of MobileSAM or SAM ViT-B. export.py calls it."""

from pathlib import Path

import torch

import photograph
from box_prompt_sam import BoxPromptSam
from checkpoint import load_tensors, state_dict_of
from package import Refused, SAM_INPUT, compare
from segmenter import write_segmenter
from sniff import SUPPORTED

# Prefix of a key, and the family of a checkpoint that has it. The first match counts.
FAMILIES = (
    ("mask_decoder.hf_", "HQ-SAM"),
    ("mask_decoder.final_output_upscaling_layers.", "EfficientSAM"),
    ("image_encoder.trunk.", "SAM 2"),
    ("detector.", "SAM 3"),
    ("backbone.backbone.", "YOLOX as a checkpoint: convert it with YOLOX's tools/export_onnx.py, and name the ONNX file"),
    ("model.0.conv.", "the weights of a YOLO model of Ultralytics without the model itself: save it with model.save('FILE.pt')"),
)
WIDTHS = {1024: "SAM ViT-L", 1280: "SAM ViT-H"}
# Buffers that follow from the architecture. Some releases store them; the originals do not.
DERIVED = ("pixel_mean", "pixel_std")
# The checkpoints are Apache-2.0. The traced code is that of the ultralytics package.
LICENCE = "Apache-2.0 (weights), AGPL-3.0 (architecture)"
BOXES = ((0.1, 0.1, 0.5, 0.6), (0.3, 0.4, 0.95, 0.9), (0.45, 0.05, 0.6, 0.3), (0.0, 0.0, 1.0, 1.0))  # as shares of the picture


def family_of(path, state):
    """'mobile_sam' or 'sam_vit_b'. Raises Refused for all others, with their name."""
    for prefix, look in FAMILIES:
        if any(key.startswith(prefix) for key in state):
            raise Refused(f"{path}: looks like {look}; {SUPPORTED}")
    if "image_encoder.patch_embed.seq.0.c.weight" in state:
        return "mobile_sam"
    position = state.get("image_encoder.pos_embed")
    if position is not None and "mask_decoder.iou_token.weight" in state:
        width = position.shape[-1]
        if width == 768:
            return "sam_vit_b"
        raise Refused(f"{path}: looks like {WIDTHS.get(width, f'a SAM with an image encoder of width {width}')}; {SUPPORTED}")
    raise Refused(f"{path}: holds {len(state)} tensors of an unknown model ({', '.join(list(state)[:3])}, ...); {SUPPORTED}")


def build(path, family, state):
    """The architecture of the ultralytics package with exactly the checkpoint's weights."""
    from ultralytics.models.sam import build as architectures

    sam = {"mobile_sam": architectures.build_mobile_sam, "sam_vit_b": architectures.build_sam_vit_b}[family]()
    state = {key: value.float() for key, value in state.items() if key not in DERIVED and not key.endswith(".attention_bias_idxs")}
    load_tensors(path, family, sam, state)
    return sam.eval()  # again: TinyViT's attention caches its biases when eval() is called


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


def mask_boxes(logits, stride, scale):
    """Corners around each mask, in pixels of the picture; zeros for an empty mask."""
    found = torch.zeros(len(logits), 4)
    for i, mask in enumerate(logits > 0):
        rows, columns = mask.any(1).nonzero()[:, 0], mask.any(0).nonzero()[:, 0]
        if len(rows):
            found[i] = torch.stack([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) * stride / scale
    return found


def export(path, loaded, out, pixels):
    state, found = state_dict_of(path, loaded)
    family = family_of(path, state)
    sam = build(path, family, state)
    side = sam.prompt_encoder.input_image_size[0]
    print(f"{path}: {family}, input {side} x {side}{found}")
    # A batch of the ViT takes many seconds on few cores, so the batch has only one picture before ours.
    views = photograph.three_views(pixels)[1 if family == "sam_vit_b" else 0 :]
    views, scales = zip(*(photograph.sam_longest_side(view, side) for view in views))
    last, scale = len(views) - 1, scales[-1]
    boxes = torch.tensor(BOXES) * torch.tensor([pixels.shape[1], pixels.shape[0]] * 2) * scale
    embedding, logits, iou = original_outputs(sam, views[last], boxes)
    model = BoxPromptSam(sam).eval()

    def check(saved):
        with torch.inference_mode():
            alone = saved.encode(views[last])
            packed = saved.encode(torch.cat(views))
            compare("the picture alone: embedding", alone, embedding)
            compare(f"in a batch of {len(views)}: embedding", packed[last:], embedding)
            for name, batch, index in (("the picture alone", alone, 0), (f"in a batch of {len(views)}", packed, last)):
                ours = torch.tensor([True, False] * len(boxes))  # boxes of another picture between ours
                given = torch.where(ours, index, 0)
                found, quality = saved.decode(batch, boxes.repeat_interleave(2, 0), given)
                compare(f"{name}: logits", found[ours], logits)
                compare(f"{name}: predicted IoU", quality[ours], iou, deviation=torch.maximum(iou.double().std(), torch.tensor(0.1)))
                around = (mask_boxes(m, side // m.shape[2], scale) for m in (found[ours], logits))
                difference = torch.sub(*around).abs().max().item()
                flipped = int(((found[ours] > 0) != (logits > 0)).sum())
                print(f"{name}: {flipped} of {logits.numel()} mask pixels differ, boxes around masks by up to {difference:.2g} picture pixels")

    write_segmenter(model, embedding, boxes, Path(path).stem, family, LICENCE, SAM_INPUT, out, views[last], check)
