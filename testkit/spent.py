"""What a run of tests spends, by file: `--spent FILE` writes it as JSON, which `python -m tools.tests` shows."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

PHASES = ("setup", "call", "teardown")


def cpu_s() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Meter:
    """In each process that runs tests: the processor time since its last report goes with the next one."""

    def __init__(self) -> None:
        self.before = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = cpu_s()
        report.cpu_s, self.before = now - self.before, now  # type: ignore[attr-defined]
        return report


class Spent:
    """In the process that gets all reports. `cpu_s` lacks what is left running, a daemon's or a namespace's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((*PHASES, "cpu", "tests"), 0.0))
        self.tests: dict[str, dict[str, float]] = defaultdict(lambda: {"s": 0.0})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self.files[report.nodeid.split("::", 1)[0]]
        spent[str(report.when)] += report.duration
        spent["cpu"] += getattr(report, "cpu_s", 0.0)
        spent["tests"] += report.when == "call"
        self.tests[report.nodeid]["s"] += report.duration

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"files": self.files, "tests": self.tests}, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spent", type=Path, metavar="FILE", help="Write what each file of tests spends, as JSON.")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--spent")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Spent(path))
    config.pluginmanager.register(Meter())
