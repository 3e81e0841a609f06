"""What the engine makes of a round's samples, against the same computed by hand."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from springtide.observe.rounds import PairObservation, pair_observations
from springtide.store import Row, Store

INTERVAL = 300
ROUND = 1_767_322_800
# Three intervals: before the look-back, the look-back and the round; and then the future.
SLOTS = range(-3 * 3, 3)

EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Samples of a few sockets on two hosts over polls 100 s apart, some missing, some odd."""
    rows = []
    sockets = draw(st.lists(st.tuples(st.sampled_from(["ams-1", "ams-2"]), st.integers(0, 9)), max_size=8, unique=True))
    for host, cookie in sockets:
        src = draw(st.sampled_from(["ams", "ams", "fra", ""]))
        dst = draw(st.sampled_from(["fra", "fra", "nyc", "ams", ""]))
        acked = draw(st.integers(0, 10**6))
        alive = draw(st.lists(st.sampled_from(list(SLOTS)), max_size=8, unique=True))
        for slot in sorted(alive):
            acked += draw(st.sampled_from([0, 0, 1000, 57_920, 10**6]))
            rows.append(
                {
                    "time_unix_us": (ROUND + 100 * slot) * 1_000_000 + cookie,
                    "host": host,
                    "pop": "ams",
                    "boot_id": "boot",
                    "netns": 1,
                    "poll_sequence": 100 + slot,
                    "cookie": cookie,
                    "kind": draw(st.sampled_from(["POLL"] * 5 + ["CLOSE"])),
                    "state": draw(st.sampled_from(["ESTABLISHED"] * 5 + ["CLOSE_WAIT", "LISTEN"])),
                    "src_ip": "::ffff:10.0.0.1",
                    "dst_ip": draw(st.sampled_from(["::ffff:10.0.0.2", "fd77::2"])),
                    "src_pop": src,
                    "dst_pop": dst,
                    "snd_cwnd": draw(st.sampled_from([None, 0, 10, 40, 40, 90])),
                    "snd_mss": draw(st.sampled_from([None, 0, 1448, 1448, 1448])),
                    "sample_weight": draw(st.sampled_from([None, None, 0, 10])),
                    "bytes_acked": draw(st.sampled_from([acked, acked, acked, None, 5])),
                    "bytes_sent": acked,
                    "bytes_retrans": draw(st.sampled_from([0, acked // 100])),
                }
            )
    return rows


def by_hand(rows: list[Row]) -> list[PairObservation]:
    """The rule of the query, told by loops."""
    start, end = (ROUND - INTERVAL) * 1_000_000, ROUND * 1_000_000
    polls = [r for r in rows if r["kind"] == "POLL" and start - INTERVAL * 1_000_000 <= r["time_unix_us"] < end]
    sockets: dict[Any, list[Row]] = defaultdict(list)
    first_poll: dict[str, int] = {}
    for row in sorted(polls, key=lambda r: r["time_unix_us"]):
        sockets[row["host"], row["cookie"]].append(row)
        first_poll.setdefault(row["host"], row["poll_sequence"])
    groups: dict[Any, list[tuple[Row, bool, int, int]]] = defaultdict(list)
    for (host, _), samples in sockets.items():
        before = [r for r in samples if r["time_unix_us"] < start]
        within = [r for r in samples if r["time_unix_us"] >= start]
        if not within:
            continue
        last = within[-1]
        if before:
            base = {name: before[-1][name] or 0 for name in ("bytes_acked", "bytes_sent", "bytes_retrans")}
        elif samples[0]["poll_sequence"] != first_poll[host]:
            base = {"bytes_acked": 0, "bytes_sent": 0, "bytes_retrans": 0}
        else:
            base = {name: within[0][name] or 0 for name in ("bytes_acked", "bytes_sent", "bytes_retrans")}
        gained = {name: max(0, (last[name] or 0) - value) for name, value in base.items()}
        full = (last["snd_cwnd"] or 0) * (last["snd_mss"] or 0)
        if (
            last["state"] == "ESTABLISHED"
            and last["src_pop"]
            and last["dst_pop"]
            and last["src_pop"] != last["dst_pop"]
        ):
            pair = (last["src_pop"], last["dst_pop"], 4 if "ffff" in last["dst_ip"] else 6)
            earned = full > 0 and gained["bytes_acked"] >= full
            groups[pair].append((last, earned, gained["bytes_sent"], gained["bytes_retrans"]))
    result = []
    for pair, members in sorted(groups.items()):
        windows = [(r["snd_cwnd"], max(1, r["sample_weight"] or 1)) for r, earned, _, _ in members if earned]
        sent = sum(s for _, _, s, _ in members)
        result.append(
            PairObservation(
                src_pop=pair[0],
                dst_pop=pair[1],
                ip_version=pair[2],
                connections_seen=len(members),
                connections_earned=len(windows),
                mean_cwnd=sum(c * w for c, w in windows) / sum(w for _, w in windows) if windows else None,
                min_cwnd=min((c for c, _ in windows), default=None),
                max_cwnd=max((c for c, _ in windows), default=None),
                retransmit_ratio=sum(x for _, _, _, x in members) / sent if sent else None,
            )
        )
    return result


def load(store: Store, batches: list[list[Row]]) -> list[PairObservation]:
    store.execute("truncate table tcp_samples")
    for batch in batches:
        store.insert("tcp_samples", batch)
    return pair_observations(store, ROUND, INTERVAL)


@given(histories())
@EXAMPLES
def test_the_query_says_what_the_rule_says(store: Store, rows: list[Row]) -> None:
    assert load(store, [rows]) == by_hand(rows)


@given(histories(), st.integers(0, 10**6))
@EXAMPLES
def test_shuffled_doubled_and_split_rows_change_nothing(store: Store, rows: list[Row], seed: int) -> None:
    clean = load(store, [rows])
    shuffled = rows * 2
    random.Random(seed).shuffle(shuffled)
    third = len(shuffled) // 3
    assert load(store, [shuffled[:third], shuffled[third:], rows[:2]]) == clean


@given(histories())
@EXAMPLES
def test_the_future_does_not_matter(store: Store, rows: list[Row]) -> None:
    past = [row for row in rows if row["time_unix_us"] < ROUND * 1_000_000]
    assert load(store, [rows]) == load(store, [past])
