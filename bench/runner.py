"""Parts that every bench shares: sizes, turns, and one form of result (docs/reference/benches.md)."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
FORM = 1

PACKAGES = ("chdb", "numpy", "confluent-kafka", "ansible-core")
PROGRAMS = {
    "springtide-collector": (str(TARGET / "springtide-collector"), "--version"),
    "iproute2": ("ip", "-V"),
}

T = TypeVar("T")


class BenchError(RuntimeError):
    """A bench could not measure; one line with what failed and why."""


@dataclass(frozen=True)
class Bench:
    """`sizes` are (full, small) by name, of one type each: int, float, bool or a tuple of int. `turns` likewise; None
    for a simulation, whose figures follow from its seed. `seconds`: about how long the full size takes on two cores."""

    name: str
    summary: str
    measure: Callable[[Run], None]
    sizes: Mapping[str, tuple[Any, Any]]
    seconds: int
    turns: tuple[int, int] | None = (3, 1)
    root: bool = False


@dataclass
class Run:
    """One run of a bench: its sizes and turns, and what it has measured."""

    sizes: Mapping[str, Any]
    turns: int
    out: Path
    figures: list[dict[str, Any]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    # The rest of a bench's result, by key.
    more: dict[str, Any] = field(default_factory=dict)

    def figure(self, name: str, values: float | Iterable[float], **labels: str | int) -> None:
        """One value a turn. The unit is in the name; `labels` distinguish several of one name."""
        found = [values] if isinstance(values, int | float) else list(values)
        rounded = [one if isinstance(one, int) else float(f"{one:.5g}") for one in found]
        self.figures.append(
            {
                "name": name,
                **({"labels": labels} if labels else {}),
                "min": min(rounded),
                "median": float(f"{median(rounded):.5g}") if len(rounded) > 1 else rounded[0],
                "max": max(rounded),
                "turns": len(rounded),
            }
        )

    def ratio(self, name: str, ours: Sequence[float], peer: Sequence[float], **labels: str | int) -> None:
        """Turn by turn: what slows the machine down for a while is in both sides of a ratio."""
        self.figure(f"{name}_ratio", [a / b for a, b in zip(ours, peer, strict=True)], **labels)

    def note(self, text: str) -> None:
        """A table for people, as the documentation shows it."""
        self.text.append(text)


def in_turns(
    turns: int,
    works: Mapping[str, Callable[[], T]],
    before: Callable[[], object] = lambda: None,
    warm_up: int = 0,
) -> dict[str, list[T]]:
    """Each work once a turn, one after the other; `before` precedes each turn. What the first `warm_up` turns give is
    thrown away."""
    found: dict[str, list[T]] = {name: [] for name in works}
    for turn in range(warm_up + turns):
        before()
        for name, work in works.items():
            value = work()
            if turn >= warm_up:
                found[name].append(value)
    return found


def seconds(work: Callable[[], object]) -> float:
    """Elapsed."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def document(bench: Bench, run: Run, small: bool, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The result as JSON."""
    return {
        "form": FORM,
        "bench": bench.name,
        "small": small,
        "sizes": {name: list(value) if isinstance(value, tuple) else value for name, value in run.sizes.items()},
        "conditions": dict(conditions),
        "figures": run.figures,
        **run.more,
    }


def conditions(arguments: Sequence[str]) -> dict[str, Any]:
    """Where and of what: machine, kernel, versions, commit."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    for name, command in PROGRAMS.items():
        if answer := _answer(*command):
            versions[name] = answer.replace(",", " ").split()[-1 if name == "iproute2" else 1]
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    commit = _answer("git", "rev-parse", "HEAD")
    return {
        "command": shlex.join(["python", "-m", "bench", *arguments]),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit,
        "commit_changed": bool(commit and _answer("git", "status", "--porcelain", "--untracked-files=no")),
        "machine": platform.machine(),
        "processor": model[0].partition(": ")[2] if model else "",
        "processors": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "load_1m": round(os.getloadavg()[0], 2),
        "versions": versions,
    }


def _answer(*command: str) -> str:
    """Nothing where the program is missing or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """The figures as Markdown."""
    lines = ["| figure | of | median | min to max | turns |", "|---|---|---:|---|---:|"]
    for one in figures:
        labels = ", ".join(f"{name} {value}" for name, value in one.get("labels", {}).items())
        spread = f"{one['min']:,} to {one['max']:,}" if one["turns"] > 1 else ""
        lines.append(f"| {one['name']} | {labels} | {one['median']:,} | {spread} | {one['turns']} |")
    return "\n".join(lines)
