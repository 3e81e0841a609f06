"""Made-up round tables of the law of starts, at the size of a fleet: pairs of PoPs and client prefixes alike."""

from __future__ import annotations

import re
from collections.abc import Callable

from springtide.store import Store

EDGES = 3
REGIONS = 10

# Shares are lognormal over units, and again from round to round. Half of the units have too few connections in a round
# for evidence of their own, a tenth none at all that met the path. One first flight in fifty loses something.
PATHS = """
insert into rollup_paths
with number as n, {pops:UInt64} as p, p * p as pairs, n < pairs as is_pair,
    intDiv(n, p) as s, n % p as d, n - pairs as c,
    sipHash64(n) as h, sipHash64(n, {number:UInt32}) as e,
    (h % 1000 + intDiv(h, 1000) % 1000 + intDiv(h, 1000000) % 1000) / 500 - 3 as level,
    (e % 1000 + intDiv(e, 1000) % 1000 + intDiv(e, 1000000) % 1000) / 500 - 3 as noise,
    toUInt64(exp(13 + level + 0.2 * noise)) as rate,
    multiIf(h % 10 = 0, 0, h % 2 = 0, 1 + e % 2, 3 + e % 40) as met,
    met + 2 + e % 20 as reached, 5 + e % 16 as moments,
    toIPv6(concat('::ffff:', IPv4NumToString(toUInt32(16777216 + c * 256)))) as network,
    5000 + h % 200000 as rtt
select
    fromUnixTimestamp({round_s:UInt32}),
    1,
    concat('pop', toString(if(is_pair, s, intDiv(c * p, {prefixes:UInt64})))) as src_pop,
    if(is_pair, concat('pop', toString(d)), springtide_prefix_text(4, network)) as destination,
    4,
    if(is_pair, destination, ''),
    if(is_pair, toIPv6('::'), network),
    2,
    '',
    reached + e % 7,
    reached * rtt,
    1448,
    rtt,
    rtt + e % 5000,
    met,
    if(met > 0, toUInt64(0.8 * rate), 0),
    if(met > 0, rate, 0),
    arrayReduce(
        'quantilesTDigestWeightedState(0.1, 0.25, 0.5, 0.75, 0.9)',
        arrayMap(i -> toFloat32(rate * (0.6 + 0.8 * (i + 0.5) / met)), range(met)),
        arrayMap(i -> toUInt32(1), range(met))
    ),
    reached,
    toUInt64(1.3 * rate),
    arrayReduce(
        'quantilesTDigestWeightedState(0.1, 0.25, 0.5, 0.75, 0.9)',
        arrayMap(i -> toFloat32(rate * (0.3 + (i + 0.5) / reached)), range(reached)),
        arrayMap(i -> toUInt32(1), range(reached))
    ),
    moments,
    toUInt64(2.5 * rate),
    arrayReduce(
        'quantilesTDigestWeightedState(0.1, 0.25, 0.5, 0.75, 0.9)',
        arrayMap(i -> toFloat32(rate * (1 + 2 * (i + 0.5) / moments)), range(moments)),
        arrayMap(i -> toUInt32(1), range(moments))
    ),
    1 + e % 4,
    65535 * (1 + h % 30),
    e % 30,
    toUInt64(0.9 * rate),
    rate,
    e % 30,
    intDiv(e % 30, 25),
    2 * intDiv(e % 30, 25),
    70 * (e % 30),
    40,
    rate,
    rtt,
    toUInt64(rtt + 5e10 / rate),
    toUInt64(rtt + 1e11 / rate),
    950 + e % 100,
    950 + intDiv(e, 7) % 100,
    intDiv(e, 100) % 30,
    intDiv(intDiv(e, 100) % 30, 25),
    2 * intDiv(intDiv(e, 100) % 30, 25),
    70 * (intDiv(e, 100) % 30),
    60,
    toUInt64(1.2 * rate),
    rtt,
    toUInt64(rtt + 4e10 / rate),
    toUInt64(rtt + 8e10 / rate),
    800 + e % 300,
    800 + intDiv(e, 7) % 300,
    0,
    e % 5,
    0
from numbers({pops:UInt64} * {pops:UInt64} + {prefixes:UInt64})
where not is_pair or s != d
settings min_insert_block_size_rows = 100000, min_insert_block_size_bytes = 0, prefer_column_name_to_alias = 1
"""

HOSTS = """
insert into rollup_hosts (
    round, generation, host, pop, polls_seen, polls_expected, rows_seen, rows_expected, closes, closes_expected
)
select
    fromUnixTimestamp({round_s:UInt32}), 1, edge, pop, 20, 20, 100000, 100000, 1000, 1000
from fleet_edges
"""

LINE = "insert into rollups (round, generation, interval_s) select fromUnixTimestamp({round_s:UInt32}), 1, 300"

# An autonomous system for each /16.
NETWORKS = """
insert into asn_prefixes
select concat(IPv4NumToString(toUInt32(16777216 + number * 65536)), '/16'), 64512 + number % 1000, ''
from numbers(1 + intDiv({prefixes:UInt64}, 256))
"""

# Columns that the law reads of the round, and of the last decisions, of the same rows. (The query for PoPs with more
# prefixes than places is left out: here none has.)
PATH_SCANS = (
    """
    select
        max(src_pop), max(destination), max(ip_version), max(dst_pop), max(client_prefix), max(only_host),
        sum(connections), sum(mss_p50), sum(min_rtt_p10_us), sum(rtt_p50_us),
        sum(share_connections), sum(byteSize(share_state)), sum(reached_connections),
        sum(reached_p90_bytes_per_s), sum(path_buckets), sum(byteSize(path_state)), sum(at_once_p90),
        sum(receiver_window_p50_bytes), sum(trains), sum(train_p25_bytes_per_s), sum(train_p50_bytes_per_s),
        sum(entry_flights), sum(entry_lossy), sum(entry_resent), sum(entry_segments),
        sum(entry_50k_p50_us), sum(entry_100k_p50_us), sum(entry_carried_permille), sum(entry_path_carried_permille),
        sum(trial_flights), sum(trial_lossy), sum(trial_resent), sum(trial_segments),
        sum(trial_50k_p50_us), sum(trial_100k_p50_us), sum(trial_carried_permille), sum(trial_path_carried_permille),
        sum(braked), sum(default_flights), sum(default_lossy)
    from round_paths where round = fromUnixTimestamp({round_s:UInt32})
    """,
    """
    select
        max(round), max(src_pop), max(destination), max(ip_version), sum(window), sum(connection_rate),
        sum(path_rate), sum(trial_window), sum(trial_connection_rate), sum(trial_path_rate), sum(trial_permille),
        sum(borrowed), sum(trial_borrowed), sum(trial_step), sum(default_flights), sum(default_lossy),
        sum(default_resent), max(default_at), sum(default_t50_us), sum(default_t100_us),
        max(default_timed_at), sum(used_flights), sum(used_lossy), sum(used_segments), sum(used_resent),
        sum(trial_rounds),
        sum(trial_flights), sum(trial_lossy), sum(trial_segments), sum(trial_resent), sum(trial_log2_time),
        sum(trial_times), sum(share_log2), sum(share_weight), sum(path_log2), sum(train_log2),
        sum(train_weight), max(train_at), sum(train_sharp), sum(harmful_rate),
        max(hold_until), sum(hold_s), sum(harmful_share), max(shared_at), sum(was_cut), sum(learnt_rtt_us),
        sum(measured_rounds), sum(penalty), sum(suppressed),
        sum(overridden), max(last_evidence)
    from path_decisions where part = 'start' and round = fromUnixTimestamp({last_s:UInt32})
    """,
)
# Sketches are read only for other quantiles than the policy's defaults: the same without them.
PLAIN_SCANS = tuple(re.sub(r" sum\(byteSize\(\w+\)\),", "", query) for query in PATH_SCANS)


def add_fleet(store: Store, pops: int, prefixes: int) -> None:
    """PoPs with edges and regions, and whose the clients' networks are."""
    names = [f"pop{pop}" for pop in range(pops)]
    edges = [{"revision": 1, "edge": f"{pop}-{number}", "pop": pop} for pop in names for number in range(EDGES)]
    store.insert("fleet_edge_revisions", edges)
    regions = [{"revision": 1, "pop": pop, "region": f"region{at % REGIONS}"} for at, pop in enumerate(names)]
    store.insert("fleet_region_revisions", regions)
    store.execute(NETWORKS, {"prefixes": prefixes})
    store.execute("system reload dictionary asns")


def add_round(store: Store, moment: int, number: int, pops: int, prefixes: int) -> None:
    """The tables of a round; `number` distinguishes its rates from other rounds'."""
    store.execute(PATHS, {"round_s": moment, "number": number, "pops": pops, "prefixes": prefixes})
    store.execute(HOSTS, {"round_s": moment})
    store.execute(LINE, {"round_s": moment})


def write_bare(store: Store, moment: int) -> Callable[[], None]:
    """Write a round's decisions once more as the engine does it by itself, from its memory: what no writer of them goes
    below."""
    store.execute("create table bare_copy as path_decisions")
    store.execute(
        "create table bare_rows engine = Memory as select * from path_decisions "
        "where round = fromUnixTimestamp({round_s:UInt32})",
        {"round_s": moment},
    )
    return lambda: store.execute("insert into bare_copy select * from bare_rows")
