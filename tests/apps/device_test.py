"""The path of a GPU, on a fake stream that works only when it is waited for. The results have the bytes of the CPU."""

import csv
import hashlib
import json
import os
import shutil
import struct
import unittest
import unittest.mock
from pathlib import Path

import torch
from packages_test import DETECTOR_YAML, ModelCase

import program
import small_semantic
from program import Case, millrace


class LostDevice(torch.nn.Module):
    """Finds nothing. A white picture makes it lose the device."""

    def forward(self, images):
        if bool(images.mean(dim=[1, 2, 3]).max() > 0.9):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return torch.zeros([images.shape[0], 6, 84])


class LargeActivations(torch.nn.Module):
    """Finds one object. Its score is a norm over values up to 50,000, whose squares overflow fp16."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, images):
        out = torch.zeros([images.shape[0], 6, 84], dtype=images.dtype)
        out[:, 0:2, 0], out[:, 2:4, 0] = 30, 20
        values = 50000 * torch.nn.functional.pad(images.mean(dim=[2, 3]), [0, 1])
        out[:, 4, 0] = torch.sigmoid(self.norm(values)[:, 0])
        return out


class FakeDevice(Case):
    def run_on(self, device, *more, code=program.OK, name="out"):
        out = self.folder / f"{name}-{device.replace(':', '')}"
        self.run_ok("--input", self.folder / "in", "--output", out, "--device", device, "--detector", program.package("yolov8n"),
                    "--segmenter", program.package("sam_small"), "--set", "threads.team=1", "--set", "detect.conf=0.001",
                    "--set", "detect.max_detections=5", *more, code=code)
        return out

    def test_results_are_those_of_the_cpu(self):
        program.write_pictures(self.folder / "in", 9, 90, 70)
        program.write_picture(self.folder / "in/large.jpg", 300, 200, seed=77)
        (self.folder / "in/broken.jpg").write_bytes((self.folder / "in/large.jpg").read_bytes()[:900])
        # The models never get a batch that has only the broken picture.
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
                    self.assertEqual(calls["downloads"], batches)  # each batch has objects
                    self.assertEqual(calls["overflows"], 0)
                    made = program.report(on_device)["device_calls"]
                    expected = {"uploads_per_picture": 1, "downloads_per_batch": 1, "waits_per_batch": 2}
                    self.assertEqual(made, {**expected, "pictures": 10, "batches": batches, "overflows_per_batch": 0, "expected": expected})
                self.assertIsNone(program.report(on_cpu)["device_calls"])

    def test_windows_have_the_results_of_the_cpu(self):
        """Pictures that are decoded whole and in parts, and a volume: one upload for each or for each slab, one download for each slab."""
        program.write_picture(self.folder / "pictures/a.png", 90, 70)
        program.write_picture(self.folder / "pictures/b.tif", 70, 400, compression="tiff_lzw")
        header = bytearray(352)
        struct.pack_into("<i", header, 0, 348)
        struct.pack_into("<8h", header, 40, 3, 30, 28, 40, 1, 1, 1, 1)
        struct.pack_into("<2h", header, 70, 2, 8)  # bytes
        struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 1, 0, 0, 0)
        struct.pack_into("<f", header, 108, 352)
        header[344:348] = b"n+1\0"
        self.write("volumes/a.nii", bytes(header) + bytes(i * i % 251 for i in range(30 * 28 * 40)))
        for recipe, folder, package, settings in (("tiled", "pictures", small_semantic.make(self.folder), ("batch.size=2", "tiles.overlap=0.5")),
                                                  ("volume", "volumes", small_semantic.make_volumes(self.folder), ("tiles.roi=16",))):
            outputs = []
            for device in ("cpu", "fake:1"):
                out = self.folder / f"{recipe}-{device[:4]}"
                settings_of_all = (*settings, f"semantic.model={package}", "semantic.window_batch=4", "threads.team=1")
                self.run_ok(program.ROOT / f"configs/{recipe}.yaml", "--input", self.folder / folder, "--output", out, "--device", device,
                            *(word for one in settings_of_all for word in ("--set", one)))
                kinds = ("segments/000000.jsonl", "labels/", "label_volumes/")
                outputs.append({file: digest for file, digest in program.tree(out).items() if file.startswith(kinds)})
            self.assertEqual(*outputs)
            report = program.report(out)
            calls, whole = report["calls"], 1 if recipe == "tiled" else 0
            self.assertGreater(calls["slabs_in"], 1)
            self.assertGreater(calls["slabs_out"], 1)
            self.assertEqual((calls["uploads"], calls["downloads"]), (whole + calls["slabs_in"], whole + calls["slabs_out"]))
            self.assertEqual(calls["waits"], 1 + calls["slabs_out"])
            self.assertNotIn("copied or waited more often", json.dumps(report["notes"]))

    def test_the_report_has_the_drivers_values_of_a_gpu(self):
        """A fake library of the driver knows the first of two GPUs."""
        program.write_pictures(self.folder / "in", 2, 90, 70)
        with unittest.mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": os.path.dirname(os.environ["MILLRACE_FAKE_NVML"])}):
            out = self.run_on("fake:2")
        (log,) = out.glob("runs/*/resources.csv")
        with log.open(newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertGreaterEqual(len(rows), 1)
        for row in rows:
            self.assertGreater(int(row["resident_bytes"]), 1 << 20)
            self.assertGreaterEqual(float(row["cores_busy"]), 0)
            self.assertEqual((row["gpu0_utilisation_percent"], row["gpu0_memory_used_bytes"], row["gpu0_sm_mhz"], row["gpu0_memory_mhz"],
                              row["gpu0_power_w"], row["gpu0_temperature_c"], row["gpu0_heat_limited"], row["gpu0_power_limited"]),
                             ("87", "600", "1980", "3201", "", "61", "0", "1"))
            self.assertEqual({row[name] for name in row if name.startswith("gpu1_")}, {""})
        first, second = program.report(out)["gpus"]
        self.assertEqual(first, {"bus": "fake:0", "mean_utilisation": 0.87, "peak_memory_bytes": 600, "mean_sm_mhz": 1980, "mean_memory_mhz": 3201,
                                 "mean_power_w": None, "peak_temperature_c": 61, "heat_limited": 0, "power_limited": 1})  # a value that the driver does not give is not 0
        self.assertEqual({name for name, value in second.items() if value is not None}, {"bus"})

    def test_without_a_gpu_its_columns_are_left_out(self):
        program.write_pictures(self.folder / "in", 1, 90, 70)
        (log,) = self.run_on("cpu").glob("runs/*/resources.csv")
        with log.open(newline="") as file:
            rows = list(csv.DictReader(file))
        row = rows[0]
        self.assertFalse([name for name in row if name.startswith("gpu")])
        self.assertEqual([name for name in row if name.startswith("queue_")],
                         ["queue_read", "queue_bytes", "queue_decode", "queue_batch", "queue_lane", "queue_encode", "queue_commit"])
        self.assertEqual((rows[-1]["pictures"], rows[-1]["in_flight"]), ("1", "0"))
        for name in ("other_cores", "stolen_cores", "throttled_cores", "cpu_stall", "memory_stall", "io_stall", "disk_read_bytes_per_s",
                     "disk_written_bytes_per_s", "cpu_mhz", "temperature_c"):
            if row[name]:  # a figure that the system does not provide is empty
                self.assertGreaterEqual(float(row[name]), 0, name)

    def test_device_is_part_of_the_plan(self):
        program.write_pictures(self.folder / "in", 2, 90, 70)
        out = self.run_on("cpu")
        done = millrace("run", "--input", self.folder / "in", "--output", out, "--device", "fake:1", "--detector", program.package("yolov8n"),
                        "--segmenter", program.package("sam_small"), "--set", "threads.team=1", "--set", "detect.conf=0.001",
                        "--set", "detect.max_detections=5")
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertIn('device: "cpu" in the plan, "fake" now', done.err)

    @unittest.skipIf(program.SANITIZED, "gpu_test writes inputs in 16 bits, torch_engine_test calls models in them")
    def test_models_in_16_bits(self):
        """The models get the pictures in their type, and the objects hardly change."""
        program.write_pictures(self.folder / "in", 4, 90, 70)
        wide = program.lines(self.run_on("fake:1"))
        for precision in ("bf16", "fp16"):
            with self.subTest(precision):
                out = self.run_on("fake:1", "--precision", precision, name=precision)
                for a, b in zip(wide, program.lines(out), strict=True):
                    self.assertEqual((a["path"], a["state"]), (b["path"], b["state"]))
                    self.assertEqual(len(a["objects"]), len(b["objects"]))
                self.assertEqual(json.loads(program.plan(out)["plan.json"])["settings"]["precision"], precision)

    def test_impossible_precisions_are_refused(self):
        program.write_pictures(self.folder / "in", 1, 90, 70)
        for precision, says in (("fp8", "a precision is auto, fp32, tf32, bf16 or fp16"), ("fp16", "models run on the CPU; use fp32 or bf16"), ("track=bf16", "with a task of: classify, detect, embed, regress, segment")):
            done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "o", "--device", "cpu", "--precision", precision)
            self.assertEqual(done.code, program.USAGE, done)
            self.assertIn(says, done.err)
            self.assertFalse((self.folder / "o").exists())

    def simulated(self, **changes):
        """A table whose GPU takes almost no time, except for `changes`."""
        table = {"name": "none", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
                 **{method: {"call_ms": 0, "each_ms": 0} for method in ("forward", "encode", "decode")}, **changes}
        return "simulated:" + str(self.write("table.yaml", json.dumps({key: value for key, value in table.items() if value is not None})))

    def test_a_simulated_engine_drives_the_path_of_a_gpu(self):
        boxes = [[5, 5, 30, 20], [20, 10, 40, 40], [1, 1, 80, 60]]
        program.write_pictures(self.folder / "in", 40, 90, 70)
        manifest = self.write("in/m.jsonl", "".join(json.dumps({"path": f"{i:04}.jpg", "boxes": boxes}) + "\n" for i in range(40)))
        out = self.folder / "out"
        engine = self.simulated(encode={"call_ms": 0, "each_ms": 10}, letterbox_ms=2, outline_ms=1, upload_gb_per_s=0.01, download_gb_per_s=0.005)
        self.run_ok("--input", manifest, "--output", out, "--engine", engine, "--detector", program.package("yolov8n"), "--segmenter",
                    program.package("sam_small"), "--set", "detect.skip_with_boxes=no")
        report = program.report(out)
        self.assertEqual(report["batch_size"], 16)
        calls = report["calls"]
        self.assertEqual((calls["uploads"], calls["waits"], calls["downloads"]), (40, 6, 3))
        self.assertEqual((calls["detector_calls"], calls["encoder_calls"], calls["decoder_calls"], calls["decoder_slots"]), (3, 3, 3, 64 + 64 + 32))
        (gpu,) = [resource for resource in report["run_window"]["resources"] if resource["name"] == "GPU"]
        busy = {part["name"]: part["busy_s"] for part in gpu["parts"] if part["busy_s"]}
        # Of the models, only the encoder takes time. Each picture has one input for each model. Masks are padded as the boxes.
        expected = {"encoder": 0.4, "preprocess operations": 2 * 40 * 0.002, "postprocess operations": calls["decoder_slots"] * 0.001}
        self.assertEqual(set(busy), set(expected))
        for name, seconds in expected.items():
            self.assertAlmostEqual(busy[name], seconds, delta=1e-6)
        self.assertAlmostEqual(gpu["busy_s"], sum(expected.values()), delta=1e-6)
        (lane,) = [resource for resource in report["run_window"]["resources"] if resource["name"] == "lane"]
        copied = {part["name"]: part["bytes"] for part in lane["parts"]}
        self.assertEqual(copied["preprocess"], 40 * 3 * 90 * 70)  # the pixels of each picture, once
        self.assertGreater(copied["postprocess"], 0)  # the masks
        for direction, stage, count, bytes_per_s in (("uploads", "preprocess", 40, 1e7), ("downloads", "postprocess", 3, 5e6)):
            (copies,) = [resource for resource in report["run_window"]["resources"] if resource["name"] == f"GPU {direction}"]
            (part,) = copies["parts"]
            self.assertEqual((part["name"], part["items"], copies["items"], copies["concurrency"]), (f"{stage} {direction}", count, count, 1))
            for row in (copies, part):
                self.assertAlmostEqual(row["busy_s"], copied[stage] / bytes_per_s, delta=0.02 * row["busy_s"])
                self.assertEqual(set(row) & {"starved", "p50_ms", "launch_s", "bytes"}, set())
        self.assertTrue(any("simulated" in note for note in report["notes"]))
        self.assertEqual({len(line["objects"]) for line in program.lines(out)}, {3})

    def test_invalid_tables_are_refused(self):
        program.write_pictures(self.folder / "in", 1, 90, 70)
        for changes, says in (({"name": None}, "name"), ({"encode": None}, "encode"), ({"letterbox_ms": -1}, "letterbox_ms"),
                              ({"upload_gb_per_s": 0}, "upload_gb_per_s"), ({"speed": 3}, "speed"), ({"decode": {"call_ms": 1}}, "each_ms")):
            done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "o", "--engine", self.simulated(**changes))
            self.assertEqual(done.code, program.ENVIRONMENT, (changes, done))
            self.assertIn("table.yaml", done.err)
            self.assertIn(says, done.err)
        done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "o", "--engine", "simulated:/nowhere.yaml")
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("/nowhere.yaml", done.err)

    @unittest.skipIf(program.SANITIZED, "run_test plans memory on fake devices")
    def test_memory_is_planned(self):
        """The plan has the maximum number of lanes that fit, then smaller calls.

        It uses limits that earlier runs learned. Objects stay the same.
        """
        program.write_pictures(self.folder / "in", 8, 90, 70)
        shapes = ("--set", "batch.size=4", "--set", "segment.image_batch=4", "--set", "segment.box_batch=8", "--set", "segment.pad=yes",
                  "--set", "threads.lanes=3", "--set", "gate.slab=8M")
        objects = [line["objects"] for line in program.lines(self.run_on("cpu", *shapes))]
        state = self.folder / "state/millrace/call_limits.json"
        with unittest.mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(self.folder / "state")}):
            def planned(name, device, *more):
                out = self.run_on(device, *shapes, *more, name=name)
                self.assertEqual([line["objects"] for line in program.lines(out)], objects)
                plans = program.report(out)["memory"]
                for plan in plans:
                    self.assertLessEqual(plan["lanes"] * (plan["lane_calls_bytes"] + plan["lane_pictures_bytes"]), plan["limit_bytes"])
                return plans, {line.get("exec") for line in program.lines(out)}

            for name, device, lanes in (("ample", "fake:1:900000000", [3]), ("scarce", "fake:1:180000000", [1]), ("two", "fake:2:900000000", [2, 1]),
                                        ("more", "fake:4:900000000", [1, 1, 1])):
                with self.subTest(name):
                    plans, executed = planned(name, device)
                    self.assertEqual(([plan["lanes"] for plan in plans], executed), (lanes, {None}))
                    self.assertEqual([plan["smaller_calls"] for plan in plans], [[]] * len(lanes))
            (plan,), executed = planned("told", "fake:1:900000000", "--gpu-memory", "66M")
            self.assertEqual(plan["smaller_calls"], [{"package": "yolov8n-seed0", "method": "forward", "most": 1}])  # the call that needs most
            self.assertEqual((plan["lanes"], executed), (1, {"split"}))
            self.assertFalse(state.exists())  # no call failed

            fingerprint = hashlib.sha256(Path(program.package("sam_small"), "model.yaml").read_bytes()).hexdigest()
            state.parent.mkdir(parents=True)
            state.write_text(json.dumps([{"device": "fake, fp32", "limit_bytes": 9e8, "package": f"small_sam-seed0 {fingerprint}", "method": "decode", "most": 3}]))
            (plan,), executed = planned("known", "fake:1:900000000")
            self.assertEqual(plan["smaller_calls"], [{"package": "small_sam-seed0", "method": "decode", "most": 2}])
            self.assertEqual(executed, {"split"})

    @unittest.skipIf(program.SANITIZED, "run_test plans memory on fake devices")
    def test_an_estimate_of_gpu_memory_is_enough_for_the_run(self):
        """A GPU with the estimated memory runs as many lanes, without a call in parts. One with less does not."""
        shapes = ("--set", "batch.size=4", "--set", "segment.image_batch=4", "--set", "segment.box_batch=8", "--set", "segment.pad=yes",
                  "--set", "threads.lanes=3", "--set", "gate.slab=8M", "--set", "threads.team=1", "--set", "detect.conf=0.001",
                  "--set", "detect.max_detections=5", "--gpu-memory", "1.0")
        program.write_pictures(self.folder / "in", 12, 90, 70)
        done = millrace("estimate", "--input", self.folder / "in", "--output", self.folder / "e", "--device", "fake:1:900000000", "--detector",
                        program.package("yolov8n"), "--segmenter", program.package("sam_small"), *shapes, "-q", "--json")
        self.assertEqual(done.code, program.OK, done)
        (gpu,) = json.loads(done.out)["gpu_memory_bytes"]
        self.assertLess(0, gpu["low"])
        self.assertLess(gpu["low"], gpu["value"])
        self.assertEqual(gpu["value"], gpu["high"])

        def planned(memory):
            out = self.run_on(f"fake:1:{memory}", *shapes, name=str(memory))
            report = program.report(out)
            (plan,) = report["memory"]
            split = any("exec" in line for line in program.lines(out)) or report["calls"].get("redone_batches", 0) > 0
            return plan["lanes"], bool(plan["smaller_calls"]), split

        self.assertEqual(planned(gpu["high"]), (3, False, False))
        self.assertNotEqual(planned(int(0.9 * gpu["low"])), (3, False, False))

    def test_a_batch_that_does_not_fit_into_memory_is_split_in_halves(self):
        """The memory is too small for a batch, but not for a call of a model.

        Only a picture that does not fit alone fails.
        """
        shapes = ("--set", "batch.size=12", "--set", "segment.image_batch=4", "--set", "segment.box_batch=8", "--set", "threads.lanes=1", "--set", "gate.slab=64M")
        program.write_pictures(self.folder / "in", 12, 90, 70)
        objects = {line["path"]: line["objects"] for line in program.lines(self.run_on("cpu", *shapes))}
        program.write_picture(self.folder / "in/huge.jpg", 4000, 3000)  # 36 MB on the device
        for memory in (90_000_000, 34_000_000):
            with self.subTest(memory):
                fits = memory > 40_000_000
                out = self.run_on(f"fake:1:{memory}", *shapes, code=program.OK if fits else program.SOME_FAILED)
                lines = {line["path"]: line for line in program.lines(out)}
                huge = lines.pop("huge.jpg")
                self.assertEqual(huge.get("reason"), None if fits else "oom_device")
                self.assertEqual({path: line["objects"] for path, line in lines.items()}, objects)
                self.assertIn("split", {line.get("exec") for line in lines.values()})
                report = program.report(out)
                self.assertGreater(report["calls"]["redone_batches"], 0)
                self.assertTrue(any("times; a smaller batch.size is faster" in note for note in report["notes"]), report["notes"])

    @unittest.skipIf(program.SANITIZED, "run_test keeps and reads what runs learned")
    def test_what_a_run_learned_of_memory_is_known_to_the_next(self):
        program.write_pictures(self.folder / "in", 8, 90, 70)
        state = self.folder / "state/millrace/call_limits.json"
        said = []
        with unittest.mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(self.folder / "state")}):
            for name in ("first", "second"):
                done = millrace("run", "--input", self.folder / "in", "--output", self.folder / name, "--device", "fake:1:60000000", "--detector",
                                program.package("yolov8n"), "--segmenter", program.package("sam_small"), "--set", "threads.team=1", "--set", "batch.size=8",
                                "--set", "detect.max_detections=5", "--set", "gate.slab=1M")
                self.assertEqual(done.code, program.OK, done)
                said.append(next(line for line in done.err.splitlines() if line.startswith("millrace: GPU 0: 60.0 MB free, limit 54.0 MB: models")))
        (learned,) = json.loads(state.read_text())
        self.assertEqual((learned["method"], learned["most"]), ("forward", 4))
        self.assertIn("forward takes 4 pictures a call", said[0])
        self.assertNotIn("earlier runs", said[0])
        self.assertIn(f"earlier runs ran out of memory (to try larger calls, remove {state})", said[1])

    def test_invalid_limits_of_memory_are_refused(self):
        program.write_pictures(self.folder / "in", 1, 90, 70)
        done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "o", "--gpu-memory", "all")
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("a share such as 0.9, or bytes such as 8G", done.err)
        self.assertFalse((self.folder / "o").exists())

    def test_missing_gpus_are_refused(self):
        program.write_pictures(self.folder / "in", 1, 90, 70)
        with unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}):
            for device in ("cuda", "cuda:0", "cuda:0,1", "cuda:0,0", "cuda:all"):
                done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "o", "--device", device)
                self.assertEqual(done.code, program.ENVIRONMENT, (device, done))
                self.assertIn(f"device.kind is '{device}', but ", done.err)
                self.assertFalse((self.folder / "o").exists())

    def test_unknown_devices_are_refused(self):
        program.write_pictures(self.folder / "in", 1, 90, 70)
        for device in ("gpu", "cuda:", "cuda:x", "cuda:0,", "cuda:-1", "fake:0", "fake:1:", "fake:1:x", ""):
            done = millrace("run", "--input", self.folder / "in", "--output", self.folder / "o", "--device", device)
            self.assertEqual(done.code, program.USAGE, (device, done))
            self.assertIn("auto, cpu, cuda, cuda:0,1 or cuda:all", done.err)


class Halves(ModelCase):
    def test_layer_norms_of_large_activations_in_fp16(self):
        """Millrace computes them in fp32."""
        detector = self.make_package(LargeActivations(), DETECTOR_YAML, "large")
        scores = []
        for precision in ("fp32", "fp16"):
            output = self.folder / precision
            self.run_ok(self.recipe, "--input", self.input, "--detector", detector, "--output", output, "--device", "fake:1", "--precision", precision, "--set", "detect.conf=0.01")
            scores.append([line["objects"][0]["score"] for line in program.lines(output)])
        self.assertGreater(len(set(scores[0])), 3)  # the scores of the pictures differ
        for a, b in zip(*scores, strict=True):
            self.assertAlmostEqual(a, b, delta=0.01)


class LostDevices(ModelCase):
    def test_a_lost_device_ends_the_run_and_the_same_command_resumes(self):
        """Earlier commits stay.

        The message names the batch of the white picture, and nothing of this batch is committed.
        """
        detector = self.make_package(LostDevice(), DETECTOR_YAML, "lost")
        for device in ("cpu", "fake:1"):
            with self.subTest(device):
                output = self.folder / f"out-{device[:3]}"
                command = ("run", self.recipe, "--input", self.input, "--detector", detector, "--output", output, "-q", "--device", device,
                           "--set", "batch.size=2", "--set", "gate.frames=4")
                done = millrace(*command)
                self.assertEqual(done.code, program.ENVIRONMENT, done)
                self.assertIn("detect, batch 2 (4.png and 1 more): stub: forward [2, 3, 64, 64]: CUDA error: an illegal memory access", done.err)
                self.assertIn("Run the same command again to resume", done.err)
                report = program.report(output)
                self.assertEqual(report["state"], "failed")
                self.assertGreater(report["run_window"]["wall_s"], 0)
                self.assertIsNone(report["verdict"]["utilisation"])
                part = (output / "segments/000000.part").read_text()
                self.assertNotIn("4.png", part)
                # Without the white picture, the same command finishes the rest.
                white = (self.input / "4.png").read_bytes()
                (self.input / "4.png").unlink()
                done = millrace(*command)
                self.assertEqual(done.code, program.SOME_FAILED, done)
                states = {line["path"]: line["state"] for line in program.lines(output)}
                self.assertEqual(states, {f"{i}.png": "failed" if i == 4 else "ok" for i in range(7)})
                (self.input / "4.png").write_bytes(white)


if __name__ == "__main__":
    program.main()
