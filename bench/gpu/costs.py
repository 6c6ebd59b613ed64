"""What the models of the suite cost for a picture, or for a box of a decoder. bench/model_cost.py counted calls of 16 pictures and of 160 boxes."""

BYTES_PER_S = 4.8e12  # of an H200's memory

# A multiply with its add counts as two. models/demo/README.md has those of the built-in models.
GFLOP = {("yolov8n", "forward"): 8.7, ("mobile_sam", "encode"): 77.5, ("mobile_sam", "decode"): 1.5, ("front", "forward"): 1.2, ("left", "forward"): 1.2,
         ("right", "forward"): 1.2, ("segmenter", "encode"): 2.7, ("segmenter", "decode"): 0.22}

# Megabytes that kernels read and write in 16 bits; in 32 bits it is twice that. Those of the built-in models were not counted.
MEGABYTES = {
    "torchscript": {("yolov8n", "forward"): 271, ("mobile_sam", "encode"): 3319, ("mobile_sam", "decode"): 118},
    "compiled": {("yolov8n", "forward"): 166, ("mobile_sam", "encode"): 1635, ("mobile_sam", "decode"): 42},
}

# Milliseconds of all kernels of compiled models for 16 pictures, and of the decoder for 160 boxes, as (lower, upper) limits.
# The upper one was measured on an H200 (bench/results/nvidia-h200-2026-11-27.json, `dram`). The lower one is a prediction:
# docs/performance_gpu.md, "Kernels of compiled models on an H200", names what should save the difference.
COMPILED_MS = {("yolov8n", "forward"): (2.3, 3.3), ("mobile_sam", "encode"): (11.7, 18.7), ("mobile_sam", "decode"): (6.2, 9.2)}
