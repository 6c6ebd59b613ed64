"""The path of a GPU, on a stream that does its work when it is waited for: the results of the CPU, to the byte."""

import shutil

import program
from program import Case, millrace


class FakeDevice(Case):
    def run_on(self, device, *more, code=program.OK):
        out = self.folder / f"out-{device.replace(':', '')}"
        self.run_ok("--input", self.folder / "in", "--output", out, "--device", device, "--detector", program.package("yolov8n"),
                    "--segmenter", program.package("sam_small"), "--set", "threads.team=1", "--set", "detect.conf=0.001",
                    "--set", "detect.max_detections=5", *more, code=code)
        return out

    def test_results_are_those_of_the_cpu(self):
        program.write_pictures(self.folder / "in", 9, 90, 70)
        program.write_picture(self.folder / "in/large.jpg", 300, 200, seed=77)
        (self.folder / "in/broken.jpg").write_bytes((self.folder / "in/large.jpg").read_bytes()[:900])
        # A batch of nothing but the broken picture is not shown to the models.
        for batches, more in ((10, ()), (3, ("--set", "batch.size=4", "--set", "segment.box_batch=7"))):
            with self.subTest(more):
                for folder in self.folder.glob("out-*"):
                    shutil.rmtree(folder)
                on_cpu = self.run_on("cpu", *more, code=program.SOME_FAILED)
                for device in ("fake:1", "fake:2"):
                    on_device = self.run_on(device, *more, code=program.SOME_FAILED)
                    self.assertEqual((on_device / "segments/000000.jsonl").read_bytes(), (on_cpu / "segments/000000.jsonl").read_bytes())
                    calls = program.report(on_device)["calls"]
                    self.assertEqual(calls["uploads"], 10)
                    self.assertEqual(calls["waits"], 2 * batches)
                    self.assertEqual(calls["downloads"], batches)  # each has objects
                    self.assertEqual(calls["overflows"], 0)

    def test_device_is_part_of_the_plan(self):
        program.write_pictures(self.folder / "in", 2, 90, 70)
        out = self.run_on("cpu")
        done = millrace("run", "--input", self.folder / "in", "--output", out, "--device", "fake:1", "--detector", program.package("yolov8n"),
                        "--segmenter", program.package("sam_small"), "--set", "threads.team=1", "--set", "detect.conf=0.001",
                        "--set", "detect.max_detections=5")
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertIn('device: "cpu" in the plan, "fake" now', done.err)

    def test_words_that_name_no_device(self):
        program.write_pictures(self.folder / "in", 1, 90, 70)
        for device in ("gpu", "cuda:", "cuda:x", "cuda:0,", "cuda:0,0", "cuda:-1", "fake:0", ""):
            done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "o", "--device", device)
            self.assertEqual(done.code, program.USAGE, (device, done))
            self.assertIn("auto, cpu, cuda, cuda:0,1 or cuda:all", done.err)


if __name__ == "__main__":
    program.main()
