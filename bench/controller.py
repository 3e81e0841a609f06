"""The control laws at the size of a large fleet, against a bare scan of what they read.

    python -m bench.controller [--pops N] [--prefixes N] [--rounds N]   writes out/bench/controller.json

`initcwnd_ratio` is the time to decide one round of every ordered pair of PoPs (read what was observed and decided,
decide, write the rows) / the time of one query that reads the same columns of the same rows and adds them up.
`congestion_ratio` is the same for client prefixes over the window of their duty cycle. Both sides run in one process,
in turns; the median of three counts for each.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.law import decide as decide_congestion
from springtide.laws.initcwnd import rows as decisions
from springtide.laws.initcwnd.law import decide as decide_initcwnd
from springtide.observe.rounds import pair_observations
from springtide.policy import Policy
from springtide.store import Store, open_store
from springtide.store.migrations import migrate, read_migrations

from bench import output

# 2026-01-02T03:00:00Z
ROUND = 1_767_322_800
INTERVAL = 300
POPS_OF_PREFIXES = 100
TURNS = 3

# Rates are lognormal over prefixes and again from round to round; a fifth of the prefixes have too little traffic for
# evidence in most rounds.
PREFIXES = """
insert into rollup_prefix_rates (
    round, generation, pop, ip_version, client_prefix, acting_bytes, connections, eligible_connections, samples,
    bytes_acked, bytes_sent, bytes_retransmitted, delivery_rate_p50_bytes_per_s, rtt_p50_us
)
with number as n, sipHash64(n) as h, sipHash64(n, {number:UInt32}) as e,
    (h % 1000 + intDiv(h, 1000) % 1000 + intDiv(h, 1000000) % 1000) / 500 - 3 as level,
    (e % 1000 + intDiv(e, 1000) % 1000 + intDiv(e, 1000000) % 1000) / 500 - 3 as noise,
    if(h % 5 = 0, 200000, 1000000) + e % 20000000 as acked
select
    fromUnixTimestamp({round_s:UInt32}), 1, concat('pop', toString(intDiv(n * {pops:UInt64}, {prefixes:UInt64}))), 4,
    toIPv6(concat('::ffff:', IPv4NumToString(toUInt32(16777216 + n * 256)))), 100000, 6 + e % 80,
    3 + e % 40, 10 + e % 160, acked, acked + intDiv(acked * (h % 300), 10000), intDiv(acked * (h % 300), 10000),
    toUInt64(exp(13 + 1.2 * level + 0.3 * noise)), 5000 + h % 200000
from numbers({prefixes:UInt64})
"""

PAIRS = """
insert into rollup_pairs (
    round, generation, src_pop, dst_pop, ip_version, connections_seen, connections_earned, cwnd_sum, cwnd_weight,
    min_cwnd, max_cwnd, bytes_sent, bytes_retransmitted, young_connections, young_lossy_connections,
    young_timeout_connections, young_rwnd_p50
)
with number as n, intDiv(n, {pops:UInt64}) as s, n % {pops:UInt64} as d, sipHash64(n) as h,
    sipHash64(n, {number:UInt32}) as e, 20 + h % 60 + e % 10 as cwnd
select
    fromUnixTimestamp({round_s:UInt32}), 1, concat('pop', toString(s)), concat('pop', toString(d)), 4, 10 + e % 20,
    2 + e % 10, cwnd * 100, 100, cwnd - 10, cwnd + 20, 10000000, 10000, 30, e % 2, 0, 300
from numbers({pops:UInt64} * {pops:UInt64})
where s != d
"""

PREFIX_SCAN = """
select
    max(round), max(pop), max(ip_version), max(client_prefix), max(only_host), max(dst_pop), max(acting_bytes),
    sum(eligible_connections), sum(eligible_bbr_connections), sum(samples), sum(bytes_acked), sum(bytes_sent),
    sum(bytes_retransmitted), sum(delivery_rate_p50_bytes_per_s), sum(bbr_delivery_rate_p50_bytes_per_s),
    sum(rtt_p50_us)
from round_prefix_rates
"""

# What both reads of the law touch.
PAIR_SCANS = (
    """
    select
        max(src_pop), max(dst_pop), max(ip_version), sum(connections_seen), sum(connections_earned), sum(cwnd_sum),
        sum(cwnd_weight), sum(min_cwnd), sum(max_cwnd), sum(traffic_cwnd), sum(cwnd_p10), sum(cwnd_p25), sum(cwnd_p50),
        sum(cwnd_p75), sum(cwnd_p90), sum(bytes_sent), sum(bytes_retransmitted), sum(young_connections),
        sum(young_lossy_connections), sum(young_timeout_connections), sum(young_rwnd_p50)
    from round_pairs where round = fromUnixTimestamp({round_s:UInt32})
    """,
    """
    select
        max(round), max(src_pop), max(dst_pop), max(ip_version), sum(smoothed_cwnd), max(last_evidence), sum(initcwnd),
        max(guard_until), sum(guard_hold_s), sum(clean_initcwnd), sum(harmful_initcwnd), sum(default_connections),
        sum(default_lossy), sum(trial_rounds), sum(trial_connections), sum(trial_lossy), sum(penalty), sum(suppressed)
    from initcwnd_decisions
    where round < fromUnixTimestamp({round_s:UInt32})
    """,
)


def main() -> None:
    sizes = {"pops": 250, "prefixes": 1_000_000, "rounds": 72}
    options = output.parser(__doc__, "out/bench/controller.json", **sizes).parse_args()
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as folder:
        store = open_store(f"chdb://{folder}/store", create=True, wait_s=1, on_wait=print)
        try:
            result = measure(store, options.pops, options.prefixes, options.rounds)
        finally:
            store.close()
    print(output.write(options.out, result))


def measure(store: Store, pops: int, prefixes: int, rounds: int) -> dict[str, Any]:
    migrate(store, read_migrations())
    for number in range(rounds):
        if number % 12 == 0:
            print(f"making round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        key = {"round_s": ROUND - number * INTERVAL, "number": number}
        store.execute(PREFIXES, {**key, "prefixes": prefixes, "pops": POPS_OF_PREFIXES})
        store.execute(PAIRS, {**key, "pops": pops})
        store.execute(
            "insert into rollups (round, generation, interval_s) select fromUnixTimestamp({round_s:UInt32}), 1, 300",
            {"round_s": key["round_s"]},
        )
    policy = Policy()
    _decide_prefixes(store, ROUND - INTERVAL, policy)
    congestion = _in_turns(
        "congestion",
        lambda: _decide_prefixes(store, ROUND, policy),
        lambda: store.execute(PREFIX_SCAN),
        lambda: _forget(store, "congestion_decisions"),
    )
    for number in range(min(rounds, 3), 0, -1):
        _decide_pairs(store, ROUND - number * INTERVAL, policy)
    _widen_decisions(store, rounds)

    def scan() -> None:
        for query in PAIR_SCANS:
            store.execute(query, {"round_s": ROUND})

    initcwnd = _in_turns(
        "initcwnd", lambda: _decide_pairs(store, ROUND, policy), scan, lambda: _forget(store, "initcwnd_decisions")
    )
    [counted] = store.query(
        "select (select count() from round_prefix_rates) as prefixes, "
        "(select count() from initcwnd_decisions) as pairs, "
        "(select count() from congestion_decisions where round = fromUnixTimestamp({round_s:UInt32})) as chosen",
        {"round_s": ROUND},
    )
    return {
        "pops": pops,
        "pairs": pops * (pops - 1),
        "prefixes": prefixes,
        "rounds": rounds,
        "prefix_rows": counted["prefixes"],
        "pair_decision_rows": counted["pairs"],
        "prefix_decisions": counted["chosen"],
        **initcwnd,
        **congestion,
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


def _decide_prefixes(store: Store, moment: int, policy: Policy) -> None:
    last = congestion_rows.last_round(store, moment)
    evidence = congestion_rows.evidence(store, moment, policy, last)
    decided = decide_congestion(moment, policy, evidence, congestion_rows.previous(store, last))
    congestion_rows.write_round(store, moment, decided, policy.version)


def _decide_pairs(store: Store, moment: int, policy: Policy) -> None:
    decided = decide_initcwnd(
        moment, policy, pair_observations(store, moment), decisions.previous(store, moment, policy)
    )
    decisions.write_round(store, moment, decided, policy.version)


def _widen_decisions(store: Store, rounds: int) -> None:
    """The newest round's decisions again for the rounds before, as a history that is no longer."""
    for number in range(4, rounds + 1):
        store.execute(
            "insert into initcwnd_decisions select * replace (fromUnixTimestamp({round_s:UInt32}) as round, "
            "fromUnixTimestamp({round_s:UInt32}) as last_evidence) "
            "from initcwnd_decisions where initcwnd_decisions.round = fromUnixTimestamp({source_s:UInt32})",
            {"round_s": ROUND - number * INTERVAL, "source_s": ROUND - 3 * INTERVAL},
        )


def _forget(store: Store, table: str) -> None:
    """The round's rows, so that they are written again."""
    store.execute(f"delete from {table} where round = fromUnixTimestamp({{round_s:UInt32}})", {"round_s": ROUND})


def _in_turns(
    law: str, work: Callable[[], None], floor: Callable[[], None], reset: Callable[[], None]
) -> dict[str, float]:
    """The median turn of each, and its processor seconds; `reset` comes before each turn and does not count."""
    names = (law, f"{law}_scan")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(TURNS):
        reset()
        for name, run in zip(names, (work, floor), strict=True):
            wall, processor = time.perf_counter(), time.process_time()
            run()
            times[name].append((time.perf_counter() - wall, time.process_time() - processor))
    (ours, ours_cpu), (scan, scan_cpu) = (map(median, zip(*times[name], strict=True)) for name in names)
    return {
        f"{law}_s": round(ours, 2),
        f"{law}_scan_s": round(scan, 2),
        f"{law}_ratio": round(ours / scan, 2),
        f"{law}_cpu_s": round(ours_cpu, 2),
        f"{law}_scan_cpu_s": round(scan_cpu, 2),
        f"{law}_cpu_ratio": round(ours_cpu / scan_cpu, 2),
    }


if __name__ == "__main__":
    main()
