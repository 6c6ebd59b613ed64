"""`millrace compare`: two attempts side by side, and results that differ."""

import json
import os

import numpy
import program
from PIL import Image


class Compare(program.Case):
    def setUp(self):
        super().setUp()
        program.write_pictures(self.folder / "in", 5, 160, 120)
        self.boxes = {"0000": [[10, 10, 80, 60, 1], [100, 40, 50, 70, 2]], "0001": [[5, 5, 100, 100, 0]], "0002": [[20, 20, 60, 60, 3]],
                      "0003": [[0, 0, 50, 50, 0]], "0004": [[60, 30, 70, 70, 5]]}

    def run_with(self, name, boxes, *options, code=program.OK):
        rows = [json.dumps({"path": f"{stem}.jpg", "boxes": of_picture}) for stem, of_picture in boxes.items()]
        manifest = self.write(f"in/{name}.jsonl", "\n".join(rows))
        self.run_ok("--input", manifest, "--segmenter", program.package("sam_small"), "--output", self.folder / name,
                    "--set", "postprocess.mask_threshold=0", *options, code=code)
        return self.folder / name

    def test_a_prediction_is_compared_with_the_other_attempt(self):
        """Of two outputs with other numbers of threads, and of two attempts of one output."""
        original = program.write_picture(self.folder / "one.jpg", 640, 480)
        for i in range(400):
            os.link(original, self.folder / f"in/{i:04}-more.jpg")
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        for name, frames in (("a", 2), ("b", 40)):
            self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / name, "--set", f"gate.frames={frames}", "--set", "threads.workers=1")
        found = json.loads(self.compare("a", "b", "--json").out)["prediction"]
        reports = [program.report(self.folder / name)["run_window"]["pictures_per_s"] for name in "ab"]
        # Other programs of the machine may have ended between the runs, which is a change too.
        self.assertIn((found["change"], found["label"]), (("gate.frames=40", "gate.frames: 40"), ("gate.frames=40, others=0", "gate.frames: 40, no other programs")))
        self.assertEqual((found["before_pictures_per_s"], found["pictures_per_s"]), tuple(reports))
        self.assertEqual(found["inside"], found["low"] <= found["pictures_per_s"] <= found["high"])
        self.assertRegex(" ".join(self.compare("a", "b").out.split()), r"the first attempt predicted [0-9.]+ pictures/s \[[0-9.]+ to [0-9.]+\] for gate\.frames: 40(, no other programs)?, from")
        self.assertIsNone(json.loads(self.compare("a", "a", "--json").out)["prediction"])
        # With other pictures, the prediction would mean nothing.
        self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / "c", "--every", 2, "--set", "gate.frames=40", "--set", "threads.workers=1")
        self.assertIsNone(json.loads(self.compare("a", "c", "--json").out)["prediction"])
        # The rest of an output, with other threads.
        half = [recipe, "--input", self.folder / "in", "--output", self.folder / "d"]
        self.run_ok(*half, "--set", "gate.frames=2")
        for i in range(400):
            os.link(original, self.folder / f"in/{i:04}-new.jpg")
        done = self.run_ok(*half, "--add-new", "--set", "gate.frames=40")
        later = program.report(self.folder / "d")
        self.assertIn(later["prediction"]["change"], ("gate.frames=40", "gate.frames=40, others=0"))
        self.assertEqual(later["prediction"]["attempt"], sorted(path.name for path in (self.folder / "d/runs").iterdir())[0])
        self.assertEqual(later["prediction"]["pictures_per_s"], later["run_window"]["pictures_per_s"])
        self.assertRegex(" ".join(done.out.split()), r"an earlier attempt predicted [0-9.]+ pictures/s \[[0-9.]+ to [0-9.]+\] for gate\.frames: 40(, no other programs)?, from")

    def test_a_change_of_the_memory_for_pictures(self):
        """Six pictures of 0.9 MB fit into 6 MiB, so memory holds pictures back. The model knows that from the recording alone."""
        original = program.write_picture(self.folder / "one.jpg", 640, 480)
        for i in range(400):
            os.link(original, self.folder / f"in/{i:04}-more.jpg")
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        for name, memory in (("a", "6M"), ("b", "64M")):
            self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / name, "--set", "gate.slab=1M", "--set", f"gate.memory={memory}")
        recording = json.loads(next((self.folder / "a").glob("runs/*/recording.json")).read_text())
        self.assertEqual((recording["memory_bytes"], recording["pixels_until"], recording["frames_in_memory"]), (6 << 20, "decode", 6))
        done = program.millrace("report", self.folder / "a", "--what-if", "gate.memory=64M", "--what-if", "gate.memory=3M, threads.workers=1", "--json")
        self.assertEqual(done.code, program.OK, done)
        more, fewer = json.loads(done.out)["changes"]
        self.assertEqual((more["label"], fewer["label"]), ("gate.memory: 64M", "gate.memory: 3M, threads.workers: 1"))
        self.assertGreater(more["pictures_per_s"], 0.9 * fewer["pictures_per_s"])
        found = json.loads(self.compare("a", "b", "--json").out)["prediction"]
        self.assertIn(found["label"], ("gate.memory: 64M", "gate.memory: 64M, no other programs"))
        for change, says in (("gate.memory=1M", "two batches have to fit"), ("gate.memory=lots", "write STAGE xN or OPTION=N")):
            done = program.millrace("report", self.folder / "a", "--what-if", change)
            self.assertEqual(done.code, program.USAGE, done)
            self.assertIn(says, done.err)

    def test_a_change_of_the_boxes_in_a_call(self):
        """Ten boxes a picture are calls of 4, 4 and 2 boxes. So the recording tells what a call costs."""
        original = program.write_picture(self.folder / "one.jpg", 120, 90)
        lines = [json.dumps({"path": str(original), "boxes": [[3 + 5 * k, 2 + 3 * k, 43 + 5 * k, 32 + 3 * k, 0] for k in range(10)]}) + "\n"] * 60
        manifest = self.write("boxes.jsonl", "".join(lines))
        more = ("--input", manifest, "--segmenter", program.package("sam_small"), "--set", "segment.box_batch=4", "--set", "batch.size=1")
        self.run_ok(*more, "--output", self.folder / "a")
        self.run_ok(*more, "--output", self.folder / "b", "--set", "segment.box_batch=10")
        (limit,) = json.loads(next((self.folder / "a").glob("runs/*/recording.json")).read_text())["row_limits"]
        self.assertEqual((limit["option"], limit["stage"], limit["value"], limit["rows"], limit["calls"]), ("segment.box_batch", "segment", 4, 10, 3))
        self.assertIsNotNone(limit["call_s"])
        done = program.millrace("report", self.folder / "a", "--what-if", "segment.box_batch=10", "--what-if", "segment.box_batch=1", "--json")
        self.assertEqual(done.code, program.OK, done)
        larger, smaller = json.loads(done.out)["changes"]
        self.assertGreaterEqual(larger["pictures_per_s"], smaller["pictures_per_s"])
        self.assertIn("segment.box_batch=10", json.loads(self.compare("a", "b", "--json").out)["prediction"]["change"])
        done = program.millrace("report", self.folder / "b", "--what-if", "segment.box_batch=4")
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("nobody knows what a call costs", done.err)

    def test_the_verdict_states_the_gain_that_the_table_predicts(self):
        original = program.write_picture(self.folder / "one.jpg", 640, 480)
        for i in range(400):
            os.link(original, self.folder / f"in/{i:04}-more.jpg")
        done = self.run_ok(self.write("decode.yaml", program.DECODE_ONLY), "--input", self.folder / "in", "--output", self.folder / "a", "--set", "threads.workers=1")
        figures = program.report(self.folder / "a")
        verdict, table = figures["verdict"], {change["change"]: change["pictures_per_s"] for change in figures["what_if"]["changes"]}
        gain = table[verdict["busiest"] + " x2"] / figures["what_if"]["pictures_per_s"] - 1
        self.assertAlmostEqual(verdict["gain_if_twice_as_fast"], max(gain, 0))
        self.assertNotIn("would gain at most", verdict["sentence"])
        if verdict["kind"] in ("stage", "cores", "reads", "writes"):
            self.assertIn(f"If `{verdict['busiest']}` were twice as fast, the run would gain about {max(gain, 0) * 100:.0f} %", " ".join(done.out.split()))

    def compare(self, *arguments, code=program.OK):
        done = program.millrace("compare", *arguments, cwd=self.folder)
        self.assertEqual(done.code, code, done)
        return done

    def test_results_that_differ_are_listed_with_the_lowest_iou_first(self):
        from pycocotools import mask

        first = self.run_with("a", self.boxes)
        changed = {stem: [list(box) for box in boxes] for stem, boxes in self.boxes.items()}
        changed["0000"].pop()  # this object is lost
        changed["0001"] = [[9, 3, 100, 100, 7]]  # this one moved, and has another class
        (self.folder / "in/0003.jpg").write_bytes(b"")  # this picture is damaged now
        changed["9999"] = changed.pop("0004")  # and this one has another name
        (self.folder / "in/0004.jpg").rename(self.folder / "in/9999.jpg")
        second = self.run_with("b", changed, "--set", "gate.frames=7", code=program.SOME_FAILED)
        found = json.loads(self.compare(first, second, "--json").out)
        results = found["results"]

        # The truth, from the lines and pycocotools.
        lines = {name: {line["path"]: line for line in program.lines(folder)} for name, folder in (("a", first), ("b", second))}
        masks = [[lines[name]["0001.jpg"]["objects"][0]["rle"]] for name in "ab"]
        iou = float(mask.iou(*masks, [0])[0, 0])
        self.assertGreater(iou, 0.5)
        self.assertLess(iou, 1)
        self.assertEqual({key: results[key] for key in results if key.startswith(("pictures", "failed", "identical", "objects", "pairs", "other"))}, {
            "pictures": 4, "pictures_only_in_first": 1, "pictures_only_in_second": 1, "failed_only_in_first": 0, "failed_only_in_second": 1,
            "failed_in_both": 0, "identical": 1, "objects_of_first": 4, "objects_of_second": 3, "pairs": 3, "pairs_of_other_classes": 1,
            "other_sizes": 0})
        self.assertAlmostEqual(results["lowest_iou"], iou)
        self.assertAlmostEqual(results["mean_iou"], (2 + iou) / 3)
        self.assertEqual(results["largest_box_shift_pixels"], 4)
        self.assertEqual([(it["path"], it["objects_only_in_first"]) for it in results["worst"]], [("0000.jpg", 1), ("0001.jpg", 0)])
        self.assertEqual([it["lowest_iou"] for it in results["worst"]], [0, results["lowest_iou"]])

        # Speed is that of the reports.
        for name, folder in (("first", first), ("second", second)):
            report = program.report(folder)
            self.assertEqual(found[name]["pictures_per_s"], report["run_window"]["pictures_per_s"])
            self.assertEqual(found[name]["verdict"], report["verdict"]["sentence"])
        self.assertAlmostEqual(found["second_to_first"]["pictures_per_s"], found["second"]["pictures_per_s"] / found["first"]["pictures_per_s"])
        self.assertIn("segment", [stage["name"] for stage in found["stages"]])
        self.assertEqual(found["machine"], [])
        settings = {it["name"]: (it["first"], it["second"]) for it in found["settings"]}
        self.assertEqual(settings["gate.frames"][1], "7")
        self.assertEqual(set(settings), {"gate.frames", "input.paths"})

        text = self.compare(first, second).out
        for part in ("4 pictures in both outputs, 1 of them identical", "1 picture only in the first output", "1 picture failed only in the second output",
                     "gate.frames", f"{iou:.4f}", "0000.jpg", "machine: no differences"):
            self.assertIn(part, text)
        self.assertNotIn("0002.jpg", text)

    def test_the_worst_pictures_are_drawn_side_by_side(self):
        first = self.run_with("a", self.boxes)
        second = self.run_with("b", {**self.boxes, "0001": [[9, 3, 100, 100, 7]], "0002": [], "0003": [[0, 0, 30, 50, 0]]})
        (self.folder / "in/0003.jpg").unlink()
        drawn = self.folder / "drawn"
        done = self.compare(first, second, "--worst", "3", "--pictures", drawn)
        self.assertIn("0003.jpg' is not drawn: ", done.err)
        worst = json.loads(self.compare(first, second, "--json").out)["results"]["worst"]
        paths = [it["path"] for it in worst]
        self.assertEqual(sorted(paths), ["0001.jpg", "0002.jpg", "0003.jpg"])
        self.assertEqual(paths[0], "0002.jpg")  # it has lost its object
        self.assertEqual(sorted(file.name for file in drawn.iterdir()), sorted(f"{paths.index(it) + 1}.jpg" for it in ("0001.jpg", "0002.jpg")))
        both = numpy.asarray(Image.open(drawn / "1.jpg")).astype(int)
        self.assertEqual(both.shape, (120, 2 * 160 + 16, 3))
        original = numpy.asarray(Image.open(self.folder / "in/0002.jpg")).astype(int)
        left, right = (numpy.abs(part - original).max() for part in (both[:, :160], both[:, 176:]))
        self.assertGreater(left, 60)  # a box and a mask
        self.assertLess(right, 30)  # nothing but the loss of the second JPEG

    def test_attempts_of_one_output_and_an_output_with_itself(self):
        first = self.run_with("a", self.boxes)
        second = self.run_with("b", self.boxes)
        found = json.loads(self.compare(first, second, "--json").out)["results"]
        self.assertEqual((found["identical"], found["worst"], found["lowest_iou"]), (5, [], 1))
        self.run_with("a", self.boxes)
        attempts = sorted((first / "runs").iterdir())
        text = self.compare(*attempts).out
        self.assertIn("both attempts belong to the same output folder", text)
        done = self.compare(*attempts, "--pictures", self.folder / "drawn", code=program.USAGE)
        self.assertIn("--pictures needs two output folders", done.err)

    def test_wrong_places_and_damaged_files_are_refused(self):
        first = self.run_with("a", self.boxes)
        second = self.run_with("b", self.boxes)
        for arguments, code, message in (
            ([first], program.USAGE, "needs two output folders or attempts"),
            ([first, self.folder / "in"], program.USAGE, "has no attempts"),
            ([first, second / "runs/20260101T000000Z-9"], program.USAGE, "is not an attempt of"),
            ([first, second, "--wurst", "3"], program.USAGE, "did you mean '--worst'"),
            ([first, second, "--worst", "-1"], program.USAGE, "--worst needs a number"),
        ):
            done = self.compare(*arguments, code=code)
            self.assertIn(message, done.err)
        run = next((second / "runs").iterdir())
        # Without run.json, only settings and machine are unknown.
        (run / "run.json").write_text("no JSON")
        self.assertEqual(json.loads(self.compare(first, second, "--json").out)["results"]["identical"], 5)
        report = json.loads((run / "report.json").read_text())
        report["run_window"]["resources"] = [7]
        (run / "report.json").write_text(json.dumps(report))
        self.assertIn("is damaged", self.compare(first, second, code=program.MISMATCH).err)
        (run / "report.json").write_text(json.dumps({**report, "run_window": {}, "verdict": {"sentence": "a \x1b[31m red \u202e one"}}))
        done = self.compare(first, second)
        self.assertNotIn("\x1b", done.out)
        self.assertIn("\\x1b", done.out)
        segment = second / "segments/000000.jsonl"
        segment.write_bytes(segment.read_bytes().replace(b"0001", b"0009"))
        self.assertIn("000000.jsonl", self.compare(first, second, code=program.MISMATCH).err)


if __name__ == "__main__":
    program.main()
