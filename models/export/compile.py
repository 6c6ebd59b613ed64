"""Compiles a package for this machine: compile.py PACKAGE [--out FOLDER]

AOTInductor makes machine code from model.ep.pt2, for a short list of row counts of each method. The result is a
variant: a folder with one library for each method and row count, and variant.yaml. It changes nothing in the package.
Libraries that an earlier command made in the same way are taken over.
"""

import argparse
import contextlib
import hashlib
import itertools
import logging
import math
import os
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

from command_line import MODEL, STORAGE, Parser, end, exit_codes, stop_on_signals, unfinished
from package import Differs, Refused, compare, sha256, write_yaml

import torch
import yaml
from torch.export.passes import move_to_device_pass

import detections
import gpu_graph
import methods
import programs
import verify

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Default row counts. On a CPU, calls with several pictures are slower than as many calls with one, and TorchScript's
# loop over boxes is faster than a compiled call with several (docs/performance_cpu.md).
ROWS = {"cpu": {"picture": [1], "crop": [1], "box": []}, "cuda": {"picture": [1, 4, 16], "crop": [16, 64], "box": [16, 64, 160, 256]}}
REPEATS = 7
ANOTHER_ORDER = 10  # times the bounds for a copy
PICTURES = 3  # in an example of a call with boxes
# What g++ calls a CPU with AVX2, and its instructions by the names of /proc/cpuinfo.
PORTABLE = "x86-64-v3"
PORTABLE_FLAGS = "abm avx avx2 bmi1 bmi2 f16c fma movbe popcnt sse sse2 sse4_1 sse4_2 ssse3"
# Beginnings of the names of CPU flags that concern instructions for arithmetic.
VECTOR_FLAGS = ("abm", "adx", "amx", "avx", "bmi", "f16c", "fma", "gfni", "movbe", "popcnt", "sse", "ssse")


def read_package(folder):
    """model.yaml with the methods that follow from it, and its SHA-256. Raises Refused unless `millrace inspect` accepts the package."""
    done = subprocess.run([verify.program_path(), "inspect", str(folder)], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise Refused(done.stderr.strip().removeprefix("millrace: ") or f"{folder}: `millrace inspect` ended with exit code {done.returncode}")
    file = folder / "model.yaml"
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    if programs.NAME not in described["files"]:
        raise Refused(f"{folder}: has no {programs.NAME}, so it cannot be compiled; export the weights again with this version of millrace")
    # Not those of the file, which may have further methods with any names.
    described["methods"] = methods.TASKS[described["task"]](described)
    return described, sha256(file)


def usual_precision(task, device):
    """The precision of a run without --precision, as in models/tasks/*.cpp."""
    if device == "cpu":
        return "fp32"
    if task == "regress":
        return "fp32"
    # GPUs before Ampere have no bf16.
    return "bf16" if task == "segment" and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0) else "fp16"


def check_machine(device, precision):
    """The instructions or the GPU that the code needs. Raises Refused if this machine cannot compile."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    try:
        get_cpp_compiler()
    except Exception as error:
        raise Refused("no C++ compiler was found, and compiling a model needs one; install g++") from error
    if device == "cuda":
        if not torch.cuda.is_available():
            raise Refused("--device cuda needs a GPU in this machine, because AOTInductor compiles for the GPU that it finds; use --device cpu")
        if cuda_home() is None:
            raise Refused("the CUDA Toolkit was not found, and compiling for a GPU needs its headers; install it, and set CUDA_HOME to its folder")
        return "sm_%d%d" % torch.cuda.get_device_capability()
    capability = torch.backends.cpu.get_cpu_capability().lower()
    if capability not in ("avx2", "avx512"):
        raise Refused(f"compiled models need a CPU with AVX2, and this one offers {capability}; run the package as it is")
    if precision == "fp16":
        raise Refused("--precision fp16 is for GPUs; on a CPU, use fp32, or bf16 where the CPU has it")
    if precision == "bf16":
        # As in models/engines/cpu_level.cpp.
        flags = cpu_flags(device).split()
        if capability != "avx512" or "avx512_bf16" not in flags:
            raise Refused("--precision bf16 needs a CPU with avx512_bf16 or amx_bf16, and this one has neither; use fp32")
        capability = "amx" if {"amx_tile", "amx_bf16"} <= set(flags) else "avx512_bf16"
    # Inductor finds out by a small program, which it cannot link with the options of compile_call(). It keeps the answer.
    # Without it, the code would use no vector instructions, and take twice as long.
    if not pick_vec_isa():
        raise Refused("the C++ compiler cannot make programs with this CPU's vector instructions; install a newer g++")
    return capability


def cpu_flags(device):
    """The instructions of CPUs that compiled code may use. -march=native lets the compiler take all of this CPU."""
    if device == "cuda":
        return PORTABLE_FLAGS
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next(line.partition(":")[2].split() for line in lines if line.startswith("flags"))
    return " ".join(sorted(flag for flag in flags if flag.startswith(VECTOR_FLAGS)))


def shapes_of(declared, rows, described):
    """The input shapes of a call with this number of rows. A call with boxes may have any number of pictures: B."""
    sides = {"H": described["input"]["height"], "W": described["input"]["width"], "N": rows}
    if declared["row"] != "box":
        sides["B"] = rows
    return {name: [sides.get(size, size) for size in tensor["shape"]] for name, tensor in declared["inputs"].items()}


def example(declared, rows, described, dtype, device):
    """Inputs of a call with this number of rows: noise, and boxes in the middle of each of several pictures."""
    pictures = rows if declared["row"] != "box" else PICTURES
    generator, inputs = torch.Generator().manual_seed(0), []
    shapes = shapes_of(declared, rows, described)
    for name, tensor in declared["inputs"].items():
        shape = [pictures if size == "B" else size for size in shapes[name]]
        if name == "boxes":
            values = torch.tensor([0.25, 0.25, 0.75, 0.75]).mul(described["input"]["width"]).expand(shape).clone()
        elif tensor["dtype"] == "i64":
            values = torch.arange(rows) % pictures
        elif name == "images":
            scale, mean, std = (torch.tensor(described["input"][key]) for key in ("scale", "mean", "std"))
            pixels = 255 * torch.rand(shape, generator=generator)
            values = (pixels * scale - mean[:, None, None]) / std[:, None, None]
        else:
            values = torch.randn(shape, generator=generator)
        inputs.append(values.to(device, dtype if tensor["dtype"] == "image" else values.dtype))
    return tuple(inputs)


def with_weights(program, dtype, device="cpu"):
    """The module of a program with its weights in this type. As in TorchScript, its plain tensors, such as positions, stay in float32."""
    # Unlike module.to(), this moves plain tensors too.
    module = move_to_device_pass(program, device).module()
    weights = {name: weight.to(dtype) if weight.is_floating_point() else weight for name, weight in program.state_dict.items()}
    module.load_state_dict(weights, strict=False, assign=True)
    # The export asserts type and device of some tensors, which may be others now.
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            module.graph.erase_node(node)
    module.recompile()
    return module


def cuda_home():
    """The folder of the CUDA Toolkit, or None."""
    from torch.utils.cpp_extension import CUDA_HOME

    return CUDA_HOME


def linked_from(device):
    """Folders of the libraries that compiled code is linked with. The CUDA toolkit has a stand-in for the driver's library."""
    folders = [str(Path(torch.__file__).parent / "lib")]
    if device == "cuda":
        folders.append(str(Path(cuda_home()) / "lib64/stubs"))
    return ":".join([*folders, *filter(None, [os.environ.get("LIBRARY_PATH")])])


def inductor_options(device, autotune=True):
    """What decides which code Inductor makes for a program. `autotune`: on a GPU, measure several kernels for each product."""
    return {
        # The program and its LibTorch are one; libtorch.so would also load LibTorch's libraries for GPUs.
        "aot_inductor.link_libtorch": False,
        "aot_inductor.precompile_headers": False,
        "aot_inductor.custom_op_libs": ["torch_cpu"] + (["torch_cuda", "c10_cuda", "c10"] if device == "cuda" else []),
        # The run makes the code check its inputs. A call with boxes may have one picture; the check would want two.
        "aot_inductor.check_lowerbound": False,
        # `cpp.dynamic_threads`: the run chooses the number of threads.
        # `unroll_reductions_threshold`: 1 means never. The box decoder has softmaxes over 7 tokens. Unrolled, each would
        # be two kernels.
        # `embed_kernel_binary`: without it, the library would look for its kernels in the compiler's folder.
        # `conv_1x1_as_mm`: a product can be fused with what follows, and a convolution cannot.
        **({"freezing": True, "cpp.dynamic_threads": True} if device == "cpu" else
           {"max_autotune": autotune, "unroll_reductions_threshold": 1, "aot_inductor.embed_kernel_binary": True, "conv_1x1_as_mm": True}),
    }


@contextlib.contextmanager
def compiler_of_host_code(device):
    """On a GPU, code of the host only launches kernels. So it is made for any CPU with AVX2: machines with the same GPU share variants."""
    if device == "cpu":
        yield
        return
    from torch._inductor.cpp_builder import get_cpp_compiler

    compiler = Path(get_cpp_compiler())
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / compiler.name
        # Inductor asks for the instructions of this CPU. The last -march counts.
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(compiler))} "$@" -march={PORTABLE}\n')
        script.chmod(0o755)
        with torch._inductor.config.patch({"cpp.cxx": (str(script),), "cpp.simdlen": 0}):
            yield


def compile_call(program, inputs, declared, device, dtype, library, autotune=True):
    """Writes the library for calls with inputs of these shapes. Returns a function that makes such calls.

    Only the number of rows is fixed. A call with boxes may have any number of pictures.
    """
    module = with_weights(program, dtype, device)
    if device == "cuda":
        gpu_graph.for_gpu(module)
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN's attention makes a plan for each shape and thread in its first call
    with torch.no_grad(), compiler_of_host_code(device):
        shapes = programs.dynamic_shapes(declared, "B") if declared["row"] == "box" else None
        static = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
        archive = torch._inductor.aoti_compile_and_package(static, package_path=str(library.with_suffix(".pt2")), inductor_configs=inductor_options(device, autotune))
    # The program opens the library itself. LibTorch unpacks an archive for each load, and a killed run leaves that behind.
    with zipfile.ZipFile(archive) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".so"))
        library.write_bytes(files.read(name))
    call = torch._inductor.aoti_load_package(archive)
    os.unlink(archive)
    return call


def outputs_of(result):
    return [result] if torch.is_tensor(result) else list(result)


def compare_outputs(name, described, outputs, expected):
    """Raises Differs if the outputs of compiled code in fp32 are not those of the program.

    Compiled code sums in another order, so the bounds are wider than those of a copy.
    """
    if described["task"] == "detect":
        (own,), (other,), layout = outputs, expected, described["output"]["layout"]
        scores = other[..., 4] if layout == "end_to_end" else other[:, 4:]
        detections.CHECKS[layout](name, own, other, 1.0, ANOTHER_ORDER * detections.logits_of(scores).std().clamp(min=0.1))
        return
    for i, (own, other) in enumerate(zip(outputs, expected)):
        compare(f"{name}, output {i}", own, other, deviation=ANOTHER_ORDER * other.double().std().clamp(min=0.1))


def milliseconds(call, inputs):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call(*inputs)
        if inputs[0].is_cuda:
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def row_counts(package, described, arguments):
    """The row counts of each method that is compiled."""
    counts = {}
    for name, declared in described["methods"].items():
        given = arguments.boxes if declared["row"] == "box" else arguments.rows
        usual = [rows for rows in ROWS[arguments.device][declared["row"]] if rows <= declared["maximum"]]
        counts[name] = sorted(set(usual if given is None else given))
        for rows in counts[name]:
            if not 1 <= rows <= declared["maximum"]:
                raise Refused(f"{package}: {name} takes 1 to {declared['maximum']} rows in a call, not {rows}")
    if not any(counts.values()):
        raise Refused(f"{package}: no row counts are named, so there is nothing to compile")
    return counts


def compiler_hash():
    """A hash of these scripts and the version of PyTorch: with others, the code of a library may be another."""
    digest = hashlib.sha256(torch.__version__.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def earlier_variant(place, described):
    """variant.yaml in this folder, if it says the same as `described`. Otherwise nothing: {}."""
    try:
        found = yaml.safe_load((place / "variant.yaml").read_text(encoding="utf-8"))
        return found if {key: found[key] for key in described} == described else {}
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return {}


def take_library(earlier, place, name, rows, library):
    """Copies a library of the earlier variant. Returns whether it had one, and it is unchanged."""
    try:
        expected = earlier["methods"][name][rows]["sha256"]
        shutil.copyfile(place / library.name, library)
        return sha256(library) == expected
    except (OSError, LookupError, TypeError):
        return False


def compile_package(package, described, counts, arguments, folder, earlier, place):
    """Writes the libraries of a variant to `folder`. Those that the earlier variant in `place` has are copied.

    Returns the section `methods` of variant.yaml, and whether all libraries are copies.
    """
    dtype, compiled, all_copied = PRECISIONS[arguments.precision], {}, True
    exported = programs.load(package / programs.NAME)
    if exported.keys() != described["methods"].keys():
        raise Refused(f"{package / programs.NAME}: has {', '.join(exported)}; a model of the task {described['task']} has {', '.join(described['methods'])}; export it again")
    for name, program in exported.items():
        declared = described["methods"][name]
        kind = declared["row"]
        for rows in counts[name]:
            what, library = f"{name} for {rows} {kind}{'' if rows == 1 else 'es' if kind == 'box' else 's'}", folder / f"{name}_{rows}.so"
            if take_library(earlier, place, name, rows, library):
                print(f"{what}: already compiled")
            else:
                all_copied = False
                inputs = example(declared, rows, described, dtype, arguments.device)
                print(f"compiling {what}, about a minute", flush=True)
                with torch.no_grad():
                    start = time.monotonic()
                    call = compile_call(program, inputs, declared, arguments.device, dtype, library, arguments.autotune)
                    seconds = time.monotonic() - start
                    if dtype == torch.float32:
                        expected = outputs_of(with_weights(program, dtype, arguments.device)(*inputs))
                        compare_outputs(f"{name} for {rows}", described, outputs_of(call(*inputs)), expected)
                    print(f"{what}: {milliseconds(call, inputs):.1f} ms a call, compiled in {seconds:.0f} s")
            compiled.setdefault(name, {})[rows] = {"file": library.name, "sha256": sha256(library)}
    return compiled, all_copied


def name_of(machine):
    """The folder of a variant with these keys in variant.yaml. One for another GPU or LibTorch has another name, so neither replaces the other."""
    gpu = [re.sub("[^a-z0-9]+", "_", machine["gpu"].lower()).strip("_")] if "gpu" in machine else []
    return "-".join([machine["device"], machine["instructions"], machine["precision"], *gpu, f"torch{machine['torch']}"])


def place_of(package, fingerprint, name, out):
    """Where the variant goes: the folder `out`, or next to the package, or where that cannot be written, the user's cache."""
    if out:
        return Path(out) / name
    beside = package.with_name(package.name + ".variants")
    if os.access(beside if beside.exists() else beside.parent, os.W_OK):
        return beside / name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "millrace" / "variants" / fingerprint[:16] / name


def main():
    codes = exit_codes(MODEL="a problem with the package, the machine or the compiler, or the results miss the limits", STORAGE="writing failed")
    parser = Parser("--help lists the options", "compile", prog="millrace compile", description=__doc__, epilog=codes, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", metavar="PACKAGE", help="folder of a package with a model.ep.pt2")
    parser.add_argument("--out", metavar="FOLDER", help="folder for the variant; default: PACKAGE.variants, or the user's cache")
    parser.add_argument("--device", choices=ROWS, default="cpu", help="the device that will run the code (default cpu)")
    parser.add_argument("--precision", choices=PRECISIONS, help="default: fp32 on the CPU; on a GPU fp16, fp32 for regressors, or bf16 for segmenters on a GPU that has it, as in a run")
    parser.add_argument("--rows", type=int, nargs="*", metavar="N", help="pictures or crops of a call (default: 1 on the CPU; on a GPU 1 4 16 pictures, or 16 64 crops)")
    parser.add_argument("--boxes", type=int, nargs="*", metavar="N", help="boxes of a call, up to max_boxes of the package (default: none on the CPU; 16 64 160 256 on a GPU)")
    parser.add_argument("--no-autotune", dest="autotune", action="store_false", help="on a GPU: do not search for the fastest kernels, which takes most of the time")
    parser.add_argument("--images", metavar="WHAT", nargs="+", help="pictures and folders: compare the results on them with TorchScript in fp32")
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="maximum number of pictures for the comparison (default 100)")
    parser.add_argument("--truth", metavar="FILE", help="COCO annotations of these pictures")
    parser.add_argument("--traceback", action="store_true", help="show the Python traceback of an unexpected error")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    try:
        compile_variant(arguments)
    except (Refused, Differs) as error:
        end(MODEL, error, "compile")
    except OSError as error:
        end(STORAGE, f"{error.filename or arguments.package}: {error.strerror or error}; nothing was written", "compile")
    except Exception as error:  # PyTorch and the compiler throw many types
        if arguments.traceback:
            raise
        first = (str(error).strip() or "no reason given").split("\n")[0][:300]
        end(MODEL, f"{arguments.package}: {type(error).__name__}: {first}; nothing was written; --traceback shows where", "compile")


def runs_of(task, counts):
    """Runs that together call each library with full calls: batch sizes and further options. `counts` are by method."""
    if task != "segment":
        ((rows),) = counts.values()
        return [(count, []) for count in rows]
    runs = []
    # As many runs as the longer list has. The other repeats its last count.
    for i in range(max(map(len, counts.values()))):
        pictures, boxes = (rows[min(i, len(rows) - 1)] if rows else 1 for rows in (counts["encode"], counts["decode"]))
        more = ["--set", f"segment.image_batch={pictures}", *(["--set", f"segment.box_batch={boxes}"] if counts["decode"] else [])]
        runs.append((max(pictures, math.ceil(boxes / len(verify.BOXES))), more))
    return runs


def check_results(package, task, counts, variants, pictures, arguments):
    """The gate: compares the results of the compiled code with those of TorchScript. Returns the text for variant.yaml."""
    if not pictures:
        print("the results were not compared, so only --engine aoti uses this variant; name pictures with --images to compare them")
        return "ungated"
    candidate = ["--engine", "aoti", "--device", arguments.device, "--precision", arguments.precision, "--set", f"models.variants={variants}"]
    runs = runs_of(task, counts)
    # With fewer pictures than rows, no call would be full.
    pictures = list(itertools.islice(itertools.cycle(pictures), max(len(pictures), *(batch for batch, _ in runs))))
    candidates = [[*candidate, "--set", f"batch.size={batch}", *more] for batch, more in runs]
    measures = verify.verify(verify.program_path(), package, pictures, candidates, arguments.truth)
    text = verify.text_of(measures)
    print(text)
    if not measures["within"]:
        raise Refused(f"{package}: the compiled code does not keep the limits: {text}; nothing was written")
    return f"passed: {text}"


def compile_variant(arguments):
    package = Path(os.path.abspath(arguments.package))
    described, fingerprint = read_package(package)
    arguments.precision = arguments.precision or usual_precision(described["task"], arguments.device)
    counts = row_counts(package, described, arguments)
    instructions = check_machine(arguments.device, arguments.precision)
    os.environ["LIBRARY_PATH"] = linked_from(arguments.device)
    pictures = verify.pictures_of(arguments.images, arguments.limit) if arguments.images else []
    document = {
        "schema": 1,
        "package": described["name"],
        "fingerprint": fingerprint,
        "source": described["files"][programs.NAME],
        "device": arguments.device,
        "instructions": instructions,
        **({"gpu": torch.cuda.get_device_name()} if arguments.device == "cuda" else {}),
        "cpu_flags": cpu_flags(arguments.device),
        "precision": arguments.precision,
        "torch": torch.__version__.split("+")[0],
        "compiler": compiler_hash(),
        "inductor": inductor_options(arguments.device, arguments.autotune),
    }
    place = place_of(package, fingerprint, name_of(document), arguments.out)
    earlier = earlier_variant(place, document)
    aside = place.with_name(place.name + ".part")  # a folder with one variant, so that a run can use it before it is in place
    folder = aside / place.name
    shutil.rmtree(aside, ignore_errors=True)
    unfinished.append(aside)
    new_parent = not place.parent.exists()
    folder.mkdir(parents=True)
    try:
        compiled, all_copied = compile_package(package, described, counts, arguments, folder, earlier, place)
        inputs = {name: {rows: shapes_of(described["methods"][name], rows, described) for rows in counted} for name, counted in counts.items() if counted}
        # Each library was called in the comparison of the earlier variant.
        document |= {"gate": earlier.get("gate", "ungated") if all_copied else "ungated", "inputs": inputs, "methods": compiled}
        write_yaml(folder / "variant.yaml", document)
        if pictures or document["gate"] == "ungated":
            document["gate"] = check_results(package, described["task"], counts, aside, pictures, arguments)
            write_yaml(folder / "variant.yaml", document)
        if place.exists():
            place.rename(aside / "replaced")  # at once, unlike its removal, so that a killed command leaves no half of it
        folder.rename(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if new_parent and not place.exists():
            with contextlib.suppress(OSError):  # another command may have written there
                place.parent.rmdir()
    print(f"wrote {place}")


if __name__ == "__main__":
    # Before torch reads them. The compiler's files are of no use later. Its processes may still write some at the end.
    with tempfile.TemporaryDirectory(prefix="millrace-compile-", ignore_cleanup_errors=True) as scratch:
        unfinished.append(scratch)
        stop_on_signals("compile")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = scratch
        main()
