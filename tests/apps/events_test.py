"""`millrace run --events`: JSON lines for other programs, in files and pipes."""

import json
import os
import select
import subprocess
import threading

import program


class Events(program.Case):
    def setUp(self):
        super().setUp()
        self.pictures = program.write_pictures(self.folder / "in", 6)
        (self.pictures / "bad \u202e\n.jpg").write_bytes(b"no picture")
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.out = self.folder / "out"

    def arguments(self, events, *options):
        return [self.recipe, "--input", self.pictures, "--output", self.out, "--events", events, *options]

    def check(self, events):
        """What every complete run writes."""
        self.assertEqual(events[0]["event"], "started")
        self.assertEqual(events[0]["attempt"], str(next((self.out / "runs").iterdir())))
        failed = [it for it in events if it["event"] == "failed"]
        self.assertEqual([(it["path"], it["stage"], it["reason"]) for it in failed], [("bad \u202e\n.jpg", "read", "not_an_image")])
        segment = [it for it in events if it["event"] == "segment"]
        self.assertEqual([(it["file"], it["items"], it["ok"], it["objects"]) for it in segment], [("segments/000000.jsonl", 7, 6, 0)])
        report = program.report(self.out)
        end = events[-1]
        self.assertEqual((end["event"], end["state"], end["exit_code"], end["ok"], end["failed"], end["planned"]), ("ended", "finished", 3, 6, 1, 7))
        self.assertEqual((end["verdict"], end["pictures_per_s"]), (report["verdict"]["sentence"], report["run_window"]["pictures_per_s"]))
        for it in events:
            self.assertRegex(it["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual([it["time"] for it in events], sorted(it["time"] for it in events))

    def test_a_file_gets_the_events_of_each_attempt(self):
        file = self.folder / "events.jsonl"
        self.run_ok(*self.arguments(file), code=program.SOME_FAILED)
        first = file.read_text().splitlines()
        self.check([json.loads(line) for line in first])
        self.run_ok(*self.arguments(file), code=program.SOME_FAILED)
        lines = file.read_text().splitlines()
        self.assertEqual(lines[: len(first)], first)
        again = [json.loads(line) for line in lines[len(first) :]]
        self.assertEqual([it["event"] for it in again if it["event"] != "progress"], ["started", "ended"])
        self.assertEqual((again[-1]["ok"], again[-1]["planned"]), (6, 7))

    def start(self, pipe):
        """Starts a run that reads the names of its pictures from stdin. Returns the run and that stream."""
        run = subprocess.Popen([program.PROGRAM, "run", str(self.recipe), "--input", "-", "--output", str(self.out), "--events", str(pipe)],
                               stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(run.stderr.close)
        return run, run.stdin

    def test_a_pipe_is_read_while_the_run_goes_on(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        done = program.millrace("run", *self.arguments(pipe))
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("a pipe that nobody reads", done.err)
        self.assertFalse(self.out.exists())
        events, twice = [], threading.Event()

        def read():
            with open(pipe, encoding="utf-8") as lines:
                for line in lines:
                    events.append(json.loads(line))
                    if [it["event"] for it in events].count("progress") == 2:
                        twice.set()

        reader = threading.Thread(target=read)
        reader.start()
        run, names = self.start(pipe)
        with names:
            names.write(f"{self.pictures}/0000.jpg\n".encode())
            names.flush()
            self.assertTrue(twice.wait(120))  # the run waits for more names, so only progress can come now
            names.write(f"{self.pictures}/0001.jpg\n".encode())
        self.assertEqual(run.wait(120), program.OK)
        reader.join()
        progress = [it for it in events if it["event"] == "progress"]
        for it in progress:
            self.assertEqual(set(it), {"event", "time", "done", "failed", "planned", "plan_complete", "ready", "in_flight", "pictures_per_s",
                                       "windows_done", "windows_in_work", "windows_per_s", "left_s", "busiest"})
            self.assertEqual([it[key] for key in it if key.startswith("windows")], [None] * 3)
        self.assertFalse(progress[0]["plan_complete"])
        self.assertIsNone(progress[0]["left_s"])
        self.assertEqual((events[-1]["event"], events[-1]["ok"]), ("ended", 2))

    def test_a_reader_that_goes_away_does_not_disturb_the_run(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        run, names = self.start(pipe)
        select.select([descriptor], [], [], 120)  # before the first event, the pipe has no writer, and a read would find its end
        self.assertIn(b'"started"', os.read(descriptor, 65536))
        os.close(descriptor)
        with names:
            names.write(f"{self.pictures}/0000.jpg\n".encode())
        error = run.stderr.read()
        self.assertEqual(run.wait(120), program.OK, error)
        self.assertIn(b"later ones are missing; the results are not affected", error)
        self.assertEqual(program.report(self.out)["items"]["ok"], 1)

    def test_a_reader_that_sleeps_loses_events_and_delays_nothing(self):
        # Each failed picture has a line with its long name: together more than a pipe and the program hold.
        broken = self.folder / "broken" / ("x" * 200) / ("y" * 200) / ("z" * 200)
        broken.mkdir(parents=True)
        count = 3000
        for i in range(count):
            (broken / f"{i:04}.jpg").write_bytes(b"")
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        done = program.millrace("run", self.recipe, "--input", self.folder / "broken", "--output", self.out, "--events", pipe)
        self.assertEqual(done.code, program.SOME_FAILED, done)
        self.assertRegex(done.err, r"was too slow: [\d,]+ events were dropped")
        self.assertEqual(program.report(self.out)["items"]["failed"], {"empty": count})
        read = os.read(descriptor, 1 << 20)
        os.close(descriptor)
        for line in read.splitlines()[:-1]:  # the pipe is full in the middle of a line
            json.loads(line)

    def test_wrong_names_are_refused_before_the_output_is_made(self):
        picture = self.pictures / "0000.jpg"
        before = picture.read_bytes()
        for file, message in ((picture, "must end in .jsonl"), (self.folder, "is a folder"), (self.folder / "no/e.jsonl", "cannot open")):
            done = program.millrace("run", *self.arguments(file))
            self.assertIn(done.code, (program.USAGE, program.STORAGE), done)
            self.assertIn(message, done.err)
            self.assertFalse(self.out.exists())
        self.assertEqual(picture.read_bytes(), before)

    def test_the_file_may_be_in_the_new_output_folder(self):
        self.run_ok(*self.arguments(self.out / "events.jsonl"), code=program.SOME_FAILED)
        self.check([json.loads(line) for line in (self.out / "events.jsonl").read_text().splitlines()])
        self.assertEqual(program.millrace("status", self.out).code, program.OK)

    def test_a_run_that_fails_says_so(self):
        file = self.folder / "events.jsonl"
        self.run_ok(*self.arguments(file), code=program.SOME_FAILED)
        done = program.millrace("run", *self.arguments(file, "--set", "decode.accept_truncated=0.5"))
        self.assertEqual(done.code, program.MISMATCH, done)
        end = json.loads(file.read_text().splitlines()[-1])
        self.assertEqual((end["event"], end["state"], end["exit_code"]), ("ended", "failed", program.MISMATCH))
        self.assertIn(end["error"].split(";")[0], done.err)


if __name__ == "__main__":
    program.main()
