"""Reads the configuration of a MONAI bundle for monai_bundle.py: configs/metadata.json and configs/inference.json.

A configuration is data that can name code: `$` begins a Python expression, and `_target_` names any callable. Config
returns values as they are written. It follows references (`@key::key`) and macros (`%key`), and refuses expressions.
With --trust, MONAI's own parser evaluates them.
"""

import importlib
import json
import sys
from pathlib import Path

import yaml

from package import Refused

FOLDER = "a bundle of MONAI has configs/metadata.json, configs/inference.json, and models/model.pt or models/model.ts"
CONFIGURATIONS = ("inference.json", "inference.yaml", "inference.yml")
# In the sources, and where `make install` puts the exporters.
SETUP = next((file for above in Path(__file__).absolute().parents[1:3] if (file := above / "tools/setup.sh").is_file()), "tools/setup.sh")
MISSING = f"this bundle needs MONAI, which is not installed; '{SETUP} formats' installs it next to the Python set, or MILLRACE_PYTHON names an interpreter that has it"
LIMIT = 64  # of references that lead to references


def read(file):
    """The object in a file of JSON or YAML."""
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        first = str(error).strip().split("\n")[0]
        raise Refused(f"{file}: cannot be read as {'JSON' if file.suffix == '.json' else 'YAML'} ({first}); {FOLDER}") from error
    if not isinstance(found, dict):
        raise Refused(f"{file}: is no mapping of keys to values; {FOLDER}")
    return found


def monai_module(name):
    """A module of MONAI: of the interpreter, or of the formats set next to the Python set."""
    formats = str(Path(sys.prefix).parent / "formats")
    if formats not in sys.path:
        sys.path.append(formats)  # at the end: torch and numpy are those of the Python set
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Refused(f"{error}; {MISSING}") from error


class Config:
    """The inference configuration of the bundle `folder`. Paths of values are lists of keys, joined by :: in messages."""

    def __init__(self, folder, trust):
        self.folder, self.trust = folder, trust
        self.file = next((file for name in CONFIGURATIONS if (file := folder / "configs" / name).is_file()), folder / "configs" / CONFIGURATIONS[0])
        self.data = read(self.file)
        self.parser = None

    def refuse(self, path, what):
        raise Refused(f"{self.file}: {'::'.join(map(str, path))} {what}")

    def evaluated(self, path):
        """What MONAI makes of the value at `path`: it evaluates expressions and creates objects. Only with --trust."""
        if self.parser is None:
            sys.path.append(str(self.folder.absolute()))  # bundles may have code of their own
            self.parser = monai_module("monai.bundle").ConfigParser(self.data)
        return self.parser.get_parsed_content("::".join(map(str, path)))

    def follow(self, path, depth=0):
        """(path, value) of a value, behind all references. Refuses expressions without --trust."""
        if depth > LIMIT:
            self.refuse(path, "refers to itself; correct the reference")
        value, at = self.data, []
        for key in path:
            at, value = self.step(at, value, key, depth)
        if not isinstance(value, str):
            return at, value
        if value.startswith("$"):
            if self.trust:
                return at, self.evaluated(at)
            self.refuse(path, f"is the Python expression {value[:80]!r}, and the exporter runs no code of a bundle; write the value in its place, or add --trust if you trust the maker")
        if value.startswith(("@", "%")):
            return self.follow(self.target_of(path, value), depth + 1)
        return at, value

    def step(self, at, value, key, depth):
        """(path, value) of one key of `value`."""
        if isinstance(value, str):  # a reference to a mapping
            at, value = self.follow(at, depth + 1)
        inside = [*at, key]
        if isinstance(value, dict) and key in value:
            return inside, value[key]
        if isinstance(value, (list, tuple)) and str(key).isdigit() and int(key) < len(value):
            return [*at, int(key)], value[int(key)]
        return self.refuse(inside, "does not exist, but is needed; correct the file")

    def target_of(self, path, reference):
        """The path that a reference or macro names."""
        name = reference[1:].replace("#", "::")
        if not name or name.startswith("::") or ".json" in name or ".yaml" in name or ".yml" in name:
            self.refuse(path, f"is {reference!r}; the exporter follows only references from the top of the same file, such as '@network_def::in_channels'")
        return name.split("::")

    def has(self, *path):
        """Whether the file has a value at this place, without following references."""
        value = self.data
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return False
            value = value[key]
        return True

    def value(self, path):
        """The value at `path`, with all references in it followed."""
        at, value = self.follow(path)
        if isinstance(value, dict):
            return {key: self.value([*at, key]) for key in value} if self.contains(at) else value
        if isinstance(value, list):
            return [self.value([*at, index]) for index in range(len(value))] if self.contains(at) else value
        return value

    def contains(self, path):
        """Whether a value is that of the file, and not the result of an expression."""
        value = self.data
        for key in path:
            if not isinstance(value, (dict, list)):
                return False
            value = value[key]
        return isinstance(value, (dict, list))
