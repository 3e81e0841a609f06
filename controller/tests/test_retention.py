"""Time for which rows are kept, and what is made of them before they go."""

from __future__ import annotations

import random

import pytest
from springtide import instants
from springtide.observe.downsample import PERIODS, Period, downsample, pending
from springtide.policy import RetentionPolicy
from springtide.store import Row, Store, retention
from springtide.store.migrations import read_migrations, status

from testkit.home import ROUND, Home

HOUR, DAY = 3600, 86400
MIDNIGHT = ROUND // DAY * DAY


def test_the_policy_is_set_shown_and_changed(home: Home) -> None:
    before = home.json("retention", "status", code=1)
    assert {table["set"] for table in before} == {None}
    changed = home.json("retention", "apply")["changed"]
    laws = ["initcwnd_edge_decisions", "path_decisions"]
    assert changed == [*(table for table, _, _ in retention.TABLES), *laws]
    assert all(table["agrees"] for table in home.json("retention", "status"))
    assert home.json("retention", "apply") == {"changed": []}
    home.policy.write_text("retention: {samples_days: 2}\n")
    home.run("retention", "status", code=1)
    assert home.json("retention", "apply") == {"changed": ["tcp_samples", "http_requests"]}
    # The policy's retention is not the schema's: the files keep what was applied.
    assert {state["state"] for state in home.json("migrate", "--status")} == {"applied"}
    home.run("rollup")


def test_tiers_must_outlive_what_they_are_made_of(home: Home) -> None:
    home.policy.write_text("retention: {rounds_days: 500}\n")
    [first, *_] = home.refused("retention", "apply")
    assert "retention.rounds_days = 500 is above retention.hours_days = 400" in first


def test_rows_past_their_time_go_and_others_stay(store: Store) -> None:
    now = instants.now()
    old, young = now - 3 * DAY, now - HOUR
    for moment in (old, young):
        store.execute(f"insert into tcp_samples (time_unix_us, host, cookie) values ({moment * 1_000_000}, 'a', 1)")
    retention.apply(store, RetentionPolicy(samples_days=1))
    store.execute("optimize table tcp_samples final")
    assert store.query("select time_unix_us from tcp_samples") == [{"time_unix_us": young * 1_000_000}]


def test_rejected_messages_go_by_when_they_were_kept(store: Store) -> None:
    """A message's time is its sender's: it neither keeps the message forever nor removes it at once."""
    now = instants.now()
    for offset, (sent, kept) in enumerate([(now + 50 * 365 * DAY, now - 3 * DAY), (0, now), (now, now - 3 * DAY)]):
        store.execute(
            "insert into rejected_messages (topic, kafka_offset, message_time, kept_at) "
            f"values ('t', {offset}, {sent}, {kept})"
        )
    retention.apply(store, RetentionPolicy(rejected_days=1))
    # One part with old rows beside new ones.
    store.execute("optimize table rejected_messages final")
    assert store.query("select kafka_offset from rejected_messages") == [{"kafka_offset": 1}]


def test_every_table_that_grows_with_time_has_a_rule(store: Store) -> None:
    tables = store.query(
        "select name from system.tables where database = currentDatabase() and partition_key != '' order by name"
    )
    ruled = {table for table, _, _ in retention.ruled(row["name"] for row in tables)}
    assert ruled <= {row["name"] for row in store.query("select name from system.tables")}
    assert {row["name"] for row in tables} - ruled == set()


def add_rounds(store: Store, first: int, count: int, seed: int) -> list[tuple[int, int]]:
    """Round tables as `rollup` leaves them, of one pair and one prefix; gives each round's window and bytes."""
    source = random.Random(seed)
    values = []
    for i in range(count):
        moment, window, size = first + 300 * (i + 1), source.randint(10, 100), source.randint(0, 10**9)
        values.append((window, size))
        sketch = "quantilesTDigestWeightedState(0.1, 0.25, 0.5, 0.75, 0.9)"
        state = f"initializeAggregation('{sketch}', toFloat32({window}), toUInt32(1))"
        generation = moment * 1000 + seed
        store.execute(
            "insert into rollup_pairs (round, generation, src_pop, dst_pop, ip_version, connections_seen, cwnd_sum, "
            f"cwnd_weight, min_cwnd, max_cwnd, cwnd_state, bytes_acked) select toDateTime({moment}, 'UTC'), "
            f"{generation}, 'ams', 'fra', 4, 1, {window}, 1, {window}, {window}, {state}, {size}"
        )
        store.execute(
            "insert into rollup_prefixes (round, generation, pop, ip_version, client_prefix, congestion_algorithm, "
            f"connections, bytes_acked, rtt_state) select toDateTime({moment}, 'UTC'), {generation}, 'ams', 4, "
            f"toIPv6('192.0.2.0'), 'bbr', 1, {size}, {state}"
        )
        store.execute(
            "insert into rollup_paths (round, generation, src_pop, destination, ip_version, dst_pop, hosts, "
            "connections, min_rtt_p10_us, share_connections, share_state, entry_flights, entry_lossy, "
            "entry_100k_p50_us) select "
            f"toDateTime({moment}, 'UTC'), {generation}, 'ams', 'fra', 4, 'fra', {i % 3}, 1, {i % 4 * 1000}, 1, "
            f"{state}, {window}, 2, {1000 * window}"
        )
        store.execute(
            "insert into rollups (round, generation, interval_s, computed_at) select "
            f"toDateTime({moment}, 'UTC'), {generation}, 300, toDateTime({moment + 50 + seed}, 'UTC')"
        )
    return values


@pytest.fixture
def hours(store: Store) -> tuple[Store, list[tuple[int, int]]]:
    return store, add_rounds(store, MIDNIGHT, 24, 1)


def pair_hours(store: Store, table: str = "pair_hours") -> list[Row]:
    return store.query(
        f"""
        select
            toUnixTimestamp(since) as start, rounds, connections_seen as seen,
            cwnd_sum, min_cwnd, max_cwnd, bytes_acked,
            finalizeAggregation(cwnd_state)[3] as median
        from {table} final order by since
        """
    )


def test_an_hour_is_its_rounds_together(hours: tuple[Store, list[tuple[int, int]]]) -> None:
    store, values = hours
    now = MIDNIGHT + 2 * HOUR + 60
    assert pending(store, now - 1, 60) == [Period(HOUR, MIDNIGHT, 12)]
    todo = pending(store, now, 60)
    assert todo == [Period(HOUR, MIDNIGHT, 12), Period(HOUR, MIDNIGHT + HOUR, 12)]
    for _ in range(2):
        for period in todo:
            downsample(store, period, now)
    got = pair_hours(store)
    for row, part in zip(got, (values[:12], values[12:]), strict=True):
        windows = sorted(window for window, _ in part)
        assert windows[5] <= row.pop("median") <= windows[6]
        assert (row["rounds"], row["seen"]) == (12, 12)
        assert (row["min_cwnd"], row["max_cwnd"], row["cwnd_sum"]) == (windows[0], windows[-1], sum(windows))
        assert row["bytes_acked"] == sum(size for _, size in part)
    [prefixes] = store.query("select sum(bytes_acked) as b, count() as n from prefix_hours final")
    assert prefixes == {"b": sum(size for _, size in values), "n": 2}
    paths = store.query(
        "select rounds, hosts, connections, min_rtt_us, share_connections, entry_flights, entry_lossy, entry_100k_us, "
        "finalizeAggregation(share_state)[3] as median from path_hours final order by since"
    )
    for row, part in zip(paths, (values[:12], values[12:]), strict=True):
        windows = sorted(window for window, _ in part)
        assert windows[5] <= row.pop("median") <= windows[6]
        # By flights, of which each round has as many as its window: half of them lie on either side.
        middle = row.pop("entry_100k_us") / 1000
        assert sum(one for one in windows if one < middle) <= sum(windows) / 2
        assert sum(one for one in windows if one > middle) <= sum(windows) / 2
        assert row == {
            **{"rounds": 12, "hosts": 2, "connections": 12, "min_rtt_us": 1000, "share_connections": 12},
            **{"entry_flights": sum(windows), "entry_lossy": 24},
        }
    assert pending(store, now, 60) == []


def test_a_period_is_made_again_when_a_round_was_and_not_from_less_than_before(
    hours: tuple[Store, list[tuple[int, int]]],
) -> None:
    store, _ = hours
    now = MIDNIGHT + DAY + HOUR
    for period in pending(store, now, 60):
        downsample(store, period, now)
    assert [row["rounds"] for row in pair_hours(store, "pair_days")] == [24]
    # A round is backfilled two days later: its hour and its day are made again, and the new rows count.
    add_rounds(store, MIDNIGHT + HOUR, 1, 2 * DAY)
    later = now + 2 * DAY
    assert pending(store, later, 60) == [Period(HOUR, MIDNIGHT + HOUR, 12), Period(DAY, MIDNIGHT, 24)]
    for period in pending(store, later, 60):
        downsample(store, period, later)
    assert len(pair_hours(store)) == 2
    # Half of the rounds are past their time and gone: the day stays as it was made.
    store.execute(f"delete from rollups where round <= toDateTime({MIDNIGHT + HOUR}, 'UTC')")
    add_rounds(store, MIDNIGHT + HOUR, 1, 5 * DAY)
    assert pending(store, later, 60) == [Period(HOUR, MIDNIGHT + HOUR, 12)]


def test_the_command_makes_what_is_missing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    store = home.open()
    add_rounds(store, MIDNIGHT, 12, 1)
    store.close()
    monkeypatch.setattr(instants, "now", lambda: MIDNIGHT + HOUR + 3600)
    made = home.json("downsample")
    assert made == [{"period_s": HOUR, "start": instants.show(MIDNIGHT), "rounds": 12}]
    assert home.run("downsample").stdout == "every closed hour and day exists\n"


def test_every_table_of_a_period_is_of_the_schema(store: Store) -> None:
    assert {state.state for state in status(store, read_migrations())} == {"applied"}
    names = {row["name"] for row in store.query("select name from system.tables where database = currentDatabase()")}
    assert {table for tables in PERIODS.values() for table in tables} <= names
