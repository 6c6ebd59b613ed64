"""The parts `compile` and `autotune`: variants of yolov8n.pkg and mobile_sam.pkg, made by `millrace compile`."""

import functools
import hashlib
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from session import BUNDLE, OutOfTime, Session, run
from model_times import described
from packed import pack
from turns import Failed

TUNINGS = ("plain", "autotune")


def variants_of(inputs, tuning):
    """The folder of variants, for models.variants."""
    return inputs / f"variants-{tuning}"


def packages(inputs):
    return [package for name in ("mobile_sam", "yolov8n") if (package := inputs / f"{name}.pkg").is_dir()]


def methods_of(package):
    return ["forward"] if described(package, "task: detect") else ["encode", "decode"]


def variant_of(inputs, tuning, package):
    """The folder of the package's variant, or None."""
    for file in variants_of(inputs, tuning).glob("*/variant.yaml"):
        if re.search(r"fingerprint: '?([0-9a-f]+)", file.read_text())[1] == hashlib.sha256((package / "model.yaml").read_bytes()).hexdigest():
            return file.parent
    return None


def steps(package):
    """Row counts and box counts of each command: first full calls, one method after the other, then also smaller ones.

    A command that is stopped leaves only what those before it compiled. Each command compiles only what is missing.
    """
    rows, boxes = Session.few(((16,), (160,)) if Session.short else ((1, 4, 16), (16, 64, 160)), ((1,), (2,)))
    if methods_of(package) == ["forward"]:
        return [(rows[-count:], None) for count in range(1, len(rows) + 1)]
    return [(rows[-1:], ()), *((rows[-count:], boxes[-count:]) for count in range(1, max(len(rows), len(boxes)) + 1))]


def compiled(inputs, tuning, package):
    """Compiles a package. If the time ends in between, the record is a failed one, so that another call does the rest."""
    begun, said, ended = time.monotonic(), [], {}
    for rows, boxes in steps(package):
        try:
            done, _ = run(BUNDLE / "bin/millrace", "compile", package, "--device", Session.torch_device, "--out", variants_of(inputs, tuning), "--rows", *rows,
                          *([] if boxes is None else ["--boxes", *boxes]), *(["--no-autotune"] if tuning == "plain" else []), timeout=600, env={"MILLRACE_PYTHON": sys.executable})
        except OutOfTime:
            if not said:
                raise
            ended = {"failed": f"no time was left for --rows {rows}" + ("" if boxes is None else f" --boxes {boxes}")}
            break
        if done.returncode != 0:
            raise Failed(f"exit code {done.returncode}: {done.stdout[-400:]} {done.stderr[-800:]}")
        said.append(done.stdout[-2000:])
    return {**ended, "said": "".join(said), "wall_s": time.monotonic() - begun}


def verified(inputs, tuning, package):
    """Compares masks of the run's precision with those of TorchScript in fp32."""
    engine = ["--engine", "torchscript"] if tuning == "torchscript" else ["--engine", "aoti", "--set", f"models.variants={variants_of(inputs, tuning)}"]
    done, wall = run(BUNDLE / "bin/millrace", "verify", package, "--images", inputs / "pictures", "--device", Session.torch_device, "--set", f"batch.size={Session.few(16, 1)}",
                     *engine, "--json", env={"MILLRACE_PYTHON": sys.executable})
    if done.returncode not in (0, 3):
        raise Failed(f"exit code {done.returncode}: {done.stderr[-800:]}")
    return {"passed": done.returncode == 0, **json.loads(done.stdout), "wall_s": wall}


def compile_variants(tuning, results, inputs):
    wanted = [package for package in packages(inputs)[:Session.few(2, 1)]  # on a CPU, variants of both would have one name
              if not results.has(what="compile", package=package.stem, options=tuning)]
    # Without autotune, nearly all of the work is on the CPU. With it, two packages would disturb each other's times.
    with ThreadPoolExecutor(2 if tuning == "plain" else 1) as pool:
        made = {package: pool.submit(compiled, inputs, tuning, package) for package in wanted}
        for package, variant in made.items():
            results.measure(variant.result, late=True, what="compile", package=package.stem, options=tuning)
    key = {"what": "variants", "options": tuning}
    if wanted:
        results.document["records"] = [record for record in results.document["records"] if not results.same(record, key)]
    # The search takes long, so its variants come first.
    folders = [file.parent for kind in reversed(TUNINGS) for file in sorted(variants_of(inputs, kind).glob("*/variant.yaml"))]
    results.measure(functools.partial(pack, results.file, inputs, folders), late=True, **key)  # takes seconds
    for engine in (tuning, "torchscript"):
        for package in packages(inputs):
            # The detector has random weights, which find nothing to compare. `levers` compares its outputs.
            if methods_of(package) == ["encode", "decode"]:
                results.measure(functools.partial(verified, inputs, engine, package), what="verify", package=package.stem, options=engine)


def engines(inputs):
    """Words of the options that select TorchScript, and each tuning for which all packages are compiled."""
    wanted = packages(inputs)[:Session.few(2, 1)]
    compiled = [tuning for tuning in TUNINGS if wanted and all(variant_of(inputs, tuning, package) for package in wanted)]
    return {"": ["--engine", "torchscript"], **{tuning: ["--engine", "aoti", "--set", f"models.variants={variants_of(inputs, tuning)}"] for tuning in compiled}}
