"""Compiled variants: which ones a run uses, and that results are exact with them.

tests/models/make_packages.py compiles the small segmenter for calls of 2 pictures or 3 boxes, so that runs cut and pad calls.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import numpy
import program
import resume_test
import small_embedder
import torch
import yaml
from embeddings_test import side_rows
from program import Case, millrace

EXPORT = program.ROOT / "models" / "export"
COMPILED = program.PACKAGES / "compiled"  # a folder with sam_small.pkg and its variant


def setUpModule():
    if not (COMPILED / "sam_small.pkg.variants").is_dir():
        raise unittest.SkipTest(f"{COMPILED} has no variant; tests/models/make_packages.sh compiles it on a CPU with AVX2")


def the_package(name):
    """For the tests of resume_test: the package that has a variant."""
    return str(COMPILED / f"{name}.pkg") if name == "sam_small" else PACKAGE(name)


PACKAGE = program.package


class Exact:
    """Runs the tests of resume_test with the compiled segmenter."""

    def setUp(self):
        super().setUp()
        program.package = the_package
        self.addCleanup(setattr, program, "package", PACKAGE)

    def run_ok(self, *arguments, **options):
        done = super().run_ok(*arguments, "--engine", "aoti", **options)
        output = Path(arguments[arguments.index("--output") + 1])
        planned = json.loads((output / "plan" / "plan.json").read_text())["settings"]["packages"]["segment.model"]
        self.assertIn("cpu-", planned)
        return done


class SameBytes(Exact, resume_test.Level1):
    test_with_the_detector_too = None  # a test of the detector


class SameBytesAfterKills(Exact, resume_test.Kills):
    test_three_segments = None  # it runs no model

    def kill_until_done(self, arguments, output, kills, step, chance):
        return super().kill_until_done([*arguments, "--engine", "aoti"], output, kills, step, chance)


class Variants(Case):
    def setUp(self):
        super().setUp()
        self.package = self.folder / "sam_small.pkg"
        shutil.copytree(COMPILED / "sam_small.pkg", self.package)
        shutil.copytree(COMPILED / "sam_small.pkg.variants", self.folder / "sam_small.pkg.variants")
        (self.variant,) = (self.folder / "sam_small.pkg.variants").iterdir()
        rows = []
        for i in range(5):
            program.write_picture(self.folder / "in" / f"{i}.jpg", 120 + 30 * i, 90, seed=i)
            rows.append(json.dumps({"path": f"{i}.jpg", "boxes": [[4 + 9 * j, 5, 60, 70] for j in range(i)]}))
        self.manifest = self.write("in/list.jsonl", "\n".join(rows))

    def run_engine(self, engine, output, *more, code=program.OK):
        return self.run_ok("--input", self.manifest, "--segmenter", self.package, "--output", self.folder / output, "--engine", engine,
                           "--set", "batch.size=5", "--set", "threads.team=1", *more, code=code)

    def edit(self, change):
        file = self.variant / "variant.yaml"
        file.write_text(change(file.read_text()))

    def pass_the_gate(self):
        self.edit(lambda text: text.replace("gate: ungated", "gate: passed"))

    def planned(self, output):
        return json.loads((self.folder / output / "plan" / "plan.json").read_text())["settings"]["packages"]["segment.model"]

    def overlaps(self, first, second):
        from pycocotools import mask

        found = []
        for a, b in zip(program.lines(self.folder / first), program.lines(self.folder / second)):
            self.assertEqual(len(a["objects"]), len(b["objects"]))
            for one, other in zip(a["objects"], b["objects"]):
                self.assertLess(abs(one["iou"] - other["iou"]) if "iou" in one else 0, 1e-3)
                if one["area"] or other["area"]:
                    found.append(mask.iou([one["rle"]], [other["rle"]], [0])[0][0])
        return found

    def test_masks_are_those_of_torchscript(self):
        """Five pictures and ten boxes in calls of two and three: calls are cut, and the last ones padded."""
        self.run_engine("torchscript", "script")
        done = self.run_engine("aoti", "compiled")
        self.assertIn(f"compiled small_sam-seed0: {self.variant.name} ", done.out)
        self.assertNotIn("cpu-", self.planned("script"))
        found = self.overlaps("script", "compiled")
        self.assertEqual(len(found), 10)
        self.assertGreater(min(found), 0.99)

    def test_calls_are_padded_to_sizes_of_the_variant(self):
        """Ten boxes: to a power of two, or to a multiple of the three boxes of the library."""
        for engine, slots in (("torchscript", 16), ("aoti", 12)):
            self.run_engine(engine, engine, "--set", "segment.pad=yes")
            self.assertEqual(program.report(self.folder / engine)["calls"]["decoder_slots"], slots, engine)

    def test_auto_takes_a_variant_that_passed_the_gate(self):
        done = self.run_engine("auto", "ungated")
        self.assertIn("its results were not checked", done.err)
        self.assertNotIn("cpu-", self.planned("ungated"))
        self.pass_the_gate()
        done = self.run_engine("auto", "gated", "--quiet")
        self.assertEqual(done.err, "")
        self.assertIn(self.variant.name, self.planned("gated"))
        # The plan keeps its choice: this output began without the variant.
        done = self.run_engine("auto", "ungated", "--quiet")
        self.assertEqual(done.err, "")

    def test_a_variant_in_bf16(self):
        """It passes the gate, runs in bf16 use it, and runs in fp32 do not see it."""
        shutil.rmtree(self.variant.parent)
        interpreter = {"MILLRACE_PYTHON": sys.executable}
        done = millrace("compile", self.package, "--precision", "bf16", "--images", self.folder / "in", env=interpreter)
        if "needs a CPU with avx512_bf16 or amx_bf16" in done.err:
            self.assertEqual(done.code, program.ENVIRONMENT)
            raise unittest.SkipTest("this CPU has no bf16")
        self.assertEqual(done.code, program.OK, done)
        self.assertIn("30 masks in 5 pictures: IoU mean 0.99", done.out)
        self.run_engine("auto", "fp32")
        self.assertNotIn("cpu-", self.planned("fp32"))
        self.run_engine("auto", "bf16", "--precision", "segment=bf16")
        self.assertRegex(self.planned("bf16"), "cpu-(amx|avx512_bf16)-bf16")
        # A variant in fp32 fits the level of a run in which another model computes in bf16.
        (half,) = (self.folder / "sam_small.pkg.variants").iterdir()
        done = millrace("compile", self.package, "--rows", 1, env=interpreter)
        self.assertEqual(done.code, program.OK, done)
        level = half.name.split("-")[1]
        self.run_engine("aoti", "wide", "--set", f"device.cpu={level}")
        self.assertIn("cpu-avx512-fp32", self.planned("wide"))
        found = self.overlaps("fp32", "bf16")
        self.assertEqual(len(found), 10)
        self.assertGreater(min(found), 0.97)
        self.assertLess(min(found), 1)

    def test_a_resume_without_the_variant_is_refused(self):
        self.pass_the_gate()
        self.run_engine("auto", "out")
        before = program.tree(self.folder / "out" / "segments")
        shutil.rmtree(self.variant.parent)
        done = self.run_engine("auto", "out", code=program.MISMATCH)
        self.assertIn(self.variant.name, done.err)
        self.assertIn("segment.model", done.err)
        self.assertIn("no variant was found", done.err)
        self.assertEqual(program.tree(self.folder / "out" / "segments"), before)
        # Compiled again: the folder has the same name, but another fingerprint.
        shutil.copytree(COMPILED / "sam_small.pkg.variants", self.variant.parent)
        self.pass_the_gate()
        self.edit(lambda text: text + "# compiled later\n")
        done = self.run_engine("auto", "out", code=program.MISMATCH)
        self.assertRegex(done.err, f"the compiled variant '{self.variant.name} [0-9a-f]{{16}}', which was .* compiled again, .*: is '{self.variant.name} [0-9a-f]{{16}}'")
        self.assertEqual(program.tree(self.folder / "out" / "segments"), before)

    def test_a_variant_in_the_cache_or_in_a_named_folder(self):
        self.pass_the_gate()
        import hashlib

        fingerprint = hashlib.sha256((self.package / "model.yaml").read_bytes()).hexdigest()
        cached = self.folder / "cache" / "millrace" / "variants" / fingerprint[:16]
        cached.parent.mkdir(parents=True)
        self.variant.parent.rename(cached)
        done = self.run_ok("--input", self.manifest, "--segmenter", self.package, "--output", self.folder / "a", env={"XDG_CACHE_HOME": str(self.folder / "cache")})
        self.assertIn(self.variant.name, self.planned("a"), done)
        self.run_engine("aoti", "b", "--set", f"models.variants={cached}")
        self.assertIn(self.variant.name, self.planned("b"))
        self.run_engine("auto", "c", "--quiet")
        self.assertNotIn(self.variant.name, self.planned("c"))

    def test_what_cannot_be_used_is_passed_over_and_refused_by_name(self):
        """Damaged, swapped and foreign variants. With auto, the run says so in one line and uses TorchScript."""
        encode, decode = self.variant / "encode_2.so", self.variant / "decode_3.so"

        def swap():
            encode.rename(self.variant / "other"), decode.rename(encode), (self.variant / "other").rename(decode)

        def not_a_library():
            import hashlib

            old = hashlib.sha256(encode.read_bytes()).hexdigest()
            encode.write_bytes(b"no machine code")
            self.edit(lambda text: text.replace(old, hashlib.sha256(encode.read_bytes()).hexdigest()))

        for name, damage, says in (
            ("cut", lambda: os.truncate(encode, encode.stat().st_size // 2), "encode_2.so: sha256 is"),
            ("gone", encode.unlink, "encode_2.so: is missing"),
            ("swapped", swap, "sha256 is"),
            ("not a library", not_a_library, "encode_2.so"),
            ("another torch", lambda: self.edit(lambda text: text.replace("torch: 2.", "torch: 1.")), "it was compiled for LibTorch 1."),
            ("another package", lambda: self.edit(lambda text: text.replace("fingerprint: ", "fingerprint: 0")), "fingerprint"),
            ("no text", lambda: (self.variant / "variant.yaml").write_bytes(b"\0\xff"), "variant.yaml"),
        ):
            with self.subTest(name):
                shutil.rmtree(self.variant.parent)
                shutil.copytree(COMPILED / "sam_small.pkg.variants", self.variant.parent)
                self.pass_the_gate()
                damage()
                done = self.run_engine("auto", name, "--quiet")
                self.assertIn("runs without its compiled variant", done.err)
                self.assertIn(says, done.err)
                self.assertEqual(len(done.err.splitlines()), 1, done)
                self.assertNotIn("cpu-", self.planned(name))
                done = self.run_engine("aoti", f"{name} by name", code=program.ENVIRONMENT)
                self.assertIn(says, done.err)
                self.assertFalse((self.folder / f"{name} by name").exists())
        for name, change in (("another machine", ("instructions: ", "instructions: x")), ("another CPU", ("cpu_flags: ", "cpu_flags: avx9000 "))):
            with self.subTest(name):
                shutil.rmtree(self.variant.parent)
                shutil.copytree(COMPILED / "sam_small.pkg.variants", self.variant.parent)
                self.pass_the_gate()
                self.edit(lambda text: text.replace(*change))
                done = self.run_engine("auto", name, "--quiet")
                self.assertEqual(done.err, "")  # a variant for another machine is no fault
                done = self.run_engine("aoti", f"{name} by name", code=program.ENVIRONMENT)
                self.assertIn("no variant of", done.err)

    def test_libraries_for_other_shapes_are_refused(self):
        """Their hashes are right. A library for more rows than variant.yaml says would read past the end of its inputs."""
        text = (self.variant / "variant.yaml").read_text()
        (encode,), (decode,) = (re.findall(name + r"_\d.so, sha256: \w+", text) for name in ("encode", "decode"))
        for name, change in (
            ("fewer rows", ("2: {file: encode", "1: {file: encode")),
            ("more rows", ("2: {file: encode", "4: {file: encode")),
            ("fewer boxes", ("3: {file: decode", "2: {file: decode")),
            ("swapped", (encode, decode)),
        ):
            with self.subTest(name):
                (self.variant / "variant.yaml").write_text(text.replace(*change))
                done = self.run_engine("aoti", name, "--quiet", code=program.ENVIRONMENT)
                self.assertRegex(done.err.splitlines()[-1], f"{self.package}: .*the library of the variant for calls of .*compile the package again")
                self.assertEqual(program.lines(self.folder / name), [])

    def test_the_budget_counts_the_libraries(self):
        """A budget for model.ts, which this run does not load, is too small for the libraries, which have the weights too."""
        script = sum(file.stat().st_size for file in self.package.glob("*.ts"))
        libraries = sum(file.stat().st_size for file in self.variant.glob("*.so"))
        self.assertLess(script, libraries - 1)
        self.run_engine("torchscript", "script", "--set", f"models.budget={script}")
        done = self.run_engine("aoti", "compiled", "--set", f"models.budget={libraries - 1}", code=program.ENVIRONMENT)
        self.assertIn("and models.budget is", done.err)
        self.run_engine("aoti", "compiled", "--set", f"models.budget={libraries}")
        self.assertEqual([load["bytes"] for load in program.report(self.folder / "compiled")["models"]["loads"]], [libraries])

    def test_boxes_of_one_picture(self):
        """A call with boxes may have one picture, also with the checks of input shapes."""
        for engine in ("torchscript", "aoti"):
            self.run_engine(engine, engine, "--set", "batch.size=1")
        found = self.overlaps("torchscript", "aoti")
        self.assertEqual(len(found), 10)
        self.assertGreater(min(found), 0.99)

    def test_a_run_leaves_no_temporary_files(self):
        place = self.folder / "tmp"
        place.mkdir()
        self.pass_the_gate()
        self.run_ok("--input", self.manifest, "--segmenter", self.package, "--output", self.folder / "out", env={"TMPDIR": str(place)})
        self.assertEqual(list(place.iterdir()), [])

    def test_a_run_starts_no_program_and_does_not_open_model_ep_pt2(self):
        """Compiled code needs no Python and no compiler."""
        if shutil.which("strace") is None:
            self.skipTest("strace is not installed; tools/setup.sh check installs it")
        log = self.folder / "calls"
        command = [program.PROGRAM, "run", "--input", self.manifest, "--segmenter", self.package, "--output", self.folder / "out", "--engine", "aoti"]
        done = subprocess.run(["strace", "-f", "--seccomp-bpf", "-s", "4096", "-o", log, "-e", "trace=file,process", *command], capture_output=True, text=True,
                              check=False, timeout=240)
        if "ptrace" in done.stderr and "not permitted" in done.stderr:
            self.skipTest("this machine does not allow ptrace")
        self.assertEqual(done.returncode, program.OK, done)
        calls = log.read_text(errors="replace").splitlines()
        self.assertTrue([line for line in calls if f'{self.variant.name}/encode_2.so"' in line])  # the log has what the run opened
        self.assertEqual(len([line for line in calls if re.search(r" execve(at)?\(", line)]), 1)  # the program itself
        self.assertEqual([line for line in calls if "libpython" in line or "model.ep.pt2" in line], [])

    def test_a_damaged_model_ep_pt2(self):
        """Runs do not need it. `millrace inspect` finds the damage."""
        file = self.package / "model.ep.pt2"
        os.truncate(file, file.stat().st_size // 2)
        for engine in ("torchscript", "aoti"):
            self.run_engine(engine, engine)
        done = millrace("inspect", self.package)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("model.ep.pt2", done.err)


class Wide(torch.nn.Module):
    """An embedder for small_embedder.YAML with 50 MB of weights."""

    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(3 * 32 * 32, 24 * 170)

    @torch.jit.export
    def embed(self, images: torch.Tensor) -> torch.Tensor:
        return self.wide(images.flatten(1)).unflatten(1, (24, 170)).mean(2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.embed(images)


def embedder(folder, name, model):
    """Writes the package NAME.pkg of an embedder with a program for `millrace compile`. Returns its path."""
    sys.path.insert(0, str(EXPORT))
    import package

    description = yaml.safe_load(small_embedder.YAML.format(name=name, model="", matrix=""))
    matrix = numpy.zeros((4, 24), "<f4").tobytes()
    with contextlib.redirect_stdout(io.StringIO()):
        package.write_package(folder / f"{name}.pkg", {key: description[key] for key in description if key not in ("schema", "files")}, torch.jit.script(model),
                              files={"classes.f32": matrix}, source=(model, {"embed": (torch.rand(2, 3, 32, 32),)}))
    return folder / f"{name}.pkg"


class Products(torch.nn.Module):
    """An embedder whose weights keep their layout in compiled code, so that libraries can share them."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = (torch.nn.Parameter(torch.randn(24, 3, 32, 32)) for _ in range(2))

    @torch.jit.export
    def embed(self, images: torch.Tensor) -> torch.Tensor:
        return (images[:, None] * self.first).mean(dim=[2, 3, 4]) - torch.relu(images[:, None] * self.second).mean(dim=[2, 3, 4])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.embed(images)


class SharedWeights(Case):
    def compiled(self, package, *rows):
        """The folder of the variant for these numbers of pictures."""
        done = millrace("compile", package, "--rows", *rows, env={"MILLRACE_PYTHON": sys.executable})
        self.assertEqual(done.code, program.OK, done)
        return next(package.with_name(f"{package.name}.variants").iterdir())

    def vectors(self, package, name, engine="aoti"):
        """Those of eight pictures, in calls of two."""
        recipe = self.write("recipe.yaml", "stages: [decode, preprocess, embed, encode]\n")
        self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / name, "--engine", engine, "--set", f"embed.model={package}", "--set", "embed.of=picture", "--set", "batch.size=2")
        return side_rows(self.folder / name, "embed")

    def test_a_library_takes_weights_from_another_one_only_if_they_are_equal(self):
        program.write_pictures(self.folder / "in", 8, 40, 36)
        package, other = (embedder(self.folder, f"products{seed}", Products(seed).eval()) for seed in range(2))
        self.compiled(package, 2)
        alone = self.vectors(package, "alone")
        numpy.testing.assert_allclose(alone, self.vectors(package, "script", "torchscript"), atol=1e-3)  # they are stored in 16 bits
        variant = self.compiled(package, 1, 2)
        numpy.testing.assert_array_equal(self.vectors(package, "shared"), alone)
        # The library for one picture is that of another package.
        file, own, foreign = variant / "variant.yaml", variant / "embed_1.so", self.compiled(other, 1) / "embed_1.so"
        file.write_text(file.read_text().replace(hashlib.sha256(own.read_bytes()).hexdigest(), hashlib.sha256(foreign.read_bytes()).hexdigest()))
        shutil.copyfile(foreign, own)
        numpy.testing.assert_array_equal(self.vectors(package, "foreign"), alone)


class Memory(Case):
    def peak_bytes(self, *command):
        """The largest resident set of a run that succeeds. A small process starts it: Linux counts the memory of the one that starts it too."""
        code = ("import os, sys; _, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0); print(1024 * used.ru_maxrss); "
                "sys.exit(os.waitstatus_to_exitcode(status))")
        done = subprocess.run([sys.executable, "-c", code, *(str(word) for word in command)], capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(done.returncode, program.OK, done)
        return int(done.stdout)

    def test_lanes_share_the_weights_of_compiled_code(self):
        """Three lanes need less than one more copy of the weights. All of them call the model: each lane that is free takes a batch."""
        model = Wide().eval()
        embedder(self.folder, "wide", model)
        done = millrace("compile", self.folder / "wide.pkg", "--rows", 1, env={"MILLRACE_PYTHON": sys.executable})
        self.assertEqual(done.code, program.OK, done)
        weights = sum(weight.nbytes for weight in model.parameters())
        (library,) = self.folder.glob("wide.pkg.variants/*/*.so")
        self.assertGreater(library.stat().st_size, weights)
        recipe = self.write("recipe.yaml", "stages: [decode, preprocess, embed, encode]\n")
        program.write_pictures(self.folder / "in", 60, 40, 36)
        peaks = {}
        for lanes in (1, 3):
            output = self.folder / f"lanes{lanes}"
            peaks[lanes] = self.peak_bytes(program.PROGRAM, "run", recipe, "--input", self.folder / "in", "--output", output, "--engine", "aoti", "--quiet", "--set",
                                           f"embed.model={self.folder / 'wide.pkg'}", "--set", "threads.team=1", "--set", f"threads.lanes={lanes}")
            self.assertEqual(len(program.report(output)["models"]["loads"]), 1)
        self.assertLess(peaks[3] - peaks[1], weights, peaks)


if __name__ == "__main__":
    program.main()
