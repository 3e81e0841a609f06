"""`springtide advise` beside what clients waited: the default's time, the rate, and what is left of a lower bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from testkit.advised import Advised, Traffic, by_hand_ms, of_size
from testkit.proto import Value
from testkit.together import together
from testkit.traffic import MSS


def answered(
    traffic: Traffic, minute: int, size: int, *, rtt_ms: int = 150, rate: float = 25e6, **more: Value
) -> float:
    """A connection of one answer from ten segments, as the kernel closes it; what its client waited, ms. The last
    segment's rate is all that it shows, and the FIN follows the data by a round trip."""
    waited = by_hand_ms(size, rtt_ms, rate, 10)
    values: dict[str, Value] = {
        "rtt": rtt_ms * 1000,
        "busy_time": int((waited + rtt_ms) * 1000),
        "last_data_sent": 2 * rtt_ms,
        "min_rtt": rtt_ms * 1000,
        "snd_cwnd": 80,
    }
    traffic.connection(
        "ams-1",
        "10.77.2.9",
        MSS * 1000 // rtt_ms,
        minute=minute,
        size=size,
        met=False,
        data_segs_out=-(-size // MSS),
        data_segs_in=1,
        **values | more,
    )
    # A FIN counts as a byte.
    traffic.samples[-1]["bytes_acked"] = size + 1
    return waited


@together
@pytest.mark.parametrize(("short", "long"), [(60, 0), (0, 8), (60, 8)], ids=["short", "long", "mix"])
def test_what_clients_waited_is_the_default_and_what_long_ones_carried_is_the_rate(
    short: int, long: int
) -> Iterator[Advised]:
    traffic = Traffic()
    waited = [answered(traffic, 10 + number, 100_000) for number in range(short)]
    for number in range(long):
        # Kept, with many answers: limited by these, and once in a while it was delivered what the path carries.
        traffic.connection(
            "ams-1",
            "10.77.2.9",
            20_000_000 + number,
            minute=20 + number,
            size=17_000_000,
            met=False,
            min_rtt=150_000,
            snd_cwnd=2500,
            delivery_rate_app_limited=True,
            data_segs_in=140,
            busy_time=24_000_000,
        )
    yield (advised := Advised(traffic))
    found = advised.path()
    if not long:
        # 100 kB in three round trips and one for the FIN.
        assert found["rate_bytes_per_s"]["estimate"] == pytest.approx(100_000 / (waited[0] + 150) * 1000, rel=1e-3)
    main = of_size(found, 100_000)
    # Six of seven round trips' worth of windows: 10, 20 and 40 segments; the path takes 4 ms for all.
    assert main["default_ms"] == pytest.approx(454, rel=0.01)
    assert main["default_is_measured"] == bool(short)
    if long:
        assert main["start_ms"] == pytest.approx(by_hand_ms(100_000, 150, 25e6, 400), rel=0.02)
    assert found["basis"] == "at_least"


@together
@pytest.mark.parametrize("resent", [0, 3], ids=["clean", "lossy"])
def test_first_segments_say_what_the_path_carries_also_where_it_loses(resent: int) -> Iterator[Advised]:
    traffic = Traffic()
    for minute in range(10, 40):
        answered(traffic, minute, 100_000, rate=12.5e6)
        of = traffic.samples[-1]
        if resent:
            # One more round trip for all, as found losses take.
            of["bytes_retrans"] = resent * MSS
            of["bytes_sent"] = 100_000 + resent * MSS
            of["busy_time"] = int(str(of["busy_time"])) + 150_000
        flight = {"kind": "SAMPLE_KIND_FIRST_FLIGHT", "state": "TCP_STATE_UNSPECIFIED"}
        kept = {name: of[name] for name in ("time_unix_us", "host", "boot_id", "netns", "cookie", "min_rtt", "family")}
        ends = {name: of[name] for name in ("src_ip", "src_port", "dst_ip", "dst_port")}
        traffic.samples.append(kept | ends | flight | {"train_bytes": 12_500, "train_time": 1000})
    yield (advised := Advised(traffic))
    found = advised.path()
    main = of_size(found, 100_000)
    found_losses = 150 if resent else 0
    assert (found["basis"], found["rate_bytes_per_s"]["estimate"]) == ("trains", 12_500_000)
    assert main["default_ms"] == pytest.approx(by_hand_ms(100_000, 150, 12.5e6, 10) + found_losses, rel=0.03)
    assert main["start_ms"] == pytest.approx(150 + 100_000 / 12_500 + found_losses, rel=0.03)


@together
@pytest.mark.parametrize(
    ("closed", "is_measured"),
    [({}, True), ({"polled": 0}, True), ({"polled": 3}, False), ({"bytes_acked": 100_000}, True)],
    ids=["at once", "delayed, polled before", "delayed, polled in flight", "reset"],
)
def test_a_fins_delayed_acknowledgement_is_no_time_of_the_answer(
    closed: dict[str, int], is_measured: bool
) -> Iterator[Advised]:
    """100 kB at 20 ms: three round trips. What delays a FIN is to an eighth in the smoothed round trip."""
    delay_ms = 40 if "polled" in closed else 0
    fin_ms = 0 if "bytes_acked" in closed else 20 + delay_ms
    traffic = Traffic()
    for minute in range(10, 30):
        more = {"rtt": 20_000 + delay_ms * 1000 // 8, "last_data_sent": 60_000}
        waited = answered(traffic, minute, 100_000, rtt_ms=20, rate=1e9, **more)
        poll, close = traffic.samples[-2:]
        poll |= {"unacked": closed.get("polled", 9), "busy_time": int(waited * 1000)}
        close |= {"busy_time": int((waited + fin_ms) * 1000)}
        close |= {name: value for name, value in closed.items() if name != "polled"}
    yield (advised := Advised(traffic))
    one = of_size(advised.path(), 100_000)
    assert one["default_is_measured"] == is_measured
    assert one["default_ms"] == pytest.approx(60.1, abs=0.1)


@together
def test_answers_that_began_otherwise_say_nothing_of_the_default() -> Iterator[Sequence[Advised]]:
    alone, traffic = Traffic(), Traffic()
    for minute in range(10, 20):
        answered(alone, minute, 100_000, rate=1e6)
        answered(traffic, minute, 100_000, rate=1e6)
    for minute in range(20, 30):
        known = {"started_window": 80, "started_round": 1}
        shown = {"snd_cwnd": 100, "data_segs_out": 70, "total_retrans": 0}
        # Nothing but its time: two round trips where the default needs three.
        quick = {"snd_cwnd": 80, "data_segs_out": 70, "total_retrans": 0}
        more: dict[str, Any] = {"min_rtt": 150_000, "busy_time": 300_000, "data_segs_in": 1}
        more |= (known, shown, quick)[minute % 3]
        traffic.connection("ams-1", "10.77.2.9", 9653, minute=minute, size=100_000, met=False, **more)
    cases = Advised(alone), Advised(traffic)
    yield cases
    slow, beside = (of_size(case.path(), 100_000) for case in cases)
    assert slow["default_ms"] == pytest.approx(by_hand_ms(100_000, 150, 1e6, 10), rel=0.01)
    assert beside["default_ms"] == slow["default_ms"]


@together
@pytest.mark.parametrize(("sooner", "is_measured"), [(3, True), (4, False)])
@pytest.mark.parametrize("shown", [{}, {"snd_cwnd": 110}], ids=["by its time", "by its window"])
def test_the_slow_ones_among_answers_of_another_start_are_no_default(
    sooner: int, is_measured: bool, shown: dict[str, int]
) -> Iterator[Advised]:
    traffic = Traffic()
    for minute in range(10, 13):
        answered(traffic, minute, 100_000, busy_time=1_350_000, bytes_retrans=3 * MSS)
    for minute in range(20, 20 + sooner):
        # Two round trips where the default needs three; or three, with a window that shows another start.
        busy: dict[str, Any] = {"busy_time": 600_000} if shown else {"busy_time": 450_000}
        answered(traffic, minute, 100_000, total_retrans=0, **busy | shown)
    yield (advised := Advised(traffic))
    one = of_size(advised.path(), 100_000)
    assert one["default_is_measured"] == is_measured
    assert one["default_ms"] == pytest.approx(1200 if is_measured else 450, abs=0.1)


@together
@pytest.mark.parametrize(("rtt_us", "is_measured"), [(300, False), (3_999, False), (4_000, True)])
def test_a_time_of_few_jiffies_is_no_measurement(rtt_us: int, is_measured: bool) -> Iterator[Advised]:
    traffic = Traffic()
    for minute in range(10, 50):
        # Three round trips, and the FIN's.
        busy = 4000 * (minute % 2) + 4 * rtt_us // 4000 * 4000
        answered(traffic, minute, 100_000, rtt_ms=1, rate=1e9, min_rtt=rtt_us, rtt=rtt_us, busy_time=busy)
    yield (advised := Advised(traffic))
    one = of_size(advised.path(), 100_000)
    assert one["default_is_measured"] == is_measured
