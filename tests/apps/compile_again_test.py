#!/usr/bin/env python3
"""A second `millrace compile` of a package: what it takes over, what it compiles, and which variants it leaves alone."""

import os
import re
import shutil
import subprocess
import sys
from unittest import mock

import program
import yaml
from compile_test import InProcess
from compiled_test import COMPILED, setUpModule  # noqa: F401
from program import millrace


class Again(InProcess):
    """A second command compiles only what the first one did not. A stand-in for the compiler notes each of its calls."""

    def setUp(self):
        super().setUp()
        self.variants = self.folder / "sam.pkg.variants"
        shutil.copytree(COMPILED / "sam_small.pkg.variants", self.variants)
        (self.variant,) = self.variants.iterdir()
        self.edit("gate: ungated", "gate: passed")
        self.calls = []

    def edit(self, old, new):
        file = self.variant / "variant.yaml"
        file.write_text(file.read_text().replace(old, new))

    def stand_in(self, program, inputs, declared, device, dtype, library, autotune):
        self.calls.append(library.stem)
        self.autotune = autotune
        library.write_text(f"code {len(self.calls)}")
        return self.compiler.with_weights(program, dtype)

    def again(self, *words):
        """The libraries that are compiled, and stdout."""
        rows = [word for word in words if isinstance(word, int)]
        self.calls = []
        with mock.patch.object(self.compiler, "compile_call", self.stand_in):
            code, out, err = self.compile("--boxes", 3, "--rows", *words)
        self.assertEqual((code, err), (program.OK, ""), out)
        copied = {"_".join(line.split()[:3:2]) for line in out.splitlines() if line.endswith(": already compiled")}
        self.assertEqual(copied, {"decode_3", *(f"encode_{count}" for count in rows)} - set(self.calls), out)
        return self.calls, out

    def written(self):
        return yaml.safe_load((self.variant / "variant.yaml").read_text())

    def test_the_same_command_changes_nothing(self):
        before = program.tree(self.variants)
        done = millrace("compile", self.package, "--rows", 2, "--boxes", 3, env={"MILLRACE_PYTHON": sys.executable})
        self.assertEqual(done.code, program.OK, done)
        self.assertEqual(done.out.splitlines(), ["encode for 2 pictures: already compiled", "decode for 3 boxes: already compiled", f"wrote {self.variant}"])
        self.assertEqual(program.tree(self.variants), before)

    def test_only_new_row_counts_are_compiled(self):
        before = self.written()["methods"]
        calls, out = self.again(1, 2)
        self.assertEqual(calls, ["encode_1"])
        self.assertIn("the results were not compared", out)  # those of the new library
        self.assertEqual((self.written()["gate"], sorted(self.written()["methods"]["encode"])), ("ungated", [1, 2]))
        self.assertEqual({name: {rows: calls[rows] for rows in before[name]} for name, calls in self.written()["methods"].items()}, before)
        self.assertTrue(self.autotune)
        # A variant has the row counts of the last command.
        self.assertEqual(self.again(1, "--no-autotune")[0], [])  # on a CPU, there is no search
        self.assertEqual(sorted(file.name for file in self.variant.iterdir()), ["decode_3.so", "encode_1.so", "variant.yaml"])
        self.assertEqual(self.again(2, "--no-autotune")[0], ["encode_2"])
        self.assertFalse(self.autotune)

    def test_changed_libraries_are_compiled_again(self):
        os.truncate(self.variant / "encode_2.so", 100)
        self.assertEqual(self.again(2)[0], ["encode_2"])
        (self.variant / "decode_3.so").unlink()
        self.assertEqual(self.again(2)[0], ["decode_3"])
        for damage in ("", "7", "{", "\0", "schema: 2", "[schema]"):
            (self.variant / "variant.yaml").write_text(damage)
            self.assertEqual(self.compiler.earlier_variant(self.variant, {"schema": 1}), {}, damage)
        for damage in ({}, {"methods": 7}, {"methods": {"encode": [2]}}, {"methods": {"encode": {2: {}}}}):
            self.assertFalse(self.compiler.take_library(damage, self.variant, "encode", 2, self.folder / "encode_2.so"), damage)

    def test_libraries_made_in_another_way_are_compiled_again(self):
        options = self.compiler.inductor_options("cpu")
        for name, other in (("cpu_flags", "avx2"), ("compiler_hash", "other scripts"), ("inductor_options", options | {"max_autotune": True})):
            with self.subTest(name), mock.patch.object(self.compiler, name, lambda *given, other=other: other):
                self.assertEqual(self.again(2)[0], ["encode_2", "decode_3"])
        (self.package / "model.yaml").write_text((self.package / "model.yaml").read_text() + "# changed\n")
        self.before = program.tree(self.package)
        self.assertEqual(self.again(2)[0], ["encode_2", "decode_3"])
        before = self.compiler.compiler_hash()
        with mock.patch.object(self.compiler.torch, "__version__", "0.0"):
            self.assertNotEqual(self.compiler.compiler_hash(), before)

    def test_variants_for_another_machine_or_libtorch_stay(self):
        import torch

        before = program.tree(self.variant)
        with mock.patch.object(torch, "__version__", "9.9.9+cpu"):
            self.assertEqual(self.again(2)[0], ["encode_2", "decode_3"])
        self.assertEqual(program.tree(self.variant), before)
        (other,) = set(self.variants.iterdir()) - {self.variant}
        self.assertEqual(other.name, re.sub("torch.*", "torch9.9.9", self.variant.name))
        gpu = {"device": "cuda", "instructions": "sm_90", "precision": "bf16", "gpu": "NVIDIA H100 80GB HBM3", "torch": "2.11.0"}
        self.assertEqual(self.compiler.name_of(gpu), "cuda-sm_90-bf16-nvidia_h100_80gb_hbm3-torch2.11.0")

    def test_a_command_that_fails_or_is_killed_leaves_the_variant(self):
        before = program.tree(self.variants)
        with mock.patch.object(self.compiler, "compile_call", side_effect=RuntimeError("no code")):
            code, out, err = self.compile("--rows", 1, 2)
        self.assertEqual((code, "no code; nothing was written" in err), (program.ENVIRONMENT, True), err)
        self.assertEqual(program.tree(self.variants), before)
        command = [program.PROGRAM, "compile", self.package, "--rows", "1", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "MILLRACE_PYTHON": sys.executable, "TMPDIR": str(self.folder)}) as process:
            self.assertIn("compiling encode for 1 picture", process.stdout.readline())
            process.kill()
        self.assertEqual({name: digest for name, digest in program.tree(self.variants).items() if name.startswith(f"{self.variant.name}/")}, before)
        self.assertEqual(self.again(2)[0], [])
        self.assertEqual(list(self.variants.iterdir()), [self.variant])  # without what the killed command left


if __name__ == "__main__":
    program.main()
