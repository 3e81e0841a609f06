"""The law of recovery as the rest of Springtide meets it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from springtide import instants
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws import base, beside
from springtide.laws.columns import Bits
from springtide.laws.destinations import Owned, prefixes
from springtide.laws.effect import BenefitLine
from springtide.laws.entry import Part, paced, path_name
from springtide.laws.recovery.law import DECIDED, OBSERVED, PREVIOUS, decide, named
from springtide.laws.rows import Decisions
from springtide.laws.units import UNIT_KEY
from springtide.metrics import Gauges
from springtide.policy import Policy
from springtide.store import Row, Store
from springtide.store.files import sql

RECOVERED = Decisions(
    "recovery", DECIDED, PREVIOUS, ("handshake_timeout_ms", "hold_until", "copied_bytes", "copies_hold_until")
)
_KERNELS = "the kernel's second"
# Fields of a bundle's entry that it gives, and columns; with the column of each one's reason.
_VALUES = {"handshake_timeout_ms": "reason", "copied_bytes": "copies_reason"}


class Recovery(base.Law):
    name = "recovery"
    decisions = RECOVERED
    title = "How soon a lost SYN or SYN-ACK is sent again, and where the beginning of connections is sent twice"
    help = """Decide how soon a lost SYN or SYN-ACK is sent again, for one round: by the round trips of the path's
    earlier handshakes, instead of the kernel's second. And whether the first segments of a path's connections are sent
    twice: where it loses at random.

    For edges that enforce by bpf, and only with recovery: {handshake: true} or {copies: true}, or an override. One
    connection in ten has neither, so that harm is seen. Decide rounds in their order: each remembers the one before.
    """
    units = "pairs and prefixes"
    does = " have a timeout or copies"
    idle = "off, or nothing was decided yet"
    late = base.State.NOTE
    values = tuple(_VALUES)
    acts = "(handshake_timeout_ms > 0 or copied_bytes > 0)"
    expires = " or ".join(f"({value} > 0 and {why} != 'override')" for value, why in _VALUES.items())
    counted = (*base.Law.counted, ("copies", "copies_reason"))
    history = (
        *("round", "ip_version", "action", "reason", "handshake_timeout_ms", "handshakes", "handshake_rtt_us"),
        *("copies_reason", "copied_bytes", "flights", "flights_lossy"),
    )
    explains = ("pop", "prefix")
    benefit_name = "copies: time"
    benefit_title = "What is sent twice"
    benefit_note = "Time of first flights without their handshake; negative is faster."
    # Nothing is decided where it is off, or where no edge enforces by bpf.
    every_round = False

    def decides(self, policy: Policy, round_unix_s: int) -> bool:
        law = policy.recovery
        is_on = law.handshake or law.copies or any(named(policy, round_unix_s).values())
        return is_on and policy.paces(round_unix_s)

    def observe(self, store: Store, policy: Policy, round_unix_s: int) -> tuple[Frame, Frame]:
        if not self.decides(policy, round_unix_s):
            return Frame.empty(0, OBSERVED), Frame.empty(0, PREVIOUS)
        return _seen(store, policy, round_unix_s), RECOVERED.left(store, round_unix_s)

    def decide(self, now: int, policy: Policy, seen: Frame, before: Frame, frozen: Collection[str]) -> Frame:
        found = decide(now, policy, seen, before, frozen)
        return found if self.decides(policy, now) else found[:0]

    def would_give(self, store: Store, policy: Policy, round_unix_s: int) -> dict[tuple[str, str, int], int]:
        """By source, destination and IP version: the timeout in ms that a path without one would get, also where the
        law is off."""
        law = policy.recovery.model_copy(update={"handshake": True})
        on = policy.model_copy(update={"recovery": law, "recovery_overrides": []})
        decided = decide(round_unix_s, on, _seen(store, on, round_unix_s), Frame.empty(0, PREVIOUS))
        chosen = decided[decided["handshake_timeout_ms"] > 0]
        return {
            (row["src_pop"], row["destination"], row["ip_version"]): row["handshake_timeout_ms"]
            for row in RECOVERED.rows(chosen)
        }

    def summed(self, rows: Sequence[Row]) -> tuple[str, Gauges]:
        timed, copied = (sum(row[name] > 0 for row in rows) for name in _VALUES)
        return f"{timed} have a timeout of their own, {copied} have copies", {}

    def explain(
        self, store: Store, fleet: Fleet, policy: Policy, src_pop: str, destination: str, round_unix_s: int
    ) -> base.Explained:
        recent = self.recent(store, policy, src_pop, destination, round_unix_s)
        found = RECOVERED.rows(recent[recent["round"] == round_unix_s])
        few = f"fewer than {policy.recovery.min_connections} handshakes were seen"
        why = few if self.latest(store, round_unix_s) == round_unix_s else "this round was not decided"
        nothing = [("handshake", f"a lost SYN or SYN-ACK is sent again after {_KERNELS}, nothing is sent twice: {why}")]
        every = policy.recovery.parity_every if _has_parity(policy, destination) else 0
        lines = [(row["ip_version"], _lines(row, policy.bundle.ttl_s, every)) for row in found]
        return self.explained(recent, round_unix_s, lines, nothing)

    def benefit(
        self, store: Store, fleet: Fleet, policy: Policy, span: Mapping[str, int], quantile: float
    ) -> list[BenefitLine]:
        # One connection in ten has no copies. Of these more send their handshake again where packets are lost: without
        # what did, the others would seem faster.
        return beside.Compared(self.name, "time of 10 kB", "acked_10k_us", "copied_bytes > 0").lines(store, span)

    def contribute(
        self, store: Store, fleet: Fleet, policy: Policy, round_unix_s: int, expires_unix_s: int
    ) -> base.Contribution:
        decided = RECOVERED.newest(store, round_unix_s, policy.bundle.ttl_s)
        acts: Bits = np.logical_or.reduce([decided[name] > 0 for name in _VALUES])
        chosen = decided[acts]
        # An operator's word comes first, then the busiest: a full bundle leaves out the last.
        is_own = chosen["overridden"] | chosen["copies_overridden"]
        ordered = chosen[np.lexsort((-chosen["handshakes"].astype(np.int64), is_own == 0))]
        # It may have ended since the last round that was decided.
        words = named(policy, round_unix_s)
        owned, edges = Owned(fleet), paced(fleet, policy, round_unix_s)
        entries: dict[str, list[Part]] = {edge: [] for edge in fleet.edges()}
        left_out = []
        for row in RECOVERED.rows(ordered):
            name, destination, version = (row[key] for key, _ in UNIT_KEY)
            path = name.encode(), destination.encode(), version
            given = [value for value, why in _VALUES.items() if row[why] != "override" or path in words[value]]
            values = {value: row[value] for value in given if not _is_old(row, value, expires_unix_s)}
            if len(values) < sum(row[value] > 0 for value in given):
                left_out.append(path_name(name, destination, version))
            if "copied_bytes" in values and _has_parity(policy, destination):
                values["parity_every"] = policy.recovery.parity_every
            if values and destination not in owned:
                own = [Part(prefix=prefix, **values) for prefix in prefixes(fleet, destination, version)]
                for edge in edges.get(name, ()):
                    entries[edge] += own
        return base.Contribution(entries, "bpf", left_out)


def _has_parity(policy: Policy, destination: str) -> bool:
    return policy.recovery.parity_every > 0 and "/" not in destination


def _seen(store: Store, policy: Policy, round_unix_s: int) -> Frame:
    law = policy.recovery
    window = {
        "round_s": round_unix_s,
        "since_s": round_unix_s - law.window_rounds * policy.round.interval_s,
        "min_connections": law.min_connections,
    }
    return store.frame(sql("recovery/evidence"), OBSERVED, window)


def _is_old(row: Row, value: str, expires_unix_s: int) -> bool:
    """Tell whether nothing is given, or its evidence is too old to be promised for a bundle's lifetime."""
    is_promised = row[_VALUES[value]] == "override" or (row["expires_at"] or 0) >= expires_unix_s
    return not (row[value] and is_promised)


def _lines(row: Row, ttl_s: int, every: int) -> base.Lines:
    after = row["handshake_timeout_ms"]
    lines = [
        ("handshake", f"a lost SYN or SYN-ACK is sent again after {f'{after} ms' if after else _KERNELS}"),
        ("because", f"{row['reason']}: {RECOVERED.rules[row['reason']]}"),
    ]
    if row["handshakes"]:
        rtt_ms = row["handshake_rtt_us"] / 1000
        lines.append(("seen", f"{row['handshakes']:,} handshakes, of which 99 % took up to {rtt_ms:.0f} ms"))
    if row["treated"]:
        again = f"{row['treated_resent']:,} of {row['treated']:,} with the path's timeout"
        lines.append(("sent again", f"{again}; {row['control_resent']:,} of {row['control']:,} with the kernel's"))
    if row["copies_reason"] != "off":
        lines += _lines_of_copies(row, every)
    if any(row[value] and _is_old(row, value, row["round"] + ttl_s) for value in _VALUES):
        lines.append(("but", "left out of bundles: its evidence is too old"))
    return lines


def _lines_of_copies(row: Row, every: int) -> base.Lines:
    given, reason = row["copied_bytes"], row["copies_reason"]
    what = f"the SYN-ACK and the first {given:,} bytes are sent twice" if given else "nothing is sent twice"
    if given and every:
        what = f"the SYN-ACK is sent twice, and the first {given * every:,} bytes with parity of {every} segments"
    lines = [("copies", what), ("copies because", f"{reason}: {RECOVERED.rules[reason]}")]
    if row["copies_hold_until"] and row["copies_hold_until"] > row["round"]:
        lines.append(("copies held", f"until {instants.show(row['copies_hold_until'])}"))
    if row["flights"]:
        lost = f"{row['flights_lossy']:,} of {row['flights']:,} first flights without copies lost something"
        each = f", {row['resent_each']:.1f} segments each" if row["flights_lossy"] else ""
        lines.append(("first flights", lost + each))
    if row["copied"]:
        lost = f"{row['copied_lossy']:,} of {row['copied']:,} with copies lost something"
        lines.append(("beside", f"{lost}; {row['uncopied_lossy']:,} of {row['uncopied']:,} without"))
    if row["copied_segments"]:
        twice = f"{row['copied_segments']:,} segments were sent twice"
        lines.append(("repaired", f"{twice}; of {row['repaired_segments']:,} at most one copy came"))
    if row["error_10k_us"] is not None:
        took, beside, error = (row[name] / 1000 for name in ("copied_10k_us", "uncopied_10k_us", "error_10k_us"))
        lines.append(("10 kB", f"{took:.0f} ms with copies, {beside:.0f} ms without, each in the mean (± {error:.0f})"))
    return lines


RECOVERY = Recovery()
