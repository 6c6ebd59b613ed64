"""Runs that show the effect of every option of `millrace stages`.

Class Options has one method for each option, named group_option. An option without a method fails the test.
"""

import json
import os
import re
import shutil
import tempfile
import unittest.mock
from pathlib import Path

import program
from option_pictures import PictureOptions
from option_tiles import TilesOptions
from program import millrace


def options():
    """Every group.name of `millrace stages`."""
    return re.findall(r"^  [! ] ([a-z_]+\.[a-z_]+) ", millrace("stages").out, re.MULTILINE)


class Options(TilesOptions, PictureOptions):
    # input

    def input_paths(self):
        program.write_pictures(self.input, 2)
        self.assertEqual(len(self.decode("--quiet", input__paths=f"{self.input}/0000.jpg,{self.input}/0001.jpg")), 2)
        self.assertEqual(len(self.decode("--quiet", input__paths=f"{self.input}/0001.jpg")), 1)

    def input_follow_dirs(self):
        program.write_picture(self.folder / "far/a.jpg")
        program.write_picture(self.input / "b.jpg")
        (self.input / "link").symlink_to(self.folder / "far")
        self.assertEqual([len(self.decode(input__follow_dirs=value)) for value in ("no", "yes")], [1, 2])

    def input_nul_separated(self):
        name = self.input / "new\nline.jpg"
        program.write_picture(self.input / "a.jpg").rename(name)
        names = str(name).encode() + b"\0"
        self.assertEqual([line["state"] for line in self.decode("--input", "-", stdin=names, input__nul_separated="yes")], ["ok"])
        done = self.run_ok(self.folder / f"recipe{self.runs}.yaml", "--input", "-", "--output", self.folder / "n", stdin=names, code=program.USAGE)
        self.assertIn("-0", done.err)

    def input_every(self):
        program.write_pictures(self.input, 5)
        self.assertEqual([len(self.decode(input__every=value)) for value in (1, 2, 5)], [5, 3, 1])

    def input_limit(self):
        program.write_pictures(self.input, 5)
        self.assertEqual([len(self.decode(input__limit=value)) for value in (0, 2)], [5, 2])

    def input_sample(self):
        program.write_pictures(self.input, 30)
        self.assertTrue(0 < len(self.decode(input__sample="40%")) < 30)
        self.assertEqual(len(self.decode(input__sample="100%")), 30)
        for word in ("1", "1.0", "40"):  # ambiguous: all of them, or a percentage
            done = self.run_ok(self.folder / f"recipe{self.runs}.yaml", "--input", self.input, "--output", self.folder / "n", "--sample", word, code=program.USAGE)
            self.assertIn(f"write {word}% for a percentage, or 100%", done.err)

    def input_seed(self):
        program.write_pictures(self.input, 30)
        chosen = [[line["path"] for line in self.decode(input__sample="40%", input__seed=seed)] for seed in (1, 2)]
        self.assertNotEqual(*chosen)

    # output, models, device

    def output_folder(self):
        program.write_pictures(self.input, 1)
        other = self.folder / "other"
        self.run_ok(self.write("r.yaml", program.DECODE_ONLY), "--input", self.input, "--set", f"output.folder={other}")
        self.assertEqual(len(program.lines(other)), 1)

    def output_reduce(self):
        program.write_pictures(self.input, 1)
        for value, there in (("", False), ("categories", True)):
            self.decode(**({"output__reduce": value} if value else {}))
            self.assertEqual((self.out / "reduced/categories.json").is_file(), there)

    def detect_model(self):
        self.assertGreater(len(self.detect()), 0)
        recipe = self.write("detect.yaml", "stages: [decode, preprocess, detect, encode]\n")
        none = millrace("run", recipe, "--input", program.picture("street.jpg"), "--output", self.folder / "n", "--set", f"detect.model={self.folder}")
        self.assertEqual(none.code, program.ENVIRONMENT, none)

    def segment_model(self):
        self.segment()
        self.assertIn("rle", self.lines[0]["objects"][0])
        none = millrace("run", "--input", self.input / "m.jsonl", "--output", self.folder / "n", "--set", f"segment.model={self.folder}")
        self.assertEqual(none.code, program.ENVIRONMENT, none)

    def models_budget(self):
        self.detect(segment__model=program.package("sam_small"))
        program.write_pictures(self.input, 2)
        both = ["--input", self.input, "--detector", program.package("yolox"), "--segmenter", program.package("sam_small")]
        self.go("", *both, models__budget="4G")
        self.assertEqual(program.report(self.out)["models"]["evictions"], 0)
        small = millrace("run", *both, "--output", self.folder / "n", "--set", "models.budget=1M")
        self.assertEqual(small.code, program.ENVIRONMENT, small)
        self.assertIn("models.budget is 1.0 MB", small.err)

    def device_kind(self):
        program.write_pictures(self.input, 1)
        self.decode(device__kind="cpu")
        done = millrace("run", "--input", self.input, "--output", self.folder / "n", "--set", "device.kind=tpu")
        self.assertEqual(done.code, program.USAGE, done)

    def device_cpu(self):
        self.detect(device__kind="cpu", device__cpu="sse4.1")  # cpu_level_test has more
        self.assertEqual(json.loads(program.plan(self.out)["plan.json"])["settings"]["cpu_level"], "sse4.1")

    def device_precision(self):
        found = []
        for precision in ("fp32", "fp16"):
            found.append(self.detect(device__kind="fake:1", device__precision=precision))
        self.assertEqual(len(found[0]), len(found[1]))
        self.assertNotEqual(found[0], found[1])  # in the last digits

    def device_memory(self):
        for memory, limit in (("0.5", 450_000_000), ("200M", 200 << 20)):
            self.segment(device__kind="fake:1:900000000", device__memory=memory)
            (plan,) = program.report(self.out)["memory"]
            self.assertEqual((plan["free_bytes"], plan["limit_bytes"]), (900_000_000, limit))

    def models_engine(self):
        table = Path(__file__).resolve().parents[2] / "bench/host/h200.yaml"
        self.segment((3, 2), models__engine=f"simulated:{table}")
        self.assertEqual(len({object["rle"]["counts"] for line in self.lines for object in line["objects"]}), 1)  # every mask is the same ellipse
        done = millrace("run", "--input", self.input, "--output", self.folder / "n", "--engine", "warp")
        self.assertEqual(done.code, program.USAGE, done)

    def models_graphs(self):
        self.segment(models__graphs="no")
        done = millrace("run", "--input", self.input, "--output", self.folder / "n", "--segmenter", program.package("sam_small"), "--set", "models.graphs=yes", "--device", "cpu")
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("models.graphs needs a GPU", done.err)

    def models_variants(self):
        for variant in program.PACKAGES.glob("compiled/sam_small.pkg.variants/*"):  # there is none on a CPU without AVX2
            for engine, used in (("aoti", variant.name), ("torchscript", "")):
                self.segment(models__variants=variant.parent, models__engine=engine)
                self.assertEqual(program.report(self.out)["models"]["loads"][0]["variant"].split(" ")[0], used)

    def input_source(self):
        program.write_pictures(self.input, 1)
        names = self.write("names.txt", f"{self.input}/0000.jpg\n" * 40)
        read = []
        for source in ("files", "memory"):
            self.decode("--input", names, input__source=source)
            read.append(program.report(self.out)["read_bytes"])
        self.assertGreater(read[0], 2 * read[1])

    def trace_capture(self):
        program.write_pictures(self.input, 3)
        self.decode(trace__capture="1:2", trace__file=self.folder / "trace.json")  # trace_test.py and trace_file_test.py check the effects
        self.assertIn("traceEvents", json.loads((self.folder / "trace.json").read_text()))
        self.assertEqual(millrace("run", "--input", self.input, "--output", self.folder / "n", "--capture", "2:1").code, program.USAGE)
    trace_file = trace_capture

    def events_file(self):
        program.write_pictures(self.input, 1)
        self.decode(events__file=self.folder / "events.jsonl")  # events_test.py checks them
        self.assertEqual(json.loads((self.folder / "events.jsonl").read_text().splitlines()[-1])["event"], "ended")

    def serve_address(self):
        program.write_pictures(self.input, 1)
        self.decode(serve__address="0")  # serve_test.py checks the page
        self.assertRegex(self.done.err, r"watch this run at http://127\.0\.0\.1:\d+/\n")

    def measure_enabled(self):
        program.write_pictures(self.input, 3)
        for enabled in ("yes", "no"):
            self.decode(measure__enabled=enabled)
            on = enabled == "yes"
            (run,) = self.out.glob("runs/*")
            self.assertEqual((run / "resources.csv").exists(), on)
            report = program.report(self.out)
            self.assertEqual(report["run_window"]["committed"], 3)
            self.assertEqual([row["name"] for row in report["run_window"]["resources"]], ["read", "workers", "commit"] if on else [])
            self.assertEqual("switches measuring off" in report["verdict"]["sentence"], not on)
            self.assertEqual("p50 ms" in self.done.out, on)

    # threads, batch, gate, read

    def threads_workers(self):
        program.write_pictures(self.input, 2)
        for workers in (1, 3):
            self.decode(threads__workers=workers)
            self.assertEqual(self.resource("workers")["concurrency"], workers)

    def threads_lanes(self):
        for lanes in (1, 2):
            self.segment(threads__lanes=lanes)
            self.assertEqual(self.resource("lane")["concurrency"], lanes)

    def threads_team(self):
        for team in (1, 2):
            self.segment(threads__team=team)
            self.assertEqual(program.report(self.out)["team"], team)
            self.assertIn(f'"team":{team}', (self.out / "plan/plan.json").read_text().replace(" ", ""))

    def batch_size(self):
        program.write_pictures(self.input, 6)
        for size, batches in ((1, 6), (4, 2)):
            self.decode(batch__size=size)
            self.assertEqual(self.resource("commit")["items"], batches)

    def gate_frames(self):
        self.many()
        for frames in (2, 40):
            self.decode(gate__frames=frames)
            self.assertEqual(self.gate()["frames"], frames)
            inside = sum(r["mean_queue"] for r in program.report(self.out)["run_window"]["resources"])
            self.assertTrue(inside <= 2 if frames == 2 else inside > 2, inside)
            self.assertEqual(self.lacked()["gate.memory"], 0)
            if frames == 2:
                self.assertGreater(self.lacked()["gate.frames"], 0)

    def gate_memory(self):
        self.many()
        waiting, lacked = [], []
        for memory in ("3M", "1G"):
            self.decode(gate__memory=memory, gate__slab="1500k")
            waiting.append(self.gate()["mean_waiting_for_bytes"])
            lacked.append(self.lacked()["gate.memory"])
        self.assertGreater(waiting[0], 2)  # two pictures fit into the memory, the others wait
        self.assertGreater(lacked[0], 0)
        self.assertEqual((waiting[1], lacked[1]), (0, 0))
        done = millrace("run", "--input", self.input, "--output", self.folder / "n", "--set", "gate.memory=1M")
        self.assertEqual(done.code, program.USAGE, done)

    def gate_slab(self):
        street = [self.detect(gate__slab=slab) for slab in ("64M", "300k")]
        self.assertNotEqual([o["box"] for o in street[0]], [o["box"] for o in street[1]])
        self.assertEqual(street[0][0]["name"], street[1][0]["name"])

    def read_threads(self):
        program.write_pictures(self.input, 2)
        for threads in (1, 9):
            self.decode(read__threads=threads)
            self.assertEqual(self.resource("read")["concurrency"], threads)

    def read_ahead(self):
        self.many()
        waiting = []
        for ahead in (1, 16):
            self.decode(read__ahead=ahead, gate__memory="3M", gate__slab="1500k", gate__frames=40)
            waiting.append(self.gate()["mean_waiting_for_bytes"])
        self.assertLessEqual(waiting[0], 1)  # at most one file that is read waits for memory
        self.assertGreater(waiting[1], 2)

    def read_max_file(self):
        file = program.write_picture(self.input / "a.jpg")
        size = file.stat().st_size
        self.decode(read__max_file=size)
        self.assertEqual(self.decode(read__max_file=size - 1, code=program.SOME_FAILED)[0]["reason"], "too_large")

    # decode

    def decode_max_megapixels(self):
        program.write_picture(self.input / "a.jpg", 200, 100)
        self.decode(decode__max_megapixels=0.02)
        self.assertEqual(self.decode(decode__max_megapixels=0.0199, code=program.SOME_FAILED)[0]["reason"], "too_large")

    def decode_max_scans(self):
        program.write_picture(self.input / "a.jpg", 200, 100, progressive=True)
        self.decode(decode__max_scans=20)
        self.assertEqual(self.decode(decode__max_scans=3, code=program.SOME_FAILED)[0]["reason"], "too_large")

    def decode_max_memory(self):
        program.write_picture(self.input / "a.jpg", 800, 600, progressive=True)  # 1.44 MB of coefficients
        self.decode(decode__max_memory="1500k")
        (line,) = self.decode(decode__max_memory="1M", code=program.SOME_FAILED)
        self.assertEqual(line["reason"], "too_large")
        self.assertIn("800 x 600 pixels would take 2 MB in addition to the picture; the limit is 1 MB (decode.max_memory)", line["detail"])

    def decode_accept_truncated(self):
        file = program.write_picture(self.input / "a.jpg", 400, 800)
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 3 // 4])
        self.assertEqual(self.decode(code=program.SOME_FAILED)[0]["reason"], "truncated")
        self.decode(decode__accept_truncated=0.5)
        self.assertEqual(program.report(self.out)["calls"]["decode_warnings"], 1)
        self.decode(decode__accept_truncated=0.95, code=program.SOME_FAILED)

    def decode_level(self, option="decode__level"):
        """tiles_slides_test shows the effect on slides. A picture without levels fails, and is not read at another size."""
        program.write_picture(self.input / "a.png")
        self.decode(**{option: 0})
        (line,) = self.decode(**{option: 1}, code=program.SOME_FAILED)
        self.assertEqual(line["reason"], "unsupported_format")

    def decode_mpp(self):
        self.decode_level("decode__mpp")

    def decode_nvjpeg(self):
        """nvjpeg_test has more."""
        program.write_pictures(self.input, 4)
        with unittest.mock.patch.dict(os.environ, {"MILLRACE_NVJPEG": os.environ["MILLRACE_FAKE_NVJPEG"]}):
            for share, decoded in ((0, 0), (0.5, 2), (1, 4)):
                self.decode(decode__nvjpeg=share, device__kind="fake:1")
                self.assertEqual(program.report(self.out)["calls"]["nvjpeg_decoded"], decoded)

    # detect

    def detect_conf(self):
        low, high = self.detect(detect__conf=0.1), self.detect(detect__conf=0.6)
        self.assertGreater(len(low), len(high))
        self.assertTrue(all(o["score"] >= 0.6 for o in high))

    def detect_iou(self):
        self.assertGreater(len(self.detect(detect__iou=0.95)), len(self.detect(detect__iou=0.3)))

    def detect_max_detections(self):
        best = self.detect(detect__max_detections=2)
        self.assertEqual(len(best), 2)
        self.assertEqual(program.report(self.out)["calls"]["truncated_detections"], 1)
        self.assertEqual(best, self.detect()[:2])

    def detect_min_area(self):
        everything = self.detect(detect__conf=0.1)
        areas = [o["box"][2] * o["box"][3] for o in everything]
        least = sorted(areas)[len(areas) // 2]
        large = self.detect(detect__conf=0.1, detect__min_area=least)
        self.assertTrue(0 < len(large) < len(everything))
        self.assertTrue(all(o["box"][2] * o["box"][3] > least - 10 for o in large))  # lines have boxes to 1/100 pixel

    def detect_classes(self):
        everything = self.detect()
        for classes in ("bus", "5"):
            self.assertEqual(self.detect(detect__classes=classes), [o for o in everything if o["name"] == "bus"])
        self.assertEqual(self.detect(detect__classes="person,bus"), [o for o in everything if o["name"] in ("bus", "person")])

    def detect_class_agnostic(self):
        within = self.detect(detect__conf=0.02, detect__iou=0.3)
        across = self.detect(detect__conf=0.02, detect__iou=0.3, detect__class_agnostic="yes")
        self.assertLess(len(across), len(within))

    def detect_exec_batch(self):
        program.write_pictures(self.input, 4, 96, 64)
        recipe = "stages: [decode, preprocess, detect, encode]\n"
        calls = []
        for size in (1, 2, 0):
            self.go(recipe, "--input", self.input, "--detector", program.package("yolov8n"), batch__size=4, detect__exec_batch=size)
            calls.append(program.report(self.out)["calls"]["detector_calls"])
        self.assertEqual(calls, [4, 2, 1])

    def detect_pad(self):
        program.write_pictures(self.input, 5, 96, 64)
        none = {"call_ms": 0, "each_ms": 0}
        table = self.write("table.yaml", json.dumps({
            "name": "10 ms a picture", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0, "find_boxes_ms": 0, "outline_ms": 0,
            "forward": {"call_ms": 0, "each_ms": 10}, "encode": none, "decode": none}))
        # Five pictures are eight rows of a padded call, but five rows if a full call has only five.
        for pad, size, seconds in (("no", 8, 0.05), ("yes", 8, 0.08), ("yes", 5, 0.05)):
            self.go("stages: [decode, preprocess, detect, encode]\n", "--input", self.input, "--detector", program.package("yolov8n"),
                    models__engine=f"simulated:{table}", batch__size=size, detect__pad=pad)
            (gpu,) = [row for row in program.report(self.out)["run_window"]["resources"] if row["name"] == "GPU"]
            self.assertAlmostEqual(gpu["busy_s"], seconds, delta=1e-6)

    def detect_skip_with_boxes(self):
        street = program.picture("street.jpg")
        manifest = self.write("m.jsonl", json.dumps({"path": str(street), "boxes": [[1, 2, 30, 40]]}))
        recipe = "stages: [decode, preprocess, detect, encode]\n"
        for skip, calls in (("yes", 0), ("no", 1)):
            line = self.go(recipe, "--input", manifest, "--detector", program.package("yolox"), detect__skip_with_boxes=skip)[0]
            self.assertEqual(program.report(self.out)["calls"]["detector_calls"], calls)
            self.assertEqual([o["box"] for o in line["objects"]], [[1, 2, 30, 40]])

    # segment

    def segment_box_batch(self):
        self.assertEqual([self.segment([6], segment__box_batch=size)["decoder_calls"] for size in (16, 2, 1)], [1, 3, 6])

    def segment_pack(self):
        # 16 pictures of 3 boxes have 48 boxes: 3 calls of 16 when packed, else one call for each picture.
        calls = [self.segment([3] * 16, batch__size=16, segment__box_batch=16, segment__pack=pack)["decoder_calls"] for pack in ("yes", "no")]
        self.assertEqual(calls, [3, 16])

    def segment_pad(self):
        calls = [self.segment([3], segment__pad=pad, segment__box_batch=8) for pad in ("no", "yes")]
        self.assertEqual([(c["decoder_boxes"], c["decoder_slots"]) for c in calls], [(3, 3), (3, 4)])

    def segment_image_batch(self):
        calls = [self.segment([1] * 8, batch__size=8, segment__image_batch=size)["encoder_calls"] for size in (1, 4)]
        self.assertEqual(calls, [8, 2])

    # postprocess, encode

    def postprocess_mask_threshold(self):
        areas = []
        for threshold in (-1000, 0, 1000):
            self.segment([2], postprocess__mask_threshold=threshold)
            areas.append(sum(o["area"] for o in self.lines[0]["objects"]))
        self.assertEqual((areas[0], areas[2]), (2 * 100 * 80, 0))
        self.assertTrue(0 <= areas[1] <= areas[0])

    def encode_format(self):
        program.write_pictures(self.input, 1)
        for value, there in (("", []), ("overlay", ["overlay"]), ("png", ["labels"]), ("coco", ["coco.json"]),
                             ("coco,overlay,png", ["coco.json", "labels", "overlay"])):
            self.decode(**({"encode__format": value} if value else {}))
            self.assertEqual(sorted(f.name for f in self.out.iterdir() if f.name not in ("plan", "segments", "runs")), there)

    def test_every_option_has_its_run(self):
        listed = options()
        self.assertGreater(len(listed), 30)
        methods = {name for name in dir(Options) if not name.startswith(("test", "_"))}
        not_tested = [option for option in listed if option.replace(".", "_", 1) not in methods]
        self.assertEqual(not_tested, [], "these options have no run that shows their effect: write one, or remove the option")
        for option in listed:
            with self.subTest(option):
                folder = Path(tempfile.mkdtemp(dir=self.folder))
                self.folder, kept = folder, self.folder
                self.input = folder / "in"
                try:
                    getattr(self, option.replace(".", "_", 1))()
                finally:
                    self.folder = kept
                    shutil.rmtree(folder)


if __name__ == "__main__":
    program.main()
