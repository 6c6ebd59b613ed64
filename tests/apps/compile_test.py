#!/usr/bin/env python3
"""`millrace compile` and `millrace verify`: what they refuse, the gate that compiled code has to pass, and what they measure."""

import contextlib
import hashlib
import importlib
import io
import json
import os
import re
import shutil
import sys
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import numpy
import program
import small_embedder
import yaml
from compiled_test import COMPILED, EXPORT, setUpModule  # noqa: F401
from program import Case, millrace


def exporter(name):
    """A module of models/export."""
    sys.path.insert(0, str(EXPORT))
    with contextlib.redirect_stdout(io.StringIO()):
        return importlib.import_module(name)


class InProcess(Case):
    """Compiles in this process, so that a test can break the compiled code."""

    def setUp(self):
        super().setUp()
        self.compiler = exporter("compile")
        self.package = self.folder / "sam.pkg"
        shutil.copytree(COMPILED / "sam_small.pkg", self.package)
        program.write_pictures(self.folder / "in", 1, 160, 120)
        self.before = program.tree(self.package)

    def compile(self, *arguments):
        """Exit code, stdout and stderr of `millrace compile`."""
        import torch

        words = ["compile.py", self.package, *arguments]
        environment = {"MILLRACE_PROGRAM": str(Path(program.PROGRAM).resolve()), "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "cache"),
                       "LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
        out, err, code = io.StringIO(), io.StringIO(), program.OK
        with mock.patch.object(sys, "argv", list(map(str, words))), mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(out), \
             contextlib.redirect_stderr(err):
            try:
                self.compiler.main()
            except SystemExit as end:
                code = end.code
        self.assertEqual(program.tree(self.package), self.before, "compiling changed the package")
        return code, out.getvalue(), err.getvalue()


class Gate(InProcess):
    def compile(self, *arguments):
        return super().compile("--images", self.folder / "in", *arguments)

    def test_each_library_has_to_pass(self):
        """The code for two pictures is wrong, and that for one is right. One picture is given, so it has to be repeated."""
        import torch

        class Wrong(torch.nn.Module):
            def __init__(self, right):
                super().__init__()
                self.right = right

            def forward(self, images):
                return self.right(images).flip(-1)

        with_weights, compile_call = self.compiler.with_weights, self.compiler.compile_call

        def compile_wrongly(exported, inputs, *more):
            wrong = len(inputs[0]) == 2
            with mock.patch.object(self.compiler, "with_weights", lambda *given: Wrong(with_weights(*given)) if wrong else with_weights(*given)):
                return compile_call(exported, inputs, *more)

        # compare_outputs() would find it first. It does not check code in 16 bits.
        with mock.patch.object(self.compiler, "compile_call", compile_wrongly), mock.patch.object(self.compiler, "compare_outputs"):
            code, out, err = self.compile("--rows", 1, 2)
        self.assertEqual(code, program.ENVIRONMENT, out + err)
        self.assertRegex(err, r"sam.pkg: the compiled code does not keep the limits: \d+ masks in 2 pictures: IoU mean 0.\d+ \(limit 0.995\).*; nothing was written$")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertEqual(list(self.folder.glob("*.variants")), [])
        code, out, err = self.compile("--rows", 2)
        self.assertEqual((code, err), (program.OK, ""), out + err)
        (variant,) = (self.folder / "sam.pkg.variants").iterdir()
        written = yaml.safe_load((variant / "variant.yaml").read_text())
        self.assertRegex(written["gate"], r"passed: 12 masks in 2 pictures: IoU mean (1.0|0.99)")
        self.assertEqual(written["inputs"], {"encode": {2: {"images": [2, 3, 256, 256]}}})
        self.assertEqual((written["inductor"]["freezing"], written["inductor"]["cpp.dynamic_threads"]), (True, True))

    def test_a_program_works_on_a_device_other_than_that_of_its_export(self):
        """The meta device stands in for a GPU: its operators refuse tensors that stayed on the CPU."""
        import programs
        import torch

        described = yaml.safe_load((self.package / "model.yaml").read_text())
        for name, exported in programs.load(self.package / programs.NAME).items():
            module = self.compiler.with_weights(exported, torch.bfloat16, "meta")
            outputs = module(*self.compiler.example(described["methods"][name], 2, described, torch.bfloat16, "meta"))
            self.assertEqual({output.device.type for output in self.compiler.outputs_of(outputs)}, {"meta"}, name)
        # Otherwise the library would look for its kernels in a folder that the compiler deletes.
        self.assertTrue(self.compiler.inductor_options("cuda")["aot_inductor.embed_kernel_binary"])

    def test_without_numbers_of_boxes_a_gpu_gets_those_that_packages_allow(self):
        arguments = mock.Mock(device="cuda", rows=None, boxes=None)
        for maximum, rows in ((64, [16, 64]), (256, [16, 64, 160, 256]), (4096, [16, 64, 160, 256])):
            described = {"methods": {"decode": {"row": "box", "maximum": maximum}}}
            self.assertEqual(self.compiler.row_counts(self.package, described, arguments), {"decode": rows})

    def test_shapes_of_a_call_with_boxes(self):
        described = yaml.safe_load((self.package / "model.yaml").read_text())
        self.assertEqual(self.compiler.shapes_of(described["methods"]["decode"], 5, described), {
            "embedding": ["B", 32, 16, 16], "boxes": [5, 4], "image_index": [5]})

    def test_the_runs_of_the_gate(self):
        def runs(task, **counts):
            return [(batch, [option for option in more if option != "--set"]) for batch, more in self.compiler.runs_of(task, counts)]

        self.assertEqual(runs("detect", forward=[1, 4, 16]), [(1, []), (4, []), (16, [])])
        self.assertEqual(runs("embed", embed=[16]), [(16, [])])
        self.assertEqual(runs("segment", encode=[1], decode=[]), [(1, ["segment.image_batch=1"])])
        self.assertEqual(runs("segment", encode=[1, 4], decode=[16, 32, 64]), [
            (3, ["segment.image_batch=1", "segment.box_batch=16"]),
            (6, ["segment.image_batch=4", "segment.box_batch=32"]),
            (11, ["segment.image_batch=4", "segment.box_batch=64"]),
        ])


class Compile(Case):
    """`millrace compile` refuses what it cannot compile before it takes any time."""

    def refused(self, says, *arguments, folder=None, env=None):
        done = millrace("compile", folder or self.folder / "sam.pkg", *arguments, env=env)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn(says, done.err)
        self.assertEqual(len(done.err.splitlines()), 1, done)
        self.assertEqual(list(self.folder.glob("*.variants*")), [])

    def test_packages_that_cannot_be_compiled(self):
        self.refused("no such folder")
        self.refused("has no model.yaml", folder=self.folder)
        shutil.copytree(COMPILED / "sam_small.pkg", self.folder / "sam.pkg")
        self.refused("encode takes 1 to 16 rows in a call, not 17", "--rows", 17)
        self.refused("no row counts are named", "--rows", "--boxes")
        self.refused("--device cuda needs a GPU", "--device", "cuda")
        self.refused("--precision fp16 is for GPUs", "--precision", "fp16")
        self.refused("compiled models need a CPU with AVX2, and this one offers default; run the package as it is", env={"ATEN_CPU_CAPABILITY": "default"})
        self.refused("no C++ compiler was found, and compiling a model needs one; install g++", env={"CXX": "/no/compiler"})
        program_file = self.folder / "sam.pkg" / "model.ep.pt2"
        data = program_file.read_bytes()
        program_file.write_bytes(data[: len(data) // 2])
        self.refused("model.ep.pt2: this file is a zip archive that is cut off")
        program_file.write_bytes(data[:-1] + b"x")
        self.refused("model.ep.pt2: sha256 is")
        program_file.unlink()
        self.refused("model.ep.pt2: is missing, but model.yaml lists it")
        model = self.folder / "sam.pkg" / "model.yaml"
        text = model.read_text()
        model.write_text(re.sub(r", model.ep.pt2: \w+", "", text))
        self.refused("has no model.ep.pt2, so it cannot be compiled")
        for change in ((r"std: .*", "std: [58.395, 57.12]"), (r"files: .*", "files: 7"), (r"    maximum: 16", "    maximum: none"), (r"  decode:", "  ../../decode:")):
            with self.subTest(change):
                model.write_text(re.sub(*change, text))
                checked = millrace("inspect", self.folder / "sam.pkg")
                self.refused(checked.err.removeprefix("millrace: ").strip())

    def edit_archive(self, change):
        """Copies the package. `change` gets the records of its model.ep.pt2 by name. The hash in model.yaml is right again."""
        folder = self.folder / "sam.pkg"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(COMPILED / "sam_small.pkg", folder)
        file = folder / "model.ep.pt2"
        before = hashlib.sha256(file.read_bytes()).hexdigest()
        with zipfile.ZipFile(file) as archive:
            records = {name.removeprefix("model.ep/"): archive.read(name) for name in archive.namelist()}
        change(records)
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in records.items():
                archive.writestr(zipfile.ZipInfo(f"model.ep/{name}"), data)
        model = folder / "model.yaml"
        model.write_text(model.read_text().replace(before, hashlib.sha256(file.read_bytes()).hexdigest()))
        return file

    def test_archives_that_could_run_code_are_refused(self):
        import torch
        from torch.export.pt2_archive._package import load_pt2

        class Command:
            def __reduce__(self):
                return os.mkdir, (str(marker),)

        def pickled(value):
            torch.save(value, data := io.BytesIO())
            return data.getvalue()

        def as_json(name, change):
            def edit(records):
                value = json.loads(records[name])
                change(value)
                records[name] = json.dumps(value).encode()

            return edit

        def pickled_weight(records):
            as_json("data/weights/encode_weights_config.json", lambda value: value["config"]["model.encoder.0.bias"].update(use_pickle=True))(records)
            records["data/weights/weight_1"] = pickled(Command())

        def custom_object(records):
            as_json("data/constants/decode_constants_config.json", lambda value: value["config"]["model.positions"].update(path_name="custom_obj_0"))(records)
            records["data/constants/custom_obj_0"] = b"object"

        def sizes(value):
            value["graph_module"]["graph"]["tensor_values"]["inputs_0"]["sizes"][0]["as_expr"]["expr_str"] = code

        programs = exporter("programs")
        marker = self.folder / "the code ran"
        code = f"__import__('os').mkdir({str(marker)!r})"
        graph = "models/encode.json"
        runs_code = (
            ("pickled weight", pickled_weight, "has use_pickle 'True'"),
            ("sample input", lambda records: records.update({"data/sample_inputs/encode.pt": pickled((Command(),))}), "has a pickle with more than tensors"),
            ("old weights", lambda records: records.update({"data/weights/encode.pt": pickled(Command())}), "has the record 'data/weights/encode.pt'"),
            ("size", as_json(graph, sizes), "has expr_str"),
        )
        others = (
            ("guard", as_json(graph, lambda value: value.update(guards_code=[f"{code} or L['inputs'][0].size()[0] == 1"])), "has guards_code"),
            ("machine code", lambda records: records.update({"data/aotinductor/model/code.so": b"code"}), "has the record 'data/aotinductor/model/code.so'"),
            ("custom object", custom_object, "has path_name 'custom_obj_0'"),
            ("operator", as_json(graph, lambda value: value["graph_module"]["graph"]["nodes"][0].update(target="torch.os.system")), "has target 'torch.os.system'"),
            ("name", as_json(graph, lambda value: value["graph_module"]["graph"]["nodes"][0].update(name="a; b()")), "has name 'a; b()'"),
            ("module", as_json(graph, lambda value: value["graph_module"]["module_call_graph"][0]["signature"].update(
                in_spec='[1, {"type": "collections.defaultdict", "context": "{}", "children_spec": []}]')), "has in_spec"),
        )
        for name, change, says in (*runs_code, *others):
            with self.subTest(name):
                file = self.edit_archive(change)
                with self.assertRaisesRegex(Exception, re.escape(says)) as caught:
                    programs.load(file)
                self.assertEqual(type(caught.exception).__name__, "Refused")
                self.assertFalse(marker.exists())
                if (name, change, says) in runs_code:  # without the check
                    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
                        load_pt2(str(file)).exported_programs["encode"].module()(torch.zeros(2, 3, 256, 256))
                    marker.rmdir()

        self.refused("model.ep.pt2: models/encode.json: has in_spec")

    def test_an_archive_with_other_methods_is_refused(self):
        def rename(records):
            for name in [name for name in records if "decode" in name]:
                records[name.replace("decode", "detect")] = records.pop(name)

        self.edit_archive(rename)
        self.refused("model.ep.pt2: has encode, detect; a model of the task segment has encode, decode")

    def test_a_gpu_without_the_cuda_toolkit_is_refused(self):
        compiler = exporter("compile")
        gpu = {"is_available": lambda: True, "get_device_capability": lambda: (9, 0)}
        with mock.patch.multiple("torch.cuda", **gpu), mock.patch.object(compiler, "cuda_home", lambda: None):
            with self.assertRaisesRegex(Exception, "the CUDA Toolkit was not found.* set CUDA_HOME"):
                compiler.check_machine("cuda", "bf16")

    def test_without_the_python_set(self):
        for command in ("compile", "verify"):
            done = millrace(command, self.folder, env={"MILLRACE_DEPS": str(self.folder)})
            self.assertEqual(done.code, program.ENVIRONMENT, done)
            self.assertIn(f"{program.ROOT}/tools/setup.sh python", done.err)

    def test_the_scripts_get_arguments_and_environment_unchanged(self):
        interpreter = self.write("python", '#!/bin/sh\necho "$MILLRACE_PROGRAM|$OMP_WAIT_POLICY"\nprintf "%s\\n" "$@"\nexit 42\n')
        interpreter.chmod(0o755)
        words = ["with blank", "--odd", "new\nline", "'", "$HOME"]
        done = millrace("verify", *words, env={"MILLRACE_PYTHON": str(interpreter)})
        self.assertEqual(done.code, 42)
        first, rest = done.out.split("\n", 1)
        self.assertEqual(first, f"{Path(program.PROGRAM).resolve()}|passive")
        self.assertEqual(rest, "\n".join(["-s", "-B", str(EXPORT / "verify.py"), *words]) + "\n")

    def test_the_variant_goes_to_the_cache_if_the_packages_folder_is_read_only(self):
        compiler = exporter("compile")

        package = self.folder / "sam.pkg"
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": "/cache"}):
            self.assertEqual(compiler.place_of(package, "0123456789abcdef00", "v", None), self.folder / "sam.pkg.variants" / "v")
            with mock.patch.object(os, "access", lambda path, mode: False):
                self.assertEqual(compiler.place_of(package, "0123456789abcdef00", "v", None), Path("/cache/millrace/variants/0123456789abcdef/v"))
        self.assertEqual(compiler.place_of(package, "0", "v", "out"), Path("out/v"))


def rle_of(mask):
    from pycocotools import mask as coco_mask

    encoded = coco_mask.encode(numpy.asfortranarray(mask, numpy.uint8))
    return encoded | {"counts": encoded["counts"].decode()}


class Measures(unittest.TestCase):
    def test_the_iou_of_run_lengths_is_that_of_pycocotools(self):
        from pycocotools import mask as coco_mask

        mask_iou, random = exporter("run_lengths").mask_iou, numpy.random.default_rng(0)
        for number in range(200):
            height, width = random.integers(1, 40, 2)
            share, large = random.choice([0.1, 0.5, 0.9, 1]), numpy.ones((1, 1) if number % 2 else (9, 13))
            a, b = (rle_of(numpy.kron(random.random((height, width)) < share, large)) for _ in "ab")
            if coco_mask.area([a, b]).any():
                self.assertAlmostEqual(mask_iou(a, b), float(coco_mask.iou([a], [b], [0])[0][0]), places=12)
            else:  # pycocotools has 0 there
                self.assertEqual(mask_iou(a, b), 1)

    def test_a_lost_mask_is_beyond_the_limits(self):
        verify = exporter("verify")
        square = numpy.zeros((20, 20), numpy.uint8, order="F")
        square[5:15, 5:15] = 1
        found = {"area": 100, "rle": rle_of(square)}
        reference = {0: {"objects": [found] * 3}}
        for count in range(5):
            measures = verify.compare_masks(reference, {0: {"objects": [found] * count}})
            self.assertEqual((measures["within"], measures["lost_masks"]), (count == 3, abs(3 - count)))
        self.assertIn("1 masks lost", verify.text_of(measures))

    def test_other_vectors_or_classes_are_beyond_the_limits(self):
        verify = exporter("verify")

        def lines(vector, number):
            return {i: {"embed": numpy.array(vector), "categorize": {"top": [[number, "a name", 0.5]]}} for i in range(3)}

        right = lines([1.0, 0.0, 2.0], 7)
        for other, within in ((lines([1.0, 0.0, 2.0], 7), True), (lines([2.0, 0.0, 4.01], 7), True), (lines([1.0, 0.5, 2.0], 7), False), (lines([0.0, 0.0, 0.0], 7), False),
                              (lines([1.0, 0.0, 2.0], 8), False), (right | {0: lines([1.0, 0.4, 2.0], 7)[0]}, False)):
            measures = verify.compare_vectors(right, other)
            self.assertEqual(measures["within"], within, measures)
        self.assertEqual(verify.worst([{"cosine_min": 0.5, "within": True}, {"cosine_min": 0.9, "within": False}]), {"cosine_min": 0.5, "within": False})


class Verify(Case):
    def verify(self, *arguments):
        return millrace("verify", *arguments)

    def test_masks_of_the_compiled_segmenter(self):
        program.write_pictures(self.folder / "in", 2, 160, 120)
        done = self.verify(COMPILED / "sam_small.pkg", "--images", self.folder / "in", "--engine", "aoti", "--json")
        self.assertEqual(done.code, program.OK, done)
        measures = json.loads(done.out)
        self.assertEqual((measures["pictures"], measures["masks"] + measures["empty_masks"]), (2, 12))
        self.assertGreater(measures["iou_min"], 0.99)

    def test_boxes_of_a_detector(self):
        package = program.package("yolox")
        done = self.verify(package, "--images", program.picture("street.jpg"), "--set", "batch.size=4", "--json")
        self.assertEqual(done.code, program.OK, done)
        measures = json.loads(done.out)
        self.assertGreater(measures["boxes_reference"], 3)
        self.assertEqual((measures["boxes"], measures["matched"]), (measures["boxes_reference"],) * 2)
        self.assertAlmostEqual(measures["ap50"], 1)

    def test_a_model_that_finds_something_else_is_refused(self):
        """A candidate that drops boxes by another option: the gate must see that."""
        package = program.package("yolox")
        done = self.verify(package, "--images", program.picture("street.jpg"), "--set", "detect.min_area=100000")
        self.assertEqual(done.code, program.SOME_FAILED, done)
        self.assertIn("not within the limits", done.err)

    def test_vectors_and_classes_of_a_classifier(self):
        package = small_embedder.make(self.folder)
        program.write_pictures(self.folder / "in", 5, 160, 120)
        done = self.verify(package, "--images", self.folder / "in", "--set", "batch.size=4", "--json")
        self.assertEqual(done.code, program.OK, done)
        measures = json.loads(done.out)
        self.assertEqual((measures["pictures"], measures["same_class"]), (5, 1))
        self.assertGreater(measures["cosine_min"], 0.99999)
        done = self.verify(package, "--images", self.folder / "in", "--truth", self.truth())
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("its task is embed, and --truth is for detectors and segmenters; leave it out", done.err)

    def truth(self, name="pictures/street.jpg", category="bus", box=(20, 230, 785, 510)):
        """A COCO file with one box. COCO counts its categories from 1, with gaps, and a package its classes from 0."""
        return self.write(f"{category}-{box[0]}-{Path(name).stem}.json", json.dumps({
            "images": [{"id": 7, "file_name": name}],
            "categories": [{"id": 1, "name": "person"}, {"id": 6, "name": category}, {"id": 90, "name": "toothbrush"}],
            "annotations": [{"id": 1, "image_id": 7, "category_id": 6, "bbox": box, "area": 400350, "iscrowd": 0}],
        }))

    def test_truth(self):
        package, picture = program.package("yolox"), program.picture("street.jpg")
        done = self.verify(package, "--images", picture, "--truth", self.truth(), "--json")
        self.assertEqual(done.code, program.OK, done)
        measures = json.loads(done.out)
        self.assertEqual(measures["ap50_of"], "the truth")
        self.assertAlmostEqual(measures["ap50_reference"], 1)
        self.assertAlmostEqual(measures["ap50"], 1)

    def test_a_model_that_misses_the_boxes_of_the_truth_is_refused(self):
        package, picture = program.package("yolox"), program.picture("street.jpg")
        done = self.verify(package, "--images", picture, "--truth", self.truth(), "--set", "detect.classes=person", "--json")
        self.assertEqual(done.code, program.SOME_FAILED, done)
        measures = json.loads(done.out)
        self.assertAlmostEqual(measures["ap50_reference"], 1)
        self.assertEqual(measures["ap50"], 0)

    def test_a_file_that_is_no_picture_is_refused(self):
        """For example a manifest, which belongs to `millrace run`. An unread file must not pass as a checked one."""
        manifest = self.write("boxes.jsonl", "{}")
        for command, package in (("compile", COMPILED / "sam_small.pkg"), ("verify", program.package("yolox"))):
            done = millrace(command, package, "--images", program.picture("street.jpg"), manifest, env={"MILLRACE_PYTHON": sys.executable})
            self.assertEqual(done.code, program.ENVIRONMENT, done)
            self.assertIn(f"{manifest}: is no picture that OpenCV reads; --images takes pictures and folders", done.err)

    def test_a_truth_that_cannot_be_compared_is_refused(self):
        package, picture = program.package("yolox"), program.picture("street.jpg")
        for says, file in (
            ("has none of the pictures, such as street.jpg", self.truth(name="room.jpg")),
            ("no category with boxes has the name of a class of the package, such as person", self.truth(category="omnibus")),
            ("the reference finds none of the boxes of the truth", self.truth(box=(0, 0, 40, 40))),
            ("cannot be read as COCO annotations", self.write("bad.json", "{")),
            ("cannot be read as COCO annotations", self.write("list.json", "[]")),
        ):
            with self.subTest(says, file=file.name):
                done = self.verify(package, "--images", picture, "--truth", file)
                self.assertEqual(done.code, program.ENVIRONMENT, done)
                self.assertIn(says, done.err)
                self.assertEqual(len(done.err.splitlines()), 1, done)


if __name__ == "__main__":
    program.main()
