"""docs/performance_gpu.md lists exactly the tests that need a GPU, with the date of their last run on one.

The tests of device operations have one row together.
"""

import pathlib
import re
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class Unproven(unittest.TestCase):
    def test_the_cases_of_cuda_test_are_listed(self):
        (sources,) = re.findall(r"add_executable\(cuda_test ([^)]*)\)", (SOURCE / "gpu/CMakeLists.txt").read_text())
        files = [SOURCE / name.replace("${PROJECT_SOURCE_DIR}/", "") for name in sources.split()]
        cases = [name for file in files for name in re.findall(r'^TEST_CASE\("([^"]*)"', file.read_text(), re.MULTILINE)]
        rows = re.findall(r"^\| `cuda_test`: (.*?) \| (.*?) \|", (SOURCE / "docs/performance_gpu.md").read_text(), re.MULTILINE)
        self.assertGreater(len(cases), 5)
        self.assertEqual(sorted(name for name, _ in rows), sorted(cases))
        for name, ran in rows:
            self.assertRegex(ran, r"^(never|\d{4}-\d\d-\d\d, .+)$", name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
