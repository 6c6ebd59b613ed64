"""Makes a model package from published weights: export.py WEIGHTS OUT.pkg

WEIGHTS can be:
- a detector of Ultralytics (YOLOv3 to YOLO26, RT-DETR)
- a YOLO in ONNX: YOLOX, YOLOv5, YOLOv7, or an export of Ultralytics
- an original checkpoint of SAM, MobileSAM or SAM 2
- a state dict of a torchvision classifier
- with --task semantic, TorchScript that gives a value for each pixel, a trained model of nnU-Net v2, or a bundle of MONAI
- with --task classify or regress, TorchScript that gives a logit of each class, or numbers, for a picture

The content of the file decides which it is.
The exporter compares the package with the original, and deletes it if they differ.
`millrace model` calls export() of this file; tests also need its command line.
"""

import argparse
import contextlib
import os
import tempfile
import warnings
from pathlib import Path

from command_line import INTERNAL, MODEL, SEMANTIC_OPTIONS, STORAGE, Parser, add_options, end, unfinished
from package import Differs, Refused, check_target, quiet_threads

import photograph
from sniff import check_readable

# By default, the ultralytics package looks for updates, installs missing packages,
# and writes settings into the home folder.
settings = tempfile.TemporaryDirectory(prefix="millrace-export-")
unfinished.append(settings.name)
os.environ.setdefault("YOLO_CONFIG_DIR", settings.name)
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("YOLO_VERBOSE", "false")


# The families of weights, and the task of each.
TASKS = {"onnx": "detector", "ultralytics": "detector", "sam": "segmenter", "torchvision": "embedder"}

# Options that only some families take: these families, and a text for messages.
OPTIONS = {
    "imgsz": (("ultralytics", "onnx"), "detectors; other models have a fixed input, or that of their preset"),
    "names": (("onnx", "torchvision"), "models that may not name their classes: YOLO in ONNX and torchvision's classifiers"),
    "preset": (("torchvision",), "torchvision's classifiers"),
    "shorter_side": ((), "--task classify and --task regress"),
}
# The tasks of models in TorchScript that see whole pictures, and those of the options above that they take.
HEADS = {"classify": "classifier", "regress": "regressor"}
HEAD_OPTIONS = ("activation", "colour", "scale", "mean", "std")


def family_of(weights, trust):
    """A key of TASKS, and the loaded checkpoint (None for an ONNX file)."""
    if check_readable(weights) == "onnx":
        return "onnx", None
    import checkpoint
    import torchvision_classifier
    import ultralytics_yolo

    loaded = checkpoint.load(weights, trust)
    if ultralytics_yolo.is_checkpoint(loaded):
        return "ultralytics", loaded
    state, _ = checkpoint.state_dict_of(weights, loaded)
    return "torchvision" if torchvision_classifier.is_state_dict(state) else "sam", loaded


def refuse_options(weights, arguments, options):
    """Raises Refused for the first of these options that is given."""
    for option in options:
        if getattr(arguments, option) is not None:
            raise Refused(f"{weights}: --{option.replace('_', '-')} has no meaning with --task {arguments.task}; leave it out")


def export(arguments):
    """Makes the package `arguments.out` and returns its task. With --task semantic, `arguments.members` are further files."""
    weights, out = Path(arguments.weights), Path(arguments.out)
    if arguments.task == "semantic":
        import monai_bundle
        import nnunet
        import semantic

        refuse_options(weights, arguments, ("imgsz", "preset", "shorter_side"))
        files = [weights, *map(Path, getattr(arguments, "members", []))]
        if any(map(monai_bundle.folder_of, files)):
            exporter = monai_bundle
        else:
            files = [fold for file in files for fold in (nnunet.folds_of(file) if file.is_dir() else [file])]
            kinds = {check_readable(file, ("torchscript",)) for file in files}
            exporter = nnunet if kinds == {"checkpoint"} else semantic
        check_target(out)
        exporter.export(files, out, arguments)
        print("it computes what the original does: every difference above is within its bound")
        return "heatmaps" if arguments.heatmaps else "volumes" if len(arguments.roi) == 3 else "semantic"
    if arguments.task in HEADS:
        import heads

        refuse_options(weights, arguments, ("preset", *(option for option in SEMANTIC_OPTIONS if option not in HEAD_OPTIONS)))
        if members := getattr(arguments, "members", []):
            raise Refused(f"{members[0]}: --task {arguments.task} takes one file; name it alone")
        check_readable(weights, ("torchscript",))
        check_target(out)
        heads.export(weights, out, arguments)
        print("it computes what the original does: every difference above is within its bound")
        return HEADS[arguments.task]
    check_readable(weights)
    check_target(out)
    for option in SEMANTIC_OPTIONS:
        if getattr(arguments, option) is not None:
            raise Refused(f"{weights}: --{option.replace('_', '-')} is for semantic segmenters; leave it out, or add --task semantic")
    family, loaded = family_of(weights, arguments.trust)
    for option, (families, purpose) in OPTIONS.items():
        if getattr(arguments, option) and family not in families:
            word = option.replace("_", "-")
            raise Refused(f"{weights}: --{word} is for {purpose}; leave --{word} out")
    pixels = photograph.read(arguments.photograph)
    if family == "onnx":
        import yolo_onnx

        yolo_onnx.export(weights, out, pixels, arguments.names, arguments.imgsz)
    elif family == "ultralytics":
        import ultralytics_yolo

        ultralytics_yolo.export(weights, loaded, out, pixels, arguments.imgsz)
    elif family == "torchvision":
        import torchvision_classifier

        torchvision_classifier.export(weights, loaded, out, pixels, arguments.names, arguments.preset)
    else:
        import sam_checkpoint

        sam_checkpoint.export(weights, loaded, out, pixels)
    print("it computes what the original does: every difference above is within its bound")
    return TASKS[family]


@contextlib.contextmanager
def reported(arguments):
    """Ends the process with a message and an exit code if the export inside fails."""
    try:
        yield
    except Refused as error:
        end(MODEL, error)
    except Differs as error:
        end(INTERNAL, f"{arguments.weights}: {error}; nothing was written. Please report this with the source of the weights")
    except OSError as error:
        end(STORAGE, f"{error.filename or arguments.out}: {error.strerror or error}; nothing was written")
    except Exception as error:  # PyTorch, onnx2torch and Ultralytics throw many types for a model that is not like the tested ones
        if arguments.traceback:
            raise
        first = (str(error).strip() or "no reason given").split("\n")[0][:200]
        end(MODEL, f"{arguments.weights}: cannot be run or traced ({type(error).__name__}: {first}); nothing was written; --traceback shows where")


def be_quiet():
    warnings.filterwarnings("ignore")
    quiet_threads()


def main(argv=None):
    parser = Parser("--help lists the options", prog="export.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", metavar="WEIGHTS", help=".pt, .pth or .onnx file")
    parser.add_argument("out", metavar="OUT.pkg", help="folder to write; an older package is replaced")
    add_options(parser)
    arguments = parser.parse_args(argv)
    be_quiet()
    with reported(arguments):
        export(arguments)


if __name__ == "__main__":
    main()
