"""The command `millrace model`: makes packages from weights, and prints the command that runs them.

The program starts it in the Python set:

    model.py PROGRAM RECIPES WEIGHTS [SEGMENTER] [options]
    model.py PROGRAM RECIPES NET.ts [NET.ts ...] --task semantic [options]
    model.py PROGRAM RECIPES FOLDER --task semantic [options]      (a trained model of nnU-Net, or a bundle of MONAI)
    model.py PROGRAM RECIPES NET.ts --task classify|regress [options]

PROGRAM is the path of the program, RECIPES the folder of its recipes.
"""

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

from command_line import STORAGE, USAGE, Parser, add_options, end, stop_on_signals

# Options for detectors and classifiers. Of two files, they are not for the segmenter.
NOT_FOR_SEGMENTERS = ("imgsz", "names", "preset")
# Recipes for a package alone. A segmenter runs in the default recipe, with a detector.
RECIPES = {"detector": "detect.yaml", "embedder": "categories.yaml", "classifier": "categories.yaml", "regressor": "values.yaml", "semantic": "tiled.yaml", "volumes": "volume.yaml", "heatmaps": "points.yaml"}
# Options of stages that name a package.
MODEL_OPTIONS = {"embedder": "categorize.model", "classifier": "categorize.model", "regressor": "regress.model", "semantic": "semantic.model", "volumes": "semantic.model", "heatmaps": "semantic.model"}


def make_parser():
    parser = Parser("`millrace model --help` describes the command", prog="millrace model", add_help=False)
    parser.add_argument("weights", nargs="+", metavar="WEIGHTS")
    parser.add_argument("--out", metavar="FOLDER")
    add_options(parser)
    return parser


def package_of(weights, out):
    """The absolute path of the package of a file: in `out`, or next to the file."""
    return Path(os.path.abspath(Path(out or Path(weights).parent) / f"{Path(weights).stem}.pkg"))


def is_utf8(path):
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def check_folder(folder):
    """Finds out before the work, which can take minutes, whether a package can be written to `folder`."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        end(STORAGE, f"{there}: you cannot create a folder there; name another one with --out (make: OUT=FOLDER)")


def check_two(files, tasks):
    """Refuses two files that are not a detector and a segmenter."""
    if "embedder" in tasks:
        embedder = files[tasks.index("embedder")]
        end(USAGE, f"{embedder}: is an embedder, which has its own recipe, without detector and segmenter; name it alone; nothing was written")
    if tasks[0] == tasks[1]:
        end(USAGE, f"{files[1]}: is a {tasks[1]}, as {files[0]} is; name one detector and one segmenter; nothing was written")


def command_for(program, recipes, packages):
    """The words of the command that runs `packages`, pairs of a task and a folder."""
    found = shutil.which("millrace")
    words = ["millrace" if found and os.path.samefile(found, program) else program, "run"]
    if len(packages) == 1 and packages[0][0] in RECIPES:
        words.append(os.path.join(recipes, RECIPES[packages[0][0]]))
    words += ["--input", "PICTURES"]
    for task, folder in packages:
        words += ["--set", f"{MODEL_OPTIONS[task]}={folder}"] if task in MODEL_OPTIONS else [f"--{task}", str(folder)]
    if [task for task, _ in packages] == ["segmenter"]:
        words += ["--detector", "DETECTOR.pkg"]
    return [*words, "--output", "RESULTS"]


def main():
    program, recipes, *words = sys.argv[1:]
    stop_on_signals()
    sys.stdout.reconfigure(errors="surrogateescape", line_buffering=True)  # names of files need not be UTF-8
    parser = make_parser()
    arguments = parser.parse_args(words)
    files, members = arguments.weights, []
    if arguments.task:  # further files are members of an ensemble, and the package has the name of the first
        files, members = files[:1], files[1:]
    if len(files) > 2:
        parser.error(f"{len(files)} files are named, but one command takes at most a detector and a segmenter")
    packages = [package_of(file, arguments.out) for file in files]
    if len(set(packages)) < len(packages):
        end(USAGE, f"{files[1]}: its package would overwrite {packages[0]}, that of {files[0]}; rename one of the files; nothing was written")
    for package in packages:
        if not is_utf8(package):
            end(USAGE, f"{package}: is not UTF-8, and LibTorch writes no such path; rename the file, or name another folder with --out (make: OUT=FOLDER)")
        check_folder(package.parent)

    import export  # takes seconds

    export.be_quiet()
    jobs = [argparse.Namespace(**{**vars(arguments), "weights": file, "members": members, "out": str(package)}) for file, package in zip(files, packages)]
    if len(jobs) == 2:
        tasks = []
        for job in jobs:
            with export.reported(job):
                tasks.append(export.TASKS[export.family_of(Path(job.weights), job.trust)[0]])
        check_two(files, tasks)
        for option in NOT_FOR_SEGMENTERS:
            setattr(jobs[tasks.index("segmenter")], option, None)
    made = []
    for job in jobs:
        with export.reported(job):
            made.append((export.export(job), job.out))
    print("\nrun it with:\n  " + shlex.join(command_for(program, recipes, made)))


if __name__ == "__main__":
    main()
