"""The benefit of decisions, as measured: a day's lines in the table `benefits`, written once an hour. All that say
whether it helps read them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from springtide.fleet import Fleet
from springtide.laws.effect import NOWHERE, BenefitLine, Effect
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd.benefit import MINIMUM_EDGES
from springtide.laws.paired import MINIMUM
from springtide.laws.registry import LAWS
from springtide.policy import Policy
from springtide.store import Row, Store

TABLE = "benefits"
# Key of a day's rows.
_KEY = ("law", "outcome", "units", "by", "group")
_KEY_TEXT = ", '\\n', ".join(_KEY)
HOUR_S, DAY_S = 3600, 86_400
DIGITS = 6
# A day that was measured and has no line, so that it is not measured anew each round. No law has it, and no board shows
# a path without a source.
NOTHING = BenefitLine("", "", "path", "", Effect(0, 0))


@dataclass(frozen=True)
class Measured:
    """The lines of the rounds since < round <= until; `until` 0 where nothing was measured."""

    since: int = 0
    until: int = 0
    lines: Sequence[BenefitLine] = ()

    @property
    def answers(self) -> dict[str, BenefitLine]:
        """Each law's one number."""
        return {line.law: line for line in self.lines if line.answers}


def measure(
    store: Store, fleet: Fleet, policy: Policy, since_unix_s: int, until_unix_s: int, quantile: float = 0.5
) -> Measured:
    """The rounds since < round <= until; nothing is written.

    Each difference twice. Over what was decided: a hash chose the sides, so that nothing but the treatment differs;
    where edges did not apply it the difference shrinks towards none. Over what sockets show: the effect of the
    treatment itself, but whatever kept some units from it may be what makes them slow or fast.
    """
    span = {"since": max(0, since_unix_s), "until": until_unix_s}
    lines = [_settled(line) for law in LAWS for line in law.benefit(store, fleet, policy, span, quantile)]
    lines.sort(key=lambda line: line.units == "seen")
    return Measured(since_unix_s, until_unix_s, lines)


def keep(store: Store, fleet: Fleet, policy: Policy, until_unix_s: int) -> Measured:
    """Measure the time up to a round, and make that the round's rows: again, it gives the same."""
    measured = measure(store, fleet, policy, until_unix_s - kept_s(policy), until_unix_s)
    was_measured = _until(store, until_unix_s) == until_unix_s
    rows = [_row(measured, line) for line in measured.lines or [NOTHING]]
    # Older rows go last: a replicated table takes rows that it had before for the same insert, and drops them.
    store.insert(TABLE, rows)
    if was_measured:
        store.execute(
            f"delete from {TABLE} where until = fromUnixTimestamp({{until:UInt32}}) "
            f"and concat({_KEY_TEXT}) not in {{kept:Array(String)}}",
            {"until": until_unix_s, "kept": ["\n".join(str(row[name]) for name in _KEY) for row in rows]},
        )
    return measured


def kept_s(policy: Policy) -> int:
    """A day; where pairs are switched as many blocks as an interval needs, and the one that goes on."""
    law = policy.experiment
    block_s = law.block_periods * law.period_rounds * policy.round.interval_s
    return max(DAY_S, (MINIMUM + 1) * block_s if law.kind == "switchback" else 0)


def due(store: Store, newest_unix_s: int) -> int | None:
    """The newest full hour up to a round, where its day is not measured yet."""
    hour = newest_unix_s // HOUR_S * HOUR_S
    return None if _until(store, hour) == hour else hour


def newest(store: Store, now_unix_s: int) -> Measured:
    """Reads what was measured last, within the last day. Raises StoreError."""
    until = _until(store, now_unix_s)
    if until <= now_unix_s - DAY_S:
        return Measured()
    rows = store.query(
        f"select toUnixTimestamp(since) as since_s, * from {TABLE} final "
        "where until = fromUnixTimestamp({until:UInt32}) order by units = 'seen', law, by, group, outcome",
        {"until": until},
    )
    return Measured(rows[0]["since_s"], until, [_line(row) for row in rows if row["law"]])


def uncontrolled(fleet: Fleet, policy: Policy, now_unix_s: int) -> dict[str, str]:
    """By law, why nothing here is left to compare with, and what to write."""
    found, kind = {}, policy.experiment.kind
    held_out = len(held_out_edges(fleet, policy.holdout))
    if kind == "holdout" and held_out < MINIMUM_EDGES:
        words = "write `experiment: {kind: switchback}` in policy.yaml, and each pair is compared with itself."
        if all(policy.enforce_of(*edge, now_unix_s).by == "bpf" for edge in fleet.edges().items()):
            words = "edges that pace start at a rate, and compare connections by themselves."
        found["initcwnd"] = (
            f"Windows stay too few to compare, as {held_out} edges are held out and {MINIMUM_EDGES} are needed: {words}"
        )
    if kind != "share" and policy.paces(now_unix_s) and not policy.holdout.connection_permille:
        found["start"] = (
            "Starts have little to compare with, as all connections of a path that is not on trial have them: write "
            "`holdout: {connection_permille: 20}` in policy.yaml, and one in fifty keeps the default."
        )
    return found


def _until(store: Store, most_unix_s: int) -> int:
    [found] = store.query(
        f"select toUnixTimestamp(max(until)) as at from {TABLE} where until <= fromUnixTimestamp({{most:UInt32}})",
        {"most": most_unix_s},
    )
    return int(found["at"])


def _settled(line: BenefitLine) -> BenefitLine:
    """Sums of doubles depend on the order in which threads add them up: so many digits do not."""
    effect = line.effect
    ends = (None if one is None else round(one, DIGITS) for one in (effect.effect, effect.low, effect.high))
    return replace(line, effect=Effect(effect.treated, effect.held_out, *ends))


def _row(measured: Measured, line: BenefitLine) -> Row:
    """As the table has it."""
    src_pop, destination, ip_version = (line.group, "", 0) if line.by == "PoP" else line.path
    return {
        **{"since": measured.since, "until": measured.until},
        **{"law": line.law, "outcome": line.outcome, "units": line.units, "method": line.method},
        **{"by": line.by, "group": line.group},
        **{"src_pop": src_pop, "destination": destination, "ip_version": ip_version},
        **{"treated": line.effect.treated, "held_out": line.effect.held_out},
        **{"effect": line.effect.effect, "low": line.effect.low, "high": line.effect.high},
        **{"treated_us": line.sides[0], "held_out_us": line.sides[1], "reading": line.reading},
    }


def _line(row: Row) -> BenefitLine:
    effect = Effect(**{name: row[name] for name in ("treated", "held_out", "effect", "low", "high")})
    own = {name: row[name] for name in ("law", "outcome", "by", "group", "units", "method")}
    path = (row["src_pop"], row["destination"], row["ip_version"]) if row["by"] == "path" else NOWHERE
    return BenefitLine(**own, effect=effect, path=path, sides=(row["treated_us"], row["held_out_us"]))
