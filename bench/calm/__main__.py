"""`make calm`: 34 PoPs over seven days."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from springtide.policy import Policy

from bench.calm import plot, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pops", type=int, default=34)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/bench/calm.json"))
    parser.add_argument("--picture", type=Path, default=Path("out/bench/calm.svg"))
    options = parser.parse_args()
    pairs = options.pops * (options.pops - 1)

    def tell(day: int, days: int) -> None:
        print(f"{pairs} pairs: day {day + 1} of {days}", file=sys.stderr, flush=True)

    tallies, shown = run.initcwnd(pairs, options.days, options.seed, Policy(), tell)
    summaries = [tally.summary(options.days) for tally in tallies]
    result = {"pairs": pairs, "days": options.days, "seed": options.seed, "controllers": summaries}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    plot.draw(tallies, shown, options.days, options.picture)
    print(table(summaries))


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


if __name__ == "__main__":
    main()
