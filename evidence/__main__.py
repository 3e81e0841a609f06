"""Measures what the sources claim beside what they state: python -m evidence [--quick] [--only ID ...]."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from bench.runner import ROOT, conditions, progress
from evidence import article, kernel, live, model, page, pages, paths, recovery
from evidence.claims import Claim, Measured, results
from evidence.part import Figure, Found, Part

PARTS: tuple[Part, ...] = (model.PART, kernel.PART, live.PART, paths.PART, article.PART, recovery.PART, page.PART)
QUICK_AT_ONCE = 2
CLAIMS: tuple[Claim, ...] = tuple(claim for part in PARTS for claim in part.claims)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when a part could not measure, 2 when it may not be run so."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    parts = chosen(options.only)
    if os.geteuid() != 0 and (needy := [part.name for part in parts if part.root]):
        print(
            f"evidence: {', '.join(needy)}: need root: they make network namespaces; run it with sudo", file=sys.stderr
        )
        return 2
    # Before it runs: the machine's load is that of others.
    where = conditions(given) | {"command": shlex.join(["python", "-m", "evidence", *given])}
    begin, failed = time.monotonic(), 0
    measured: dict[str, Measured] = {}
    figures: list[Figure] = []
    for found in measure_all(parts, options.quick):
        if found is None:
            failed += 1
            continue
        measured |= found.measured
        figures += found.figures
    wanted = [claim for claim in CLAIMS if not options.only or {claim.id, part_of(claim.id).name} & {*options.only}]
    rows = results(wanted, measured)
    where["seconds"] = round(time.monotonic() - begin)
    whole = not options.quick and not options.only and not failed
    written = save(options, whole, wanted, measured, figures, rows, where)
    print(json.dumps(rows, indent=1) if options.json else "\n".join(pages.table_of(_of(wanted, measured), measured)))
    kept = sum(row["holds"] for row in rows)
    progress(f"evidence: {kept} of {len(rows)} claims hold, {where['seconds']} s; {written[0]}")
    return 1 if failed else 0


def measure_all(parts: Sequence[Part], quick: bool) -> Iterator[Found | None]:
    """Measures the parts one after another; those of a quick run two at a time, as most of its time is waiting and its
    figures are rough anyway."""
    if not quick:
        yield from (measure(part, quick) for part in parts)
        return
    with ThreadPoolExecutor(QUICK_AT_ONCE) as pool:
        yield from pool.map(partial(measure, quick=quick), parts)


def measure(part: Part, quick: bool) -> Found | None:
    """Measures one part; None where it could not: the others' measurements stand."""
    progress(f"evidence: {part.name} (about {part.seconds[quick]} s)")
    since = time.monotonic()
    try:
        found = part.measure(quick)
    except Exception as error:
        print(f"evidence {part.name}: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    progress(f"  {part.name}: {len(found.measured)} claims, {time.monotonic() - since:.0f} s")
    return found


def save(
    options: argparse.Namespace,
    whole: bool,
    claims: Sequence[Claim],
    measured: dict[str, Measured],
    figures: Sequence[Figure],
    rows: Sequence[dict[str, Any]],
    where: dict[str, Any],
) -> list[Path]:
    """Writes results and pages. What is not a whole run leaves the documentation's pages alone."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(list(rows), indent=1) + "\n")
    (out / "conditions.json").write_text(json.dumps(where, indent=1) + "\n")
    folder = options.docs or (ROOT / "docs/evidence" if whole else out / "pages")
    return pages.write(folder, claims, measured, figures, where)


def chosen(only: Sequence[str] | None) -> list[Part]:
    """The parts with these names, or with claims of these ids; all without any."""
    wanted = {*(only or ())}
    return [part for part in PARTS if not only or part.name in wanted or wanted & {one.id for one in part.claims}]


def part_of(claim: str) -> Part:
    """The part that measures a claim."""
    return next(part for part in PARTS if claim in {one.id for one in part.claims})


def listing() -> str:
    """One line a part, and its claims."""
    lines = []
    for part in PARTS:
        full, quick = part.seconds
        needs = ", root" if part.root else ""
        lines += [f"  {part.name:<10} {part.summary} (about {full} s, quick {quick} s{needs})"]
        lines += [f"      {claim.id:<28} {claim.text}" for claim in part.claims]
    return "\n".join(lines)


def _of(claims: Sequence[Claim], measured: dict[str, Measured]) -> list[Claim]:
    return [claim for claim in claims if claim.id in measured]


def _parser() -> argparse.ArgumentParser:
    text = f"{__doc__}\n\nParts and their claims:\n\n{listing()}"
    parser = argparse.ArgumentParser(
        prog="python -m evidence", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*(part.name for part in PARTS), *(claim.id for claim in CLAIMS)]
    parser.add_argument("--quick", action="store_true", help="small sizes, under 4 minutes in all; for CI")
    parser.add_argument("--json", action="store_true", help="print results.json instead of a table")
    parser.add_argument("--only", nargs="+", choices=names, metavar="ID", help="parts, or the parts of these claims")
    parser.add_argument("--out", type=Path, default=ROOT / "out/evidence", help="folder of results.json (%(default)s)")
    parser.add_argument(
        "--docs", type=Path, help="folder of the pages (docs/evidence; OUT/pages where only a part ran)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
