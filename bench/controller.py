"""The control laws at the size of a large fleet, beside a bare scan of what they read.

`initcwnd_per_scan_ratio` is the time to decide one round of every ordered pair of PoPs / the time of a scan. Deciding
reads what was observed and decided, decides, and writes the rows. The scan is one query that reads the same columns of
the same rows and adds them up. `congestion_per_scan_ratio` is the same for client prefixes over the window of their
duty cycle. With `cpu_` both are of processor seconds. Both sides run in one process, in turns.

`start_` is the same for the law of starts: each ordered pair of PoPs and each client prefix is a unit that is decided
in each round. `start_read_rows` are the rows of all tables that the engine read for a decision; `start_round_rows` are
those of the round, `start_kept_rows` those of the decisions before it, which are all that the law keeps, and
`start_history_rows` those of all decisions in the store; `start_observe_cpu_s`, `start_law_cpu_s`,
`start_write_cpu_s` its parts.
`start_bare_write_cpu_per_scan_ratio` is what the engine alone needs to write the same rows from its memory / the scan:
a part of `start_cpu_per_scan_ratio` that no change of the law can save. That scan reads the sketches of rates too,
which a decision reads for other quantiles than the policy's defaults only, and which are half of its time:
`start_cpu_per_plain_scan_ratio` is over a scan without them. The engine's merges, which are of every round's
rows and would be in either side as it happens, are stopped for all of `start_` until its rows' bytes are counted.

A decision uses gigabytes of memory for the first time. On a virtual machine its host takes time to hand over what was
free for a second (`cold_touch_s_per_gb`, `hot_touch_s_per_gb`: processor seconds). Before each side of a turn a process
of its own touches that much and ends, so that both find it at hand. `start_cold_` are turns without.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from springtide.laws.base import frozen
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.law import decide as decide_congestion
from springtide.laws.initcwnd import rows as decisions
from springtide.laws.initcwnd.law import decide as decide_initcwnd
from springtide.laws.start.interface import START
from springtide.laws.start.law import STARTS
from springtide.observe.pairs import pair_observations
from springtide.policy import EnforcePolicy, Policy
from springtide.store import Store, open_store
from springtide.store.migrations import migrate, read_migrations

from bench.controller_paths import PATH_SCANS, PLAIN_SCANS, add_fleet, add_round, write_bare
from bench.runner import Bench, Run, T, in_turns, progress

# 2026-01-02T03:00:00Z
ROUND = 1_767_322_800
INTERVAL = 300
POPS_OF_PREFIXES = 100
# More than a decision uses for each of its units.
_UNIT_BYTES = 4096
_TOUCH = """
import mmap, sys, time
begin = time.process_time()
pages = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pages.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(pages), mmap.PAGESIZE):
    pages[at] = 1
print(time.process_time() - begin)
"""

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

# Columns that both reads of the law touch.
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
        max(round), max(src_pop), max(destination), max(ip_version), sum(smoothed_cwnd), max(last_evidence),
        sum(initcwnd), max(guard_until), sum(guard_hold_s), sum(clean_initcwnd), sum(harmful_initcwnd),
        sum(default_young), sum(default_young_lossy), sum(trial_rounds), sum(trial_young),
        sum(trial_young_lossy), sum(penalty), sum(suppressed)
    from path_decisions
    where part = 'initcwnd' and round < fromUnixTimestamp({round_s:UInt32})
    """,
)


def measure(run: Run) -> None:
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as folder:
        store = open_store(f"chdb://{folder}/store", create=True, wait_s=1, on_wait=print)
        try:
            migrate(store, read_migrations())
            fill(store, run.sizes["pops"], run.sizes["prefixes"], run.sizes["rounds"])
            _measure(run, store)
        finally:
            store.close()
        # A store of its own: its fleet has edges.
        store = open_store(f"chdb://{folder}/starts", create=True, wait_s=1, on_wait=print)
        try:
            migrate(store, read_migrations())
            _measure_starts(run, store)
        finally:
            store.close()
    run.figure("peak_memory_gb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


def fill(store: Store, pops: int, prefixes: int, rounds: int) -> None:
    """Round tables of so many rounds."""
    for number in range(rounds):
        if number % 12 == 0:
            progress(f"making round {number + 1} of {rounds}")
        key = {"round_s": ROUND - number * INTERVAL, "number": number}
        store.execute(PREFIXES, {**key, "prefixes": prefixes, "pops": POPS_OF_PREFIXES})
        store.execute(PAIRS, {**key, "pops": pops})
        store.execute(
            "insert into rollups (round, generation, interval_s) select fromUnixTimestamp({round_s:UInt32}), 1, 300",
            {"round_s": key["round_s"]},
        )


def _measure(run: Run, store: Store) -> None:
    policy, rounds = Policy(), run.sizes["rounds"]
    _decide_prefixes(store, ROUND - INTERVAL, policy)
    _beside_scan(
        run,
        "congestion",
        lambda: _decide_prefixes(store, ROUND, policy),
        lambda: store.execute(PREFIX_SCAN),
        lambda: _forget(store, "congestion"),
    )
    for number in range(min(rounds, 3), 0, -1):
        _decide_pairs(store, ROUND - number * INTERVAL, policy)
    # Measured before rounds are copied: copies of one another compress better than real rounds.
    _row_bytes(run, store, {"path_decisions": "bytes_per_pair_decision"}, "part = 'initcwnd'")
    _widen_decisions(store, rounds)

    def scan() -> None:
        for query in PAIR_SCANS:
            store.execute(query, {"round_s": ROUND})

    _beside_scan(
        run,
        "initcwnd",
        lambda: _decide_pairs(store, ROUND, policy),
        scan,
        lambda: _forget(store, "initcwnd"),
    )
    [counted] = store.query(
        "select (select count() from round_prefix_rates) as prefix_rows, "
        "(select count() from path_decisions where part = 'initcwnd') as pair_decision_rows, "
        "(select count() from path_decisions where part = 'congestion' "
        "and round = fromUnixTimestamp({round_s:UInt32})) as prefix_decisions",
        {"round_s": ROUND},
    )
    for name, count in counted.items():
        run.figure(name, int(count))
    _row_bytes(run, store, {"path_decisions": "bytes_per_prefix_decision"}, "part = 'congestion'")


def _measure_starts(run: Run, store: Store) -> None:
    """Each turn is a round of its own, after `start_rounds` others: history grows, as it does where this runs."""
    pops, prefixes, rounds = (run.sizes[name] for name in ("pops", "prefixes", "start_rounds"))
    add_fleet(store, pops, prefixes)
    store.execute("system stop merges")
    moments: list[int] = []

    def begin() -> None:
        number = len(moments)
        progress(f"making round {number + 1} of {rounds + run.turns} of starts")
        moments.append(ROUND + number * INTERVAL)
        add_round(store, moments[-1], number, pops, prefixes)

    for _ in range(rounds):
        begin()
        _decide_starts(store, moments[-1])
    parts: list[tuple[float, float, float]] = []
    read: list[int] = []

    def decide() -> None:
        before = _selected_rows(store)
        parts.append(_decide_starts(store, moments[-1]))
        read.append(_selected_rows(store) - before)

    def scan(queries: Sequence[str] = PATH_SCANS) -> None:
        for query in queries:
            store.execute(query, {"round_s": moments[-1], "last_s": moments[-2]})

    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    units = pops * (pops - 1) + prefixes
    # Twice: the second time what the first one left is taken.
    touched = [_touch(units) for _ in range(2)]
    for name, seconds in zip(("cold", "hot"), touched, strict=True):
        run.figure(f"{name}_touch_s_per_gb", seconds * 1e9 / (units * _UNIT_BYTES))
    _beside_scan(run, "start", decide, scan, begin, lambda: _touch(units))
    run.figure("peak_memory_before_start_gb", memory / 1e6)
    hot = parts[:]
    for name, spent in zip(("observe", "law", "write"), zip(*hot, strict=True), strict=True):
        run.figure(f"start_{name}_cpu_s", spent)
    run.figure("start_read_rows", read)
    _beside_scan(run, "start_cold", decide, scan, begin)
    _beside_bare(run, store, moments[-1], scan, [sum(one) for one in hot], units)
    [counted] = store.query(
        "select (select count() from round_paths where round = fromUnixTimestamp({round_s:UInt32})) as round_rows, "
        "(select count() from path_decisions where round = fromUnixTimestamp({last_s:UInt32})) as kept_rows, "
        "(select count() from path_decisions) as history_rows",
        {"round_s": moments[-1], "last_s": moments[-2]},
    )
    for name, count in counted.items():
        run.figure(f"start_{name}", int(count))
    store.execute("system start merges")
    _row_bytes(run, store, {"rollup_paths": "bytes_per_path", "path_decisions": "bytes_per_start_decision"})


def _beside_bare(
    run: Run, store: Store, moment: int, scan: Callable[..., None], hot: Sequence[float], units: int
) -> None:
    """Measures the engine alone: to write a round, and to read it without sketches, beside the same scan."""
    bare = write_bare(store, moment)
    found = in_turns(
        run.turns,
        {
            name: _after(lambda: _touch(units), _timed(work))
            for name, work in (("write", bare), ("scan", scan), ("plain", partial(scan, PLAIN_SCANS)))
        },
    )
    written, scanned, plain = ([one[1] for one in found[name]] for name in ("write", "scan", "plain"))
    run.ratio("start_bare_write_cpu_per_scan", written, scanned)
    run.figure("start_plain_scan_cpu_s", plain)
    run.ratio("start_cpu_per_plain_scan", hot, plain)


def _row_bytes(run: Run, store: Store, figures: Mapping[str, str], of: str = "true") -> None:
    """Bytes on disk of a table's row after merges, under the name that `springtide size` knows; only of rows for which
    the SQL condition `of` holds."""
    for table, figure in figures.items():
        if of != "true":
            store.execute(f"create or replace table of_part as {table}")
            store.execute(f"insert into of_part select * from {table} final where {of}")
            table = "of_part"
        store.execute(f"optimize table {table} final")
        [size] = store.query(
            "select sum(rows) as n, sum(data_compressed_bytes) as b from system.parts "
            "where active and database = currentDatabase() and table = {t:String}",
            {"t": table},
        )
        # The table may be empty: in a few rounds no prefix is low for long.
        if size["n"]:
            run.figure(figure, size["b"] / size["n"])


def _selected_rows(store: Store) -> int:
    """Rows of tables that this engine has read since it began."""
    [row] = store.query("select sum(value) as n from system.events where event = 'SelectedRows'")
    return int(row["n"])


def _decide_prefixes(store: Store, moment: int, policy: Policy) -> None:
    last = congestion_rows.PREFIXES.last_round(store, moment)
    evidence = congestion_rows.evidence(store, moment, policy, last)
    decided = decide_congestion(moment, policy, evidence, congestion_rows.PREFIXES.left(store, moment))
    congestion_rows.PREFIXES.write_round(store, moment, decided, policy.version)


def _decide_pairs(store: Store, moment: int, policy: Policy) -> None:
    decided = decide_initcwnd(
        moment, policy, pair_observations(store, moment), decisions.previous(store, moment, policy)
    )
    decisions.WINDOWS.write_round(store, moment, decided, policy.version)


def _decide_starts(store: Store, moment: int) -> tuple[float, float, float]:
    """As the command does: what the round shows, what of it arrived, the law, its rows. Processor seconds of each."""
    policy, begun = Policy(enforce=EnforcePolicy(by="bpf")), time.process_time()
    seen, before = START.observe(store, policy, moment)
    _, thin = frozen(store, policy, moment, START.pops(seen, before))
    observed = time.process_time()
    decided = START.decide(moment, policy, seen, before, thin)
    judged = time.process_time()
    STARTS.write_round(store, moment, decided, policy.version)
    return observed - begun, judged - observed, time.process_time() - judged


def _widen_decisions(store: Store, rounds: int) -> None:
    """The newest round's decisions again for the rounds before, as a history of the same length."""
    for number in range(4, rounds + 1):
        store.execute(
            "insert into path_decisions select * replace (fromUnixTimestamp({round_s:UInt32}) as round, "
            "fromUnixTimestamp({round_s:UInt32}) as last_evidence) "
            "from path_decisions where part = 'initcwnd' "
            "and path_decisions.round = fromUnixTimestamp({source_s:UInt32})",
            {"round_s": ROUND - number * INTERVAL, "source_s": ROUND - 3 * INTERVAL},
        )


def _forget(store: Store, part: str) -> None:
    """The round's rows, so that they are written again."""
    where = f"part = '{part}' and round = fromUnixTimestamp({{round_s:UInt32}})"
    store.execute(f"delete from path_decisions where {where}", {"round_s": ROUND})


def _beside_scan(
    run: Run,
    law: str,
    work: Callable[[], None],
    scan: Callable[[], None],
    reset: Callable[[], None],
    prepare: Callable[[], object] = lambda: None,
) -> None:
    """Elapsed and processor seconds of both; `reset` comes before each turn, `prepare` before each side of it, and
    neither counts."""

    sides = {"ours": _after(prepare, _timed(work)), "scan": _after(prepare, _timed(scan))}
    found = in_turns(run.turns, sides, before=reset)
    for at, kind in enumerate(("", "cpu_")):
        ours, bare = ([one[at] for one in found[name]] for name in ("ours", "scan"))
        run.figure(f"{law}_{kind}s", ours)
        run.figure(f"{law}_scan_{kind}s", bare)
        run.ratio(f"{law}_{kind}per_scan", ours, bare)


def _touch(units: int) -> float:
    """Touch as much memory as a decision on so many uses, in large pages where there are any, and give it back.
    Processor seconds."""
    found = subprocess.run(
        [sys.executable, "-c", _TOUCH, str(units * _UNIT_BYTES)], stdout=subprocess.PIPE, check=True, text=True
    )
    return float(found.stdout)


def _after(first: Callable[[], object], work: Callable[[], T]) -> Callable[[], T]:
    def both() -> T:
        first()
        return work()

    return both


def _timed(what: Callable[[], None]) -> Callable[[], tuple[float, float]]:
    """Elapsed and processor seconds."""

    def spent() -> tuple[float, float]:
        wall, processor = time.perf_counter(), time.process_time()
        what()
        return time.perf_counter() - wall, time.process_time() - processor

    return spent


BENCH = Bench(
    name="controller",
    summary="the laws at 62,250 pairs and a million prefixes beside a bare scan",
    measure=measure,
    sizes={"pops": (250, 6), "prefixes": (1_000_000, 500), "rounds": (72, 3), "start_rounds": (3, 2)},
    seconds=1800,
)
