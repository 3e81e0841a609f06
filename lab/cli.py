"""The lab's command line. Exit codes: 0 done, 1 failed at run time, 2 bad input, usage or machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab import host, sizes, state, teardown
from lab.errors import InputError, LabError
from lab.fleet import fleet
from lab.lab import Lab
from lab.summarise import by_pair, window_table
from lab.topology import Pair, load_topology

# Progress goes to standard error, so that standard output stays what a program can read.
_err = Console(stderr=True)

_NAME = click.option("--lab", "name", metavar="NAME", help="Which lab, when more than one is up.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_FILE = click.argument("topology", type=click.Path(path_type=Path))


class _Group(click.Group):
    """Ends in one line on standard error instead of a traceback; imports `demo` and `truth` when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "demo", "truth"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "demo":
            from lab.demo.command import demo

            return demo
        if cmd_name == "truth":
            from lab.truth.command import truth

            return truth
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LabError as error:
            click.echo(f"lab: {error}", err=True)
            ctx.exit(error.exit_code)


def _epilog(*examples: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  python -m lab {example}" for example in examples)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_epilog("up lab/topologies/demo.yaml", "probe --count 5", "clean"),
)
def main() -> None:
    """PoPs as network namespaces on this machine, with an emulated wide-area network between them."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: FrameType | None) -> NoReturn:
    # As an exception, so that a lab that is being made is taken down again.
    sys.exit(128 + number)


@main.command(epilog=_epilog("up lab/topologies/demo.yaml", "up lab/topologies/pair.yaml --name mine --json"))
@_FILE
@click.option("--name", metavar="NAME", help="The lab's name, instead of the file's.")
@_JSON
def up(topology: Path, name: str | None, as_json: bool) -> None:
    """Make the lab of a TOPOLOGY file and leave it up."""
    lab = Lab.up(topology, name)
    if as_json:
        click.echo(json.dumps(lab.status()))
        return
    _show_status(lab)
    click.echo(f"Next: python -m lab probe --lab {lab.name} --count 3; at the end: python -m lab clean {lab.name}")


@main.command(
    context_settings={"ignore_unknown_options": True},
    epilog=_epilog("exec ams-1 -- ip route", "exec ams-1 -- bash"),
)
@click.argument("edge")
@click.argument("command", nargs=-1, required=True)
@_NAME
def exec(edge: str, command: Sequence[str], name: str | None) -> None:
    """Run a COMMAND on an EDGE, in the foreground."""
    line = _attach(name).command(edge, command)
    os.execvp(line[0], line)  # noqa: S606


@main.command(epilog=_epilog("load --seconds 60", "load --seconds 30 --json"))
@click.option("--seconds", type=click.FloatRange(1, 3600), default=60.0, show_default=True, help="How long.")
@_NAME
@_JSON
def load(seconds: float, name: str | None, as_json: bool) -> None:
    """Put the topology's traffic on the lab, and print the windows that it reached."""
    lab = _attach(name)
    with lab.load(seconds + 5) as load, _progress("load", "s") as bar:
        task = bar.add_task("load", total=int(seconds))
        for _ in range(int(seconds)):
            time.sleep(1)
            bar.advance(task)
            if not load.running():
                break
        windows = lab.windows()
        done = load.stop()
    if as_json:
        click.echo(json.dumps({**asdict(done), "windows": [asdict(window) for window in windows]}))
        return
    Console().print(window_table(windows))
    click.echo(f"{done.requests} requests, {done.bytes / 1e6:.1f} MB, {done.errors} errors")


@main.command(epilog=_epilog("probe --count 5", "probe --pair ams:sin --size 100000 --json > probes.jsonl"))
@click.option(
    "--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="Probes of each size and pair."
)
@click.option("--size", "probe_sizes", type=int, multiple=True, default=sizes.PROBES, show_default=True, help="Bytes.")
@click.option("--pair", "pairs", metavar="SRC:DST", multiple=True, help="Serving and asking PoP; default: all pairs.")
@click.option(
    "--spacing", "spacing_s", type=click.FloatRange(0.001, 60), default=0.2, show_default=True, help="Seconds."
)
@_NAME
@_JSON
def probe(
    count: int, probe_sizes: Sequence[int], pairs: Sequence[str], spacing_s: float, name: str | None, as_json: bool
) -> None:
    """Fetch objects over fresh connections and time them. With --json one line for each probe."""
    lab = _attach(name)
    chosen = [_pair(text) for text in pairs] or None
    with _progress("probes") as bar:
        task = bar.add_task("probes", total=None)
        probes = lab.probe(
            count,
            probe_sizes,
            chosen,
            spacing_s,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        for one in probes:
            click.echo(json.dumps(asdict(one)))
    else:
        Console().print(by_pair(probes))
    failed = [one for one in probes if not one.ok]
    if failed:
        raise LabError(f"{len(failed)} of {len(probes)} probes failed; the first: {failed[0].error}")


@main.command(epilog=_epilog("status", "status --json"))
@_NAME
@_JSON
def status(name: str | None, as_json: bool) -> None:
    """Show what is up, and what the emulated paths did."""
    lab = _attach(name)
    if as_json:
        click.echo(json.dumps(lab.status() | {"wan_counters": lab.wan_counters()}))
        return
    _show_status(lab)
    table = Table("path", "packets", "bytes", "lost", "queue drops", "policed", "duplicates")
    for path in lab.wan_counters()["paths"]:
        numbers = [str(path[key]) for key in ("packets", "bytes", "lost", "queue_drops", "policed", "duplicates")]
        table.add_row(f"{path['src']} > {path['dst']}", *numbers)
    Console().print(table)


@main.command(epilog=_epilog("clean", "clean demo"))
@click.argument("labs", nargs=-1)
@_JSON
def clean(labs: Sequence[str], as_json: bool) -> None:
    """Take down the named LABS, or every lab of this machine, however its process ended."""
    found = state.names()
    if labs or found:
        host.need_root("clean")
    removed: list[teardown.Removed] = []
    errors: list[LabError] = []
    for name in labs or found:
        try:
            removed.append(teardown.take_down(name))
        except LabError as error:
            errors.append(error)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in removed]))
    else:
        for one in removed:
            click.echo(f"lab {one.lab}: removed {one.namespaces} namespaces, ended {one.processes} processes")
        if not labs and not found:
            click.echo("no lab is up: nothing to remove")
    if errors:
        raise type(errors[0])("\n".join(map(str, errors)))


@main.command("fleet", epilog=_epilog("fleet lab/topologies/demo.yaml > fleet.yaml"))
@_FILE
@_JSON
def print_fleet(topology: Path, as_json: bool) -> None:
    """Print the fleet.yaml of a TOPOLOGY file."""
    found = fleet(load_topology(topology))
    click.echo(json.dumps(found) if as_json else yaml.safe_dump(found, sort_keys=False), nl=as_json)


def _attach(name: str | None) -> Lab:
    host.need_root("a lab")
    if name is None:
        names = state.names()
        if len(names) != 1:
            known = f"these are up: {', '.join(names)}; choose with --lab" if names else "none is up; begin with `up`"
            raise InputError(f"which lab? {known}")
        name = names[0]
    return Lab.attach(name)


def _pair(text: str) -> Pair:
    src, colon, dst = text.partition(":")
    if not colon:
        raise InputError(f"--pair {text}: is not SRC:DST; name the serving PoP, a colon, and the requesting PoP")
    return src, dst


def _progress(what: str, unit: str = "") -> Progress:
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn())
    return Progress(*columns, console=_err, disable=not _err.is_terminal, transient=True)


def _show_status(lab: Lab) -> None:
    found = lab.status()
    table = Table("edge", "PoP", "namespace", "addresses", "enforces by", "nginx", title=f"lab {lab.name}")
    for edge, about in found["edges"].items():
        runs = "runs" if about["nginx"] else "has ended"
        table.add_row(edge, about["pop"], about["namespace"], " ".join(about["addresses"]), about["enforce"], runs)
    Console().print(table)
    click.echo(f"emulator {'runs' if found['wan'] else 'has ended'}; logs in {found['directory']}")
