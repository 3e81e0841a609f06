"""springtide advise"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    json_option,
    policy_option,
    read_policy,
    span_options,
    store_options,
    time_span,
)
from springtide.cli.output import print_json, print_table
from springtide.errors import SpringtideError, ThinInputError
from springtide.learn import losses
from springtide.learn.advise import MAX_UNITS, Advice
from springtide.learn.advise import advise as run
from springtide.learn.advise_page import page
from springtide.learn.advise_words import COLUMNS, NARROW, cells, headline, notes
from springtide.store import Store

# Columns of a terminal that all of a table's need.
WIDE = 150


@click.command()
@span_options
@click.option(
    "--top",
    type=click.IntRange(1, MAX_UNITS),
    default=100,
    show_default=True,
    metavar="N",
    help="How many paths are shown, those first that save most.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots as well.")
@json_option
@policy_option
@store_options
def advise(
    store: StoreOptions,
    policy_path: Path,
    from_text: str | None,
    to_text: str | None,
    top: int,
    html: Path | None,
    as_json: bool,
) -> None:
    """Show what you would gain if connections started at the rate that their path has proved, and what it would risk.

    From samples alone: `springtide migrate` and `ingest` suffice. Nothing is decided, written or pushed, and no edge
    needs to be able to pace. The newest day by default, up to now.

    For each ordered pair of PoPs, and each client prefix: how much sooner answers of 10, 50 and 100 kB and 1 MB would
    be there than with the kernel's default start. The default's time is that of answers that began with it, else its
    best: slow start from ten segments, without loss. Rates that nothing but the path limited are the path's. Where
    there are too few, the others are a lower bound, and the saving reads >=. In all: for the connections that began,
    each as if what it sent were one answer.

    Below it, what loss costs: how much longer connections took that lost something, what waited for retransmission
    timeouts, and handshakes that were sent again; and what a timeout of handshakes of their own would save.

    Exit codes: 0, 1 a failure at run time, 2 bad input or usage, 3 no samples to advise from.

    \b
    Examples:
      springtide advise
      springtide advise --html advice.html
      springtide advise --from 2026-01-02T00:00:00Z --to 2026-01-02T06:00:00Z --top 10 --json
    """
    policy = read_policy(policy_path)
    since, until = time_span(from_text, to_text, policy)
    if to_text is None:
        until = instants.now()
    with store.open() as opened:
        made = run(opened, policy, since, until)
        if not made.paths:
            raise ThinInputError(_why_not(opened, made))
    if html is not None:
        try:
            html.write_text(page(made, top), encoding="utf-8")
        except OSError as error:
            raise SpringtideError(f"{html}: cannot be written: {error.strerror}; choose another --html") from error
    if as_json:
        print_json(made.as_dict(top))
        return
    click.echo(headline(made))
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE
    shown = NARROW if narrow else COLUMNS
    rows = [[row[name] for name in shown] for row in map(cells, made.paths[:top])]
    print_table(shown, rows, title=f"After {instants.show(since)} up to {instants.show(until)}")
    for line in notes(made, top):
        click.echo(line)
    _loss(made.loss, losses.NARROW if narrow else losses.COLUMNS)


def _loss(found: losses.Losses, shown: Sequence[str]) -> None:
    lines = list(found.lines())
    if not lines:
        return
    click.echo()
    rows = [[row[name] for name in shown] for row in found.table()]
    print_table(shown, rows, title="What loss costs")
    for line in (*lines, losses.KEY):
        click.echo(line)


def _why_not(store: Store, made: Advice) -> str:
    """Says what is missing, and what to do."""
    span = f"after {instants.show(made.since)} up to {instants.show(made.until)}"
    [ever] = store.query("select max(time_unix_us) from tcp_samples")
    newest = max(ever.values()) // 1_000_000
    if newest > instants.now() + instants.CLOCK_TOLERANCE_S:
        return f"{span}: no rates; the newest sample is of {instants.show(newest)}, later than now: correct that clock"
    if made.unknown:
        return f"{span}: no connection shows a rate on any of {made.unknown} paths; let collectors run for longer"
    [within] = store.query(
        """
        select max(time_unix_us) from tcp_samples
        where time_unix_us > {since_us:Int64} and time_unix_us <= {until_us:Int64}
        """,
        {"since_us": made.since * 1_000_000, "until_us": made.until * 1_000_000},
    )
    if max(within.values()):
        return (
            f"{span}: no sample is of a host that is an edge in fleet.yaml, with a connection to another PoP or a "
            "client; correct its edges' names and addresses, then `springtide ingest` again"
        )
    if newest:
        return f"{span}: no samples; the newest is of {instants.show(newest)}: give --from and --to"
    return "the store has no samples; load some first: `springtide ingest SPOOL_DIR`"
