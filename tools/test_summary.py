#!/usr/bin/env python3
"""Adds up the test reports of one run: test_summary.py FOLDER.

Reads ctest's JUnit files. Each case of a doctest program counts as one, and so does each other test.

A case counts as skipped if it has MESSAGE("skipped: reason"). Another test counts as skipped if it ends with its
SKIP_RETURN_CODE, and gives its reason in a line "skipped: reason". The summary lists all reasons and all failures.

The last line is "N passed, N failed, N skipped". The exit code is 1 if anything failed or nothing ran.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

CASES = re.compile(r"\[doctest\] test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed \|\s*(\d+) skipped")
SKIP = re.compile(r"(?:MESSAGE: |^)(skipped\b.*)", re.IGNORECASE | re.MULTILINE)


def read_report(path, failures, reasons):
    """Counts of one JUnit file as (passed, failed, skipped)."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{path.stem}: {case.get('name')}"
        output = case.findtext("system-out") or ""
        status = case.get("status")
        cases = CASES.search(output)
        said = SKIP.findall(output)
        left_out = status in ("notrun", "disabled")
        for reason in said:
            reasons[reason] += 1
        if cases:
            skipped += len(said)
            bad = int(cases[3])
            if status == "fail" and bad == 0:  # a sanitizer or a crash after the last case
                bad = 1
            failed += bad
            passed += max(0, int(cases[2]) - len(said))
            if bad:
                failures.append(name)
        elif left_out:
            skipped += 1
            if not said:
                reason = case.find("skipped")
                reasons[f"{name} did not run" + (f": {reason.get('message')}" if reason is not None else "")] += 1
        elif status == "run":
            passed += 1
        else:
            failed += 1
            failures.append(name)
    return passed, failed, skipped


def main():
    folder = pathlib.Path(sys.argv[1])
    failures = [path.stem for path in sorted(folder.glob("*.broken"))]
    reasons = collections.Counter()
    passed, failed, skipped = len(list(folder.glob("*.fine"))), len(failures), 0
    for path in sorted(folder.glob("*.xml")):
        counts = read_report(path, failures, reasons)
        if not any(counts):
            failures.append(f"{path.stem}: no test ran")
            failed += 1
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    for reason, times in sorted(reasons.items()):
        print(f"  {times} x {reason}")
    for failure in failures:
        print(f"  FAILED: {failure}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
