"""The benefit of starts at a rate where an edge draws which connections get it: by the share that is treated."""

from __future__ import annotations

from collections.abc import Iterable

from springtide.laws.effect import SPAN, BenefitLine
from springtide.laws.paired import contrasts, middle
from springtide.laws.switchback import block, counts, turn
from springtide.policy import Policy
from springtide.store import Row

METHOD = "randomised share"

# A row a round, round of the bundle, unit and arm. A trial without values is the experiment's: the law's own trials are
# always of something. Only where both are there.
FLIGHTS = f"""
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


def lines(rows: Iterable[Row], policy: Policy) -> list[BenefitLine]:
    """Pure. At each share the time until 100 kB were acknowledged and the part of the segments that was sent again (in
    points), treated against not; and how much the effect on time differs between the largest and the smallest share:
    what differs comes from sharing a bottleneck."""
    law, interval_s = policy.experiment, policy.round.interval_s
    found = [row for row in rows if counts(law, interval_s, row["round_s"])]
    shares = [turn(law, interval_s, row["pop"], row["destination"], row["started_s"]).share for row in found]

    def at(share: float, value: str, weight: str) -> dict[object, float]:
        """By block and unit, the treated less the others at this share. A round trip compares within one round."""
        return contrasts(
            (
                (block(law, interval_s, row["round_s"]), row["pop"], row["destination"], row["ip_version"]),
                row["round_s"],
                bool(row["treated"]),
                row[value] / row[weight],
                float(row[weight]),
            )
            for row, own in zip(found, shares, strict=True)
            if own == share and row[weight]
        )

    def line(outcome: str, group: str, differences: Iterable[float], units: str = "decided") -> BenefitLine:
        effect = middle(list(differences), log2=units == "decided")
        return BenefitLine("start", outcome, "share", group, effect, units, METHOD)

    times = {share: at(share, "log2_time_sum", "timed") for share in law.shares}
    made = [line("time of 100 kB", f"{share:.0%} treated", own.values()) for share, own in times.items()]
    for share in law.shares:
        again = at(share, "resent", "segments").values()
        made.append(line("segments sent again", f"{share:.0%} treated", again, "decided, points"))
    if len(law.shares) > 1:
        low, high = times[law.shares[0]], times[law.shares[-1]]
        differences = [high[key] - low[key] for key in sorted(high.keys() & low.keys(), key=str)]
        group = f"{law.shares[-1]:.0%} against {law.shares[0]:.0%}"
        made.append(line("time of 100 kB, interference", group, differences))
    return made
