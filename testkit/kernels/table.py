"""Tables of the documentation that are made from kept results, such as that of docs/explanation/routes.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
# Text of a line of the table -> the checks behind it.
LINES = {
    "`springtide-edge check` says that the program and routes can be used": ("checks_host",),
    "a signed bundle by eBPF is applied; status; withdrawn without a trace": (
        "applies",
        "status",
        "withdraws",
        "leaves_no_pin",
        "default_after",
    ),
    "opened connections start with window and rate, IPv4 and IPv6": ("opens_ipv4", "opens_at_rate", "opens_ipv6"),
    "opened connections use BBR where the bundle says so": ("opens_by_bbr",),
    "accepted connections start with the window, IPv4 and IPv6": ("accepts_ipv4", "accepts_ipv6"),
    "`watch` is killed and started again, a newer bundle is applied: in force all the time, by the same program": (
        "killed_watch",
        "restarted_watch",
        "applies_again",
        "acts_again",
        "same_program",
    ),
    "another build takes over; connections that were open go on": (
        "held_at_first",
        "upgrades",
        "another_program",
        "follows_upgraded",
        "acts_upgraded",
        "held_through_upgrade",
        "status_upgraded",
    ),
    "a SYN that nobody answers is sent again after the path's timeout": ("syn_again",),
    "the beginning of connections is sent twice from Linux 6.6 on, and `check` says so": ("copies_as_said",),
    "`springtide-collector once` shows what `ss` shows, in {fields} fields": ("collector_as_ss",),
    "the collector reports a connection's close and its first flight": ("collector_closes", "collector_first_flights"),
    "a signed bundle by routes is applied, acts, and is withdrawn without a trace": (
        "applies_routes",
        "routes_ipv4",
        "routes_ipv6",
        "status_routes",
        "withdraws_routes",
        "leaves_no_route",
    ),
    "the same over nexthop objects": (
        "applies_objects",
        "copies_objects",
        "objects_ipv4",
        "objects_ipv6",
        "status_objects",
        "withdraws_objects",
        "leaves_no_object",
    ),
    "without BTF: refused with the reason, and by routes where the bundle says so": (
        "untyped_said",
        "untyped_default",
        "untyped_starts",
        "untyped_routes",
        "untyped_ipv4",
        "untyped_ipv6",
        "untyped_withdraws",
        "untyped_leaves_no_route",
    ),
    "the program starts connections under `lockdown=integrity`": ("lockdown_integrity",),
    "the program starts connections under `lockdown=confidentiality`": ("lockdown_confidentiality",),
}


def table(result: Mapping[str, Any]) -> str:
    """A column for each kernel; a cell is `yes` where every check behind its line passed, `-` where one is missing."""
    rows: Sequence[Mapping[str, Any]] = result["kernels"]
    lines = ["| check | " + " | ".join(row["version"].partition("-")[0].partition("+")[0] for row in rows) + " |"]
    lines.append("|---" * (len(rows) + 1) + "|")
    for said, names in LINES.items():
        cells = []
        for row in rows:
            found = [row["checks"].get(name) for name in names]
            cells.append("-" if None in found else "yes" if all(found) else "no")
        lines.append(f"| {said.format(fields=len(result['fields']))} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


class Table(NamedTuple):
    """A table of the documentation, between two markers, and the result that it is made from."""

    page: Path
    kept: Path
    module: str
    made: Callable[[Mapping[str, Any]], str]

    def text(self) -> str:
        """The page's text with the table of the kept result."""
        begin, end = f"<!-- `python -m {self.module} --docs` writes this -->", f"<!-- {self.module}: end -->"
        before, found, rest = self.page.read_text().partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"{self.page} lacks `{begin}` or `{end}`: put both where the table shall stand")
        return f"{before}{begin}\n\n{self.made(json.loads(self.kept.read_text()))}\n\n{end}{after}"

    def keep(self, result: Mapping[str, Any]) -> None:
        """Keeps a result, and writes the page's table from it."""
        self.kept.write_text(json.dumps(result, indent=2) + "\n")
        self.page.write_text(self.text())


TABLE = Table(ROOT / "docs/explanation/routes.md", Path(__file__).with_name("kernels.json"), "testkit.kernels", table)
