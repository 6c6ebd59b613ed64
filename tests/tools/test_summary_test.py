"""The summary of tools/test_summary.py for reports with passes, failures, crashes and skips."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"


def summarise(tests, marks=()):
    """The summary of `tests`, a list of (status, output): (exit code, lines)."""
    cases = "".join(
        f'<testcase name="t{index}" status="{status}"><system-out>{output}</system-out></testcase>' for index, (status, output) in enumerate(tests)
    )
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "release.xml").write_text(f"<testsuite>{cases}</testsuite>")
        for mark in marks:
            pathlib.Path(folder, mark).touch()
        done = subprocess.run([sys.executable, SUMMARY, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()


def doctest(passed, failed, skipped=0, before=""):
    return f"{before}\n[doctest] test cases: {passed + failed} | {passed} passed | {failed} failed | {skipped} skipped\n"


class TestSummary(unittest.TestCase):
    def test_cases_of_doctest_programs_are_counted(self):
        code, lines = summarise([("run", doctest(7, 0)), ("run", "no doctest here")])
        self.assertEqual((code, lines[-1]), (0, "8 passed, 0 failed, 0 skipped"))

    def test_failed_cases_are_counted_and_the_program_named(self):
        code, lines = summarise([("fail", doctest(5, 2)), ("fail", "")])
        self.assertEqual((code, lines[-1]), (1, "5 passed, 3 failed, 0 skipped"))
        self.assertIn("  FAILED: release: t0", lines)

    def test_a_crash_after_the_last_case_is_a_failure(self):
        code, lines = summarise([("fail", doctest(5, 0))])
        self.assertEqual((code, lines[-1]), (1, "5 passed, 1 failed, 0 skipped"))

    def test_skips_are_counted_with_their_reason(self):
        before = "a_test.cpp:9: MESSAGE: skipped: no GPU here\nb_test.cpp:7: MESSAGE: skipped: no GPU here"
        code, lines = summarise([("run", doctest(5, 0, before=before)), ("notrun", "")])
        self.assertEqual((code, lines[-1]), (0, "3 passed, 0 failed, 3 skipped"))
        self.assertIn("  2 x skipped: no GPU here", lines)

    def test_a_whole_program_that_was_left_out_says_why(self):
        code, lines = summarise([("run", doctest(1, 0)), ("notrun", "skipped: no package\n")])
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("  1 x skipped: no package", lines)

    def test_cases_count_also_when_ctest_calls_the_program_skipped(self):
        code, lines = summarise([("notrun", doctest(4, 0, before="x.cpp:1: MESSAGE: skipped: no package"))])
        self.assertEqual((code, lines[-1]), (0, "3 passed, 0 failed, 1 skipped"))

    def test_a_part_that_broke_is_a_failure(self):
        code, lines = summarise([("run", "")], ["lint.fine", "asan build.broken"])
        self.assertEqual((code, lines[-1]), (1, "2 passed, 1 failed, 0 skipped"))
        self.assertIn("  FAILED: asan build", lines)

    def test_a_report_without_tests_is_a_failure(self):
        code, lines = summarise([], ["lint.fine"])
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("  FAILED: release: no test ran", lines)


if __name__ == "__main__":
    unittest.main()
