#!/usr/bin/env python3
"""Checks that people can read what we write: tools/check_prose.py [--limit WORDS] [FILE ...].

Prints file:line and the reason of each fault. The exit code is 1 if there is a fault.
Looks at pages (.md), comments, docstrings, and the messages that messages.py lists. Without files: all that git knows.
A sentence has at most 30 words. `code`, a path or a link is one word.
BANNED lists words that have a standard name; docs/architecture.md has a glossary.
tools/prose_exceptions.txt lists what may stay: a path, a tab and a part of the sentence.
"""

import argparse
import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

import messages

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 30

# What not to write, and what to write instead.
BANNED = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead) for pattern, instead in (
    ("mend(?:s|ed|ing)?", "fix, repair"),
    ("reckon(?:s|ed|ing)?", "estimate, count"),
    ("t(?:ell|ells|old) (?:\\w+ )?apart", "distinguish, separate"),
    ("lets? go(?: of)?|letting go(?: of)?", "release, free"),
    ("st(?:and|ands|ood) in(?! for\\b)", "is in, is part of"),
    ("(?<!at )least (?!one\\b|recently\\b)\\w+", "minimum, lowest, smallest"),
    ("(?<!at )(?<!the )most (?:boxes|rows|pictures|bytes|items|objects|masks|calls|classes|places|lines|files|workers)", "maximum, at most"),
    ("goes on|go on|went on", "continue, resume"),
    ("in work", "in flight"),
    ("beside", "next to, in addition to, compared with"),
    ("whatever|of which", "say it in two sentences"),
    ("as many as|does as well|do as well|come from elsewhere", "say it directly"),
)]

SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[`*_A-Z0-9])|:\s*$|;\s+")
WORD = re.compile(r"\w")


def words(sentence):
    sentence = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    sentence = re.sub(r"`[^`]*`", " code ", sentence)
    return [word for word in sentence.split() if WORD.search(word)]


def page_paragraphs(text):
    """(line, text) of each paragraph, list item, heading and table cell of a Markdown page; code is left out."""
    parts, current, start, fenced, blank = [], [], 0, False, True
    def flush():
        if current:
            parts.append((start, " ".join(current)))
            current.clear()
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            flush()
            fenced = not fenced
        elif fenced:
            pass
        elif not line.strip():
            flush()
        elif line.startswith("    ") and blank and not current:
            continue  # code; `blank` stays as it is
        elif line.lstrip().startswith("|"):
            flush()
            parts += [(number, cell) for cell in line.strip().strip("|").split("|")]
        else:
            if re.match(r"\s*([-*+]|\d+\.|#+|>)\s", line):
                flush()
                line = re.sub(r"^\s*([-*+]|\d+\.|#+|>)\s", "", line)
            if not current:
                start = number
            current.append(line.strip())
        blank = not line.strip()
    flush()
    return parts


def hash_comments(text):
    """Comments of shell, CMake, YAML: lines that begin with #, consecutive ones joined."""
    return joined((number, line.strip()[1:].lstrip("#! ")) for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith("#"))


def joined(lines):
    parts = []
    last = None
    for number, line in lines:
        if last is not None and number == last + 1 and line and not re.match(r"\s*([-*@]|\\?param)", line):
            parts[-1] = (parts[-1][0], parts[-1][1] + " " + line.strip())
        else:
            parts.append((number, line.strip()))
        last = number
    return parts


def python_comments(text):
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            found.append((token.start[0], token.string.lstrip("#! ")))
    parts = joined(found)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            line = node.body[0].lineno
            parts += [(line + at, paragraph) for at, paragraph in page_paragraphs(ast.get_docstring(node))]
    return parts


def cpp_comments(text):
    whole_lines, behind_code = [], []
    for number, line in enumerate(text.splitlines(), 1):
        bare = CPP_STRING.sub(lambda found: '"' + "x" * len(found.group(1)) + '"', line)
        comment = CPP_COMMENT.search(bare)
        if comment:
            (behind_code if bare[: comment.start()].strip() else whole_lines).append((number, line[comment.start(1):]))
    return joined(whole_lines) + behind_code


CPP_COMMENT = re.compile(r"(?:^|\s)//[/!]?<?\s?(.*)$")
CPP_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


READERS = {".md": page_paragraphs, ".py": python_comments, ".cpp": cpp_comments, ".hpp": cpp_comments,
           ".cu": cpp_comments, ".cuh": cpp_comments, ".sh": hash_comments, ".yaml": hash_comments, ".txt": hash_comments,
           ".cmake": hash_comments}


def exceptions():
    file = ROOT / "tools/prose_exceptions.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [line.split("\t", 1) for line in lines if line and not line.startswith("#")]


def faults(path, limit=LIMIT):
    """(line, reason) of each fault of a file."""
    parts = READERS[path.suffix](path.read_text(encoding="utf-8"))
    if path.suffix in (".cpp", ".hpp", ".cu", ".cuh") and path.resolve().is_relative_to(ROOT) and path.resolve().relative_to(ROOT).parts[0] in messages.FOLDERS:
        parts += [(line, paragraph.replace("{}", " x ")) for line, said in messages.messages(path) for paragraph in re.split(r"\n\s*\n|\n(?=  |[A-Z])", said)]
    for line, part in parts:
        for sentence in SENTENCE_END.split(part):
            count = len(words(sentence))
            if count > limit:
                yield line, f"a sentence of {count} words: {sentence.strip()}"
            bare = re.sub(r"`[^`]*`", " ", sentence)
            for pattern, instead in BANNED:
                for found in pattern.finditer(bare):
                    yield line, f"'{found.group(0)}' ({instead}): {sentence.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    files = arguments.files
    if not files:
        known = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
        files = [ROOT / name for name in known.stdout.splitlines()]
    allowed = exceptions()
    count = 0
    for path in files:
        if path.suffix not in READERS or not path.exists() or (path.suffix == ".txt" and path.name != "CMakeLists.txt"):
            continue
        name = str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else str(path)
        for line, reason in faults(path, arguments.limit):
            if any(name == file and part in reason for file, part in allowed):
                continue
            print(f"{name}:{line}: {reason}")
            count += 1
    if count:
        print(f"check_prose: {count} faults", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
