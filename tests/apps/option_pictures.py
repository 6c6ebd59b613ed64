"""Runs that show the effect of the options of embed, categorize and regress, for options_test.py."""

import json

import program
import small_embedder
from option_case import OptionCase


class PictureOptions(OptionCase):
    def embed(self, count=1, **values):
        """Runs a small embedder on pictures with three boxes each; returns the counts of calls."""
        rows = []
        for i in range(count):
            program.write_picture(self.input / f"{i}.jpg", 100, 80, seed=i)
            rows.append({"path": f"{i}.jpg", "boxes": [[3 * j, 5, 40, 30 + j] for j in range(3)]})
        manifest = self.write("in/m.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        package = self.folder / "small.pkg"
        values.setdefault("embed__model", package if package.exists() else small_embedder.make(self.folder))
        self.lines = self.go("stages: [decode, preprocess, detect, embed, encode]\n", "--input", manifest, **values)
        return program.report(self.out)["calls"]

    def embed_model(self):
        files = []
        for seed in (1, 2):
            self.embed(embed__model=small_embedder.make(self.folder, f"small{seed}", seed))
            files.append((self.out / "segments/000000.embed.f16").read_bytes())
        self.assertNotEqual(*files)

    def embed_of(self):
        self.embed()
        self.assertEqual(self.lines[0]["embed"], 0)
        self.embed(embed__of="objects")
        self.assertEqual([found["embed"] for found in self.lines[0]["objects"]], [0, 1, 2])

    def embed_exec_batch(self):
        calls = [self.embed(4, batch__size=4, embed__exec_batch=size)["embedder_calls"] for size in (1, 2, 0)]
        self.assertEqual(calls, [4, 2, 1])
        calls = [self.embed(4, batch__size=4, embed__of="objects", embed__exec_batch=size)["embedder_calls"] for size in (1, 5, 0)]
        self.assertEqual(calls, [12, 3, 2])  # the package allows 8

    def embed_pad(self):
        self.padded("embed")

    def padded(self, stage):
        """Checks that a padded call for five pictures has eight rows."""
        program.write_pictures(self.input, 5, 96, 64)
        small = small_embedder.make_regressor(self.folder) if stage == "regress" else small_embedder.make(self.folder)
        method = {"call_ms": 0, "each_ms": 10}
        table = self.write("table.yaml", json.dumps({"name": "10 ms a picture", "upload_gb_per_s": 1000, "download_gb_per_s": 1000, "letterbox_ms": 0,
                                                     "embed": method, "regress": method}))
        for pad, seconds in (("no", 0.05), ("yes", 0.08)):
            self.go(f"stages: [decode, preprocess, {stage}, encode]\n", "--input", self.input, models__engine=f"simulated:{table}", batch__size=8,
                    **{f"{stage}__model": small, f"{stage}__pad": pad})
            (gpu,) = [row for row in program.report(self.out)["run_window"]["resources"] if row["name"] == "GPU"]
            self.assertAlmostEqual(gpu["busy_s"], seconds, delta=1e-6)

    def categorize(self, count=1, **values):
        program.write_pictures(self.input, count, 100, 80)
        package = self.folder / "small.pkg"
        values.setdefault("categorize__model", package if package.exists() else small_embedder.make(self.folder))
        lines = self.go("stages: [decode, preprocess, categorize, encode]\n", "--input", self.input, **values)
        return lines[0]["categorize"]["top"]

    def categorize_model(self):
        self.assertNotEqual(*(self.categorize(categorize__model=small_embedder.make(self.folder, f"small{seed}", seed)) for seed in (1, 2)))

    def categorize_top(self):
        self.assertEqual([len(self.categorize(categorize__top=top)) for top in (1, 3, 5)], [1, 3, 4])  # the model has four classes

    def categorize_threshold(self):
        best = self.categorize()[0][2]
        self.assertEqual(len(self.categorize(categorize__threshold=best - 1e-6)), 1)
        self.assertEqual(self.categorize(categorize__threshold=1), [])

    def categorize_temperature(self):
        cold, plain, warm = (self.categorize(categorize__temperature=t)[0][2] for t in (0.5, 1, 2))
        self.assertGreater(cold, plain)
        self.assertGreater(plain, warm)

    def categorize_exec_batch(self):
        calls = []
        for size in (1, 2, 0):
            self.categorize(4, batch__size=4, categorize__exec_batch=size)
            calls.append(program.report(self.out)["calls"]["categorizer_calls"])
        self.assertEqual(calls, [4, 2, 1])

    def categorize_pad(self):
        self.padded("categorize")

    def regress(self, count=1, **values):
        program.write_pictures(self.input, count, 100, 80)
        package = self.folder / "regressor.pkg"
        values.setdefault("regress__model", package if package.exists() else small_embedder.make_regressor(self.folder))
        return self.go("stages: [decode, preprocess, regress, encode]\n", "--input", self.input, **values)[0]["regress"]

    def regress_model(self):
        self.assertNotEqual(*(self.regress(regress__model=small_embedder.make_regressor(self.folder, f"small{seed}", seed)) for seed in (1, 2)))

    def regress_exec_batch(self):
        calls = []
        for size in (1, 2, 0):
            self.regress(4, batch__size=4, regress__exec_batch=size)
            calls.append(program.report(self.out)["calls"]["regressor_calls"])
        self.assertEqual(calls, [4, 2, 1])

    def regress_pad(self):
        self.padded("regress")
