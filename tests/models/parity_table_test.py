"""The smallest row of `make parity`, and what its comparison of boxes finds."""

import os
import unittest

import parity_table
import program

MILLRACE = os.environ.get("MILLRACE_PROGRAM", "build/release/apps/millrace")


def boxes(*corners, score=0.9):
    return [{"box": [x, y, 100, 50], "score": score, "class": 1} for x, y in corners]


class ParityTable(unittest.TestCase):
    def test_a_package_with_trained_weights_finds_what_the_original_finds(self):
        if not (program.DATA / "models" / "yolox_nano.onnx").is_file():
            self.skipTest("no trained YOLOX-nano")
        row = parity_table.check("yolox_nano", MILLRACE)
        self.assertTrue(row["within"], row)
        self.assertGreaterEqual(row["objects"], 5)
        self.assertIn("| yolox_nano (v8) | trained | yes | equal | ", parity_table.table([row]))

    def test_boxes_that_moved_or_are_missing_are_beyond_the_limit(self):
        original = boxes((10, 10), (300, 20))
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10.1, 10), (300, 20))}, {"a": original})["within"], True)
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10.6, 10), (300, 20))}, {"a": original})["unmatched"], 2)
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10, 10))}, {"a": original})["unmatched"], 1)
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10, 10), (300, 20), score=0.8)}, {"a": original})["within"], False)
        self.assertEqual(parity_table.compare_boxes({}, {"a": original})["within"], False)


if __name__ == "__main__":
    unittest.main(verbosity=2)
