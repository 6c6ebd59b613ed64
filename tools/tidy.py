#!/usr/bin/env python3
"""Runs clang-tidy on every source file that does not include LibTorch, directly or through headers.

    tools/tidy.py [FILE ...]

Configures build/release and uses its compile commands. Runs JOBS jobs (default 2) at a time.
The exit code is 1 if a file did not pass.

Most of clang-tidy's time goes into the standard headers. So one call checks a batch of files with equal flags: a source
that includes them all. If a batch fails, its parts are checked, down to single files. So only files that fail alone
fail, and names of two files that clash only cost time.

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
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
STAMPS = pathlib.Path(os.environ.get("MILLRACE_DEPS") or pathlib.Path.home() / ".cache" / "millrace") / "tidy"
CONFIGURATIONS = [ROOT / ".clang-tidy", ROOT / "tests" / ".clang-tidy"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
CLASH = re.compile(r"^(/\S+\.cpp):\d+:\d+: error: .*\[clang-diagnostic-error\]$", re.MULTILINE)
TYPE = re.compile(r"^(?:enum )?(?:class|struct) (\w+)", re.MULTILINE)
NAME = re.compile(r"^(?!namespace|using|template|class|struct|enum|[#/\s}]|[A-Z_]+\()[^=;({\n]*?(?<![:\w])(\w+)(?=\s*[({=;])", re.MULTILINE)
NO_DIFFERENCE = re.compile(r" -(O\d|fPIC|D\w+_EXPORTS)")  # flags that change nothing that clang-tidy sees
BATCH = 10  # files: twice as many save little, and clash more often


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


def names_of(source):
    """Names that stand at the start of a line's declaration, outside of classes: a guess of what may clash in a batch."""
    text = source.read_text(encoding="utf-8", errors="replace")
    return {*TYPE.findall(text), *NAME.findall(text)}


def batches_of(sources):
    """`sources` in batches whose files have no such name in common."""
    batches = []
    for source in sources:
        names = names_of(source)
        for batch, taken in batches:
            if len(batch) < BATCH and not names & taken:
                break
        else:
            batch, taken = [], set()
            batches.append((batch, taken))
        batch.append(source)
        taken |= names
    return [batch for batch, _ in batches]


def key(files, command):
    """A hash of everything that the result depends on. The path of the clone is not part of it."""
    digest = hashlib.sha256()
    digest.update(command.replace(str(ROOT), "").encode())
    for path in [*CONFIGURATIONS, *files]:
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:40]


def tidy(sources, command):
    """(exit code, output) of one clang-tidy call over `sources`, which compile with the flags of `command`."""
    with tempfile.TemporaryDirectory() as folder:
        source, options = sources[0], []
        if len(sources) > 1:
            # The file exists for clang-tidy alone. Its folder says which .clang-tidy counts.
            source = sources[0].parent / "checked_together.cpp"
            text = pathlib.Path(folder) / source.name
            text.write_text("".join(f'#include "{path}"  // NOLINT(bugprone-suspicious-include)\n' for path in sources))
            overlay = pathlib.Path(folder) / "overlay.json"
            overlay.write_text(json.dumps({"version": 0, "roots": [{"name": str(source), "type": "file", "external-contents": str(text)}]}))
            options = [f"--vfsoverlay={overlay}", f"--header-filter=^{re.escape(str(ROOT))}/.*[.][ch]pp$"]
        words = shlex.split(command)
        words[words.index("-c") + 1] = str(source)
        entry = {"directory": str(BUILD), "arguments": words, "file": str(source)}
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps([entry]))
        done = subprocess.run(
            ["clang-tidy-19", "--quiet", f"-p={folder}", *options, "--extra-arg=-Wno-error", "--extra-arg=-Wno-unknown-warning-option",
             str(source)],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )
    return done.returncode, done.stdout + (done.stderr if done.returncode and not done.stdout else "")


def failures(sources, command):
    """The (file, output) of each file that does not pass."""
    code, output = tidy(sources, command)
    if code == 0:
        return []
    if len(sources) == 1:
        return [(sources[0], output)]
    clashes = set(CLASH.findall(output))
    apart = [source for source in sources[1:] if str(source) in clashes] or sources[len(sources) // 2 :]
    return failures([source for source in sources if source not in apart], command) + failures(apart, command)


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
    stamps, alike, known, left_out = {}, {}, 0, 0
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"]).resolve()
        if (asked and source not in asked) or source.suffix != ".cpp" or BUILD in source.parents or not source.is_file():
            continue
        files, torch = closure(source)
        if torch:
            left_out += 1
            continue
        command = re.sub(r" -o \S+", "", entry["command"])
        stamp = STAMPS / key(files, command)
        if stamp.exists():
            os.utime(stamp)
            known += 1
        elif source not in stamps:
            stamps[source] = stamp
            flags = NO_DIFFERENCE.sub("", command.replace(str(source), "SOURCE"))
            alike.setdefault((flags, ROOT / "tests" in source.parents), {})[source] = command
    batches = [(batch, commands[batch[0]]) for commands in alike.values() for batch in batches_of(commands)]
    checked = failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        running = {pool.submit(failures, batch, command): batch for batch, command in batches}
        for done in concurrent.futures.as_completed(running):
            wrong = dict(done.result())
            for source in running[done]:
                checked += 1
                if source in wrong:
                    failed += 1
                    print(f"{source.relative_to(ROOT)}:\n{wrong[source].strip()}", flush=True)
                else:
                    stamps[source].touch()
            print(f"tidy: {checked} of {len(stamps)}", flush=True)
    month = time.time() - 30 * 86400
    for stamp in STAMPS.iterdir():
        if stamp.stat().st_mtime < month:
            stamp.unlink(missing_ok=True)
    print(f"tidy: {len(stamps)} checked, {known} unchanged, {left_out} with LibTorch left out, {failed} failed, "
          f"{time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
