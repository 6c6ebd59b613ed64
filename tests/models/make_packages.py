"""Makes the model packages for tests: make_packages.py OUT DATA

Writes OUT/{sam_small,yolox,yolov8n,mobile_sam,mobilenet_v2}.pkg.
Writes YOLOX's input for street.jpg and ONNX Runtime's output as raw floats to OUT/yolox_reference.
Writes OUT/compiled/sam_small.pkg with a compiled variant, whose calls have 2 pictures or 3 boxes, if this CPU can run one.
Keeps packages that the same scripts and libraries have already made.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "apps"))
import program

EXPORT = Path(__file__).resolve().parents[2] / "models" / "export"
LIBRARIES = ("torch", "torchvision", "ultralytics", "onnx2torch", "onnxruntime", "numpy", "opencv-python-headless")


def stamp_of(arguments):
    """A hash of everything that determines the result.

    This is: this file, the exporters, their arguments and input, and the libraries.
    """
    stamp = hashlib.sha256(repr(arguments).encode())
    for file in (Path(__file__), *sorted(EXPORT.glob("*.py")), *(Path(a) for a in arguments if Path(a).is_file())):
        stamp.update(file.read_bytes())
    for library in LIBRARIES:
        stamp.update(f"{library} {importlib.metadata.version(library)}".encode())
    return stamp.hexdigest()


def make(out, arguments, command):
    """Runs `command` unless OUT exists and its stamp is right."""
    stamp_file = out.with_suffix(".stamp")
    stamp = stamp_of(arguments)
    if out.is_dir() and stamp_file.is_file() and stamp_file.read_text() == stamp:
        print(f"{out.name}: up to date")
        return
    stamp_file.unlink(missing_ok=True)
    command()
    stamp_file.write_text(stamp)


def export(out, script, *arguments):
    make(out, (script, *arguments), lambda: subprocess.run([sys.executable, str(EXPORT / script), *arguments, str(out)], check=True))


def compile_package(source, out):
    """Copies a package to `out` and compiles it there. In a folder of its own, so that only the tests of variants use it."""
    shutil.rmtree(out.parent, ignore_errors=True)
    shutil.copytree(source, out)
    # compile.py starts the program, which may be built with a sanitizer. That cannot run with another allocator.
    environment = {**os.environ, "MILLRACE_PROGRAM": str(Path(program.PROGRAM).resolve()), "LD_PRELOAD": ""}
    command = [sys.executable, str(EXPORT / "compile.py"), str(out), "--rows", "2", "--boxes", "3"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    if "needs a CPU with AVX2" in done.stderr:
        print(f"{out}: not compiled: {done.stderr}")
    elif done.returncode != 0:
        sys.exit(done.stderr)


def write_yolox_reference(out, onnx, picture):
    import cv2
    import numpy
    import onnxruntime

    side = 416
    pixels = cv2.imread(str(picture), cv2.IMREAD_COLOR)
    ratio = min(side / pixels.shape[0], side / pixels.shape[1])
    resized = cv2.resize(pixels, (int(pixels.shape[1] * ratio), int(pixels.shape[0] * ratio)), interpolation=cv2.INTER_LINEAR)
    padded = numpy.full((side, side, 3), 114, numpy.uint8)
    padded[: resized.shape[0], : resized.shape[1]] = resized
    images = numpy.ascontiguousarray(padded.transpose(2, 0, 1)[None], dtype=numpy.float32)
    session = onnxruntime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    raw = session.run(None, {session.get_inputs()[0].name: images})[0][0]
    # Decodes in double precision, as YOLOX's own code with --decode_in_inference.
    cells = [numpy.stack([*numpy.meshgrid(*[numpy.arange(side // stride)] * 2), numpy.full([side // stride] * 2, stride)], -1).reshape(-1, 3) for stride in (8, 16, 32)]
    cells = numpy.concatenate(cells).astype(numpy.float64)
    centres, sides = (raw[:, :2] + cells[:, :2]) * cells[:, 2:], numpy.exp(raw[:, 2:4].astype(numpy.float64)) * cells[:, 2:]
    output = numpy.concatenate([centres, sides, raw[:, 4:5] * raw[:, 5:]], 1).T.astype(numpy.float32)  # layout v8
    output = numpy.ascontiguousarray(output)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    images.tofile(out / "input.f32")
    output.tofile(out / "output.f32")
    print(f"wrote {out}: input {images.shape}, output {output.shape}")


def main():
    out, data = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may share the folder
        export(out / "sam_small.pkg", "mobile_sam_seeded.py", "--seed", "0", "--small")
        small, compiled = out / "sam_small.pkg", out / "compiled" / "sam_small.pkg"
        # Machine code fits only the CPU that it was compiled on.
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
        stamped = ("compile", str(small / "model.yaml"), hashlib.sha256(flags.encode()).hexdigest())
        make(compiled.parent, stamped, lambda: compile_package(small, compiled))
        export(out / "yolov8n.pkg", "yolov8_seeded.py", "--seed", "0")
        onnx, picture = data / "models" / "yolox_nano.onnx", data / "pictures" / "street.jpg"
        if onnx.is_file() and picture.is_file():
            export(out / "yolox.pkg", "export.py", str(onnx))
            reference = out / "yolox_reference"
            make(reference, (str(onnx), str(picture)), lambda: write_yolox_reference(reference, onnx, picture))
        else:
            print(f"yolox.pkg: not made, because {onnx} or {picture} is missing")
        export(out / "mobile_sam.pkg", "mobile_sam_seeded.py", "--seed", "0")
        weights = program.WEIGHTS / "mobilenet_v2-b0353104.pth"
        if weights.is_file():
            export(out / "mobilenet_v2.pkg", "export.py", str(weights))
        else:
            print(f"mobilenet_v2.pkg: not made, because {weights} is missing (tools/setup.sh weights)")


if __name__ == "__main__":
    main()
