"""A round's tables against a plain scan of what they are made from, and the controller's reads against a bare count.

    python -m bench.rounds [--rows N] [--prefixes N] [--rounds N]   writes out/bench/rounds.json

`rollup_ratio` is the time to compute one round's tables over `rows` samples (the round and the one before it, which it
looks back at) / the time of one query that sums the same columns over the same rows, in the same run and process. The
round has no tables yet, as it is when a round closes; `rollup_again_s` is the time to replace those that it has.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from springtide.observe import rollup
from springtide.store import Store, open_store
from springtide.store.migrations import migrate, read_migrations

ROOT = Path(__file__).resolve().parents[1]
# 2026-01-02T03:00:00Z
ROUND = 1_767_322_800
INTERVAL = 300
POLLS = 20
SUMMED = """
snd_cwnd snd_mss snd_ssthresh snd_wnd rtt min_rtt delivery_rate sample_weight delivery_rate_app_limited bytes_acked
bytes_sent bytes_retrans bytes_received busy_time rwnd_limited sndbuf_limited dsack_dups total_rto total_retrans cookie
netns poll_sequence
"""

# Half of the sockets are idle; a fifth go to other PoPs, the rest to some 50,000 prefixes.
SAMPLES = """
insert into tcp_samples (
    time_unix_us, host, pop, boot_id, netns, poll_sequence, cookie, kind, state, src_ip, src_port, dst_ip, dst_port,
    snd_cwnd, rtt, family, congestion_algorithm, snd_mss, snd_ssthresh, bytes_acked, bytes_sent, bytes_retrans,
    bytes_received, busy_time, rwnd_limited, sndbuf_limited, min_rtt, delivery_rate, delivery_rate_app_limited, snd_wnd,
    tcp_info_length, src_pop, dst_pop
)
with number as n, n % 40 as h, h % 8 as p, sipHash64(n) as r, r % 10 < 5 as busy, {poll:UInt32} as k,
    r % 100 < 20 as internal, (p + 1 + r % 7) % 8 as q
select
    {time_us:Int64} + n % 900000, concat('edge-', toString(h)), concat('pop', toString(p)),
    leftPad(toString(h), 36, 'b'), 4026531840, 1000 + k, n, 'POLL', 'ESTABLISHED',
    toIPv6(concat('::ffff:10.77.', toString(p), '.1')), 443,
    if(internal, toIPv6(concat('::ffff:10.77.', toString(q), '.9')),
        toIPv6(IPv4NumToString(toUInt32(1000000000 + intHash32(n) % 50000 * 256 + r % 250)))),
    1024 + r % 60000, 10 + r % 90, 1000 + r % 200000, 2, ['bbr', 'cubic'][1 + r % 2], 1448, 2147483647,
    k * busy * (r % 300000) + r % 100000, k * busy * (r % 300000) + r % 100000, k * busy * (r % 100), 500 * k,
    1000 * k * busy, 0, 0, 900 + r % 150000, r % 20000000, r % 2, 65535 * (1 + r % 30), 280,
    concat('pop', toString(p)), if(internal, concat('pop', toString(q)), '')
from numbers({sockets:UInt64})
"""

# The newest round's rows again under another round, and as many times over as it takes.
COPY = """
insert into {table} (round, generation, {pop}, {columns})
select
    fromUnixTimestamp({{round_s:UInt32}}),
    {{copy:UInt64}},
    concat({pop}, if(copies.number = 0, '', concat('-', toString(copies.number)))),
    {columns}
from {table}
cross join numbers({{times:UInt64}}) as copies
where {table}.generation = {{generation:UInt64}}
limit {{most:UInt64}}
"""

PAIRS = """
select round, src_pop, dst_pop, ip_version, connections_seen, connections_earned, cwnd_sum, cwnd_weight, min_cwnd,
    max_cwnd, bytes_sent, bytes_retransmitted, young_connections, young_lossy_connections
from round_pairs
where round > {since:DateTime('UTC')}
"""

# What a law that looks for consistently slow prefixes needs of each: how often it was seen, and how fast it was.
PREFIXES = """
select pop, client_prefix, congestion_algorithm, count() as rounds, sum(connections) as connections,
    sum(bytes_acked) as bytes_acked, avg(delivery_rate_p50_bytes_per_s) as delivery_rate, avg(retransmit_ratio) as loss
from round_prefixes
where round > {since:DateTime('UTC')}
group by pop, client_prefix, congestion_algorithm
"""


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fill(store: Store, rows: int) -> None:
    sockets = rows // (2 * POLLS)
    for poll in range(2 * POLLS):
        at = ROUND - 2 * INTERVAL + poll * INTERVAL // POLLS
        store.execute(SAMPLES, {"poll": poll + 1, "time_us": at * 1_000_000, "sockets": sockets})
    store.execute("optimize table tcp_samples")


def measure_rollup(store: Store) -> dict[str, Any]:
    """Both run twice and the faster counts: the first warms caches for both."""
    scan = "select " + ", ".join(f"sum({name})" for name in SUMMED.split())
    scan += ", max(host), max(boot_id), max(pop), max(src_pop), max(dst_pop), max(dst_ip), count(congestion_algorithm)"
    scan += ", sum(toUInt8(kind)), sum(toUInt8(state)) from tcp_samples"
    scan_s = min(seconds(lambda: store.execute(scan)) for _ in range(2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rollup_s = []
    for _ in range(2):
        for table in (*rollup.TABLES, "rollups"):
            store.execute(f"truncate table {table}")
        rollup_s.append(seconds(lambda: rollup.rollup(store, ROUND, INTERVAL, ROUND + 60)))
    again_s = seconds(lambda: rollup.rollup(store, ROUND, INTERVAL, ROUND + 60))
    [counted] = store.query("select count() as n from tcp_samples")
    return {
        "rows": counted["n"],
        "scan_s": round(scan_s, 2),
        "rollup_s": round(min(rollup_s), 2),
        "rollup_first_s": round(rollup_s[0], 2),
        "rollup_again_s": round(again_s, 2),
        "rollup_ratio": round(min(rollup_s) / scan_s, 2),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "peak_memory_before_rollup_gb": round(before / 1e6, 2),
    }


def widen(store: Store, prefixes: int, rounds: int) -> None:
    """`rounds` rounds, each with the newest one's pairs and with `prefixes` prefixes."""
    [line] = rollup.rolled_up(store, ROUND, ROUND)
    [present] = store.query("select count() as n from round_prefixes")
    times = -(-prefixes // max(1, present["n"]))
    for number in range(rounds):
        key = {"round_s": ROUND - number * INTERVAL, "copy": line.generation + 1 + number}
        for table, pop, most in (("rollup_pairs", "src_pop", 10**9), ("rollup_prefixes", "pop", prefixes)):
            copied = {**key, "generation": line.generation, "most": most}
            copies = times if table == "rollup_prefixes" else 1
            statement = COPY.format(table=table, pop=pop, columns=copied_columns(store, table, pop))
            store.execute(statement, {**copied, "times": copies})
        store.execute(
            "insert into rollups (round, generation, interval_s) "
            "select fromUnixTimestamp({round_s:UInt32}), {copy:UInt64}, 300",
            key,
        )


def copied_columns(store: Store, table: str, pop: str) -> str:
    """What a copy keeps as it is: all but its keys and the sketches, which the controller's reads leave alone."""
    rows = store.query(
        "select name from system.columns where database = currentDatabase() and table = {table:String} "
        "and name not in ('round', 'generation', {pop:String}) and not startsWith(type, 'AggregateFunction')",
        {"table": table, "pop": pop},
    )
    return ", ".join(row["name"] for row in rows)


def measure_reads(store: Store, rounds: int) -> dict[str, Any]:
    """Milliseconds of the controller's reads, and how often a bare count of the same table fits into them."""
    result: dict[str, Any] = {"rounds": rounds}
    since = {"since": ROUND - rounds * INTERVAL}
    for name, query, table in (("pair", PAIRS, "round_pairs"), ("prefix", PREFIXES, "round_prefixes")):
        count_s = min(seconds(partial(store.execute, f"select count() from {table}")) for _ in range(3))
        query_s = min(seconds(partial(store.execute, query, since)) for _ in range(3))
        [row] = store.query(f"select count() as n from {table}")
        result |= {
            f"{name}_rows": row["n"],
            f"{name}_count_ms": round(count_s * 1000, 1),
            f"{name}_query_ms": round(query_s * 1000, 1),
            f"{name}_query_ratio": round(query_s / count_s, 2),
        }
    return result


def measure(rows: int, prefixes: int, rounds: int) -> dict[str, Any]:
    """All of it, in a store of its own that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as folder:
        store = open_store(f"chdb://{folder}/store", create=True, wait_s=1, on_wait=print)
        try:
            migrate(store, read_migrations())
            edges = [{"revision": 1, "edge": f"edge-{n}", "pop": f"pop{n % 8}"} for n in range(40)]
            store.insert("fleet_edge_revisions", edges)
            fill(store, rows)
            result = measure_rollup(store)
            widen(store, prefixes, rounds)
            return result | measure_reads(store, rounds)
        finally:
            store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--prefixes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=72)
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench/rounds.json")
    given = parser.parse_args()
    result = measure(given.rows, given.prefixes, given.rounds)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
