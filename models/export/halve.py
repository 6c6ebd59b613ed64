"""Copies a package with its weights in 16 bits, half the size: halve.py IN.pkg OUT.pkg

A run converts the weights to its own precision.
"""

import argparse
from pathlib import Path

import yaml

from package import load, write_package


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    description = yaml.safe_load((arguments.package / "model.yaml").read_text())
    others = {name: (arguments.package / name).read_bytes() for name in description["files"] if name != "model.ts"}
    for made_anew in ("schema", "methods", "files"):
        description.pop(made_anew, None)
    write_package(arguments.out, description, load(arguments.package).half(), files=others)


if __name__ == "__main__":
    main()
