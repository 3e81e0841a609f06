"""`springtide report`: from decisions and round tables to what they are good for."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.fleet import load_fleet
from springtide.laws.effect import BenefitLine, Effect
from springtide.laws.holdout import held_out_edges
from springtide.learn.report_page import headline, worse
from springtide.observe.asn import publish_origins
from springtide.policy import HoldoutPolicy

from testkit.browser import screens
from testkit.home import ROUND, Home
from testkit.prefixes import INTERVAL, Seen, store_rounds

pytestmark = pytest.mark.usefixtures("clock")

POLICY = """
congestion:
  {window_rounds: 8, min_rounds: 4, benefit_rounds: 2, min_stay_s: 600, leave_duty: 0.3, holdout_share: 0.4,
   max_new: 500}
"""
POPS = 11


def fleet_yaml() -> str:
    """PoPs of five edges each, one of them held out."""
    lines = ["version: 1", "pops:"]
    for pop in range(POPS):
        lines += [f"  p{pop:02}:", f"    prefixes: [10.{pop}.0.0/24]", "    edges:"]
        lines += [f"      p{pop:02}-{n}: {{address: 10.{pop}.0.{n + 1}}}" for n in range(5)]
    return "\n".join(lines) + "\n"


def rounds(home: Home, since: int, until: int, faster: dict[str, float]) -> list[Seen]:
    """500 prefixes of p00, a fifth of them slow; those in `faster` by so much."""
    rows = []
    for moment in range(since, until + 1, INTERVAL):
        for number in range(500):
            prefix = f"192.{number // 256}.{number % 256}.0/24"
            rate = (300_000 if number < 100 else 9_000_000) * faster.get(prefix, 1.0)
            algorithm = "bbr" if prefix in faster and number % 7 else "cubic"
            rows.append(Seen(moment, "p00", number, int(rate) + number, algorithm))
    return rows


@pytest.fixture(scope="module")
def filled(shared: Home) -> Home:
    """Chosen prefixes and windows, of a home that tests read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: ROUND + 30)
        fill(shared)
    return shared


def fill(home: Home) -> None:
    """BBR makes chosen prefixes faster by a half; a window makes connections between PoPs a fifth shorter."""
    home.policy.write_text(POLICY)
    home.fleet.write_text(fleet_yaml())
    start = ROUND - 11 * INTERVAL
    opened = home.open()
    store_rounds(opened, rounds(home, start, start + 3 * INTERVAL, {}))
    opened.close()
    first = home.json("decide", "congestion", "--round", instants.show(start + 3 * INTERVAL))["decisions"]
    faster = {row["prefix"]: 1.5 for row in first if row["algorithm"] == "bbr"}
    assert 40 < len(faster) < 80
    held = held_out_edges(load_fleet(home.fleet), HoldoutPolicy())
    # At most two of a PoP's four edges apply what was decided; connections of one PoP show nothing.
    applied = {f"p{pop:02}-{n}": f"p{pop:02}-{n}" in held or n % 4 == 0 for pop in range(POPS) for n in range(5)}
    shown = [
        {
            "round": ROUND,
            "generation": 1,
            "host": host,
            "src_pop": host[:3],
            "dst_pop": f"p{(int(host[1:3]) + 1) % POPS:02}",
            "ip_version": 4,
            "decided_cwnd": 10 if host in held else 40,
            "seen": "unknown" if host < "p01" else "same" if has else "differs",
        }
        for host, has in applied.items()
    ]
    outcomes = [
        {
            "round": ROUND,
            "generation": 1,
            "host": f"p{pop:02}-{n}",
            "src_pop": f"p{pop:02}",
            "dst_pop": f"p{(pop + 1) % POPS:02}",
            "ip_version": 4,
            "size_class_bytes": size,
            "connections": 100,
            "busy_p50_us": int(
                (1000 + size)
                * (0.98 + 0.01 * n)
                * (0.8 if f"p{pop:02}-{n}" not in held and applied[f"p{pop:02}-{n}"] else 1.0)
            ),
        }
        for pop in range(POPS)
        for n in range(5)
        for size in (10_000, 100_000)
    ]
    opened = home.open()
    store_rounds(opened, rounds(home, start + 4 * INTERVAL, ROUND, faster))
    opened.insert("rollup_outcomes", outcomes)
    opened.insert("rollup_treatments", shown)
    opened.close()
    for moment in range(start + 4 * INTERVAL, ROUND + 1, INTERVAL):
        home.run("decide", "congestion", "--round", instants.show(moment))


class Page(HTMLParser):
    """Requests to other addresses, and the number of elements of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        self.outside += [value or "" for name, value in attrs if name in ("src", "href")]


def line(answer: dict[str, Any], law: str, by: str, group: str, units: str = "decided") -> dict[str, Any]:
    wanted = (law, by, group, units)
    [found] = [one for one in answer["lines"] if (one["law"], one["by"], one["group"], one["units"]) == wanted]
    return dict(found["effect"])


def test_the_report_finds_what_is_there(filled: Home, tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    answer = filled.json("report", "--html", html)
    grown = line(answer, "congestion", "all", "all")
    assert grown["effect"] == pytest.approx(0.5, abs=0.02)
    assert grown["low"] > 0
    assert line(answer, "congestion", "RTT", "025 to 075 ms") == grown
    assert line(answer, "congestion", "PoP", "p00") == grown
    shorter = line(answer, "initcwnd", "object size", "from 100 kB")
    assert (shorter["treated"], shorter["held_out"]) == (4 * POPS, POPS)
    # Most of the treated did not apply it: as decided, their median does not show the effect.
    assert abs(shorter["effect"]) < 0.1
    where = line(answer, "initcwnd", "object size", "from 100 kB", "seen")
    assert where["effect"] == pytest.approx(-0.2, abs=0.03)
    assert where["high"] < 0
    assert (where["held_out"], where["treated"] <= 2 * (POPS - 1)) == (POPS - 1, True)
    as_seen = line(answer, "congestion", "all", "all", "seen")
    assert as_seen["treated"] < grown["treated"]
    assert as_seen["effect"] == pytest.approx(0.5, abs=0.02)
    assert line(answer, "initcwnd", "PoP", "p03")["effect"] is None
    assert [row["new"] for row in answer["chosen"]][:2] == [100, 0]
    rates = answer["low_rates"]
    assert rates[-1]["treated_p10"] > 1.4 * rates[0]["treated_p10"]
    assert rates[-1]["held_out_p10"] < 1.1 * rates[0]["held_out_p10"]

    page = Page()
    page.feed(html.read_text())
    assert page.outside == []
    assert page.count["svg"] == 2
    assert page.count["table"] == 2
    assert re.search(r"\+4\d\.\d%|\+5\d\.\d%", html.read_text())

    # The first sentence has the numbers: BBR's growth by a half, and the windows' that most edges did not apply.
    lead = re.search(r"<p class='lead'>(.*?)</p>", html.read_text())
    assert lead is not None
    assert re.search(r"BBR for the slowest prefixes: delivery rate \+(4|5)\d\.\d%", lead[1])
    assert re.search(r"Initial windows between PoPs: busy time [+-]\d+\.\d%", lead[1])

    for width, seen in screens({"report": html}, tmp_path / "profile").items():
        assert seen.faults == [], width
        assert seen.requests == [html.as_uri()], "the page requested more than itself"
        assert seen.complaints == []
        shapes = [(box["name"], box["width"] > 300, box["height"] > 20) for box in seen.boxes]
        assert sorted(shapes) == [("svg", True, True)] * 2 + [("table", True, True)] * 2
        assert all(box["drawn"] > 0 for box in seen.boxes if box["name"] == "svg")
        assert seen.colours > 30, "the picture is blank"

    screen = filled.run("report").stdout
    assert "differences are significant" in screen
    nothing = filled.json("report", "--from", "2025-01-01T00:00:00Z", "--to", "2025-01-02T00:00:00Z")
    assert all(one["effect"]["effect"] is None for one in nothing["lines"])


def test_chosen_prefixes_are_compared_by_the_system_that_they_are_in(filled: Home) -> None:
    """The longest match counts: 64 prefixes of the slowest hundred are in the narrower."""
    table = filled.path / "origins.csv"
    table.write_text("prefix,asn,name\n192.0.0.0/16,64501,Wide\n192.0.0.0/18,64500,Narrow\n")
    filled.run("asn", table)
    answer = filled.json("report")
    publish_origins(filled.open(), [])
    whole = line(answer, "congestion", "all", "all")
    narrow, wide = (line(answer, "congestion", "AS", name) for name in ("AS64500", "AS64501"))
    for side in ("treated", "held_out"):
        assert narrow[side] + wide[side] == whole[side]
    assert 0 < wide["treated"] + wide["held_out"] <= 36
    assert narrow["treated"] + narrow["held_out"] <= 64


def test_what_got_worse_is_named_and_less_busy_time_is_better() -> None:
    def of(outcome: str, group: str, *effect: float | None) -> BenefitLine:
        return BenefitLine("initcwnd", outcome, "PoP", group, Effect(20, 20, *effect))

    lines = [
        of("busy time", "ams", -0.2, -0.3, -0.1),
        of("busy time", "nyc", 0.2, 0.1, 0.3),
        of("delivery rate", "sin", -0.2, -0.3, -0.1),
        of("delivery rate", "fra", 0.2, 0.1, 0.3),
        of("delivery rate", "lhr", -0.2, -0.3, 0.1),
        of("delivery rate", "gru"),
        of("time of 100 kB, interference", "rio", 0.2, 0.1, 0.3),
        of("time of 100 kB, p95", "bom", -0.2, -0.3, -0.1),
    ]
    shown = ["better", "worse", "worse", "better", "not shown", "", "interference", "better"]
    assert [line.reading for line in lines] == shown
    said = worse(lines)
    assert "2 of 8 comparisons: PoP nyc (busy time +20.0%" in said
    assert "sin" in said
    assert not {"ams", "fra", "lhr"} & set(re.findall(r"[a-z]{3}", said))
    assert worse(lines[:1]) == ""
    assert headline(lines) == "Nothing can be compared yet: no unit was treated within this time."


def test_an_empty_span_is_refused(home: Home) -> None:
    now, before = instants.show(ROUND), instants.show(ROUND - 300)
    [problem] = home.refused("report", "--from", now, "--to", before)
    assert f"{now} is after {before}" in problem


def test_a_page_that_cannot_be_written_is_reported(home: Home) -> None:
    result = home.run("report", "--html", "/proc/nowhere.html", code=1)
    assert "choose another --html" in result.output
