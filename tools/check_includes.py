#!/usr/bin/env python3
"""Checks the structure of the sources: tools/check_includes.py [ROOT]. Prints file:line and the broken rule; exit code 1 if there is one.

    apps -> run -> stages -> { models, pipeline } -> { gpu, io } -> base, never upwards; inside io/:
    files <- { input, decode } <- results <- sinks. No file includes itself over others.
    One library, one place: TBB in pipeline/, LibTorch in models/engines/torch/, OpenCV in io/ and gpu/, the CUDA runtime in gpu/, NVTX
    in base/trace.cpp, Boost in apps/. Tests may include every part; tests and benchmarks may compare with outside libraries.
    A file has at most 500 lines. Nothing that changes is static; a once_flag or a thread_local says why in the comment above it.
"""

import pathlib
import re
import sys

MAX_LINES = 500

# Folder -> folders of ours that it may include besides itself.
MAY_INCLUDE = {
    "base": set(),
    "gpu": {"base"},
    "io": {"base"},
    "pipeline": {"base"},
    "models": {"gpu", "io", "base"},
    "stages": {"models", "pipeline", "gpu", "io", "base"},
    "run": {"stages", "models", "pipeline", "gpu", "io", "base"},
    "apps": {"run", "stages", "models", "pipeline", "gpu", "io", "base"},
    "bench": {"run", "stages", "models", "pipeline", "gpu", "io", "base"},
}
# Folder of io/ -> folders of io/ that it may include besides itself.
IO_MAY_INCLUDE = {
    "files": set(),
    "input": {"files"},
    "decode": {"files"},
    "results": {"files", "input", "decode"},
    "sinks": {"files", "input", "decode", "results"},
}

# Outside library -> what its includes look like, where they may stand, how that is said.
LIBRARIES = {
    "TBB": (re.compile(r"(oneapi/)?tbb/"), lambda path: path.parts[0] == "pipeline", "pipeline/"),
    "LibTorch": (
        re.compile(r"(torch|ATen|c10|caffe2)/"),
        lambda path: path.parts[:3] == ("models", "engines", "torch"),
        "models/engines/torch/",
    ),
    "OpenCV": (re.compile(r"opencv2/"), lambda path: path.parts[0] in ("io", "gpu"), "io/ and gpu/"),
    "CUDA": (
        re.compile(r"(cuda|cuda_runtime|cuda_runtime_api|cuda_fp16|cuda_bf16|driver_types|device_launch_parameters)\.h$|(cub|thrust)/"),
        lambda path: path.parts[0] == "gpu",
        "gpu/",
    ),
    "NVTX": (re.compile(r"nvtx3/"), lambda path: path.parts[0] == "gpu" or path.as_posix() == "base/trace.cpp", "gpu/ and base/trace.cpp"),
    "Boost": (re.compile(r"boost/"), lambda path: path.parts[0] == "apps", "apps/"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc"}
LIMITED = SOURCES | {".py", ".sh", ".cmake"}
IGNORED = {"build", ".git", "__pycache__"}

# A variable that lives as long as the program: `static` anywhere, or, as clang-format leaves namespaces unindented, a declaration that
# begins its line. Neither has a parenthesis before its name's end, as functions have.
STATIC = re.compile(r"^\s*(?:inline\s+)?(?:static|thread_local)\b(?P<rest>.*)")
GLOBAL = re.compile(r"^(?:inline\s+|extern\s+)?[A-Za-z_][\w:]*(?:<[^()]*>)?[\s*&]+[A-Za-z_]\w*(?:\[\w*\])*\s*(?:=[^=].*|\{.*\})?;")
NO_VARIABLE = re.compile(r"^(?:using|typedef|namespace|class|struct|enum|union|friend|return|template|goto|case|public|private|protected|throw|delete)\b")
CONSTANT = re.compile(r"\b(?:const|constexpr|consteval|static_assert)\b")


def in_words(folders):
    return ", ".join(sorted(folders)) or "nothing of ours"


def broken_includes(root, path, lines):
    folder = path.parts[0]
    in_tests = folder == "tests"
    compares = in_tests or folder == "bench"
    allowed = MAY_INCLUDE.get(folder, set()) | {folder}
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, name = match[1] == '"', match[2]
        target = pathlib.PurePosixPath(name).parts
        if name == "torch/torch.h":
            yield number, "torch/torch.h is included nowhere: it costs 20 s a file; take ATen/ops/*.h or torch/script.h"
            continue
        if quoted:
            if name.startswith(".") or not (root / name).is_file():
                yield number, f'"{name}" is no file below the root: includes of ours are written from the root, others in <>'
            elif target[0] == "tests":
                if not in_tests:
                    yield number, f'"{name}": only tests include from tests/'
            elif in_tests:
                pass
            elif target[0] not in allowed:
                yield number, f'"{name}": {folder}/ may include, besides itself, {in_words(allowed - {folder})}'
            elif folder == "io" == target[0] and target[1] != path.parts[1] and target[1] not in IO_MAY_INCLUDE.get(path.parts[1], set()):
                yield number, f'"{name}": io/{path.parts[1]}/ may include of io/, besides itself, {in_words(IO_MAY_INCLUDE.get(path.parts[1], set()))}'
        elif target[0] in MAY_INCLUDE and (root / name).is_file():
            yield number, f'<{name}>: includes of ours are written "{name}"'
        for library, (pattern, may, where) in LIBRARIES.items():
            if pattern.match(name) and not compares and not may(path):
                yield number, f"{library} is included only in {where}"


def mutable_statics(lines):
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        static = STATIC.match(code)
        if static:
            # Up to the end of the declared name: behind it comes a value, a brace or a semicolon; a function has a parenthesis.
            declared = re.split(r"[={;]", re.sub(r"<[^;={]*>", "", static["rest"]), maxsplit=1)[0]
            if "(" in declared or CONSTANT.search(code):
                continue
        elif not GLOBAL.match(code) or NO_VARIABLE.match(code) or CONSTANT.search(code):
            continue
        if re.search(r"\bonce_flag\b|\bthread_local\b", code):
            if number == 1 or not lines[number - 2].lstrip().startswith("//"):
                yield number, "a once_flag or thread_local says why it is one in the comment above it"
            continue
        yield number, "a variable that changes and lives as long as the program: pass it in instead"


def circles(graph):
    """Each circle of includes once, as a list of files; graph is {file: files it includes}."""
    found, state = [], {}

    def visit(file, trail):
        state[file] = "open"
        for target in sorted(graph.get(file, ())):
            if state.get(target) == "open":
                found.append([*trail[trail.index(target):], target] if target in trail else [file, target])
            elif target not in state:
                visit(target, [*trail, target])
        state[file] = "done"

    for file in sorted(graph):
        if file not in state:
            visit(file, [file])
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    problems, graph = [], {}
    for path in sorted(p for top in root.iterdir() if top.is_dir() and top.name not in IGNORED for p in top.rglob("*")):
        relative = path.relative_to(root)
        if path.suffix not in LIMITED or not path.is_file() or IGNORED & set(relative.parts):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > MAX_LINES:
            problems.append((relative, MAX_LINES, f"the file has {len(lines)} lines, and at most {MAX_LINES} are allowed: split it by subject"))
        if path.suffix not in SOURCES or relative.parts[0] not in {*MAY_INCLUDE, "tests"}:
            continue
        if path.suffix in (".hpp", ".cuh", ".h") and not any(line.strip() == "#pragma once" for line in lines):
            problems.append((relative, 1, "a header begins with #pragma once"))
        problems += [(relative, *broken) for broken in broken_includes(root, relative, lines)]
        if relative.parts[0] != "tests":
            problems += [(relative, *broken) for broken in mutable_statics(lines)]
        graph[relative.as_posix()] = {match[2] for match in map(INCLUDE.match, lines) if match and match[1] == '"' and (root / match[2]).is_file()}
    for circle in circles(graph):
        problems.append((circle[0], 1, "a circle of includes: " + " -> ".join(circle)))
    for file, line, message in problems:
        print(f"{file}:{line}: {message}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
