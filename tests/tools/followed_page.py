"""Follows a page of docs/ that adds something, in a copy of the sources: what a test of such a page needs."""

import difflib
import os
import re
import shutil
import subprocess

TOP = ["CMakeLists.txt", "LICENSE", "apps", "base", "bench", "cmake", "configs", "docs", "gpu", "io", "models", "pipeline", "run", "stages", "tests", "tools"]


def run(*command, **options):
    """What the command prints; fails where it does."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}\n{text[-6000:]}"
    return text


def source_files(root):
    """Relative paths of the files that are built from."""
    found = set()
    for top in TOP:
        path = root / top
        candidates = [path] if path.is_file() else path.rglob("*")
        found |= {p.relative_to(root) for p in candidates if p.is_file() and "__pycache__" not in p.parts}
    return found


def write_if_new(path, text):
    """Writes only what differs, so that the next build finds little to do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


class FollowedPage:
    """SOURCE and what docs/NAME.md says, in FOLDER/source.

    The copy's build folder lies as deep as those of SOURCE, so that the compiler cache knows nearly all of it; both stay for the next time.
    """

    def __init__(self, source, folder, name):
        self.source, self.copy = source, folder / "source"
        self.build = self.copy / "build" / name
        self._read(source / "docs" / f"{name}.md")
        self.originals = {path: (source / path).read_bytes() for path in source_files(source)}
        self._make_copy()

    def _read(self, page):
        text = page.read_text(encoding="utf-8")
        files = {new: (page.parent / example).read_text(encoding="utf-8")
                 for new, example in re.findall(r"^- \[`([^`]+)`\]\(([^)]+)\)", text, re.MULTILINE)}
        self._files = {type(page)(new): content for new, content in files.items()}
        self._lines = {}
        for name, body in re.findall(r"^```diff\n--- (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            before, new = body.splitlines()
            path = type(page)(name)
            assert before.startswith(" ") and new.startswith("+") and path not in self._lines, body
            self._lines[path] = (before[1:], new[1:])

    def _make_copy(self):
        wanted = set(self.originals)
        for stale in source_files(self.copy) - wanted - set(self._files):
            (self.copy / stale).unlink()
        for path in sorted(wanted):
            target = self.copy / path
            if path in self._lines:
                before, new = self._lines[path]
                text = self.originals[path].decode().splitlines(keepends=True)
                at = [i for i, line in enumerate(text) if line == before + "\n"]
                assert len(at) == 1, f"{path}: the line '{before}' stands there {len(at)} times"
                text.insert(at[0] + 1, new + "\n")
                write_if_new(target, "".join(text))
            elif not target.is_file() or self.originals[path] != target.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(self.originals[path])
                shutil.copymode(self.source / path, target)
        for path, text in self._files.items():
            write_if_new(self.copy / path, text)
        assert set(self._lines) <= wanted, f"{set(self._lines) - wanted} is to be changed and is not there"

    def make(self, options, *targets):
        """Builds targets without LibTorch and CUDA."""
        run("cmake", "-S", self.copy, "-B", self.build, "-G", "Ninja", "-DMILLRACE_TORCH=OFF", "-DMILLRACE_CUDA=OFF", *options)
        run("cmake", "--build", self.build, "--parallel", os.environ.get("JOBS", "2"), "--target", *targets)

    def new_files(self):
        return sorted(str(path) for path in source_files(self.copy) - set(self.originals))

    def changed_lines(self):
        """(file, line with its + or -) of all that is not as it was."""
        changed = []
        for path, before in self.originals.items():
            after = (self.copy / path).read_bytes()
            if after != before:
                diff = difflib.ndiff(before.decode().splitlines(), after.decode().splitlines())
                changed += [(str(path), line) for line in diff if line[0] in "+-"]
        return sorted(changed)
