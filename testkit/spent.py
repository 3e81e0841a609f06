"""Measures what each file of tests spends: `--spent FILE` writes it as JSON, which `python -m tools.tests` shows."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

PHASES = ("setup", "call", "teardown")


def cpu_s() -> float:
    """Processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Meter:
    """Adds the processor time since the last report to the next one, in each process that runs tests."""

    def __init__(self) -> None:
        self.before = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = cpu_s()
        report.user_properties.append(("cpu_s", now - self.before))
        self.before = now
        return report


class Spent:
    """Sums up all reports, in the process that gets them. `cpu` lacks what is left running, such as a daemon."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((*PHASES, "cpu", "tests"), 0.0))
        self.tests: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self.files[report.nodeid.split("::", 1)[0]]
        spent[str(report.when)] += report.duration
        spent["cpu"] += sum(float(str(value)) for name, value in report.user_properties if name == "cpu_s")
        spent["tests"] += report.when == "call"
        self.tests[report.nodeid] += report.duration

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
