"""bench/peers: a small comparison, and how the tuned script chooses its steps."""

import json
import os
import sys
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench/peers"
sys.path[:0] = [str(PEERS), str(ROOT / "tests/apps")]

import common  # noqa: E402
import compare  # noqa: E402
import numpy  # noqa: E402
import program  # noqa: E402
import torch  # noqa: E402
import tuned  # noqa: E402


class Steps(unittest.TestCase):
    """With programs that only pretend: `costs` has the seconds of each step, and a clock that they move."""

    def table(self, costs):
        clock = [0.0]

        def build(steps):
            def run(items):
                if "broken" in steps:
                    raise RuntimeError("does not work here")
                clock[0] += len(items) * (10 + sum(costs[step].pop(0) if isinstance(costs[step], list) else costs[step] for step in steps))

            return run

        with unittest.mock.patch.object(tuned.time, "perf_counter", lambda: clock[0]):
            return tuned.tune(build, [1, 2], list(costs))

    def test_a_step_is_kept_if_it_is_faster_at_all_and_counts_from_then_on(self):
        table = self.table({"a": -0.01, "b": 0.01, "c": 0, "d": -5})
        self.assertEqual([entry["kept"] for entry in table], [True, False, False, True])
        self.assertEqual([entry["without"] for entry in table], [10, 9.99, 9.99, 9.99])
        self.assertEqual({entry["pairs"] for entry in table}, {tuned.PAIRS})

    def test_single_slow_runs_decide_nothing_and_slow_steps_end_early(self):
        # The first value is the run that compiles.
        table = self.table({"hopeless": [0, 5, 5], "unlucky": [90, 90, -1, -1, -1, 90]})
        self.assertEqual([(entry["kept"], entry["pairs"]) for entry in table], [(False, tuned.ENOUGH), (True, tuned.PAIRS)])

    def test_a_step_that_fails_is_not_kept(self):
        table = self.table({"broken": 0, "b": -1})
        self.assertEqual([entry["kept"] for entry in table], [False, True])
        self.assertIn("does not work here", table[0]["error"])


class Masks(unittest.TestCase):
    def test_opencv_makes_the_masks_of_the_usual_script(self):
        logits = torch.randn(3, 1, 64, 64, generator=torch.Generator().manual_seed(1))
        logits = torch.nn.functional.interpolate(logits, (256, 256), mode="bicubic")
        part, size = (700, 1024), (350, 512)
        for mask, expected in zip(logits[:, 0].numpy(), common.Sam.full_size(logits, part, size).numpy(), strict=True):
            found = tuned.by_opencv(mask, part, size)
            self.assertEqual(found.shape, size)
            self.assertTrue(found.flags.f_contiguous)
            self.assertLess(numpy.mean(found != expected), 1e-4)


class Pictures(program.Case):
    """Two large pictures with three boxes each."""

    def setUp(self):
        super().setUp()
        for name in "ab":
            program.write_picture(self.folder / "in" / f"{name}.jpg", 800, 760, seed=ord(name))
        self.pictures = sorted((self.folder / "in").iterdir())

    def test_steps_do_not_change_the_masks(self):
        items = list(common.items(compare.write_manifest(self.folder / "list.jsonl", self.pictures, 2, 3)))
        expected = tuned.Tuned([])(items)
        for steps in (["box_by_box", "masks_by_opencv", "one_thread"], ["channels_last", "decoder_traced", "one_encode", "pairs", "read_ahead"], ["workers"]):
            found = tuned.Tuned(steps)(items)
            self.assertEqual([len(masks) for masks in found], [3, 3])
            for masks, others in zip(found, expected, strict=True):
                text = [{**mask, "counts": mask["counts"].decode()} for mask in (*masks, *others)]
                self.assertGreater(compare.agreement(text[:3], text[3:]), 0.999, steps)

    def test_a_comparison_writes_what_it_measured(self):
        out = self.folder / "peers.json"
        command = ["compare.py", "--program", program.PROGRAM, "--packages", program.PACKAGES, "--pictures", self.folder / "in"]
        command += ["--boxes", "1", "--count", "1", "--turns", "1", "--torchscript", "--steps", "--out", out]
        scripts = {name: compare.SCRIPTS[name] for name in ("script", "tuned, tcmalloc")}  # each takes seconds to start
        with unittest.mock.patch.object(compare, "SCRIPTS", scripts), unittest.mock.patch.object(sys, "argv", [str(word) for word in command]):
            compare.main()
        record = json.loads(out.read_text())
        names = {*scripts, compare.MILLRACE}
        for key in ("seconds_per_picture", "peak_mb"):
            self.assertEqual(record[key]["1"].keys(), names)
            self.assertTrue(all(value > 0 for (value,) in record[key]["1"].values()))
        for key in ("load_s", "warm_up_s"):
            self.assertEqual(record[key]["1"].keys(), {compare.MILLRACE})
        self.assertEqual(record["settings"]["1"]["tuned, tcmalloc"], {"threads": os.cpu_count(), "steps": []})
        before, after = record["floors"]["1"]
        self.assertTrue(all(value > 0 for value in (*before.values(), *after.values())))
        self.assertLessEqual({"fp32_gflop_per_s", "copy_gb_per_s"}, before.keys() & after.keys())
        self.assertGreater(min(record["agreement"]["1"].values()), compare.SAME)


if __name__ == "__main__":
    program.main()
