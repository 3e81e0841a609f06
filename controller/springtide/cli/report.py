"""springtide report"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    fleet_option,
    json_option,
    policy_option,
    read_fleet,
    read_policy,
    span_options,
    store_options,
    time_span,
)
from springtide.cli.output import print_json, print_table
from springtide.errors import SpringtideError
from springtide.learn import benefits
from springtide.learn import report as reports
from springtide.learn.report_page import cells, methods, page
from springtide.learn.slices import HEAD


@click.command()
@span_options
@click.option(
    "--quantile",
    type=click.FloatRange(0.05, 0.95),
    help="The quantile of prefixes or edges that is compared, the median by default; 0.1 is the slowest tenth.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots as well.")
@json_option
@fleet_option
@policy_option
@store_options
def report(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    from_text: str | None,
    to_text: str | None,
    quantile: float | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Report the decisions' benefit: treated against held-out, with confidence intervals.

    For BBR, the delivery rate of chosen prefixes by PoP, prefix class and round-trip time, and goodput by size of
    object; for initial windows, how long connections between PoPs were busy; for starts at a rate, the time of 100 kB
    by PoP, and its 50th, 90th and 95th percentile by path. As `springtide measure` last kept it; of other rounds with
    --from or --to.

    Each difference is given twice: over all units as decided, and over those whose sockets show the decided value.
    Where fleet.yaml has tenants, or `springtide asn` has loaded a table, connections are shown by tenant too, and
    those to clients by autonomous system.

    \b
    Examples:
      springtide report
      springtide report --from -6h --html report.html
      springtide report --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z --json
    """
    fleet = read_fleet(fleet_path)
    policy = read_policy(policy_path)
    since, until = time_span(from_text, to_text, policy)
    is_own = bool(from_text or to_text or quantile)
    with store.open() as opened:
        measured = benefits.Measured() if is_own else benefits.newest(opened, until)
        if not measured.lines:
            measured = benefits.measure(opened, fleet, policy, since, until, quantile or 0.5)
        made = reports.make(opened, fleet, policy, measured)
    if html is not None:
        try:
            html.write_text(page(made))
        except OSError as error:
            raise SpringtideError(f"{html}: cannot be written: {error.strerror}; choose another --html") from error
    if as_json:
        print_json({**made.as_dict(), "quantile": quantile or 0.5})
        return
    columns = ["law", "outcome", "units", "by", "group", "treated", "held out", "difference", "interval"]
    table = [(line.law, *cells(line)) for line in made.lines]
    print_table(columns, table, title=f"After {instants.show(made.since)} up to {instants.show(made.until)}")
    for law in dict.fromkeys(line.law for line in made.lines):
        for text in methods([line for line in made.lines if line.law == law]):
            click.echo(f"{law}: {text}")
    shown = sum(line.effect.shown for line in made.lines)
    click.echo(f"{shown} of {len(made.lines)} differences are significant: their intervals exclude zero")
    if made.remedy:
        click.echo(made.remedy)
    for title, found in (("By tenant", made.tenants), ("Clients by autonomous system", made.systems)):
        if found:
            print_table(list(HEAD[1:]), [one.cells()[1:] for one in found], title=title)
