"""`millrace profile`: its rows, the rule of the optimum, files, devices without enough memory, and known times."""

import csv
import json
import os
import shlex
import signal
import subprocess
import unittest.mock
from pathlib import Path

import browser
import page_test
import program
import yaml
from program import Case, millrace

METHODS = {"forward": "picture", "encode": "picture", "decode": "box"}


class ProfileCase(Case):
    def setUp(self):
        super().setUp()
        self.pictures = program.write_pictures(self.folder / "in", 6, 90, 70)

    def profile(self, *more, code=program.OK, pictures=None, detector=True, segmenter=None):
        """Runs the command, and returns its end and its JSON."""
        file = self.folder / "profile.json"
        file.unlink(missing_ok=True)
        models = ("--detector", program.package("yolov8n")) if detector else ()
        done = millrace("profile", "--input", pictures or self.pictures, *models, "--segmenter", segmenter or program.package("sam_small"),
                        "--set", "threads.team=1", "--seconds", "0", "--json", file, *more)
        self.assertEqual(done.code, code, done)
        return done, json.loads(file.read_text()) if file.exists() else None

    def check_rows(self, rows):
        """What holds for all rows."""
        groups = {}
        for row in rows:
            groups.setdefault((row["package"], row["method"], row["precision"], row["engine"], row["layout"]), []).append(row)
            self.assertEqual(row["unit"], METHODS[row["method"]])
            if row["state"] == "out of memory":
                self.assertEqual({row[key] for key in ("ms_median", "ms_p5", "ms_p95", "ms_each", "per_s", "ratio")}, {None}, row)
                self.assertFalse(row["optimum"])
                continue
            self.assertGreaterEqual(row["calls"], 5)
            self.assertLessEqual(row["ms_p5"], row["ms_median"])
            self.assertLessEqual(row["ms_median"], row["ms_p95"])
            self.assertAlmostEqual(row["per_s"] / (1000 * row["size"] / row["ms_median"]), 1, places=9)
            self.assertAlmostEqual(row["ms_each"] * row["size"] / row["ms_median"], 1, places=9)
        for key, group in groups.items():
            rates = [row["per_s"] or 0 for row in group]
            near = [row["size"] for row, rate in zip(group, rates, strict=True) if rate and rate >= 0.97 * max(rates)]
            self.assertEqual([row["size"] for row in group if row["optimum"]], [min(near)] if near else [], key)


class Profile(ProfileCase):
    def test_each_method_has_a_row_for_each_size(self):
        table = self.folder / "profile.csv"
        before = program.tree(self.folder)
        done, figures = self.profile("--batches", "2,1", "--boxes", "5,1,5", "--csv", table)
        self.assertEqual([(row["method"], row["size"]) for row in figures["rows"]],
                         [("forward", 1), ("forward", 2), ("encode", 1), ("encode", 2), ("decode", 1), ("decode", 5)])
        self.check_rows(figures["rows"])
        for row in figures["rows"]:
            self.assertEqual((row["state"], row["inputs"], row["precision"], row["engine"]), ("ok", "pictures", "fp32", "torchscript"))
            self.assertEqual(row["views"], ["default"])
            self.assertIsNone(row["gpu_percent"])  # no GPU
            self.assertIsNone(row["ratio"])  # nothing to compare with
            self.assertTrue(row["memory_bytes"] is None or row["memory_bytes"] >= 0)
        self.assertEqual({row["method"]: row["stages"] for row in figures["rows"]},
                         {"forward": ["detect"], "encode": ["segment"], "decode": ["segment"]})
        self.assertTrue(figures["complete"])
        self.assertEqual((figures["pictures"], figures["compared"], figures["machine"]["device"], figures["machine"]["team"]), (6, [], "cpu", 1))
        self.assertGreater(len(figures["machine"]["cpu_features"]), 0)
        # The command writes only the files that the user named.
        after = program.tree(self.folder)
        self.assertEqual({name: after[name] for name in before}, before)
        self.assertEqual(set(after) - set(before), {"profile.json", "profile.csv"})
        self.assertLessEqual(max(map(len, done.out.splitlines())), 79)
        self.assertEqual(done.out.count("*"), 3 + 1)  # of each method, and in the explanation

    def test_csv_has_the_rows_of_the_json(self):
        table = self.folder / "profile.csv"
        _, figures = self.profile("--batches=1", "--boxes=1,3", "--csv", table, detector=False)
        with table.open(newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(len(lines), 3)
        for line, row in zip(lines, figures["rows"], strict=True):
            self.assertEqual(set(line), set(row))
            for key, text in line.items():
                value = row[key]
                if isinstance(value, list):
                    self.assertEqual(text, " ".join(value))
                elif isinstance(value, str):
                    self.assertEqual(text, value)
                else:
                    self.assertEqual(text, "" if value is None else json.dumps(value))

    def test_the_table_has_the_figures_of_the_json(self):
        done, figures = self.profile("--batches", "1", "--boxes", "1,3")
        cells = [line.replace("*", " ").split() for line in done.out.splitlines() if line.replace("*", " ").split()[:1] in (["1"], ["3"])]
        self.assertEqual(len(cells), len(figures["rows"]))
        for found, row in zip(cells, figures["rows"], strict=True):
            self.assertEqual(int(found[0]), row["size"])
            for text, key in zip(found[1:6], ("ms_median", "ms_p5", "ms_p95", "ms_each", "per_s"), strict=True):
                self.assertAlmostEqual(float(text) / row[key], 1, delta=0.01)

    def test_sizes_above_the_maximum_of_a_package_are_left_out(self):
        most = yaml.safe_load(Path(program.package("sam_small"), "model.yaml").read_text())["max_boxes"]
        done, figures = self.profile("--batches", "1", "--boxes", f"1,{most},{most + 1},{most + 2}", detector=False)
        self.assertEqual([row["size"] for row in figures["rows"] if row["method"] == "decode"], [1, most])
        self.assertIn(f"decode takes at most {most} boxes a call, so {most + 1} and {most + 2} are left out", done.err)

    def test_boxes_of_a_grid_replace_a_detector(self):
        _, figures = self.profile("--batches", "1", "--boxes", "2", detector=False)
        self.assertEqual([(row["method"], row["inputs"]) for row in figures["rows"]], [("encode", "pictures"), ("decode", "pictures")])

    def test_a_manifest_with_boxes_does_not_hide_the_detector(self):
        manifest = self.write("in/m.jsonl", json.dumps({"path": "0000.jpg", "boxes": [[5, 5, 30, 20]]}) + "\n")
        _, figures = self.profile("--batches", "1", "--boxes", "2", pictures=manifest)
        self.assertEqual([(row["method"], row["inputs"]) for row in figures["rows"]],
                         [("forward", "pictures"), ("encode", "pictures"), ("decode", "pictures")])

    def test_broken_pictures_are_replaced_by_others(self):
        for name in ("0000.jpg", "0001.jpg", "0002.jpg", "0003.jpg"):
            (self.pictures / name).write_bytes(b"no picture")
        _, figures = self.profile("--batches", "1", "--boxes", "1", detector=False)
        self.assertEqual({row["inputs"] for row in figures["rows"]}, {"pictures"})
        for name in ("0004.jpg", "0005.jpg"):
            (self.pictures / name).write_bytes(b"no picture")
        done, figures = self.profile("--batches", "1", "--boxes", "1", detector=False)
        self.assertEqual({row["inputs"] for row in figures["rows"]}, {"artificial"})
        self.assertIn("could be decoded", done.err)
        self.assertIn("with artificial inputs", done.out)

    def test_views_with_other_models_have_rows_of_their_own(self):
        other = program.copy_package(program.package("yolov8n"), self.folder / "other.pkg",
                                     lambda text: text.replace("name: yolov8n", "name: second", 1))
        program.write_pictures(self.folder / "in/left", 2, 90, 70)
        program.write_pictures(self.folder / "in/right", 2, 90, 70)
        recipe = self.write("views.yaml", yaml.safe_dump({"views": [
            {"name": "left", "match": "left/**", "detector": other},
            {"name": "right", "match": "right/**", "detector": program.package("yolov8n")}]}))
        done, figures = self.profile(recipe, "--batches", "1", "--boxes", "1", detector=False)
        views = {(row["package"].split("-")[0], row["method"]): row["views"] for row in figures["rows"]}
        self.assertEqual(views, {("second", "forward"): ["left"], ("yolov8n", "forward"): ["right"],
                                 ("small_sam", "encode"): ["left", "right"], ("small_sam", "decode"): ["left", "right"]})
        self.assertIn(", view left", done.out)
        self.assertIn(", views left and right", done.out)

    def test_calls_that_do_not_fit_have_a_row_without_times(self):
        done, figures = self.profile("--batches", "1,16", "--boxes", "1", "--device", "fake:1:60000000")
        self.check_rows(figures["rows"])
        states = {(row["method"], row["size"]): row["state"] for row in figures["rows"]}
        self.assertEqual(states, {("forward", 1): "ok", ("forward", 16): "out of memory", ("encode", 1): "ok", ("encode", 16): "ok", ("decode", 1): "ok"})
        self.assertIn("16 out of memory", done.out)
        memory = {(row["method"], row["size"]): row["memory_bytes"] for row in figures["rows"]}
        self.assertIsNone(memory["forward", 16])
        # A call holds at least its inputs, [rows, 3, 640, 640] and [rows, 3, 128, 128] or so, in fp32.
        self.assertGreaterEqual(memory["forward", 1], 3 * 640 * 640 * 4)
        self.assertGreater(memory["encode", 16], 10 * memory["encode", 1])

    def test_a_combination_that_fits_alone_is_measured_alone(self):
        """In a memory for one of them, the combinations cannot take turns. Each still gets its times."""
        device = "fake:1:24000000"
        _, figures = self.profile("--batches", "16", "--boxes", "1", "--compare", "precision", "--device", device, detector=False)
        self.check_rows(figures["rows"])
        self.assertEqual(len(figures["rows"]), 4 * 2)
        self.assertGreater(sum(row["memory_bytes"] for row in figures["rows"] if row["method"] == "encode"), int(device.split(":")[2]))
        self.assertEqual({row["state"] for row in figures["rows"]}, {"ok"})

    def test_precisions_are_compared(self):
        _, figures = self.profile("--batches", "1,2", "--boxes", "1", "--compare", "precision", "--device", "fake:1", detector=False)
        self.check_rows(figures["rows"])
        self.assertEqual(figures["compared"], ["fp32", "tf32", "bf16", "fp16"])
        self.assertEqual([(row["method"], row["size"], row["precision"]) for row in figures["rows"]],
                         [(method, size, precision) for method, size in (("encode", 1), ("encode", 2), ("decode", 1))
                          for precision in ("fp32", "tf32", "bf16", "fp16")])
        first = {(row["method"], row["size"]): row["per_s"] for row in figures["rows"] if row["precision"] == "fp32"}
        for row in figures["rows"]:
            self.assertAlmostEqual(row["ratio"] / (row["per_s"] / first[row["method"], row["size"]]), 1, places=9)

    def test_engines_are_compared_where_a_variant_exists(self):
        compiled = program.PACKAGES / "compiled/sam_small.pkg"
        if not compiled.with_name("sam_small.pkg.variants").is_dir():
            self.skipTest("the small segmenter is not compiled")
        _, figures = self.profile("--batches", "1", "--boxes", "1", "--compare", "engine", segmenter=compiled)
        # The detector has no variant, so it has no row in the engine aoti.
        self.assertEqual([(row["method"], row["engine"]) for row in figures["rows"]],
                         [("forward", "torchscript"), ("encode", "torchscript"), ("encode", "aoti"), ("decode", "torchscript"), ("decode", "aoti")])

    def test_layouts_are_compared_in_torchscript(self):
        _, figures = self.profile("--batches", "1", "--boxes", "1", "--compare", "layout,precision", detector=False)
        self.check_rows(figures["rows"])
        precisions = ("fp32", "bf16") if len(figures["compared"]) == 4 else ("fp32",)  # not every CPU has bf16
        names = [f"{precision} {layout}" for precision in precisions for layout in ("channels-last", "channels-first")]
        self.assertEqual(figures["compared"], names)
        self.assertEqual([f"{row['precision']} {row['layout']}" for row in figures["rows"]], names * 2)

    def test_a_variant_has_its_own_layout(self):
        compiled = program.PACKAGES / "compiled/sam_small.pkg"
        if not compiled.with_name("sam_small.pkg.variants").is_dir():
            self.skipTest("the small segmenter is not compiled")
        done, figures = self.profile("--batches", "1", "--boxes", "1", "--compare", "engine,layout", detector=False, segmenter=compiled)
        self.assertEqual(figures["compared"], ["torchscript channels-last", "torchscript channels-first", "aoti"])
        self.assertEqual([row["layout"] for row in figures["rows"] if row["method"] == "encode"], ["channels-last", "channels-first", None])
        self.assertIn("\ntorchscript channels-first ", done.out)

    def test_without_a_variant_only_torchscript_is_left(self):
        done, figures = self.profile("--batches", "1", "--boxes", "1", "--compare", "engine", detector=False)
        self.assertEqual({row["engine"] for row in figures["rows"]}, {"torchscript"})
        self.assertIn("'aoti' is left out", done.err)
        self.assertIn("nothing to compare: only 'torchscript' exists", done.err)

    def test_known_times_give_the_known_optimum(self):
        """A simulated GPU has exact times: ms per call, and ms per row."""
        table = {"name": "known", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
                 "forward": {"call_ms": 0, "each_ms": 2}, "encode": {"call_ms": 4, "each_ms": 1}, "decode": {"call_ms": 1, "each_ms": 0.25}}
        done, figures = self.profile("--engine", "simulated:" + str(self.write("table.yaml", json.dumps(table))))
        self.check_rows(figures["rows"])
        sizes = {"forward": (1, 2, 4, 8), "encode": (1, 2, 4, 8), "decode": (1, 4, 16, 64)}
        self.assertEqual([(row["method"], row["size"]) for row in figures["rows"]], [(method, size) for method in sizes for size in sizes[method]])
        for row in figures["rows"]:
            times = table[row["method"]]
            for key in ("ms_median", "ms_p5", "ms_p95"):
                self.assertAlmostEqual(row[key], times["call_ms"] + times["each_ms"] * row["size"], places=5)
            self.assertEqual((row["engine"], row["inputs"]), ("simulated", "pictures"))
        self.assertEqual({row["method"]: row["size"] for row in figures["rows"] if row["optimum"]}, {"forward": 1, "encode": 8, "decode": 64})

    def test_the_drivers_use_of_the_gpu(self):
        """A fake library of the driver knows the GPU of the fake device."""
        library = os.environ.get("MILLRACE_FAKE_NVML")
        if library is None:
            self.skipTest("MILLRACE_FAKE_NVML is not set")
        with unittest.mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": os.path.dirname(library)}):
            done, figures = self.profile("--batches", "1", "--boxes", "1", "--device", "fake:1", detector=False)
        self.assertEqual({row["gpu_percent"] for row in figures["rows"]}, {87})
        self.assertRegex(done.out, r"(?m)^\* +1 .* 87$")

    def slow_encoder(self):
        """A table in which the encoder takes half a second for a picture."""
        return self.write("table.yaml", json.dumps({
            "name": "slow", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
            "forward": {"call_ms": 0, "each_ms": 1}, "encode": {"call_ms": 0, "each_ms": 500}, "decode": {"call_ms": 0, "each_ms": 1}}))

    def test_ctrl_c_keeps_the_rows_so_far(self):
        """The first table is the sign that a method is done. The calls of the next one would take almost a minute."""
        file = self.folder / "profile.json"
        run = subprocess.Popen([program.PROGRAM, "profile", "--input", self.pictures, "--detector", program.package("yolov8n"), "--segmenter",
                                program.package("sam_small"), "--set", "threads.team=1", "--batches", "1,2,4,8", "--boxes", "1", "--seconds", "0",
                                "--json", file, "--engine", "simulated:" + str(self.slow_encoder())],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            for line in run.stdout:
                if "optimum" not in line and "*" in line:
                    break
            run.send_signal(signal.SIGINT)
            out, err = run.communicate(timeout=60)
        finally:
            run.kill()
        self.assertEqual(run.returncode, program.INTERRUPTED, err)
        figures = json.loads(file.read_text())
        self.assertFalse(figures["complete"])
        self.assertEqual([row["method"] for row in figures["rows"]][0], "forward")
        self.check_rows(figures["rows"])
        self.assertIn("stopped: the rows that were not finished are missing", out)
        self.assertNotIn("resume", err)

    def test_a_model_that_fails_keeps_the_rows_before_it(self):
        wrong = program.copy_package(program.package("sam_small"), self.folder / "wrong.pkg", lambda yaml: yaml.replace("[64, 64]", "[64, 65]").replace("64, 64]", "64, 65]"))
        done, figures = self.profile("--batches", "1", "--boxes", "1", segmenter=wrong, code=program.ENVIRONMENT)
        self.assertIn("wrong.pkg", done.err)
        self.assertFalse(figures["complete"])
        methods = [row["method"] for row in figures["rows"]]
        self.assertIn("forward", methods)
        self.assertNotIn("decode", methods)

    def test_wrong_arguments_are_refused(self):
        existing = self.write("file.json", "")
        pipe = self.folder / "pipe.csv"
        os.mkfifo(pipe)
        for words, says in ((("--batches", "0"), "whole numbers from 1"), (("--batches", "1,,2"), "whole numbers from 1"), (("--boxes", "a"), "--boxes is 'a'"),
                            (("--boxes", "99999"), "to 4096"), (("--compare", "clocks"), "it compares precision, engine, layout and graphs"),
                            (("--compare", "graphs"), "--compare graphs needs a GPU, because a CPU has no CUDA graphs"), (("--set", "models.graphs=yes"), "models.graphs needs a GPU"),
                            (("--compare", "precison"), "did you mean 'precision'"), (("--seconds", "-1"), "0 to 3600"), (("--seconds", "nan"), "0 to 3600"),
                            (("--json",), "--json needs a value"), (("--csv", self.folder / "none/a.csv"), "does not exist"), (("--plot", self.folder), "must end in .html"),
                            (("--csv", pipe), "not a file"), (("--json", self.pictures / "0000.jpg"), "must end in .json"),
                            (("--output", self.folder / "out"), "--output has no effect"), (("--dry-run",), "--dry-run has no effect"),
                            (("--compare", "precision", "--precision", "fp32"), "leave one of them out"),
                            (("--compare", "engine", "--engine", "torchscript"), "leave one of them out"),
                            (("--compare", "layout", "--engine", "aoti"), "--compare layout chooses models.engine itself"), (("--batch", "2"), "is not an option")):
            with self.subTest(words):
                done = millrace("profile", "--input", self.pictures, "--detector", program.package("yolov8n"), *words)
                self.assertEqual(done.code, program.USAGE, done)
                self.assertIn(says, done.err)
                self.assertEqual(done.out, "")
        self.assertEqual(existing.read_text(), "")
        self.assertFalse((self.folder / "out").exists())

    def test_the_page_of_the_docs(self):
        """Its first command works, and it names all keys."""
        page = (program.ROOT / "docs/profile.md").read_text()
        words = shlex.split(next(line for line in page.splitlines() if line.startswith("    millrace profile")))
        self.pictures.rename(self.folder / "pictures")
        for name, package in (("yolov8n.pkg", "yolov8n"), ("mobile_sam.pkg", "sam_small")):
            (self.folder / name).symlink_to(program.package(package))
        words = [self.folder / word if (self.folder / word).exists() else word for word in words[1:]]
        done = millrace(*words, "--seconds", "0", "--json", self.folder / "profile.json")
        self.assertEqual(done.code, program.OK, done)
        figures = json.loads((self.folder / "profile.json").read_text())
        for key in (*figures, *figures["machine"], *figures["rows"][0]):
            self.assertIn(f"`{key}`", page)

    def test_help_and_missing_input(self):
        done = millrace("profile", "--help")
        self.assertEqual((done.code, done.err), (program.OK, ""))
        self.assertLess(max(map(len, done.out.splitlines())), 120)
        done = millrace("profile", "--detector", program.package("yolov8n"), "--segmenter", program.package("sam_small"))
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("no input is named", done.err)


class Page(ProfileCase):
    """The page of --plot in headless Chromium."""

    open, check_page = page_test.Browser.open, page_test.Browser.check_page
    check_layout, check_with_axe = page_test.Browser.check_layout, page_test.Browser.check_with_axe

    @classmethod
    def setUpClass(cls):
        cls.chromium = cls.enterClassContext(browser.chromium())

    def test_the_page_has_the_figures_of_the_json(self):
        file = self.folder / "profile.html"
        _, figures = self.profile("--batches", "1,2,16", "--boxes", "1,4", "--compare", "precision", "--device", "fake:1:24000000",
                                  "--plot", file, detector=False)
        page = self.open(file)
        self.check_page(page)
        marked = page.eval_on_selector_all("[data-key]", "all => all.map(e => [e.dataset.row, e.dataset.key, e.value, e.textContent])")
        shown = {"ms_median", "ms_p5", "ms_p95", "ms_each", "per_s", "memory_bytes", "ratio"}
        self.assertEqual({(int(row), key) for row, key, _, _ in marked},
                         {(i, key) for i, row in enumerate(figures["rows"]) for key in shown if row[key] is not None})
        for row, key, value, text in marked:
            expected = figures["rows"][int(row)][key]
            self.assertAlmostEqual(float(value) / expected, 1, places=9)
            scale = 1e-6 if key == "memory_bytes" else 1
            self.assertAlmostEqual(float(text.replace(",", "")), scale * expected, delta=max(0.0051, 0.006 * scale * expected))
        self.assertEqual(page.locator("section").count(), 2)
        self.assertEqual(page.locator("figure canvas").count(), 2 * 2 * 2)  # dygraphs has two for each chart
        optima = page.eval_on_selector_all("tbody th", "all => all.map(e => e.textContent).filter(text => text.endsWith('*'))")
        self.assertEqual(len(optima), sum(row["optimum"] for row in figures["rows"]))
        self.check_layout(file)


if __name__ == "__main__":
    program.main()
