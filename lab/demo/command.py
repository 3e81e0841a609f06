"""`python -m lab demo`"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
from rich.console import Console

from lab.demo.product import COLLECTOR
from lab.demo.run import TOPOLOGY, Demo
from lab.errors import InputError
from lab.lab import Lab


@click.command(
    epilog="\b\nExamples:\n  python -m lab demo\n  python -m lab demo --out /tmp/demo --json > summary.json",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default="out/demo", show_default=True, help="Emptied, then filled."
)
@click.option("--name", default="demo", show_default=True, help="Call the lab this: two can run side by side.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json instead of the tables.")
def demo(out: Path, name: str, as_json: bool) -> None:
    """Run the closed loop on four PoPs: measure, learn, apply, measure again, and let it expire.

    Takes about three minutes. Leaves report.html, summary.json, status.txt, the spools, the store and the bundles in
    --out, and env, which a shell reads so that `springtide` works on them.
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
    with Lab.up(TOPOLOGY, name) as lab:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        run = Demo(out.resolve(), lab, screen)
        facts = run.run(quiet=as_json)
    if as_json:
        click.echo(json.dumps(facts))
    screen.print(
        f"[bold]{out}/report.html[/] shows it; {out}/summary.json has the numbers", highlight=False, soft_wrap=True
    )
