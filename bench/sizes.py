"""Bytes per row of every table, and seconds of roll-up per million samples, on made-up traffic in a scratch store.

`springtide size` carries its figures. Made-up samples differ from real ones: the bytes of tcp_samples are not taken
from here, those of the round tables are (most of a row are sketches and counters of a connection or three). Each
round's roll-up is a turn.
"""

from __future__ import annotations

import tempfile
from functools import partial

from springtide.observe.downsample import downsample, pending
from springtide.observe.rollup import rollup
from springtide.store import Store, open_store
from springtide.store.migrations import migrate, read_migrations

from bench.runner import Bench, Run, seconds

MIDNIGHT = 1_767_312_000
INTERVAL, POLL = 300, 60

SAMPLES = """
insert into tcp_samples (
    time_unix_us, host, pop, boot_id, netns, poll_sequence, cookie, kind, state, src_ip, dst_ip, src_pop, dst_pop,
    snd_cwnd, snd_mss, rtt, min_rtt, bytes_acked, bytes_sent, bytes_retrans, delivery_rate, congestion_algorithm
)
select
    (toInt64({poll}) * {step} + {start}) * 1000000 + cookie, 'edge-' || toString(cookie % 20), 'ams', 'boot', 1,
    {poll}, cookie, 'POLL', 'ESTABLISHED', toIPv6('10.0.0.1'),
    toIPv6(concat('10.', toString(1 + intDiv(prefix, 256)), '.', toString(prefix % 256), '.7')), 'ams',
    if(cookie % 4 = 0, concat('pop', toString(cookie % 33)), ''),
    10 + h % 90, 1448, 20000 + h % 100000, 15000 + cookie % 10000,
    if(cookie % 2 = 0, {poll}, 1) * (50000 + cookie % 100000) as acked, acked + 3000, (h % 50) * 1448,
    100000 + h % 10000000, if(cookie % 3 = 0, 'bbr', 'cubic')
from (select number as cookie, number % {prefixes} as prefix, cityHash64(number, {poll}) as h from numbers({sockets}))
"""


# Names that `springtide size` has for what a row of these takes.
SIZING = {
    "rollup_sockets": "bytes_per_socket",
    "rollup_pairs": "bytes_per_pair",
    "rollup_prefixes": "bytes_per_prefix",
    "pair_hours": "bytes_per_pair_period",
    "prefix_hours": "bytes_per_prefix_period",
}


def measure(run: Run) -> None:
    """Samples of some rounds, rolled up and then summed over the hour."""
    rounds = run.sizes["rounds"]
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as scratch:
        store = open_store(f"chdb://{scratch}/store", create=True, wait_s=0, on_wait=print)
        try:
            migrate(store, read_migrations())
            edges = [{"revision": 1, "edge": f"edge-{n}", "pop": "ams"} for n in range(20)]
            store.insert("fleet_edge_revisions", edges)
            for poll in range(rounds * INTERVAL // POLL):
                store.execute(SAMPLES.format(poll=poll, step=POLL, start=MIDNIGHT, **run.sizes))
            samples = run.sizes["sockets"] * INTERVAL // POLL
            ends = [MIDNIGHT + number * INTERVAL for number in range(1, rounds + 1)]
            spent = [seconds(partial(rollup, store, end, INTERVAL, MIDNIGHT + 7200)) for end in ends]
            run.figure("rollup_s_per_million_rows", [one / samples * 1e6 for one in spent])
            for period in pending(store, MIDNIGHT + 100_000, 0):
                downsample(store, period, MIDNIGHT + 100_000)
            measure_tables(run, store)
        finally:
            store.close()


def measure_tables(run: Run, store: Store) -> None:
    tables = store.query(
        "select name from system.tables where database = currentDatabase() and engine like '%MergeTree' order by name"
    )
    for table in tables:
        store.execute(f"optimize table {table['name']} final")
        [size] = store.query(
            "select sum(rows) as n, sum(data_compressed_bytes) as b from system.parts "
            "where active and database = currentDatabase() and table = {t:String}",
            {"t": table["name"]},
        )
        if size["n"]:
            run.figure("table_bytes_per_row", size["b"] / size["n"], table=table["name"])
            if name := SIZING.get(table["name"]):
                run.figure(name, size["b"] / size["n"])


BENCH = Bench(
    name="sizes",
    summary="bytes per row of every table, and roll-up seconds per million samples",
    measure=measure,
    sizes={"sockets": (300_000, 300), "prefixes": (50_000, 50), "rounds": (12, 2)},
    seconds=300,
    turns=None,
)
