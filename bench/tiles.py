"""How much time does a run in windows take beyond the bare model calls? tiles.py --out FILE.json

Each turn measures in this order, on one thread, with models of seeded weights:

- bare: the calls alone, by `millrace profile`, ms per window
- millrace: `millrace run` with one lane, from the first file to the last, without loading the model
- monai: `sliding_window_inference` of MONAI with the same frozen model, without reading and writing files

The figures are time / (windows x bare) of each turn: the median, then the smallest and the largest. For volumes,
there is also the time beyond the calls per window: reading, cutting, blending, labels and their file.

It needs the sets python and formats: tools/setup.sh core python formats.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/models")]
sys.path.append(str(Path(sys.prefix).parent / "formats"))

import machine  # noqa: E402
import wnet  # noqa: E402

OVERLAP = {"one picture": 0.5, "16 pictures": 0.25, "volume": 0.25}
SIZES = [(512 + 37 * k % 500, 512 + 91 * k % 700) for k in range(16)]  # height, width
VOLUME = (192, 192, 192)


def smooth_noise(height, width):
    colours = numpy.random.default_rng([height, width]).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), numpy.uint8)
    return Image.fromarray(colours).resize((width, height), Image.BICUBIC)


def models(folder):
    """Scripted models by file name: W-Net for pictures, and for volumes one convolution with 14 classes."""
    torch.manual_seed(1)
    made = {"pictures": wnet.WNet(1, [8, 16, 32]), "volumes": torch.nn.Conv3d(1, 14, 3, padding=1)}
    for name, net in made.items():
        torch.jit.script(net.eval()).save(str(folder / f"{name}.ts"))
    return {name: torch.jit.freeze(torch.jit.load(str(folder / f"{name}.ts")).eval()) for name in made}


def write_inputs(folder):
    """The input of each case."""
    import nibabel

    for name in ("one", "many"):
        (folder / name).mkdir()
    smooth_noise(2048, 2048).save(folder / "one/2048.png")
    for number, size in enumerate(SIZES):
        smooth_noise(*size).save(folder / f"many/{number}.png")
    voxels = numpy.random.default_rng(1).integers(0, 200, VOLUME, numpy.uint8)
    nibabel.save(nibabel.Nifti1Image(voxels, numpy.eye(4)), folder / "volume.nii.gz")
    return {"one picture": folder / "one", "16 pictures": folder / "many", "volume": folder / "volume.nii.gz"}


class Case:
    def __init__(self, name, program, folder, inputs, net):
        self.name, self.program, self.folder, self.inputs, self.net = name, program, folder, inputs, net
        self.volume = name == "volume"
        self.roi = (64, 64, 64) if self.volume else (512, 512)
        package = folder / ("volumes.pkg" if self.volume else "pictures.pkg")
        settings = (f"semantic.model={package}", f"tiles.overlap={OVERLAP[name]}", "threads.lanes=1", "threads.team=1")
        self.words = [str(ROOT / f"configs/{'volume' if self.volume else 'tiled'}.yaml"), "--input", str(inputs),
                      *(word for setting in settings for word in ("--set", setting))]

    def call(self, *words):
        return subprocess.run([str(self.program), *words], check=True, capture_output=True, text=True).stdout

    def bare(self):
        figures = self.folder / "profile.json"
        self.call("profile", *self.words, "--batches", "1", "--seconds", "3", "--json", str(figures))
        return json.loads(figures.read_text())["rows"][0]["ms_each"]

    def run(self, turn):
        """Milliseconds, and windows."""
        out = self.folder / f"out-{self.name.replace(' ', '-')}-{turn}"
        self.call("run", *self.words, "--output", str(out), "--quiet")
        report = json.loads(next((out / "runs").glob("*/report.json")).read_text())
        if report["items"]["failed"]:
            raise SystemExit(f"tiles: {self.name}: {report['items']['failed']}; {out} has the results")
        return report["run_window"]["wall_s"] * 1000, report["calls"]["windows"]

    def arrays(self):
        import nibabel

        if self.volume:
            return [torch.from_numpy(nibabel.load(self.inputs).get_fdata(dtype=numpy.float32))[None, None]]
        pictures = [numpy.array(Image.open(file)) for file in sorted(self.inputs.iterdir())]
        return [torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255 for pixels in pictures]

    def monai(self):
        from monai.inferers import sliding_window_inference

        arrays = self.arrays()
        begin = time.perf_counter()
        with torch.inference_mode():
            for array in arrays:
                values = sliding_window_inference(array, self.roi, 1, self.net, overlap=OVERLAP[self.name], mode="gaussian")
                labels = values.argmax(1) if values.shape[1] > 1 else values > 0
        assert labels.any()
        return (time.perf_counter() - begin) * 1000


def spread(values):
    return {"median": round(statistics.median(values), 4), "least": round(min(values), 4), "most": round(max(values), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/apps/millrace")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--case", choices=list(OVERLAP), action="append", help="measure only this case; may be repeated")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        nets, inputs = models(folder), write_inputs(folder)
        for name, words in (("pictures", ["512"]), ("volumes", ["64", "64", "64", "--mean", "100", "--std", "50"])):
            subprocess.run([options.program, "model", folder / f"{name}.ts", "--task", "semantic", "--roi", *words], check=True, capture_output=True)
        for name in options.case or OVERLAP:
            case = Case(name, options.program, folder, inputs[name], nets["volumes" if name == "volume" else "pictures"])
            turns = []
            for turn in range(options.turns):
                bare = case.bare()
                wall, windows = case.run(turn)
                turns.append({"bare_ms": bare, "windows": windows, "millrace_ms": wall, "monai_ms": case.monai()})
            results[name] = {"turns": turns} | {
                who: spread([one[f"{who}_ms"] / one["windows"] / one["bare_ms"] for one in turns]) for who in ("millrace", "monai")
            }
            if case.volume:
                results[name] |= {f"{who}_beyond_calls_ms": spread([one[f"{who}_ms"] / one["windows"] - one["bare_ms"] for one in turns]) for who in ("millrace", "monai")}
            for key, value in results[name].items():
                if key != "turns":
                    print(f"{name}, {windows} windows: {key} {value['median']} ({value['least']} to {value['most']})", flush=True)
    options.out.write_text(json.dumps({"machine": machine.described(), "torch": torch.__version__, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
