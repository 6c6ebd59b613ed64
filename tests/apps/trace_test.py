"""The NVTX events that a profiler sees. A library takes the place of the profiler and writes them down."""

import collections
import json
import os
import re

import program
from program import Case, millrace


class Traces(Case):
    def record(self, *more):
        program.write_pictures(self.folder / "in", 10, 90, 70)
        self.out, log = self.folder / "out", self.folder / "events.jsonl"
        env = {**os.environ, "NVTX_INJECTION64_PATH": os.environ["MILLRACE_NVTX_RECORDER"], "MILLRACE_NVTX_LOG": str(log)}
        done = millrace("run", "--input", self.folder / "in", "--output", self.out, "--detector", program.package("yolov8n"), "--segmenter",
                        program.package("sam_small"), "--set", "batch.size=4", "--set", "threads.team=1", "-q", *more, env=env)
        self.assertEqual(done.code, program.OK, done)
        return [json.loads(line) for line in log.read_text().splitlines()]

    def test_every_stage_of_every_frame_and_batch_is_a_range(self):
        events = self.record()
        self.assertEqual({event["domain"] for event in events if "domain" in event}, {"millrace"})
        ranges = collections.defaultdict(list)
        open_on = collections.defaultdict(list)
        for event in events:
            if event["event"] == "push":
                self.assertEqual(open_on[event["thread"]], [])  # no stage runs inside another
                open_on[event["thread"]].append(event)
                ranges[event["name"]].append(event)
            elif event["event"] == "pop":
                open_on[event["thread"]].pop()
        self.assertEqual({thread: left for thread, left in open_on.items() if left}, {})
        for stage in ("read", "decode"):
            self.assertEqual(sorted(event["payload"] for event in ranges[stage]), list(range(10)), stage)
        for stage in ("preprocess", "detect", "segment", "postprocess", "encode", "commit"):
            batches = [(event["name"], event["payload"]) for name in ranges for event in ranges[name] if re.sub(r" \[.*", "", name) == stage]
            self.assertEqual(sorted(batches), sorted([(f"{stage} [4]", 0), (f"{stage} [4]", 1), (f"{stage} [2]", 2)]))

    def test_waiting_begins_and_ends(self):
        events = self.record()
        begun = {event["range"]: event["name"] for event in events if event["event"] == "start"}
        self.assertEqual(sorted(begun), sorted(event["range"] for event in events if event["event"] == "end"))
        for queue in ("lane", "encode", "commit"):
            self.assertEqual(sorted(name for name in begun.values() if name.startswith(f"queue: {queue}")),
                             [f"queue: {queue} [2]", *[f"queue: {queue} [4]"] * 2])

    def test_threads_have_names(self):
        names = {event["name"] for event in self.record("--set", "threads.lanes=2") if event["event"] == "thread"}
        self.assertLessEqual({"lane 0", "lane 1", "read 0", "commit 0", "source", "worker"}, names)

    def test_capture_brackets_its_frames(self):
        # With several lanes, a small last batch can overtake another one.
        events = self.record("--capture", "4:8", "--set", "gate.frames=8", "--set", "threads.lanes=1")
        (begin,) = [i for i, event in enumerate(events) if event.get("name") == "capture"]
        (end,) = [i for i, event in enumerate(events) if event["event"] == "end" and event["range"] == events[begin]["range"]]
        self.assertEqual(events[begin]["payload"], 4)
        reads = {event["payload"]: i for i, event in enumerate(events) if event.get("name") == "read"}
        self.assertGreater(reads[4], begin)
        commits = [i for i, event in enumerate(events) if event["event"] == "push" and event["name"].startswith("commit")]
        self.assertLess(commits[1], end)  # the eight frames before the end of the capture are two batches
        self.assertGreater(commits[2], end)

    def test_captures_that_cannot_be(self):
        for capture in ("5", "5:", ":5", "5:5", "8:4", "-1:4", "a:b", "1:2:3"):
            done = millrace("run", "--input", self.folder, "--output", self.folder / "o", f"--capture={capture}")
            self.assertEqual(done.code, program.USAGE, done)
            self.assertIn("100:200", done.err)
            self.assertFalse((self.folder / "o").exists())


if __name__ == "__main__":
    program.main()
