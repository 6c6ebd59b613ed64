"""49 real changes, and what `millrace report --what-if` predicts for them.

Each base run predicts several changes; then every change is made and measured in turns with the base. A change is written
as the program reads it: "STAGE xN", "OPTION=N" or "others=0". For a stage, N is the factor that was measured, because
the stand-ins of cases.py do not reach exactly 2. The slow disk needs root; without it, its changes are left out.
"""

import dataclasses
import json
import statistics
import subprocess
from dataclasses import dataclass

import surroundings
from cases import ALONE, LESS_DECODE, SKIP_DETECT, SKIP_SEGMENT, Change, one_core, two_threads
from one_run import DETECT, ONE, TWO, Setup
from turns import BASE, factor, in_turns, rates


@dataclass(frozen=True)
class Base:
    name: str
    setup: Setup
    changes: dict  # by the words for --what-if; "STAGE x" gets its factor after the runs


LANES, WORKERS, READERS, FRAMES, MEMORY, BATCH, BOXES = "threads.lanes", "threads.workers", "read.threads", "gate.frames", "gate.memory", "batch.size", "segment.box_batch"
ONE_FILE = Change({"formats": ("overlay",)}, "without the label map")
ONE_CORE = Change({"cores": ONE})


def base(name, setup, options=(), **stages):
    """A base run with changes of options, and of stages by name."""
    changes = {f"{key}={value}": Change({"options": {**setup.options, key: value}}) for key, value in options}
    for key, value in options:
        if key == LANES:  # the program predicts lanes that share the threads of the team, as the defaults do
            changes[f"{key}={value}"].changed["team"] = max(1, setup.team // value)
    return Base(name, setup, changes | {words: change for words, change in stages.pop("others", {}).items()} | {f"{stage} x": change for stage, change in stages.items()})


NETWORK = {"stages": DETECT, "latency_s": 0.4}

BASES = (
    base(
        "many boxes", Setup(pictures=60, team=2, boxes=10, formats=("overlay",)), ((WORKERS, 2), (FRAMES, 4), (LANES, 2)),
        segment=SKIP_SEGMENT, detect=SKIP_DETECT, others={"cores=1": ONE_CORE},
    ),
    base(
        "detector", Setup(pictures=120, stages=DETECT, **two_threads()), ((WORKERS, 2), (LANES, 2), (BATCH, 4)),
        detect=SKIP_DETECT, others={"cores=1": ONE_CORE},
    ),
    base(
        "large pictures", Setup(pictures=36, stages=DETECT, form="huge", **two_threads()), ((WORKERS, 2), (LANES, 2)),
        decode=LESS_DECODE, others={"cores=1": ONE_CORE},
    ),
    base(
        "overlays and label maps", Setup(pictures=80, boxes=2, formats=("overlay", "png"), **two_threads()), ((WORKERS, 2), (LANES, 2), (BATCH, 4)),
        encode=ONE_FILE, segment=SKIP_SEGMENT, others={"cores=1": ONE_CORE},
    ),
    base(
        "another program", Setup(pictures=40, team=2, boxes=10, hogs=1), ((WORKERS, 2), (LANES, 2)),
        segment=SKIP_SEGMENT, others={"others=0": ALONE, "cores=1": ONE_CORE},
    ),
    base(
        "storage with latency", Setup(pictures=60, options={READERS: 2}, **NETWORK, **two_threads()), ((READERS, 1), (READERS, 4), (READERS, 8), (LANES, 2)),
        read=Change({"latency_s": 0.2}),
    ),
    base(
        "a slow disk", Setup(pictures=60, stages=DETECT, disk={"read_bps": 3_000_000}, options={READERS: 2}, **two_threads()), ((READERS, 1), (READERS, 8), (LANES, 2)),
        read=Change({"disk": {"read_bps": 6_000_000}}),
    ),
    base(
        "two pictures in flight", Setup(pictures=48, options={FRAMES: 2}, **NETWORK, **two_threads()), ((FRAMES, 4), (FRAMES, 8), (WORKERS, 2)),
        read=Change({"latency_s": 0.2}),
    ),
    base(
        "memory for two large pictures", Setup(pictures=36, boxes=2, form="huge", formats=("overlay",), options={"gate.slab": "32M", MEMORY: "64M"}, **two_threads()),
        ((MEMORY, "128M"), (MEMORY, "512M")),
    ),
    base(
        "calls of few boxes", Setup(pictures=60, boxes=10, formats=("overlay",), options={BOXES: 4}, **two_threads()), ((BOXES, 1), (BOXES, 2), (BOXES, 10)),
    ),
    base(
        "one core", Setup(pictures=60, boxes=3, **one_core()), ((LANES, 2), (WORKERS, 2), (FRAMES, 4)),
        segment=SKIP_SEGMENT, others={"cores=2": Change({"cores": TWO})},
    ),
)


def predicted(program, output, change):
    """(rate, low, high) in pictures/s; None if the program does not know the change."""
    done = subprocess.run([program, "report", output, "--what-if", change, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{change}: {done.stderr.strip()}")
    (found,) = json.loads(done.stdout)["changes"]
    return found["pictures_per_s"], found["low"], found["high"]


def compared(one, arguments, runner):
    """The changes of one base run, predicted and measured."""
    kept = arguments.work / "kept"
    setups = {BASE: one.setup} | {words: dataclasses.replace(one.setup, **change.changed) for words, change in one.changes.items()}
    recorded = runner.run(one.setup, keep=kept)  # the predictions come from this run
    results = in_turns(runner, setups, arguments.turns)
    before = rates(results[BASE])
    strangers = max(result["strangers"] for runs in results.values() for result in runs)
    changes = []
    for words in one.changes:
        rate = rates(results[words])
        stage = words.removesuffix(" x") if words.endswith(" x") else ""
        times = factor(stage, results[BASE], results[words]) if stage else None
        change = f"{words}{times}" if stage else words
        try:
            guess, low, high = predicted(arguments.program, kept, change)
        except (OSError, ValueError, KeyError) as error:
            changes.append({"change": change, "measured": rate, "refused": str(error)})
            continue
        changes.append({
            "change": change,
            "measured": rate,
            "predicted": {"pictures_per_s": guess, "low": low, "high": high},
            "error": round(guess / rate["median"] - 1, 4),
            "covered": low <= rate["median"] <= high,
        })
    return {"base": one.name, "setup": dataclasses.asdict(one.setup), "recorded": recorded["pictures_per_s"], "rate": before, "strangers": strangers, "changes": changes}


def compare(arguments, runner, record):
    for one in BASES:
        if arguments.only and one.name not in arguments.only:
            continue
        why = surroundings.why_not_root(bool(one.setup.quota), bool(one.setup.disk)) if one.setup.needs_root() else ""
        if why:
            print(f"left out: {one.name}: {why}", flush=True)
            record["left_out"][one.name] = why
            continue
        record["bases"].append(compared(one, arguments, runner))
        print(f"{one.name}: {record['bases'][-1]['rate']['median']:.2f} pictures/s, strangers took up to {record['bases'][-1]['strangers']:.2f} cores", flush=True)
        for change in record["bases"][-1]["changes"]:
            guess = change.get("predicted")
            text = f"predicted {guess['pictures_per_s']:.2f} [{guess['low']:.2f} to {guess['high']:.2f}], {change['error']:+.1%}" if guess else f"refused: {change['refused']}"
            print(f"  {change['change']:20} measured {change['measured']['median']:.2f}, {text}", flush=True)
        yield
    made = [change for one in record["bases"] for change in one["changes"]]
    known = [change for change in made if "predicted" in change]
    record["changes"], record["predicted"] = len(made), len(known)
    record["median_error"] = round(statistics.median(abs(change["error"]) for change in known), 4) if known else None
    record["covered"] = sum(change["covered"] for change in known)
    print(f"{len(made)} changes, {len(known)} predicted; median error {record['median_error']}, the interval covers {record['covered']}")
    yield
