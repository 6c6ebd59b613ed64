"""Makes libraries in the place of cuBLAS, cuDNN and the others that LibTorch's CUDA half needs: libraries.py TORCH_LIB OUT RUNTIME...

TORCH_LIB is the folder of libtorch_cuda.so. RUNTIME are the object files of the fake CUDA runtime, which becomes OUT/libcudart.so.13.
The functions of the other libraries do nothing and return 0, which means success. Each call counts under the function's
name. Functions whose results matter are in libraries.c. Functions of the runtime that RUNTIME lacks fail with
cudaErrorNotSupported.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = "libcudart.so.13"
# Which library has a function, by the start of its name. The first that fits counts.
LIBRARIES = {
    "__cuda": RUNTIME,
    "cuda": RUNTIME,
    "cublasLt": "libcublasLt.so.13",
    "cublas": "libcublas.so.13",
    "cudnn": "libcudnn.so.9",
    "cufft": "libcufft.so.12",
    "cuFile": "libcufile.so.0",
    "curand": "libcurand.so.10",
    "cusolver": "libcusolver.so.12",
    "cusparseLt": "libcusparseLt.so.0",
    "cusparse": "libcusparse.so.12",
    "cu": "libcuda.so.1",
    "nccl": "libnccl.so.2",
    "pnccl": "libnccl.so.2",
    "nvrtc": "libnvrtc.so.13",
    "nvshmem": "libnvshmem_host.so.3",
}
NOT_SUPPORTED = 801  # cudaErrorNotSupported


def product(name):
    """Whether cuBLAS multiplies in this function."""
    return re.match(r"cublas.*([Gg]emm|[Gg]emv|[Dd]ot)|cublasLtMatmul$", name) is not None


def library_of(symbol):
    if "nvshmem" in symbol:  # also in C++ names
        return LIBRARIES["nvshmem"]
    return next((library for start, library in LIBRARIES.items() if symbol.startswith(start)), None)


def symbols(*arguments):
    """(name, version) of the symbols that nm lists."""
    out = subprocess.run(["nm", *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in out.splitlines():
        if line and not line.endswith(":"):
            name, _, version = line.split()[-1].partition("@")
            yield name, version.lstrip("@")


def make(library, needed, written, objects, out, more=()):
    """Makes OUT/LIBRARY with the functions `needed`, {name: version}. Those in `written` are in the object files."""
    source, versions = out / f"{library}.c", out / f"{library}.map"
    text = "void fake_cuda_count(const char* name);\nint fake_cuda_put(const char* name, const char* kind, const void* stream);\n"
    result = NOT_SUPPORTED if library == RUNTIME else 0
    for name in sorted(needed.keys() - written):
        if product(name):  # on the stream of the handle (libraries.c)
            text += f'int {name}(void** handle) {{ return fake_cuda_put("{name}", "product", *handle); }}\n'
            continue
        text += f'int {name}(void) {{ fake_cuda_count("{name}"); return {result}; }}\n'
    source.write_text(text)
    names = collections.defaultdict(list)
    for name, version in needed.items():
        names[version].append(name)
    if library == RUNTIME:
        names = {RUNTIME: ["*"]}
    versions.write_text("".join(f"{version} {{ global: {' '.join(f'{name};' for name in own)} }};\n" for version, own in names.items() if version))
    # -w: the compiler knows some of these names with other types.
    command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", out / library, source, *objects, f"-Wl,-soname,{library}"]
    if versions.read_text():
        command.append(f"-Wl,--version-script={versions}")
    subprocess.run([*map(str, command), *map(str, more)], check=True)


def main():
    torch, out, *runtime = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    needed = collections.defaultdict(dict)
    for name, version in symbols("--dynamic", "--undefined-only", *sorted(torch.glob("*.so"))):
        if library := library_of(name):
            needed[library][name] = version
    special = out / "libraries.o"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fno-builtin", "-c", str(HERE / "libraries.c"), "-o", str(special)], check=True)
    written = {name for name, _ in symbols("--defined-only", "--extern-only", special)}
    others = [library for library in needed if library != RUNTIME]
    for library in others:
        make(library, needed[library], written, [special], out)
    driver = out / LIBRARIES["cu"]
    link = driver.with_suffix("")  # the name for -lcuda
    link.unlink(missing_ok=True)
    link.symlink_to(driver.name)
    own = {name for name, _ in symbols("--defined-only", "--extern-only", *runtime)}
    # It needs the others, so a program that links it loads them all, and LibTorch finds them loaded.
    make(RUNTIME, needed[RUNTIME], own, runtime, out, [f"-L{out}", "-Wl,--no-as-needed", *(f"-l:{library}" for library in others), "-Wl,-rpath,$ORIGIN", "-lstdc++"])


if __name__ == "__main__":
    main()
