"""Connection explorer: ad-hoc by host, peer, prefix and autonomous system."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.build import PREFIX, choice, lines, percentiles, row, rows, start, text

# As the view `connections` has it, which knows whole rounds.
ROUNDS = (
    "$__timeFilter(round) and host in (${host:singlequote}) and position(prefix, ${prefix:sqlstring}) > 0 "
    "and (${peer:sqlstring} = '' or dst_pop = ${peer:sqlstring})"
)
# As tcp_samples has it, which knows each poll, and the autonomous system.
SAMPLES = f"""intDiv(time_unix_us, 300000000) >= intDiv(toUnixTimestamp($__fromTime), 300)
                    and time_unix_us <= toUnixTimestamp($__toTime) * 1000000
                    and host in (${{host:singlequote}})
                    and position({PREFIX}, ${{prefix:sqlstring}}) > 0
                    and (${{peer:sqlstring}} = '' or dst_pop = ${{peer:sqlstring}})
                    and (${{asn:sqlstring}} = '' or toString(dst_asn) = ${{asn:sqlstring}})"""


def connections() -> Dashboard:
    """Long: panel after panel, as they stand on the screen."""
    made = start(
        "connections",
        "Connection explorer",
        "Connections by host, peer, prefix and autonomous system. Narrow it down before you widen the time: the lower "
        "tables read samples, not rounds.",
        choice(
            "host",
            "Host",
            "select distinct host from round_hosts where $__timeFilter(round) order by host",
            "Edges whose connections are shown.",
        ),
        text("peer", "Peer PoP", "", "A PoP's name; empty: all peers, clients too."),
        text("prefix", "Prefix", "", "Part of a /24 or /56, such as 198.51.100; empty: all."),
        text("asn", "AS number", "", "The peer's, where `springtide asn` has loaded a table; empty: all."),
    )
    return (
        made.with_row(row("Rounds"))
        .with_panel(
            lines(
                "Connections",
                "By congestion control algorithm and round.",
                f"""
                select round as time, algorithm as series, count() as connections
                from connections where {ROUNDS}
                group by time, series
                order by time, series
                """,
                "short",
                span=8,
            )
        )
        .with_panel(
            percentiles(
                "Delivery rate",
                "10th, 50th and 90th percentile over connections of their last delivery rates.",
                "delivery_mbit_per_s",
                f"connections where {ROUNDS} and delivery_mbit_per_s > 0",
                "Mbits",
            )
        )
        .with_panel(
            percentiles(
                "Round-trip time",
                "10th, 50th and 90th percentile over connections of their smoothed round-trip times.",
                "rtt_ms",
                f"connections where {ROUNDS} and rtt_ms > 0",
                "ms",
            )
        )
        .with_panel(
            lines(
                "Windows",
                "Median congestion window, by algorithm, segments.",
                f"""
                select round as time, algorithm as series, quantile(0.5)(cwnd) as cwnd
                from connections where {ROUNDS} and live
                group by time, series
                order by time, series
                """,
                "short",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Retransmissions",
                "Bytes sent again, percent of those sent, by algorithm.",
                f"""
                select round as time, algorithm as series,
                    springtide_sent_again_percent(bytes_retransmitted, bytes_sent) as retransmit_percent
                from connections where {ROUNDS}
                group by time, series having sum(bytes_sent) > 0
                order by time, series
                """,
                "percent",
                span=8,
                steps=((0, "transparent"), (3, "orange")),
            )
        )
        .with_panel(
            lines(
                "What holds connections back",
                "Time limited by the receiver's window, percent of the time with data outstanding.",
                f"""
                select round as time, avg(receiver_limited_percent) as receiver
                from connections where {ROUNDS} and receiver_limited_percent is not null
                group by round
                order by time
                """,
                "percent",
                span=8,
            )
        )
        .with_panel(
            rows(
                "Prefixes",
                "Peers by prefix over the time shown, the most traffic first.",
                f"""
                select prefix, any(dst_pop) as peer_pop, count() as connection_rounds, sum(delivered_kb)
                    / 1000 as delivered_mb,
                    quantileOrNullIf(0.5)(rtt_ms, rtt_ms > 0) as rtt_p50_ms,
                    quantileOrNullIf(0.5)(delivery_mbit_per_s, delivery_mbit_per_s > 0) as delivery_p50_mbit_per_s,
                    100 * sum(bytes_retransmitted) / nullIf(sum(bytes_sent), 0) as retransmit_percent
                from connections where {ROUNDS}
                group by prefix
                order by delivered_mb desc
                limit 200
                """,
                {
                    "delivered_mb": "decmbytes",
                    "rtt_p50_ms": "ms",
                    "delivery_p50_mbit_per_s": "Mbits",
                    "retransmit_percent": "percent",
                },
                links={
                    "prefix": (
                        "Why it has its algorithm",
                        "/d/springtide-prefixes?var-prefix=${__value.raw}&${__url_time_range}",
                    )
                },
            )
        )
        .with_row(row("Samples"))
        .with_panel(
            rows(
                "Autonomous systems",
                "Peers by the autonomous system that originates their address, the most connections first; 0 is "
                "unknown.",
                f"""
                select dst_asn as asn, any(dictGetOrDefault('asns', 'name', dst_ip, '')) as name,
                    uniq(host, boot_id, netns, cookie) as connections, quantile(0.5)(rtt) / 1000 as rtt_p50_ms,
                    quantile(0.1)(delivery_rate) * 8 / 1000000 as delivery_p10_mbit_per_s
                from tcp_samples final
                where {SAMPLES}
                group by asn
                order by connections desc, asn
                limit 100
                """,
                {"rtt_p50_ms": "ms", "delivery_p10_mbit_per_s": "Mbits"},
            )
        )
        .with_panel(
            rows(
                "What connections started with",
                "As springtide-edge's program wrote it down for each connection, beside the window that its edge had "
                "been given for its peer's PoP; 0 is the kernel's default, and no rate.",
                f"""
                select {PREFIX} as prefix, any(dst_pop) as peer_pop, any(decided_cwnd) as decided_cwnd,
                    started_window, if(started_arm = 1, 'trial', 'entry') as arm,
                    transform(started_step, [0, 1, 2], ['none', 'half', 'default'], 'unknown') as brake,
                    quantile(0.5)(started_rate) * 8 / 1000000 as rate_p50_mbit_per_s,
                    uniq(host, boot_id, netns, cookie) as connections
                from tcp_samples final
                any left join (
                    select host, boot_id, netns, cookie, max(start_cwnd) as decided_cwnd
                    from round_sockets
                    where $__timeFilter(round) and host in (${{host:singlequote}})
                    group by host, boot_id, netns, cookie
                ) as decisions using (host, boot_id, netns, cookie)
                where {SAMPLES} and started_window is not null
                group by prefix, started_window, arm, brake
                order by connections desc, prefix, started_window
                limit 200
                """,
                {"rate_p50_mbit_per_s": "Mbits"},
            )
        )
        .with_panel(
            rows(
                "First flights",
                "How first flights went, by what connections started with, from the records of springtide-edge's "
                "program: the share that lost any, of those that sent more than ten segments, and the time until so "
                "many bytes were acknowledged.",
                f"""
                select any(dst_pop) as peer_pop, {PREFIX} as prefix, started_window,
                    if(started_arm = 1, 'trial', 'entry') as arm,
                    transform(started_step, [0, 1, 2], ['none', 'half', 'default'], 'unknown') as brake,
                    count() as connections,
                    countIf(coalesce(first_flight_segs, data_segs_out) > 10 and first_flight_retrans > 0)
                    / nullIf(countIf(coalesce(first_flight_segs, data_segs_out) > 10), 0) as lost,
                    quantile(0.5)(acked_50k_time) / 1000 as acked_50k_p50_ms,
                    quantile(0.5)(acked_100k_time) / 1000 as acked_100k_p50_ms,
                    quantile(0.9)(acked_100k_time) / 1000 as acked_100k_p90_ms
                from tcp_samples final
                where {SAMPLES} and kind = 'FIRST_FLIGHT'
                group by prefix, started_window, arm, brake
                order by connections desc, prefix, started_window, arm, brake
                limit 200
                """,
                {"lost": "percentunit", "acked_50k_p50_ms": "ms", "acked_100k_p50_ms": "ms", "acked_100k_p90_ms": "ms"},
            )
        )
        .with_panel(
            rows(
                "Newest samples",
                "Single polls and closes, newest first.",
                f"""
                select fromUnixTimestamp64Micro(time_unix_us, 'UTC') as time, toString(host) as host,
                    replaceOne(toString(dst_ip), '::ffff:', '') as peer, dst_port, toString(kind) as kind,
                    toString(state) as state, toString(congestion_algorithm) as algorithm, snd_cwnd, rtt
                    / 1000 as rtt_ms,
                    delivery_rate * 8 / 1000000 as delivery_mbit_per_s, bytes_acked, bytes_retrans, dst_asn, cookie
                from tcp_samples final
                where {SAMPLES}
                order by time_unix_us desc
                limit 200
                """,
                {
                    "rtt_ms": "ms",
                    "delivery_mbit_per_s": "Mbits",
                    "bytes_acked": "bytes",
                    "bytes_retrans": "bytes",
                    "dst_asn": "none",
                    "dst_port": "none",
                },
            )
        )
    )
