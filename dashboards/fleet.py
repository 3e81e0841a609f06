"""Fleet overview: is it helping, is it working, is it safe.

Long: one page, panel after panel in the order in which they stand.
"""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.builders.dashboard import Dashboard
from springtide.laws.base import Law, decided_by
from springtide.laws.registry import LAWS, LEADING
from springtide.learn.status_facts import BEGUN

from dashboards.benefit import counted, differences
from dashboards.build import lines, number, row, rows, start

AGE = ((0, "green"), (600, "orange"), (1800, "red"))
NONE_IS_GOOD = ((0, "green"), (1, "red"))


def fleet() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "fleet",
        "Fleet overview",
        "Is it helping, is it working, is it safe: the three questions of every day.",
    )
    return (
        made.with_row(row("Is it helping, by how much, for whom?"))
        .with_panel(
            number(
                "Better",
                "Comparisons of a PoP, a path or another group in which connections are better off with what is "
                "decided, beyond chance, by the newest measured day.",
                counted("better"),
                "short",
                span=8,
            )
        )
        .with_panel(
            number(
                "Worse",
                "The same in which they are worse off; of 40 without any effect one looks so by chance.",
                counted("worse"),
                "short",
                span=8,
                steps=((0, "green"), (1, "orange")),
            )
        )
        .with_panel(
            number(
                "Connections that begin with it",
                "Connections to other PoPs and to clients that were seen to begin with a value of their edge, "
                "of all that began in the newest round.",
                f"select 100 * seen / began as connections_percent from ({BEGUN}) where began > 0".replace(
                    "fromUnixTimestamp({round:UInt32})",
                    "(select max(round) from round_sockets where $__timeFilter(round))",
                ),
                "percent",
                span=8,
            )
        )
        .with_panel(
            differences(
                "Difference that it makes",
                "Each law's number, treated beside the others, with its interval of 95 % and more: negative is faster, "
                "but for rates.",
                "by = 'all' and units = 'decided'",
                height=6,
            )
        )
        .with_panel(
            differences(
                "What got worse",
                "Differences of the newest measured day that are worse beyond chance, the worst first; of paths the "
                "50th, 90th and 95th percentile.",
                "reading = 'worse'",
            )
        )
        .with_row(row("Is it working?"))
        .with_panel(
            number(
                "Newest sample",
                "Age of the newest sample, at the end of the time shown. Collectors hand over every few seconds.",
                """
                select toUnixTimestamp($__toTime) - max(time_unix_us) / 1000000 as age_s
                from tcp_samples
                where time_unix_us > toUnixTimestamp($__toTime) * 1000000 - 86400000000
                    and time_unix_us <= toUnixTimestamp($__toTime) * 1000000
                having count() > 0
                """,
                "s",
                steps=((0, "green"), (60, "orange"), (300, "red")),
            )
        )
        .with_panel(
            number(
                "Newest round",
                "Age of the newest round whose tables are computed, at the end of the time shown.",
                """
                select toUnixTimestamp($__toTime) - toUnixTimestamp(max(round)) as age_s
                from rollups final where $__timeFilter(round)
                having count() > 0
                """,
                "s",
                steps=AGE,
            )
        )
        .with_panel(
            number(
                "Newest decision",
                f"Age of the newest round that the law {LEADING.name} decided, at the end of the time shown.",
                f"""
                select toUnixTimestamp($__toTime) - toUnixTimestamp(max(round)) as age_s
                from path_decisions final where part = '{LEADING.name}' and $__timeFilter(round)
                having count() > 0
                """,
                "s",
                steps=AGE,
            )
        )
        .with_panel(
            number(
                "Newest publication",
                "Age of the newest publication, at the end of the time shown. Bundles expire: see bundle.ttl_s in "
                "the policy.",
                """
                select toUnixTimestamp($__toTime) - toUnixTimestamp(max(at)) as age_s
                from audit final where $__timeFilter(at) and event = 'publish'
                having count() > 0
                """,
                "s",
                steps=((0, "green"), (1200, "orange"), (3600, "red")),
            )
        )
        .with_panel(
            number(
                "Hosts that sent samples",
                "Hosts whose samples are in the newest round.",
                """
                select countIf(rows_seen > 0) as hosts_heard
                from hosts
                where round = (select max(round) from rollups final where $__timeFilter(round))
                """,
                "short",
                steps=((0, "red"), (1, "green")),
            )
        )
        .with_panel(
            number(
                "Complete",
                "Samples of the newest round, of those that should have arrived.",
                """
                select 100 * sum(rows_seen) / sum(rows_expected) as complete_percent
                from hosts
                where round = (select max(round) from rollups final where $__timeFilter(round))
                having sum(rows_expected) > 0
                """,
                "percent",
                steps=((0, "red"), (60, "orange"), (95, "green")),
            )
        )
        .with_panel(
            lines(
                "Completeness by PoP",
                "Samples that arrived, of those that should have. Below completeness.min_rows (60 % by default) a "
                "PoP's "
                "decisions do not change.",
                """
                select round as time, pop as series, 100 * sum(rows_seen) / sum(rows_expected) as complete_percent
                from hosts where $__timeFilter(round)
                group by round, pop having sum(rows_expected) > 0
                order by time, series
                """,
                "percent",
                steps=((0, "transparent"), (60, "red")),
            )
        )
        .with_panel(
            lines(
                "Connections seen between PoPs",
                "Established connections by source PoP and round: what decisions are made from.",
                """
                select round as time, src_pop as series, sum(connections_seen) as connections
                from pairs where $__timeFilter(round)
                group by round, src_pop
                order by time, series
                """,
                "short",
            )
        )
        .with_row(row("Is it safe?"))
        .with_panel(
            number(
                "Gates that rolled back",
                "Waves that a gate rolled back, in the time shown.",
                """
                select countIf(event = 'gate' and verdict = 'roll back') as gates
                from audit final where $__timeFilter(at)
                """,
                "short",
                steps=NONE_IS_GOOD,
            )
        )
        .with_panel(
            number(
                "Drift found",
                "Times that edges were found to hold something else than was published, in the time shown.",
                """
                select countIf(event = 'drift' and verdict != 'none') as drifts
                from audit final where $__timeFilter(at)
                """,
                "short",
                steps=NONE_IS_GOOD,
            )
        )
        .with_panel(
            number(
                "Forced",
                "Publications beyond the policy's caps that somebody forced, in the time shown.",
                "select countIf(event = 'force') as forced from audit final where $__timeFilter(at)",
                "short",
                steps=((0, "green"), (1, "orange")),
            )
        )
        .with_panel(
            number(
                "Not applied",
                "Pairs of an edge and a PoP whose new connections do not begin with the window that it was given, "
                "in the newest round; `springtide sql decided-and-seen` names them.",
                """
                select countIf(seen = 'differs' and decided_cwnd != 10) as pairs
                from round_treatments
                where round = (select max(round) from rollups final where $__timeFilter(round))
                """,
                "short",
                steps=NONE_IS_GOOD,
            )
        )
        .with_panel(
            number(
                "Largest window set",
                "Segments, in the newest decided round; initcwnd.cmax bounds it.",
                """
                select max(initcwnd) as initcwnd from path_decisions final
                where part = 'initcwnd'
                    and round = (select max(round) from path_decisions where part = 'initcwnd' and $__timeFilter(round))
                """,
                "short",
            )
        )
        .with_panel(
            number(
                "Pairs under the loss guard",
                "Pairs for which loss has left a ceiling, which only judged steps raise, in the newest decided round.",
                """
                select countIf(ceiling_initcwnd > 0) as pairs from path_decisions final
                where part = 'initcwnd'
                    and round = (select max(round) from path_decisions where part = 'initcwnd' and $__timeFilter(round))
                """,
                "short",
                steps=((0, "green"), (1, "orange")),
            )
        )
        .with_panel(
            lines(
                "Retransmissions",
                "Bytes sent again between PoPs; and of young connections, closed after at most two of the windows that "
                "they began with, those that lost anything: the ones that an initial window can hurt. "
                "initcwnd.loss_bound is what may.",
                """
                select round as time,
                    springtide_sent_again_percent(bytes_retransmitted, bytes_sent) as all_connections,
                    100 * sum(young_lossy_connections) / nullIf(sum(young_connections), 0) as young_lossy
                from round_pairs where $__timeFilter(round)
                group by round having sum(bytes_sent) > 0
                order by time
                """,
                "percent",
                steps=((0, "transparent"), (12, "red")),
            )
        )
        .with_panel(
            lines(
                "Changes decided",
                "Rows of each law whose value is not that of the round before, or was withdrawn, in each round.",
                _each_round("changes", ((law, law.changes) for law in LAWS if law.changes)),
                "short",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Values decided",
                "Rows of each law that set a value, in each round: pairs with a window, prefixes decided for BBR.",
                _each_round("values_set", ((law, law.acts) for law in LAWS)),
                "short",
            )
        )
        .with_panel(
            lines(
                "Decided and seen",
                "Pairs of an edge and a PoP that were given a window, by what new connections show: that they begin "
                "with it, that they do not, or nothing.",
                """
                select round as time, countIf(seen = 'same' and decided_cwnd != 10) as same,
                    countIf(seen = 'differs' and decided_cwnd != 10) as differs,
                    countIf(seen = 'unknown' and decided_cwnd != 10) as unknown
                from round_treatments where $__timeFilter(round)
                group by round
                order by time
                """,
                "short",
            )
        )
        .with_panel(
            number(
                "Damped",
                "Pairs and prefixes whose value may not change because it changed too often, in the newest decided "
                "rounds.",
                f"select {' + '.join(map(_damped, (law for law in LAWS if law.damped)))} as damped",
                "short",
                steps=((0, "green"), (1, "orange")),
            )
        )
        .with_row(row("What it does"))
        .with_panel(
            lines(
                "Would gain",
                "By what is decided, applied or not: how much sooner an answer of 100 KB would be there between PoPs, "
                "the mean over connections seen from each PoP. Counted are the round trips that slow start from the "
                "decided window saves against ten segments, at the median round-trip time; where nothing is decided, "
                "none. "
                "In the policy's mode advise nothing of it is in force; what it really gains is on the dashboard "
                "Benefit.",
                f"""
                select round as time, src_pop as series,
                    sum(connections_seen * rtt_ms * {_saved_round_trips("window")}) / sum(connections_seen) as saved_ms
                from pairs
                left join (
                    select round, src_pop, destination as dst_pop, ip_version, greatest(initcwnd, 10) as window
                    from path_decisions final where part = 'initcwnd' and $__timeFilter(round)
                ) as decided using (round, src_pop, dst_pop, ip_version)
                where $__timeFilter(round) and rtt_ms is not null and connections_seen > 0
                group by time, series
                order by time, series
                """,
                "ms",
                span=24,
            )
        )
        .with_panel(
            lines(
                "Windows beyond the kernel's",
                "Pairs of PoPs with a learnt initial window, and the mean of those windows in segments; the "
                "kernel's is 10.",
                """
                select round as time, countIf(initcwnd > 0) as pairs, avg(nullIf(initcwnd, 0)) as mean_initcwnd
                from path_decisions final where part = 'initcwnd' and $__timeFilter(round)
                group by round
                order by time
                """,
                "short",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Prefixes decided for BBR",
                "Client prefixes decided for BBR, those of them that send most of their bytes by it, and those held "
                "out. Edges by bpf apply it (enforce.by); those by routes only where it is from the first byte on.",
                """
                select round as time, decided.bbr as bbr, used.seen_on_bbr as seen_on_bbr, decided.held_out as held_out
                from (
                    select round, countIf(algorithm = 'bbr') as bbr, countIf(held_out) as held_out
                    from path_decisions final where part = 'congestion' and $__timeFilter(round) group by round
                ) as decided
                left join (
                    select round, countIf(decided = 'bbr' and seen = 'same') as seen_on_bbr
                    from prefix_treatments where $__timeFilter(round) group by round
                ) as used using (round)
                order by time
                """,
                "short",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Slowest tenth of requests",
                "10th percentile of goodput over client prefixes, objects of 100 KB and more. Treated against "
                "held-out is on "
                "the dashboard Benefit.",
                """
                select round as time, pop as series, quantileExact(0.1)(goodput_p10_mbit_per_s) as goodput_p10
                from goodput where $__timeFilter(round) and from_kb >= 100
                group by round, pop
                order by time, series
                """,
                "Mbits",
                span=8,
            )
        )
        .with_panel(
            rows(
                "PoPs",
                "The newest round of each PoP.",
                """
                select pop, max(round) as newest_round, argMax(seen, round) as hosts_heard,
                    argMax(complete, round) as complete_percent
                from (
                    select round, pop, countIf(rows_seen > 0) as seen,
                        100 * sum(rows_seen) / nullIf(sum(rows_expected), 0) as complete
                    from hosts where $__timeFilter(round) group by round, pop
                )
                group by pop
                order by pop
                """,
                {"complete_percent": "percent"},
                height=7,
                links={"pop": ("Its pairs", "/d/springtide-pairs?var-src=${__value.raw}&${__url_time_range}")},
            )
        )
    )


def _saved_round_trips(window: str) -> str:
    """SQL: of the round trips in which slow start sends 100 KB, 70 segments, those that a first window saves."""
    return f"({_round_trips('10')} - {_round_trips(f'greatest({window}, 10)')})"


def _round_trips(window: str) -> str:
    # The least n for which the window's first n doublings hold them.
    return f"ceil(log2(70 / {window} + 1))"


def _each_round(what: str, conditions: Iterable[tuple[Law, str]]) -> str:
    """A line a law: in how many of its rows an SQL condition holds."""
    counts = [
        f"select round, '{law.name}' as series, countIf({condition}) as {what}\n"
        f"    from {decided_by(law.name, 'final')} and $__timeFilter(round) group by round"
        for law, condition in conditions
    ]
    every = "\n    union all\n    ".join(counts)
    sums = f"select round as time, series, sum({what}) as {what} from (\n    {every}\n)"
    return f"{sums}\ngroup by time, series\norder by time, series"


def _damped(law: Law) -> str:
    newest = f"(select max(round) from {decided_by(law.name)} and $__timeFilter(round))"
    return f"(select countIf(suppressed) from {decided_by(law.name, 'final')} and round = {newest})"
