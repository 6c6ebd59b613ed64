"""The part `peers`: Millrace and the scripts of peers.py, in turns on the same work."""

import re
import shutil
import statistics
import sys
import time
from pathlib import Path

from session import BUNDLE, OutOfTime, Session, scratch
from program import millrace, packages_of, side_of, write_manifest
from turns import Failed, Turns
from variants import engines


def remaining(seconds):
    """`seconds`, or the rest of the part's time if that is shorter. Raises OutOfTime."""
    left = Session.deadline - time.monotonic()
    if left <= 0:
        raise OutOfTime
    return min(seconds, left)


def why(error):
    """The message of a script that failed. Raises OutOfTime if the part's time is up: then the script was stopped."""
    if time.monotonic() >= Session.deadline:
        raise OutOfTime from None
    return str(error) or "ended without a message"


def peers(results, inputs):
    """Measures Millrace, the usual script and the tuned one in turns, on the same pictures and boxes.

    A turn has pictures for eight seconds. Their number comes from a first turn, which does not count.
    Millrace took 21 s to start on an H200, with TorchScript and three lanes, so a round takes about 45 s.
    Loading and compiling take at most 120 + 210 s, and usually half of that. So four rounds end after five minutes.
    After 300 s no further round begins, except the first two.
    The end of the part's time stops the current turn. Complete rounds count. Without one, the first turns of all do;
    their few pictures make them rough. Without these, all is left for another call.
    """
    name, detector, segmenter = packages_of(inputs)
    if name == "builtin":
        print("  peers needs yolov8n.pkg and mobile_sam.pkg; give --inputs the folder that has them")
        return
    key, tools = {"what": "peer", "models": name, "boxes_per_picture": 10}, ("millrace", "the usual script", "a tuned script")
    if all(results.has(**key, tool=tool) for tool in tools):
        return
    begun = time.monotonic()
    with scratch() as folder:
        folder = Path(folder)
        longest = Session.few(20000, 2)
        write_manifest(folder / "m.jsonl", inputs / "pictures", longest, 10)
        settings = {"millrace": {"source": "files"}}

        def ours(pictures, seconds):
            write_manifest(folder / "own.jsonl", inputs / "pictures", pictures, 10)
            settings["millrace"]["engine"], engine = list(engines(inputs).items())[-1]  # the one that took longest to compile
            done, report, _ = millrace(folder / "out", "--input", folder / "own.jsonl", "--device", Session.device, "--source", "files", "--detector", detector,
                                       "--segmenter", segmenter, "--set", "detect.skip_with_boxes=no", *engine, timeout=seconds)
            plan = folder / "out/plan/plan.json"
            settings["millrace"]["dtype"] = (re.findall(r'"precision": *"([^"]*)"', plan.read_text()) or [None])[0] if plan.is_file() else None
            shutil.rmtree(folder / "out", ignore_errors=True)
            if done.returncode != 0:
                raise Failed(done.stderr[-800:])
            return {"pictures": pictures, "pictures_per_s": report["run_window"]["pictures_per_s"]}

        turns, failures, first, only_first = {"millrace": ours}, {}, {}, {}
        rates, pictures = {tool: [] for tool in tools}, {"millrace": Session.few(400, 2), "the usual script": Session.few(12, 2), "a tuned script": Session.few(2048, 2)}
        try:
            for tool, seconds, more in (("the usual script", 120, []), ("a tuned script", 210, ["--tuned"])):
                few = Session.few([], ["--batch", "2", "--workers", "2", "--compile-seconds", "0"]) + ["--rehearse"] * (Session.rehearsal == "cuda")
                try:
                    turns[tool] = Turns(sys.executable, BUNDLE / "peers.py", folder / "m.jsonl", "--detector", detector, "--segmenter", segmenter, "--device", Session.torch_device,
                                        "--side", side_of(segmenter), *more, *few, seconds=remaining(seconds))
                    settings[tool] = turns[tool].settings
                except Failed as error:
                    failures[tool] = why(error)
            for round_ in range(1 + Session.few(3, 2)):
                if round_ > 1 and time.monotonic() - begun > 300:
                    break
                for tool in [tool for tool in tools if tool in turns and tool not in failures]:
                    try:
                        if round_ == 0 and tool == "the usual script":
                            turns[tool](pictures[tool], remaining(60))  # its first pictures are not typical
                        done = turns[tool](pictures[tool], remaining(60))
                    except Failed as error:
                        failures[tool] = why(error)
                        continue
                    if round_ == 0:
                        first[tool] = done["pictures_per_s"]
                        pictures[tool] = min(longest, max(pictures[tool], int(8 * first[tool])))
                    else:
                        rates[tool].append(done["pictures_per_s"])
        except OutOfTime:
            complete = min((len(rates[tool]) for tool in tools if tool not in failures), default=0)
            rates = {tool: own[:complete] for tool, own in rates.items()}
            if complete == 0:
                if any(tool not in first for tool in tools if tool not in failures):
                    raise
                rates, only_first = {tool: [rate] for tool, rate in first.items()}, {"only_first_turns": True}
        finally:
            for script in turns.values():
                if script is not ours:
                    script.close()
    results.document["records"] = [r for r in results.document["records"] if any(r.get(k) != v for k, v in key.items())]  # compare only rates of one call
    for tool in tools:
        if tool in failures:
            results.add(**key, tool=tool, settings=settings.get(tool, {}), failed=failures[tool])
            continue
        ratio = {}
        if tool != "millrace" and "millrace" not in failures:
            ratios = [own / other for own, other in zip(rates["millrace"], rates[tool], strict=True)]
            ratio = {"millrace_is_faster_by": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)]}
        results.add(**key, tool=tool, pictures_per_s=statistics.median(rates[tool]), spread=[min(rates[tool]), max(rates[tool])], **ratio, **only_first, pictures=pictures[tool],
                    turns=len(rates[tool]), settings=settings[tool], wall_s=time.monotonic() - begun)
