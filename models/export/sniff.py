"""Judges a file by its first bytes and, for zip archives, by the names in it: models/sniff.cpp for exporters."""

import zipfile
from pathlib import Path

from package import Refused

SUPPORTED = (
    "the exporters support detectors of Ultralytics from YOLOv3 to YOLO26 and RT-DETR (.pt), YOLO in ONNX (.onnx), the original "
    "checkpoints of SAM, MobileSAM and SAM 2, and torchvision's classifiers (state dicts)"
)

ORIGINAL = "export from the original checkpoint (.pt, .pth) or, for YOLO, from the ONNX file"
FETCH_AGAIN = "the copy or download was probably interrupted; fetch it again"

# By kind: its description and advice. Kinds without advice are those that exporters read.
LOOKS = {
    "checkpoint": ("a PyTorch checkpoint (a pickle in a zip)", None),
    "legacy_pickle": ("a pickle, as old PyTorch checkpoints are", None),
    "onnx": ("an ONNX model", None),
    "torchscript": ("a TorchScript model", f"its compiled graph may fit only one batch size and device; {ORIGINAL}; for a value for each pixel, add --task semantic --roi SIDE; for classes or numbers of a picture, --task classify or regress, with --imgsz SIDE"),
    "exported_program": ("an exported program (.pt2)", ORIGINAL),
    "tensorrt": ("a TensorRT engine", f"it fits one GPU and one TensorRT version; {ORIGINAL}"),
    "safetensors": ("safetensors weights", "it has weights but no graph; take the .pt or .pth file of the same release"),
    "gguf": ("GGUF weights", "it has weights but no graph; take the .pt or .pth file of the same release"),
    "hdf5": ("an HDF5 file, as Keras writes", "TensorFlow models are not supported; use a PyTorch version of the model"),
    "tflite": ("a TensorFlow Lite model", "TensorFlow models are not supported; use a PyTorch version of the model"),
    "git_lfs_pointer": ("a Git LFS pointer, not the file itself", "run 'git lfs pull' in the repository that it came from"),
    "html": ("a web page", "the download was probably an error or login page; open the file in a browser, then fetch the model again"),
    "picture": ("a picture", "name the file with the weights; pictures belong to --input of 'millrace run'"),
    "other_zip": ("a zip archive without a model in it", "if the checkpoint was zipped, unpack it and name the file"),
    "broken_zip": ("a zip archive that is cut off", FETCH_AGAIN),
    "empty": ("empty", FETCH_AGAIN),
    "unknown": ("of an unknown kind", SUPPORTED),
}


def kind_of_zip(path):
    try:
        with zipfile.ZipFile(path) as archive:
            # PyTorch puts all files into one folder, which has the archive's name.
            names = [name.split("/", 1)[-1] for name in archive.namelist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return "broken_zip"
    if any(name.startswith("code/") for name in names):
        return "torchscript"
    if any(name.startswith(("archive_format", "models/", "serialized_exported_program")) for name in names):
        return "exported_program"
    return "checkpoint" if "data.pkl" in names else "other_zip"


def kind_of(path):
    """The kind of a file, a key of LOOKS. Unpickles and runs nothing."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(65536)
    text = head[:512].decode("latin-1").lower().lstrip("\xef\xbb\xbf \t\r\n")
    if size == 0:
        return "empty"
    if head.startswith(b"PK\x03\x04"):
        return kind_of_zip(path)
    if head.startswith(b"version https://git-lfs.github.com/"):
        return "git_lfs_pointer"
    if text.startswith(("<!doctype html", "<html", "<head")) or (text.startswith("<?xml") and "<html" in text):
        return "html"
    for mark, kind in (
        (b"GGUF", "gguf"), (b"\x89HDF\r\n", "hdf5"), (b"ftrt", "tensorrt"), (b"ptrt", "tensorrt"),
        (b"\xff\xd8\xff", "picture"), (b"\x89PNG\r\n", "picture"),
    ):  # fmt: skip
        if head.startswith(mark):
            return kind
    if head[4:8] == b"TFL3":
        return "tflite"
    if head[4:5] == b"{" and b"ftrt" in head:  # Ultralytics writes a block of JSON before the engine
        return "tensorrt"
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return "legacy_pickle"
    # In protobuf, a ModelProto begins with field 1: ir_version, a small varint.
    # Then one of its first string or message fields follows.
    if len(head) > 4 and head[0] == 0x08 and 0 < head[1] < 32 and head[2] in (0x12, 0x1A, 0x22, 0x3A, 0x42):
        return "onnx"
    return "unknown"


def check_readable(path, wanted=()):
    """The kind of a file that an exporter can read, or one of `wanted`. Raises Refused for all others, with advice."""
    path = Path(path)
    if path.is_dir():
        if (path / "model.yaml").is_file():
            raise Refused(f"{path}: is a model package already; give the folder to 'millrace run' as --detector or --segmenter")
        if (path / "plans.json").is_file():
            raise Refused(f"{path}: is a trained model of nnU-Net; add --task semantic")
        if (path / "configs" / "metadata.json").is_file():
            raise Refused(f"{path}: is a bundle of MONAI; add --task semantic")
        raise Refused(f"{path}: is a folder; name the file with the weights")
    if not path.exists():
        raise Refused(f"{path}: no such file; name the file with the weights (exporters download nothing)")
    if not path.is_file():
        raise Refused(f"{path}: is not a regular file; name the file with the weights")
    try:
        kind = kind_of(path)
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from error
    look, advice = LOOKS[kind]
    if advice and kind not in wanted:
        raise Refused(f"{path}: is {look}; {advice}")
    return kind
