"""`millrace reduce`, output.reduce, the counters of the report, and `status --verify` over side columns."""

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import program

DETECT = Path(__file__).resolve().parents[2] / "configs/detect.yaml"
SAMPLE_COLUMNS = os.environ.get("MILLRACE_SAMPLE_COLUMNS", "build/release/io/io_sample_columns")


class Reduce(program.Case):
    def setUp(self):
        super().setUp()
        program.write_pictures(self.folder / "in", 4, 320, 240)
        (self.folder / "in" / "cut.jpg").write_bytes((self.folder / "in" / "0000.jpg").read_bytes()[:3000])
        self.out = self.folder / "out"

    def run_here(self, *options, code=program.SOME_FAILED):
        return self.run_ok(DETECT, "--input", self.folder / "in", "--output", self.out, "--detector", program.package("yolov8n"), *options, code=code)

    def test_at_the_end_of_a_run_and_at_any_later_time(self):
        done = self.run_here("--set", "output.reduce=categories")
        file = self.out / "reduced/categories.json"
        first = file.read_bytes()
        objects = Counter(found["name"] for line in program.lines(self.out) for found in line.get("objects", []))
        self.assertGreater(sum(objects.values()), 0)
        self.assertEqual(json.loads(first), {"pictures": {"default": 4}, "failed": {"default": 1}, "categories": {}, "objects": {"default": dict(objects)}})
        reduced = program.report(self.out)["reduced"]["categories"]
        self.assertEqual(reduced["file"], "reduced/categories.json")
        self.assertIn("objects, view default: ", reduced["summary"][0])
        self.assertIn("categories: objects, view default: ", done.out)
        self.assertIn("out/reduced/categories.json", done.out)

        segments = program.segments(self.out)
        file.write_text("old")
        done = program.millrace("reduce", "categories", self.out)
        self.assertEqual(done.code, program.OK, done)
        self.assertEqual(done.out.splitlines()[0], reduced["summary"][0])
        self.assertIn("5 pictures in finished segments", done.out)
        self.assertEqual(file.read_bytes(), first)
        self.assertEqual(program.segments(self.out), segments)
        # output.reduce is not part of the plan: the same run works without it.
        self.assertIn("nothing was left to do", self.run_here().out)
        self.assertEqual(program.report(self.out)["reduced"], {})

    def test_wrong_names_and_damaged_results_are_refused(self):
        self.run_here()
        for arguments, code, text in (
            (["categorys", self.out], program.USAGE, "'categorys' is not a reducer; did you mean 'categories'? `millrace reduce --help` lists them"),
            (["categories"], program.USAGE, "needs the name of a reducer and an output folder"),
            (["categories", self.folder / "in"], program.USAGE, "has no plan"),
        ):
            done = program.millrace("reduce", *arguments)
            self.assertEqual(done.code, code, done)
            self.assertIn(text, done.err)
        helped = program.millrace("reduce", "--help")
        self.assertEqual(helped.code, program.OK)
        self.assertIn("  categories   pictures and objects by class and view", helped.out)
        done = self.run_here("--set", "output.reduce=categorys", code=program.USAGE)
        self.assertIn("output.reduce takes categories, not 'categorys'; did you mean 'categories'?", done.err)

        data = self.out / "segments/000000.jsonl"
        changed = bytearray(data.read_bytes())
        changed[-10] ^= 1
        data.write_bytes(changed)
        done = program.millrace("reduce", "categories", self.out)
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertFalse((self.out / "reduced/categories.json").exists())

    def test_the_report_shows_every_counter(self):
        self.run_here()
        calls = program.report(self.out)["calls"]
        self.assertEqual(sorted(calls), sorted([
            "bisect_calls", "categorizer_calls", "decode_warnings", "decoder_boxes", "decoder_calls", "decoder_slots", "detector_calls", "detector_skipped", "downloads",
            "embedder_calls", "encoder_calls", "label_maps", "nvjpeg_decoded", "nvjpeg_failed", "nvjpeg_refused", "overflows", "overlays_left_out", "pictures_with_holes", "redone_batches", "regressor_calls", "slabs_in", "slabs_out", "split_calls", "truncated_detections", "uploads", "waits", "window_calls", "windows", "windows_skipped", "wrong_extensions"]))
        self.assertEqual(calls["detector_calls"], 4)
        self.assertEqual(calls["encoder_calls"], 0)


class SideColumns(program.Case):
    def test_verify_reads_every_byte_of_them(self):
        recipe = self.write("recipe.yaml", program.DECODE_ONLY)
        program.write_pictures(self.folder / "in", 1)
        out = self.folder / "out"
        self.run_ok(recipe, "--input", self.folder / "in", "--output", out)
        plan = json.loads((out / "segments/000000.manifest.json").read_text())["plan"]
        shutil.rmtree(out / "segments")
        subprocess.run([SAMPLE_COLUMNS, out, plan], check=True)
        done = program.millrace("status", out, "--verify")
        self.assertEqual(done.code, program.OK, done)
        self.assertIn("verified  every byte of 2 segments", done.out)

        rows = out / "segments/000001.embed.f16"
        whole = rows.read_bytes()
        rows.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        self.assertEqual(program.millrace("status", out).code, program.OK)
        done = program.millrace("status", out, "--verify")
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertIn("000001.embed.f16' has hash", done.out)
        for left in (whole[:-2], None):
            rows.unlink() if left is None else rows.write_bytes(left)
            done = program.millrace("status", out)
            self.assertEqual(done.code, program.MISMATCH, done)
            self.assertIn("000001.embed.f16'", done.out)


if __name__ == "__main__":
    program.main()
