"""Prints the most memory that LibTorch takes in a call of SAM ViT-B's encoder for 16 pictures, in bytes: as exported, then in its form for GPUs.

The encoder has two layers, one that attends in windows and one that sees the whole picture. Further layers use the same memory again.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "models/export"))

import compile as compiler  # noqa: E402
import gpu_graph  # noqa: E402
import torch  # noqa: E402
from ultralytics.models.sam import build  # noqa: E402

PICTURES, CHANNELS, HEADS = 16, 768, 12

torch.backends.cuda.enable_cudnn_sdp(False)  # as in compiled code
with torch.no_grad():
    encoder = build._build_sam(CHANNELS, 2, HEADS, [1]).image_encoder.eval()
    pictures = torch.zeros(PICTURES, 3, 1024, 1024)
    program = torch.export.export(encoder, (pictures,), strict=False)
    for change in (lambda module: module, gpu_graph.for_gpu):
        module = change(compiler.with_weights(program, torch.bfloat16, "cuda"))
        images = pictures.to("cuda", torch.bfloat16)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        module(images)
        print(torch.cuda.max_memory_allocated() - before, flush=True)
