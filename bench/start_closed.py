"""Springtide's starts from nothing but what its edges saw: collector, spool, ingest, decide, bundle, edge, as command
lines of the product, round after round while the load goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path as File
from typing import Any

import yaml

from bench.runner import progress
from bench.start_paths import EDGES, SERVER, Path, edge_of
from lab.demo import starts
from lab.demo.edges import edge_command, start_collector
from lab.demo.product import Springtide, make_publisher
from lab.demo.run import POLICY, SEALED_S, instant
from lab.fleet import fleet
from lab.lab import Lab

POLL_INTERVAL = "1s"


class Closed:
    """A store, a fleet of these edges, or this way's, and a collector on each; as `start_ways.Springtide`."""

    def __init__(self, directory: File, rounds: int, edges: Sequence[str] = ()) -> None:
        self._out, self._rounds = directory, rounds
        self._begun = False
        self._product = Springtide(
            directory / "store", directory / "fleet.yaml", directory / "policy.yaml", directory / "publish"
        )
        self._edges = edges or [edge_of("springtide", number) for number in range(EDGES)]
        self._interval_s = 0
        self.entries: Mapping[str, Sequence[Mapping[str, Any]]] = {}

    @contextmanager
    def running(self, lab: Lab) -> Iterator[None]:
        """The product is set up, and its collectors watch."""
        self._configure(lab)
        collectors = [
            start_collector(lab, edge, SERVER, self._out / "spool" / edge, POLL_INTERVAL) for edge in self._edges
        ]
        try:
            yield
        finally:
            for one in collectors:
                one.terminate()
            for one in collectors:
                one.wait(10)

    def __call__(self, lab: Lab, paths: Sequence[Path], edges: int, learn: Callable[[float], None]) -> None:
        # Knowledge of the paths stays; what is beside it, or who else starts, is new.
        rounds = max(2, self._rounds // 2) if self._begun else self._rounds
        self._begun = True
        for number in range(rounds):
            self.one_round(lab, learn)
            known = sum("start_rate" in one for found in self.entries.values() for one in found)
            trials = sum("trial" in one for found in self.entries.values() for one in found)
            progress(f"round {number + 1} of {rounds}, {edges} edges: {known} entries, {trials} on trial")

    def one_round(self, lab: Lab, learn: Callable[[float], None]) -> None:
        """The next round with this traffic, to what it decides on the edges."""
        end = (int(time.time()) // self._interval_s + 1) * self._interval_s
        # A round that has hardly begun is waited for whole, one that is nearly over left out.
        if end - time.time() < self._interval_s / 2:
            end += self._interval_s
        learn(end + SEALED_S - time.time())
        self._round(lab, end)

    def _configure(self, lab: Lab) -> None:
        found = fleet(lab.topology)
        # The other ways' edges are none of this fleet's.
        server = found["pops"][SERVER]
        server["edges"] = {edge: server["edges"][edge] for edge in self._edges}
        self._product.fleet.write_text(yaml.safe_dump(found, sort_keys=False))
        policy = yaml.safe_load(POLICY.read_text()) | starts.policy(lab.topology)
        self._interval_s = int(policy["round"]["interval_s"])
        self._product.policy.write_text(yaml.safe_dump(policy, sort_keys=False))
        self._product.text("check")
        self._product.text("migrate")
        make_publisher(self._out / "publisher", self._out / "allowed_signers")

    def _round(self, lab: Lab, round_s: int) -> None:
        self._product.json("ingest", str(self._out / "spool"))
        for law in starts.laws(lab.topology):
            # Exit code 3: the round lacks samples, and the last decisions stay.
            self._product.text("decide", law, "--round", instant(round_s), accept=(0, 3))
        folder = File(self._product.json("publish", "--sign-key", str(self._out / "publisher"))["folder"])
        files = {edge: folder / "edges" / f"{edge}.json" for edge in self._edges}
        for edge, file in files.items():
            signers = ["--allowed-signers", str(self._out / "allowed_signers")]
            edge_command(lab, edge, self._out / "edges" / edge, "apply", str(file), *signers)
        self.entries = starts.published(files.values())
