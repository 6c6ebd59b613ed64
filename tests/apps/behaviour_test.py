"""The program as a user meets it: commands, recipes, inputs, views, outputs, terminals."""

import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
from fcntl import ioctl
from pathlib import Path

import numpy
import program
from PIL import Image
from program import Case, millrace

RECIPES = Path(__file__).resolve().parents[2] / "configs"


class Commands(Case):
    def test_help_version_and_wrong_words(self):
        for arguments in (["--help"], ["run", "--help"], ["status", "-h"], ["inspect", "--help"], ["stages", "--help"], ["doctor", "--help"]):
            done = millrace(*arguments)
            self.assertEqual((done.code, done.err), (program.OK, ""), done)
            self.assertIn("millrace", done.out)
            self.assertLessEqual(max(map(len, done.out.splitlines())), 120)
        self.assertRegex(millrace("--version").out, r"^millrace \d+\.\d+\.\d+\n$")
        self.assertEqual(millrace().code, program.USAGE)
        for arguments, hint in ((["rum"], "did you mean 'run'"), (["run", "--ouput", "x"], "did you mean '--output'"),
                                (["run", "--set", "detct.conf=1"], "did you mean 'detect'"),
                                (["run", "--set", "detect.cnf=1"], "did you mean 'conf'"),
                                (["run", "--set", "conf=1"], "group.name"), (["run", "--set", "detect.conf"], "group.name=value"),
                                (["run", "--input", self.folder], "--output"), (["run"], "--input"),
                                (["run", "a.yaml", "b.yaml"], "second recipe"), (["run", "none.yaml"], "none.yaml"),
                                (["inspect"], "package"), (["status"], "output folder"), (["status", self.folder], "no plan")):
            done = millrace(*arguments)
            self.assertEqual(done.code, program.USAGE, done)
            self.assertIn(hint, done.err)
            self.assertEqual(done.out, "")

    def test_doctor_finds_what_runs_need(self):
        done = millrace("doctor")
        self.assertEqual(done.code, program.OK, done)
        for word in ("LibTorch", "allocator", "OpenMP", "codecs", "GPU", "nothing is missing"):
            self.assertIn(word, done.out)

    def test_inspect(self):
        done = millrace("inspect", program.package("yolox"), program.package("sam_small"))
        self.assertEqual(done.code, program.OK, done)
        for word in ("yolox_nano", "416 x 416", "person", "sha256", "segment"):
            self.assertIn(word, done.out)
        classes = done.out[done.out.index("classes "):done.out.index("licence ")].splitlines()
        self.assertGreater(len(classes), 5)
        self.assertLessEqual(max(map(len, classes)), 100)
        self.assertTrue(all(line.startswith(" " * 14) for line in classes[1:]))
        broken = program.copy_package(program.package("sam_small"), self.folder / "b.pkg", lambda text: re.sub(r"model\.ts: (.)", lambda at: "model.ts: " + ("1" if at[1] == "0" else "0"), text))
        done = millrace("inspect", broken)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("model.ts", done.err)
        self.assertEqual(millrace("inspect", self.folder / "none.pkg").code, program.ENVIRONMENT)

    def test_status_of_a_finished_run(self):
        program.write_pictures(self.folder / "in", 3)
        self.write("in/bad.jpg", b"no picture")
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / "out", code=program.SOME_FAILED)
        done = millrace("status", self.folder / "out")
        self.assertEqual(done.code, program.OK)
        for word in ("planned   4 pictures", "3 ok, 1 failed", "not_an_image: 1", "left      0"):
            self.assertIn(word, done.out)
        data = self.folder / "out/segments/000000.jsonl"
        whole = data.read_bytes()
        verified = millrace("status", self.folder / "out", "--verify")
        self.assertEqual(verified.code, program.OK, verified)
        self.assertRegex(verified.out, r"(?m)^verified  every byte of 1 segment$")
        (self.folder / "out/overlay").mkdir()
        (self.folder / "out/coco.json").touch()
        verified = millrace("status", self.folder / "out", "--verify")
        self.assertRegex(verified.out, r"(?m)^verified  every byte of 1 segment; overlay/ and coco.json are not checked$")
        # Only --verify reads every byte and finds a flipped bit. Another length is always found.
        for changed, code in ((bytes([whole[0] ^ 1]) + whole[1:], program.OK), (whole[:-1], program.MISMATCH)):
            data.write_bytes(changed)
            self.assertEqual(millrace("status", self.folder / "out").code, code)
            verified = millrace("status", "--verify", self.folder / "out")
            self.assertEqual(verified.code, program.MISMATCH, verified)
            self.assertIn("000000.jsonl", verified.out)
            self.assertIn("items 0 to 3", verified.out)
        manifest = self.folder / "out/segments/000000.manifest.json"
        manifest.unlink()
        self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / "out", code=program.SOME_FAILED)
        self.assertEqual(data.read_bytes(), whole)
        manifest.write_bytes(b"{}\n")
        self.assertEqual(millrace("status", self.folder / "out").code, program.MISMATCH)

    def test_damaged_results_are_named_with_their_remedy(self):
        program.write_pictures(self.folder / "in", 3)
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        command = [recipe, "--input", self.folder / "in", "--output", self.folder / "out", "--format", "coco"]
        self.run_ok(*command)
        data, manifest = (self.folder / "out/segments" / name for name in ("000000.jsonl", "000000.manifest.json"))
        whole, sealed = data.read_bytes(), manifest.read_bytes()
        coco = (self.folder / "out/coco.json").read_bytes()
        for at, byte in ((whole.index(b'"width"'), b"x"), (whole.index(b'"width"'), b"\0"), (whole.index(b": 64,") + 2, b"7")):
            data.write_bytes(whole[:at] + byte + whole[at + 1:])
            done = self.run_ok(*command, code=program.MISMATCH)
            self.assertIn(f"{data}' has hash ", done.err)
            self.assertIn(f"delete '{manifest}'", done.err)
            self.assertNotIn("json.exception", done.err)
            self.assertEqual((self.folder / "out/coco.json").read_bytes(), coco)
            told = millrace("status", self.folder / "out", "--verify")
            self.assertIn(f"delete '{manifest}'", told.out)
            self.assertNotIn("to finish the rest", told.out)
            manifest.unlink()
            self.run_ok(*command)
            self.assertEqual((data.read_bytes(), manifest.read_bytes()), (whole, sealed))
        # The same command repairs this damage. The user has nothing to delete, and the pictures do not count as done.
        for damage in (lambda: data.write_bytes(whole[:-1]), data.unlink, lambda: manifest.write_bytes(b"{}\n")):
            damage()
            for flags in ([], ["--verify"]):
                told = millrace("status", self.folder / "out", *flags)
                self.assertEqual(told.code, program.MISMATCH, told)
                for words in ("done      0\n", "left      3\n", "repeat the run to compute its segment again", "to finish the rest"):
                    self.assertIn(words, told.out)
                self.assertNotIn("delete", told.out)
            self.run_ok(*command)
            self.assertEqual((data.read_bytes(), manifest.read_bytes()), (whole, sealed))


class Recipes(Case):
    def test_layers_and_origins(self):
        recipe = self.write("r.yaml", "stages: [decode, preprocess, detect, encode]\ndetect:\n  conf: 0.4\n  iou: 0.6\nbatch:\n  size: 3\n")
        done = self.run_ok(recipe, "--input", "a b", "c", "--set", "detect.conf=0.7", "--format", "coco,png", "--print-config")
        self.assertRegex(done.out, r'stages: \["decode", "preprocess", "detect", "encode"\] +# .*r\.yaml:1\n')
        self.assertRegex(done.out, r"  conf: 0\.7 +# command line\n")
        self.assertRegex(done.out, r"  iou: 0\.6 +# .*r\.yaml:4\n")
        self.assertRegex(done.out, r"  size: 3 +# .*r\.yaml:6\n")
        self.assertRegex(done.out, r"  max_detections: 100 +# default\n")
        self.assertRegex(done.out, r'  paths: \["a b", "c"\] +# command line')
        self.assertRegex(done.out, r'  format: \["coco", "png"\] +# command line, --format')
        self.assertNotIn("segment:", done.out)
        again = self.run_ok(self.write("again.yaml", done.out), "--print-config")
        without_origins = [re.sub(r" +# .*", "", line) for line in done.out.splitlines()]
        self.assertEqual([re.sub(r" +# .*", "", line) for line in again.out.splitlines()], without_origins)

    def test_odd_names_come_back_from_a_printed_recipe(self):
        names = ['quote".jpg', "colon: hash #", "back\\slash", "new\nline", "tab\t", "ünïcode", "a - dash", "yes"]
        done = self.run_ok("--input", *names, "--print-config")
        again = self.run_ok(self.write("again.yaml", done.out), "--print-config")
        self.assertEqual(re.sub(r" +# .*", "", again.out), re.sub(r" +# .*", "", done.out))

    def test_invalid_recipes_are_refused_with_a_hint(self):
        for text, hint in (("detct: {conf: 1}\n", "did you mean 'detect'"), ("detect: {cnf: 1}\n", "did you mean 'conf'"),
                           ("stages: [decode, detct]\n", "did you mean 'detect'"), ("stages: [decode, detect]\n", "preprocess"),
                           ("detect: {conf: two}\n", "must be a number"), ("detect: {conf: 2}\n", "between 0 and 1"),
                           ("views: []\n", "views"), ("views: [{name: a, mtch: b}]\n", "did you mean 'match'"), ("[1, 2]\n", "map"),
                           ("a: b: c\n", "not valid YAML"), ("detect: 3\n", "detect"), ("stages: [encode, decode]\n", "encode"),
                           ("encode: {format: [jpg]}\n", "coco, overlay, png, tiff, nifti and npy")):
            recipe = self.write("r.yaml", text)
            done = millrace("run", recipe, "--input", self.folder, "--output", self.folder / "out")
            self.assertEqual(done.code, program.USAGE, f"{text}{done}")
            self.assertIn(hint, done.err, text)
            self.assertFalse((self.folder / "out").exists(), text)

    def test_the_only_view_of_a_recipe_needs_no_pattern(self):
        program.write_picture(self.folder / "in/a.jpg")
        recipe = self.write("r.yaml", f"stages: [decode, preprocess, detect, encode]\nviews: [{{name: gate, detector: {program.package('yolox')}}}]\n")
        done = self.run_ok(recipe, "--input", self.folder / "in", "--dry-run")
        self.assertRegex(done.out, r"(?m)^  view gate: 1, detector \S+$")
        self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / "out")
        self.assertEqual(program.lines(self.folder / "out")[0]["view"], "gate")

    def test_a_recipe_that_cannot_work_is_refused_before_anything_is_written(self):
        program.write_picture(self.folder / "in/a.jpg")
        sam, yolox = program.package("sam_small"), program.package("yolox")
        detect = self.write("detect.yaml", "stages: [decode, preprocess, detect, encode]\n")
        half = self.write("half.yaml", f"views:\n  - {{name: a, match: a*, detector: {yolox}}}\n  - {{name: b}}\n")
        twice = self.write("twice.yaml", f"views:\n  - {{name: a, match: a*, detector: {yolox}}}\n  - {{name: a, match: b*, detector: {sam}}}\n")
        gone = self.write("gone.yaml", "views: [{name: a, detector: no.pkg}]\n")
        for arguments, code, hint in (
            (["--segmenter", sam], program.USAGE, "no detector is named"),
            (["--detector", yolox], program.USAGE, f"such as {RECIPES / 'detect.yaml'}"),
            ([half, "--segmenter", sam], program.USAGE, "view 'b' has no detector"),
            ([twice, "--segmenter", sam], program.USAGE, "view 'a' has two values of detect.model"),
            ([detect, "--detector", yolox, "--set", "segment.pack=no"], program.USAGE, "segment.pack has no effect"),
            ([self.write("decode.yaml", "stages: [decode]\n"), "--format", "overlay"], program.USAGE, "encode.format has no effect"),
            ([detect, "--detector", yolox, "--set", "detect.conf=7"], program.USAGE, "between 0 and 1"),
            (["--detector", yolox, "--segmenter", yolox, "--dry-run"], program.ENVIRONMENT, "task: detect"),
            (["--detector", self.folder, "--segmenter", sam, "--dry-run"], program.ENVIRONMENT, "model.yaml"),
            (["--detector", yolox, "--segmenter", "no.pkg", "--dry-run"], program.ENVIRONMENT, "(the segmenter, command line, --segmenter)"),
            ([gone, "--segmenter", sam, "--dry-run"], program.ENVIRONMENT, f"(the detector of view 'a', {gone}:1)"),
        ):
            done = millrace("run", *arguments, "--input", self.folder / "in", "--output", self.folder / "out")
            self.assertEqual(done.code, code, done)
            self.assertIn(hint, done.err)
            self.assertFalse((self.folder / "out").exists(), done)
        for arguments, hint in (([self.folder / "in"], "name pictures with --input"), (["--input", self.folder / "in", detect], "looks like a recipe"),
                                ([detect, "--input", self.folder / "in", "--output", self.folder / "in"], "is also an input")):
            done = millrace("run", *arguments)
            self.assertEqual(done.code, program.USAGE, done)
            self.assertIn(hint, done.err)
        self.assertEqual(sorted(f.name for f in (self.folder / "in").iterdir()), ["a.jpg"])

    def test_without_a_detector_pictures_without_boxes_fail_with_no_boxes(self):
        program.write_pictures(self.folder / "in", 2)
        manifest = self.write("in/m.jsonl", '{"path": "0000.jpg", "boxes": [[1, 1, 20, 20]]}\n{"path": "0001.jpg"}\n')
        self.run_ok("--input", manifest, "--segmenter", program.package("sam_small"), "--output", self.folder / "out", code=program.SOME_FAILED)
        self.assertEqual([line.get("reason") for line in program.lines(self.folder / "out")], [None, "no_boxes"])

    def test_shipped_recipes_can_be_read(self):
        configs = program.Path(__file__).resolve().parents[2] / "configs"
        self.assertGreater(len(list(configs.glob("*.yaml"))), 0)
        for recipe in configs.glob("*.yaml"):
            self.run_ok(recipe, "--print-config")


class Views(Case):
    """Three views, each with its own package."""

    names = ("front", "left", "right")

    def setUp(self):
        super().setUp()
        self.packages = {}
        for view in self.names:
            self.packages[view] = program.copy_package(
                program.package("yolox"), self.folder / f"{view}.pkg",
                lambda text, view=view: re.sub(r"\b(person|bus)\b", view + r"-\1", text).replace("name: yolox_nano", f"name: yolox-{view}"))
        street = program.picture("street.jpg")
        for view in self.names:
            (self.folder / "in" / view).mkdir(parents=True)
            for i in range(2):
                os.symlink(street, self.folder / "in" / view / f"{i}.jpg")

    def recipe(self, patterns=True):
        text = "stages: [decode, preprocess, detect, encode]\nviews:\n"
        for view in self.names:
            match = f'match: "{view}/**", ' if patterns else ""
            text += f'  - {{name: {view}, {match}detector: "{self.packages[view]}"}}\n'
        return self.write("views.yaml", text)

    def check(self, lines, path_tells_view=True):
        self.assertEqual(len(lines), 6)
        boxes = None
        for line in lines:
            names = {o["name"] for o in line["objects"]}
            self.assertIn(f"{line['view']}-person", names, line["path"])
            self.assertFalse(any(name.startswith(other + "-") for name in names for other in self.names if other != line["view"]))
            if path_tells_view:
                self.assertTrue(line["path"].startswith(line["view"]))
            boxes = boxes or [o["box"] for o in line["objects"]]
            self.assertEqual([o["box"] for o in line["objects"]], boxes)

    def test_by_pattern(self):
        self.run_ok(self.recipe(), "--input", self.folder / "in", "--output", self.folder / "out", "--set", "batch.size=2")
        self.check(program.lines(self.folder / "out"))
        models = program.report(self.folder / "out")["models"]
        self.assertEqual(sorted(load["package"] for load in models["loads"]), [f"yolox-{view}" for view in self.names])
        self.assertEqual(models["evictions"], 0)

    def test_by_manifest_column(self):
        rows = "path,view\n" + "".join(f"front/{i}.jpg,{view}\n" for i in range(2) for view in self.names)
        self.run_ok(self.recipe(patterns=False), "--input", self.write("in/m.csv", rows), "--output", self.folder / "out")
        self.check(program.lines(self.folder / "out"), path_tells_view=False)

    def test_a_budget_for_two_models_evicts_and_changes_no_byte(self):
        size = (program.Path(self.packages["front"]) / "model.ts").stat().st_size
        self.run_ok(self.recipe(), "--input", self.folder / "in", "--output", self.folder / "all", "--set", "threads.team=1")
        self.run_ok(self.recipe(), "--input", self.folder / "in", "--output", self.folder / "two", "--set", "threads.team=1",
                    "--set", f"models.budget={int(2.5 * size)}")
        self.assertEqual(program.segments(self.folder / "two"), program.segments(self.folder / "all"))
        models = program.report(self.folder / "two")["models"]
        self.assertGreater(models["evictions"], 0)
        self.assertLessEqual(models["resident_bytes"], int(2.5 * size))

    def test_pictures_of_no_view_are_counted(self):
        program.write_picture(self.folder / "in/other/a.jpg")
        self.run_ok(self.recipe(), "--input", self.folder / "in", "--output", self.folder / "out")
        self.assertEqual(program.report(self.folder / "out")["input"]["skipped"], {"no_view": 1})


class Outputs(Case):
    """The files of an output folder agree with each other and with the tools that read them."""

    @classmethod
    def setUpClass(cls):
        import shutil
        import tempfile
        from pathlib import Path

        cls.root = Path(tempfile.mkdtemp(prefix="millrace-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.root)
        rows = []
        for i in range(64):
            program.write_picture(cls.root / "in" / "sub" / f"{i:02}.jpg", 160 + 3 * i, 120 + i % 7, seed=i)
            boxes = [[5 + 10 * j, 4, 60, 70 + j, j] for j in range(i % 5)]
            rows.append(json.dumps({"path": f"sub/{i:02}.jpg", "boxes": boxes}))
        (cls.root / "in/sub/03.jpg").write_bytes(b"")
        (cls.root / "in/m.jsonl").write_text("\n".join(rows))
        cls.out = cls.root / "out"
        cls.done = millrace("run", "--input", cls.root / "in/m.jsonl", "--segmenter", program.package("sam_small"), "--output", cls.out,
                            "--format", "coco,overlay,png", "--set", "postprocess.mask_threshold=0")
        cls.lines = program.lines(cls.out)

    def test_the_counts_of_all_files_agree(self):
        self.assertEqual(self.done.code, program.SOME_FAILED, self.done)
        report = program.report(self.out)
        items = report["items"]
        self.assertEqual((items["planned"], items["ok"], items["failed"]), (64, 63, {"empty": 1}))
        self.assertEqual(items["objects"], sum(len(line.get("objects", [])) for line in self.lines))
        manifest = json.loads((self.out / "segments/000000.manifest.json").read_text())
        self.assertEqual((manifest["items"], manifest["ok"], manifest["failed"], manifest["objects"]), (64, 63, {"empty": 1}, items["objects"]))
        run = next((self.out / "runs").iterdir())
        errors = [json.loads(line) for line in (run / "errors.jsonl").read_text().splitlines()]
        self.assertEqual([(e["path"], e["reason"]) for e in errors], [("sub/03.jpg", "empty")])

    def test_coco_agrees_with_the_lines(self):
        from pycocotools.coco import COCO

        coco = COCO(str(self.out / "coco.json"))
        ok = [line for line in self.lines if line["state"] == "ok"]
        self.assertEqual(sorted(coco.getImgIds()), [line["id"] for line in ok])
        for line in ok:
            image = coco.loadImgs(line["id"])[0]
            self.assertEqual((image["file_name"], image["width"], image["height"]), (line["path"], line["width"], line["height"]))
            annotations = coco.loadAnns(coco.getAnnIds(line["id"]))
            self.assertEqual([a["bbox"] for a in annotations], [o["box"] for o in line["objects"]])
            for annotation, found in zip(annotations, line["objects"]):
                self.assertEqual(coco.annToMask(annotation).sum(), found["area"])

    def test_masks_and_label_maps_agree_with_the_lines(self):
        from pycocotools import mask

        pixels = 0
        for line in self.lines:
            label_map = self.out / "labels" / (line["path"] + ".png")
            self.assertEqual(label_map.is_file(), line["state"] == "ok")
            if line["state"] != "ok":
                continue
            labels = numpy.asarray(Image.open(label_map))
            expected = numpy.zeros((line["height"], line["width"]), int)
            order = sorted(range(len(line["objects"])), key=lambda i: (line["objects"][i]["score"], -i))
            for i in order:
                found = line["objects"][i]
                raster = mask.decode(found["rle"])
                self.assertEqual(raster.sum(), found["area"])
                expected[raster == 1] = i + 1
            self.assertTrue((labels == expected).all(), line["path"])
            pixels += (expected > 0).sum()
        self.assertGreater(pixels, 1000)

    def test_overlays_have_the_size_of_their_pictures(self):
        for line in self.lines:
            file = self.out / "overlay" / (line["path"] + ".jpg")
            self.assertEqual(file.is_file(), line["state"] == "ok")
            if line["state"] == "ok":
                self.assertEqual(Image.open(file).size, (line["width"], line["height"]))
        with_boxes = self.out / "overlay" / "sub/04.jpg.jpg"
        drawn = numpy.asarray(Image.open(with_boxes)).astype(int) - numpy.asarray(Image.open(self.root / "in/sub/04.jpg"))
        self.assertGreater((abs(drawn) > 30).mean(), 0.01)

    def test_report_has_the_tables_fields(self):
        report = program.report(self.out)
        self.assertEqual(report["state"], "finished")
        window = report["run_window"]
        self.assertEqual([r["name"] for r in window["resources"]], ["read", "workers", "lane", "commit"])
        for resource in window["resources"]:
            for reading in [resource, *resource.get("parts", [])]:
                for key in ("items", "failed", "busy_s", "p50_ms", "p95_ms", "mean_queue", "concurrency", "utilisation"):
                    self.assertIn(key, reading)
            self.assertLessEqual(resource["utilisation"] + resource["starved"], 1.001)
        lane = window["resources"][2]
        self.assertEqual([part["name"] for part in lane["parts"]], ["preprocess", "detect", "segment", "postprocess"])
        self.assertEqual([part["items"] for part in lane["parts"]], [63] * 4)
        self.assertAlmostEqual(sum(part["busy_s"] for part in lane["parts"]), lane["busy_s"], delta=0.05 * lane["busy_s"] + 0.01)
        for key in ("without_credits_s", "waiting_for_input_s"):
            self.assertIn(key, window["source"])
        self.assertGreater(report["load_s"], 0)
        self.assertGreater(report["read_bytes"], sum(line["width"] for line in self.lines))
        self.assertGreater(report["written_bytes"], 0)

    def test_the_verdict_names_a_bottleneck_and_a_runner_up(self):
        verdict = program.report(self.out)["verdict"]
        stages = {"decode", "preprocess", "detect", "segment", "postprocess", "encode", "read", "commit"}
        self.assertIn(verdict["busiest"], stages, verdict)
        self.assertIn(verdict["bottleneck"], {verdict["busiest"], "cores", "other programs", "memory", "input", "gate", ""}, verdict)
        self.assertEqual(verdict["bottleneck"] == "", verdict["kind"] in ("balanced", "too_short"), verdict)
        self.assertIn(verdict["runner_up"], stages | {"input"}, verdict)
        self.assertIn(f"`{verdict['busiest']}`", verdict["sentence"])
        self.assertIn(verdict["sentence"], " ".join(self.done.out.split()))

    def test_the_table_is_tidy(self):
        for line in self.done.out.splitlines():
            self.assertEqual(line, line.rstrip())
            if not line.startswith(("results", "report")):
                self.assertLessEqual(len(line), 100)
        rows = self.done.out[self.done.out.index("stage"):].splitlines()[1:10]
        self.assertEqual([row.split()[0] for row in rows], ["read", "workers", "decode", "encode", "lane", "preprocess", "detect", "segment", "postprocess"])


class Terminals(Case):
    def setUp(self):
        super().setUp()
        original = program.write_picture(self.folder / "one.jpg", 1600, 1200)
        (self.folder / "in").mkdir()
        for i in range(200):
            os.link(original, self.folder / "in" / f"{i:03}.jpg")
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.command = [program.PROGRAM, "run", str(recipe), "--input", str(self.folder / "in"), "--output", str(self.folder / "out")]

    def test_one_line_is_redrawn_and_removed_at_the_end(self):
        leader, follower = pty.openpty()
        ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        process = subprocess.Popen(self.command, stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"})
        os.close(follower)
        text = b""
        while True:
            try:
                if select.select([leader], [], [], 60)[0]:
                    more = os.read(leader, 65536)
                    text += more
                    if more:
                        continue
            except OSError:  # the other end is closed
                pass
            break
        os.close(leader)
        self.assertEqual(process.wait(), program.OK)
        text = text.decode()
        progress, after = text.rsplit("\r\x1b[K", 1)
        drawn = progress.split("\r\x1b[K")[1:]
        self.assertNotIn("\n", "".join(drawn))
        for line in drawn:
            self.assertNotIn("nan", line)
            self.assertRegex(line, r"^\d+/\d+\+? ")
            self.assertLess(len(line), 60)
        self.assertTrue(after.startswith("\x1b[1m200 ok"), after[:40])

    def test_a_run_waits_for_a_silent_stdin(self):
        leader, follower = pty.openpty()
        recipe = self.command[2]
        command = [program.PROGRAM, "run", recipe, "--input", "-", "--output", str(self.folder / "out")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        text = b""
        while b"waiting for input" not in text and select.select([leader], [], [], 60)[0]:
            text += os.read(leader, 65536)
        process.communicate(os.fsencode(self.folder / "one.jpg") + b"\n")
        os.close(leader)
        self.assertEqual(process.returncode, program.OK)
        self.assertIn(b"0/0+  waiting for input", text)
        self.assertNotIn(b"loading", text.split(b"waiting for input", 1)[1])

    def test_without_a_terminal_there_are_no_control_characters(self):
        done = subprocess.run(self.command, capture_output=True, check=True)
        self.assertNotIn(b"\r", done.stdout + done.stderr)
        self.assertNotIn(b"\x1b", done.stdout + done.stderr)

    def test_quiet_says_nothing(self):
        done = subprocess.run([*self.command, "--quiet"], capture_output=True, check=True)
        self.assertEqual(done.stdout + done.stderr, b"")
        self.assertEqual(len(program.lines(self.folder / "out")), 200)

    def test_quiet_says_nothing_on_one_core(self):
        core = {min(os.sched_getaffinity(0))}
        done = subprocess.run([*self.command, "--quiet"], capture_output=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, core))
        self.assertEqual(done.stdout + done.stderr, b"")  # on one core, TBB warns if it is asked for more threads
        self.assertEqual(len(program.lines(self.folder / "out")), 200)

    def test_a_reader_that_leaves_does_not_end_the_run(self):
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(), program.OK)
        self.assertEqual(len(program.lines(self.folder / "out")), 200)

    def test_closed_descriptors(self):
        for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
            done = subprocess.run(["bash", "-c", f'"$@" {closed}', "-", *self.command[:-1], str(self.folder / f"out {closed}")], capture_output=True, check=False)
            self.assertEqual(done.returncode, program.OK, (closed, done))
            out = self.folder / f"out {closed}"
            self.assertEqual(len(program.lines(out)), 200, closed)
            for file in out.rglob("*"):  # no file got the descriptor of the closed stdout, and thus the table
                if file.is_file() and file.name != "report.html":  # which has the table
                    self.assertNotIn(b" ok, ", file.read_bytes(), file)

    def test_a_full_stdout_does_not_lose_the_run(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(self.command, stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, program.OK, done)
        self.assertEqual(program.report(self.folder / "out")["state"], "finished")


if __name__ == "__main__":
    program.main()
