"""`millrace tune`: a recipe with the fastest settings, from trials on a sample of the input."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import yaml

import program


class Tunings(program.Case):
    def setUp(self):
        super().setUp()
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.input = self.folder / "in"
        self.tuned = self.folder / "tuned.yaml"
        self.environment = {"XDG_STATE_HOME": str(self.folder / "state")}

    def arguments(self, *options, recipe=None):
        return ["tune", recipe or self.recipe, "--input", self.input, "--output", self.tuned, *options]

    def tune(self, *options, code=program.OK, **more):
        done = program.millrace(*self.arguments(*options, **more), env=self.environment)
        self.assertEqual(done.code, code, done)
        self.assertEqual([path for path in self.folder.iterdir() if path.name.startswith(".")], [])  # no temporary folder
        return done

    def figures(self, *options, **more):
        file = self.folder / "tuned.json"
        self.tune("--json", file, *options, **more)
        return json.loads(file.read_text())

    def recipe_values(self, figures):
        recipe = yaml.safe_load(self.tuned.read_text())
        return {value["option"]: (value["value"], str(recipe[value["option"].split(".")[0]][value["option"].split(".")[1]])) for value in figures["values"]}

    def test_a_recipe_that_runs(self):
        program.write_pictures(self.input, 60)
        figures = self.figures("--trials", 4, "--pairs", 2, "--seconds", 0.2)
        trials = figures["trials"]
        self.assertTrue(2 <= len(trials) <= 4, trials)
        self.assertEqual(len({json.dumps(trial["settings"]) for trial in trials}), len(trials))  # no point twice
        self.assertTrue(all(trial["fits"] and trial["pictures_per_s"] > 0 and trial["latency_p95_s"] > 0 for trial in trials))
        # Without models, lanes and precisions mean nothing.
        self.assertEqual(set(trials[0]["settings"]), {"batch.size", "threads.workers", "gate.frames"})
        chosen = {value["option"]: value["value"] for value in figures["values"]}
        self.assertIn(chosen, [trial["settings"] for trial in trials])
        for option, (wanted, written) in self.recipe_values(figures).items():
            self.assertEqual(wanted, written, option)
        best = max(trials, key=lambda trial: trial["pictures_per_s"])
        if best == trials[0]:  # the defaults
            self.assertEqual((chosen, figures["pairs"]), (best["settings"], []))
        else:
            ratios = [pair["ratio"] for pair in figures["pairs"]]
            self.assertEqual(len(ratios), 2)
            self.assertEqual(ratios, [pair["tuned"] / pair["defaults"] for pair in figures["pairs"]])
            self.assertEqual(chosen, (best if sum(ratios) / 2 >= 1.02 else trials[0])["settings"])
        self.assertIn("# tune: ", self.tuned.read_text())
        self.run_ok(self.tuned, "--output", self.folder / "out")
        self.assertEqual(len(program.lines(self.folder / "out")), 60)

    def test_without_pairs_the_best_trial_is_chosen(self):
        program.write_pictures(self.input, 200)
        figures = self.figures("--trials", 3, "--pairs", 0, "--seconds", 0.2)
        best = max(figures["trials"], key=lambda trial: trial["pictures_per_s"])
        self.assertEqual({value["option"]: value["value"] for value in figures["values"]}, best["settings"])

    def test_short_trials_are_told(self):
        program.write_pictures(self.input, 3)
        done = self.tune("--seconds", 0.1)
        self.assertIn("are too short to learn from", done.err)
        self.assertIn("The trials were too short to learn from.", self.tuned.read_text())
        self.assertFalse((self.folder / "state").exists())

    def test_values_are_remembered(self):
        program.write_pictures(self.input, 200)
        options = ("--trials", 2, "--pairs", 0, "--seconds", 0.1)
        self.assertIn("trial", self.tune(*options).out)
        first = self.tuned.read_text()
        self.tuned.unlink()
        done = self.tune(*options)
        self.assertIn("--again measures again", done.out)
        self.assertNotIn("each trial runs", done.out)
        self.assertEqual(self.tuned.read_text(), first)
        for more in (("--again",), ("--for", "latency:100s"), ("--set", "decode.max_megapixels=200"), ("--trials", 3)):
            with self.subTest(more):
                self.assertIn("each trial runs", self.tune(*options, *more).out)
        (memory,) = list((self.folder / "state/millrace/tuned").iterdir())[:1]
        for file in memory.parent.iterdir():
            file.write_text("{")
        self.assertIn("each trial runs", self.tune(*options).out)

    def test_options_of_the_user_stay(self):
        program.write_pictures(self.input, 60)
        figures = self.figures("--trials", 2, "--pairs", 0, "--seconds", 0.1, "--set", "threads.workers=1", "--set", "gate.frames=16")
        self.assertEqual(set(figures["trials"][0]["settings"]), {"batch.size"})
        recipe = yaml.safe_load(self.tuned.read_text())
        self.assertEqual((recipe["threads"]["workers"], recipe["gate"]["frames"]), (1, 16))
        done = self.tune(*(word for option in ("batch.size", "threads.workers", "gate.frames") for word in ("--set", f"{option}=16")), "--set", "gate.frames=32", code=program.USAGE)
        self.assertIn("every option that `millrace tune` could change is set", done.err)
        # The settings that `millrace run` prints name every option. Those that are 0 are still free.
        printed = program.millrace("run", self.recipe, "--input", self.input, "--set", "threads.workers=1", "--print-config")
        recipe = self.write("printed.yaml", printed.out)
        figures = self.figures("--trials", 1, "--seconds", 0.1, recipe=recipe)
        self.assertEqual(set(figures["trials"][0]["settings"]), {"batch.size", "gate.frames"})

    def test_limits_of_the_user_are_kept(self):
        """Two batches must pass the gate of the user, so no trial has larger batches."""
        program.write_pictures(self.input, 200)
        figures = self.figures("--trials", 6, "--pairs", 0, "--seconds", 0.1, "--set", "gate.frames=4", "--set", "threads.workers=1")
        self.assertTrue(all(trial["pictures_per_s"] for trial in figures["trials"]))
        self.assertLessEqual({trial["settings"]["batch.size"] for trial in figures["trials"]}, {"1", "2"})

    def test_a_latency_that_nothing_keeps(self):
        program.write_pictures(self.input, 60)
        done = self.tune("--for", "latency:0.001ms", "--trials", 2, "--seconds", 0.1, code=program.USAGE)
        self.assertIn("no trial kept the latency of 0.001 ms; the lowest was", done.err)
        self.assertFalse(self.tuned.exists())

    def test_models(self):
        """With a simulated GPU, whose calls take the times of a table."""
        program.write_pictures(self.input, 200)
        table = program.ROOT / "bench/host/h200.yaml"
        models = ["--detector", program.package("yolov8n"), "--segmenter", program.package("mobile_sam")]
        recipe = self.write("full.yaml", "stages: [decode, preprocess, detect, segment, postprocess, encode]\n")
        figures = self.figures("--trials", 3, "--pairs", 1, "--seconds", 0.5, "--engine", f"simulated:{table}", *models, recipe=recipe)
        self.assertLessEqual({"batch.size", "threads.lanes", "threads.workers", "gate.frames", "segment.box_batch"}, set(figures["trials"][0]["settings"]))
        self.assertEqual(figures["trials"][0]["settings"]["batch.size"], "16")

    def test_defaults_that_fail(self):
        program.write_pictures(self.input, 10)
        (self.folder / "bad").mkdir()
        for i in range(3):
            (self.folder / f"bad/{i}.jpg").write_bytes(b"no picture")
        done = program.millrace("tune", self.recipe, "--input", self.folder / "bad", "--output", self.tuned, env=self.environment)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("every picture of the sample failed", done.err)
        done = self.tune("--set", "output.reduce=nothing", code=program.USAGE)
        self.assertIn("nothing", done.err)
        self.assertFalse(self.tuned.exists())

    def test_wrong_use(self):
        program.write_pictures(self.input, 1)
        for options, says in ((["--for", "speed"], "--for is 'speed'"), (["--for", "latency:5"], "--for is 'latency:5'"), (["--for", "latency:-1s"], "--for is"),
                              (["--output", "tuned.jpg"], "must end in .yaml"), (["--trials", "0"], "--trials is '0'"), (["--pairs", "x"], "--pairs is 'x'"),
                              (["--seconds", "nan"], "--seconds is 'nan'"), (["--dry-run"], "has no effect here"), (["--input", "-"], "cannot read names from stdin"),
                              (["--trials"], "--trials needs a value"), (["--json", "x/y.json"], "does not exist")):
            with self.subTest(options):
                self.assertIn(says, self.tune(*options, code=program.USAGE).err)
        done = program.millrace("tune", "--input", self.input)
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("add --output tuned.yaml", done.err)
        odd = os.fsencode(self.folder) + b"/caf\xe9"
        os.rename(self.input, odd)
        done = program.millrace("tune", self.recipe, "--input", odd, "--output", self.tuned)
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("is not UTF-8", done.err)
        (self.folder / "empty").mkdir()
        self.assertEqual(program.millrace("tune", self.recipe, "--input", self.folder / "empty", "--output", self.tuned).code, program.USAGE)

    def test_stop(self):
        """The signal comes during the first trial. Neither the trial nor its folder stays."""
        original = program.write_picture(self.folder / "one.jpg", 1600, 1200)
        self.input.mkdir()
        for i in range(2000):
            os.link(original, self.input / f"{i:04}.jpg")
        for number, code in ((signal.SIGINT, program.INTERRUPTED), (signal.SIGTERM, program.TERMINATED)):
            with self.subTest(number):
                command = [program.PROGRAM, *map(str, self.arguments("--seconds", 60, "--again"))]
                process = subprocess.Popen(command, env=os.environ | self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                process.stdout.readline()  # the pilot has ended, and the trial begins
                while not list(self.folder.glob(".tmp-tune-*/defaults/segments")):
                    self.assertIsNone(process.poll())
                    time.sleep(0.01)
                (trial,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                process.send_signal(number)
                out, err = process.communicate(timeout=120)
                self.assertFalse(Path(f"/proc/{trial}").exists())
                self.assertEqual(process.returncode, code, out + err)
                self.assertIn("no recipe is written", err)
                self.assertEqual(list(self.folder.glob(".tmp-*")), [])
                self.assertFalse(self.tuned.exists())


if __name__ == "__main__":
    program.main()
