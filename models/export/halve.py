"""Copies a package with its weights in 16 bits, half the size: halve.py [--round] IN.pkg OUT.pkg

A run converts the weights to its own precision, and so does `millrace compile`.
With --round, the values are those of bf16, stored in fp16. Archives of such packages are smaller.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import yaml

import programs
from package import load, write_package


def halved_programs(file, types):
    """The bytes of a model.ep.pt2 with its weights converted to these types in turn. The plain tensors of its programs stay as they are."""
    exported = programs.load(file)
    for program in exported.values():
        for dtype in types:
            programs.convert_weights(program, dtype)
    with tempfile.TemporaryDirectory() as folder:
        programs.write(Path(folder) / programs.NAME, exported)
        return (Path(folder) / programs.NAME).read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--round", action="store_true", help="round the weights to values of bf16")
    arguments = parser.parse_args()
    types = [torch.bfloat16, torch.float16] if arguments.round else [torch.float16]
    description = yaml.safe_load((arguments.package / "model.yaml").read_text())
    others = {name: (arguments.package / name).read_bytes() for name in description["files"] if name not in ("model.ts", programs.NAME)}
    if programs.NAME in description["files"]:
        others[programs.NAME] = halved_programs(arguments.package / programs.NAME, types)
    for made_anew in ("schema", "methods", "files"):
        description.pop(made_anew, None)
    model = load(arguments.package)
    for dtype in types:
        model = model.to(dtype)
    write_package(arguments.out, description, model, files=others)


if __name__ == "__main__":
    main()
