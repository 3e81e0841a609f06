"""`python -m lab demo`"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import click
from rich.console import Console

from lab.demo.product import COLLECTOR, EDGE
from lab.demo.run import TOPOLOGY, Demo
from lab.demo.starts import PACED_ROUNDS, ROUNDS, rounds_of
from lab.errors import InputError
from lab.lab import Lab
from lab.topology import Topology, load_topology


@click.command(
    epilog="\b\nExamples:\n  python -m lab demo\n  python -m lab demo --out /tmp/demo --json > summary.json\n"
    "  python -m lab demo --topology lab/topologies/short.yaml --rounds 3 --out /tmp/short",
)
@click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path),
    show_default="the demo's own, by bpf where this kernel can",
    help="Two PoPs or more (lab/topologies/README.md).",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 20),
    show_default=f"{ROUNDS}, {PACED_ROUNDS} where edges enforce by bpf",
    help="Decide, push and probe so many times: each decision sees what the one before has done.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default="out/demo", show_default=True, help="Emptied, then filled."
)
@click.option("--name", help="The lab's name, instead of the file's: two can run side by side.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json instead of the tables.")
def demo(file: Path | None, rounds: int | None, out: Path, name: str | None, as_json: bool) -> None:
    """Run the closed loop on a topology: measure, learn, apply, measure again, and let it expire.

    Takes about four minutes: one for each round, and one. Leaves report.html, summary.json, status.txt, the
    spools, the store and the bundles in --out, and env, which a shell reads so that `springtide` works on them.
    """
    if not COLLECTOR.is_file():
        raise InputError(f"{COLLECTOR}: no such program: run `make setup`")
    if (
        out.exists()
        and any(out.iterdir())
        and not (out / "summary.json").exists()
        and not (out / "fleet.yaml").exists()
    ):
        raise InputError(f"{out}: is not empty and not a demo's: choose another --out")
    screen = Console(stderr=True)
    topology = load_topology(file or TOPOLOGY)
    _check(file or TOPOLOGY, topology)
    if file is None:
        topology = as_this_host_can(topology, screen)
    with Lab.up(topology, name) as lab:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        run = Demo(out.resolve(), lab, screen, rounds or rounds_of(topology))
        facts = run.run(tables=not as_json)
    if as_json:
        click.echo(json.dumps(facts))
    screen.print(
        f"[bold]{out}/report.html[/] shows it; {out}/summary.json has the numbers", highlight=False, soft_wrap=True
    )


def as_this_host_can(topology: Topology, screen: Console) -> Topology:
    """Edges enforce by eBPF, or by routes where this kernel does not take the program."""
    done = subprocess.run([EDGE, "check", "--json"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        screen.print("edges enforce by bpf: this kernel takes the program", highlight=False)
        return topology.model_copy(update={"enforce": "bpf"})
    why = json.loads(done.stdout)["bpf"]["reason"] if done.stdout else done.stderr.strip()
    screen.print(f"edges enforce by routes: {why}", highlight=False, soft_wrap=True)
    return topology


def _check(file: Path, topology: Topology) -> None:
    """Raises InputError where there is nothing to probe, or a round trip is nothing to save."""
    if len(topology.pops) < 2:
        raise InputError(f"{file}: pops: has one PoP, and the loop runs between PoPs; add a second")
    pairs = topology.busy_pairs()
    if not pairs:
        raise InputError(
            f"{file}: traffic.silent: leaves no pair with traffic to learn from and to probe; take one out"
        )
    if not max(topology.rtt(*pair) for pair in pairs):
        raise InputError(f"{file}: rtt_ms: is 0 on every pair with traffic, so no round trip can be saved; give one")
