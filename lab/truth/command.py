"""`python -m lab truth`"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from lab import sizes
from lab.demo.product import COLLECTOR, ROOT
from lab.errors import InputError
from lab.lab import Lab
from lab.topology import Kind, load_topology
from lab.truth.run import Truth, empty, report


@click.command(
    epilog="\b\nExamples:\n  python -m lab truth\n  python -m lab truth --kind small --kind bulk --json > truth.json\n"
    "  python -m lab truth --topology lab/topologies/pair.yaml --kernel-defaults\n"
    "  python -m lab truth --initcwnd 100 --kind small\n"
    "  python -m lab truth --collapse-to 2 --rounds 3",
)
@click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path),
    default=ROOT / "lab/topologies/paths.yaml",
    show_default="lab/topologies/paths.yaml",
    help="Paths and load.",
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(list(sizes.KINDS)), help="Of traffic; all by default."
)
@click.option("--rounds", type=click.IntRange(1, 100), default=2, show_default=True, help="Of each kind.")
@click.option("--interval", type=click.IntRange(10, 300), default=20, show_default=True, help="Of a round, in seconds.")
@click.option("--kernel-defaults", is_flag=True, help="Leave tcp_slow_start_after_idle and tcp_rmem to the kernel.")
@click.option(
    "--initcwnd", type=click.IntRange(1, 1000), help="Routes give this window to every connection, as if learnt before."
)
@click.option(
    "--collapse-to",
    type=click.FloatRange(0.1, 1000),
    metavar="MBIT",
    help="Learn from chunks, then let every path fall to this rate: small answers flow, then mixed ones.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default="out/truth", show_default=True, help="Emptied, then filled."
)
@click.option("--name", help="The lab's name, instead of the file's.")
@click.option("--json", "as_json", is_flag=True, help="Print truth.json instead of the table.")
def truth(
    file: Path,
    kinds: Sequence[Kind],
    rounds: int,
    interval: int,
    kernel_defaults: bool,
    initcwnd: int | None,
    collapse_to: float | None,
    out: Path,
    name: str | None,
    as_json: bool,
) -> None:
    """Compare the windows that a round counts with what the emulated paths carried.

    Real sockets, read by the collector and rolled up as in a fleet; the truth is what the emulator carried of
    each connection within one base round trip, of late: the mean, weighted by bytes, for bulk, and the most for
    answers. `error` counts nothing between the two. Leaves truth.json, the spools and the store in --out.
    """
    if not COLLECTOR.is_file():
        raise InputError(f"{COLLECTOR}: no such program: run `make setup`")
    if out.exists() and any(out.iterdir()) and not (out / "fleet.yaml").exists():
        raise InputError(f"{out}: is not empty and no earlier comparison's: choose another --out")
    topology = load_topology(file)
    if kernel_defaults:
        left = dict.fromkeys(("net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_rmem"))
        topology = topology.model_copy(update={"sysctls": {**topology.sysctls, **left}})
    if not topology.busy_pairs():
        raise InputError(f"{file}: leaves no pair of PoPs with traffic; give one")
    empty(out)
    with Lab.up(topology, name, flows_interval_s=1) as lab:
        run = Truth(out.resolve(), lab, interval)
        for pair in topology.busy_pairs():
            run.apply(pair, initcwnd)
        if collapse_to is None:
            chosen = list(kinds or sizes.KINDS)
            found = report(run.kinds(chosen, rounds))
            shown = found["groups"]
        else:
            shown = run.collapse(rounds, collapse_to)
            found = {"collapse_to_mbit": collapse_to, "rounds": shown}
    text = json.dumps(found, indent=1)
    (out / "truth.json").write_text(text + "\n")
    if as_json:
        click.echo(text)
        return
    table = Table(*(shown[0] if shown else ["nothing was carried"]))
    for row in shown:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console(width=None if Console().is_terminal else 180).print(table)
    if collapse_to is None:
        for kind in chosen:
            click.echo(f"{kind}: {json.dumps(found['kinds'][kind])}")
        click.echo(f"all: {json.dumps(found['all'])}")
