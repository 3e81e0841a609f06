"""The tables of docs/explanation/gate.md are those of `make gate-budget`, as far as no simulation is needed for it."""

from __future__ import annotations

from pathlib import Path

from bench import gate

PAGE = (Path(__file__).resolve().parents[1] / "docs/explanation/gate.md").read_text()


def test_the_waves_and_the_budget_in_the_docs_are_those_of_the_code() -> None:
    assert gate.plan_table() in PAGE
    _, _, sizes = gate.planned(3600)
    shown = [line.split(" | ") for line in PAGE.splitlines()]
    for per_edge in (20, 0):
        for row in gate.scenario(sizes, per_edge, 0, 1):
            numbers = [f"| {row['wave']}", f"{row['changed']:,} / {row['unchanged']:,}"]
            found = [line for line in shown if line[:2] == numbers]
            assert found, numbers
            assert found[0][2].startswith(f"{row['was_wrong_arithmetic']:.1%}, ")
            assert found[0][3] == f"{row['budget']:.4%}"


def test_without_harm_the_gate_as_it_was_took_back_most_thin_rollouts() -> None:
    """By simulation as by arithmetic, within a third: binomials of 100 are only nearly normal."""
    row = gate.look(1, 100, 100, 20, 1)
    assert 0.1 < row["was_wrong"] < 0.2
    assert 0.1 < row["was_wrong_arithmetic"] < 0.2
    assert row["wrong"] == 0
    assert row["harm_seen"] > 0.5
