#!/usr/bin/env python3
"""Lists the messages of the program and of the exporters: tools/messages.py [FILE ...]. One line each: file, tab, text.

`{}` is a part that code fills in.
A message is an expression whose string literals have at least four words together.
The list for all sources is tests/tools/messages.txt: a change of a message shows in its diff.
After a change, run `tools/messages.py > tests/tools/messages.txt`.
"""

import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("apps", "base", "gpu", "io", "models", "pipeline", "run", "stages")
EXPORTERS = "models/export/"
TOKEN = re.compile(r'''
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<include>^[ \t]*\#[^\n]*(?:\\\n[^\n]*)*)
  | (?P<raw>R"(?P<mark>[^(\s]*)\((?P<content>.*?)\)(?P=mark)")
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<char>'(?:[^'\\\n]|\\.)+')
  | (?P<open>[(\[{]) | (?P<close>[)\]}])
  | (?P<end>[;,?]|(?<!:):(?!:)|&&|\|\||<<|\breturn\b|\bthrow\b|[^=!<>]=(?!=)|\+=)
  | (?P<other>[\w.]+|->|::|.)
''', re.VERBOSE | re.DOTALL | re.MULTILINE)
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "0": "\0", "'": "'", "r": "\r", "a": "\a"}


def unquoted(literal):
    return re.sub(r"\\(?:x[0-9a-fA-F]+|(.))", lambda found: ESCAPES.get(found.group(1) or "", ""), literal[1:-1])


def expressions(text):
    """(offset, text) of each expression with string literals, innermost brackets first; other code in it is {}."""
    stack = [[]]  # of the open brackets: the parts of the expression so far, each an offset and a string, or None for code
    found = []

    def end(parts):
        literals = [part for part in parts if part is not None]
        if literals:
            out = []
            for part in parts:
                out.append("{}" if part is None else part[1])
            joined = re.sub(r"(?:\{\}){2,}", "{}", "".join(out))
            found.append((literals[0][0], joined))
        parts.clear()

    for token in TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "content" or kind == "mark":
            kind = "raw"
        if token.group("raw") is not None:
            stack[-1].append((token.start(), token.group("content")))
        elif kind in ("comment", "include") or token.group(0).isspace():
            continue
        elif kind == "string":
            stack[-1].append((token.start(), unquoted(token.group(0))))
        elif kind == "open":
            stack.append([])
        elif kind == "close":
            end(stack.pop() if len(stack) > 1 else stack[-1])
            if not (stack[-1] and stack[-1][-1] is None):
                stack[-1].append(None)
        elif kind == "end":
            end(stack[-1])
        elif token.group(0) != "+" and not (stack[-1] and stack[-1][-1] is None):
            stack[-1].append(None)
    for parts in stack:
        end(parts)
    return found


def python_expressions(text):
    """(line, text) of each string and f-string that is no docstring."""
    tree, seen = ast.parse(text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            seen.add(node.value)  # a docstring
        elif isinstance(node, ast.JoinedStr):
            seen.update(node.values)
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in seen and " " in node.value:
            yield node.lineno, node.value


def messages(path):
    """(line, text) of each message of a source."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = sorted(python_expressions(text))
    else:
        found = [(text.count("\n", 0, offset) + 1, said) for offset, said in sorted(expressions(text))]
    for line, said in found:
        plain = said.replace("{}", " ").replace("%s", " ")
        if len(re.findall(r"[A-Za-z][A-Za-z'-]+", plain)) >= 4:
            yield line, said


def sources():
    known = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in sorted(known.stdout.splitlines())
             if name.endswith((".cpp", ".hpp", ".cu", ".cuh")) or (name.startswith(EXPORTERS) and name.endswith(".py"))]
    return [ROOT / name for name in names if (ROOT / name).exists()]


def listing(files=None):
    lines = []
    for path in files or sources():
        name = path.resolve().relative_to(ROOT)
        lines += [f"{name}\t{said!r}"[: 2000] for _, said in messages(path)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(listing([pathlib.Path(name) for name in sys.argv[1:]]))
