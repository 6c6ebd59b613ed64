"""Small rows of `make parity`, and what its comparison of boxes finds."""

import contextlib
import os
import unittest
from unittest import mock

import export_case
import package
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
        self.assertIn("| yolox_nano (v8) | trained | equal | ", parity_table.table([row]))

    def test_masks_of_shallow_segmenters_are_those_of_the_original(self):
        if not (program.DATA / "pictures").is_dir():
            self.skipTest("no photographs")
        for name, own_size in (("sam_shallow", False), ("sam2_shallow", True)):
            with self.subTest(name), contextlib.ExitStack() as stack:
                stack.enter_context(export_case.shallow_sams())
                stack.enter_context(mock.patch.object(parity_table, "PICTURES", ("street.jpg",)))
                stack.enter_context(mock.patch.object(package, "write_programs", lambda *_: ()))  # export_test makes them
                if own_size:  # so resizing is compared too
                    stack.enter_context(mock.patch.object(parity_table, "sizes_for", lambda _: lambda *size: size))
                row = parity_table.check(name, MILLRACE)
                self.assertGreaterEqual(row["iou_min"], parity_table.IOU_LIMIT, row)
                self.assertEqual(row["masks"], 6)

    def test_boxes_that_moved_or_are_missing_are_beyond_the_limit(self):
        original = boxes((10, 10), (300, 20))
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10.1, 10), (300, 20))}, {"a": original})["within"], True)
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10.6, 10), (300, 20))}, {"a": original})["unmatched"], 2)
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10, 10))}, {"a": original})["unmatched"], 1)
        self.assertEqual(parity_table.compare_boxes({"a": boxes((10, 10), (300, 20), score=0.8)}, {"a": original})["within"], False)
        self.assertEqual(parity_table.compare_boxes({}, {"a": original})["within"], False)


if __name__ == "__main__":
    unittest.main(verbosity=2)
