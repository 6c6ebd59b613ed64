"""The usual script: YOLOv8n and MobileSAM, one picture at a time, float32, PyTorch as it is: usual.py MANIFEST.jsonl"""

import sys
import tempfile

import common
import torch


def main():
    common.quiet()
    with tempfile.TemporaryDirectory() as folder:
        yolo, sam, threads = common.detector(folder), common.Sam(), torch.get_num_threads()

        @torch.inference_mode()
        def run(items):
            results = []
            for path, boxes in items:
                pixels = common.read(path)
                yolo.predict(pixels, verbose=False)
                torch.set_num_threads(threads)  # the first prediction of Ultralytics lowers it to the cores but one
                image, part, size = sam.prepare(pixels[..., ::-1])
                embedding = sam.encoder(image)
                logits = sam.decode(embedding, boxes * (part[1] / size[1]))
                masks = sam.full_size(logits, part, size).numpy()
                results.append([common.encode(mask) for mask in masks])
            return results

        common.serve(run, sys.argv[1], {"threads": threads})


if __name__ == "__main__":
    main()
