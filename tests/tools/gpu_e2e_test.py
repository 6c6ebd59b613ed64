"""Parts of the suite for GPU machines, without a GPU: the blocks of `e2e`, and the order and the archive of variants."""

import contextlib
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GPU = SOURCE / "bench/gpu"
os.environ.setdefault("MILLRACE_BUNDLE", str(GPU))
sys.path.insert(0, str(GPU))

import blocks  # noqa: E402
import e2e  # noqa: E402
import numpy as np  # noqa: E402
import packed  # noqa: E402
import records  # noqa: E402
import tables  # noqa: E402
import variants  # noqa: E402
from turns import Failed  # noqa: E402


class Blocks(unittest.TestCase):
    """Rates of blocks, from made-up times of batches in lanes."""

    @staticmethod
    def timeline(*batches):
        """`batches` are (lane, begin and end in s, pictures) in the order of their pictures. Each spends half of its time in each stage."""
        rows = [[lane, number, pictures, 0, begin, 500 * (end - begin), 500 * (end - begin)] for number, (lane, begin, end, pictures) in enumerate(batches)]
        return {"batches": sorted(rows, key=lambda row: row[4] + row[5])}

    def one_lane(self, *seconds, pictures=16):
        ends = np.cumsum(seconds)
        return self.timeline(*((0, end - own, end, pictures) for end, own in zip(ends, seconds, strict=True)))

    def test_the_first_batches_of_a_block_do_not_count(self):
        tens, ones = [0.3, 0.3, 0.2, 0.2, 0.2], [0.02, 0.02, 0.1, 0.1, 0.1]  # two batches are in flight when a block begins
        found = blocks.rates(self.one_lane(*tens, *ones, *tens, *ones, 9), [(80, 10), (80, 1)] * 2 + [(16, 10)], 1, 3)
        self.assertEqual(list(found), [10, 1])
        self.assertAlmostEqual(found[10]["pictures_per_s"], 80)
        self.assertAlmostEqual(found[1]["pictures_per_s"], 160)
        self.assertEqual([window["pictures"] for window in found[1]["windows"]], [48, 48])
        self.assertAlmostEqual(found[1]["windows"][0]["seconds"], 0.3)
        self.assertAlmostEqual(found[1]["windows"][0]["lanes_busy"], 1)

    def test_the_rate_is_the_median_of_the_blocks_and_the_spread_is_theirs(self):
        found = blocks.rates(self.one_lane(*[0.1] * 4, *[0.2] * 4, *[0.4] * 4, 9), [(64, 10)] * 3 + [(16, 10)], 0, 3)[10]
        self.assertAlmostEqual(found["pictures_per_s"], 80)
        np.testing.assert_allclose(found["spread"], [40, 160])

    def test_nothing_counts_while_a_lane_has_a_batch_of_another_block(self):
        # The second lane is half a batch behind the first. Batches of the first and last block take 1 s.
        batches = [(0, 0, 1, 16), (1, 0, 1.1, 16)]
        batches += [(k % 2, 1 + 0.1 * k, 1.2 + 0.1 * k, 16) for k in range(10)]  # ends at 1.2, 1.3, ... 2.1
        batches += [(0, 2, 3, 16), (1, 2.1, 3.1, 16), (0, 3, 4, 16)]
        (window,) = blocks.rates(self.timeline(*batches), [(32, 50), (160, 10), (32, 50), (16, 10)], 0, 1)[10]["windows"]
        self.assertEqual(window["pictures"], 8 * 16)  # from 1.2 s until 2 s, when the next block begins in the first lane
        self.assertAlmostEqual(window["seconds"], 0.8)
        self.assertAlmostEqual(window["lanes_busy"], 2)
        late = [(0, 0, 1, 16), (1, 0, 1.45, 16), *((0, 1 + 0.1 * k, 1.1 + 0.1 * k, 16) for k in range(10)), (0, 2, 3, 16)]
        (window,) = blocks.rates(self.timeline(*late), [(32, 50), (160, 10), (16, 50)], 0, 1)[10]["windows"]
        self.assertAlmostEqual(window["seconds"], 0.5)  # the second lane is ready at 1.45 s, and the next batch ends at 1.5 s
        self.assertAlmostEqual(window["lanes_busy"], 1)

    def test_the_order_in_which_batches_leave_does_not_matter(self):
        begins = np.arange(12) * 0.1
        lanes = [[(k % 3, begin, begin + 0.3, 16) for k, begin in enumerate(begins)] for _ in range(2)]
        for own in lanes[1][::2]:  # batches of different lanes change places
            at = lanes[1].index(own)
            lanes[1][at : at + 2] = reversed(lanes[1][at : at + 2])
        first, second = (blocks.rates(self.timeline(*own), [(160, 5), (32, 5)], 0, 2)[5] for own in lanes)
        for found in (first, second):
            self.assertAlmostEqual(found["pictures_per_s"], 160)
            self.assertAlmostEqual(found["windows"][0]["lanes_busy"], 3)

    def test_a_batch_of_two_blocks_counts_for_neither(self):
        found = blocks.rates(self.one_lane(*[0.2] * 4, 0.15, *[0.1] * 5, 9), [(72, 10), (88, 1), (16, 1)], 0, 3)
        self.assertEqual([found[boxes]["windows"][0]["pictures"] for boxes in (10, 1)], [48, 64])
        self.assertAlmostEqual(found[10]["pictures_per_s"], 80)
        self.assertAlmostEqual(found[1]["pictures_per_s"], 160)

    def test_a_block_that_is_too_short_fails_and_the_others_have_rates(self):
        found = blocks.rates(self.one_lane(*[0.2] * 4, *[0.1] * 5, 9), [(64, 10), (80, 1), (16, 10)], 1, 3)
        self.assertEqual(found[10], {"failed": "block 0 is too short: of its 4 full batches, 2 count, and at least 3 must"})
        self.assertAlmostEqual(found[1]["pictures_per_s"], 160)
        found = blocks.rates(self.one_lane(1, 1, 9), [(8, 10), (24, 1), (16, 10)], 0, 1)
        self.assertIn("of its 0 full batches, 0 count", found[10]["failed"])

    def test_the_blocks_of_a_run_are_long_enough_and_fit_its_timeline(self):
        for engine in ("", "plain"):
            made = e2e.blocks_for(engine, (10, 1, 5, 20, 50))
            self.assertEqual([boxes for _, boxes in made], 3 * [10, 1, 5, 20, 50] + [10])
            self.assertLess(sum(pictures for pictures, _ in made) / 16, 2 * 1024)  # batches that timeline.json has
            # Also with batch.size=32, no batch has pictures of two blocks. Six are in flight, and four lanes end their last ones.
            self.assertTrue(all(pictures % 32 == 0 for pictures, _ in made))
            self.assertGreater(min(pictures for pictures, _ in made[:-1]) / 16, 6 + 4 + 8)
            self.assertGreater(made[0][0] / 32, 6 + 4 + 8)

    def test_the_table_has_figures_of_a_run_only_if_its_blocks_have_the_same_number_of_boxes(self):
        run = {"gpu_demand": 0.93, "cores_busy": 1.5, "verdict": "the GPU holds the run back: it was busy", "settings": {"lanes": 3}}
        record = {"what": "e2e", "boxes_per_picture": 10, "source": "memory", "pictures_per_s": 289, "spread": [288, 291]}
        one, several = ({**record, "windows": [{"lanes_busy": 2.9}], "run": {**run, "blocks": [[16, count] for count in boxes]}} for boxes in ((10, 10), (10, 1, 10)))
        own, mixed, older = (tables.e2e([shown]).splitlines()[-1] for shown in (one, several, {**record, **run}))
        row = "| 10 | memory | torchscript |  | 289 (288 to 291) |  | 1006 | "
        self.assertEqual(own, row + "2.9 of 3 | 93 % | 1.5 | the GPU holds the run back |")
        self.assertEqual(mixed, row + "2.9 of 3 |  |  |  |")
        self.assertEqual(older, row + " | 93 % | 1.5 | the GPU holds the run back |")

    def test_a_timeline_that_lacks_batches_is_an_error(self):
        timeline = self.one_lane(*[0.2] * 6)
        del timeline["batches"][3]
        with self.assertRaisesRegex(Failed, "80 of 96 pictures"):
            blocks.rates(timeline, [(80, 10), (16, 10)], 0, 1)


class Starts(unittest.TestCase):
    """How often `e2e` starts the program, and for which numbers of boxes."""

    def setUp(self):
        self.results = object.__new__(records.Results)
        self.results.document, self.results.left, self.results.add = {"records": []}, [], lambda **record: self.results.document["records"].append(record)

    def starts(self, *tunings, short=False, fails=None, has_64=True):
        """The sets of boxes of each start. `fails`: the number of boxes whose record fails."""
        found = []

        def measured(_, blocks, source, options):
            found.append({boxes for _, boxes in blocks})
            return {boxes: {"failed": "too short"} if boxes == fails else {"pictures_per_s": 1} for _, boxes in blocks}

        with mock.patch.object(e2e, "measured", measured), mock.patch.object(e2e.Session, "short", short), \
                mock.patch.object(e2e, "engines", lambda _: {tuning: ["--engine", tuning] for tuning in ("", *tunings)}), \
                mock.patch.object(e2e, "packages_of", lambda _: ("mobile_sam", "d", "s")), mock.patch.object(e2e, "has_64", lambda *_: has_64):
            e2e.e2e(self.results, pathlib.Path("/nowhere"))
        return found

    def test_all_numbers_of_boxes_share_a_start_and_each_option_has_one(self):
        everything = {10, 1, 5, 20, 50}
        self.assertEqual(self.starts("plain"), 2 * [everything, everything, *6 * [{10}]])
        self.assertEqual(len(self.results.document["records"]), 2 * (2 * 5 + 6))
        self.assertEqual(self.starts("plain"), [])

    def test_a_short_session_has_few_starts_with_torchscript_if_there_are_variants(self):
        self.assertEqual(self.starts("plain", short=True), (8 + 2) * [{10}])

    def test_calls_of_64_boxes_are_left_out_if_they_would_be_padded(self):
        self.assertEqual(self.starts("plain", short=True, has_64=False), (7 + 2) * [{10}])
        self.assertNotIn(("plain", "segment.box_batch=64"), [(record.get("engine"), record.get("options")) for record in self.results.document["records"]])

    def test_only_what_failed_is_measured_again(self):
        self.starts(fails=50)
        self.assertEqual(sum("failed" in record for record in self.results.document["records"]), 2)
        self.assertEqual(self.starts(), 2 * [{50}])


class Compiling(unittest.TestCase):
    """What the part `compile` keeps if its time ends."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.inputs, self.calls = pathlib.Path(folder.name), []
        for name, task in (("mobile_sam", "segment"), ("yolov8n", "detect")):
            (self.inputs / f"{name}.pkg").mkdir()
            (self.inputs / f"{name}.pkg/model.yaml").write_text(f"task: {task}\n")
        self.results = object.__new__(records.Results)
        self.results.document, self.results.left, self.results.file = {"records": []}, [], self.inputs / "results.json"
        self.results.add = lambda **record: self.results.document["records"].append(record)

    def compile(self, ends_at, short=True):
        """`ends_at`: the words of the command during which the time ends, after its name and options of files."""

        def run(*words, **_):
            words = [str(word) for word in words]
            rows = [words[1], pathlib.Path(words[2]).stem, *(words[words.index("--rows") :] if "--rows" in words else ())]
            self.calls.append(rows)
            if rows == ends_at:
                variants.Session.deadline = -1.0
                raise variants.OutOfTime
            return mock.Mock(returncode=0, stdout=f"compiled {' '.join(rows)}\n", stderr=""), 1

        with mock.patch.object(variants, "run", run), mock.patch.object(variants.Session, "short", short), mock.patch.object(variants.Session, "deadline", float("inf")), \
                mock.patch.object(variants, "pack", lambda *_: {"files": []}):
            variants.compile_variants("plain", self.results, self.inputs)
        return {record.get("package", record["what"]): record for record in self.results.document["records"]}

    def test_each_method_has_a_command_and_full_calls_come_first(self):
        self.compile(None, short=False)
        rows = [["--rows", "16"], ["--rows", "4", "16"], ["--rows", "1", "4", "16"]]
        of = lambda package: [call[2:] for call in self.calls if call[:2] == ["compile", package]]  # noqa: E731
        tuning = ["--no-autotune"]
        self.assertEqual(of("yolov8n"), [row + tuning for row in rows])
        self.assertEqual(of("mobile_sam"), [["--rows", "16", "--boxes", *tuning], ["--rows", "16", "--boxes", "160", *tuning], ["--rows", "4", "16", "--boxes", "64", "160", *tuning],
                                            ["--rows", "1", "4", "16", "--boxes", "16", "64", "160", *tuning]])

    def test_what_was_compiled_is_kept_and_the_rest_is_left(self):
        found = self.compile(["compile", "mobile_sam", "--rows", "16", "--boxes", "160", "--no-autotune"])
        self.assertIn("no time was left for --rows (16,) --boxes (160,)", found["mobile_sam"]["failed"])
        self.assertIn("compiled compile mobile_sam --rows 16 --boxes --no-autotune", found["mobile_sam"]["said"])
        self.assertEqual(found["variants"], {"what": "variants", "options": "plain", "files": []})  # they come back
        self.assertEqual([key["what"] for key in self.results.left if key["what"] != "compile"], ["verify", "verify"])

    def test_runs_use_a_tuning_only_if_all_packages_have_a_variant(self):
        for number, name in enumerate(("mobile_sam", "yolov8n")):
            self.assertEqual(list(variants.engines(self.inputs)), [""])
            variant = self.inputs / f"variants-plain/{number}"
            variant.mkdir(parents=True)
            (variant / "variant.yaml").write_text(f"fingerprint: {hashlib.sha256((self.inputs / f'{name}.pkg/model.yaml').read_bytes()).hexdigest()}\n")
        self.assertEqual(list(variants.engines(self.inputs)), ["", "plain"])


class Packed(unittest.TestCase):
    """Variants whose weights are 200,000 random bytes, twice the same ones in each."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.inputs, self.results = self.folder / "inputs", self.folder / "gpu-1.json"
        random = np.random.default_rng(1)
        for name in ("autotune/a", "autotune/b", "plain/a"):
            variant = self.inputs / f"variants-{name}"
            variant.mkdir(parents=True)
            weights = random.bytes(200_000)
            (variant / "variant.yaml").write_text(f"of {name}")
            for method in ("encode", "decode"):
                (variant / f"{method}_16.so").write_bytes(method.encode() + weights)
        self.variants = [file.parent for file in sorted(self.inputs.glob("*/*/variant.yaml"))]

    def pack(self, most, part):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            found = packed.pack(self.results, self.inputs, self.variants, most, part)
        archive = [self.folder / name for name in found["files"]]
        self.assertEqual(archive, sorted(self.folder.glob("gpu-1.variants.tar.xz*")))  # no older files are left
        self.assertTrue(all(file.stat().st_size <= part for file in archive))
        self.assertLessEqual(found["bytes"], most)
        self.assertEqual(found["bytes"], sum(file.stat().st_size for file in archive))
        back = self.folder / "back"
        shutil.rmtree(back, ignore_errors=True)
        if archive:
            joined = self.folder / "joined.tar.xz"
            joined.write_bytes(b"".join(file.read_bytes() for file in archive))
            subprocess.run([sys.executable, "-m", "tarfile", "-e", joined, back], check=True)
        content = {str(file.relative_to(back)): file.read_bytes() for file in back.rglob("*") if file.is_file()}
        self.assertEqual(content, {f"{name}/{file.name}": file.read_bytes() for name in found["packed"] for file in (self.inputs / name).iterdir()})
        return found, said.getvalue()

    def test_the_files_together_are_the_archive_and_the_same_weights_take_space_once(self):
        found, said = self.pack(650_000, 250_000)
        self.assertEqual((found["files"], len(found["packed"]), found["left_out"], said), ([f"gpu-1.variants.tar.xz.{k}" for k in (1, 2, 3)], 3, [], ""))

    def test_what_exceeds_the_limit_is_left_out_and_named(self):
        self.pack(650_000, 250_000)
        found, said = self.pack(450_000, 1 << 20)
        self.assertEqual((found["files"], found["packed"], found["left_out"]), (["gpu-1.variants.tar.xz.1"], ["variants-autotune/a", "variants-autotune/b"], ["variants-plain/a"]))
        self.assertIn("left out of gpu-1.variants.tar.xz, which would exceed 0 MiB: variants-plain/a", said)
        found, _ = self.pack(100_000, 1 << 20)
        self.assertEqual((found["files"], found["packed"], len(found["left_out"])), ([], [], 3))


if __name__ == "__main__":
    unittest.main(verbosity=2)
