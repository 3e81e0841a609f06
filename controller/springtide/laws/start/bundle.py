"""Entries of bundles by the law of starts, for edges that pace, each with its part of the path's rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from springtide._core import KERNEL_DEFAULT, MAX_DEFAULT_RESENT, MAX_RATE, MIN_RATE, USUAL_MSS, brakes
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws.destinations import Owned, prefixes
from springtide.laws.entry import Part, paced, path_name
from springtide.laws.start.evidence import Parts
from springtide.laws.start.gain import gain_us, transfer_us
from springtide.laws.switchback import turn, untreated_permille
from springtide.policy import Policy
from springtide.store import Row

_NOBODY: Mapping[str, float] = {}


def by_gain(decided: Frame) -> Frame:
    """DECIDED rows PoP by PoP, of each those first that a full bundle keeps: overrides, pairs of PoPs, what is in use,
    and what saves its connections most of the time of 100 kB."""
    used = decided["window"] > 0
    window, rate = (
        np.where(used, decided[name], decided[f"trial_{name}"]).astype(np.float64)
        for name in ("window", "connection_rate")
    )
    rtt_us = np.where(decided["min_rtt_us"] > 0, decided["min_rtt_us"], decided["learnt_rtt_us"])
    mss = np.where(decided["mss"] > 0, decided["mss"], USUAL_MSS)
    known = (rtt_us > 0) & (rate > 0)
    gain = np.where(known, gain_us(100_000, np.where(known, rtt_us, 1), np.where(known, rate, 1), window, mss), 0)
    client = np.char.find(decided["destination"], b"/") >= 0
    pop = np.unique(decided["src_pop"], return_inverse=True)[1]
    order = np.lexsort((-gain * np.maximum(decided["connections"], 1), ~used, client, decided["overridden"] == 0, pop))
    found: Frame = decided[order]
    return found


def entries(
    fleet: Fleet, policy: Policy, round_unix_s: int, rows: Iterable[Row], parts: Parts, expires_unix_s: int
) -> tuple[dict[str, list[Part]], list[str]]:
    """Each edge's entries of a round's decisions (rows as rows.rows gives them, PoP by PoP), and the units whose
    evidence is too old to be promised for a bundle's lifetime.

    Only edges that enforce by bpf get any: a route would send the window as one burst. Those held out get none, nor
    do pairs whose turn it is to be off, nor anything in a disable test, but for overrides (laws/switchback.py).
    A client prefix that has become a PoP's, or a part of one's, has what its PoP is given, or an override of its own.
    An edge's start rate is the path's rate times its part of the unit's starts; where that is slower than the kernel's
    default the edge gets none.
    """
    found: dict[str, list[Part]] = {edge: [] for edge in fleet.edges()}
    left_out: list[str] = []
    owned, edges = Owned(fleet), paced(fleet, policy, round_unix_s)
    # A PoP's rows are all that is in memory at once.
    for name, own in groupby(rows, key=lambda row: row["src_pop"]):
        decided, of_clients = [], set()
        for row in own:
            if row["overridden"]:
                of_clients.add(row["destination"])
            if not _acts(policy, round_unix_s, row, owned):
                continue
            if is_left_out(row, expires_unix_s):
                left_out.append(path_name(name, row["destination"], row["ip_version"]))
            else:
                of_clients.add(row["destination"])
                decided.append((row, untreated(policy, round_unix_s, row), _default_resent(policy, round_unix_s, row)))
        for edge in edges.get(name, ()):
            found[edge] += (
                entry
                for row, rest, default_resent in decided
                for prefix in prefixes(fleet, row["destination"], row["ip_version"])
                if prefix == row["destination"] or prefix not in of_clients
                if (entry := _entry(prefix, row, _part(parts, row, edge, fleet), rest, default_resent))
            )
    return found, left_out


def is_left_out(row: Row, expires_unix_s: int) -> bool:
    """True where the evidence expires before the bundle does."""
    return not row["overridden"] and (row["expires_at"] or 0) < expires_unix_s


def _acts(policy: Policy, round_unix_s: int, row: Row, owned: Owned) -> bool:
    if not row["window"] and not row["trial_permille"]:
        return False
    return bool(row["overridden"]) or (row["destination"] not in owned and not is_off(policy, round_unix_s, row))


def is_off(policy: Policy, round_unix_s: int, row: Row) -> bool:
    """Client prefixes are off in disable tests only: a switchback is of pairs."""
    if not policy.experiment.switches:
        return False
    why = turn(policy.experiment, policy.round.interval_s, row["src_pop"], row["destination"], round_unix_s).why
    return why == "disable_test" or (why == "switchback" and "/" not in row["destination"])


def _part(parts: Parts, row: Row, edge: str, fleet: Fleet) -> float:
    """An edge that the store's fleet has not yet begins with half of an equal part."""
    unit = (row["src_pop"], row["destination"], row["ip_version"])
    return parts.get(unit, _NOBODY).get(edge, 0.5 / len(fleet.pops[row["src_pop"]].edges))


def untreated(policy: Policy, round_unix_s: int, row: Row) -> int:
    """Connections, per thousand, that keep the kernel's default, so that the benefit is a difference; none while the
    law itself has values on trial."""
    if row["overridden"] or row["trial_permille"]:
        return 0
    if policy.experiment.kind != "share":
        return min(policy.holdout.connection_permille, policy.enforce.max_trial_permille)
    own = turn(policy.experiment, policy.round.interval_s, row["src_pop"], row["destination"], round_unix_s)
    return untreated_permille(own.share)


def _default_resent(policy: Policy, round_unix_s: int, row: Row) -> int:
    """Segments that a thousand first flights with the kernel's default send again; 0 unless that is known, and as many
    lose that edges brake: each would ask it anew in every round, with flights that start as slowly."""
    law, brake = policy.start, policy.enforce
    flights, lossy = row["default_flights"], row["default_lossy"]
    if not lossy or 2 * flights < law.trial_flights or (row["default_at"] or 0) + law.ttl_s <= round_unix_s:
        return 0
    share = lossy / flights
    if not brakes(share, brake.brake_lost_permille / 1000, brake.brake_connections):
        return 0
    return int(min(round(1000 * share * row["default_resent"]), MAX_DEFAULT_RESENT))


def _entry(prefix: str, row: Row, part: float, rest: int, default_resent: int) -> Part | None:
    """None where nothing is left to give."""
    values = _values(row, "", part)
    on_trial = _values(row, "trial_", part) if row["trial_permille"] else {}
    if not values and not on_trial:
        return None
    trial = None
    if rest:
        trial = Part(permille=rest)
    elif on_trial or (row["trial_permille"] and not row["trial_window"]):
        trial = Part(permille=row["trial_permille"], **on_trial)
    return Part(prefix=prefix, **values, default_resent=default_resent or None, trial=trial)


def _values(row: Row, kind: str, part: float) -> dict[str, Any]:
    """Those that are set; a window without a rate is one that an operator gave before a round trip was known."""
    if not row[f"{kind}window"] or _is_slower_in_part(row, kind, part):
        return {}
    values: dict[str, Any] = {"initcwnd": row[f"{kind}window"]}
    if row[f"{kind}connection_rate"]:
        values["start_rate"] = _rate(row[f"{kind}path_rate"] * part)
        values["connection_rate"] = _rate(row[f"{kind}connection_rate"])
    return values


def _is_slower_in_part(row: Row, kind: str, part: float) -> bool:
    """Whether 50 or 100 kB take longer at an edge's part of the path's rate than by the kernel's default, as lately
    measured, else as the path carries it."""
    path, rtt_us, mss = row[f"{kind}path_rate"], row["min_rtt_us"] or row["learnt_rtt_us"], row["mss"] or USUAL_MSS
    if row["overridden"] or not rtt_us or path * part >= row[f"{kind}connection_rate"]:
        return False
    for name, size in (("t50", 50_000), ("t100", 100_000)):
        took = row[f"default_{name}_us"] if row["default_timed_at"] else 0
        default = took if took > rtt_us else transfer_us(size, rtt_us, path, KERNEL_DEFAULT, mss)
        if transfer_us(size, rtt_us, path * part, row[f"{kind}window"], mss) > default:
            return True
    return False


def _rate(rate: float) -> int:
    return int(min(max(rate, MIN_RATE), MAX_RATE))
