"""bench/insight/real.py: what it calls the truth, and when a verdict is right. Nothing runs: a fake runner has the rates."""

import contextlib
import dataclasses
import io
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/insight"))

import real  # noqa: E402
import scenery  # noqa: E402
import surroundings  # noqa: E402
import what_if_runs  # noqa: E402
from cases import CASES, Case, Change  # noqa: E402
from one_run import Setup  # noqa: E402


class FakeRunner:
    """Runs whose rate depends on the number of workers, which tells the changes apart."""

    def __init__(self, rates, named):
        self.rates, self.named, self.order = rates, named, []

    def run(self, setup, keep=None):
        del keep
        workers = setup.options.get("threads.workers", 0)
        self.order.append(workers)
        stages = {"decode": {"ms": 8.0 / (workers or 1), "core_ms": 7.0 / (workers or 1), "busy": 0.5}}
        return {"pictures_per_s": self.rates[workers], "named": self.named, "sentence": "", "stages": stages, "strangers": 0.0, "other_cores": 0}


def case(**more):
    changes = {"decode": Change({"options": {"threads.workers": 2}}), "gate": Change({"options": {"threads.workers": 3}})}
    return Case("a case", Setup(pictures=1), changes | more)


def judged(named, base=10, decode=20, gate=15, **more):
    return real.judged(case(**more), FakeRunner({0: base, 2: decode, 3: gate, 4: 30}, named), 2)


class Truth(unittest.TestCase):
    def test_the_change_with_the_highest_rate_is_the_truth(self):
        found = judged("decode")
        self.assertEqual((found["truth"], found["right"]), ("decode", True))
        self.assertEqual(found["changes"]["decode"]["times"], 2)
        self.assertFalse(judged("gate")["right"])

    def test_within_five_percent_is_a_tie(self):
        self.assertTrue(judged("gate", gate=19.1)["right"])
        self.assertFalse(judged("gate", gate=18.9)["right"])

    def test_a_verdict_that_names_nothing_is_right_if_nothing_helps(self):
        self.assertTrue(judged("", decode=10.4, gate=9)["right"])
        self.assertFalse(judged("")["right"])

    def test_a_name_without_a_change_counts_as_no_gain(self):
        self.assertFalse(judged("segment")["right"])

    def test_if_every_change_harms_the_run_as_it_is_counts_as_best(self):
        found = judged("decode", decode=8, gate=9)
        self.assertEqual((found["truth"], found["right"]), ("", False))

    def test_disk_reads_and_writes_mean_the_change_of_the_disk(self):
        slow = Change({"options": {"threads.workers": 4}, "disk": {"read_bps": 1}})
        self.assertTrue(judged("disk reads", read=slow)["right"])
        self.assertFalse(judged("disk writes", read=slow)["right"])
        self.assertFalse(judged("disk reads")["right"])

    def test_the_factor_of_a_stage_is_measured(self):
        self.assertEqual(judged("decode")["changes"]["decode"]["stage_times_as_fast"], 2)

    def test_every_second_turn_goes_backwards(self):
        runner = FakeRunner({0: 1, 2: 1, 3: 1}, "")
        real.judged(case(), runner, 3)
        self.assertEqual(runner.order, [0, 2, 3, 3, 2, 0, 0, 2, 3])


class Lists(unittest.TestCase):
    def test_there_are_20_cases_and_half_of_them_are_disturbed(self):
        self.assertEqual(len(CASES), 20)
        self.assertGreaterEqual(sum(one.disturbed for one in CASES), 10)
        self.assertEqual(sum(len(one.changes) for one in what_if_runs.BASES), 49)

    def test_every_change_changes_the_setup(self):
        for one in (*CASES, *what_if_runs.BASES):
            for name, change in one.changes.items():
                with self.subTest(one.name, change=name):
                    self.assertNotEqual(dataclasses.replace(one.setup, **change.changed), one.setup)

    def test_changed_options_keep_the_other_options_of_the_case(self):
        for one in (*CASES, *what_if_runs.BASES):
            for name, change in one.changes.items():
                with self.subTest(one.name, change=name):
                    self.assertLessEqual(set(one.setup.options), set(change.changed.get("options", one.setup.options)))


class Predictions(unittest.TestCase):
    def compared(self, answer):
        """A comparison with a program that is a shell script."""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text(f"#!/bin/sh\n{answer}\n")
            program.chmod(0o755)
            arguments = types.SimpleNamespace(program=program, work=Path(folder), turns=1, only=None)
            bases = (what_if_runs.Base("b", Setup(pictures=1), {"decode x": Change({"options": {"threads.workers": 2}})}),)
            record = {"bases": []}
            with unittest.mock.patch.object(what_if_runs, "BASES", bases), contextlib.redirect_stdout(io.StringIO()):
                for _ in what_if_runs.compare(arguments, FakeRunner({0: 10, 2: 20}, ""), record):
                    pass
            return record

    def test_error_and_coverage(self):
        record = self.compared("""echo '{"changes": [{"change": "'"$4"'", "pictures_per_s": 18, "low": 17, "high": 21}]}'""")
        (change,) = record["bases"][0]["changes"]
        self.assertEqual((change["change"], change["error"], change["covered"]), ("decode x2.0", -0.1, True))
        self.assertEqual((record["median_error"], record["covered"]), (0.1, 1))

    def test_a_change_that_the_program_refuses_counts_as_not_predicted(self):
        record = self.compared("echo 'unknown change' >&2; exit 2")
        self.assertIn("unknown change", record["bases"][0]["changes"][0]["refused"])
        self.assertEqual((record["changes"], record["predicted"]), (1, 0))


class Surroundings(unittest.TestCase):
    def test_without_root_quota_and_disk_are_left_out(self):
        with unittest.mock.patch.object(surroundings.os, "geteuid", lambda: 1000):
            self.assertIn("root", surroundings.why_not_root(True, True))

    def test_busy_programs_end_with_their_owner(self):
        hogs = surroundings.Hogs(1, 0, {min(surroundings.os.sched_getaffinity(0))})
        hogs.end()
        self.assertIsNotNone(hogs.processes[0].returncode)

    def test_cheaper_pictures_are_spread_evenly(self):
        made = {form: [Path(f"/{form}-{number}") for number in range(scenery.COUNT)] for form in scenery.FORMS}
        with tempfile.TemporaryDirectory() as folder:
            paths = scenery.links(Path(folder) / "pictures", made, "huge", 8, 0.5)
            cheap = [path.readlink().name.startswith("huge plain") for path in paths]
        self.assertEqual(cheap, [False, True] * 4)


if __name__ == "__main__":
    unittest.main()
