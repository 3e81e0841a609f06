"""springtide diff: what a publication changes"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from springtide.bundles import caps
from springtide.bundles.model import Documents
from springtide.bundles.published import PublishedBundles
from springtide.cli.options import json_option, publish_dir_option
from springtide.cli.output import print_json, print_table
from springtide.errors import InputError, Problem
from springtide.laws.entry import Part
from springtide.publication.folder import PublishFolder


@click.command()
@click.argument("what", metavar="[ROUND|EDGE]", required=False)
@publish_dir_option
@json_option
def diff(what: str | None, publish_dir: Path, as_json: bool) -> None:
    """Show what a publication changes against what is current on the fleet, edge by edge.

    Without an argument: the newest publication. With an edge: only that edge's part of it.

    \b
    Examples:
      springtide diff
      springtide diff 2026-01-02T03:05:00Z
      springtide diff ams-1
    """
    folder = PublishFolder(publish_dir)
    candidate = folder.resolved("candidate")
    if candidate is None:
        raise InputError([Problem(str(publish_dir), "candidate", "does not exist", "run `springtide publish` first")])
    published = PublishedBundles(folder)
    new, held = published.part(candidate / "edges"), published.current() or {}
    if what is not None and what in new.keys() | held.keys():
        new = {edge: document for edge, document in new.items() if edge == what}
        held = {edge: document for edge, document in held.items() if edge == what}
    elif what is not None:
        candidate = folder.publication(what)
        new = published.part(candidate / "edges")
    found, of_clients = caps.difference(held, new), caps.changes(caps.choices(held), caps.choices(new))
    starts = _rows(found)
    rows = [(edge, prefix, _window(a), _window(b)) for edge, prefix, a, b in starts]
    clients = [(edge, prefix, _choice(a), _choice(b)) for edge, prefix, a, b in _rows(of_clients)]
    of_recovery = caps.changes(_recoveries(held), _recoveries(new))
    recoveries = [(edge, prefix, _recovery(a), _recovery(b)) for edge, prefix, a, b in _rows(of_recovery)]
    ways = _ways(held, new)
    names = ("edge", "prefix", "before", "after")
    if as_json:
        listed = [
            {**dict(zip(names, row, strict=True)), "starts": [_fields(a), _fields(b)]}
            for row, (_, _, a, b) in zip(rows, starts, strict=True)
        ]
        chosen = [dict(zip(names, row, strict=True)) for row in clients]
        head = {"publication": candidate.name, "before": found.before, "after": found.after}
        other = [dict(zip(("edge", "before", "after"), row, strict=True)) for row in ways]
        recovering = [dict(zip(names, row, strict=True)) for row in _rows(of_recovery)]
        print_json({**head, "changes": listed, "congestion": chosen, "recovery": recovering, "enforced_by": other})
        return
    shown = [(edge, prefix, _start(a), _start(b)) for edge, prefix, a, b in starts]
    print_table(names, shown, title=f"{candidate.name}: {_counts(found)}")
    if clients:
        title = f"Congestion control of clients: {_counts(of_clients)}"
        print_table(names, clients, title=title)
    if recoveries:
        print_table(names, recoveries, title=f"Recovery from loss: {_counts(of_recovery)}")
    if ways:
        print_table(("edge", "before", "after"), ways, title=f"Enforced in another way: {len(ways)} edges")


def _ways(held: Documents, new: Documents) -> list[tuple[str, str, str]]:
    """Edges that enforce their bundles in another way from now on; one without a bundle has had routes."""
    moved = ((edge, held[edge].bundle.by if edge in held else "routes", one.bundle.by) for edge, one in new.items())
    return sorted((edge, before, after) for edge, before, after in moved if before != after)


def _rows(found: caps.Changes[Any]) -> list[tuple[str, str, Any, Any]]:
    return sorted(
        [
            *((*key, None, value) for key, value in found.added.items()),
            *((*key, before, after) for key, (before, after) in found.changed.items()),
            *((*key, value, None) for key, value in found.withdrawn.items()),
        ],
        key=lambda row: row[:2],
    )


def _window(start: caps.Start | None) -> int | None:
    return (start.window or None) if start is not None else None


def _fields(start: caps.Start | None) -> dict[str, Any] | None:
    if start is None:
        return None
    fields = asdict(start)
    return fields | dict(fields.pop("others"))


def _start(start: caps.Start | None) -> str | None:
    """A window alone as its number."""
    if start is None:
        return None
    text = _values(start)
    if start.permille:
        text += f", on trial {_values(start.trial)} for {start.permille / 10:g} %"
    if start.default_resent:
        text += f", the default sends {start.default_resent / 1000:g} segments again"
    if start.receive_window is not None:
        text += f", receives {start.receive_window}"
    return text + "".join(f", {name} {value}" for name, value in start.others)


def _values(values: caps.Values) -> str:
    if values.connection_rate is None or values.start_rate is None:
        return str(values.window or "default")
    return f"{values.window} at {values.connection_rate:,} B/s, {values.start_rate:,} together"


def _choice(choice: Part | None) -> str | None:
    if choice is None:
        return None
    return f"{choice.algorithm} from {choice.from_bytes:,} B{' or always' if choice.always else ''}"


def _recoveries(documents: Documents) -> dict[caps.Value, dict[str, int]]:
    """Recovery from loss, 0 as the kernel does: the handshake's timeout, the bytes that are sent twice, and the
    segments that one of parity stands for instead."""
    names = ("handshake_timeout_ms", "copied_bytes", "parity_every")
    found = {
        (edge, entry.prefix): {name: getattr(entry, name) or 0 for name in names}
        for edge, document in documents.items()
        for entry in document.bundle.entries
    }
    return {key: values for key, values in found.items() if any(values.values())}


def _recovery(values: dict[str, int] | None) -> str | None:
    if values is None:
        return None
    timeout, copied, every = values.values()
    given = [f"handshake again after {timeout} ms"] if timeout else []
    copies = f"{copied * every:,} B with parity of {every} segments" if every else f"{copied:,} B twice"
    return ", ".join(given + ([copies] if copied else []))


def _counts(found: caps.Changes[Any]) -> str:
    return f"{len(found.added)} added, {len(found.changed)} changed, {len(found.withdrawn)} withdrawn"
