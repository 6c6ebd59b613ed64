"""The models and the steps of the scripts in this folder.

The weights are those of the packages that tests/models/make_packages.py makes with seed 0.
The bias gives the masks of random weights outlines like those of real objects. All programs add it.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import cv2
import numpy
import torch
from PIL import Image
from pycocotools import mask as coco

EXPORT = Path(__file__).resolve().parents[2] / "models" / "export"
sys.path.insert(0, str(EXPORT))

import export  # noqa: E402, F401  (it sets the environment of ultralytics: no updates, no files in the home folder)
import mobile_sam_seeded  # noqa: E402
import yolov8_seeded  # noqa: E402
from segmenter import outline_bias, positions  # noqa: E402

MEAN = torch.tensor([123.675, 116.28, 103.53])[:, None, None]
STD = torch.tensor([58.395, 57.12, 57.375])[:, None, None]
SIDE = 1024
WARM_UP = 3  # pictures


def items(manifest):
    """(path, boxes [N, 4] as corners) of each line."""
    for line in Path(manifest).read_text().splitlines():
        item = json.loads(line)
        boxes = torch.tensor(item["boxes"], dtype=torch.float32)[:, :4]
        yield item["path"], torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)


def detector(folder):
    """YOLOv8n as users load it: from a checkpoint, with Ultralytics' own class for predictions."""
    from ultralytics import YOLO

    file = Path(folder) / "yolov8n.pt"
    torch.save({"model": yolov8_seeded.seeded(0), "train_args": {"task": "detect"}}, file)
    return YOLO(file)


class Sam:
    """MobileSAM, used like SamPredictor of its authors: one picture, then its boxes."""

    def __init__(self):
        self.sam = mobile_sam_seeded.seeded(0)
        self.encoder, self.prompt, self.decoder = self.sam.image_encoder, self.sam.prompt_encoder, self.sam.mask_decoder
        self.places = positions(256, 4)

    def prepare(self, pixels):
        """pixels RGB -> input [1, 3, 1024, 1024], sides of the picture in it, sides of the picture."""
        scale = SIDE / max(pixels.shape[:2])
        rows, columns = (int(side * scale + 0.5) for side in pixels.shape[:2])
        resized = numpy.array(Image.fromarray(pixels).resize((columns, rows), Image.Resampling.BILINEAR))
        image = (torch.from_numpy(resized).permute(2, 0, 1).float() - MEAN) / STD
        return torch.nn.functional.pad(image, (0, SIDE - columns, 0, SIDE - rows))[None], (rows, columns), pixels.shape[:2]

    def decode(self, embedding, boxes):
        """Logits [N, 1, 256, 256] for boxes in pixels of the input."""
        sparse, dense = self.prompt(points=None, boxes=boxes, masks=None)
        logits, _ = self.decoder(embedding, self.prompt.get_dense_pe(), sparse, dense, multimask_output=False)
        return logits + outline_bias(boxes, self.places, self.places)[:, None]

    @staticmethod
    def full_size(logits, part, size):
        """Masks [N, height, width] as SAM's postprocess_masks makes them."""
        large = torch.nn.functional.interpolate(logits, (SIDE, SIDE), mode="bilinear", align_corners=False)[..., : part[0], : part[1]]
        return torch.nn.functional.interpolate(large, size, mode="bilinear", align_corners=False)[:, 0] > 0


def read(path):
    return cv2.imread(str(path))


def encode(mask):
    """COCO's run lengths of a mask [height, width]."""
    return coco.encode(numpy.asfortranarray(mask, dtype=numpy.uint8))


def serve(run, manifest, settings):
    """Processes the first pictures of `manifest` to warm up. Then it answers each line of the input with a line of JSON.

    A line is a manifest and a number of pictures. The answer has the seconds for them, and the masks of the first picture.
    """
    for item in list(items(manifest))[:WARM_UP]:
        run([item])
    print(json.dumps({"ready": settings}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        count, given = asked["pictures"], list(items(asked["manifest"]))
        begin = time.perf_counter()
        masks = run(given[:count])
        seconds = time.perf_counter() - begin
        first = [{"size": m["size"], "counts": m["counts"].decode()} for m in masks[0]]
        print(json.dumps({"pictures": count, "seconds": seconds, "masks": first}), flush=True)


def quiet():
    warnings.filterwarnings("ignore")
