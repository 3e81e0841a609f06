"""The state of the kernels and of the publisher's folder, read without the product's code, and which states are
allowed.

`ip` shows routes and rules, JSON files what was published: nothing is imported from the code under test.
"""

from __future__ import annotations

import calendar
import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Destination -> initial window; empty: the kernel's default.
Windows = Mapping[str, int]


@dataclass(frozen=True)
class Held:
    """An edge's kernel: what table 201 holds, and for which IP versions a rule leads there."""

    windows: dict[str, int]
    rules: frozenset[int]

    @property
    def whole(self) -> bool:
        """Routes that a rule leads to, and no rule that leads to nothing."""
        return self.rules == {6 if ":" in prefix else 4 for prefix in self.windows}


@dataclass(frozen=True)
class Published:
    """A bundle of the publisher's folder: what it sets, and until when (seconds since the epoch)."""

    place: str
    windows: dict[str, int]
    expires_at: int


def _ip(namespace: str, *words: str) -> list[dict[str, Any]]:
    done = subprocess.run(["ip", "-n", namespace, "-j", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        # A table that never had a route does not exist.
        if "does not exist" in done.stderr:
            return []
        raise RuntimeError(f"ip -n {namespace} {' '.join(words)}: {done.stderr.strip()}")
    return [each for each in json.loads(done.stdout or "[]") if each]


def held(namespace: str) -> Held:
    """Everything in table 201, whoever put it there; a route without a window counts as one of window 0."""
    windows, rules = {}, set()
    for version in (4, 6):
        for route in _ip(namespace, f"-{version}", "route", "show", "table", "201"):
            metrics = {name: value for part in route.get("metrics", []) for name, value in part.items()}
            windows[route["dst"]] = int(metrics.get("initcwnd", 0))
        if any(rule.get("table") == "201" for rule in _ip(namespace, f"-{version}", "rule", "show")):
            rules.add(version)
    return Held(windows, frozenset(rules))


def windows_of(document: Mapping[str, Any]) -> dict[str, int]:
    return {route["prefix"]: route["initcwnd"] for route in document["entries"]}


def windows_of_file(path: Path) -> dict[str, int]:
    return windows_of(json.loads(path.read_bytes()))


def _published(path: Path, root: Path) -> Published:
    document = json.loads(path.read_bytes())
    ends = calendar.timegm(time.strptime(document["expires_at"], "%Y-%m-%dT%H:%M:%SZ"))
    return Published(str(path.parent.relative_to(root)), windows_of(document), ends)


def published(folder: Path, edge: str) -> list[Published]:
    """All that was ever signed for an edge: what rollouts bring, and what brings back."""
    return [_published(path, folder) for path in sorted(folder.glob(f"rounds/*/*/{edge}.json"))]


def wanted(folder: Path, edge: str) -> dict[str, int]:
    """Windows that an edge should hold by `current`."""
    return _published((folder / "current").resolve() / f"{edge}.json", folder.resolve()).windows


def journal(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The lines from a byte offset on, and how many of them cannot be read."""
    path = folder / "journal.jsonl"
    lines, damaged = [], 0
    for line in path.read_bytes()[offset:].splitlines() if path.exists() else ():
        try:
            found = json.loads(line)
            lines.append({name: found[name] for name in ("event", "verdict", "publication", "edges", "details")})
        except (ValueError, TypeError, KeyError):
            damaged += bool(line.strip())
    return lines, damaged


def not_one_set(edge: str, found: Held, sets: Sequence[Published], now: float) -> str | None:
    """Why what an edge holds is neither one published set, whole and within its time, nor nothing at all."""
    if not found.windows and not found.rules:
        return None
    if not found.whole:
        return f"{edge}: {len(found.windows)} routes and rules for {sorted(found.rules)}: half of something"
    same = [each for each in sets if each.windows == found.windows]
    if not same:
        return f"{edge}: holds {short(found.windows)}, which was never published"
    if all(each.expires_at < now for each in same):
        return f"{edge}: holds {same[-1].place}, which expired {now - max(s.expires_at for s in same):.0f} s ago"
    return None


def allowed_sets(
    lines: Iterable[Mapping[str, Any]],
    edges: Sequence[str],
    sets: Mapping[str, Sequence[Published]],
    before: Mapping[str, Windows],
) -> dict[str, list[Windows]]:
    """Sets that each edge may hold after these lines of the journal, where it held `before` and they are true."""
    may: dict[str, list[Windows]] = {edge: [before[edge]] for edge in edges}

    def of(edge: str, publication: str, *parts: str) -> list[Windows]:
        """Sets that a publication has for an edge in these of its parts, or in any of them."""
        return [
            each.windows
            for each in sets[edge]
            if each.place.split("/")[1] == publication and (not parts or each.place.split("/")[2] in parts)
        ]

    for line in lines:
        event, verdict, name, details = line["event"], line["verdict"], line["publication"], line["details"]
        named = [edge for edge in line["edges"] if edge in may]
        if verdict == "begun":
            for edge in named:
                may[edge] += of(edge, name)
        elif (event, verdict) == ("rollout", "done"):
            for edge in edges:
                may[edge] = of(edge, name, "edges")
        elif event == "rollback":
            unsure = {*details.get("away", ()), *details.get("withdrawn", ())}
            for edge in edges:
                # A publication chooses one of its ways back when it begins.
                back = [each for each in of(edge, name) if each not in of(edge, name, "edges")]
                may[edge] = [*may[edge], *back] if edge in unsure else back
            for edge in details.get("withdrawn", ()):
                may[edge] = [{}]
        elif event == "withdraw":
            for edge in named:
                may[edge] = [{}]
            for edge in set(edges) - set(named):
                may[edge].append({})
        elif (event, verdict) == ("drift", "repaired"):
            for edge in named:
                may[edge] = of(edge, name)
    return may


def short(windows: Windows) -> str:
    """A set as one short text."""
    first = ", ".join(f"{prefix} {window}" for prefix, window in list(windows.items())[:2])
    return f"{len(windows)} routes ({first}{', ...' if len(windows) > 2 else ''})" if windows else "nothing"
