"""Measures how calm the law of initial windows is: 34 PoPs, seven days, ours and the naive ones, a simulation.

Also draws a week of two pairs, beside the JSON.
"""

from __future__ import annotations

from springtide.policy import Policy

from bench.calm import plot, simulate
from bench.runner import Bench, Run, progress


def measure(run: Run) -> None:
    days, seed = run.sizes["days"], run.sizes["seed"]
    pairs = run.sizes["pops"] * (run.sizes["pops"] - 1)

    def on_day(day: int, of: int) -> None:
        progress(f"{pairs} pairs: day {day + 1} of {of}")

    tallies, shown = simulate.initcwnd(pairs, days, seed, Policy(), on_day)
    summaries = [tally.summary(days) for tally in tallies]
    plot.draw(tallies, shown, days, run.out.with_suffix(".svg"))
    run.note(table(summaries))
    for one in summaries:
        for name, value in one.items():
            if not isinstance(value, str):
                run.figure(name, value, controller=str(one["controller"]))


def table(summaries: list[dict[str, float | str]]) -> str:
    """Markdown, as the docs show it."""
    names = {
        "controller": "controller",
        "changes_per_pair_and_day_median": "changes per pair and day, median",
        "changes_per_pair_and_day_p95": "p95",
        "changed_routes_per_round_median": "routes changed per round, median",
        "share_of_attainable_gain": "share of attainable gain",
        "share_of_rounds_above_the_path": "rounds above what the path carries",
    }
    lines = ["| " + " | ".join(names.values()) + " |", "|---" * len(names) + "|"]
    for one in summaries:
        shares = {key: f"{value:.1%}" for key, value in one.items() if key.startswith("share") and value != ""}
        lines.append("| " + " | ".join(str(shares.get(key, one[key])) for key in names) + " |")
    return "\n".join(lines)


BENCH = Bench(
    name="calm",
    summary="34 PoPs over seven days under our law and the naive ones, simulated",
    measure=measure,
    sizes={"pops": (34, 4), "days": (7.0, 0.1), "seed": (1, 1)},
    seconds=300,
    turns=None,
)
