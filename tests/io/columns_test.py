"""Reads 100,000 objects with their rows by the very lines of docs/formats.md, section "Side columns": numpy and DuckDB.

    columns_test.py PATH/TO/io_sample_columns"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy

PAGE = (Path(__file__).resolve().parents[2] / "docs/formats.md").read_text(encoding="utf-8")
SAMPLE = Path(sys.argv[1]).resolve()


class Columns(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="millrace-test-")
        self.addCleanup(temporary.cleanup)
        subprocess.run([SAMPLE, Path(temporary.name) / "OUT"], check=True)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(temporary.name)

    def test_the_lines_of_the_page(self):
        section = re.search(r"^## Side columns\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)[1]
        with_numpy, with_duckdb = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        names = {}
        exec(compile(with_numpy, "formats.md", "exec"), names)  # noqa: S102: that is what a reader does with it
        parts = names["parts"]
        self.assertEqual({part: rows.shape for part, rows in parts.items()}, {"000000": (50_000, 4), "000001": (50_000, 4)})
        objects = 0
        for segment, (part, rows) in enumerate(parts.items()):
            for picture, line in enumerate(Path(f"OUT/segments/{part}.jsonl").read_text().splitlines()):
                numbers = [found["embed"] for found in json.loads(line)["objects"]]
                expected = [[segment, picture, i, 1] for i in range(50)]
                numpy.testing.assert_array_equal(rows[numbers], numpy.array(expected, numpy.float16))
                objects += len(numbers)
        self.assertEqual(objects, 100_000)

        # The row to compare with favours late pictures, and objects above all, so that no two products are as large.
        parts["000000"][0] = [0, 1 / 1024, 1, 0]
        exec(compile(with_duckdb, "formats.md", "exec"), names)  # noqa: S102
        nearest = names["nearest"]
        self.assertEqual([(path, name, box) for path, name, box, _ in nearest[:2]],
                         [("0/999.jpg", "class1", [49, 0, 1, 1]), ("1/999.jpg", "class1", [49, 0, 1, 1])])
        self.assertEqual([path.split("/")[1] for path, *_ in nearest], ["999.jpg", "999.jpg", "998.jpg", "998.jpg", "997.jpg"])
        self.assertAlmostEqual(nearest[0][3], 49 + 999 / 1024, places=4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
