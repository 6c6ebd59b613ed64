"""The file of `--trace`: it is JSON after every kind of end, and adds up to the figures of report.json."""

import collections
import json
import os
import signal
import unittest

import program
from program import Case, millrace
from resume_test import Run, finished_items, wait_for_items

# The figures of the report and the slices of the trace come from the same clock readings.
# Only the rounding to nanoseconds and the seconds' decimals differ.
TOLERANCE_S = 1e-6


class Trace:
    """A parsed trace."""

    def __init__(self, file):
        self.json = json.loads(file.read_text(encoding="utf-8"))
        self.events = self.json["traceEvents"]
        self.tracks = {event["tid"]: event["args"]["name"] for event in self.of("M", "thread_name")}
        (self.run,) = self.spans("run")

    def of(self, phase, name=None):
        return [event for event in self.events if event["ph"] == phase and name in (None, event["name"])]

    def work(self, stage):
        return self.of("X", stage)

    def spans(self, name):
        """(begin, end, arguments) of the slices outside of threads."""
        begun, found = {}, []
        for event in self.events:
            if event["ph"] == "b" and event["name"] == name:
                assert event["id2"]["local"] not in begun, "two slices with one id overlap"
                begun[event["id2"]["local"]] = event
            elif event["ph"] == "e" and event["name"] == name:
                begin = begun.pop(event["id2"]["local"])
                found.append((begin["ts"], event["ts"], begin["args"]))
        assert not begun, "a slice does not end"
        return found

    def seconds(self, stage):
        return sum(event["dur"] for event in self.work(stage)) / 1e6

    def mean(self, counter):
        """The mean value over the run."""
        begin, end, _ = self.run
        area, last = 0, (begin, 0)
        for event in sorted(self.of("C", counter), key=lambda event: event["ts"]):
            (value,) = event["args"].values()
            at = min(max(event["ts"], begin), end)
            area += last[1] * (at - last[0])
            last = (at, value)
        area += last[1] * (end - last[0])
        return area / (end - begin)


class Traces(Case):
    def setUp(self):
        super().setUp()
        self.out, self.file = self.folder / "out", self.folder / "trace.json"

    def models(self):
        return ("--detector", program.package("yolov8n"), "--segmenter", program.package("sam_small"), "--set", "detect.conf=0.001",
                "--set", "detect.max_detections=3", "--set", "threads.team=1")

    def trace(self, *more, code=program.OK, file=None):
        self.run_ok("--input", self.folder / "in", "--output", self.out, "--trace", file or self.file, *more, code=code)
        return Trace(file or self.file)

    def check_adds_up(self, trace):
        """Compares times and mean queues of all stages with the report."""
        window = program.report(self.out)["run_window"]
        begin, end, _ = trace.run
        self.assertAlmostEqual((end - begin) / 1e6, window["wall_s"], delta=TOLERANCE_S)
        stages = []
        for resource in window["resources"]:
            if resource["name"].startswith("GPU"):
                continue
            for row in resource.get("parts", [resource]):
                stages.append(row["name"])
                self.assertAlmostEqual(trace.seconds(row["name"]), row["busy_s"], delta=TOLERANCE_S, msg=row["name"])
                self.assertEqual(len(trace.work(row["name"])), row["items"])
            for row in (resource, *resource.get("parts", [])):
                if trace.of("C", f"queue: {row['name']}"):
                    self.assertAlmostEqual(trace.mean(f"queue: {row['name']}"), row["mean_queue"], delta=1e-4, msg=row["name"])
        for row in ("lane", "encode", "commit"):
            waits = trace.spans(f"queue: {row}")
            mean = sum(end - begin for begin, end, _ in waits) / 1e6 / window["wall_s"]
            self.assertAlmostEqual(mean, trace.mean(f"queue: {row}"), delta=1e-4, msg=row)
        source = window["source"]
        self.assertAlmostEqual(trace.seconds("gate"), source["without_credits_s"], delta=TOLERANCE_S)
        self.assertEqual(trace.of("C", "committed")[-1]["args"]["pictures"], window["committed"])
        return stages

    def test_every_stage_of_every_frame_and_batch(self):
        program.write_pictures(self.folder / "in", 10, 90, 70)
        trace = self.trace(*self.models(), "--set", "batch.size=4", "--set", "threads.lanes=2", "--set", "threads.workers=2")
        stages = self.check_adds_up(trace)
        self.assertEqual(stages, ["read", "decode", "encode", "preprocess", "detect", "segment", "postprocess", "commit"])
        for stage in ("read", "decode"):
            self.assertEqual(sorted(event["args"]["frame"] for event in trace.work(stage)), list(range(10)))
            self.assertEqual(sorted(os.path.basename(event["args"]["file"]) for event in trace.work(stage)), [f"{i:04}.jpg" for i in range(10)])
        for stage in ("preprocess", "detect", "segment", "postprocess", "encode", "commit"):
            self.assertEqual(sorted((event["args"]["batch"], event["args"]["frames"]) for event in trace.work(stage)), [(0, 4), (1, 4), (2, 2)])
        for stage in ("lane", "encode", "commit"):
            self.assertEqual(sorted((a["batch"], a["frames"]) for _, _, a in trace.spans(f"queue: {stage}")), [(0, 4), (1, 4), (2, 2)])
        self.assertEqual(len(trace.work("warm-up")), 2)

        # Which thread did what. No two slices of a thread overlap: none is nested, since no GPU works.
        at = collections.defaultdict(set)
        for event in trace.work(None):
            at[event["name"]].add(trace.tracks[event["tid"]].split(" ")[0])
        self.assertEqual(dict(at), {"input": {"source"}, **({"gate": {"source"}} if "gate" in at else {}), "read": {"read"}, "decode": {"worker"},
                                    "warm-up": {"lane"}, **{stage: {"lane"} for stage in stages[3:7]}, "encode": {"worker"}, "commit": {"commit"}})
        for track in trace.tracks:
            ends = 0
            for event in sorted((event for event in trace.of("X") if event["tid"] == track), key=lambda event: event["ts"]):
                self.assertGreaterEqual(event["ts"], ends)
                ends = round(event["ts"] + event["dur"], 3)
        names = [trace.tracks[track] for track in sorted(trace.tracks)]
        self.assertEqual([name.split(" ")[0] for name in names], sorted((name.split(" ")[0] for name in names), key=["marks", "source", "read", "worker", "lane", "commit"].index))

        report, other = program.report(self.out), trace.json["otherData"]
        self.assertEqual((other["run"], other["started"], other["events_left_out"]), (report["run"], report["started"], 0))
        self.assertIn("millrace ", other["program"])
        self.assertTrue(any(str(self.file) in note for note in report["notes"]), report["notes"])

    def test_failed_pictures(self):
        names = [b"html.jpg", b'quote".jpg', b"</script>.jpg", b"line\nbreak\x01.jpg", b"\xff\xfe.jpg"]
        program.write_pictures(self.folder / "in", 3)
        for name in names:
            file = self.folder / "in" / os.fsdecode(name)
            file.parent.mkdir(exist_ok=True)  # "<", of "</script>"
            file.write_bytes(b"<html>")
        whole = (self.folder / "in/0000.jpg").read_bytes()
        (self.folder / "in/cut.jpg").write_bytes(whole[: len(whole) // 2])
        trace = self.trace(self.write("decode.yaml", program.DECODE_ONLY), code=program.SOME_FAILED)
        (errors,) = self.out.glob("runs/*/errors.jsonl")
        expected = [json.loads(line) for line in errors.read_text(encoding="utf-8").splitlines()]
        failed = trace.of("i", "failed picture")
        by_id = lambda error: error["id"]  # noqa: E731
        self.assertEqual(sorted((event["args"] for event in failed), key=by_id), sorted(expected, key=by_id))
        self.assertEqual({event["args"]["reason"] for event in failed}, {"not_an_image", "truncated"})
        self.assertEqual({trace.tracks[event["tid"]] for event in failed}, {"marks"})
        # A picture fails while its stage works on it.
        of_file = {(event["name"], event["args"]["file"]): event for event in trace.work("read") + trace.work("decode")}
        for event in failed:
            work = of_file[event["args"]["stage"], event["args"]["path"]]
            self.assertGreaterEqual(event["ts"], work["ts"])
            # The graph marks a frame as failed just after its stage has thrown.
            self.assertLess(event["ts"], trace.run[1])
        self.check_adds_up(trace)

    def test_gpu_work(self):
        program.write_pictures(self.folder / "in", 40, 90, 70)
        manifest = self.write("in/m.jsonl", "".join(json.dumps({"path": f"{i:04}.jpg", "boxes": [[5, 5, 30, 20], [20, 10, 40, 40]]}) + "\n" for i in range(40)))
        table = {"name": "none", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
                 "forward": {"call_ms": 0, "each_ms": 1}, "encode": {"call_ms": 0, "each_ms": 2}, "decode": {"call_ms": 1, "each_ms": 0}}
        self.run_ok("--input", manifest, "--output", self.out, "--trace", self.file, "--engine", f"simulated:{self.write('table.yaml', json.dumps(table))}",
                    "--detector", program.package("yolov8n"), "--segmenter", program.package("sam_small"), "--set", "detect.skip_with_boxes=no")
        trace = Trace(self.file)
        self.check_adds_up(trace)
        (gpu,) = [resource for resource in program.report(self.out)["run_window"]["resources"] if resource["name"] == "GPU"]
        models, operations = {"detector", "encoder", "decoder"}, {f"{stage} operations" for stage in ("preprocess", "detect", "segment", "postprocess")}
        self.assertEqual({part["name"] for part in gpu["parts"]}, models | operations)
        self.assertEqual({event["name"] for event in trace.events if event["name"].startswith("GPU: ")}, {f"GPU: {name}" for name in models})
        for part in gpu["parts"]:
            if part["name"] in operations:  # a trace has the calls of models only
                continue
            calls = [event for event in trace.work(f"GPU: {part['name']}") if event["ts"] >= trace.run[0]]  # not those of the warm-up
            self.assertEqual(len(calls), part["items"])
            self.assertAlmostEqual(sum(call["args"]["alone_ms"] for call in calls) / 1e3, part["busy_s"], delta=TOLERANCE_S)
            # Each is inside a stage of its lane.
            stage = "detect" if part["name"] == "detector" else "segment"
            for call in calls:
                self.assertTrue(any(one["tid"] == call["tid"] and one["ts"] <= call["ts"] and call["ts"] + call["dur"] <= one["ts"] + one["dur"] + 0.01
                                    for one in trace.work(stage)))

    def test_a_run_that_is_stopped_and_one_that_has_nothing_to_do(self):
        original = program.write_picture(self.folder / "one.jpg", 1600, 1200)
        (self.folder / "in").mkdir()
        for i in range(300):
            os.link(original, self.folder / "in" / f"{i:03}.jpg")
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        command = [recipe, "--input", self.folder / "in", "--output", self.out, "--trace", self.file, "--set", "gate.frames=100"]
        for number, code in ((signal.SIGINT, program.INTERRUPTED), (signal.SIGTERM, program.TERMINATED)):
            finished = finished_items(self.out)
            run = Run(command)
            wait_for_items(run, self.out, finished + 3)
            run.process.send_signal(number)
            self.assertEqual(run.wait(), code, run.err)
            trace = Trace(self.file)
            self.assertEqual(program.report(self.out)["state"], "stopped")
            self.check_adds_up(trace)
        self.run_ok(*command)
        self.run_ok(*command)
        self.assertEqual(json.loads(self.file.read_text())["otherData"]["run"], program.report(self.out)["run"])
        self.assertEqual(Trace(self.file).work("read"), [])

    def test_a_trace_inside_the_output_folder(self):
        program.write_pictures(self.folder / "in", 1)
        self.trace(self.write("decode.yaml", program.DECODE_ONLY), file=self.out / "trace.json")
        self.assertEqual(list(self.folder.rglob(".tmp-*")), [])

    def test_a_run_that_fails_leaves_a_trace(self):
        manifest = self.write("in/broken.jsonl", '{"path": 5}\n')
        done = millrace("run", self.write("decode.yaml", program.DECODE_ONLY), "--input", manifest, "--output", self.out, "--trace", self.file)
        self.assertEqual(done.code, program.USAGE, done)
        self.assertEqual(program.report(self.out)["state"], "failed")
        self.assertEqual(json.loads(self.file.read_text())["otherData"]["run"], program.report(self.out)["run"])

    def test_files_that_a_trace_cannot_be(self):
        program.write_pictures(self.folder / "in", 1)
        (self.folder / "folder.json").mkdir()
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        for name, code, says in ((recipe, program.USAGE, "must end in .json"), (self.folder / "folder.json", program.USAGE, "is a folder"),
                                 (self.folder / "missing/trace.json", program.STORAGE, "missing")):
            with self.subTest(name):
                done = millrace("run", recipe, "--input", self.folder / "in", "--output", self.folder / "o", "--trace", name)
                self.assertEqual(done.code, code, done)
                self.assertIn(says, done.err)
                self.assertFalse((self.folder / "o/runs").exists())
        self.assertEqual(recipe.read_text(), program.DECODE_ONLY)


if __name__ == "__main__":
    program.main()
