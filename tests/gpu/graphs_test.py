"""Model calls as CUDA graphs (models.graphs=yes), on the CUDA runtime that computes nothing: what a run asks of a GPU."""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "apps")]

import program  # noqa: E402
from fake_cuda_test import BATCH, BOXES, FakeCudaCase, Waits, faults, operations  # noqa: E402
from packages_test import DETECTOR_YAML  # noqa: E402

GRAPHS = ("--set", "models.graphs=yes")


class Graphs(FakeCudaCase):
    def few_operations(self, batch):
        self.assertEqual(faults(batch), [])
        self.check_limits({"operations of a batch with graphs": operations(batch)})
        # The work of the graphs is there.
        self.assertGreater(batch["operations of graphs"], 300)

    def test_a_batch_of_graphs_asks_for_few_operations(self):
        batch = self.batch(*GRAPHS)
        self.few_operations(batch)
        calls = program.report(self.out)["calls"]
        self.assertEqual(batch["cudaGraphLaunch"], 3)  # the detector, the encoder and the decoder
        self.assertEqual(batch.get("cudaGraphInstantiate", 0), 0)
        self.assertGreaterEqual(calls["graphs_captured"], 3)
        self.assertGreaterEqual(calls["graph_launches"], 3 * 8)
        self.assertEqual([note for note in program.report(self.out)["notes"] if "CUDA graph" in note], [])

    def test_calls_whose_results_are_still_needed_have_graphs_of_their_own(self):
        """160 boxes in calls of 64, 64 and 32: outlines read the logits after all of them."""
        few, more = (self.run_on_fake(batches * BATCH, *GRAPHS, "--set", "segment.box_batch=64", name=f"{batches}-of-64") for batches in (3, 5))
        self.assertEqual(more["cudaGraphLaunch"] - few["cudaGraphLaunch"], 5 * (5 - 3))
        self.assertEqual(more["cudaGraphInstantiate"], few["cudaGraphInstantiate"])

    def test_a_batch_may_need_several_encoder_calls(self):
        """Their embeddings are one tensor."""
        few, more = (self.run_on_fake(batches * 2 * BATCH, *GRAPHS, "--set", "batch.size=32", "--set", "gate.frames=64", name=f"{batches}-of-32") for batches in (4, 6))
        # One call of the detector, and two each of the encoder and the decoder.
        self.assertEqual(more["cudaGraphLaunch"] - few["cudaGraphLaunch"], 2 * 5)
        self.assertEqual(more["cudaGraphInstantiate"], few["cudaGraphInstantiate"])

    def test_lanes_have_graphs_of_their_own(self):
        one, three = (self.run_on_fake(4 * BATCH, *GRAPHS, lanes=lanes, name=f"{lanes}-lanes")["cudaGraphInstantiate"] for lanes in (1, 3))
        self.assertEqual(three, 3 * one)
        self.assertEqual(program.report(self.out)["items"]["objects"], 4 * BATCH * BOXES)

    def test_compiled_models(self):
        package = Path(shutil.copytree(program.package("mobile_sam"), self.folder / "mobile_sam.pkg"))
        self.compiled(package, "--rows", BATCH, "--boxes", BATCH * BOXES)
        batch = self.batch(*GRAPHS, segmenter=package, engine="auto")
        self.few_operations(batch)
        self.assertEqual(batch.get("cuLaunchKernel", 0), 0)  # they are in graphs

    def test_a_graph_without_memory_leaves_plain_calls(self):
        found = []
        for megabytes in (1500, 2000, 8000):
            # Lanes capture while others run out of memory.
            self.run_on_fake(6 * BATCH, *GRAPHS, lanes=3, bytes_of_gpu=3 * megabytes << 20, name=f"{megabytes}mb-3-lanes")
            self.assertEqual(program.report(self.out)["items"]["ok"], 6 * BATCH, megabytes)
            self.run_on_fake(2 * BATCH, *GRAPHS, bytes_of_gpu=megabytes << 20, name=f"{megabytes}mb")
            figures = program.report(self.out)
            self.assertEqual(figures["items"]["ok"], 2 * BATCH, megabytes)
            found.append(any("there is not enough memory for a CUDA graph of this call" in note for note in figures["notes"]))
        self.assertTrue(any(found), found)
        self.assertFalse(found[-1], found)

    def test_a_model_that_waits_gets_plain_calls(self):
        package = self.make_package(Waits(), DETECTOR_YAML.replace("max_batch: 4", f"max_batch: {BATCH}"), "waits")
        batch = self.batch(*GRAPHS, detector=package)
        self.assertEqual([fault for fault in faults(batch) if fault.startswith("waits: 3 ")], ["waits: 3 instead of 2"])
        self.assertGreater(batch["cudaGraphLaunch"], 1)  # of the segmenter
        # LibTorch's allocator asks in each call, as long as it takes a capture for unfinished.
        self.assertEqual(batch.get("cudaStreamGetCaptureInfo", 0), 0)
        (note,) = (note for note in program.report(self.out)["notes"] if "CUDA graph" in note)
        self.assertIn(f"forward [{BATCH}, 3, 64, 64]: its work cannot be captured as a CUDA graph", note)

    def test_graphs_need_a_gpu(self):
        done = program.millrace("run", "--input", self.pictures(1), "--output", self.folder / "out", *GRAPHS, "--device", "cpu", "--segmenter", program.package("sam_small"))
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("models.graphs needs a GPU", done.err)


if __name__ == "__main__":
    program.main()
