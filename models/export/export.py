"""Makes a model package from published weights: export.py WEIGHTS OUT.pkg

WEIGHTS can be:
- a detector of Ultralytics (YOLOv8, YOLO11)
- a YOLOX in ONNX
- an original checkpoint of MobileSAM or SAM ViT-B
- a state dict of a torchvision classifier

The content of the file decides which it is.
The exporter compares the package with the original, and deletes it if they differ.
"""

import argparse
import os
import sys
import tempfile
import warnings
from pathlib import Path

from package import Differs, Refused, check_target, quiet_threads

import photograph
from sniff import check_readable

# By default, the ultralytics package looks for updates, installs missing packages,
# and writes settings into the home folder.
settings = tempfile.TemporaryDirectory(prefix="millrace-export-")
os.environ.setdefault("YOLO_CONFIG_DIR", settings.name)
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("YOLO_VERBOSE", "false")


# The families of weights, and the task of each.
TASKS = {"yolox": "detector", "ultralytics": "detector", "sam": "segmenter", "torchvision": "embedder"}

# Options that only some families take: these families, and a text for messages.
OPTIONS = {
    "imgsz": (("ultralytics",), "detectors of Ultralytics; other models have a fixed input, or that of their preset"),
    "names": (("yolox", "torchvision"), "models that may not name their classes: YOLOX in ONNX and torchvision's classifiers"),
    "preset": (("torchvision",), "torchvision's classifiers"),
}


def family_of(weights, trust):
    """A key of TASKS, and the loaded checkpoint (None for an ONNX file)."""
    if check_readable(weights) == "onnx":
        return "yolox", None
    import checkpoint
    import torchvision_classifier
    import ultralytics_yolo

    loaded = checkpoint.load(weights, trust)
    if ultralytics_yolo.is_checkpoint(loaded):
        return "ultralytics", loaded
    state, _ = checkpoint.state_dict_of(weights, loaded)
    return "torchvision" if torchvision_classifier.is_state_dict(state) else "sam", loaded


def export(arguments):
    weights, out = Path(arguments.weights), Path(arguments.out)
    check_readable(weights)
    check_target(out)
    pixels = photograph.read(arguments.photograph)
    family, loaded = family_of(weights, arguments.trust)
    for option, (families, purpose) in OPTIONS.items():
        if getattr(arguments, option) and family not in families:
            raise Refused(f"{weights}: --{option} is for {purpose}; leave --{option} out")
    if family == "yolox":
        import yolox_onnx

        yolox_onnx.export(weights, out, pixels, arguments.names)
    elif family == "ultralytics":
        import ultralytics_yolo

        ultralytics_yolo.export(weights, loaded, out, pixels, arguments.imgsz)
    elif family == "torchvision":
        import torchvision_classifier

        torchvision_classifier.export(weights, loaded, out, pixels, arguments.names, arguments.preset)
    else:
        import sam_checkpoint

        sam_checkpoint.export(weights, loaded, out, pixels)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="export.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", metavar="WEIGHTS", help=".pt, .pth or .onnx file")
    parser.add_argument("out", metavar="OUT.pkg", nargs="?", help="folder to write; an older package is replaced")
    parser.add_argument("--photograph", metavar="FILE", help="picture for the comparison of package and original")
    parser.add_argument("--imgsz", metavar="N", type=int, nargs="+", help="Ultralytics: input side, or height and width; default: that of the training")
    parser.add_argument("--names", metavar="FILE", help="YOLOX, torchvision: names of the classes, one per line; default: COCO's 80, ImageNet's 1000")
    parser.add_argument("--preset", metavar="V1|V2", help="torchvision: preprocessing that the weights were trained for; default: that of the file, or V1")
    parser.add_argument("--trust", action="store_true", help="load a pickle that contains more than weights and known classes; it may run commands")
    parser.add_argument("--traceback", action="store_true", help="show the Python traceback of an unexpected error")
    parser.add_argument("--task", action="store_true", help="print the kind of model (detector, segmenter or embedder) and write nothing")
    arguments = parser.parse_args(argv)
    if not (arguments.out or arguments.task):
        parser.error("OUT.pkg is missing: the folder to write")
    warnings.filterwarnings("ignore")
    quiet_threads()
    try:
        if arguments.task:
            print(TASKS[family_of(Path(arguments.weights), arguments.trust)[0]])
            return
        export(arguments)
        print("it computes what the original does: every difference above is within its bound")
    except Refused as error:
        sys.exit(f"export: {error}")
    except Differs as error:
        sys.exit(f"export: {arguments.weights}: {error}; nothing was written. Please report this with the source of the weights")
    except OSError as error:
        sys.exit(f"export: {error.filename or arguments.out}: {error.strerror or error}; nothing was written")
    except Exception as error:  # PyTorch, onnx2torch and Ultralytics throw many types for a model that is not like the tested ones
        if arguments.traceback:
            raise
        first = (str(error).strip() or "no reason given").split("\n")[0][:200]
        sys.exit(f"export: {arguments.weights}: cannot be run or traced ({type(error).__name__}: {first}); nothing was written; --traceback shows where")


if __name__ == "__main__":
    main()
