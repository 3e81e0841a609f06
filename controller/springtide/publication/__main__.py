"""python -m springtide.publication: what plays record, from a shell.

For a site that pushes by something else than the plays, and for a publisher on which Ansible does not run. The plays'
modules call the same functions; this needs nothing but Python, and no module of the controller outside this package,
`springtide.errors` and `springtide.instants`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import SpringtideError
from . import offers
from .folder import PublishFolder
from .journal import Event
from .record import EVENTS, PARTS, record
from .withdrawal import end_withdrawal, withdraw


def _details(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 (argparse takes a ValueError)
    return found


def _folder(text: str) -> Path:
    if not text:
        # An unset variable of a shell: its working directory would be taken for the publisher's folder.
        raise ValueError("empty")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m springtide.publication", description=__doc__.partition("\n\n")[2])
    commands = parser.add_subparsers(dest="command", required=True)
    line = commands.add_parser("record", help="a line in the journal, and what holds on the fleet from then on")
    line.add_argument("--event", choices=EVENTS, required=True)
    line.add_argument("--publication", default="", metavar="NAME")
    line.add_argument("--verdict", default="", metavar="WORD", help="begun, done, failed, ...")
    line.add_argument("--reason", default="", metavar="TEXT")
    line.add_argument("--edges", default="", metavar="EDGE,...")
    line.add_argument("--details", type=_details, default={}, metavar="JSON")
    line.add_argument("--holds", choices=PARTS, help="the part of the publication that holds from then on")
    red = commands.add_parser("withdraw", help="let nothing be pushed, not even by a rollout that is running")
    red.add_argument("--reason", required=True, metavar="TEXT")
    commands.add_parser("end-withdrawal", help="push again")
    off = commands.add_parser("offer-default", help="offer every edge that pulls the kernel's default; prints whom")
    off.add_argument("--origin", type=_folder, required=True, metavar="DIR", help="need not be there")
    for each in (line, red, commands.choices["end-withdrawal"], off):
        each.add_argument("--publish-dir", type=_folder, required=True, metavar="DIR")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a failure at run time, 2 bad usage."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "withdraw":
            withdraw(given.publish_dir, given.reason)
        elif given.command == "end-withdrawal":
            end_withdrawal(given.publish_dir)
        elif given.command == "offer-default":
            print(*offers.withdraw(given.publish_dir, given.origin), sep="\n")
        else:
            event = Event(
                given.event,
                publication=given.publication,
                verdict=given.verdict,
                reason=given.reason,
                edges=[edge for edge in given.edges.split(",") if edge],
                details=given.details,
            )
            record(PublishFolder(given.publish_dir), event, given.holds)
    except SpringtideError as error:
        print(f"springtide.publication: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        where = error.filename or given.publish_dir
        print(f"springtide.publication: {where}: {error.strerror}; let this user write there", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
