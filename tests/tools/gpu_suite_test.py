"""The suite for machines with a GPU, rehearsed on this CPU: every part runs and leaves its records, and they become tables and plots."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ["MILLRACE_PROGRAM"]
PACKAGES = pathlib.Path(os.environ["MILLRACE_TEST_PACKAGES"])


class Rehearsal(unittest.TestCase):
    def test_every_part_runs_and_is_not_repeated(self):
        with tempfile.TemporaryDirectory() as folder:
            bundle, inputs = pathlib.Path(folder, "bundle"), pathlib.Path(folder, "inputs")
            (bundle / "bin").mkdir(parents=True)
            (bundle / "bin/millrace").symlink_to(PROGRAM)
            (bundle / "commit").write_text("0123\n")
            for script in ("peers.py", "imaging.py", "nvjpeg.py"):
                shutil.copy(SOURCE / "bench/gpu" / script, bundle)
            inputs.mkdir()
            subprocess.run([sys.executable, SOURCE / "models/demo/scenes.py", inputs / "pictures", "--scenes", "1"], check=True, stdout=subprocess.DEVNULL)
            (inputs / "yolov8n.pkg").symlink_to(PACKAGES / "yolov8n.pkg")
            (inputs / "mobile_sam.pkg").symlink_to(PACKAGES / "sam_small.pkg")  # a small one in its place
            results = pathlib.Path(folder, "results.json")
            suite = [sys.executable, SOURCE / "bench/gpu/suite.py", "correct", "models", "e2e", "peers", "decode", "--rehearse", "--inputs", inputs, "--out", results]
            done = subprocess.run(suite, env={**os.environ, "MILLRACE_BUNDLE": str(bundle)}, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            records = json.loads(results.read_text())["records"]
            count = {what: sum(record["what"] == what for record in records) for what in {record["what"] for record in records}}
            self.assertEqual({what: count[what] for what in ("parity", "roof", "model", "e2e", "peer")}, {"parity": 1, "roof": 5, "model": 3, "e2e": 3, "peer": 3})
            self.assertGreaterEqual(count["decode"], 1)
            (hardware,) = (record for record in records if record["what"] == "hardware decoder")
            self.assertIn("nvjpeg", hardware["absent"].lower())
            for record in records:
                if record["what"] == "peer":
                    self.assertTrue(record["dtype"])
                if record["what"] == "peer" and record["tool"] != "millrace":
                    self.assertLessEqual(record["ratio_spread"][0], record["millrace_is_faster_by"])
                    self.assertTrue(all(record[setting] for setting in ("batch", "workers", "imaging", "compiled", "pictures")))
            (parity,) = (record for record in records if record["what"] == "parity")
            self.assertEqual((parity["without_partner"], parity["mask_iou_min"], parity["waits"]), (0, 1.0, 6))  # three views, a batch each
            for record in records:
                if record["what"] in ("e2e", "peer", "decode"):
                    self.assertGreater(record["pictures_per_s"], 0)
                    self.assertLessEqual(record["spread"][0], record["pictures_per_s"])
                if record["what"] == "e2e":
                    self.assertEqual(record["boxes_per_picture"], 3 if "options" not in record else 10)
                    self.assertIn("gpu_demand", record)
                    self.assertTrue(record["verdict"])

            again = subprocess.run(suite, env={**os.environ, "MILLRACE_BUNDLE": str(bundle)}, capture_output=True, text=True, check=False)
            self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
            self.assertEqual(json.loads(results.read_text())["records"], records)

            tables = subprocess.run([sys.executable, SOURCE / "bench/gpu/tables.py", results, "--images", folder], capture_output=True, text=True, check=False)
            self.assertEqual(tables.returncode, 0, tables.stderr)
            for part in ("a rehearsal", "| mobile_sam | encode |", "| 3 | files |", "| the usual script |", "JPEG decoder: absent, ", "memcheck: not run"):
                self.assertIn(part, tables.stdout)
            self.assertEqual(pathlib.Path(folder, "gpu-e2e.png").read_bytes()[:4], b"\x89PNG")


if __name__ == "__main__":
    unittest.main(verbosity=2)
