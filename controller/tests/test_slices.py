"""`springtide report` by tenant and by autonomous system; the page that shows how is done here."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from springtide.learn.slices import of, systems, tenants
from springtide.store import Row, Store

from testkit.browser import screens
from testkit.home import FLEET, ROUND, Home

pytestmark = pytest.mark.usefixtures("clock")

PAGE = Path(__file__).parents[2] / "docs/how-to/see-tenants.md"
INTERVAL = 300
SPAN = {"since": 0, "until": ROUND}


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)
    assert found, language
    return found


def connections(rounds: int) -> list[Row]:
    """Closed connections of ams-1. To the near system the shop's started ones take half the time of others, to the far
    one as long; mail never starts; a poll before each round says that they are new in it."""
    chance = random.Random(5)
    rows: list[Row] = []
    for n in range(rounds):
        at = ROUND - INTERVAL * n - 200
        for number in range(40):
            near, started = number % 4 < 2, number % 2 == 0
            port = 25 if number >= 32 else 443
            written = ROUND - 7200 if port == 443 else None
            busy = (60_000 if near else 200_000) * (0.5 if near and started and port == 443 else 1.0)
            rows.append(
                {
                    "time_unix_us": at * 1_000_000 + number,
                    "host": "ams-1",
                    "boot_id": "boot",
                    "netns": 1,
                    "poll_sequence": 100 - n,
                    "cookie": 1000 * n + number,
                    "kind": "CLOSE",
                    "state": "CLOSE",
                    "src_ip": "::ffff:10.77.1.1",
                    "src_port": port,
                    "dst_ip": "::ffff:198.51.100.9" if near else "::ffff:203.0.113.9",
                    "dst_port": 40_000 + number,
                    "snd_mss": 1448,
                    "bytes_acked": 150_000,
                    "bytes_sent": 153_000 if number % 4 == 3 else 150_000,
                    "bytes_retrans": 3000 if number % 4 == 3 else 0,
                    "busy_time": int(busy * chance.uniform(0.95, 1.05)),
                    "started_round": written,
                    "started_window": None if written is None else 40 if started else 0,
                    "started_rate": None if written is None else 0,
                }
            )
    return rows


def test_the_page_is_what_happens(home: Home, tmp_path: Path) -> None:
    home.fleet.write_text(FLEET + blocks("yaml")[0])
    table = home.path / "origins.csv"
    table.write_text(blocks("csv")[0])
    commands = [line for block in blocks("sh")[:2] for line in block.splitlines()]
    here = [shlex.split(line.replace("origins.csv", str(table)))[1:] for line in commands]
    for words in here[:-1]:
        home.run(*words)
    store = home.open()
    store.insert("tcp_samples", connections(8))
    store.close()
    home.run("rollup")
    assert here[-1] == ["report"]
    # A tenant that opts out needs edges that can leave it alone.
    whole = home.fleet.read_text()
    home.fleet.write_text(FLEET + blocks("yaml")[1])
    assert "tenants.voice.start: routes know destinations only" in home.refused("check")[0]
    home.policy.write_text("enforce: {by: bpf}\n")
    home.run("check")
    home.policy.write_text("")
    home.fleet.write_text(whole)
    shown = home.run(*here[-1]).stdout
    assert blocks("text")[0].strip() in shown, shown

    html = tmp_path / "report.html"
    answer = home.json("report", "--html", html)
    by_tenant = {row["group"]: row for row in answer["tenants"]}
    assert list(by_tenant) == ["mail", "shop"]
    assert (by_tenant["shop"]["started_share"], by_tenant["mail"]["started_share"]) == (0.5, 0)
    assert by_tenant["mail"]["difference"] is None
    by_system = {row["group"]: row for row in answer["autonomous_systems"]}
    near, far = by_system["AS64500 Near By"], by_system["AS64501 Far Away"]
    assert near["difference"] == pytest.approx(-0.5, abs=0.02)
    assert near["high"] < -0.4
    assert far["low"] < 0 < far["high"]
    # Half of the compared ones are near: 2 to the mean of -1 and 0.
    assert by_tenant["shop"]["difference"] == pytest.approx(2**-0.5 - 1, abs=0.02)
    # Every fourth resends 3000 of 153,000 bytes; the far ones that began with the default are half of those.
    assert far["default_resent_share"] > 0 == far["started_resent_share"]
    assert all(title in html.read_text() for title in ("By tenant", "Clients by autonomous system"))
    for width, seen in screens({"report": html}, tmp_path / "profile").items():
        assert seen.faults == [], width


def rows_of(differences: list[float], **more: Any) -> list[Row]:
    """One cell a round, each with 10 connections a side; log2 differences between them."""
    return [
        {
            "round_s": n,
            "connections": 25,
            "started": 10,
            "started_sent": 0,
            "default_sent": 1000,
            "started_again": 0,
            "default_again": 5,
            "started_timed": 10,
            "default_timed": 10,
            "started_log2": 10 * (15 + one),
            "default_log2": 150.0,
            "weight": 5.0,
            "weighted_log2": 5 * one,
            **more,
        }
        for n, one in enumerate(differences)
    ]


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Rounds of normal differences around -0.3: 97.5 % are aimed at; of 30 rounds they are a little short."""
    draw = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        found = of(rows_of(list(draw.normal(-0.3, 0.5, 30))), "tenant", "a").effect
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 2**-0.3 - 1 <= found.high
    assert 185 <= held <= 200


def test_too_little_gives_no_difference() -> None:
    enough = of(rows_of([-0.3] * 5), "tenant", "a")
    assert enough.effect.effect == pytest.approx(2**-0.3 - 1)
    assert enough.default_resent == pytest.approx(0.005)
    assert enough.started_resent is None
    assert of(rows_of([-0.3] * 4), "tenant", "a").effect.effect is None
    assert of(rows_of([-0.3] * 5, started_timed=3), "tenant", "a").effect.effect is None
    # Both sides, but in no round both.
    assert of(rows_of([-0.3] * 9, weight=0.0), "tenant", "a").effect.effect is None


def test_without_tenants_and_systems_there_are_no_rows(store: Store) -> None:
    line = {"round": ROUND, "generation": 1, "pop": "ams", "dst_pop": "", "ip_version": 4, "connections": 3}
    store.insert("rollup_slices", [{**line, "tenant": "", "dst_asn": 0, "started": False}])
    store.insert("rollups", [{"round": ROUND, "generation": 1, "interval_s": 300}])
    assert (tenants(store, SPAN), systems(store, SPAN)) == ([], [])
    more = [{**line, "tenant": "a", "dst_asn": asn, "started": False, "pop": f"p{asn}"} for asn in range(1, 31)]
    more[3]["connections"] = 90
    store.insert("rollup_slices", more)
    assert [(one.group, one.connections) for one in tenants(store, SPAN)] == [("a", 177), ("none", 3)]
    listed = systems(store, SPAN)
    assert (len(listed), listed[0].group, listed[0].connections) == (20, "AS4", 90)
