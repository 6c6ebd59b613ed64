"""Command lines of the exporters: options, exit codes, last words. It imports no library, so usage errors come at once."""

import argparse
import os
import shutil
import signal
import sys

# Exit codes of apps/exit_code.hpp.
INTERNAL, USAGE, SOME_FAILED, MODEL, STORAGE, TERMINATED = 1, 2, 3, 5, 6, 143

# Options of add_options() that only semantic segmenters take.
SEMANTIC_OPTIONS = ("roi", "axes", "orientation", "spacing", "scale_first", "mpp", "activation", "heatmaps", "threshold", "colour", "channels", "channel", "scale", "mean", "std", "clip", "zscore", "percentiles", "clip_to_percentiles", "channel_wise", "mean_of")


def end(code, text, name="export"):
    """Ends the process with a line on stderr, after all that was printed."""
    sys.stdout.flush()
    print(f"{name}: {text}", file=sys.stderr)
    raise SystemExit(code)


unfinished = []  # folders that a stopped command removes


def stop_on_signals(name="export"):
    """SIGINT and SIGTERM end the process in their handler. Libraries would catch an exception and continue."""

    def stop(number, frame):
        print(f"{name}: stopped", file=sys.stderr)
        for folder in unfinished:
            shutil.rmtree(folder, ignore_errors=True)
        if number == signal.SIGINT:  # the process ends by the signal, as shells expect
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        os._exit(TERMINATED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


class Parser(argparse.ArgumentParser):
    """Takes no abbreviations of options, as `millrace run`. A usage error is one line that ends with `advice`."""

    def __init__(self, advice, name="export", **options):
        super().__init__(allow_abbrev=False, **options)
        self.advice, self.name = advice, name

    def error(self, message):
        end(USAGE, f"{message}; {self.advice}", self.name)


def exit_codes(**special):
    """The end of a help text: all exit codes of a command. `special` has those that not every command has."""
    texts = {0: "done", INTERNAL: "internal error", USAGE: "wrong use"} | {globals()[name]: text for name, text in special.items()}
    texts |= {128 + signal.SIGINT: "stopped by Ctrl-C", TERMINATED: "stopped by SIGTERM"}
    return "exit codes:\n" + "\n".join(f"  {code:<4} {text}" for code, text in sorted(texts.items()))


def add_options(parser):
    """The options of every export. `millrace model --help` (apps/model.cpp) describes them, too."""
    parser.add_argument("--photograph", metavar="FILE", help="picture for the comparison of package and original")
    parser.add_argument("--imgsz", metavar="N", type=int, nargs="+", help="detectors, classify, regress: input side, or height and width; default of detectors: that of the training")
    parser.add_argument("--shorter-side", metavar="N", type=int, help="classify, regress: the shorter side becomes N pixels, and the centre is cut out; default: the picture is stretched")
    parser.add_argument("--names", metavar="FILE", help="names of the classes or values, one per line; default: COCO's 80 (YOLO in ONNX), ImageNet's 1000 (torchvision)")
    parser.add_argument("--preset", metavar="V1|V2", help="torchvision: preprocessing that the weights were trained for; default: that of the file, or V1")
    parser.add_argument("--task", metavar="TASK", choices=("semantic", "classify", "regress"), help="semantic: WEIGHTS is TorchScript that gives a value for each pixel, a trained model of nnU-Net v2, or a bundle of MONAI. classify, regress: TorchScript that gives a logit of each class, or numbers, for a picture. Default: found by the content")
    parser.add_argument("--roi", metavar="N", type=int, nargs="+", help="semantic: side of a window, or height and width; of volumes three sides")
    parser.add_argument("--axes", metavar="xyz|zyx", choices=("xyz", "zyx"), help="semantic: order of the axes of volumes, as the model takes them; default: xyz")
    parser.add_argument("--orientation", metavar="RAS", help="semantic: directions of the axes x, y and z, to which volumes are turned; default: those of the file")
    parser.add_argument("--spacing", metavar="X", type=float, nargs=3, help="semantic: sides of a voxel in mm (x, y, z), to which volumes are resampled; 0 and default: that of the file")
    parser.add_argument("--scale-first", action="store_true", default=None, help="semantic: with --spacing, volumes are scaled before they are resampled")
    parser.add_argument("--mpp", metavar="X", type=float, help="semantic: micrometres a pixel, to which slides are resampled; default: those of the file")
    parser.add_argument("--activation", metavar="WORD", choices=("softmax", "sigmoid", "none"), help="semantic, classify: softmax, sigmoid or none; default: softmax, or sigmoid for one channel or class")
    parser.add_argument("--heatmaps", action="store_true", default=None, help="semantic: the channels are heatmaps; a run finds their maxima; default of --activation: none")
    parser.add_argument("--threshold", metavar="X", type=float, help="semantic: with sigmoid or none, values above it belong to the class; default for one channel: 0.5")
    parser.add_argument("--colour", metavar="rgb|bgr", choices=("rgb", "bgr"), help="with --task: order of the channels; default: rgb")
    parser.add_argument("--channels", metavar="N", type=int, help="semantic: pictures have N channels with the values of the file, a volume has N volumes of a NIfTI; default: RGB of 8 bits, one volume")
    parser.add_argument("--channel", metavar="KEY=VALUE", nargs="+", action="append", help="semantic: once for each channel of the file that is scaled in its own way: clip=LOW,HIGH scale=X mean=X std=X, zscore=WORD or percentiles=X,X clip_to_percentiles=yes; default: scale=1 mean=0 std=1")
    parser.add_argument("--scale", metavar="X", type=float, help="with --task: a value v becomes (v * scale - mean) / std; default: 1/255, volumes 1; for pictures with --channels there is none")
    parser.add_argument("--mean", metavar="X", type=float, nargs="+", help="with --task: one number, or one for each channel; default: 0")
    parser.add_argument("--std", metavar="X", type=float, nargs="+", help="with --task: one number, or one for each channel; default: 1")
    parser.add_argument("--clip", metavar="X", type=float, nargs=2, help="semantic: lowest and highest value; others are limited to them first")
    parser.add_argument("--zscore", metavar="WORD", choices=("all", "nonzero", "nonzero_box"), help="semantic: in place of scale, mean and std: the mean and deviation of the item's own values, of those that are not zero, or of those in their box")
    parser.add_argument("--percentiles", metavar="X", type=float, nargs=2, help="semantic: in place of scale, mean and std: these percentiles of the item's own values become 0 and 1")
    parser.add_argument("--clip-to-percentiles", action="store_true", default=None, help="semantic: with --percentiles, values below and above become 0 and 1")
    parser.add_argument("--channel-wise", action="store_true", default=None, help="semantic: with --zscore or --percentiles, for each channel")
    parser.add_argument("--mean-of", metavar="WORD", choices=("logits", "probabilities"), help="semantic: of several models, the mean of their logits or of their probabilities; default: logits")
    parser.add_argument("--trust", action="store_true", help="load a pickle that contains more than weights and known classes; it may run commands. Of a bundle of MONAI, also evaluate its Python expressions")
    parser.add_argument("--traceback", action="store_true", help="show the Python traceback of an unexpected error")
