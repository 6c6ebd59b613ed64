"""The machine code that Triton makes of a kernel: what it needs. Not for processes with the interpreter, which has no compiler."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

# Bytes of shared memory that a block can have, by architecture.
SHARED = {75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10}


def needs(kernel, types, constants, architecture, **options):
    """Bytes of shared memory of a block, bytes of registers that go through memory, and the number of registers.

    types: by name of the argument, without the constants. Pointers and integers are multiples of 16, as in compiled models.
    """
    types = types | dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if types[name] not in ("fp32", "constexpr")}
    source = ASTSource(kernel, {name: types[name] for name in kernel.arg_names}, constants, aligned)
    compiled = triton.compile(source, GPUTarget("cuda", architecture, 32), options)
    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        listed = subprocess.run([cuobjdump, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True).stdout
    (registers,), (stack,) = re.findall(r"REG:(\d+)", listed), re.findall(r"STACK:(\d+)", listed)
    return compiled.metadata.shared, int(stack), int(registers)


def printed_by(test):
    """Runs `test` with the word "compile" in a process with Triton's compiler. Returns the numbers of each line that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": folder}
        done = subprocess.run([sys.executable, "-B", test, "compile"], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
