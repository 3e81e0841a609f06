"""Worth of each rule of the step and of each kind of evidence: the law with it and without it, over the same paths.

A rule's gain is how many points of the attainable gain are lost without it (start_weeks.py), over all pairs and over a
fleet half of which is thin; its harm how many points more of the segments are sent again, and how many more rounds a
path is unsafe after its rate fell to a quarter. The law with all rules plays several times: what those differ is noise.
The tests of the law that fail without a rule name the cases that the simulation does not have.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from springtide import _core
from springtide.policy import Policy

from bench.calm.controllers import INTERVAL_S
from bench.calm.start_controllers import Start
from bench.calm.start_flights import Given, best, gained, meet
from bench.calm.start_paths import ROUNDS_PER_DAY, Floats, Paths
from bench.calm.start_weeks import CHANGES, HARM, SETTLE, START, WATCH, mixed
from bench.runner import ROOT, Bench, BenchError, Run, progress

# Plays of the law with all rules, which differ by chance only.
COPIES = 6
# Tests of the law that need nothing but it.
TESTS = [
    f"controller/tests/test_start_{name}.py"
    for name in ["law", "trials", "trains", "carried", "default", "few", "brakes"]
]
# Kinds of evidence that are left out, with what each shows.
KINDS = {
    "share_rate": "What connections that met the path were delivered.",
    "path_rate": "What all were delivered together.",
    "reached_rate": "What other connections were delivered: a lower bound.",
    "fast+reached_rate": "The same, where fast paths show neither trains nor connections that met them.",
}


@dataclass(frozen=True)
class Outcome:
    """The law without one rule: points of the attainable gain, all and half thin; segments sent again, per cent; rounds
    that a path is unsafe after a fall."""

    gain: float
    thin: float
    again: float
    unsafe: float


def played(without: Sequence[str], pairs: int, days: float, seed: int, copy: int) -> Outcome:
    """The law without these; each copy sees other connections of the same paths."""
    policy, rounds = Policy(), int(days * ROUNDS_PER_DAY)

    def law(paths: Paths) -> Start:
        return Start(policy, "start", paths, without=without, copy=copy)

    many, half, calm = Paths(pairs, seed), Paths(pairs, seed, thin=pairs // 2), Paths(pairs, seed, calm=True)
    gain, again = _weeks(law(many), many, rounds, policy)
    thin, _ = _weeks(law(half), half, rounds, policy)
    return Outcome(100 * gain, 100 * thin, 100 * again, _unsafe(law(calm), calm))


def _weeks(law: Start, paths: Paths, rounds: int, policy: Policy) -> tuple[float, float]:
    """The share of the attainable gain, and of the segments those sent again."""
    nothing = Given.default(paths.count)
    own, attainable, again = 0.0, 0.0, 0.0
    for now in range(rounds):
        moment = paths.moment(now)
        default, oracle = meet(moment, nothing), best(moment, (policy.enforce.lift_bytes,))
        met = meet(moment, law.given()), meet(moment, law.trial)
        all_of_it = mixed(*met, law.permille.astype(float))
        own += gained(all_of_it, default).sum()
        attainable += np.maximum(gained(oracle, default), 0.0).sum()
        again += all_of_it.resent_share().mean()
        law.round(START + now * INTERVAL_S, moment, met, default)
    return float(own / attainable), float(again / rounds)


def _unsafe(law: Start, paths: Paths) -> float:
    """Rounds in which more is sent again than with the default, after the rate fell."""
    change, nothing = CHANGES[0], Given.default(paths.count)
    unsafe: Floats = np.zeros(paths.count)
    for now in range(SETTLE + WATCH):
        if now == SETTLE:
            paths.rate, paths.queue = paths.rate * change.rate, paths.queue * change.queue
        moment = paths.moment(now)
        default = meet(moment, nothing)
        met = meet(moment, law.given()), meet(moment, law.trial)
        if now >= SETTLE:
            unsafe += met[0].resent_share() > default.resent_share() + HARM
        law.round(START + now * INTERVAL_S, moment, met, default)
    return float(unsafe.mean())


class _OnlyLaw:
    """Tests of rounds that a test makes by itself, without a store."""

    @staticmethod
    def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
        items[:] = [item for item in items if not {"request", "tmp_path"} & set(item.fixturenames)]


def failing(rule: str) -> list[str]:
    """The law's tests that fail without this rule."""
    code = "from bench.calm.rules import run_tests; run_tests()"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "SPRINGTIDE_WITHOUT_RULES": rule},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise BenchError(f"the tests without {rule} could not run: {(answer.stdout + answer.stderr)[-500:]}")
    failed = [line.split()[1] for line in answer.stdout.splitlines() if line.startswith("FAILED ")]
    return sorted({one.split("::")[1].split("[")[0] for one in failed})


def run_tests() -> None:
    arguments = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS]
    sys.exit(pytest.main(arguments, plugins=[_OnlyLaw()]))


def table(worth: dict[str, Outcome], noise: Outcome, tests: dict[str, list[str]]) -> str:
    """Markdown: a row a rule."""
    lines = [
        "| rule | why | gain, points | half thin | sent again, points | rounds unsafe | a test that fails without it |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    whys = dict(_core.rules())
    for rule, one in worth.items():
        first, *others = tests[rule] or [""]
        found = f"`{first}`" + (f" and {len(others)} more" if others else "") if first else "none"
        lines.append(f"| `{rule}` | {whys[rule]} | {' | '.join(_cells(one, noise))} | {found} |")
    return "\n".join(lines)


def evidence_table(worth: dict[str, Outcome], noise: Outcome) -> str:
    """Markdown: a row a kind of evidence."""
    lines = [
        "| evidence | gain, points | half thin | sent again, points | rounds unsafe |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [f"| {KINDS[kind]} | {' | '.join(_cells(one, noise))} |" for kind, one in worth.items()]
    return "\n".join(lines)


def _cells(one: Outcome, noise: Outcome) -> list[str]:
    """Set in bold what is more than chance."""
    return [
        f"**{value:+.2f}**" if abs(value) > 2 * spread else f"{value:+.2f}"
        for value, spread in zip(_values(one), _values(noise), strict=True)
    ]


def _values(one: Outcome) -> tuple[float, float, float, float]:
    return one.gain, one.thin, one.again, one.unsafe


def mean(found: Sequence[Outcome]) -> Outcome:
    return Outcome(*(float(np.mean(values)) for values in zip(*map(_values, found), strict=True)))


def measure(run: Run) -> None:
    rules = [name for name, _ in _core.rules()][: run.sizes["rules"]]
    kinds = list(KINDS)[-run.sizes["kinds"] :]
    seeds = range(1, run.sizes["seeds"] + 1)
    plays = [("", copy) for copy in range(COPIES)] + [(one, 0) for one in (*rules, *kinds, "fast")]
    jobs = [(one, seed, copy) for one, copy in plays for seed in seeds]
    with ProcessPoolExecutor() as pool:
        futures = [
            pool.submit(played, one.split("+") if one else [], run.sizes["pairs"], run.sizes["days"], seed, copy)
            for one, seed, copy in jobs
        ]
        tests = dict(zip(rules, pool.map(failing, rules), strict=True))
        found: dict[str, list[Outcome]] = {}
        for (one, *_), future in zip(jobs, futures, strict=True):
            found.setdefault(one, []).append(future.result())
            progress(f"{one or 'all rules'}: {found[one][-1]}")
    copies = [mean(found[""][at : at + len(seeds)]) for at in range(0, len(found[""]), len(seeds))]
    law = mean(copies)
    # The standard deviation of one play's difference to the mean of the copies.
    spread = np.std([_values(one) for one in copies], axis=0, ddof=1) * np.sqrt(1 + 1 / COPIES)
    noise = Outcome(*map(float, spread))
    of_rules = {rule: _lost(law, mean(found[rule])) for rule in rules}
    of_kinds = {kind: _lost(mean(found["fast"]) if "+" in kind else law, mean(found[kind])) for kind in kinds}
    run.note(table(of_rules, noise, tests))
    run.note(evidence_table(of_kinds, noise))
    for name, value, chance in zip(("gain", "thin", "again", "unsafe"), _values(law), _values(noise), strict=True):
        run.figure(f"all_rules_{name}", value)
        run.figure(f"noise_{name}", chance)
    for one, worth in (of_rules | of_kinds).items():
        for name, value in zip(("gain", "thin", "again", "unsafe"), _values(worth), strict=True):
            run.figure(f"worth_{name}", value, rule=one)
    for rule, failed in tests.items():
        run.figure("failing_tests", len(failed), rule=rule)


def _lost(law: Outcome, without: Outcome) -> Outcome:
    return Outcome(
        law.gain - without.gain, law.thin - without.thin, without.again - law.again, without.unsafe - law.unsafe
    )


BENCH = Bench(
    name="rules",
    summary="what each rule of the law of starts and each kind of evidence is worth: without it, simulated",
    measure=measure,
    sizes={"pairs": (100, 12), "days": (2.0, 0.2), "seeds": (2, 1), "rules": (100, 1), "kinds": (4, 1)},
    seconds=1200,
    turns=None,
)
