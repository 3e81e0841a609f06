"""Cases whose samples are loaded and rolled up once for all, each in PoPs of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self
from unittest.mock import patch

import yaml
from springtide import instants
from springtide.store import Row

from testkit.home import FLEET, ROUND, Home
from testkit.proto import Value
from testkit.rolled import NAMES, back
from testkit.spool import record, write_spool

INTERVAL = 300


class Apart:
    """A case on its fleet, under names and addresses that no other case has."""

    home: Home
    number = 0
    fleet = FLEET
    policy = ""
    is_first = True

    @classmethod
    def place(cls, home: Home, cases: Sequence[Self]) -> None:
        """The home's fleet is that of each of them."""
        pops: dict[str, Any] = {}
        for number, case in enumerate(cases):
            case.home, case.number = home, number
            pops |= yaml.safe_load(case.own(case.fleet))["pops"]
        home.fleet.write_text(yaml.safe_dump({"version": 1, "pops": pops}))

    @property
    def prefix(self) -> str:
        return f"c{self.number}-"

    def own(self, text: str) -> str:
        """The text with the case's names and addresses."""
        named = re.sub(r"\b(ams|fra|nyc|europe)\b", rf"{self.prefix}\1", text)
        return named.replace("10.77.", f"10.{100 + self.number}.").replace("fd77:", f"fd{self.number:02x}:")

    def moved(self, samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {name: self.own(value) if isinstance(value, str) else value for name, value in sample.items()}
            for sample in samples
        ]

    def named(self, rows: Iterable[Row]) -> list[Row]:
        """Rows of the case's own hosts and PoPs, with the names of its fleet."""
        return [back(row, self.prefix) for row in rows if any(self._is_own(row.get(name)) for name in NAMES)]

    def _is_own(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith(self.prefix)

    def said(self, value: Any) -> Any:
        return value.replace(self.prefix, "") if isinstance(value, str) else value

    def rule(self, policy: str) -> None:
        """Another policy from now on."""
        self.home.policy.write_text(self.own(policy))

    def ours(self) -> Home:
        """The home, where no other case has decided anything."""
        if self.is_first:
            self.rule(self.policy)
            self.home.open().execute("truncate table path_decisions")
            self.is_first = False
        return self.home


class Sent(Apart):
    """Samples of so many rounds up to ROUND; then what commands decide of pairs, by the case's policy."""

    def __init__(
        self, samples: Sequence[Mapping[str, Value]], policy: str = "initcwnd: {duty_rounds: 1}\n", rounds: int = 1
    ) -> None:
        self.samples, self.policy = samples, policy
        self.rounds = [ROUND - INTERVAL * age for age in reversed(range(rounds))]

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        cls.place(home, cases)
        write_spool(home.spool, "sent", [record(case.moved(case.samples)) for case in cases])
        with patch.object(instants, "now", lambda: ROUND + 90):
            home.run("ingest", home.spool)
            for moment in sorted({moment for case in cases for moment in case.rounds}):
                home.run("rollup", "--round", instants.show(moment))

    def decide(self, *arguments: object) -> list[dict[str, Any]]:
        return self.named(self.ours().json("decide", "initcwnd", *arguments)["decisions"])

    def decide_all(self) -> None:
        """Its rounds, one after the other."""
        for moment in self.rounds:
            self.ours().run("decide", "initcwnd", "--round", instants.show(moment))

    def stored(self) -> list[dict[str, Any]]:
        query = "select *, destination as dst_pop from path_decisions order by round, src_pop, destination, ip_version"
        rows = self.ours().query(query)
        return self.named(rows)

    def explain(self, src: str, dst: str) -> str:
        return str(self.said(self.ours().run("explain", self.own(src), self.own(dst)).stdout))

    def explained(self, src: str, dst: str) -> dict[str, Any]:
        """The only explanation of its window."""
        [explanation] = self.ours().json("explain", self.own(src), self.own(dst))["initcwnd"]["explanations"]
        return {name: self.said(value) for name, value in explanation.items()}
