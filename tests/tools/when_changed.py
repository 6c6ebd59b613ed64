#!/usr/bin/env python3
"""Runs a test unless nothing that it depends on has changed since it last passed.

    when_changed.py --watch GLOB [--watch GLOB ...] [--file FILE ...] -- COMMAND ...

GLOB is relative to the root of the checkout ("models/export/**").
FILE is any file, such as a built program, or a folder of files.

The key of a pass is a hash of the command, of these files and of the list of test data.
The key and the output of the test are in ${MILLRACE_DEPS:-~/.cache/millrace}/passed, which all clones share.
A test that fails or skips has no key. MILLRACE_ALL_TESTS=1 runs every test.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSED = pathlib.Path(os.environ.get("MILLRACE_DEPS") or pathlib.Path.home() / ".cache" / "millrace") / "passed"
KEPT_S = 30 * 86400


def watched_files(globs):
    """Files below the root that the globs name, without __pycache__. A glob that names nothing is an error."""
    found = set()
    for glob in globs:
        matches = [p for p in ROOT.glob(glob) if p.is_file() and "__pycache__" not in p.parts]
        if not matches:
            sys.exit(f"when_changed: '{glob}' names no file below {ROOT}; correct the test's WATCH in CMake")
        found.update(matches)
    return sorted(found)


def key_of(command, globs, files):
    digest = hashlib.sha256()
    digest.update("\0".join(command).replace(str(ROOT), "").encode())
    named = [part for path in map(pathlib.Path, files) for part in (sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path])]
    for path in [*watched_files(globs), *named]:
        digest.update(f"\0{path.name if path.is_relative_to(ROOT / 'build') else path}\0".replace(str(ROOT), "").encode())
        digest.update(path.read_bytes())
    data = pathlib.Path(os.environ.get("MILLRACE_TEST_DATA", ROOT.parent / "shared" / "data"))
    for path in sorted(data.rglob("*")):
        if path.is_file():
            digest.update(f"\0{path.relative_to(data)} {path.stat().st_size}".encode())
    return digest.hexdigest()[:40]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--watch", action="append", default=[])
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("a command is missing after --")
    stamp = PASSED / key_of(command, arguments.watch, arguments.file)
    if stamp.exists() and not os.environ.get("MILLRACE_ALL_TESTS"):
        stamp.touch()
        print("unchanged since it passed: not run again (MILLRACE_ALL_TESTS=1 runs it)")
        print(stamp.read_text(), end="")  # so that its cases and skips count again
        return 0
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as test:
        for line in test.stdout:
            print(line, end="", flush=True)
            said.append(line)
    code = test.returncode
    if code == 0:
        PASSED.mkdir(parents=True, exist_ok=True)
        stamp.write_text("".join(said))
        for old in PASSED.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another clone may have deleted it
                if old.stat().st_mtime < time.time() - KEPT_S:
                    old.unlink()
    return code


if __name__ == "__main__":
    sys.exit(main())
