"""Keeps measurements in a JSON file, so that no later call of the suite repeats them."""

import itertools
import json
import re
import time
import traceback
from pathlib import Path

from session import OutOfTime, Session, commit, machine


def failed(record):
    return "failed" in record or record.get("passed") is False and record.get("rehearsal") != "cuda"


# These keys identify a measurement. A key that a record does not have counts as None.
IDENTITY = ("what", "part", "tool", "package", "precision", "batch", "method", "models", "boxes_per_picture", "source", "engine", "options", "workers")


class OtherMachine(Exception):
    """The results file belongs to another machine."""


def file_name(machine):
    """A name like those in bench/results: nvidia-h200-2026-11-22.json."""
    gpu = "rehearsal" if Session.rehearsal else re.sub(r"[^a-z0-9]+", "-", machine["gpu"].lower()).strip("-")
    return f"{gpu}-{time.strftime('%Y-%m-%d', time.gmtime())}.json"


class Results:
    """The records of a results file. The file is written after each record.

    Without `file`, it is the first of NAME, NAME-2, NAME-3 ... that is new or belongs to this machine.
    """

    def __init__(self, file):
        here = machine()
        first, self.left = Path(file_name(here)), []
        numbered = (first if number == 1 else first.with_stem(f"{first.stem}-{number}") for number in itertools.count(1))
        for self.file in [file] if file else numbered:
            self.document = {"machine": here, "records": []}
            self.read()
            there = self.document["machine"]
            others = [f"{name} {there.get(name)!r}, but here {here.get(name)!r}" for name in ("gpu", "driver", "cpu", "cores") if there.get(name) != here.get(name)]
            if not others:
                return
            said = f"{self.file} is of another machine: {'; '.join(others)}"
            if file:
                raise OtherMachine(f"{said}. Name another file with --out")
            print(said, flush=True)

    def read(self):
        if self.file.is_file():
            self.document = json.loads(self.file.read_text())

    def write(self):
        """Replaces the file in one step, since a session can end at any moment."""
        new_file = self.file.with_name(self.file.name + ".new")
        new_file.write_text(json.dumps(self.document, indent=1) + "\n")
        new_file.replace(self.file)

    @staticmethod
    def same(a, b):
        return all(a.get(name) == b.get(name) for name in IDENTITY)

    def has(self, **key):
        """Whether this was measured. Failed records do not count, nor those of first turns only, so that they are measured again."""
        return any(self.same(record, key) for record in self.document["records"] if not failed(record) and not record.get("only_first_turns"))

    def measure(self, measurement, late=False, **key):
        """Calls `measurement`, unless it has a record. Its result and `key` become the record.

        If it raises, the record is a failed one. If no time is left, `key` is added to `left`.
        late: call it even then, since the work has been done.
        """
        if self.has(**key):
            return
        try:
            if time.monotonic() >= Session.deadline and not late:
                raise OutOfTime
            found = measurement()
            if clash := sorted(set(found) & set(IDENTITY)):
                raise ValueError(f"the result of {key} has {clash}, which identify records; rename them in the measurement")
        except OutOfTime:
            self.left.append(key)
            return
        except Exception:
            found = {"failed": traceback.format_exc()[-1200:]}
        self.add(**key, **found)

    def add(self, **record):
        self.forget_failed(record)
        record |= {"commit": commit(), **({"rehearsal": Session.rehearsal} if Session.rehearsal else {})}
        record["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.document["records"].append(record)
        self.write()
        shown = {k: v for k, v in record.items() if not isinstance(v, (dict, list)) and k not in ("at", "commit") and (k == "failed" or len(str(v)) < 300)}
        print("  " + "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in shown.items()), flush=True)

    def forget_failed(self, key):
        self.document["records"] = [r for r in self.document["records"] if not (failed(r) and self.same(r, key))]
