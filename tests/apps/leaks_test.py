"""A run, a resumed run and a dry run under LeakSanitizer. For builds with AddressSanitizer."""

import os

import program
from program import Case, millrace

ATTEMPTS = 10


class Leaks(Case):
    def run_checked(self, *words):
        """Runs the program with LeakSanitizer.

        Its tracer crashes in some runs, on a busy machine in several at once, and then has checked nothing. So retry.
        """
        for _ in range(ATTEMPTS):
            done = millrace(*words, env={"ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=1"})
            if "LeakSanitizer has encountered a fatal error" not in done.err:
                self.assertNotIn("detected memory leaks", done.err)
                self.assertEqual(done.code, program.OK, done)
                return done
        self.fail(f"LeakSanitizer did not work {ATTEMPTS} times: {done}")

    def test_runs_leave_nothing_behind(self):
        program.write_pictures(self.folder / "in", 6, 90, 70)
        run = ("run", "--input", self.folder / "in", "--output", self.folder / "out", "--detector", program.package("yolov8n"), "--segmenter",
               program.package("sam_small"), "--set", "detect.conf=0.001", "--set", "detect.max_detections=3", "--format", "overlay,coco")
        for words in ((*run, "--dry-run"), run, run, ("status", self.folder / "out", "--verify"), ("stages",)):
            self.run_checked(*words)


if __name__ == "__main__":
    program.main()
