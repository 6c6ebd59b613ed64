"""Compares the mask decoder of packages with the original: bench/decoder.py [--out FILE.json] [--runs 7]

Both decode the same boxes of one picture with the same seeded weights of MobileSAM, in turns, in float32 on the CPU.
Run it with the interpreter of the Python set. LD_PRELOAD chooses the allocator.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "export"))

import export  # noqa: E402, F401  (it sets the environment of ultralytics)
import machine  # noqa: E402
import torch  # noqa: E402
from box_decoder import BoxDecoder  # noqa: E402
from mobile_sam_seeded import seeded  # noqa: E402
from segmenter import random_boxes  # noqa: E402

BOXES = (1, 5, 10, 20, 50)


def decoders():
    """The original decoder and ours: functions of an embedding and boxes that return logits."""
    sam = seeded(0)
    prompt, decoder = sam.prompt_encoder, sam.mask_decoder
    ours = torch.jit.freeze(torch.jit.script(BoxDecoder(prompt, decoder).eval()))

    def original(embedding, boxes):
        sparse, dense = prompt(points=None, boxes=boxes, masks=None)
        return decoder(embedding, prompt.get_dense_pe(), sparse, dense, multimask_output=False)[0][:, 0]

    def restructured(embedding, boxes):
        sparse, _ = prompt(points=None, boxes=boxes, masks=None)
        return ours(embedding, sparse, torch.zeros(len(boxes), dtype=torch.int64))[0]

    return {"original": original, "ours": restructured}


def inputs(count):
    torch.manual_seed(count)
    return torch.randn(1, 256, 64, 64), random_boxes(count, 1024)


def times(runs):
    """Milliseconds of each call: the first call of each is not counted."""
    found, both = {}, decoders()
    for count in BOXES:
        given, each = inputs(count), {name: [] for name in both}
        for i in range(runs + 1):
            for name, decode in both.items():
                begin = time.perf_counter()
                decode(*given)
                if i > 0:
                    each[name].append(1000 * (time.perf_counter() - begin))
        difference = both["ours"](*given) - both["original"](*given)
        ratio = statistics.median(a / b for a, b in zip(each["original"], each["ours"]))
        found[count] = {"ms": {name: [round(v, 1) for v in sorted(values)] for name, values in each.items()}, "ratio": round(ratio, 2)}
        line = ", ".join(f"{name} {statistics.median(v):.0f} ms [{min(v):.0f} to {max(v):.0f}]" for name, v in each.items())
        print(f"{count:3} boxes: {line}, {ratio:.2f} times as fast; largest difference {difference.abs().max().item():.1e}", flush=True)
    return found


def growth(name):
    """MB by which the peak memory of this process grows in a call with 50 boxes, after one with 1 box."""
    decode, given = decoders()[name], inputs(50)
    decode(*inputs(1))
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes the memory of now
    before = memory("VmRSS")
    decode(*given)
    return memory("VmHWM") - before


def memory(kind):
    """MB of this process: VmRSS (now) or VmHWM (peak)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind)]
    return int(line.split()[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--growth", choices=("original", "ours"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    with torch.inference_mode():
        if arguments.growth:
            print(growth(arguments.growth))
            return
        described = machine.described() | {"threads": arguments.threads}
        described |= {"allocator": Path(os.environ.get("LD_PRELOAD", "glibc")).name, "load": os.getloadavg()[0], "floors": [machine.floors()]}
        described["boxes"] = times(arguments.runs)
        described["floors"].append(machine.floors())
    for name in ("original", "ours"):
        done = subprocess.run([sys.executable, __file__, "--growth", name, "--threads", str(arguments.threads)], capture_output=True, text=True, check=True)
        described.setdefault("peak_growth_mb", {})[name] = round(float(done.stdout), 1)
    print(f"memory for 50 boxes: {described['peak_growth_mb']}")
    if arguments.out:
        arguments.out.write_text(json.dumps(described, indent=1) + "\n")


if __name__ == "__main__":
    main()
