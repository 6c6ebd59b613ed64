"""A rehearsal of the suite for GPU machines on the fake CUDA runtime: its code for GPUs runs, in Python too.

LibTorch's kernels do nothing there. So figures and verdicts mean nothing, and each record says that it is of a rehearsal.
"""

import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import gpu_suite_test  # noqa: E402
import torch  # noqa: E402
from gpu_suite_test import SOURCE, identity  # noqa: E402

FAKE = Path(os.environ["MILLRACE_PROGRAM"]).resolve().parent


class OnFakeCuda(gpu_suite_test.SuiteCase):
    where = "cuda"
    # Python and its children load the fake runtime before LibTorch asks for the real one. Triton looks for the driver.
    environment = {"LD_PRELOAD": str(FAKE / "libcudart.so.13"), "TRITON_LIBCUDA_PATH": str(FAKE), "MILLRACE_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}

    def setUp(self):
        super().setUp()
        for program in ("bench_look", "cuda_test"):
            file = self.bundle / "bin" / program
            file.unlink(missing_ok=True)
            file.symlink_to(FAKE / f"{program}_on_fake_cuda")
        self.environment = self.environment | {"XDG_STATE_HOME": str(self.folder / "state"), "TRITON_CACHE_DIR": str(self.folder / "triton")}
        self.draw()

    def rehearsed(self, *words):
        """The records of these parts. All of them must be there, and none may have failed."""
        self.suite(0, *words, "--short", "--out", self.results)
        records = self.records()
        self.assertEqual({record["rehearsal"] for record in records}, {"cuda"})
        self.assertEqual([record for record in records if "failed" in record], [])
        self.assertEqual(len(set(map(identity, records))), len(records))
        return records

    def test_what_the_machine_can_do(self):
        records = self.rehearsed("look")
        figures = [(record["method"], record.get("options")) for record in records if "value" in record]
        for method, what in (("copies to the GPU", "stream"), ("copies to the host", "stream"), ("launches", "thread")):
            self.assertEqual([options for name, options in figures if name == method], [f"1 {what}", f"2 {what}s", f"3 {what}s"])
        kernels = [record for record in records if record["method"] == "kernels"]
        self.assertEqual([record["options"] for record in kernels], ["letterbox to 64", "letterbox to 96", "boxes and NMS", "outlines of 2 masks"])
        for record in kernels:
            self.assertAlmostEqual(record["limit"], record["bytes"] / 4.8e6)

    def test_the_checks_of_results_run_to_their_end(self):
        records = {record["what"]: record for record in self.rehearsed("correct")}
        self.assertEqual(sorted(records), ["kernels", "parity", "precision", "same bytes", "two devices"])
        self.assertTrue(records["kernels"]["passed"])
        self.assertEqual((records["parity"]["batches"], records["parity"]["waits"], records["parity"]["uploads"]), (3, 6, 3))
        self.assertEqual(records["two devices"]["devices"], 2)
        same = records["same bytes"]
        self.assertEqual((same["pictures"], same["ways"]), (20, [*(f"{lanes} lanes{graphs}" for lanes in (1, 2, 3) for graphs in ("", ", graphs")), "resumed"]))
        for way, launches in same["graph_launches"].items():
            self.assertEqual(launches > 0, "graphs" in way, way)

    def test_models_are_timed_in_each_way_as_plain_calls_and_as_graphs(self):
        records = self.rehearsed("levers", "profile", "models")
        calls = [("mobile_sam", "encode", 1), ("mobile_sam", "decode", 2), ("mobile_sam", "decode", 1), ("yolov8n", "forward", 1)]
        timed = [(record["options"], record["package"], record["method"], record["rows"]) for record in records if record["what"] == "lever"]
        self.assertEqual(timed, [(way, *call) for way in ("torchscript, channels last", "torchscript", "torchscript, channels last, graph") for call in calls])
        count = {what: sum(record["what"] == what for record in records) for what in ("profile", "roof", "model")}
        self.assertEqual(count, {"profile": len(calls), "roof": 5, "model": 8})

    def test_models_are_compiled_for_the_gpu_and_called_plainly_and_as_graphs(self):
        (self.inputs / "yolov8n.pkg").unlink()  # compiling it takes longer
        self.exporters()
        ncu = self.folder / "path/ncu"
        ncu.parent.mkdir()
        ncu.symlink_to(SOURCE / "tests/gpu/fake_cuda/ncu.py")
        self.environment |= {"PATH": f"{ncu.parent}:{os.environ['PATH']}"}
        self.suite(1, "compile", "levers", "dram", "--short", "--out", self.results)
        records = self.records()
        failed = [record for record in records if "failed" in record]
        self.assertEqual([(record["what"], record["options"]) for record in failed], [("verify", "plain"), ("verify", "torchscript")])
        for record in failed:  # masks are empty here
            self.assertIn("nothing to compare", record["failed"])
        self.assertTrue(list(self.inputs.glob("variants-plain/cuda-sm_90-bf16-*/encode_1.so")))
        compiled = [(record["options"], record["method"], record["rows"]) for record in records if record["what"] == "lever" and record["options"].startswith("compiled")]
        self.assertEqual(compiled, [(way, *call) for way in ("compiled, plain", "compiled, plain, graph") for call in (("encode", 1), ("decode", 2))])
        self.check_traffic([record for record in records if record["what"] == "dram"])

    def check_traffic(self, records):
        self.assertEqual([(record["method"], record["batch"]) for record in records], [("encode", 1), ("decode", 2)])
        for record in records:  # each launch has 1,000 bytes and 1,000 ns
            self.assertGreater(record["launches"], 10)
            self.assertEqual(record["dram_bytes"], 1000 * record["launches"])
            self.assertAlmostEqual(record["kernels_ms"], record["launches"] / 1e3)
            self.assertTrue(any(name.startswith("triton_") for name, *_ in record["kernels"]), record["kernels"])

    def test_the_program_runs_with_boxes_and_in_windows(self):
        records = self.rehearsed("e2e", "windows")
        runs = [record for record in records if record["what"] == "e2e"]
        self.assertEqual({record["source"] for record in runs}, {"files", "memory"})
        for record in runs:
            self.assertEqual((record["run"]["settings"]["device"], record["boxes_per_picture"]), ("cuda sm_90", 10))
            self.assertGreater(record["pictures_per_s"], 0)
        self.assertEqual([(record["package"], record["windows"]) for record in records if record["what"] == "windows"], [("picture", 9), ("volume", 1)])

    def test_scripts_and_decoders_are_measured(self):
        records = self.rehearsed("peers", "decode")
        peers = {record["tool"]: record for record in records if record["what"] == "peer"}
        self.assertEqual(list(peers), ["millrace", "the usual script", "a tuned script"])
        self.assertTrue(all(record["pictures_per_s"] > 0 and record["turns"] == 2 for record in peers.values()))
        tuned = peers["a tuned script"]["settings"]  # torch.compile would take minutes here
        self.assertEqual(set(tuned["tried"]), {"torch.jit.freeze, no fuser", "torch.jit.freeze, no fuser, CUDA graph"})
        self.assertTrue(all(isinstance(milliseconds, float) for milliseconds in tuned["tried"].values()), tuned)
        self.assertEqual(next(record["workers"] for record in records if record["what"] == "decode"), 1)
        self.assertEqual([record["what"] for record in records if "absent" in record], ["hardware decoder"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
