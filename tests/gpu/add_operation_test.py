#!/usr/bin/env python3
"""Follows docs/adding_a_device_operation.md in a copy of the sources: four new files, one line, and nothing else.

    add_operation_test.py SOURCE FOLDER [CMAKE_OPTION ...]

Copies SOURCE to FOLDER/source, does what the page says, builds the tests of gpu/ there, and runs the new one. No GPU: the kernel's file is
there and is not compiled.
"""

import sys
import unittest
from pathlib import Path

SOURCE, FOLDER, OPTIONS = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
sys.path.insert(0, str(SOURCE / "tests" / "tools"))
from followed_page import FollowedPage, run


class AddOperation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = FollowedPage(SOURCE, FOLDER, "adding_a_device_operation")
        cls.page.make(OPTIONS, "gpu_test")

    def test_four_files_and_one_line(self):
        self.assertEqual(self.page.new_files(), ["gpu/ops/mirror.cpp", "gpu/ops/mirror.cu", "gpu/ops/mirror.hpp", "tests/gpu/ops/mirror_test.cpp"])
        self.assertEqual(self.page.changed_lines(), [("gpu/CMakeLists.txt", "+ millrace_operation(mirror)")])

    def test_its_own_test_runs_with_those_of_gpu(self):
        ran = run(self.page.build / "gpu" / "gpu_test", "--test-case=mirrored*")
        self.assertRegex(ran, r"test cases: +1 \| +1 passed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
