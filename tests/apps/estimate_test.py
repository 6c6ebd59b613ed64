"""`millrace estimate`: figures before a run, from a sample of its input."""

import json
import os
import shutil
import signal
import subprocess

import program

FIGURES = ("wall_s", "pictures_per_s", "peak_memory_bytes", "output_bytes", "output_files", "disk_bytes", "inodes")


class Estimates(program.Case):
    def setUp(self):
        super().setUp()
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.input = self.folder / "in"
        self.out = self.folder / "out"

    def arguments(self, *options):
        return [self.recipe, "--input", self.input, "--output", self.out, "-q", *options]

    def estimated(self, *options, code=program.OK, **more):
        """The JSON of an estimate. Checks that it leaves nothing behind."""
        before = sorted(self.folder.rglob("*"))
        done = program.millrace("estimate", *self.arguments(*options), "--json", **more)
        self.assertEqual(done.code, code, done)
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        return json.loads(done.out)

    def sizes(self, folder="."):
        return [file.stat().st_size for file in (self.out / folder).rglob("*") if file.is_file()]

    def check_holds(self, figure, real):
        self.assertLessEqual(figure["low"], real)
        self.assertLessEqual(real, figure["high"])

    def test_bytes_and_files_of_a_run(self):
        program.write_pictures(self.input, 300)
        estimate = self.estimated("--pictures", 50)
        self.assertEqual((estimate["pictures"], estimate["input"]["pictures"], estimate["output"]), (300, 300, None))
        # The first prime number from 300 / 50 on.
        self.assertEqual((estimate["sample"]["every"], estimate["sample"]["pictures"], estimate["sample"]["failed"]), (7, 43, 0))
        self.assertIs(estimate["fits"], True)
        self.assertIsNone(estimate["gpu_memory_bytes"])
        for name in FIGURES:
            with self.subTest(name):
                self.assertEqual(sorted(estimate[name]), ["high", "low", "value"])
                self.assertGreater(estimate[name]["value"], 0)
        self.run_ok(*self.arguments())
        for part in ("segments", "plan", "runs"):
            with self.subTest(part):
                self.check_holds(estimate["parts"][part]["bytes"], sum(self.sizes(part)))
                self.check_holds(estimate["parts"][part]["files"], len(self.sizes(part)))
        self.check_holds(estimate["output_bytes"], sum(self.sizes()))
        self.check_holds(estimate["output_files"], len(self.sizes()))
        # All names and lines have the same length, so only the counts of the manifest are uncertain.
        segments = estimate["parts"]["segments"]["bytes"]
        self.assertLess(segments["high"] - segments["low"], 100)

    def test_side_files(self):
        program.write_pictures(self.input, 60)
        for name in ("0007.jpg", "0032.jpg"):
            (self.input / name).write_bytes(b"no picture")
        estimate = self.estimated("--format", "png,coco")  # the sample is the whole input
        self.assertEqual((estimate["sample"]["every"], estimate["sample"]["pictures"], estimate["sample"]["failed"]), (1, 60, 2))
        self.run_ok(*self.arguments("--format", "png,coco"), code=program.SOME_FAILED)
        labels, coco = estimate["parts"]["labels"], estimate["parts"]["coco"]
        self.assertEqual((labels["files"]["low"], labels["files"]["high"]), (58, 58))
        self.assertEqual((labels["bytes"]["low"], labels["bytes"]["high"]), (sum(self.sizes("labels")),) * 2)
        self.assertEqual((coco["files"]["low"], coco["files"]["high"]), (1, 1))
        self.assertEqual(coco["bytes"]["value"], (self.out / "coco.json").stat().st_size)

    def test_the_rest_of_an_output(self):
        program.write_pictures(self.input, 20)
        self.run_ok(*self.arguments())
        done = self.estimated()
        self.assertEqual((done["pictures"], done["output"]), (0, {"planned": 20, "done": 20, "left": 0}))
        self.assertEqual([done[name] for name in FIGURES], [None] * len(FIGURES))
        for i in range(20, 30):
            program.write_picture(self.input / f"{i:04}.jpg")
        self.assertEqual(self.estimated()["pictures"], 0)
        more = self.estimated("--add-new")
        self.assertEqual((more["pictures"], more["sample"]["pictures"]), (10, 30))
        self.assertEqual((more["parts"]["segments"]["files"]["value"], more["parts"]["plan"]["files"]["value"]), (2, 3))
        done = program.millrace("estimate", *self.arguments("--set", "gate.slab=1M"))
        self.assertEqual(done.code, program.MISMATCH, done)

    def test_small_and_odd_inputs(self):
        self.input.mkdir()
        done = program.millrace("estimate", *self.arguments())
        self.assertEqual(done.code, program.USAGE, done)
        program.write_picture(os.fsencode(self.input / "one").decode() + " \u202e.jpg")
        one = self.estimated()
        self.assertEqual((one["pictures"], one["sample"]["pictures"]), (1, 1))
        with open(os.fsencode(self.input) + b"/bad \xff\n.jpg", "wb") as file:
            file.write(b"no picture")
        # One picture says nothing about the difference between pictures.
        single = self.estimated("--pictures", 1)
        self.assertEqual((single["pictures"], single["sample"]["pictures"]), (2, 1))
        self.assertEqual((single["output_bytes"]["low"], single["output_bytes"]["high"]), (None, None))
        both = self.estimated()
        self.assertEqual((both["pictures"], both["sample"]["failed"]), (2, 1))
        done = program.millrace("estimate", *self.arguments())
        self.assertEqual(done.code, program.OK, done)
        self.assertIn("2 pictures to process\nsample: 2 pictures, the whole input", done.out)

    def test_a_view_without_a_picture_in_the_sample(self):
        recipe = self.write("views.yaml", program.DECODE_ONLY + "views: [{name: rare, match: 'z/**'}, {name: usual, match: '**'}]\n")
        program.write_pictures(self.input / "a", 40)
        program.write_pictures(self.input / "b", 1)
        program.write_picture(self.input / "z/0.jpg")
        arguments = [recipe, *self.arguments()[1:], "--pictures", 5]
        done = program.millrace("estimate", *arguments, "--json")
        self.assertEqual(json.loads(done.out)["sample"]["views_without_a_picture"], [{"view": "rare", "pictures": 1}])
        self.assertIn("no picture of view rare (1) is in the sample", program.millrace("estimate", *arguments).out)

    def test_wrong_use(self):
        program.write_pictures(self.input, 1)
        for options, says in ((["--pictures", "0"], "--pictures needs"), (["--pictures"], "--pictures needs"), (["--dry-run"], "takes no --dry-run"),
                              (["--input", "-"], "cannot read names from stdin"), (["--picture", "3"], "--picture")):
            with self.subTest(options):
                done = program.millrace("estimate", *self.arguments(*options))
                self.assertEqual(done.code, program.USAGE, done)
                self.assertIn(says, done.err)

    def test_files_of_the_real_run_are_not_written(self):
        program.write_pictures(self.input, 3)
        self.estimated("--trace", self.folder / "trace.json", "--events", self.folder / "events.jsonl")

    def test_ctrl_c(self):
        """The signal comes when the first pictures of the sample are finished and most are not."""
        original = program.write_picture(self.folder / "one.jpg", 1600, 1200)
        self.input.mkdir()
        for i in range(300):
            os.link(original, self.input / f"{i:03}.jpg")
        before = sorted(self.folder.iterdir())
        for number, code in ((signal.SIGINT, program.INTERRUPTED), (signal.SIGTERM, program.TERMINATED)):
            with self.subTest(number):
                process = subprocess.Popen([program.PROGRAM, "estimate", *map(str, self.arguments("--pictures", 300))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                try:
                    while not any(journal.stat().st_size > 0 for journal in self.folder.glob(".tmp-estimate-*/segments/000000.part")):
                        self.assertIsNone(process.poll(), "the estimate ended too early")
                    process.send_signal(number)
                    out, err = process.communicate(timeout=100)
                finally:
                    process.kill()
                    process.wait()
                self.assertEqual((process.returncode, out), (code, ""), err)
                self.assertIn("stopped before the estimate was complete", err)
                self.assertEqual(sorted(self.folder.iterdir()), before)


class SmallDisks(program.Case):
    """The output is on a small tmpfs, in a mount namespace of its own."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("mounting needs root and mount namespaces")
        self.input = program.write_pictures(self.folder / "in", 400)
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.out = self.folder / "out"
        self.out.mkdir()

    def estimated(self, options, *more):
        words = [program.PROGRAM, "estimate", self.recipe, "--input", self.input, "--output", self.out, "-q", "--json", "--pictures", 50, *more]
        command = " ".join(f"'{word}'" for word in words)
        script = f"mount -t tmpfs -o {options} none '{self.out}' || exit 99; {command}; code=$?; ls -A '{self.out}' >&2; exit $code"
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
        if done.returncode == 99:
            self.skipTest("this machine does not allow mounts")
        self.assertNotIn(".tmp", done.stderr)
        return done.returncode, json.loads(done.stdout), done.stderr

    def test_a_run_that_fits(self):
        code, estimate, _ = self.estimated("size=50m", "--format", "overlay")
        self.assertEqual((code, estimate["fits"], estimate["parts"]["overlay"]["files"]["value"]), (program.OK, True, 400))

    def test_too_few_bytes(self):
        # 400 overlays take a block of 4 KiB each: the sample fits, the run does not.
        code, estimate, err = self.estimated("size=1500k", "--format", "overlay")
        self.assertEqual((code, estimate["fits"]), (program.STORAGE, False), err)
        self.assertGreater(estimate["disk_bytes"]["high"], estimate["free_bytes"])
        self.assertIn("the run does not fit on the disk", err)

    def test_too_few_inodes(self):
        code, estimate, err = self.estimated("size=50m,nr_inodes=200", "--format", "overlay")
        self.assertEqual((code, estimate["fits"]), (program.STORAGE, False), err)
        self.assertGreater(estimate["inodes"]["high"], estimate["free_inodes"])

    def test_not_even_the_sample_fits(self):
        code, estimate, err = self.estimated("size=40k")
        self.assertEqual((code, estimate["fits"], estimate["sample"], estimate["disk_bytes"]), (program.STORAGE, False, None, None), err)
        self.assertIn("not even its sample does", err)


if __name__ == "__main__":
    program.main()
