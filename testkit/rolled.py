"""Cases of paths that one roll-up shows side by side, each in PoPs of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, zip_longest
from statistics import median_low
from typing import Any, Self

import numpy as np
import yaml
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws.start.evidence import observe
from springtide.laws.units import keys
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import rollup
from springtide.policy import StartPolicy
from springtide.store import Param, Row, Store

from testkit.home import ROUND, Home
from testkit.path_model import Gave, Unit
from testkit.path_traffic import BESIDES, EDGES, FLEET, INTERVAL, decision_rows, evidence, unit_of

NAMES = ("host", "only_host", "pop", "src_pop", "dst_pop", "destination")


def apart(row: Row, prefix: str) -> Row:
    """Hosts and PoPs of a row by names that begin with `prefix`. A destination may be a client prefix, which stays."""
    return row | {name: prefix + row[name] for name in NAMES if row.get(name) and "/" not in row[name]}


def back(row: Row, prefix: str) -> Row:
    """The same row by its own names."""
    return row | {name: row[name].removeprefix(prefix) for name in NAMES if name in row}


class Rolled:
    """Samples over the fleet of path_traffic, and what was decided for its paths; then what the roll-up shows of them.

    What a roll-up takes of all PoPs is the same for every case: which rounds have decisions, and how often the middle
    host polls. What a case decided last holds in the rounds in which only others decided, as it does in the law's own
    decisions, which are of all paths each round.
    """

    opened: Callable[[], Store]

    def __init__(
        self,
        *batches: Sequence[Row],
        decided: Mapping[int, Gave] | Sequence[Row] = (),
        rounds: Sequence[int] = (ROUND,),
    ) -> None:
        """`decided`: as rows of path_decisions where they are none of path_traffic."""
        self.rounds = rounds
        self.batches = [[dict(row) for row in batch] for batch in batches]
        self.decisions = decision_rows(decided) if isinstance(decided, Mapping) else list(decided)
        self.prefix = ""
        polls = {
            (row["host"], row["boot_id"], row["poll_sequence"])
            for row in chain.from_iterable(self.batches)
            if row["kind"] == "POLL" and row["host"] in EDGES and row["time_unix_us"] >= (ROUND - INTERVAL) * 10**6
        }
        middle = median_low(Counter(host for host, *_ in polls).values())
        assert middle == 10, f"the middle host polls {middle} times, that of every other case 10 times"

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        store = home.open()
        for number, case in enumerate(cases):
            case.opened, case.prefix = home.open, f"c{number}-"
        pops = dict(chain.from_iterable(case._pops() for case in cases))
        # Rows name their PoP: prefixes only have to differ.
        for number, pop in enumerate(pops.values()):
            pop["prefixes"] = [f"fd78:{number:x}::/48"]
        publish_fleet(store, Fleet.model_validate({"version": 1, "pops": pops}))
        for batches in zip_longest(*(case.batches for case in cases), fillvalue=()):
            named = zip(cases, batches, strict=True)
            store.insert("tcp_samples", [apart(row, case.prefix) for case, batch in named for row in batch])
        moments = sorted({row["round"] for case in cases for row in case.decisions})
        store.insert("path_decisions", [row for case in cases for row in case._decided(moments)])
        for moment in sorted({moment for case in cases for moment in case.rounds}):
            rollup(store, moment, INTERVAL, ROUND + 60, paced=True)

    def _pops(self) -> Iterable[tuple[str, dict[str, Any]]]:
        for name, pop in yaml.safe_load(FLEET)["pops"].items():
            edges = {self.prefix + edge: values for edge, values in pop["edges"].items()}
            yield self.prefix + name, {"region": self.prefix + pop["region"], "edges": edges}

    def _decided(self, moments: Sequence[int]) -> Iterable[Row]:
        for moment in moments:
            last = max((row["round"] for row in self.decisions if row["round"] <= moment), default=None)
            yield from (apart(row | {"round": moment}, self.prefix) for row in self.decisions if row["round"] == last)

    def alone(self, store: Store) -> Rolled:
        """The same where a store has nothing else."""
        found = copy(self)
        found.opened, found.prefix = lambda: store, ""
        return found

    def rows(self, table: str, columns: str = "*", by: str = "src_pop") -> list[Row]:
        """Rows of a view of the case's rounds, in its own names."""
        mine = f"startsWith({by}, {{prefix:String}}) and has({{rounds:Array(UInt32)}}, toUnixTimestamp(round))"
        parameters: dict[str, Param] = {"prefix": self.prefix, "rounds": self.rounds}
        found = self.opened().query(f"select {columns} from {table} where {mine}", parameters)
        return [back(row, self.prefix) for row in found]

    def own(self, every: Frame) -> Frame:
        """The rows of the case's PoPs, in its own names."""
        prefix = self.prefix.encode()
        mine = every[np.char.startswith(every["src_pop"], prefix)]
        texts = [name for name in every.dtype.names or () if every.dtype[name].kind == "S"]
        names = {name: np.array([text.replace(prefix, b"") for text in mine[name].tolist()], "S64") for name in texts}
        found = Frame(every.dtype, {**mine.columns, **names})
        return found[np.argsort(keys(found), kind="stable")]

    def observe(self, law: StartPolicy | None = None) -> Frame:
        """The law's evidence."""
        return self.own(observe(self.opened(), ROUND, law or StartPolicy()))

    def contents(self) -> list[list[Row]]:
        """Every byte of what the round shows of paths."""
        states = ", ".join(f"hex({name}_state) as {name}_state" for name in ("share", "reached", "path"))
        found = [
            sorted(self.rows("round_paths", f"* replace ({states})"), key=unit_of),
            sorted(self.rows("round_path_starts"), key=lambda row: (*unit_of(row), row["host"])),
            sorted(self.rows("round_flights", by="host"), key=lambda row: (row["host"], row["cookie"])),
        ]
        assert all(found)
        return found

    def seen(self, unit: Unit, law: StartPolicy | None = None) -> dict[str, Any]:
        """The law's evidence of a unit, and what analysts see besides, as path_traffic.seen."""
        return evidence(unit, self.observe(law), self.rows("round_paths", ", ".join(BESIDES)))
