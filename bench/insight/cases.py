"""The runs of the proof with real runs: what each case is, and which changes can be made for real.

A change is named as the verdict names the part: a stage, "cores", "gate", "input" or "other programs". `changed` are the
fields of the setup that differ. Where a stage cannot be made twice as fast, a stand-in is used, and `note` says which.
The results have the factor that was measured.

- `detect`: half of the pictures have their boxes in the manifest. `segment`: half of the pictures have no object.
- `decode`: two of three pictures are not progressive. If none is, each picture is decoded only once, which is an upper limit.
- `encode`: no overlays, which is an upper limit too.
- `cores`: the base run has one core of two, or a quota. The changed run has twice as much, with the same threads.
- `read`, `commit`: the limits of the disk are twice as high, or the latency is half.
"""

from dataclasses import dataclass

from one_run import DETECT, IN_MEMORY, ONE, TWO, Setup


@dataclass(frozen=True)
class Change:
    changed: dict
    note: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    setup: Setup
    changes: dict  # by the name that the verdict would use
    disturbed: bool = False  # by another program, a slow disk or a quota


SKIP_DETECT = Change({"skip_detect": 0.5})
SKIP_SEGMENT = Change({"skip_segment": 0.5}, "the pictures without objects also cost postprocess and encode less")
LESS_DECODE = Change({"cheaper": 0.67}, "67 % of the pictures are not progressive")
NO_DECODE = Change({"source": IN_MEMORY}, "an upper limit: each picture is decoded once")
ALONE = Change({"hogs": 0})
TWICE_THE_CORES = Change({"cores": TWO})
WITHOUT_WORKERS = Change({"source": IN_MEMORY, "formats": ()}, "an upper limit: the lane never waits for the workers, which hardly run")


def two_threads(**others):
    """The cores cannot help a run with at most as many busy threads as cores, so the change is not tried."""
    return {"team": 1, "cores": TWO, **others}


def one_core(**others):
    """Without its option, the number of lanes follows the cores. The verdict's change is twice the cores with the same threads."""
    return {"cores": ONE, "options": {"threads.lanes": 1}, **others}


def gate(frames):
    return Change({"options": {"gate.frames": frames}})


CASES = (
    Case(
        "many boxes, a team of two", Setup(pictures=70, team=2, boxes=20),
        {"segment": SKIP_SEGMENT, "detect": SKIP_DETECT, "decode": NO_DECODE, "cores": WITHOUT_WORKERS},
    ),
    Case(
        "detector only", Setup(pictures=240, stages=DETECT, **two_threads()),
        {"detect": SKIP_DETECT, "decode": NO_DECODE},
    ),
    Case(
        "large progressive pictures", Setup(pictures=120, stages=DETECT, form="huge", skip_detect=1, **two_threads()),
        {"decode": LESS_DECODE},
    ),
    Case(
        "overlays of given boxes", Setup(pictures=300, stages=DETECT, skip_detect=1, formats=("overlay",), **two_threads()),
        {"encode": Change({"formats": ()}, "an upper limit: no overlays"), "decode": NO_DECODE},
    ),
    Case(
        "slow writer on stdin", Setup(pictures=40, stages=DETECT, interval_s=0.25, **two_threads()),
        {"input": Change({"interval_s": 0.125}), "decode": NO_DECODE},
    ),
    Case(
        "two pictures in flight", Setup(pictures=60, stages=DETECT, latency_s=0.15, options={"gate.frames": 2}, **two_threads()),
        {"gate": gate(4), "read": Change({"latency_s": 0.075}), "decode": NO_DECODE, "detect": SKIP_DETECT},
    ),
    Case(
        "two lanes on one core", Setup(pictures=60, boxes=5, formats=("overlay",), cores=ONE, options={"threads.lanes": 2, "threads.workers": 2}),
        {"cores": TWICE_THE_CORES, "segment": SKIP_SEGMENT, "detect": SKIP_DETECT, "decode": NO_DECODE},
    ),
    Case(
        "stages of equal cost on one core", Setup(pictures=120, stages=DETECT, form="progressive", formats=("overlay",), **one_core()),
        {"cores": TWICE_THE_CORES, "detect": SKIP_DETECT, "decode": LESS_DECODE},
    ),
    Case(
        "many boxes on one core", Setup(pictures=30, boxes=30, **one_core()),
        {"segment": SKIP_SEGMENT, "cores": TWICE_THE_CORES, "detect": SKIP_DETECT, "decode": NO_DECODE},
    ),
    Case(
        "one reader of storage with latency", Setup(pictures=60, stages=DETECT, latency_s=0.15, options={"read.threads": 1}, **two_threads()),
        {"read": Change({"latency_s": 0.075}), "gate": Change({"options": {"read.threads": 1, "gate.frames": 32}}), "detect": SKIP_DETECT},
        disturbed=True,
    ),
    Case(
        "a team of two, four other programs", Setup(pictures=24, team=2, boxes=20, hogs=4),
        {"other programs": ALONE, "segment": SKIP_SEGMENT, "detect": SKIP_DETECT},
        disturbed=True,
    ),
    Case(
        "two other programs on one core", Setup(pictures=50, stages=DETECT, hogs=2, **one_core()),
        {"other programs": ALONE, "cores": TWICE_THE_CORES, "detect": SKIP_DETECT, "decode": NO_DECODE},
        disturbed=True,
    ),
    Case(
        "one other program on one core", Setup(pictures=25, boxes=10, hogs=1, **one_core()),
        {"other programs": ALONE, "cores": TWICE_THE_CORES, "segment": SKIP_SEGMENT, "detect": SKIP_DETECT, "decode": NO_DECODE},
        disturbed=True,
    ),
    Case(
        "a nice program on one core", Setup(pictures=50, boxes=2, formats=("overlay",), hogs=1, hog_nice=10, **one_core()),
        {"other programs": ALONE, "cores": TWICE_THE_CORES, "segment": SKIP_SEGMENT, "detect": SKIP_DETECT, "decode": NO_DECODE},
        disturbed=True,
    ),
    Case(
        "a quota of half a core", Setup(pictures=40, stages=DETECT, quota=0.5, **two_threads()),
        {"cores": Change({"quota": 1}), "detect": SKIP_DETECT, "decode": NO_DECODE},
        disturbed=True,
    ),
    Case(
        "a team of two with a quota of one core", Setup(pictures=30, team=2, boxes=10, quota=1),
        {"cores": Change({"quota": 2}), "segment": SKIP_SEGMENT, "detect": SKIP_DETECT, "decode": NO_DECODE},
        disturbed=True,
    ),
    Case(
        "a slow disk with the pictures", Setup(pictures=60, stages=DETECT, disk={"read_bps": 3_000_000}, **two_threads()),
        {"read": Change({"disk": {"read_bps": 6_000_000}}), "detect": SKIP_DETECT, "gate": gate(32)},
        disturbed=True,
    ),
    Case(
        "a slow disk for the results", Setup(pictures=60, stages=DETECT, disk={"write_iops": 20}, output_on_disk=True, **two_threads()),
        {"commit": Change({"disk": {"write_iops": 40}}), "detect": SKIP_DETECT, "gate": gate(32)},
        disturbed=True,
    ),
    Case(
        "a slow disk for overlays",
        Setup(pictures=40, stages=DETECT, formats=("overlay",), disk={"write_bps": 2_000_000}, output_on_disk=True, **two_threads()),
        {"encode": Change({"disk": {"write_bps": 4_000_000}}, "a disk that is twice as fast"), "detect": SKIP_DETECT, "decode": NO_DECODE},
        disturbed=True,
    ),
    Case(
        "a slow disk and another program", Setup(pictures=60, stages=DETECT, hogs=1, disk={"read_bps": 2_000_000}, **two_threads()),
        {"read": Change({"disk": {"read_bps": 4_000_000}}), "other programs": ALONE, "detect": SKIP_DETECT},
        disturbed=True,
    ),
)
