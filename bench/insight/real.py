#!/usr/bin/env python3
"""How often is the verdict right about real runs? real.py [--out FILE.json] [--only NAME ...] [--turns N]

Runs the program in the cases of cases.py, and again with each change of a case. The truth is the change with the highest
measured rate. The verdict is right if the change of the part that it names has at least 95 % of that rate. A verdict that
names nothing is right if no change gains more than 5 %. If it names a part that no change belongs to, that part counts as
no gain.

Runs take turns, in this order: base and changes, then the changes and the base backwards. Cases with a quota or a
slow disk need root; without it they are left out. Needs a machine with two free cores, and about 40 minutes.
Programs that are no part of a case spoil its rates: the last word of its line then says so. Repeat such a case with --only
and the same --out; the file keeps the other cases.

With --what-if, the script makes 46 real changes, and compares the rates with the predictions of `millrace report
--what-if`. This takes about 15 minutes.
"""

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "bench/gpu"))  # at the end: program.py of that folder must not hide others

import surroundings  # noqa: E402
import what_if_runs  # noqa: E402
from cases import CASES  # noqa: E402
from one_run import Runner  # noqa: E402
from processor import processor  # noqa: E402
from turns import BASE, factor, in_turns, rates  # noqa: E402

TIE = 0.05
MEDIAN_ERROR, COVERED = 0.1, 0.9  # the targets of predictions: exit code 1 if they are missed
QUIET = 0.1  # cores: if programs that are no part of a case take more, its rates mean little


def change_of(named, case):
    """The change of the part that a verdict names; empty if the case has none."""
    if named in ("disk reads", "disk writes"):
        limit = "read_" if named == "disk reads" else "write_"
        return next((name for name, change in case.changes.items() if any(key.startswith(limit) for key in change.changed.get("disk", ()))), "")
    return named if named in case.changes else ""


def judged(case, runner, turns):
    setups = {BASE: case.setup} | {name: dataclasses.replace(case.setup, **change.changed) for name, change in case.changes.items()}
    results = in_turns(runner, setups, turns)
    base = results.pop(BASE)
    before = rates(base)
    changes = {}
    for name, change in case.changes.items():
        rate = rates(results[name])
        changes[name] = {"rate": rate, "times": round(rate["median"] / before["median"], 3), "changed": change.changed}
        changes[name] |= {"stage_times_as_fast": factor(name, base, results[name]), "note": change.note}
    truth = max(changes, key=lambda name: changes[name]["times"])
    best = max(changes[truth]["times"], 1.0)
    named = base[0]["named"]
    gain = changes[change_of(named, case)]["times"] if change_of(named, case) else 1.0
    return {
        "case": case.name,
        "disturbed": case.disturbed,
        "setup": dataclasses.asdict(case.setup),
        "rate": before,
        "named": named,
        "named_in_other_turns": [result["named"] for result in base[1:]],
        "truth": truth if best > 1 + TIE else "",
        "right": gain >= (1 - TIE) * best,
        "sentence": base[0]["sentence"],
        "strangers": max(result["strangers"] for runs in (base, *results.values()) for result in runs),
        "changes": changes,
        "base": base,
    }


def row(one):
    times = ", ".join(f"{name} x{change['times']:.2f}" for name, change in sorted(one["changes"].items(), key=lambda item: -item[1]["times"]))
    right = "right" if one["right"] else "WRONG"
    noise = f"; NOT QUIET: strangers took up to {one['strangers']:.2f} cores" if one["strangers"] > QUIET else ""
    others = f"; others took {one['base'][0]['other_cores']:.2f} cores, in truth {one['base'][0]['hog_cores']:.2f}" if one["base"][0].get("hog_cores") else ""
    return f"{right}  {one['case']}: {one['rate']['median']:.2f} pictures/s, named {one['named'] or 'nothing'}; {times}{others}{noise}"


def verdicts(arguments, runner, record):
    record["cases"] = kept(arguments, record, "cases", "case")
    for case in CASES:
        if arguments.only and case.name not in arguments.only:
            continue
        why = surroundings.why_not_root(bool(case.setup.quota), bool(case.setup.disk)) if case.setup.needs_root() else ""
        if why:
            print(f"left out: {case.name}: {why}", flush=True)
            record["left_out"][case.name] = why
            continue
        record["cases"].append(judged(case, runner, arguments.turns))
        print(row(record["cases"][-1]), flush=True)
        yield
    right = sum(case["right"] for case in record["cases"])
    record["right"] = right
    print(f"right: {right} of {len(record['cases'])}")
    yield


def kept(arguments, record, key, name):
    """With --only: the results of other cases in the file, if they come from this machine and program."""
    if not (arguments.only and arguments.out and arguments.out.exists()):
        return []
    old = json.loads(arguments.out.read_text(encoding="utf-8"))
    if any(old[same] != record[same] for same in ("cpu", "cores", "commit", "pictures", "turns", "scale")):
        sys.exit(f"{arguments.out}: has results of another machine, commit or setting; name another file with --out")
    return [one for one in old.get(key, []) if one[name] not in arguments.only]


def described(arguments):
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return processor() | {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "commit": git.stdout.strip(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "pictures": "photographs" if arguments.pictures else "drawn",
        "turns": arguments.turns,
        "scale": arguments.scale,
        "load_before": os.getloadavg(),
        "left_out": {},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/apps/millrace")
    parser.add_argument("--work", type=Path, default=ROOT / "build/insight", help="folder for pictures and results")
    parser.add_argument("--pictures", type=Path, help="folder of photographs (default: drawn scenes)")
    parser.add_argument("--only", nargs="+", help="names of cases, or of base runs with --what-if")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of pictures: 0.2 to try the script")
    parser.add_argument("--what-if", action="store_true")
    parser.add_argument("--minimum", type=int, default=0, help="exit code 1 if fewer verdicts are right")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not arguments.program.exists():
        sys.exit(f"{arguments.program}: no such file; 'make build' builds the program")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("real.py: needs two cores: several cases compare one core with two")
    known = {case.name for case in (what_if_runs.BASES if arguments.what_if else CASES)}
    unknown = set(arguments.only or ()) - known
    if unknown:
        sys.exit(f"real.py: no case {', '.join(sorted(unknown))}; the names are: {', '.join(sorted(known))}")
    surroundings.exit_on_signals()
    record = described(arguments)
    with Runner(arguments.program, arguments.work, arguments.pictures, arguments.scale) as runner:
        if arguments.what_if:
            record["bases"] = kept(arguments, record, "bases", "base")
        steps = what_if_runs.compare(arguments, runner, record) if arguments.what_if else verdicts(arguments, runner, record)
        for _ in steps:
            record["load_after"] = os.getloadavg()
            if arguments.out:
                arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if arguments.what_if:
        sys.exit(record.get("median_error") is None or record["median_error"] > MEDIAN_ERROR or record["covered"] < COVERED * record["predicted"])
    sys.exit(record.get("right", 0) < arguments.minimum)


if __name__ == "__main__":
    main()
