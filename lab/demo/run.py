"""The closed loop on one machine: measure, learn, apply, measure again, and take it back."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lab import nginx, sizes
from lab.demo import starts
from lab.demo.edges import CloseWatch, edge_command, routing, start_collector
from lab.demo.product import COLLECTOR, ROOT, Springtide, make_publisher, shell_note
from lab.demo.push import Push
from lab.demo.report import page
from lab.demo.summary import Group, Phase, Route, Transfer, by_group, has_ended, spread, summary
from lab.demo.tables import conditions_text, paths_table, results_table, worse_text
from lab.errors import LabError
from lab.fleet import fleet
from lab.lab import Lab
from lab.topology import Pair

TOPOLOGY = ROOT / "lab/topologies/demo.yaml"
POLICY = Path(__file__).with_name("policy.yaml")
POLL_INTERVAL = "1s"
AT_ONCE = 3  # rounds are decided before each push, so that a slow machine does not fall behind
LEARN_S = 30  # of traffic after the first probes: windows grow, and more than one round smooths
PROBES = 20  # of each size on each pair
SPACING_S = 0.2  # between the probes of a pair
SEALED_S = 3  # after a round's end its last samples are in files
LOAD_S = 1800  # at most: the load stops with the lab
# Life of the last bundles, so that they are seen to expire: this and three times what the push before took.
LAST_TTL_S = 20
# Commands to try afterwards, in the shell that has read `env`.
LOOK = (
    ("springtide status", "nothing runs any more: it shows what is late"),
    ("springtide explain {src} {dst}", "why a pair has its window"),
    ("springtide sql windows-now", "a question to the data; `springtide sql` lists them"),
    ("springtide history", "who pushed what, and how it went"),
)


def instant(unix_s: int) -> str:
    """As Springtide writes instants."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Demo:
    """One run. Progress goes to stderr, results to stdout, files to `out`."""

    def __init__(self, out: Path, lab: Lab, screen: Console, rounds: int) -> None:
        self.out, self.lab, self.screen, self.rounds = out, lab, screen, rounds
        self.topology = lab.topology
        self.pairs = self.topology.busy_pairs()
        self.pop_of_edge = self.topology.edges()
        # Edges are probed in this version.
        self.ip_version = self.topology.address(next(iter(self.pop_of_edge))).version
        self.product = Springtide(out / "store", out / "fleet.yaml", out / "policy.yaml", out / "publish")
        self.publisher, self.allowed_signers = out / "publisher", out / "allowed_signers"
        self.push = Push(out, self.product, sorted(self.pop_of_edge), lab.command, lab.enforcing)
        self.policy: dict[str, Any] = yaml.safe_load(POLICY.read_text())
        self.laws = starts.laws(self.topology)
        self.entries: Mapping[str, list[Mapping[str, Any]]] = {}  # of the newest bundles, by edge
        self.interval_s = int(self.policy["round"]["interval_s"])
        self.decided_s = 0  # the last decided round
        self.pushed_s = 0.0  # the last push
        self.samples = 0
        self.begin = time.monotonic()

    def print_step(self, text: str) -> None:
        """One step's headline, with the seconds since the start."""
        self.screen.print(
            f"[bold cyan]{time.monotonic() - self.begin:5.0f} s[/]  {text}", highlight=False, soft_wrap=True
        )

    def configure(self) -> None:
        """fleet.yaml and policy.yaml, checked; an empty store."""
        self.product.fleet.write_text(yaml.safe_dump(fleet(self.topology), sort_keys=False))
        shutil.copy(POLICY, self.product.policy)
        if more := starts.policy(self.topology):
            self.policy.update(more)
            self.product.policy.write_text(yaml.safe_dump(self.policy, sort_keys=False))
        self.product.text("check")
        self.product.text("migrate")
        make_publisher(self.publisher, self.allowed_signers)
        self.push.prepare()

    def conditions(self) -> dict[str, Any]:
        """Conditions of the numbers besides the paths."""
        return {
            "topology": self.topology.name,
            "rounds": self.rounds,
            "round_s": self.interval_s,
            "probes_of_each_size": PROBES,
            "gate": False,
            "sysctls": self.topology.sysctl_values(),
        }

    @contextlib.contextmanager
    def collectors(self) -> Iterator[None]:
        """A collector on every edge, and at the end their last samples sealed."""
        running = [
            start_collector(self.lab, edge, pop, self.out / "spool" / edge, POLL_INTERVAL)
            for edge, pop in self.pop_of_edge.items()
        ]
        try:
            yield
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(10) for process in running]
        if any(codes):
            raise LabError(f"collectors ended with exit codes {codes}: run `{COLLECTOR} once` to see why")

    def ingest(self) -> None:
        """Loads what the edges' spools have gained."""
        self.samples += int(self.product.json("ingest", str(self.out / "spool"))["rows"])

    def wait_until(self, unix_s: float, what: str) -> None:
        """A progress bar on a terminal until `unix_s`."""
        start = time.time()
        columns = (TextColumn(f"         {what}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.screen, transient=True, disable=not self.screen.is_terminal) as progress:
            task = progress.add_task(what, total=max(0.001, unix_s - start))
            while (left := unix_s - time.time()) > 0:
                time.sleep(min(0.5, left))
                progress.update(task, completed=time.time() - start)

    def probe(self, name: str) -> Phase:
        """Fresh connections of every size over every pair with traffic, and what their senders' kernels counted."""
        addresses = {
            str(address): pop
            for pop, about in self.topology.pops.items()
            for edge in about.edges.values()
            for address in edge.addresses
        }
        rtts = {pair: self.topology.rtt(*pair) for pair in self.topology.pairs()}
        watch = CloseWatch(self.lab, self.pop_of_edge, addresses, rtts, self.out / name)
        columns = (TextColumn(f"         probes, {name}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        with watch, Progress(*columns, console=self.screen, transient=True, disable=not self.screen.is_terminal) as bar:
            task = bar.add_task(name, total=None)
            probes = self.lab.probe(
                PROBES,
                sizes.PROBES,
                self.pairs,
                SPACING_S,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
            # The last connections close a round trip after their last byte.
            time.sleep(1)
        failed = [probe for probe in probes if probe.transfer_ms is None]
        wanted = {(src, dst, size) for src, dst in self.pairs for size in sizes.PROBES}
        none = wanted - {(one.src, one.dst, one.size_bytes) for one in probes if one.transfer_ms is not None}
        if none:
            src, dst, size = min(none)
            raise LabError(f"{src} to {dst}, {size} bytes: no probe came back; the first: {failed[0].error}")
        if failed:
            self.print_step(f"{len(failed)} of {len(probes)} probes failed; the first: {failed[0].error}")
        transfers = [
            Transfer(probe.src, probe.dst, probe.rtt_ms, probe.size_bytes, probe.transfer_ms)
            for probe in probes
            if probe.transfer_ms is not None
        ]
        return Phase(transfers, watch.closed(sizes.PROBES, nginx.PORT))

    def decide(self, round_s: int) -> list[dict[str, Any]]:
        """The round's decisions by pair; where too little of it arrived, the last ones stay in force (exit code 3).

        For an edge that enforces by eBPF they are those of the law of starts, where there is one.
        """
        found = {law: self.product.json("decide", law, "--round", instant(round_s), accept=(0, 3)) for law in self.laws}
        decisions: list[dict[str, Any]] = found["initcwnd"]["decisions"]
        known = f"{sum(1 for decision in decisions if decision['initcwnd'] is not None)} windows known"
        if starts.LAW in found:
            listed = [starts.decision(one) for one in found[starts.LAW]["decisions"]]
            known += f", {sum(1 for one in listed if one['initcwnd'] is not None)} starts"
            decisions = starts.merged(self.topology, decisions, listed)
        self.print_step(f"round {found['initcwnd']['round']}: {known}")
        return decisions

    def learn(self, seconds: float) -> list[dict[str, Any]]:
        """Decide the last rounds in their order, to the first that closes after so much traffic; its decisions."""
        last = (int(time.time() + seconds) // self.interval_s + 1) * self.interval_s
        first = max(self.decided_s + self.interval_s, last - (AT_ONCE - 1) * self.interval_s)
        decisions: list[dict[str, Any]] = []
        for round_s in range(first, last + 1, self.interval_s):
            self.wait_until(round_s + SEALED_S, "traffic flows, collectors watch")
            self.ingest()
            decisions = self.decide(round_s)
        self.decided_s = last
        return decisions

    def roll_out(self) -> datetime:
        """Bundles published, signed, validated, and on every edge; when they expire."""
        begin = time.monotonic()
        published = Path(self.product.json("publish", "--sign-key", str(self.publisher))["folder"])
        files = sorted(str(path) for path in (published / "edges").glob("*.json"))
        self.product.text("validate", *files, "--allowed-signers", str(self.allowed_signers))
        self.entries = starts.published(map(Path, files))
        self.print_step("bundles published, signed and validated; Ansible rolls them out: a canary a region, then all")
        # A demo has no minutes for a gate.
        self.push.play("rollout.yml", springtide_gate=False)
        self.pushed_s = time.monotonic() - begin
        return min(datetime.fromisoformat(json.loads(Path(file).read_text())["expires_at"]) for file in files)

    def expire(self, newest_s: int) -> None:
        """Push the same once more in bundles that live shortly, and wait until they have expired. They live from the
        newest round on."""
        self.policy["bundle"]["ttl_s"] = int(time.time()) - newest_s + LAST_TTL_S + int(3 * self.pushed_s)
        self.product.policy.write_text(yaml.safe_dump(self.policy, sort_keys=False))
        expiry = self.roll_out()
        self.wait_until(expiry.timestamp() + 1, f"until the bundles expire at {expiry:%H:%M:%S} UTC")
        self.on_every_edge("expire")

    def on_every_edge(self, *arguments: str) -> Mapping[str, dict[str, Any]]:
        """`springtide-edge` on each edge; `{edge}` in an argument is the edge's name."""
        return {
            edge: edge_command(
                self.lab,
                edge,
                self.out / "edges" / edge,
                *(argument.replace("{edge}", edge) for argument in arguments),
            )
            for edge in self.pop_of_edge
        }

    def restored(self, before: Mapping[str, str]) -> bool:
        """Whether every edge's rules and routes are what they were, no program is pinned, and new connections start
        small again."""
        same = all(routing(self.lab, edge) == before[edge] for edge in self.pop_of_edge)
        same &= not any(pins.exists() for edge in self.pop_of_edge if (pins := self.lab.pins(edge)))
        far = max(self.pairs, key=lambda pair: self.topology.rtt(*pair))
        again = self.lab.probe(3, [max(sizes.PROBES)], [far])
        times = [probe.transfer_ms for probe in again if probe.transfer_ms is not None]
        # 100 KB need three round trips from 10 segments, and one or two from what was learnt.
        return same and bool(times) and spread(times)["p50"] > 2.5 * self.topology.rtt(*far)

    def run(self, tables: bool = True) -> dict[str, Any]:
        """Every step in order; returns summary.json's content. Without `tables` none are printed."""
        self.configure()
        with self.lab.load(LOAD_S), self.collectors():
            self.print_step("load and collectors run on every edge; probing with the kernel's default of 10 segments")
            before = self.probe("before")
            untouched = {edge: routing(self.lab, edge) for edge in self.pop_of_edge}
            after: list[tuple[Phase, Mapping[Pair, Route]]] = []
            for number in range(1, self.rounds + 1):
                self.print_step(f"learning: a round every {self.interval_s} s")
                decisions = self.learn(LEARN_S if number == 1 else 0)
                self.roll_out()
                if number == self.rounds:
                    # Rounds go on while bundles are pushed; here nobody else decides them.
                    self.look_closer()
                    closing = self.status()
                applied = self.on_every_edge("status")
                routes = sum(int(answer["routes"]) for answer in applied.values())
                programs = sum(answer["enforced_by"] == "bpf" for answer in applied.values())
                by_program = f", {programs} edges with the program" if programs else ""
                self.print_step(f"{routes} routes in table 201{by_program}; probing again")
                after.append((self.probe("after" if self.rounds == 1 else f"after-{number}"), self.routes(decisions)))
            self.expire(self.look_closer())
            restored = self.restored(untouched)
            self.print_step("the bundles have expired: " + ("every edge is as it was" if restored else "NOT restored"))
        return self.finish(before, after, decisions, restored, closing if tables else "")

    def look_closer(self) -> int:
        """Decides the newest round, of what came since the last decision; its instant."""
        self.ingest()
        last = int(time.time() - SEALED_S) // self.interval_s * self.interval_s
        # A round that lacks samples is decided with exit code 3.
        for law in self.laws:
            self.product.text("decide", law, "--round", instant(last), accept=(0, 3))
        return last

    def routes(self, decisions: list[dict[str, Any]]) -> dict[Pair, Route]:
        """The probed paths, and what was decided for them in the IP version that is probed: windows, and for an edge
        that enforces by eBPF what its bundle starts connections with."""
        windows = {
            (decision["src_pop"], decision["dst_pop"]): decision["initcwnd"]
            for decision in decisions
            if decision["ip_version"] == self.ip_version
        }
        return {
            (src, dst): Route(
                self.topology.rtt(src, dst),
                self.topology.shape(src, dst).least_rate_mbit(),
                windows.get((src, dst)),
                self._start(src, dst),
            )
            for src, dst in self.pairs
        }

    def _start(self, src: str, dst: str) -> starts.Start | None:
        """By the bundle of the first edge of `src`; None where that enforces by routes."""
        edge = next(iter(self.topology.pops[src].edges))
        if self.topology.enforced_by(edge) != "bpf":
            return None
        to = self.topology.address(next(iter(self.topology.pops[dst].edges)))
        return starts.start_of(self.entries.get(edge, ()), str(to))

    def status(self) -> str:
        """The output of `springtide status`, kept in status.txt."""
        # On an overloaded machine something may be late: then it is reported.
        output = self.product.text("status", accept=(0, 1))
        (self.out / "status.txt").write_text(output)
        return output

    def finish(
        self,
        before: Phase,
        rounds: list[tuple[Phase, Mapping[Pair, Route]]],
        decisions: list[dict[str, Any]],
        restored: bool,
        closing: str,
    ) -> dict[str, Any]:
        """Write summary.json and report.html, print the tables; nothing is printed where `closing` is empty."""
        after = rounds[-1][0]
        rows = [
            {
                "src_pop": decision["src_pop"],
                "dst_pop": decision["dst_pop"],
                "value": decision["initcwnd"],
                "evidence": decision["connections_earned"],
                "reason": decision["reason"],
            }
            for decision in decisions
            if decision["ip_version"] == self.ip_version
        ]
        elapsed_s = time.monotonic() - self.begin
        facts = summary(
            before,
            rounds,
            rows,
            conditions=self.conditions(),
            restored=restored,
            samples=self.samples,
            elapsed_s=elapsed_s,
        )
        groups: list[Group] = by_group(before, after)
        (self.out / "env").write_text(
            self.product.environment() + shell_note(has_ended(groups, f"{datetime.now(UTC):%H:%M} UTC"))
        )
        (self.out / "summary.json").write_text(json.dumps(facts, indent=1) + "\n")
        (self.out / "report.html").write_text(page(before, after, groups, rows, facts))
        if not closing:
            return facts
        # A pipe has no width of its own.
        tables = Console(width=None if Console().is_terminal else 110)
        tables.print(results_table(groups))
        tables.print(paths_table(self.topology, rows, facts["pairs"]))
        tables.print(worse_text(facts["probes"], groups), soft_wrap=True, highlight=False)
        silent = ", ".join(f"{src} to {dst}" for src, dst in self.topology.pairs() if (src, dst) not in self.pairs)
        if silent:
            tables.print(f"Without traffic there is no window: {silent} keeps the kernel's default.")
        tables.print(conditions_text(self.conditions()), soft_wrap=True, highlight=False)
        tables.print("\nWhile the routes were applied, `springtide status` printed:", style="bold", highlight=False)
        print(closing, end="")
        tables.print("\nLook at what it left:", style="bold")
        env = self.out / "env"
        shown = env.relative_to(Path.cwd()) if env.is_relative_to(Path.cwd()) else env
        src, dst = self.pairs[0]
        for command, what in ((f"source {shown}", "so that `springtide` finds it"), *LOOK):
            print(f"  {command.format(src=src, dst=dst):<40} # {what}")
        return facts
