"""Why connections of a unit start as they do, and what would change it: sentences made from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from springtide.instants import when
from springtide.laws.base import Lines
from springtide.laws.entry import Part
from springtide.laws.standing import Held, Standing, named
from springtide.laws.start.bundle import is_left_out, is_off, untreated
from springtide.laws.start.law import STARTS
from springtide.policy import Policy
from springtide.store import Row

NO_EDGES: Mapping[str, Sequence[Part]] = {}
_NOTHING = "the kernel's default (not paced, held out, or its part of the rate is slower)"


def labelled(row: Row, policy: Policy, held: Lines, edges: Mapping[str, Sequence[Part]] = NO_EDGES) -> Lines:
    """A unit's lines; `row` as STARTS.rows gives it, `held` by `became`, `edges`: what bundles would have of it."""
    return [
        ("decided", _verdict(row, policy)),
        ("on trial", _trial(row, untreated(policy, row["round"], row))),
        *([("by edges", by_edges(edges))] if edges and (row["window"] or row["trial_permille"]) else []),
        *(
            [("left out", "of bundles: the experiment has it switched off")]
            if is_off(policy, row["round"], row)
            else []
        ),
        *held,
        ("because", _because(row)),
        ("first flights", _flights(row)),
        ("rule", STARTS.rules[row["reason"]]),
        ("would change", _change(row, policy)),
    ]


def became(policy: Policy, src_pop: str, now: Standing) -> Lines:
    """Whether the newest round was pushed, and of which round the values are that the PoP's edges hold."""

    def describe(edge: str, held: Held) -> str:
        paces = policy.enforce_of(edge, src_pop, held.publication.round).by == "bpf"
        return str(held) if paces else "nothing of this law, as the edge does not pace"

    return now.lines(describe, "the kernel's default")


def by_edges(edges: Mapping[str, Sequence[Part]]) -> str:
    """Says what each may start at once with: its part of the rate that is decided for all together."""
    alike: dict[str, list[str]] = {}
    for edge, entries in edges.items():
        alike.setdefault(_part(entries[0]) if entries else _NOTHING, []).append(edge)
    return "; ".join(f"{text} on {named(names)}" for text, names in alike.items())


def _part(entry: Part) -> str:
    text = "the kernel's default"
    if entry.initcwnd is not None:
        text = f"{mbit(entry.start_rate)} at once" if entry.start_rate else "no cap"
    trial = entry.trial.start_rate if entry.trial is not None else None
    return text if trial is None else f"{text}, on trial {mbit(trial)}"


def mbit(rate: float | None) -> str:
    """Bytes/s as people read them."""
    return "unknown" if rate is None else f"{rate * 8e-6:.3g} Mbit/s"


def _verdict(row: Row, policy: Policy) -> str:
    if not row["window"]:
        return "the kernel's default" + (", but for those on trial" if row["trial_permille"] else "")
    text = f"{row['window']} segments"
    if row["connection_rate"]:
        text += f" at {mbit(row['connection_rate'])}, all that start at once at {mbit(row['path_rate'])}"
    ends = row["round"] + policy.bundle.ttl_s
    if is_left_out(row, ends):
        text += f"; left out of bundles: its evidence expires at {when(row['expires_at'])}, they at {when(ends)}"
    would = "new connections would start with " if policy.advises else ""
    return f"{would}{text}; only on edges that enforce by bpf"


def _trial(row: Row, untreated_permille: int) -> str:
    if not row["trial_permille"]:
        beside = f"{untreated_permille / 10:g} % of the connections keep the kernel's default, to be compared with"
        return f"nothing; {beside}" if row["window"] and untreated_permille else "nothing"
    share = f"for {row['trial_permille'] / 10:g} % of the connections"
    if not row["trial_window"]:
        return f"the kernel's default {share}, to see what that loses now"
    source = " (a step beyond what was reached)" if row["trial_step"] else ""
    source = " (its group's low quantile)" if row["trial_borrowed"] else source
    rate = f"{row['trial_window']} segments at {mbit(row['trial_connection_rate'])}"
    return f"{rate} {share}{source}"


def _because(row: Row) -> str:
    share, reached = row["share_connections"], row["reached_connections"]
    text = f"{share} connections met the path"
    text += f", a quarter of them at most at {mbit(row['share_rate'])}" if share else ""
    if reached:
        text += f"; {reached} others reached {mbit(row['reached_rate'])}"
    if row["train_rate"] is not None:
        text += f"; first segments came at {mbit(row['train_rate'])}, the median of {row['trains']}"
    if row["proved_share"] is not None:
        text += f"; that proves {mbit(row['proved_share'])} for one and {mbit(row['proved_path'])} for all together"
    if row["borrowed"] or row["trial_borrowed"]:
        text += (
            f"; {mbit(row['group_rate'])} is the low quantile of its group {row['group']} ({row['group_units']} units)"
        )
    if row["min_rtt_us"]:
        text += f"; a round trip takes {row['min_rtt_us'] / 1000:.3g} ms"
    return text


def _flights(row: Row) -> str:
    parts = []
    for arm, name in ((0, "as decided"), (1, "on trial")):
        if row[f"flights_{arm}"]:
            took = row[f"t100_{arm}_us"] or row[f"t50_{arm}_us"]
            size = "100 kB" if row[f"t100_{arm}_us"] else "50 kB"
            text = f"{name}, {row[f'lossy_{arm}']} of {row[f'flights_{arm}']} lost something"
            parts.append(text + (f" and {size} took {took / 1000:.3g} ms" if took else ""))
    if row["braked"]:
        parts.append(f"{row['braked']} were cut by an edge's brake")
    return "; ".join(parts) or "no record of this round's values"


def _change(row: Row, policy: Policy) -> str:
    law = policy.start
    if row["overridden"]:
        return "the override's end, or another policy"
    if row["trial_window"]:
        missing = max(0, law.trial_flights - row["trial_flights"])
        return f"{missing} more first flights on trial, if they lose no more and take no longer: then it is for all"
    if (row["hold_until"] or 0) > row["round"]:
        # A trial that was only slower, or not faster, leaves no ceiling.
        where = f"near {mbit(row['harmful_rate'])} " if row["harmful_rate"] else ""
        return f"a fall at once; {where}nothing is tried before {when(row['hold_until'])}"
    if not row["window"]:
        return f"{law.min_connections} connections that meet the path, or a group of {law.group_units} units that do"
    return "a path that proves more, on trial first; less, or losses in first flights, at once"
