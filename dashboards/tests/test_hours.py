"""Pictures of the dashboards over hours of a fleet: an hour of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dashboards.generate import documents
from testkit import hours


@pytest.mark.proof
def test_each_dashboard_is_drawn_over_a_fleet_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours, "ROUNDS", hours.ROUNDS[-13:])
    monkeypatch.setattr(sys, "argv", ["hours", str(tmp_path)])
    hours.main()
    assert {path.name for path in tmp_path.iterdir()} == {name.replace(".json", ".png") for name in documents()}
