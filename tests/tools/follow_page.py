"""Follows pages of docs/ in a copy of the sources: adds exactly the files and lines that a page names.

A page links a new file to its text:

    - [`stages/x.cpp`](adding_a_stage/x.cpp): what it is

and shows each change of another file as a diff without line numbers.
The lines of the diff with ' ' and '-' must occur in that file exactly once, one after the other.
"""

import re
import shutil
import subprocess
from pathlib import Path

TOP = ["CMakeLists.txt", "LICENSE", "apps", "base", "bench", "cmake", "configs", "docs", "gpu", "io", "models", "pipeline", "run", "stages", "tests", "tools"]


def source_files(root):
    """Relative paths of the files that a build needs."""
    found = set()
    for top in TOP:
        path = root / top
        candidates = [path] if path.is_file() else path.rglob("*")
        found |= {p.relative_to(root) for p in candidates if p.is_file() and "__pycache__" not in p.parts}
    return found


def write_if_new(path, text):
    """Writes the file only if its content differs, so that the next build compiles little."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != text:
        path.write_bytes(text)


class Page:
    """The new files and the changes that a page names."""

    def __init__(self, source, name):
        page = source / "docs" / name
        text = page.read_text(encoding="utf-8")
        self.files = {Path(new): (page.parent / example).read_bytes()
                      for new, example in re.findall(r"^- \[`([^`]+)`\]\(([^)]+)\)", text, re.MULTILINE)}
        self.changes = []  # (file, lines before, lines after)
        for name, body in re.findall(r"^```diff\n--- (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            lines = body.splitlines()
            assert all(line[:1] in " +-" for line in lines), body
            before = [line[1:] for line in lines if line[:1] in " -"]
            after = [line[1:] for line in lines if line[:1] in " +"]
            assert before and before != after, body
            self.changes.append((Path(name), before, after))

    def changed_files(self):
        return {path for path, _, _ in self.changes}

    def added_lines(self):
        return sum(len(after) - len(before) for _, before, after in self.changes)


def changed(text, path, before, after):
    lines = text.splitlines()
    at = [i for i in range(len(lines)) if lines[i:i + len(before)] == before]
    assert len(at) == 1, f"{path}: the file must contain these lines once, but contains them {len(at)} times:\n" + "\n".join(before)
    lines[at[0]:at[0] + len(before)] = after
    return "\n".join(lines) + "\n"


def make_copy(source, copy, pages):
    """Makes `copy` the same as `source` plus the changes of the pages."""
    contents = {path: (source / path).read_bytes() for path in source_files(source)}
    for page in pages:
        assert not set(page.files) & set(contents), f"{set(page.files) & set(contents)} exists already"
        contents.update(page.files)
        for path, before, after in page.changes:
            assert path in contents, f"{path} is to be changed but does not exist"
            contents[path] = changed(contents[path].decode(), path, before, after).encode()
    for stale in source_files(copy) - set(contents):
        (copy / stale).unlink()
    for path, content in sorted(contents.items()):
        write_if_new(copy / path, content)
        if (source / path).is_file():
            shutil.copymode(source / path, copy / path)


def run(*command, **options):
    """The output of a command that must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}\n{text[-6000:]}"
    return text
