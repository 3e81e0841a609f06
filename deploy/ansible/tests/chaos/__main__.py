"""Rollouts, rollbacks and withdrawals on a fleet in namespaces, under faults of a seed's choosing; needs root.

Prints its seed, and with it does the same again. Exit codes: 0 all held, 1 something did not, 2 bad usage.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from deploy.ansible.tests.chaos.fleet import Fleet
from deploy.ansible.tests.chaos.run import BUTTON_REST_S, BUTTON_STEPS, Chaos, Result, step_limit_s
from deploy.ansible.tests.chaos.schedule import Run, schedule
from rich.console import Console
from rich.table import Table
from testkit.farm import REGIONS


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m deploy.ansible.tests.chaos", description=__doc__)
    made.add_argument("--seed", type=int, default=None, help="of an earlier run, to do it again; default: a new one")
    made.add_argument("--runs", type=int, default=20)
    made.add_argument("--edges", type=int, default=20)
    made.add_argument("--only", type=int, default=None, metavar="N", help="only run N of the seed")
    made.add_argument(
        "--step-s",
        type=int,
        default=None,
        help="time limit of a step on an edge; default: three times what a play takes here",
    )
    made.add_argument("--list", action="store_true", help="print the schedule and do nothing")
    made.add_argument("--out", type=Path, default=Path("out/chaos.json"))
    found = made.parse_args(arguments)
    if found.runs < 1 or found.edges < 2 or found.edges > 200:
        made.error("--runs is at least 1, --edges 2 to 200")
    return found


def described(run: Run) -> str:
    during, button = ("; ".join(map(str, faults)) or "nothing" for faults in (run.during, run.button))
    return f"run {run.number}: {run.move}: {during}\n  withdraw.yml: {button}"


def main(arguments: list[str] | None = None) -> int:
    given = options(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    numbers = range(given.runs) if given.only is None else [given.only]
    found = Result(seed, given.out.with_suffix(""))
    begun = time.monotonic()
    print(f"chaos: seed {seed}, {len(numbers)} runs, {given.edges} edges", flush=True)
    if given.list:
        names = [f"{REGIONS[number % len(REGIONS)][:2]}-{number}" for number in range(given.edges)]
        for number in numbers:
            print(described(schedule(seed, number, names)))
        return 0
    with Fleet.made(given.edges) as fleet:
        step_s = given.step_s or step_limit_s(fleet)
        for number in numbers:
            run = schedule(seed, number, fleet.edges)
            print(described(run), flush=True)
            before = len(found.violations)
            at = time.monotonic()
            Chaos(fleet, run, found, step_s)()
            for text in found.violations[before:]:
                print(f"  VIOLATION: {text}", flush=True)
            print(f"  {time.monotonic() - at:.0f} s", flush=True)
    report = {
        "seed": seed,
        "runs": len(numbers),
        "edges": given.edges,
        "faults": dict(sorted(found.faults.items())),
        "violations": found.violations,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=2) + "\n")
    table = Table("fault", "times")
    for kind, count in report["faults"].items():
        table.add_row(kind, str(count))
    Console().print(table)
    bound = BUTTON_STEPS * step_s + BUTTON_REST_S
    print(f"withdraw.yml: {max(found.withdraw_s, default=0.0):.0f} s at most, bound {bound} s")
    taken = time.monotonic() - begun
    print(f"chaos: seed {seed}: {len(found.violations)} violations in {len(numbers)} runs, {taken:.0f} s")
    return 1 if found.violations else 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("chaos: needs root: it makes network namespaces")
    # As an exception, so that what was made is taken down again.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
