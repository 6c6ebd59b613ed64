"""A rehearsal of the suite for GPU machines on this CPU.

Every part runs and writes its records, which become tables and plots.
A failed measurement does not end the others, and the next call repeats it.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ["MILLRACE_PROGRAM"]
PACKAGES = pathlib.Path(os.environ["MILLRACE_TEST_PACKAGES"])

# Takes the place of the program. It counts its calls; those whose numbers are in the file *.failing next to it fail.
STAND_IN = f"""#!/bin/sh
number=$(($(cat "$0.calls" 2> /dev/null || echo 0) + 1))
echo $number > "$0.calls"
case " $(cat "$0.failing") " in *" $number "*) echo "planted in call $number" >&2; exit 5;; esac
exec '{PROGRAM}' "$@"
"""


def identity(record):
    return tuple(record.get(name) for name in ("what", "package", "precision", "batch", "method", "boxes_per_picture", "source", "options", "tool", "workers"))


class Gates(unittest.TestCase):
    """The checks that decide whether a part passed.

    The picture has 4 x 2 pixels, and the masks of its objects are its left half.
    """

    def setUp(self):
        os.environ.setdefault("MILLRACE_BUNDLE", "/nowhere")
        sys.path.insert(0, str(SOURCE / "bench/gpu"))
        import agreement
        import correct
        import records

        self.agreement, self.correct, self.records = agreement, correct, records

    @staticmethod
    def picture(*boxes, counts="044"):  # runs of 0, 4 and 4
        objects = [{"class": 0, "score": 0.9 - 0.1 * at, "box": list(box), "rle": {"counts": counts}} for at, box in enumerate(boxes)]
        return [{"path": "a.jpg", "state": "ok", "objects": objects}]

    def test_boxes_and_masks_are_compared(self):
        there = self.picture((0, 0, 10, 10), (20, 20, 10, 10))
        found = self.agreement.compare(there, self.picture((0.2, 0, 10, 10), (21, 20, 10, 10)))
        self.assertEqual((found["objects"], found["without_partner"], found["masks"]), (1, 2, 1))  # boxes within 0.5 pixel are a pair, a difference of 1 is too large
        self.assertAlmostEqual(found["largest_box_difference"], 0.2)
        self.assertEqual(self.agreement.compare(there, self.picture((0, 0, 10, 10), (20, 20, 10, 10), counts="026"))["mask_iou_min"], 0.5)
        with self.assertRaises(ValueError):
            self.agreement.compare(there, [{**there[0], "state": "failed"}])

    def test_a_lost_box_costs_average_precision_and_an_extra_last_box_does_not(self):
        there = self.picture((0, 0, 10, 10), (20, 20, 10, 10))
        self.assertEqual(self.agreement.box_ap50(there, there), 1)
        self.assertEqual(self.agreement.box_ap50(there, self.picture((0, 0, 10, 10), (20, 20, 10, 10), (50, 50, 9, 9))), 1)
        self.assertAlmostEqual(self.agreement.box_ap50(there, self.picture((0, 0, 10, 10))), 51 / 101)

    def test_values_that_are_missing_or_out_of_bounds_are_listed(self):
        self.assertEqual(self.agreement.misses({"a": 1, "b": 2}, a=("==", 1), b=("<=", 2)), [])
        self.assertEqual(self.agreement.misses({"a": None, "b": 2}, a=(">=", 0.9), b=("<=", 1)), ["a is None, not >= 0.9", "b is 2, not <= 1"])
        self.assertFalse(self.correct.judged({}, ["a"])["passed"])

    def test_a_measurement_that_sets_an_identifying_key_fails(self):
        results = object.__new__(self.records.Results)
        results.document, results.left, results.add = {"records": []}, [], lambda **record: results.document["records"].append(record)
        results.measure(lambda: {"batch": 4}, what="clash")
        results.measure(lambda: {"batch_size": 4}, what="none")
        clash, none = results.document["records"]
        self.assertIn("has ['batch'], which identify records", clash["failed"])
        self.assertEqual(none, {"what": "none", "batch_size": 4})

    def test_doctest_without_a_case_counts_as_zero_cases(self):
        self.assertEqual(self.correct.cases_run("[doctest] test cases:  5 |  5 passed | 0 failed | 3 skipped"), 5)
        self.assertEqual(self.correct.cases_run("[doctest] test cases: 0 | 0 passed | 0 failed | 8 skipped"), 0)
        self.assertEqual(self.correct.cases_run("skipped: no GPU"), 0)


class Sources(unittest.TestCase):
    """Figures that were copied by hand are those of bench/results."""

    @staticmethod
    def records(date, what, **of):
        document = json.loads((SOURCE / f"bench/results/nvidia-h200-{date}.json").read_text())
        return [record for record in document["records"] if record["what"] == what and of.items() <= record.items()]

    def test_times_of_compiled_kernels(self):
        sys.path.insert(0, str(SOURCE / "bench/gpu"))
        import costs

        for (package, method), (low, high) in costs.COMPILED_MS.items():
            rows = 160 if method == "decode" else 16
            (record,) = self.records("2026-11-27", "dram", package=package, method=method, batch=rows)
            self.assertAlmostEqual(high, record["kernels_ms"], delta=0.051)
            self.assertLess(low, high)
            # A kernel cannot be faster than the memory.
            self.assertGreater(low, 1e9 * rows * costs.MEGABYTES["compiled"][package, method] / 4.8e12)

    def test_times_of_the_simulated_gpu(self):
        table = yaml.safe_load((SOURCE / "bench/host/h200.yaml").read_text())
        for package, method in (("yolov8n", "forward"), ("mobile_sam", "encode"), ("mobile_sam", "decode")):
            (record,) = self.records("2026-11-26-2", "lever", package=package, method=method, options="torchscript, channels last")
            self.assertAlmostEqual(table[method]["each_ms"], record["ms"] / record["rows"], delta=0.00051)
        (record,) = self.records("2026-11-27", "e2e", source="memory", pictures=636)
        busy_ms = {part["name"]: 1e3 * part["busy_s"] for part in record["gpu"]["parts"]}
        self.assertAlmostEqual(table["letterbox_ms"], busy_ms["preprocess operations"] / (2 * 636), delta=0.00051)
        self.assertAlmostEqual(table["outline_ms"], busy_ms["postprocess operations"] / (10 * 636), delta=0.00051)
        self.assertAlmostEqual(table["find_boxes_ms"], busy_ms["detect operations"] / record["calls"]["detector_calls"], delta=0.00051)


class PeersInTime(unittest.TestCase):
    """Rounds of peers with a fake clock: loading takes 20 s, each turn 10 s."""

    def setUp(self):
        os.environ.setdefault("MILLRACE_BUNDLE", "/nowhere")
        sys.path.insert(0, str(SOURCE / "bench/gpu"))
        import records
        import rounds

        self.rounds, self.now, test = rounds, 0, self
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)

        class Script:
            settings = {"batch": 1}

            def __init__(self, *command, seconds):
                self.work(20, seconds)

            def __call__(self, pictures, seconds):
                self.work(10, seconds)
                return {"pictures_per_s": 2}

            @staticmethod
            def work(takes, seconds):
                test.now += min(takes, seconds)
                if takes > seconds:
                    raise rounds.Failed("no answer")

            def close(self):
                pass

        def millrace(out, *_, timeout):
            self.now += 10
            if self.now > rounds.Session.deadline:
                raise rounds.OutOfTime
            pathlib.Path(out).mkdir()
            return mock.Mock(returncode=0), {"run_window": {"pictures_per_s": 4}}, 10

        results = object.__new__(records.Results)
        results.document, results.left, results.add = {"records": []}, [], lambda **record: results.document["records"].append(record)
        self.results = results
        for name, value in {"Turns": Script, "millrace": millrace, "write_manifest": mock.Mock(), "side_of": mock.Mock(return_value=256), "BUNDLE": pathlib.Path("/nowhere"),
                            "packages_of": mock.Mock(return_value=("mobile_sam", "d", "s")), "scratch": lambda: contextlib.nullcontext(folder.name),
                            "time": mock.Mock(monotonic=lambda: self.now)}.items():
            patch = mock.patch.object(rounds, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def peers(self, deadline):
        """The turns of each peer's record. Two scripts load until 40 s.

        The first round finds the numbers of pictures and takes one more turn of the usual script: until 80 s.
        Other rounds take 30 s.
        """
        with mock.patch.object(self.rounds.Session, "deadline", deadline):
            self.rounds.peers(self.results, pathlib.Path("/nowhere"))
        self.assertFalse([record for record in self.results.document["records"] if "failed" in record])
        return [record["turns"] for record in self.results.document["records"]]

    def test_all_rounds_count_where_there_is_time(self):
        self.assertEqual(self.peers(float("inf")), [3, 3, 3])

    def test_rounds_that_are_complete_count_when_the_time_is_up(self):
        for deadline in (115, 125, 139):  # the deadline is within a turn of each tool
            self.results.document["records"], self.now = [], 0
            self.assertEqual(self.peers(deadline), [1, 1, 1])

    def test_without_a_complete_round_the_first_turns_count(self):
        for deadline in (95, 109):  # in the first round
            self.results.document["records"], self.now = [], 0
            self.assertEqual(self.peers(deadline), [1, 1, 1])
            self.assertEqual([record["only_first_turns"] for record in self.results.document["records"]], [True] * 3)
            self.assertFalse(self.results.has(what="peer", models="mobile_sam", boxes_per_picture=10, tool="millrace"))  # another call measures them again
            self.assertEqual([record["pictures_per_s"] for record in self.results.document["records"]], [4, 2, 2])

    def test_without_first_turns_nothing_is_recorded(self):
        for deadline in (15, 35, 75):  # loading, finding numbers
            self.now = 0
            with self.assertRaises(self.rounds.OutOfTime):
                self.peers(deadline)
            self.assertEqual(self.results.document["records"], [])


class SuiteCase(unittest.TestCase):
    """A bundle, its inputs, and calls of the suite."""

    where = "cpu"  # that it rehearses on
    environment = {}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bundle, self.inputs, self.results = (self.folder / name for name in ("bundle", "inputs", "results.json"))
        (self.bundle / "bin").mkdir(parents=True)
        (self.bundle / "share/millrace").mkdir(parents=True)
        (self.bundle / "share/millrace/models").symlink_to(SOURCE / "models/builtin")
        (self.bundle / "bin/millrace").write_text(STAND_IN)
        (self.bundle / "bin/millrace").chmod(0o755)
        (self.bundle / "bin/bench_look").write_text("""#!/bin/sh\necho '{"absent": "no GPU"}'\n""")
        (self.bundle / "bin/bench_look").chmod(0o755)
        self.plant()
        (self.bundle / "commit").write_text("0123456789\nwith changes\n")
        for script in ("peers.py", "nvjpeg.py"):
            (self.bundle / script).symlink_to(SOURCE / "bench/gpu" / script)

    def exporters(self):
        """Adds what `millrace compile` needs."""
        shutil.copytree(SOURCE / "models/export", self.bundle / "share/millrace/export", ignore=lambda _, names: [name for name in names if not name.endswith(".py")])

    def plant(self, *calls):
        (self.bundle / "bin/millrace.failing").write_text(" ".join(map(str, calls)))

    def draw(self):
        """Makes the inputs as the bundle has them."""
        (self.inputs / "pictures").mkdir(parents=True)
        subprocess.run([sys.executable, SOURCE / "models/demo/scenes.py", self.folder / "drawn", "--scenes", "1"], check=True, stdout=subprocess.DEVNULL)
        for picture in (self.folder / "drawn").rglob("*.jpg"):
            shutil.copy(picture, self.inputs / "pictures" / f"{picture.parent.name}-{picture.name}")
        (self.inputs / "yolov8n.pkg").symlink_to(PACKAGES / "yolov8n.pkg")
        (self.inputs / "mobile_sam.pkg").symlink_to(PACKAGES / "sam_small.pkg")  # a small segmenter under its name

    def suite(self, code, *words):
        done = subprocess.run([sys.executable, SOURCE / "bench/gpu/suite.py", "--minutes", "60", *words, "--rehearse", self.where, "--inputs", self.inputs], cwd=self.folder,
                              env={**os.environ, "MILLRACE_BUNDLE": str(self.bundle), **self.environment}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def records(self):
        return json.loads(self.results.read_text())["records"]


class Rehearsal(SuiteCase):
    def test_without_pictures_it_says_which_folder_it_needs(self):
        self.assertIn("gpu-bundle.inputs", self.suite(2, "models", "e2e", "--out", self.results))
        self.assertFalse(self.results.exists())

    def test_every_part_runs_and_failed_or_missing_records_are_measured_again(self):
        self.draw()
        everything = ("correct", "models", "e2e", "peers", "decode", "look", "--out", self.results)
        self.plant(3, 12, 20)  # calls of precision, of the first e2e, which has two records, and of decode
        output = self.suite(1, *everything)
        first = self.records()
        bad = [record for record in first if "failed" in record]
        self.assertEqual([record["what"] for record in bad], ["precision", "e2e", "e2e", "decode"], output)
        for record, call in zip(bad, (3, 12, 12, 20), strict=True):
            self.assertIn(f"planted in call {call}", record["failed"])

        lost = [("roof", "tf32", None), ("model", "bf16", "decode")]
        kept = [record for record in first if record not in bad and (record["what"], record.get("precision"), record.get("method")) not in lost]
        document = json.loads(self.results.read_text())
        self.results.write_text(json.dumps({**document, "records": kept + bad}))
        self.plant()
        self.suite(0, *everything)
        records = self.records()
        self.assertEqual(records[: len(kept)], kept)
        again = [identity(record) for record in records[len(kept) :] if record["what"] != "decode"]
        missing = [identity(record) for record in first if record not in kept and record["what"] not in ("decode", "part")]
        self.assertEqual(sorted(again, key=str), sorted(missing, key=str))
        self.assertEqual(len(set(map(identity, records))), len(records))
        self.check(records)
        self.check_tables()
        self.check_what_is_left(records)
        self.check_other_machine()

    def test_pictures_and_volumes_run_in_windows(self):
        self.draw()
        self.suite(0, "windows", "--out", self.results)
        picture, volume = self.records()
        self.assertEqual([(record["what"], record["package"], record["windows"]) for record in (picture, volume)], [("windows", "picture", 9), ("windows", "volume", 1)])
        self.assertEqual((set(picture["ms_by_source"]), set(volume["ms_by_source"])), ({"files", "memory"}, {"files"}))
        for record in (picture, volume):
            self.assertGreater(record["times_bare"], 0)

    def test_models_are_compiled_compared_and_timed_in_each_way(self):
        self.draw()
        (self.inputs / "yolov8n.pkg").unlink()  # compiling it takes half a minute more
        self.exporters()
        self.suite(0, "compile", "levers", "profile", "dram", "--out", self.results)
        records = self.records()
        ways = ["torchscript, channels last", "compiled, plain", "torchscript"]
        self.assertEqual([(record["what"], record["options"]) for record in records if "method" not in record], [("compile", "plain"), ("variants", "plain"), ("verify", "plain"), ("verify", "torchscript")])
        (packed,) = (record for record in records if record["what"] == "variants")
        (variant,) = (self.inputs / "variants-plain").iterdir()
        self.assertEqual((packed["packed"], packed["left_out"]), ([f"variants-plain/{variant.name}"], []))
        self.assertEqual(packed["files"], ["results.variants.tar.xz.1"])
        self.assertTrue((self.folder / packed["files"][0]).is_file())
        self.assertTrue(all(record["within"] for record in records if record["what"] == "verify"))
        timed = [record for record in records if record["what"] == "lever"]
        calls = [("encode", 1), ("decode", 2), ("decode", 1)]  # of one row too, which is not compiled
        self.assertEqual([(record["options"], record["method"], record["rows"]) for record in timed],
                         [(way, *call) for way in ways for call in calls if not (way.startswith("compiled") and call == ("decode", 1))])
        for record in timed:
            self.assertLess(record["rms"], 1e-4)
            self.assertGreater(record["ms"], 0)
        profiles = [record for record in records if record["what"] == "profile"]
        self.assertEqual([(record["options"], record["method"]) for record in profiles],
                         [(ways[1], "encode"), (ways[1], "decode"), *((ways[0], method) for method, _ in calls)])
        self.assertTrue(all(record["kernels"] for record in profiles))
        tables = subprocess.run([sys.executable, SOURCE / "bench/gpu/tables.py", self.results, "--images", self.folder], capture_output=True, text=True, check=True)
        self.assertIn("| mobile_sam | decode | compiled, plain | 2 |", tables.stdout)

    def check(self, records):
        count = {what: sum(record["what"] == what for record in records) for what in {record["what"] for record in records}}
        self.assertGreaterEqual(count.pop("decode"), 1)
        self.assertGreaterEqual(count.pop("look"), 4)
        shown = {record["method"]: record for record in records if record["what"] == "look"}
        self.assertEqual((shown["bench_look"]["absent"], shown["threads of a core"]["unit"]), ("no GPU", "threads"))
        self.assertIn("absent", shown["JPEG decoders of the GPU"])
        self.assertGreater(shown["JPEGs by the host"]["value"], 0)
        self.assertEqual(count, {"parity": 1, "precision": 1, "two devices": 1, "same bytes": 1, "roof": 5, "model": 8, "e2e": 5, "peer": 3, "hardware decoder": 1})  # yolov8n, mobile_sam's two, built-in ones: 3 and 2
        (parity,) = (record for record in records if record["what"] == "parity")
        self.assertEqual((parity["without_partner"], parity["mask_iou_min"], parity["largest_box_difference"]), (0, 1.0, 0))
        self.assertEqual((parity["batches"], parity["waits"], parity["uploads"], parity["downloads"]), (3, 6, 3, 3))  # three views with a batch each
        (precision,) = (record for record in records if record["what"] == "precision")
        self.assertTrue(precision["passed"])
        self.assertGreater(precision["masks"], 0)
        (hardware,) = (record for record in records if record["what"] == "hardware decoder")
        self.assertIn("nvjpeg", hardware["absent"].lower())
        (two,) = (record for record in records if record["what"] == "two devices")
        self.assertEqual((two["devices"], two["without_partner"], two["mask_iou_min"]), (2, 0, 1.0))
        (same,) = (record for record in records if record["what"] == "same bytes")
        self.assertEqual((same["pictures"], len(same["ways"]), same["different"]), (20, 4, []))
        for record in records:
            self.assertEqual((record["commit"], record["rehearsal"]), ("0123456789-dirty", "cpu"))
            if record["what"] == "peer":
                self.assertTrue(record["settings"]["dtype"])
                if record["tool"] != "millrace":
                    self.assertLessEqual(record["ratio_spread"][0], record["millrace_is_faster_by"])
                    self.assertTrue(all(record["settings"][setting] for setting in ("batch", "workers", "imaging", "compiled")))
                    self.assertGreater(record["pictures"], 0)
            if record["what"] in ("e2e", "peer", "decode"):
                self.assertGreater(record["pictures_per_s"], 0)
                self.assertLessEqual(record["spread"][0], record["pictures_per_s"])
            if record["what"] == "e2e":
                self.check_blocks(record)
            if record["what"] == "model":
                counted = record["package"] in ("yolov8n", "mobile_sam")
                self.assertEqual("were not counted" in record["roof_of"], not counted)

    def check_blocks(self, record):
        """A run of one lane and batches of one picture, with at most two in flight."""
        run = record["run"]
        counts = [3] if "options" in record else [3, 1]
        self.assertEqual(run["blocks"], [[6, boxes] for boxes in 2 * counts] + [[2, 3]])
        self.assertIn(record["boxes_per_picture"], counts)
        self.assertEqual([window["pictures"] for window in record["windows"]], [3, 3])  # two are skipped, and the end of the third is the begin
        self.assertIn("gpu_demand", run)
        self.assertTrue(run["verdict"])
        self.assertEqual(run["calls"]["decoder_boxes"], sum(pictures * boxes for pictures, boxes in run["blocks"]))
        self.assertEqual([run["settings"][name] for name in ("precision", "lanes", "batch_size")], ["fp32", 1, 1])
        self.assertEqual(run["settings"]["detect"]["skip_with_boxes"], "no")  # the detector's boxes are found too
        self.assertTrue(0 < run["cores_busy"] <= run["cores"] * 1.05)

    def check_tables(self):
        tables = subprocess.run([sys.executable, SOURCE / "bench/gpu/tables.py", self.results, "--images", self.folder], capture_output=True, text=True, check=False)
        self.assertEqual(tables.returncode, 0, tables.stderr)
        for part in ("a rehearsal", "commit 0123456-dirty", "| mobile_sam | encode |", "| segmenter | decode |", "| 3 | files |", "| the usual script |", "| bench_look |  | absent, no GPU |", "JPEG decoder: absent, ", "memcheck: not run",
                     "masks for the same boxes: passed", "two devices on one GPU against one, in fp32: passed", "and after an interruption: passed"):
            self.assertIn(part, tables.stdout)
        self.assertEqual((self.folder / "gpu-e2e.png").read_bytes()[:4], b"\x89PNG")

    def check_what_is_left(self, records):
        days = [time.strftime("%Y-%m-%d", time.gmtime())]
        output = self.suite(3, "correct", "decode", "--minutes", "0")
        days.append(time.strftime("%Y-%m-%d", time.gmtime()))
        (named,) = (self.folder / f"rehearsal-{day}.json" for day in sorted(set(days)) if (self.folder / f"rehearsal-{day}.json").exists())
        self.assertEqual(json.loads(named.read_text())["records"], [])
        for left in ("what=parity", "what=precision", "decode"):
            self.assertIn(left, output[output.index("no time was left") :])
        self.suite(0, "correct", "decode", "--minutes", "0", "--out", self.results)  # nothing is left to do
        self.assertEqual(self.records(), records)

    def check_other_machine(self):
        document = json.loads(self.results.read_text())
        document["machine"]["gpu"] = "NVIDIA H200"
        self.results.write_text(json.dumps(document))
        self.assertIn("is of another machine: gpu 'NVIDIA H200', but here", self.suite(2, "correct", "--out", self.results))
        for named in list(self.folder.glob("rehearsal-*.json")):
            named.write_text(self.results.read_text())
        before = set(self.folder.glob("rehearsal-*.json"))
        output = self.suite(3, "correct", "--minutes", "0")
        (new,) = set(self.folder.glob("rehearsal-*.json")) - before
        self.assertIn("is of another machine: gpu 'NVIDIA H200', but here", output)
        self.assertTrue(new.stem.endswith("-2") or new.stem == f"rehearsal-{time.strftime('%Y-%m-%d', time.gmtime())}", new)  # a file of another day is new
        self.assertEqual(json.loads(new.read_text())["machine"]["gpu"], "none: a rehearsal")
        self.suite(3, "correct", "--minutes", "0")
        self.assertEqual(set(self.folder.glob("rehearsal-*.json")) - before, {new})


class Host(unittest.TestCase):
    """bench/host.py, with too few pictures for meaningful times."""

    def test_it_reports_every_step_the_machine_and_whether_the_target_is_met(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "host.json")
            done = subprocess.run([sys.executable, SOURCE / "bench/host.py", "--pictures", "64", "--batches", "2", "--repeats", "1", "--out", out], capture_output=True, text=True, check=False)
            figures = json.loads(out.read_text())
        self.assertEqual(done.returncode, 1 if figures["T5_ms"] > 2 else 0, done.stderr)
        asked = figures["asking LibTorch and CUDA, by a runtime that computes nothing"]
        built = pathlib.Path(PROGRAM).resolve().parents[1] / "fake_cuda/millrace_on_fake_cuda"
        self.assertEqual(asked is not None, built.exists(), done.stdout)
        if asked is not None:
            self.assertAlmostEqual(asked["together"], asked["detector"] + asked["segmenter"])
            self.assertAlmostEqual(figures["T5_ms"], figures["memory"]["cpu_ms"] + asked["together"])
            # Each part asks for hundreds of operations a batch. No CPU does that within 10 us a picture.
            self.assertGreater(min(asked["detector"], asked["segmenter"]), 0.01)
        steps = figures["by_step_ms"]
        self.assertEqual(list(steps), ["source", "read", "decode", "lane", "encode", "commit", "rest"])
        self.assertAlmostEqual(sum(steps.values()), figures["files"]["cpu_ms"], places=6)
        for cores in (8, 16, 32):
            for bound, source in (("host_bound_pictures_per_s", "files"), ("host_bound_without_decoding", "memory")):
                self.assertAlmostEqual(figures[bound][str(cores)], cores * 1e3 / (figures[source]["cpu_ms"] + (asked["together"] if asked else 0)), delta=0.51)
        self.assertTrue(figures["machine"]["cpu"] and figures["commit"])
        doctor = subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True, check=False).stdout
        self.assertIn(f"features     {figures['machine']['instructions'] or 'none'}", doctor)
        self.assertEqual((figures["pictures"], figures["repeats"], figures["boxes_per_picture"]), (64, 1, 10))


if __name__ == "__main__":
    unittest.main(verbosity=2)
