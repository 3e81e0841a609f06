"""What starts at a rate are good for where an edge draws which connections get it: by the share that is treated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from springtide.laws.base import BenefitLine
from springtide.laws.effect import SPAN, Effect
from springtide.laws.paired import contrasts, middle
from springtide.laws.switchback import block, counts, turn
from springtide.policy import Policy
from springtide.store import Row, Store

METHOD = "randomised share"

# A trial without values is the experiment's: the law's own trials are always of something. Only where both are there.
_FLIGHTS = f"""
select
    toUnixTimestamp(round) as round_s, toUnixTimestamp(started_round) as started_s, pop,
    if(dst_pop != '', toString(dst_pop), springtide_prefix_text(ip_version, client_prefix)) as destination,
    ip_version,
    started_arm = 0 as treated,
    countIf(acked_100k_us > 0) as timed,
    sumIf(log2(assumeNotNull(acked_100k_us)), acked_100k_us > 0) as log2_time_sum,
    sum(round_flights.segments) as segments, sum(round_flights.resent) as resent
from round_flights
where {SPAN} and started_step = 0 and handshake_resent = 0 and (
    (started_arm = 0 and started_window > 0) or (started_arm = 1 and started_window = 0 and started_rate = 0)
)
group by round_s, started_s, pop, destination, ip_version, treated
order by round_s, started_s, pop, destination, ip_version, treated
"""


def read(store: Store, span: Mapping[str, int]) -> list[Row]:
    """A row a round, round of the bundle, unit and arm. Raises StoreError."""
    return store.query(_FLIGHTS, span)


def lines(rows: Iterable[Row], policy: Policy) -> list[BenefitLine]:
    """Pure. At each share the time until 100 kB were acknowledged and the part of the segments that was sent again (in
    points), treated against not; and how much the effect on time differs between the largest and the smallest share:
    what differs comes from sharing a bottleneck."""
    law, interval_s = policy.experiment, policy.round.interval_s
    found = [row for row in rows if counts(law, interval_s, row["round_s"])]
    shares = [turn(law, interval_s, row["pop"], row["destination"], row["started_s"]).share for row in found]
    times = {share: _of_share(found, shares, share, policy, "log2_time_sum", "timed") for share in law.shares}
    again = {share: _of_share(found, shares, share, policy, "resent", "segments") for share in law.shares}
    made = [_line("time of 100 kB", share, middle(list(own.values()), log2=True)) for share, own in times.items()]
    made += [
        _line("segments sent again", share, middle(list(own.values()), log2=False), "decided, points")
        for share, own in again.items()
    ]
    if len(law.shares) > 1:
        low, high = times[law.shares[0]], times[law.shares[-1]]
        differences = [high[key] - low[key] for key in sorted(high.keys() & low.keys(), key=str)]
        group = f"{law.shares[-1]:.0%} against {law.shares[0]:.0%}"
        effect = middle(differences, log2=True)
        made.append(BenefitLine("start", "time of 100 kB, interference", "share", group, effect, method=METHOD))
    return made


def _of_share(
    rows: list[Row], shares: list[float], share: float, policy: Policy, value: str, weight: str
) -> dict[object, float]:
    """By block and unit, the treated less the others at this share. A round trip compares within one round."""
    cells = [
        (_block(row, policy), row["round_s"], bool(row["treated"]), row[value] / row[weight], float(row[weight]))
        for row, own in zip(rows, shares, strict=True)
        if own == share and row[weight]
    ]
    found = {}
    for key, own_cells in groupby(sorted(cells, key=lambda cell: (str(cell[0]), cell[1])), lambda cell: cell[0]):
        for one in contrasts(own_cells):
            found[key] = one
    return found


def _block(row: Row, policy: Policy) -> tuple[object, ...]:
    number = block(policy.experiment, policy.round.interval_s, row["round_s"])
    return number, row["pop"], row["destination"], row["ip_version"]


def _line(outcome: str, share: float, effect: Effect, units: str = "decided") -> BenefitLine:
    return BenefitLine("start", outcome, "share", f"{share:.0%} treated", effect, units, METHOD)
