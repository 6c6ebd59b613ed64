"""A model package from published weights: export.py WEIGHTS OUT.pkg

Reads what WEIGHTS is from its content: a detector of Ultralytics (YOLOv8, YOLO11), a YOLOX in ONNX, an original checkpoint of
MobileSAM or SAM ViT-B. Compares the package with the original at once, and leaves nothing behind where they differ.
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

# The ultralytics package looks for updates, installs what it misses and writes settings into the home folder; not for us.
settings = tempfile.TemporaryDirectory(prefix="millrace-export-")
os.environ.setdefault("YOLO_CONFIG_DIR", settings.name)
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("YOLO_VERBOSE", "false")


def task_of(arguments):
    weights = Path(arguments.weights)
    if check_readable(weights) == "onnx":
        return "detector"
    import checkpoint
    import ultralytics_yolo

    return "detector" if ultralytics_yolo.is_checkpoint(checkpoint.load(weights, arguments.trust)) else "segmenter"


def export(arguments):
    weights, out = Path(arguments.weights), Path(arguments.out)
    kind = check_readable(weights)
    check_target(out)
    pixels = photograph.read(arguments.photograph)
    if kind == "onnx":
        if arguments.imgsz:
            raise Refused(f"{weights}: an ONNX model has its input size built in; leave --imgsz out")
        import yolox_onnx

        return yolox_onnx.export(weights, out, pixels, arguments.names)
    if arguments.names:
        raise Refused(f"{weights}: --names is for ONNX files of YOLOX, which do not name their classes; leave it out")
    import checkpoint
    import sam_checkpoint
    import ultralytics_yolo

    loaded = checkpoint.load(weights, arguments.trust)
    if ultralytics_yolo.is_checkpoint(loaded):
        return ultralytics_yolo.export(weights, loaded, out, pixels, arguments.imgsz)
    if arguments.imgsz:
        raise Refused(f"{weights}: --imgsz is for detectors of Ultralytics; SAM's input is always 1024; leave it out")
    return sam_checkpoint.export(weights, loaded, out, pixels)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="export.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", metavar="WEIGHTS", help=".pt, .pth or .onnx file")
    parser.add_argument("out", metavar="OUT.pkg", nargs="?", help="folder to write; a package that is there is replaced")
    parser.add_argument("--photograph", metavar="FILE", help="picture on which package and original are compared")
    parser.add_argument("--imgsz", metavar="N", type=int, nargs="+", help="Ultralytics: input side, or height and width; default: that of the training")
    parser.add_argument("--names", metavar="FILE", help="YOLOX: names of the classes, one a line; default: COCO's 80")
    parser.add_argument("--trust", action="store_true", help="load a pickle with more than weights and known classes; it may run commands")
    parser.add_argument("--traceback", action="store_true", help="show where in Python an unexpected error came from")
    parser.add_argument("--task", action="store_true", help="say whether it is a detector or a segmenter, and write nothing")
    arguments = parser.parse_args(argv)
    if not (arguments.out or arguments.task):
        parser.error("OUT.pkg is missing: the folder to write")
    warnings.filterwarnings("ignore")
    quiet_threads()
    try:
        if arguments.task:
            print(task_of(arguments))
            return
        export(arguments)
        print("it computes what the original does: every difference above is within its bound")
    except Refused as error:
        sys.exit(f"export: {error}")
    except Differs as error:
        sys.exit(f"export: {arguments.weights}: {error}; nothing was written. Please report it, and where the weights come from")
    except OSError as error:
        sys.exit(f"export: {error.filename or arguments.out}: {error.strerror or error}; nothing was written")
    except Exception as error:  # what PyTorch, onnx2torch and Ultralytics throw at a model that is not built like those tested
        if arguments.traceback:
            raise
        first = (str(error).strip() or "no reason given").split("\n")[0][:200]
        sys.exit(f"export: {arguments.weights}: cannot be run or traced ({type(error).__name__}: {first}); nothing was written; --traceback shows where")


if __name__ == "__main__":
    main()
