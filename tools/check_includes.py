#!/usr/bin/env python3
"""Checks the structure of the sources: tools/check_includes.py [ROOT].

Prints file:line and the rule for each broken rule. The exit code is 1 if a rule is broken. The rules:

- Who may include whom: apps -> run -> stages -> { models, pipeline }, models -> { gpu, io }, and all of them -> base.
  Nothing includes upwards.
- bench/ may include everything except apps/. Tests may include every part.
- Inside io/: files <- { input, decode, regions } <- results <- { sinks, reducers }.
- There are no include cycles.
- Each library has one place: TBB in pipeline/, LibTorch in models/engines/torch/, the CUDA runtime in gpu/,
  Boost in apps/.
- OpenCV is included in the plug-ins of io/ and stages/, NVTX in gpu/ and base/trace.cpp.
- Tests and benchmarks may include any library, to compare results with it.
- Only models/tasks/ contains names of tasks and methods.
  A stage that sets `.task = "..."` or `.or_task = "..."` may name the methods of this task.
- A file has at most 500 lines.
- No variable that changes lives as long as the program.
- A once_flag or a thread_local has a comment above it that gives the reason.
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
    "regions": {"files"},
    "results": {"files", "input", "decode"},
    "sinks": {"files", "input", "decode", "results"},
    "reducers": {"files", "results"},
}

# Outside library -> the pattern of its includes, whether a file may include it, and these files in words.
LIBRARIES = {
    "TBB": (re.compile(r"(oneapi/)?tbb/|(oneapi/)?tbb\.h$"), lambda path: path.parts[0] == "pipeline", "pipeline/"),
    "LibTorch": (
        re.compile(r"(torch|ATen|c10|caffe2)/"),
        lambda path: path.parts[:3] == ("models", "engines", "torch"),
        "models/engines/torch/",
    ),
    "OpenCV": (re.compile(r"opencv2/"), lambda path: path.parts[:2] == ("stages", "opencv") or (path.parts[0] == "io" and path.name.startswith(("imgcodecs_plugin", "overlay"))),
               "the plug-ins io/decode/imgcodecs_plugin, io/sinks/overlay and stages/opencv/"),
    "CUDA": (
        re.compile(r"(cuda|cuda_\w+|driver_types|device_launch_parameters)\.h$|(cub|thrust)/"),
        lambda path: path.parts[0] == "gpu",
        "gpu/",
    ),
    "NVTX": (re.compile(r"nvtx3/"), lambda path: path.parts[0] == "gpu" or path.as_posix() == "base/trace.cpp", "gpu/ and base/trace.cpp"),
    "Boost": (re.compile(r"boost/"), lambda path: path.parts[0] == "apps", "apps/"),
    "the whole of nlohmann-json": (re.compile(r"nlohmann/json\.hpp$"), lambda path: path.as_posix() == "base/json.hpp", "base/json.hpp, which others include"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc"}
LIMITED = SOURCES | {".py", ".sh", ".cmake"}
IGNORED = {"build", ".git", "__pycache__"}


def in_words(folders):
    return ", ".join(sorted(folders)) or "nothing of ours"


def folder_of_io(parts):
    return parts[1] if len(parts) > 2 else ""


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
            yield number, "do not include torch/torch.h, which costs 20 s a file: include ATen/ops/*.h or torch/script.h"
            continue
        if quoted:
            if name.startswith(".") or not (root / name).is_file():
                yield number, f'"{name}" does not exist below the root: write includes of ours with the path from the root, others in <>'
            elif target[0] == "tests":
                if not in_tests:
                    yield number, f'"{name}": only tests include from tests/'
            elif in_tests:
                pass
            elif target[0] not in allowed:
                yield number, f'"{name}": {folder}/ may include, besides itself, {in_words(allowed - {folder})}'
            elif folder == "io" == target[0]:
                own, other = folder_of_io(path.parts), folder_of_io(target)
                if own != other and other not in IO_MAY_INCLUDE.get(own, set()):
                    yield number, f'"{name}": io/{own}/ may include of io/, besides itself, {in_words(IO_MAY_INCLUDE.get(own, set()))}'
        elif target[0] in MAY_INCLUDE and (root / name).is_file():
            yield number, f'<{name}>: write includes of ours as "{name}"'
        for library, (pattern, may, where) in LIBRARIES.items():
            if pattern.match(name) and not compares and not may(path):
                yield number, f"only {where} may include {library}"


# Comments, directives of the preprocessor, and literals. A quote inside a number (1'000) does not begin a character.
NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*|R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:[^"\\\n]|\\.)*"|(?<![0-9A-Fa-f])\'(?:[^\'\\\n]|\\.)*\'',
    re.DOTALL | re.MULTILINE,
)


def code_of(text):
    """The text without comments and directives, with the same lines. Strings become "", characters 0."""

    def blank(match):
        first = match[0][0]
        value = '""' if first in 'R"' else "0" if first == "'" else " "
        return value + "\n" * match[0].count("\n")

    return NO_CODE.sub(blank, text)


def without_pairs(text, opening, closing):
    """TEXT without pairs of brackets and everything between them."""
    depth, kept = 0, []
    for letter in text:
        depth += letter == opening
        if depth == 0:
            kept.append(letter)
        depth -= letter == closing and depth > 0
    return "".join(kept)


def without_arguments(text):
    """TEXT without the arguments of templates.

    `->`, `<<` and comparisons other than < and > do not count as brackets.
    """
    return without_pairs(re.sub(r"->|<=>|[<>]=|<<", " ", text), "<", ">")


def declaration(head):
    """The declaration without attributes and without the template parameters before it.

    The name of every operator is `operator`.
    """
    head = re.sub(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)|__attribute__\s*\(\(.*?\)\)|\b__\w+__\b", " ", head, flags=re.DOTALL)
    head = re.sub(r"\boperator\s*(?:\(\s*\)|[^\w\s(]+)", "operator", head)
    while match := re.match(r"\s*template\s*<", head):
        depth, at = 1, match.end()
        while at < len(head) and depth:
            depth += (head[at] == "<") - (head[at] == ">" and head[at - 1] != "-")
            at += 1
        head = head[at:]
    return " ".join(head.split())


CLASS = re.compile(r"(?:typedef )?(?:class|struct|union)(?: [\w:]+(?: final)?)?(?: ?:(?!:).*)?$")
BODY = re.compile(r"(?:^|[){};:]|\b(?:const|noexcept|override|final|mutable|else|do|try))$|\) ?(?:[\w&]+ )*->[^;]*$|\brequires\b")


def kind_of_braces(head):
    """The kind of block that a brace after HEAD opens: "namespace", "class", "code" or "value".

    After a value, the declaration continues.
    """
    head = declaration(head)
    if re.match(r'(?:inline )?namespace\b|extern ""$', head):
        return "namespace"
    if re.match(r"(?:typedef )?enum\b", head):
        return "value"
    plain = without_pairs(head, "(", ")")
    if "=" in without_arguments(plain) or re.match(r"(?:return|co_return|throw)\b", head):
        return "value"
    if CLASS.match(without_arguments(head).strip()):
        return "class"
    return "code" if BODY.search(head) else "value"


NO_VARIABLE = re.compile(
    r"(?:using|typedef|namespace|friend|template|concept|static_assert|return|goto|case|default|throw|delete|co_return|asm|requires)\b"
    r"|(?:typedef )?(?:class|struct|union|enum(?: class| struct)?)(?: [\w:]+)? ?(?::[^{]*)?(?:\{\} ?)?$"
)
SPECIFIERS = re.compile(r"(?:(?:inline|static|thread_local|constinit|mutable|extern(?: \"\")?) )*")
FUNCTION_POINTER = re.compile(r"\( ?[*&] ?(?:const )?\w+ ?(?:\[[^]]*\] ?)*\)")  # (*f) or (&f): it refers to a function
VALUE_IN_PARENTHESES = re.compile(r'\w ?\( ?(?:[\d"&{]|new\b|true\b|false\b|nullptr\b)')


def is_function(declared, in_code):
    if re.search(r"\boperator\b", declared):
        return True
    if "(" not in declared or FUNCTION_POINTER.search(declared):
        return False
    return not in_code and not VALUE_IN_PARENTHESES.search(declared)  # nobody declares a static function inside a function


def changes(declared):
    """Whether the variable itself can change. A const before the star of a pointer concerns only the target."""
    if re.search(r"\b(?:constexpr|consteval)\b", declared):
        return False
    return not re.search(r"\bconst\b", declared.rpartition("*")[2])


def judge_declaration(scope, head):
    """The fault of a declaration: "changes" for a variable that changes, "comment" if it needs a comment, or None.

    SCOPE is "namespace", "class" or "code".
    """
    text = declaration(head)
    if not re.search(r"\w[\s*&>\]]+\w", without_arguments(text) + " ") and "(" not in text:
        return None
    specifiers = SPECIFIERS.match(text + " ")[0]
    declared = re.split(r"(?<![=!<>])=(?!=)|\{", without_arguments(text), maxsplit=1)[0].strip()
    if NO_VARIABLE.match(text[len(specifiers):]):
        return None
    in_code = scope == "code"
    lives_on = "static" in specifiers or "thread_local" in specifiers or scope == "namespace"
    if is_function(declared, in_code):
        return None
    if re.search(r"\bonce_flag\b", declared) and not re.search(r"[&*]", declared) or "thread_local" in specifiers:
        return "comment"
    return "changes" if lives_on and changes(declared) else None


def declarations(text):
    """(line, scope, declaration) of each declaration or statement that ends with a semicolon outside of parentheses."""
    scopes, head, line, begun, parentheses = [("namespace", "", 0, 0)], "", 1, 1, 0
    for letter in code_of(text):
        if letter == "\n":
            line += 1
        if (letter.isalpha() or letter in "_~") and head.rstrip().endswith("{}") and "enum" not in head:
            head = ""  # the last block was a body, not a value
        if not head.strip() and not letter.isspace():
            begun = line
        if letter == "{":
            kind = "call" if parentheses else kind_of_braces(head)
            scopes.append((kind, head, begun, parentheses))
            head, parentheses = "", 0
        elif letter == "}" and len(scopes) > 1:
            kind, before, begun_before, parentheses = scopes.pop()
            continues = kind in ("value", "call")
            head, begun = (before + "{}", begun_before) if continues else ("", line)
        elif letter == ";" and parentheses == 0:
            kind = scopes[-1][0]
            yield begun, "code" if kind in ("value", "call") else kind, head
            head = ""
        elif letter == ":" and head.strip() in ("public", "private", "protected"):
            head = ""
        else:
            parentheses += (letter == "(") - (letter == ")" and parentheses > 0)
            head += letter


CLASS_NAME = re.compile(r"(?:typedef )?(?:class|struct|union) (\w+)(?!\w|::)")
NAMED_SPACE = re.compile(r"(?:inline )?namespace ([\w:]+)$")


def classes(text):
    """(line, name) of each class that the linker knows by its name.

    Such a class is in named namespaces only, and not inside another class.
    """
    scopes, head, line, begun = [], "", 1, 1
    for letter in code_of(text):
        if letter == "\n":
            line += 1
        if not head.strip() and not letter.isspace():
            begun = line
        if letter == "{":
            kind, name = kind_of_braces(head), CLASS_NAME.match(declaration(head))
            if kind == "class" and name and None not in scopes:
                yield begun, "::".join([*scopes, name[1]])
            space = NAMED_SPACE.match(declaration(head))
            scopes.append(space[1] if space else None)
            head = ""
        elif letter == "}":
            if scopes:
                scopes.pop()
            head = ""
        elif letter == ";":
            head = ""
        else:
            head += letter


def mutable_statics(lines):
    for number, scope, head in declarations("\n".join(lines)):
        wrong = judge_declaration(scope, head)
        if wrong == "changes":
            yield number, "a variable that changes and lives as long as the program: pass it in instead"
        elif wrong == "comment" and (number == 1 or not lines[number - 2].lstrip().startswith("//")):
            yield number, "a once_flag or thread_local needs a comment above it that gives the reason"


# Parts of the row of a task.
TASK_NAME = re.compile(r'\{\s*\.name = "(\w+)",\s*\.model = ')
METHOD_NAMES = re.compile(r"\.method_names = \{([^}]*)\}")
OWN_TASK = re.compile(r'\.(?:or_)?task = "(\w+)"')
# A stage may have the same name as a method: decode, encode.
STAGE_NAME = re.compile(r'static constexpr const char\* name = "\w+";')
TASK_TEST = re.compile(r'\btask\b[^;]*\b(?:name|model)(?:\s*[!=]=\s*"|\s*\.\s*(?:starts_with|ends_with|find|compare)\b)|"\s*[!=]=[^;]*\btask\b[^;]*\b(?:name|model)\b'
                       r'|\bfind_task\(\s*"|\btask\s*[!=]=\s*"|"\s*[!=]=\s*[\w.>-]*\btask\b')
COMMENT = re.compile(r"//.*")


def tasks_of(root):
    """{task: names of its methods}, from models/tasks/."""
    tasks = {}
    for row in sorted(root.glob("models/tasks/*.cpp")):
        text = row.read_text(encoding="utf-8")
        name, methods = TASK_NAME.search(text), METHOD_NAMES.search(text)
        if name and methods:
            tasks[name[1]] = set(re.findall(r'"(\w+)"', methods[1]))
    return tasks


def task_names(tasks, path, lines):
    """(line, message) of each name of a task or method outside its place."""
    if path.parts[:2] == ("models", "tasks") or path.parts[0] in ("bench", "tests"):
        return
    own = {method for line in lines for task in OWN_TASK.findall(line) for method in tasks.get(task, ())} if path.parts[0] == "stages" else set()
    methods = {method for of_task in tasks.values() for method in of_task}
    names = set(tasks) if path.parts[0] in ("models", "gpu") else set()
    for number, line in enumerate(lines, 1):
        code = COMMENT.sub("", STAGE_NAME.sub("", line))
        if code.rstrip().endswith(("==", "!=", "(")) and number < len(lines):
            code = code.rstrip() + " " + lines[number].lstrip()  # the comparison ends on the next line
        if TASK_TEST.search(code):
            yield number, "a test for a task: put the difference into the rows of the tasks in models/tasks/"
            continue
        for word in re.findall(r'"(\w+)"', code):
            if word in names or word in methods - own:
                yield number, f'"{word}" is the name of a task or method: only models/tasks/ and stages that declare this task may contain it'


def circles(graph):
    """Each include cycle once, as a list of files; graph is {file: files it includes}."""
    found, state = [], {}

    def visit(file, trail):
        state[file] = "open"
        for target in sorted(graph.get(file, ())):
            if state.get(target) == "open":
                found.append([*trail[trail.index(target):], target])
            elif target not in state:
                visit(target, [*trail, target])
        state[file] = "done"

    for file in sorted(graph):
        if file not in state:
            visit(file, [file])
    return found


def problems_of(root):
    """(file, line, message) of each broken rule below ROOT."""
    problems, graph, tasks, homes = [], {}, tasks_of(root), {}
    for path in sorted(p for top in root.iterdir() if top.is_dir() and top.name not in IGNORED for p in top.rglob("*")):
        relative = path.relative_to(root)
        if path.suffix not in LIMITED or not path.is_file() or IGNORED & set(relative.parts):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > MAX_LINES:
            problems.append((relative, MAX_LINES + 1, f"the file has {len(lines)} lines; at most {MAX_LINES} are allowed: split it by subject"))
        if path.suffix not in SOURCES or relative.parts[0] not in {*MAY_INCLUDE, "tests"}:
            continue
        if relative.parts[0] == "io" and folder_of_io(relative.parts) not in IO_MAY_INCLUDE:
            problems.append((relative, 1, f"a source of io/ must be in one of its folders: {in_words(IO_MAY_INCLUDE)}"))
        if path.suffix in (".hpp", ".cuh", ".h") and not any(line.strip() == "#pragma once" for line in lines):
            problems.append((relative, 1, "a header begins with #pragma once"))
        problems += [(relative, *broken) for broken in broken_includes(root, relative, lines)]
        if relative.parts[0] != "tests":
            for number, name in classes("\n".join(lines)):
                home = homes.setdefault(name, relative)
                if home != relative:
                    problems.append((relative, number, f"{home} has a class {name} too, and the linker would use one of them for both: give it another name, or put it into an unnamed namespace"))
            problems += [(relative, *broken) for broken in mutable_statics(lines)]
            problems += [(relative, *broken) for broken in task_names(tasks, relative, lines)]
        graph[relative.as_posix()] = {match[2] for match in map(INCLUDE.match, lines) if match and match[1] == '"' and (root / match[2]).is_file()}
    for circle in circles(graph):
        problems.append((circle[0], 1, "an include cycle: " + " -> ".join(circle)))
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    problems = problems_of(root)
    for file, line, message in problems:
        print(f"{file}:{line}: {message}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
