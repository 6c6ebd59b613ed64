"""Results have the same bytes with any number of threads, and after any number of kills and stops."""

import json
import os
import random
import signal
import subprocess
import threading
import time
import unittest

import program
from program import Case, millrace

SEED = 20240

# Options that may change between attempts, with extreme values.
THREADS = (
    {"threads.workers": 1, "threads.lanes": 1, "read.threads": 1, "read.ahead": 1},
    {"threads.workers": 2, "threads.lanes": 2, "gate.frames": 7, "gate.memory": "1G"},
    {"threads.workers": 8, "threads.lanes": 3, "read.threads": 16, "gate.frames": 64, "models.budget": 5_000_000},
)


def settings(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


class Run:
    """The program in the background."""

    def __init__(self, arguments):
        self.process = subprocess.Popen([program.PROGRAM, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.err = b""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.out = None

    def _read(self):
        for line in self.process.stderr:
            self.err += line

    def said(self, text, seconds=60):
        """Waits until stderr contains `text`."""
        end = time.monotonic() + seconds
        while text.encode() not in self.err:
            if time.monotonic() > end:
                raise AssertionError(f"'{text}' was not said in {seconds} s, but: {self.err}")
            time.sleep(0.005)

    def wait(self):
        self.out = self.process.stdout.read()
        code = self.process.wait(timeout=120)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


def finished_items(output):
    """The number of pictures in the journals and segments of an output folder on disk."""
    count = 0
    folder = output / "segments"
    for file in folder.glob("[0-9]*") if folder.is_dir() else ():
        try:
            if file.suffix in (".part", ".jsonl"):
                count += file.read_bytes().count(b"\n")
        except FileNotFoundError:  # renamed meanwhile
            pass
    return count


def wait_for_items(run, output, items):
    """Waits until at least `items` pictures are finished on disk, or the run has ended."""
    while run.process.poll() is None and finished_items(output) < items:
        time.sleep(0.002)


class Level1(Case):
    """The segment files depend on the plan alone."""

    def mixed_input(self, count):
        """Makes pictures of two views and many sizes, some of them broken, some with boxes."""
        rows = []
        for i in range(count):
            name = f"{'front' if i % 3 else 'back'}/{i:03}.jpg"
            program.write_picture(self.folder / "in" / name, 40 + 17 * (i % 5), 30 + 23 * (i % 4), seed=i)
            row = {"path": name, "view": name.split("/")[0]}
            row["boxes"] = [[1, 2, 20 + j, 15, j] for j in range(i % 4)]
            rows.append(row)
        broken = self.folder / "in" / rows[5]["path"]
        broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
        (self.folder / "in" / rows[11]["path"]).write_bytes(b"<html>404</html>")
        return self.write("in/list.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def arguments(self, output, count=24):
        manifest = self.folder / "in" / "list.jsonl"
        if not manifest.exists():
            self.mixed_input(count)
        recipe = self.write("views.yaml", "views:\n  - {name: front}\n  - {name: back}\n")
        return [recipe, "--input", manifest, "--segmenter", program.package("sam_small"), "--output", self.folder / output,
                "--format", "coco,overlay,png", "--set", "batch.size=3", "--set", "threads.team=1"]

    def test_threads_lanes_and_gates_change_no_byte(self):
        first = None
        for i, values in enumerate(THREADS):
            output = self.folder / f"out{i}"
            self.run_ok(*self.arguments(output.name), *settings(values), code=program.SOME_FAILED)
            result = {name: program.tree(output / name) for name in ("plan", "segments", "overlay", "labels")}
            result["coco"] = (output / "coco.json").read_bytes()
            if first is None:
                first = result
                self.assertEqual(len(result["overlay"]), 22)
                self.assertEqual(len(result["labels"]), 22)
            self.assertEqual(result, first, values)

    def test_with_the_detector_too(self):
        program.write_pictures(self.folder / "in", 6, 120, 90)
        first = None
        for values in THREADS:
            output = self.folder / f"out{len(list(self.folder.iterdir()))}"
            self.run_ok("--input", self.folder / "in", "--detector", program.package("yolox"), "--segmenter", program.package("sam_small"),
                        "--output", output, "--set", "threads.team=1", "--set", "detect.conf=0.02", *settings(values))
            first = first or program.segments(output)
            self.assertEqual(program.segments(output), first, values)
        self.assertGreater(sum(len(line["objects"]) for line in program.lines(output)), 0)


class Level2(Case):
    """Other batches, packing and teams change at most the last bits."""

    def compare(self, first, second):
        """Asserts equal objects, with boxes within 0.05 pixel and scores within 0.001.

        Returns the IoUs of their masks.
        """
        from pycocotools import mask

        overlaps = []
        a, b = program.lines(first), program.lines(second)
        self.assertEqual([line["path"] for line in a], [line["path"] for line in b])
        for left, right in zip(a, b):
            self.assertEqual([o["class"] for o in left["objects"]], [o["class"] for o in right["objects"]], left["path"])
            for one, other in zip(left["objects"], right["objects"]):
                for x, y in zip([*one["box"], 50 * one["score"]], [*other["box"], 50 * other["score"]]):
                    self.assertLessEqual(abs(x - y), 0.051, left["path"])  # lines have boxes to 0.01
                if one.get("area", 0) + other.get("area", 0) > 0:
                    overlaps.append(mask.iou([one["rle"]], [other["rle"]], [0])[0][0])
        return overlaps

    def test_masks(self):
        rows = []
        for i in range(12):
            program.write_picture(self.folder / "in" / f"{i:02}.jpg", 90 + 17 * (i % 5), 80 + 23 * (i % 4), seed=i)
            rows.append(json.dumps({"path": f"{i:02}.jpg", "boxes": [[4 * j, 3, 40 + i, 35] for j in range(1 + i % 4)]}))
        manifest = self.write("in/list.jsonl", "\n".join(rows))
        command = ["--input", manifest, "--segmenter", program.package("sam_small")]
        base = {"batch.size": 3, "threads.team": 1, "segment.box_batch": 8}
        self.run_ok(*command, "--output", self.folder / "base", *settings(base))
        overlaps = []
        for i, change in enumerate(({"batch.size": 5}, {"batch.size": 1}, {"threads.team": 2}, {"segment.pack": "no"}, {"segment.pad": "yes"},
                                    {"segment.box_batch": 3}, {"segment.image_batch": 3})):
            output = self.folder / f"other{i}"
            self.run_ok(*command, "--output", output, *settings({**base, **change}))
            overlaps += self.compare(self.folder / "base", output)
        self.assertGreater(len(overlaps), 100)
        self.assertGreaterEqual(sum(overlaps) / len(overlaps), 0.999)
        self.assertGreaterEqual(min(overlaps), 0.98)

    def test_boxes(self):
        program.write_pictures(self.folder / "in", 5, 200, 150)
        recipe = self.write("detect.yaml", "stages: [decode, preprocess, detect, encode]\n")
        command = [recipe, "--input", self.folder / "in", "--detector", program.package("yolov8n"), "--set", "detect.conf=0.001", "--set", "detect.max_detections=5"]
        self.run_ok(*command, "--output", self.folder / "base", *settings({"batch.size": 1, "threads.team": 1}))
        self.assertGreater(sum(len(line["objects"]) for line in program.lines(self.folder / "base")), 10)
        for i, change in enumerate(({"batch.size": 3}, {"threads.team": 2}, {"batch.size": 5, "detect.exec_batch": 2})):
            output = self.folder / f"other{i}"
            self.run_ok(*command, "--output", output, *settings({"batch.size": 1, "threads.team": 1, **change}))
            self.compare(self.folder / "base", output)


class Kills(Case):
    """After kill -9 at random moments, results have the bytes of an uninterrupted run."""

    def kill_until_done(self, arguments, output, kills, step, chance):
        """Runs to the end with up to `kills` kills, each at a random moment within about `step` more pictures.

        Returns the number of kills.
        """
        killed = 0
        while True:
            run = Run([*arguments, "--output", output])
            if killed < kills:
                wait_for_items(run, output, finished_items(output) + chance.randrange(step))
                time.sleep(chance.random() * 0.02)
                run.process.kill()
            code = run.wait()
            if code != -signal.SIGKILL:
                self.assertEqual(code, program.OK, run.err)
                return killed
            killed += 1

    def check(self, arguments, kills, step):
        """Checks outputs after `kills` kills in total. If one output ends before that, the next one gets the rest."""
        whole = self.folder / "whole"
        self.run_ok(*arguments, "--output", whole)
        chance = random.Random(SEED)
        resumed = done = 0
        for attempt in range(3 * kills):
            if done == kills:
                break
            output = self.folder / f"cut{attempt}"
            done += self.kill_until_done(arguments, output, kills - done, step, chance)
            self.assertEqual(program.segments(output), program.segments(whole))
            self.assertEqual(program.plan(output), program.plan(whole))
            left = [name for name in program.tree(output) if ".tmp-" in name or name.endswith(".part") or name == "lock.json"]
            self.assertEqual(left, [])
            report = program.report(output)
            resumed += report["items"]["resumed"]
            self.assertEqual(report["items"]["planned"], report["items"]["ok"])
            for name in ("overlay", "labels"):
                if (whole / name).is_dir():
                    self.assertEqual(program.tree(output / name), program.tree(whole / name))
        self.assertEqual(done, kills)
        self.assertGreater(resumed, 0)

    def test_with_a_model(self):
        rows = []
        for i in range(60):
            program.write_picture(self.folder / "in" / f"{i:03}.jpg", 80 + i, 60, seed=i)
            rows.append(json.dumps({"path": f"{i:03}.jpg", "boxes": [[5, 5, 40, 30]]}))
        manifest = self.write("in/list.jsonl", "\n".join(rows))
        self.check(["--input", manifest, "--segmenter", program.package("sam_small"), "--format", "overlay,png", "--set", "threads.team=1",
                    "--set", "batch.size=2"], 10, 12)

    def test_three_segments(self):
        original = program.write_picture(self.folder / "one.jpg")
        for i in range(5000):
            link = self.folder / "in" / f"{i % 7}" / f"{i}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(original, link)
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.check([recipe, "--input", self.folder / "in"], 10, 1500)


class Stops(Case):
    """After Ctrl-C or SIGTERM, batches in flight finish. The same command resumes."""

    pictures = 300

    def setUp(self):
        super().setUp()
        original = program.write_picture(self.folder / "one.jpg", 1600, 1200)
        (self.folder / "in").mkdir()
        for i in range(self.pictures):
            os.link(original, self.folder / "in" / f"{i:03}.jpg")
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.out = self.folder / "out"
        # A hundred pictures are in flight, so that finishing them takes a while.
        self.command = [recipe, "--input", self.folder / "in", "--output", self.out, "--set", "gate.frames=100", "--set", "threads.workers=1"]

    def start(self, items=3):
        run = Run(self.command)
        wait_for_items(run, self.out, items)
        return run

    def finish(self, at_least):
        self.run_ok(*self.command)
        report = program.report(self.out)
        self.assertGreaterEqual(report["items"]["resumed"], at_least)
        self.assertEqual(report["items"]["ok"], self.pictures)
        self.assertEqual([line["id"] for line in program.lines(self.out)], list(range(self.pictures)))

    def stop(self, number, code):
        run = self.start()
        run.process.send_signal(number)
        self.assertEqual(run.wait(), code, run.err)
        self.assertIn(b"press Ctrl-C again to stop now", run.err)
        self.assertIn(b"run the same command again to resume", run.err)
        report = program.report(self.out)
        self.assertEqual(report["state"], "stopped")
        self.assertLess(report["items"]["ok"], self.pictures)
        self.assertEqual(report["items"]["ok"], finished_items(self.out))
        self.assertFalse((self.out / "lock.json").exists())
        status = millrace("status", self.out)
        self.assertEqual(status.code, program.OK)
        self.assertIn(f"left      {self.pictures - report['items']['ok']}", status.out)
        self.assertNotIn("in finished segments", status.out)  # no segment is finished yet
        self.assertIn(f"in open segments: {report['items']['ok']}\n", status.out)
        self.finish(report["items"]["ok"])

    def test_interrupt(self):
        self.stop(signal.SIGINT, program.INTERRUPTED)

    def test_terminate(self):
        self.stop(signal.SIGTERM, program.TERMINATED)

    def test_a_second_signal_ends_at_once(self):
        run = self.start()
        # The process is paused while both signals arrive, so it cannot finish in between.
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            run.process.send_signal(number)
        self.assertEqual(run.wait(), program.TERMINATED)
        self.assertIn(b"stopped now", run.err)
        self.finish(3)

    def test_two_runs_on_one_output(self):
        run = self.start()
        run.process.send_signal(signal.SIGSTOP)
        second = millrace("run", *self.command)
        status = millrace("status", self.out)
        run.process.send_signal(signal.SIGCONT)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(second.code, program.LOCKED, second)
        self.assertIn(str(run.process.pid), second.err)
        self.assertIn(str(run.process.pid), status.out)
        self.assertEqual(run.wait(), program.TERMINATED)

    def test_a_dead_runs_lock_is_taken_over(self):
        run = self.start()
        run.process.kill()
        run.wait()
        self.assertTrue((self.out / "lock.json").exists())
        self.finish(3)
        self.assertIn(str(run.process.pid), " ".join(program.report(self.out)["notes"]))


class AgainAndAgain(Case):
    """The same command, and similar ones, on an existing output."""

    def setUp(self):
        super().setUp()
        program.write_pictures(self.folder / "in", 5)
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.out = self.folder / "out"
        self.command = [self.recipe, "--input", self.folder / "in", "--output", self.out]

    def test_a_finished_output_does_not_change(self):
        self.run_ok(*self.command)
        before = program.segments(self.out), program.plan(self.out)
        times = [f.stat().st_mtime_ns for f in sorted((self.out / "segments").iterdir())]
        again = self.run_ok(*self.command)
        self.assertEqual((program.segments(self.out), program.plan(self.out)), before)
        self.assertEqual([f.stat().st_mtime_ns for f in sorted((self.out / "segments").iterdir())], times)
        self.assertIn("5 were done before", again.out)
        self.assertEqual(program.report(self.out)["items"]["resumed"], 5)

    def test_models_are_loaded_only_if_a_picture_is_left(self):
        def lines(names):
            return "".join(json.dumps({"path": f"in/{name}", "boxes": [[5, 5, 40, 30]]}) + "\n" for name in names)

        names = sorted(path.name for path in (self.folder / "in").iterdir())
        manifest = self.write("boxes.jsonl", lines(names[:4]))
        command = ["--input", manifest, "--segmenter", program.package("sam_small"), "--output", self.out]
        for changed, resumed, loads in ((None, 0, 1), (None, 4, 0), (lines(names), 4, 1), (None, 5, 0)):
            if changed:
                manifest.write_text(changed)
            self.run_ok(*command, *(["--add-new"] if changed else []))
            report = program.report(self.out)
            self.assertEqual((report["items"]["resumed"], len(report["models"]["loads"])), (resumed, loads))

    def test_other_settings_are_refused_by_name(self):
        self.run_ok(*self.command)
        before = program.tree(self.out / "segments")
        for arguments, key in ((["--set", "decode.max_scans=7"], "decode.max_scans"), (["--limit", "3"], "limit"),
                               (["--set", "batch.size=2"], "batch_size"), (["--set", "threads.team=3"], "team")):
            done = self.run_ok(*self.command, *arguments, code=program.MISMATCH)
            self.assertIn(key, done.err)
            self.assertIn("new output folder", done.err)
        self.assertEqual(program.tree(self.out / "segments"), before)

    def test_settings_of_the_run_may_change(self):
        self.run_ok(*self.command)
        self.run_ok(*self.command, "--set", "threads.workers=3", "--set", "read.ahead=2", "--set", "gate.frames=9", "--set", "device.kind=cpu")

    def test_the_plans_team_is_adopted(self):
        self.run_ok(*self.command, "--set", "threads.team=3")
        self.run_ok(*self.command)
        self.assertEqual(program.report(self.out)["team"], 3)

    def test_a_package_may_be_named_by_another_path(self):
        command = ["--input", self.write("in/l.jsonl", '{"path": "0000.jpg", "boxes": [[1, 1, 20, 20]]}\n'), "--output", self.out, "--segmenter"]
        first = program.package("sam_small")
        moved = program.copy_package(first, self.folder / "elsewhere.pkg", lambda text: text)
        self.run_ok(*command, first)
        self.run_ok(*command, moved)
        other = program.copy_package(first, self.folder / "other.pkg", lambda text: text.replace("scale: 1.0", "scale: 0.5"))
        self.assertIn("segment.model", self.run_ok(*command, other, code=program.MISMATCH).err)

    def test_add_new(self):
        self.run_ok(*self.command)
        first = program.segments(self.out)
        program.write_picture(self.folder / "in" / "0002b.jpg", 99, 33)
        self.run_ok(*self.command)
        self.assertEqual(program.segments(self.out), first)
        self.run_ok(*self.command, "--add-new")
        now = program.segments(self.out)
        self.assertEqual({name: now[name] for name in first}, first)
        self.assertEqual([(line["id"], line["path"]) for line in program.lines(self.out)[5:]], [(5, "0002b.jpg")])
        self.run_ok(*self.command, "--add-new")
        self.assertEqual(program.segments(self.out), now)


if __name__ == "__main__":
    program.main()
