"""springtide ingest"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from springtide.cli.options import StoreOptions, fleet_option, is_terminal, json_option, read_fleet, store_options
from springtide.cli.output import print_json
from springtide.errors import InputError, Problem, SpringtideError
from springtide.observe.ingest import Summary, folders, waiting_bytes
from springtide.observe.ingest import ingest as run


@click.command()
@click.argument("spool_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--delete", is_flag=True, help="Remove files that are wholly loaded.")
@json_option
@fleet_option
@store_options
def ingest(spool_dir: Path, store: StoreOptions, fleet_path: Path, delete: bool, as_json: bool) -> None:
    """Load the sealed spool files of SPOOL_DIR, and of each folder in it, each record once.

    A folder for each edge, as the play `spools` leaves them, keeps what one of them sent apart. Files stay where they
    are unless --delete is given; a second run adds nothing. After a kill rows may be stored twice until they merge:
    `final` and the round tables count them once. Bytes that are not valid records are copied to `rejected` beside them
    and reported; so are unreadable files, and records with an invalid sample (a state that is not in the contract, a
    time ten years off), whose other samples are loaded. Then the exit code is 2. It is 1 where such bytes could not be
    kept: the next run tries again. Without --delete a folder that has no spool file is an error (2).

    \b
    Examples:
      springtide ingest /var/spool/springtide
      springtide ingest /var/spool/springtide --delete --json
    """
    fleet = read_fleet(fleet_path)
    columns = (TextColumn("ingest"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), disable=not is_terminal())
    with store.open() as opened, progress:
        # Counted once the store is open: until then another ingest may have removed files.
        found = folders(spool_dir)
        task = progress.add_task("ingest", total=sum(map(waiting_bytes, found)))
        summary = Summary()
        for folder in found:
            summary += run(opened, fleet, folder, delete=delete, on_progress=lambda size: progress.advance(task, size))
    if not (delete or summary.files or summary.problems):
        fix = "name the folder that collectors' files are in"
        raise InputError(
            [Problem(str(spool_dir), "folder", "has no sealed spool file (*.spool), here or one below", fix)]
        )
    if as_json:
        print_json(summary.as_json())
    else:
        known = f", {summary.already_loaded} records known from before" if summary.already_loaded else ""
        bad = (
            f", {summary.rejected_records} rejected ({summary.rejected_bytes} bytes)"
            if summary.rejected_records
            else ""
        )
        none = f", {summary.unreadable_files} files unreadable" if summary.unreadable_files else ""
        removed = f", {summary.deleted_files} files removed" if delete else ""
        click.echo(
            f"{summary.files} files: {summary.rows} rows in {summary.records} records loaded{known}{bad}{none}{removed}"
        )
    if summary.unkept_records:
        raise SpringtideError("\n".join(map(str, summary.problems)))
    if summary.problems:
        raise InputError(summary.problems)
