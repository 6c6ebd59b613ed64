"""Runs in turns, and what they have in common."""

import statistics

BASE = "base"


def in_turns(runner, setups, turns):
    """Results by name, one of each turn. Every second turn goes backwards."""
    results = {name: [] for name in setups}
    for turn in range(turns):
        for name in list(setups) if turn % 2 == 0 else reversed(setups):
            results[name].append(runner.run(setups[name]))
    return results


def rates(results):
    values = [result["pictures_per_s"] for result in results]
    return {"median": round(statistics.median(values), 3), "low": round(min(values), 3), "high": round(max(values), 3)}


def factor(name, base, changed):
    """How many times as fast the stage became, by its time on cores; by its whole time if it hardly uses one."""
    if name not in base[0]["stages"] or name not in changed[0]["stages"]:
        return None
    on_core = base[0]["stages"][name]["core_ms"] or 0
    key = "core_ms" if on_core > 0.5 * base[0]["stages"][name]["ms"] else "ms"
    before, after = (statistics.median(result["stages"][name][key] or 0 for result in results) for results in (base, changed))
    return round(before / after, 2) if after > 0 else None
