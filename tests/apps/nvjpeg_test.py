"""decode.nvjpeg on a library that decodes on the CPU (tests/gpu/fake_nvjpeg.cpp), and what the real library says without a GPU."""

import importlib.util
import json
import os
from pathlib import Path

import program
from PIL import Image
from program import Case, millrace

FAKE = {"MILLRACE_NVJPEG": os.environ["MILLRACE_FAKE_NVJPEG"]}


def real_library():
    """The nvJPEG that torchvision brings."""
    (folder,) = importlib.util.find_spec("torchvision").submodule_search_locations
    (library,) = Path(folder).with_name("torchvision.libs").glob("libnvjpeg*.so*")
    return library


class Nvjpeg(Case):
    def setUp(self):
        super().setUp()
        self.input = self.folder / "in"
        self.runs = 0

    def boxes(self):
        """A manifest with two boxes for each picture, whose masks depend on its pixels."""
        rows = [{"path": file.name, "boxes": [[3, 5, 40, 30], [20, 10, 30, 20]]} for file in sorted(self.input.glob("*.[jp]*g"))]
        return self.write("in/m.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def go(self, share=1, *more, device="fake:1", code=program.OK, **env):
        """Segments the pictures. Returns the bytes of the segment files, if there are any."""
        self.runs += 1
        self.out = self.folder / f"out{self.runs}"
        self.done = self.run_ok("--input", self.boxes(), "--output", self.out, "--device", device, "--segmenter", program.package("sam_small"),
                                "--set", f"decode.nvjpeg={share}", *more, code=code, env={**FAKE, **env})
        return [file.read_bytes() for file in sorted(self.out.glob("segments/*.jsonl"))]

    def counts(self):
        calls = program.report(self.out)["calls"]
        return calls["nvjpeg_decoded"], calls["nvjpeg_refused"], calls["nvjpeg_failed"]

    def write_kinds(self):
        """Pictures of all kinds. Returns the names of those that engines decode."""
        plain = ["colour.jpg", "grey.jpg", "restarts.jpg", "more.jpg"]
        program.write_picture(self.input / "colour.jpg", 120, 90, seed=1)
        Image.fromarray(program.raster(120, 90, 2)).convert("L").save(self.input / "grey.jpg")
        program.write_picture(self.input / "restarts.jpg", 120, 90, seed=3, restart_marker_rows=1)
        file = program.write_picture(self.input / "more.jpg", 120, 90, seed=4)
        file.write_bytes(file.read_bytes() + b"behind the end")
        program.write_picture(self.input / "progressive.jpg", 120, 90, seed=5, progressive=True)
        Image.fromarray(program.raster(120, 90, 6)).convert("CMYK").save(self.input / "cmyk.jpg")
        exif = Image.Exif()
        exif[0x0112] = 6
        program.write_picture(self.input / "turned.jpg", 120, 90, seed=7, exif=exif)
        for name, kept in (("cut.jpg", 0.6), ("no_end.jpg", 1)):
            file = program.write_picture(self.input / name, 120, 90, seed=8)
            data = file.read_bytes()[:-2]
            file.write_bytes(data[: int(kept * len(data))])
        program.write_picture(self.input / "picture.png", 120, 90, seed=9)
        return plain

    def test_results_are_those_of_the_cpu_for_every_kind_of_file(self):
        """The pixels of the library are those of the CPU here. With others, the masks of the pictures that it decodes change."""
        plain = self.write_kinds()
        on_cpu = self.go(0, device="cpu", code=program.SOME_FAILED)
        lines = {line["path"]: line for line in program.lines(self.out)}
        self.assertEqual([name for name, line in lines.items() if line["state"] != "ok"], ["cut.jpg"])
        self.assertEqual(self.counts(), (0, 0, 0))
        self.assertEqual(self.go(code=program.SOME_FAILED), on_cpu)
        self.assertEqual(self.counts(), (4, 5, 0))
        self.go(code=program.SOME_FAILED, FAKE_NVJPEG_PIXELS="grey")
        changed = [line["path"] for line in program.lines(self.out) if line != lines[line["path"]]]
        self.assertEqual(sorted(changed), sorted(plain))

    def test_the_place_in_the_plan_chooses_the_decoder(self):
        program.write_pictures(self.input, 10)
        found = [self.go(0.3, "--set", f"threads.workers={workers}", "--set", f"batch.size={batch}", FAKE_NVJPEG_PIXELS="grey") for workers, batch in ((1, 5), (4, 5))]
        self.assertEqual(*found)
        self.assertEqual(self.counts(), (3, 0, 0))
        self.assertNotEqual(self.go(0, "--set", "batch.size=5"), found[0])

    def test_no_more_pictures_at_a_time_than_cores_of_the_engines(self):
        program.write_pictures(self.input, 40)
        log = self.folder / "log"
        for device, most in (("fake:1", 2), ("fake:2", 4)):
            self.go(1, "--set", "threads.workers=8", "--set", "gate.frames=64", device=device, FAKE_NVJPEG_LOG=str(log), FAKE_NVJPEG_ENGINES="1x2", FAKE_NVJPEG_TOGETHER=str(most))
            self.assertEqual(log.read_text(), f"decoded 40, at most {most} at a time\n")

    def test_if_the_library_fails_the_cpu_decodes_and_a_note_says_so(self):
        program.write_pictures(self.input, 3)
        on_cpu = self.go(0)
        self.assertEqual(self.go(FAKE_NVJPEG="nvjpegDecodeBatched"), on_cpu)
        self.assertEqual(self.counts(), (0, 0, 3))
        (note,) = program.report(self.out)["notes"]
        said, names = note.split(": ")
        self.assertEqual(said, "3 pictures on which nvJPEG failed, so that the CPU decoded them")
        self.assertEqual(sorted(names.split(", ")), ["0000.jpg", "0001.jpg", "0002.jpg"])  # in the order of the threads
        self.assertEqual(self.go(FAKE_NVJPEG="nvjpegDecodeBatchedSupported"), on_cpu)
        self.assertEqual(self.counts(), (0, 3, 0))

    def test_a_lane_without_memory_has_pictures_decoded_again(self):
        """They count once."""
        program.write_pictures(self.input, 8, 400, 300)
        self.go(1, "--set", "batch.size=8", device="fake:1:9000000")
        self.assertGreater(program.report(self.out)["calls"]["redone_batches"], 0)
        self.assertEqual(sum(self.counts()), 8)

    def test_without_an_engine_the_run_ends_before_its_plan(self):
        program.write_pictures(self.input, 1)
        cases = (
            ("cpu", {}, program.USAGE, "decode.nvjpeg needs a GPU, but this run uses none (device: cpu); leave it out, or run on a machine with a GPU"),
            ("fake:1", {"FAKE_NVJPEG_ENGINES": "0x0"}, program.ENVIRONMENT, "the GPU has no JPEG engines."),
            ("fake:1", {"FAKE_NVJPEG": "nvjpegCreateEx"}, program.ENVIRONMENT, "has no JPEG engines (nvjpegCreateEx: ARCH_MISMATCH)."),
            ("fake:1", {"MILLRACE_NVJPEG": "/nowhere.so"}, program.ENVIRONMENT, "set MILLRACE_NVJPEG to the path of its file, or leave decode.nvjpeg out"),
            ("fake:1", {"MILLRACE_NVJPEG": ""}, program.ENVIRONMENT, "decode.nvjpeg needs nvJPEG, which was not found (libnvjpeg.so.13: "),
        )
        for device, env, code, text in cases:
            with self.subTest(text):
                self.runs += 1
                out = self.folder / f"out{self.runs}"
                done = self.run_ok("--input", self.boxes(), "--output", out, "--device", device, "--segmenter", program.package("sam_small"),
                                   "--set", "decode.nvjpeg=1", code=code, env={**FAKE, **env})
                self.assertIn(text, done.err)
                self.assertFalse((out / "plan").exists())

    def test_a_run_is_not_resumed_with_another_decoder(self):
        program.write_pictures(self.input, 1)
        self.go(0)
        done = millrace("run", "--input", self.input / "m.jsonl", "--output", self.out, "--device", "fake:1", "--segmenter", program.package("sam_small"),
                        "--set", "decode.nvjpeg=1", env=FAKE)
        self.assertEqual(done.code, program.MISMATCH, done)
        self.assertIn("decode.nvjpeg", done.err)

    def test_the_real_library_has_all_functions(self):
        """Without a driver it finds no engines, and the message names the function that said so."""
        if Path("/proc/driver/nvidia/gpus").is_dir():
            self.skipTest("this machine has a GPU: the fake device has no memory that the library could write")
        program.write_pictures(self.input, 1)
        self.go(code=program.ENVIRONMENT, MILLRACE_NVJPEG=str(real_library()))
        self.assertIn("has no JPEG engines (nvjpegCreateEx: EXECUTION_FAILED). Only some GPUs have them, such as A100 and H100; leave decode.nvjpeg out", self.done.err)


class Verify(Case):
    def verify(self, *arguments, **env):
        return millrace("verify", program.package("sam_small"), "--images", self.folder / "in", "--device", "fake:1", "--decode", "nvjpeg", *arguments, env={**FAKE, **env})

    def test_masks_decide(self):
        program.write_pictures(self.folder / "in", 2, 160, 120)
        program.write_picture(self.folder / "in/other.jpg", 160, 120, progressive=True)
        done = self.verify("--json")
        self.assertEqual(done.code, program.OK, done)
        measures = json.loads(done.out)
        self.assertEqual((measures["pictures"], measures["nvjpeg_decoded"]), (3, 2))
        self.assertGreater(measures["iou_min"], 0.99)
        self.assertIn("nvJPEG decoded 2 of 3 pictures, the CPU the others\n", self.verify().out)
        done = self.verify(FAKE_NVJPEG_PIXELS="grey")
        self.assertEqual(done.code, program.SOME_FAILED, done)
        self.assertIn("not within the limits", done.err)

    def test_if_nvjpeg_decodes_nothing_nothing_is_said_about_it(self):
        program.write_picture(self.folder / "in/a.jpg", 160, 120, progressive=True)
        done = self.verify()
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("nvJPEG decoded none of the pictures, so there is nothing to compare", done.err)


if __name__ == "__main__":
    program.main()
