"""`springtide advise`: from samples to what faster starts would gain, through the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from springtide import instants
from springtide.laws.columns import Table
from springtide.laws.resample import bounds, quantiles
from springtide.learn.advise_path import EVIDENCE, SIZES, path_of
from springtide.policy import StartPolicy

from testkit import history
from testkit.advised import Advised, Traffic, by_hand_ms, of_size, path
from testkit.browser import look_at, screens
from testkit.home import ROUND, Home
from testkit.together import together
from testkit.traffic import MSS

pytestmark = pytest.mark.usefixtures("clock")


@together
def test_a_path_that_connections_met_gains_what_slow_start_waits() -> Iterator[Advised]:
    traffic = Traffic()
    for minute in range(10, 90):
        traffic.connection("ams-1", "10.77.2.9", 5_000_000 + minute, minute=minute, size=100_000)
    yield (advised := Advised(traffic))
    found = advised.path()
    assert (found["basis"], found["kind"], found["connections"], found["fresh_connections"]) == ("met", "pair", 80, 80)
    assert found["rtt_ms"]["estimate"] == 100
    assert found["rate_bytes_per_s"]["estimate"] == pytest.approx(5_000_049, abs=2)
    assert found["window"] == math.ceil(5_000_049 * 0.1 / MSS)
    for size in SIZES:
        one = of_size(found, size)
        assert one["default_ms"] == pytest.approx(by_hand_ms(size, 100, 5_000_049, 10), rel=1e-3)
        assert one["start_ms"] == pytest.approx(100 + size / 5000, rel=1e-3)
        assert one["saved_ms"]["low"] <= one["saved_ms"]["estimate"] <= one["saved_ms"]["high"]
        assert one["saved_round_trips"]["estimate"] == pytest.approx(one["saved_ms"]["estimate"] / 100, abs=1e-3)
    saved = of_size(found, 100_000)["saved_ms"]["estimate"]
    assert found["total_saved_ms"]["estimate"] == pytest.approx(80 * saved, rel=1e-6)
    assert found["risks"] == []


LIMITED: dict[str, dict[str, Any]] = {
    "10.77.2.9": {"met": False},
    "192.0.1.9": {"delivery_rate_app_limited": True},
    "192.0.2.9": {"snd_wnd": 60_000},
    "192.0.3.9": {"rwnd_limited": 400_000},
    "192.0.4.9": {"sndbuf_limited": 400_000},
    # The last small record of an answer.
    "192.0.5.9": {"snd_cwnd": 1300, "snd_ssthresh": 1300},
}


def test_what_something_else_limited_is_a_lower_bound(home: Home) -> None:
    traffic = Traffic()
    for peer, limited in LIMITED.items():
        for minute in range(10, 60):
            traffic.connection("ams-1", peer, 2_000_000, minute=minute, size=100_000, **limited)
    traffic.load(home)
    answer, screen = home.json("advise"), home.run("advise").stdout.splitlines()
    for peer, limited in LIMITED.items():
        destination = "fra" if peer.startswith("10.") else f"{peer.removesuffix('9')}0/24"
        assert path(answer, "ams", destination)["basis"] == "at_least", limited
        [line] = [line for line in screen if re.search(rf"ams .*{destination} .*≥16\.0 .* ≥", line)]
        # The saving of an answer that ten segments carry is settled.
        assert "0 (0.0)" in line, limited
    assert "at least" in screen[0]


@together
@pytest.mark.parametrize(
    ("seen", "basis"),
    [({"size": 1_000_000}, "met"), ({"bytes_retrans": MSS}, "met"), ({}, "at_least")],
    ids=["long", "lossy", "short"],
)
def test_without_an_ssthresh_as_of_bbr_the_path_is_met_where_the_law_says_so(
    seen: dict[str, Any], basis: str
) -> Iterator[Advised]:
    traffic = Traffic()
    for minute in range(90, 94):
        for _ in range(5):
            values: dict[str, Any] = {"size": 900_000} | seen
            traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, met=False, **values)
    yield (advised := Advised(traffic, "enforce: {by: bpf, otherwise: routes}\n"))
    assert advised.path()["basis"] == basis
    counts = "select sum(share_connections) > 0 as met from round_paths where dst_pop = "
    assert advised.home.query(f"{counts}'{advised.own('fra')}'") == [{"met": basis == "met"}]


def test_impossible_rates_show_nothing_and_the_connection_began_all_the_same(home: Home) -> None:
    traffic = Traffic()
    for minute in range(10, 40):
        traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, size=100_000)
        traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, size=100_000, delivery_rate=2**63)
    for _ in range(3):
        traffic.connection("fra-1", "10.77.1.9", 6_250_000, minute=0, size=100_000)
    train = {"kind": "SAMPLE_KIND_FIRST_FLIGHT", "state": "TCP_STATE_UNSPECIFIED"}
    kept = ("time_unix_us", "host", "boot_id", "netns", "cookie", "family", "src_ip", "src_port", "dst_ip", "dst_port")
    for of in traffic.samples[-6::2]:
        known = {name: of[name] for name in kept}
        traffic.samples.append(known | train | {"train_bytes": 2**32 - 1, "train_time": 1})
    traffic.load(home)
    answer = home.json("advise")
    assert path(answer, "ams", "fra")["fresh_connections"] == 60
    assert path(answer, "ams", "fra")["rate_bytes_per_s"]["estimate"] == 6_250_000
    back = path(answer, "fra", "ams")
    assert (back["basis"], back["rate_bytes_per_s"]["estimate"]) == ("trains", 100_000_000_000)
    # None began on the path from fra.
    assert "the mean over 60 connections that began on 2 paths" in home.run("advise").stdout


def test_an_idle_connections_old_rate_is_not_of_the_time_that_is_looked_at(home: Home) -> None:
    traffic = Traffic()
    for minute in range(10, 20):
        traffic.connection("ams-1", "10.77.2.9", 2_000_000, minute=minute, size=100_000, last_data_sent=86_400_000)
    traffic.load(home)
    # With what the first poll shows, of a few bytes.
    assert "no connection shows a rate on any of 3 paths" in home.run("advise", code=3).stderr


def test_risks_are_named(home: Home) -> None:
    traffic = Traffic()
    lost: dict[str, Any] = {"bytes_retrans": 3 * MSS}
    for minute in range(10, 90):
        policed: dict[str, Any] = lost if minute % 2 else {}
        traffic.connection("ams-1", "203.0.113.7", 1_500_000, minute=minute, size=20_000, min_rtt=54_000, **policed)
        full: dict[str, Any] = lost | {"rtt": 200_000} if minute % 2 else {}
        traffic.connection("ams-1", "198.51.100.7", 1_500_000, minute=minute, size=20_000, min_rtt=54_000, **full)
        traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, size=100_000, snd_wnd=650_000)
        traffic.connection("fra-1", "10.77.1.9", 6_250_000, minute=minute, size=100_000, met=False, snd_wnd=65_535)
    for minute in (20, 40):
        traffic.connection("fra-1", "203.0.113.7", 6_250_000, minute=minute, size=100_000)
    traffic.load(home)
    answer = home.json("advise")
    assert path(answer, "ams", "203.0.113.0/24")["risks"] == ["loses", "short_queue"]
    assert path(answer, "ams", "198.51.100.0/24")["risks"] == ["loses"]
    assert path(answer, "ams", "fra")["risks"] == []
    bounded = path(answer, "fra", "ams")
    assert bounded["risks"] == ["receiver"]
    assert bounded["window"] == 65_535 // MSS
    thin = path(answer, "fra", "203.0.113.0/24")
    assert (thin["risks"], thin["basis"]) == (["thin"], "at_least")
    saved = of_size(thin, 100_000)["saved_ms"]
    # Two connections show nothing but what an endless rate would save: two round trips.
    assert (saved["low"], saved["high"]) == (0, pytest.approx(200, rel=1e-3))
    screen = home.run("advise").stdout
    assert "short queue? (loses without delay" in screen
    assert "1 paths: ams to 203.0.113.0/24" in screen


def test_the_best_come_first_and_only_what_began_counts(home: Home) -> None:
    traffic = Traffic()
    for minute in range(10, 40):
        for _ in range(3):
            traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, size=60_000, sample_weight=10)
        # As much to gain for each, of none that sends enough.
        traffic.connection("fra-1", "10.77.1.9", 6_250_000, minute=minute, size=9_000)
        # Within a PoP: no pair.
        traffic.connection("fra-1", "10.77.2.9", 9_000_000, minute=minute, size=60_000)
    for _ in range(50):
        traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=0, size=1_000_000)
    traffic.load(home)
    answer = home.json("advise", "--top", 1)
    [best] = answer["paths"]
    assert (best["src_pop"], best["destination"]) == ("ams", "fra")
    # None of 60 kB has met it.
    assert best["connections"] == 50
    assert best["fresh_connections"] == 900
    assert best["fresh_connections_from"] == {"10000": 900, "50000": 900, "100000": 0, "1000000": 0}
    assert best["total_saved_ms"]["estimate"] == pytest.approx(
        900 * of_size(best, 50_000)["saved_ms"]["estimate"], rel=1e-5
    )
    every = {(one["src_pop"], one["destination"]) for one in home.json("advise")["paths"]}
    assert every == {("ams", "fra"), ("fra", "ams")}
    assert answer["paths_known"] == len(every)
    assert f"the best 1 of {answer['paths_known']} paths" in home.run("advise", "--top", 1).stdout


def test_what_a_host_sends_to_itself_is_no_path(home: Home) -> None:
    """Loopback, link-local, its own address, and that of a container of it."""
    here = ["127.0.0.1", "127.9.9.9", "169.254.1.1", "::1", "fe80::1", "febf::1", "10.77.1.1", "172.17.0.2"]
    traffic = Traffic()
    for minute in (90, 91, 92) * 10:
        traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, size=100_000)
        for peer in here:
            traffic.connection("ams-1", peer, 500_000_000, minute=minute, size=100_000, min_rtt=30)
            traffic.samples[-1]["src_ip"] = traffic.samples[-2]["src_ip"] = "::1" if ":" in peer else "172.17.0.2"
            traffic.samples[-1]["family"] = traffic.samples[-2]["family"] = 10 if ":" in peer else 2
    traffic.load(home)
    answer = home.json("advise")
    assert [(one["destination"], one["fresh_connections"]) for one in answer["paths"]] == [("fra", 30)]
    assert answer["fresh_connections_local"] == 8 * 30
    assert "240 connections of hosts to themselves were left out" in home.run("advise").stdout
    home.run("rollup", "--round", instants.show(ROUND - 300))
    rolled = "select distinct dst_pop, client_prefix from round_sockets"
    assert home.query(rolled) == [{"dst_pop": "fra", "client_prefix": "::ffff:10.77.2.0"}]
    assert home.query("select * from round_rogues") == home.query("select * from round_late") == []


def load_history(home: Home) -> None:
    """The samples of a small fleet's two days."""
    history.spool(home)
    home.run("ingest", home.spool)


def test_copies_of_samples_change_nothing(home: Home) -> None:
    load_history(home)
    once = home.json("advise")
    opened = home.open()
    opened.execute("insert into tcp_samples select * from tcp_samples")
    opened.close()
    assert home.json("advise") == once
    assert len(once["paths"]) == 12
    earlier = home.json("advise", "--from", "2026-01-01T02:30:00Z", "--to", "2026-01-01T03:00:00Z")
    assert earlier["fresh_connections"] < once["fresh_connections"]


def test_without_samples_one_line_says_what_to_do(home: Home) -> None:
    [line] = home.run("advise", code=3).stderr.splitlines()
    assert "the store has no samples; load some first: `springtide ingest" in line
    load_history(home)
    [line] = home.run(
        "advise", "--from", "2025-01-01T00:00:00Z", "--to", "2025-01-01T01:00:00Z", code=3
    ).stderr.splitlines()
    assert "the newest is of 2026-01-02T02:59:50Z: give --from and --to" in line
    home.fleet.write_text(home.fleet.read_text().replace("ams-", "lon-").replace("fra-", "par-"))
    home.run("ingest", home.spool)
    [line] = home.run("advise", code=3).stderr.splitlines()
    assert "no sample is of a host that is an edge in fleet.yaml" in line


def test_samples_of_the_future_are_named(home: Home) -> None:
    traffic = Traffic()
    for minute in range(300, 320):
        traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, size=100_000)
    traffic.load(home)
    [line] = home.run("advise", code=3).stderr.splitlines()
    assert "the newest sample is of 2026-01-02T06:39:30Z, later than now: correct that clock" in line


def test_a_page_that_cannot_be_written_is_reported(home: Home) -> None:
    load_history(home)
    assert "choose another --html" in home.run("advise", "--html", "/proc/nowhere.html", code=1).stderr


class Page(HTMLParser):
    """Elements in their order with their attributes, and what is requested from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_page_opens_with_the_number_and_needs_nothing_else(home: Home, tmp_path: Path) -> None:
    load_history(home)
    html = tmp_path / "advice.html"
    screen = home.run("advise", "--html", html, "--top", 5).stdout
    text = html.read_text()
    page = Page(text)
    lead = re.search(r"<main>\s*<p class='lead'>(.*?)</p>", text)
    assert lead is not None
    assert lead[1] == screen.splitlines()[0]
    assert re.search(r"100 kB would arrive \d+ ms sooner .* began on 12 paths", lead[1])
    assert not any({"src", "href"} & attributes.keys() for _, attributes in page.elements)
    assert "script" not in {tag for tag, _ in page.elements}
    assert page.all("html") == [{"lang": "en"}]
    assert page.all("meta")[1]["content"] == "width=device-width, initial-scale=1"
    names = {attributes.get("id") for _, attributes in page.elements}
    for picture in page.all("svg"):
        assert picture["role"] == "img"
        assert set(str(picture["aria-labelledby"]).split()) <= names
    assert all(head["scope"] == "col" for head in page.all("th"))
    # Each cell says its column where there is no room for a head. Loss has a row for all, and four for paths.
    assert len(page.all("td")) == 5 * len(page.all("th"))
    assert all(cell["data-label"] for cell in page.all("td"))

    narrow, between = look_at([(html, 320), (html, 1100)], tmp_path / "profile-between")
    for width, seen in {**screens({"advise": html}, tmp_path / "profile"), "320": narrow, "1100": between}.items():
        # Text is made for 400 px: on less it is smaller, and still all there.
        assert [fault for fault in seen.faults if width != "320" or not fault.endswith("px high")] == [], width
        assert seen.requests == [html.as_uri()]
        assert seen.complaints == []
        assert seen.beyond == 0, f"{width}: something is outside"
        assert [box["name"] for box in seen.boxes] == ["svg", "svg", "table", "table"]
        assert all(box["width"] > 250 and box["height"] > 100 for box in seen.boxes)


def test_names_are_text_and_nothing_else(home: Home, tmp_path: Path) -> None:
    traffic = Traffic()
    for minute in range(10, 40):
        traffic.connection("ams-1", "10.77.2.9", 6_250_000, minute=minute, size=100_000)
    traffic.load(home)
    hostile = "<script>alert(1)</script>' onload='x\x1b[31m"
    opened = home.open()
    opened.execute(
        "alter table tcp_samples update dst_pop = {name:String} where dst_pop = 'fra' settings mutations_sync = 2",
        {"name": hostile},
    )
    opened.close()
    html = tmp_path / "advice.html"
    screen = home.run("advise", "--html", html).stdout
    assert "\x1b" not in screen
    page = Page(html.read_text())
    assert "script" not in {tag for tag, _ in page.elements}
    assert not any("onload" in attributes for _, attributes in page.elements)
    assert hostile in page.text


def test_the_how_to_does_what_it_shows(bare_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs/how-to/see-what-you-would-gain.md").read_text()
    # The other one is the collector's: lab/tests/test_estimate.py.
    block, _ = re.findall(r"```sh\n(.*?)```", text, re.S)
    history.spool(bare_home)
    answers = [
        bare_home.run(*line.replace("/var/spool/springtide", str(bare_home.spool)).split()[1:]).stdout
        for line in block.splitlines()
    ]
    [shown] = re.findall(r"```text\n(.*?)```", text, re.S)
    assert answers[2].splitlines()[0] == " ".join(shown.split())
    assert (tmp_path / "advice.html").exists()


def evidence(rates: list[float], slots: list[int], **unit: float) -> Table:
    rows = np.zeros(len(rates), EVIDENCE)
    rows["rate"], rows["seen_s"], rows["weight"] = rates, np.array(slots) * 300, 1
    values = {"rtt_us": 80_000, "mss": MSS, "receiver_window": np.nan, "met": len(rates), "reached": len(rates)}
    for name, value in (values | unit).items():
        rows[name] = value
    return rows


@given(st.lists(st.tuples(st.floats(1e4, 1e9), st.integers(0, 20)), min_size=1, max_size=128), st.booleans())
def test_intervals_hold_the_estimate_and_nothing_is_negative(seen: list[tuple[float, int]], is_met: bool) -> None:
    began = {"fresh": 12, "fresh_10k": 9, "fresh_50k": 9, "fresh_100k": 7, "fresh_1m": 1}
    met = len(seen) if is_met else 0
    rows = evidence([rate for rate, _ in seen], [slot for _, slot in seen], met=met, **began)
    found = path_of(rows, StartPolicy(), paces=False)
    intervals = [found.rate_bytes_per_s, found.rtt_ms, found.total_ms]
    for one in found.savings:
        intervals += [one.saved_ms, one.saved_round_trips]
        assert one.start_ms <= one.default_ms
    assert all(0 <= one.low <= one.estimate <= one.high for one in intervals)


def test_an_interval_is_of_rounds_not_of_connections() -> None:
    """Ten rounds with ten equal connections each say as much as ten connections."""
    rates = [1e6 * (1 + slot) for slot in range(10)]
    alone = path_of(evidence(rates, list(range(10))), StartPolicy(), paces=False).rate_bytes_per_s
    repeated = path_of(evidence(rates * 10, list(range(10)) * 10), StartPolicy(), paces=False).rate_bytes_per_s
    assert (repeated.low, repeated.high) == (alone.low, alone.high)
    assert repeated.high - repeated.low > 3e6


@pytest.mark.parametrize(("paces", "ms"), [(False, 90), (True, 120)], ids=["routes", "bpf"])
def test_each_of_four_edges_that_pace_starts_at_its_part(paces: bool, ms: float) -> None:
    """10 MB/s at 80 ms: 100 kB leave in 10 ms, at a quarter of the rate in 40."""
    found = path_of(evidence([1e7] * 10, list(range(10)), hosts=4, slow_100k=np.nan), StartPolicy(), paces=paces)
    assert found.saving(100_000).start_ms == pytest.approx(ms, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), min_size=1, max_size=40), st.floats(0.05, 1.0))
def test_a_weighted_quantile_is_that_of_as_many_copies(values: list[tuple[int, int]], level: float) -> None:
    copies = sorted(value for value, weight in values for _ in range(weight))
    numbers = np.array([float(value) for value, _ in values])
    weights = np.array([weight for _, weight in values], np.uint32)
    found = quantiles([(numbers, level)], weights, np.arange(len(values), dtype=np.uint32))
    assert found[0, 0] == copies[max(0, math.ceil(level * len(copies) * (1 - 1e-12)) - 1)]
    [(estimate, low, high)] = bounds(found.T)
    assert low <= estimate == found[0, 0] <= high
