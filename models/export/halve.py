"""Copies a package with its weights in 16 bits, half the size: halve.py IN.pkg OUT.pkg

A run converts the weights to its own precision, and so does `millrace compile`.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import yaml

import programs
from package import load, write_package


def halved_programs(file):
    """The bytes of a model.ep.pt2 with its weights in 16 bits. The plain tensors of its programs stay as they are."""
    exported = programs.load(file)
    for program in exported.values():
        programs.convert_weights(program, torch.float16)
    with tempfile.TemporaryDirectory() as folder:
        programs.write(Path(folder) / programs.NAME, exported)
        return (Path(folder) / programs.NAME).read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    description = yaml.safe_load((arguments.package / "model.yaml").read_text())
    others = {name: (arguments.package / name).read_bytes() for name in description["files"] if name not in ("model.ts", programs.NAME)}
    if programs.NAME in description["files"]:
        others[programs.NAME] = halved_programs(arguments.package / programs.NAME)
    for made_anew in ("schema", "methods", "files"):
        description.pop(made_anew, None)
    write_package(arguments.out, description, load(arguments.package).half(), files=others)


if __name__ == "__main__":
    main()
