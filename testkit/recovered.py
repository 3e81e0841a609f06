"""Cases of how connections begin and recover, loaded and rolled up once for all, each with decisions of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self
from unittest.mock import patch

from springtide import instants

from testkit.home import FLEET, ROUND, Home
from testkit.proto import Value
from testkit.sent import INTERVAL, Apart
from testkit.spool import record, write_spool
from testkit.traffic import Socket


class Recovered(Apart):
    """Records by the round that they are of, and a poll of each host in every round of all cases; then what commands
    make of them, by the case's policy."""

    def __init__(self, policy: str, shown: Mapping[int, Sequence[Mapping[str, Value]]], fleet: str = FLEET) -> None:
        self.policy, self.shown, self.fleet = policy, shown, fleet

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        cls.place(home, cases)
        home.policy.write_text("enforce: {by: bpf}\n")
        moments = sorted({moment for case in cases for moment in case.shown})
        for case in cases:
            rows = [row for moment in moments for row in (*_polls(moment), *case.shown.get(moment, ()))]
            write_spool(home.spool, case.prefix, [record(case.moved(rows))])
        with patch.object(instants, "now", lambda: ROUND + 90):
            home.run("ingest", home.spool)
            for moment in moments:
                home.run("rollup", *at(moment))

    def decide(self, moment: int) -> dict[str, Any]:
        found: dict[str, Any] = self.ours().json("decide", "recovery", *at(moment))
        return found

    def decided(
        self, moment: int, what: tuple[str, str] = ("reason", "handshake_timeout_ms")
    ) -> dict[str, tuple[str, int]]:
        """Reason and timeout by destination."""
        first = self.decide(moment)
        assert first["written"] == len(first["decisions"])
        return {row["destination"]: (row[what[0]], row[what[1]]) for row in self.named(first["decisions"])}

    def stored(self) -> list[dict[str, Any]]:
        return self.named(self.ours().query("select * from path_decisions where part = 'recovery'"))

    def bundles(self, moment: int) -> dict[str, Any]:
        """By edge."""
        out = self.ours().path / f"{self.prefix}bundles-{moment}"
        self.home.run("decide", "initcwnd", *at(moment))
        # Edges take none that is of long ago.
        with patch.object(instants, "now", lambda: moment + 90):
            self.home.run("bundle", *at(moment), "--out", out)
        own = out.glob(f"{self.prefix}*.json")
        return {self.said(path.stem): json.loads(self._theirs(path.read_text())) for path in own}

    def _theirs(self, text: str) -> str:
        """The text with the names and addresses of its fleet."""
        return str(self.said(text)).replace(f"10.{100 + self.number}.", "10.77.")

    def explained(self, moment: int, destination: str = "fra") -> str:
        """The text about ams and the destination."""
        return str(self.said(self.ours().run("explain", *self._path(destination), *at(moment)).stdout))

    def explanations(self, moment: int, destination: str = "fra") -> list[dict[str, Any]]:
        """The decisions in it."""
        found = self.ours().json("explain", *self._path(destination), *at(moment))
        return list(found["recovery"]["decisions"])

    def _path(self, destination: str) -> tuple[str, str]:
        return self.own("ams"), self.own(destination)


def at(moment: int) -> tuple[str, str]:
    return "--round", instants.show(moment)


def _polls(moment: int) -> list[dict[str, Value]]:
    hosts = (Socket(f"ams-{n}", 900_000, f"10.77.1.{n}", "10.77.2.9", "ams") for n in (1, 2))
    return [host.at(moment - 30, moment // INTERVAL, 5000) for host in hosts]
