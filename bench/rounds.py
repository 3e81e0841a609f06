"""A round's tables beside a plain scan of what they are made from, and the controller's reads beside a bare count.

`rollup_per_scan_ratio` is the time to compute one round's tables / the time of one query that sums the same columns.
Both read the same `rows` samples: the round's, and those of the round before it, which it looks back at. They take
turns in one process; the first turn warms up. The round has no tables yet, as it is when a round closes.
`rollup_again_s` is the time to replace those that it has.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable
from functools import partial

from springtide.observe import rollup
from springtide.store import Store, open_store
from springtide.store.migrations import migrate, read_migrations

from bench.runner import Bench, Run, in_turns, seconds

# 2026-01-02T03:00:00Z
ROUND = 1_767_322_800
INTERVAL = 300
SUMMED = """
snd_cwnd snd_mss snd_ssthresh snd_wnd rtt min_rtt delivery_rate sample_weight delivery_rate_app_limited bytes_acked
bytes_sent bytes_retrans bytes_received busy_time rwnd_limited sndbuf_limited dsack_dups total_rto total_retrans cookie
netns poll_sequence
"""

# Half of the sockets are idle; a seventh begin in the last two polls; a fifth go to other PoPs, the rest to some 50,000
# prefixes. Half of the busy ones have data in flight and a rate that the application did not limit.
SAMPLES = """
insert into tcp_samples (
    time_unix_us, host, pop, boot_id, netns, poll_sequence, cookie, kind, state, src_ip, src_port, dst_ip, dst_port,
    snd_cwnd, rtt, family, congestion_algorithm, snd_mss, snd_ssthresh, bytes_acked, bytes_sent, bytes_retrans,
    bytes_received, busy_time, rwnd_limited, sndbuf_limited, min_rtt, delivery_rate, delivery_rate_app_limited, snd_wnd,
    tcp_info_length, src_pop, dst_pop, unacked
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
    1000 * k * busy, 0, 0, 900 + r % 150000, 1 + r % 20000000 + k * busy, r % 2, 65535 * (1 + r % 30), 280,
    concat('pop', toString(p)), if(internal, concat('pop', toString(q)), ''), busy * (r % 40)
from numbers({sockets:UInt64})
where n % 7 > 0 or k > {fresh:UInt32}
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

# A law that looks for consistently slow prefixes needs of each: how often it was seen, and how fast it was.
PREFIXES = """
select pop, client_prefix, congestion_algorithm, count() as rounds, sum(connections) as connections,
    sum(bytes_acked) as bytes_acked, avg(delivery_rate_p50_bytes_per_s) as delivery_rate, avg(retransmit_ratio) as loss
from round_prefixes
where round > {since:DateTime('UTC')}
group by pop, client_prefix, congestion_algorithm
"""


def fill(store: Store, rows: int, polls: int) -> None:
    """Two rounds of so many polls each."""
    sockets = rows // (2 * polls)
    for poll in range(2 * polls):
        at = ROUND - 2 * INTERVAL + poll * INTERVAL // polls
        store.execute(
            SAMPLES, {"poll": poll + 1, "time_us": at * 1_000_000, "sockets": sockets, "fresh": 2 * polls - 2}
        )
    store.execute("optimize table tcp_samples")


def measure_rollup(run: Run, store: Store) -> None:
    scan = "select " + ", ".join(f"sum({name})" for name in SUMMED.split())
    scan += ", max(host), max(boot_id), max(pop), max(src_pop), max(dst_pop), max(dst_ip), count(congestion_algorithm)"
    scan += ", sum(toUInt8(kind)), sum(toUInt8(state)) from tcp_samples"

    def roll_up() -> None:
        rollup.rollup(store, ROUND, INTERVAL, ROUND + 60)

    def forget() -> None:
        for table in (*rollup.TABLES, "rollups"):
            store.execute(f"truncate table {table}")

    works: dict[str, Callable[[], object]] = {
        "scan_s": partial(store.execute, scan),
        "rollup_s": roll_up,
        "rollup_again_s": roll_up,
    }
    timed = {name: partial(seconds, work) for name, work in works.items()}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = in_turns(run.turns, timed, before=forget, warm_up=1)
    for name, values in found.items():
        run.figure(name, values)
    run.ratio("rollup_per_scan", found["rollup_s"], found["scan_s"])
    [counted] = store.query("select count() as n from tcp_samples")
    run.figure("sample_rows", int(counted["n"]))
    run.figure("peak_memory_gb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    run.figure("peak_memory_before_rollup_gb", before / 1e6)


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
    """Columns that a copy keeps: all but its keys and the sketches, which the controller's reads leave alone."""
    rows = store.query(
        "select name from system.columns where database = currentDatabase() and table = {table:String} "
        "and name not in ('round', 'generation', {pop:String}) and not startsWith(type, 'AggregateFunction')",
        {"table": table, "pop": pop},
    )
    return ", ".join(row["name"] for row in rows)


def measure_reads(run: Run, store: Store, rounds: int) -> None:
    """The controller's reads, each beside a bare count of the same table."""
    since = {"since": ROUND - rounds * INTERVAL}
    for name, query, table in (("pair", PAIRS, "round_pairs"), ("prefix", PREFIXES, "round_prefixes")):
        count = partial(store.execute, f"select count() from {table}")
        read = partial(store.execute, query, since)
        found = in_turns(run.turns, {"count": partial(seconds, count), "read": partial(seconds, read)}, warm_up=1)
        for what, spent in found.items():
            run.figure(f"{name}_{what}_ms", [1000 * one for one in spent])
        run.ratio(f"{name}_read_per_count", found["read"], found["count"])
        [row] = store.query(f"select count() as n from {table}")
        run.figure(f"{name}_rows", int(row["n"]))


def measure(run: Run) -> None:
    """All of it, in a store of its own that is gone afterwards."""
    rounds = run.sizes["rounds"]
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as folder:
        store = open_store(f"chdb://{folder}/store", create=True, wait_s=1, on_wait=print)
        try:
            migrate(store, read_migrations())
            edges = [{"revision": 1, "edge": f"edge-{n}", "pop": f"pop{n % 8}"} for n in range(40)]
            store.insert("fleet_edge_revisions", edges)
            fill(store, run.sizes["rows"], run.sizes["polls"])
            measure_rollup(run, store)
            widen(store, run.sizes["prefixes"], rounds)
            measure_reads(run, store, rounds)
        finally:
            store.close()


BENCH = Bench(
    name="rounds",
    summary="a round's roll-up beside a plain scan, the controller's reads beside a bare count",
    measure=measure,
    sizes={"rows": (20_000_000, 8_000), "polls": (20, 3), "prefixes": (1_000_000, 300), "rounds": (72, 3)},
    seconds=900,
)
