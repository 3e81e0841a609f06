"""Bytes per row of every table, and seconds of roll-up per million samples, on made-up traffic in a scratch store.

    .venv/bin/python bench/sizes.py        # writes out/bench/sizes.json

`springtide size` carries its figures. Made-up samples differ from real ones: the bytes of tcp_samples are not taken
from here, those of the round tables are (most of a row are sketches and counters of a connection or three).
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from springtide.observe.downsample import downsample, pending
from springtide.observe.rollup import rollup
from springtide.store import open_store
from springtide.store.migrations import migrate, read_migrations

ROOT = Path(__file__).resolve().parents[1]

MIDNIGHT = 1_767_312_000
INTERVAL, POLL, ROUNDS, SOCKETS, PREFIXES = 300, 60, 12, 300_000, 50_000

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


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        store = open_store(f"chdb://{scratch}/store", create=True, wait_s=0, on_wait=print)
        migrate(store, read_migrations())
        store.insert("fleet_edge_revisions", [{"revision": 1, "edge": f"edge-{n}", "pop": "ams"} for n in range(20)])
        for poll in range(ROUNDS * INTERVAL // POLL):
            store.execute(SAMPLES.format(poll=poll, step=POLL, start=MIDNIGHT, prefixes=PREFIXES, sockets=SOCKETS))
        began = time.monotonic()
        for i in range(1, ROUNDS + 1):
            rollup(store, MIDNIGHT + i * INTERVAL, INTERVAL, MIDNIGHT + 7200)
        rollup_s = time.monotonic() - began
        for period in pending(store, MIDNIGHT + 100_000, 0):
            downsample(store, period, MIDNIGHT + 100_000)
        samples = SOCKETS * ROUNDS * INTERVAL // POLL
        sizes = {}
        for row in store.query(
            "select name from system.tables where database = currentDatabase() and engine like '%MergeTree'"
        ):
            store.execute(f"optimize table {row['name']} final")
            [size] = store.query(
                "select sum(rows) as n, sum(data_compressed_bytes) as b from system.parts "
                "where active and database = currentDatabase() and table = {t:String}",
                {"t": row["name"]},
            )
            if size["n"]:
                sizes[row["name"]] = round(size["b"] / size["n"], 1)
        store.close()
    result = {
        "samples": samples,
        "rollup_s_per_million_rows": round(rollup_s / samples * 1e6, 2),
        "bytes_per_table_row": sizes,
    }
    target = ROOT / "out" / "bench" / "sizes.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
