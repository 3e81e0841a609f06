"""python -m bench: the benches; python -m bench NAME: one of them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import (
    collector,
    controller,
    edge,
    gate,
    page,
    pull,
    push,
    push_fleet,
    recovery,
    rounds,
    sizes,
    start,
    start_changes,
    start_loop,
)
from bench.calm import guard, pairs, prefixes, rules, start_weeks
from bench.pipeline import ingest
from bench.runner import ROOT, Bench, BenchError, Run, conditions, document, table

MODULES = (
    collector,
    ingest,
    rounds,
    sizes,
    controller,
    push,
    push_fleet,
    pull,
    gate,
    pairs,
    prefixes,
    guard,
    start_weeks,
    rules,
    start_loop,
    start_changes,
    start,
    recovery,
    page,
    edge,
)
BENCHES: dict[str, Bench] = {module.BENCH.name: module.BENCH for module in MODULES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when a bench could not measure, 2 when it may not be run so."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    if options.bench is None:
        print(listing())
        return 0
    bench = BENCHES[options.bench]
    if bench.root and os.geteuid() != 0:
        print(f"bench {bench.name}: needs root: it makes network namespaces; run it with sudo", file=sys.stderr)
        return 2
    small = options.small
    out: Path = options.out or ROOT / "out/bench" / ("small" if small else "") / f"{bench.name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    # Before it runs: the machine's load is that of others.
    where = conditions(given)
    sizes = {name: _chosen(options, name, both[small]) for name, both in bench.sizes.items()}
    run = Run(sizes, _chosen(options, "turns", bench.turns[small]) if bench.turns else 1, out)
    try:
        bench.measure(run)
    except BenchError as error:
        print(f"bench {bench.name}: {error}", file=sys.stderr)
        return 1
    text = json.dumps(document(bench, run, small, where), indent=1)
    out.write_text(text + "\n")
    print(text if options.json else "\n\n".join([*run.text, table(run.figures)]))
    return 0


def listing() -> str:
    """One line a bench."""
    lines = [
        "python -m bench NAME [--small] [--json] [--turns N] writes out/bench/NAME.json; NAME --help has its sizes.",
        "",
    ]
    for bench in BENCHES.values():
        needs = ", root" if bench.root else ""
        lines.append(f"  {bench.name:<14} {bench.summary} (about {_duration(bench.seconds)}{needs})")
    return "\n".join(lines)


def _duration(seconds: int) -> str:
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=listing(), formatter_class=_Raw)
    names = parser.add_subparsers(dest="bench", metavar="NAME")
    for bench in BENCHES.values():
        text = sys.modules[bench.measure.__module__].__doc__
        one = names.add_parser(bench.name, description=text, formatter_class=_Raw)
        one.add_argument("--small", action="store_true", help="a size of seconds, at which figures mean nothing")
        one.add_argument("--json", action="store_true", help="print the JSON instead of a table")
        one.add_argument("--out", type=Path, help="file to write (default out/bench/NAME.json)")
        if bench.turns:
            one.add_argument("--turns", type=_positive, help=f"(default {bench.turns[0]})")
        for name, (full, _) in bench.sizes.items():
            _add_size(one, f"--{name.replace('_', '-')}", full)
    return parser


def _add_size(parser: argparse.ArgumentParser, option: str, full: Any) -> None:
    if isinstance(full, bool):
        parser.add_argument(option, action="store_true", default=None)
    elif isinstance(full, tuple):
        shown = " ".join(map(str, full))
        values: dict[str, Any] = {"choices": full} if isinstance(full[0], str) else {"type": _positive}
        parser.add_argument(option, nargs="+", help=f"(default {shown})", **values)
    else:
        kind = _positive if isinstance(full, int) else float
        parser.add_argument(option, type=kind, help=f"(default {full})")


def _chosen(options: argparse.Namespace, name: str, default: Any) -> Any:
    value = getattr(options, name)
    if value is None:
        return default
    return tuple(value) if isinstance(value, list) else value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Keeps a description's lines."""


if __name__ == "__main__":
    sys.exit(main())
