#!/usr/bin/env python3
"""Checks who includes whom: tools/check_includes.py [ROOT]. Prints file:line and the broken rule; exit code 1 if there is one.

    apps -> stages -> { models, gpu, io, pipeline };  models -> { gpu, io };  pipeline -> gpu (handles only);  never upwards
    One library, one place: TBB in pipeline/, LibTorch in models/torch_engine.cpp, OpenCV in io/ and gpu/,
    the CUDA runtime in gpu/, Boost in apps/. Tests may include every part; tests and benchmarks may compare with outside libraries.
"""

import pathlib
import re
import sys

# Folder -> folders of ours that it may include besides itself.
MAY_INCLUDE = {
    "apps": {"stages", "models", "gpu", "io", "pipeline"},
    "bench": {"apps", "stages", "models", "gpu", "io", "pipeline"},
    "stages": {"models", "gpu", "io", "pipeline"},
    "models": {"gpu", "io"},
    "pipeline": {"gpu"},
    "gpu": set(),
    "io": set(),
}
# What pipeline/ may see of gpu/.
GPU_HANDLES = {"gpu/trace.hpp"}

# Outside library -> what its includes look like, where they may stand, how that is said.
LIBRARIES = {
    "TBB": (re.compile(r"(oneapi/)?tbb/"), lambda path: path.parts[0] == "pipeline", "pipeline/"),
    "LibTorch": (
        re.compile(r"(torch|ATen|c10|caffe2)/"),
        lambda path: path.as_posix() == "models/torch_engine.cpp",
        "models/torch_engine.cpp",
    ),
    "OpenCV": (re.compile(r"opencv2/"), lambda path: path.parts[0] in ("io", "gpu"), "io/ and gpu/"),
    "CUDA": (
        re.compile(r"(cuda|cuda_runtime|cuda_runtime_api|cuda_fp16|cuda_bf16|driver_types|device_launch_parameters)\.h$|(nvtx3|cub|thrust)/"),
        lambda path: path.parts[0] == "gpu",
        "gpu/",
    ),
    "Boost": (re.compile(r"boost/"), lambda path: path.parts[0] == "apps", "apps/"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc"}


def broken_rules(root, path):
    """Yields (line, message) for one file; path is relative to root."""
    folder = path.parts[0]
    in_tests = folder == "tests"
    compares = in_tests or folder == "bench"
    allowed = MAY_INCLUDE.get(folder, set()) | {folder}
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    if path.suffix in (".hpp", ".cuh", ".h") and not any(line.strip() == "#pragma once" for line in lines):
        yield 1, "a header begins with #pragma once"
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, name = match[1] == '"', match[2]
        if name == "torch/torch.h":
            yield number, "torch/torch.h is included nowhere: it costs 20 s a file; take ATen/ops/*.h or torch/script.h"
            continue
        target = pathlib.PurePosixPath(name).parts[0]
        if quoted:
            if name.startswith(".") or not (root / name).is_file():
                yield number, f'"{name}" is no file below the root: includes of ours are written from the root, others in <>'
            elif target == "tests":
                if not in_tests:
                    yield number, f'"{name}": only tests include from tests/'
            elif target not in allowed and not in_tests:
                permitted = ", ".join(sorted(allowed - {folder})) or "nothing of ours"
                yield number, f'"{name}": {folder}/ may include, besides itself, {permitted}'
            elif folder == "pipeline" and target == "gpu" and name not in GPU_HANDLES:
                yield number, f'"{name}": pipeline/ sees of gpu/ its handles only ({", ".join(sorted(GPU_HANDLES))})'
        elif target in MAY_INCLUDE and (root / name).is_file():
            yield number, f'<{name}>: includes of ours are written "{name}"'
        for library, (pattern, may, where) in LIBRARIES.items():
            if pattern.match(name) and not compares and not may(path):
                yield number, f"{library} is included only in {where}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    count = 0
    for top in sorted([*MAY_INCLUDE, "tests"]):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                relative = path.relative_to(root)
                for line, message in broken_rules(root, relative):
                    print(f"{relative}:{line}: {message}")
                    count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
