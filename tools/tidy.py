#!/usr/bin/env python3
"""Runs clang-tidy on every source file that does not include LibTorch, directly or through headers.

    tools/tidy.py [FILE ...]

Configures build/release and uses its compile commands. Runs JOBS jobs (default 2) at a time.
The exit code is 1 if a file did not pass.

A file that passed is skipped until it, a header of ours that it includes, its command or .clang-tidy changes.
The keys of files that passed are in ${MILLRACE_DEPS:-~/.cache/millrace}/tidy, which all clones share.
Unused keys are deleted after 30 days.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
STAMPS = pathlib.Path(os.environ.get("MILLRACE_DEPS") or pathlib.Path.home() / ".cache" / "millrace") / "tidy"
CONFIGURATIONS = [ROOT / ".clang-tidy", ROOT / "tests" / ".clang-tidy"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


@functools.lru_cache(maxsize=None)
def includes(path):
    """(files of ours that this file includes, whether it includes LibTorch)."""
    found = INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace"))
    ours = [ROOT / name for kind, name in found if kind == '"' and (ROOT / name).is_file()]
    return ours, any(LIBTORCH.match(name) for _, name in found)


def closure(source):
    """(sorted files, whether one of them includes LibTorch).

    The files are `source` and all files of ours that it includes, directly or through others.
    """
    seen, todo, torch = {source}, [source], False
    while todo:
        ours, takes_torch = includes(todo.pop())
        torch |= takes_torch
        todo.extend(path for path in ours if path not in seen)
        seen.update(ours)
    return sorted(seen), torch


def key(files, command):
    """A hash of everything that the result depends on. The path of the clone is not part of it."""
    digest = hashlib.sha256()
    digest.update(command.replace(str(ROOT), "").encode())
    for path in [*CONFIGURATIONS, *files]:
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:40]


def tidy(source):
    done = subprocess.run(
        ["clang-tidy-19", "--quiet", f"-p={BUILD}", "--extra-arg=-Wno-error", "--extra-arg=-Wno-unknown-warning-option", str(source)],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )
    return done.returncode, done.stdout + (done.stderr if done.returncode and not done.stdout else "")


def main():
    began = time.monotonic()
    configured = subprocess.run(
        ["cmake", "--preset", "release"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if configured.returncode:
        print(configured.stdout, file=sys.stderr)
        return 1
    asked = {pathlib.Path(name).resolve() for name in sys.argv[1:]}
    STAMPS.mkdir(parents=True, exist_ok=True)
    todo, known, left_out = {}, 0, 0
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"]).resolve()
        if (asked and source not in asked) or source.suffix != ".cpp" or BUILD in source.parents or not source.is_file():
            continue
        files, torch = closure(source)
        if torch:
            left_out += 1
            continue
        stamp = STAMPS / key(files, re.sub(r" -o \S+", "", entry["command"]))
        if stamp.exists():
            os.utime(stamp)
            known += 1
        else:
            todo.setdefault(source, stamp)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        running = {pool.submit(tidy, source): source for source in todo}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            source, (code, output) = running[done], done.result()
            if code == 0:
                todo[source].touch()
            else:
                failed += 1
                print(f"{source.relative_to(ROOT)}:\n{output.strip()}", flush=True)
            if number % 20 == 0:
                print(f"tidy: {number} of {len(todo)}", flush=True)
    month = time.time() - 30 * 86400
    for stamp in STAMPS.iterdir():
        if stamp.stat().st_mtime < month:
            stamp.unlink(missing_ok=True)
    print(f"tidy: {len(todo)} checked, {known} unchanged, {left_out} with LibTorch left out, {failed} failed, "
          f"{time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
