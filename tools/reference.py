"""The files of docs/reference that are made from the code: `make docs-reference` writes them, a test compares them.

The collector's own page is made by its Rust tests (CONTRIBUTING.md), that of the questions to the data by
controller/tests/test_questions.py.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from springtide._core import bundle_schema
from springtide.cli import cli
from springtide.laws.registry import METRICS
from springtide.policy import default_yaml
from springtide.store import open_store
from springtide.store.migrations import migrate, read_migrations
from springtide.store.reference import Columns, tables_page

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/reference"
SCHEMA = FOLDER / "bundle.schema.json"
EDGE = ROOT / "target/release/springtide-edge"
MADE = "Made from the code by `make docs-reference`; a test holds it to the code."


def pages() -> Mapping[str, str]:
    """Every file by its name in docs/reference."""
    return {
        "commands.md": commands_page(),
        "edge-command.md": edge_page(),
        "metrics.md": metrics_page(),
        "tables.md": tables_page(read_migrations(), view_columns()),
        "configuration.md": configuration_page((FOLDER / "configuration.md").read_text()),
        SCHEMA.name: json.dumps(json.loads(bundle_schema()), indent=2) + "\n",
    }


def commands_page() -> str:
    """Every command of `springtide`, in the order in which the loop runs them."""
    head = f"""# springtide

{MADE}
Exit codes, unless a command documents others: 0 done, 1 failed at run time, 2 bad input or usage, 3 too little input to
decide on. Colours appear on a terminal only; `--json` is for machines.

"""
    return head + "\n".join(_command(path, command) for path, command in leaves(cli))


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command that does something, with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


def _command(path: tuple[str, ...], command: click.Command) -> str:
    words = " ".join(["springtide", *path])
    arguments = [p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)]
    lines = [f"## {words}", "", f"`{' '.join([words, '[OPTIONS]', *arguments])}`", ""]
    for paragraph in re.split(r"\n[ \t]*\n", (command.help or "").strip()):
        lines += [*_paragraph(paragraph), ""]
    lines += ["| option | default | |", "|---|---|---|"]
    lines += [_option(option) for option in command.params if isinstance(option, click.Option)]
    return "\n".join(lines) + "\n"


def _paragraph(text: str) -> list[str]:
    """What stands as it is behind a \\b becomes a block of code."""
    if not text.lstrip().startswith("\b"):
        return [_text(" ".join(text.split()))]
    title, *rest = [line.rstrip() for line in text.replace("\b", "").strip("\n").splitlines() if line.strip()]
    language = "sh" if title.strip() == "Examples:" else "text"
    least = min((len(line) - len(line.lstrip()) for line in rest), default=0)
    return [_text(title.strip()), "", f"```{language}", *(line[least:] for line in rest), "```"]


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts + option.secondary_opts)
    if not option.is_flag:
        names += f" {_text(option.make_metavar(click.Context(click.Command('x'))))}"
    default = "" if option.is_flag or option.default is None or callable(option.default) else option.default
    if option.required:
        default = "required"
    elif not isinstance(default, str | int | float | Path):
        default = ""
    elif default != "":
        default = f"`{default}`"
    text = _text(option.help or "")
    return f"| {names} | {default} | {text}{_range(option)}{_variable(option)} |"


def _range(option: click.Option) -> str:
    kind = option.type
    if isinstance(kind, click.IntRange | click.FloatRange) and kind.min is not None:
        return f" {kind.min:g} to {kind.max:g}." if kind.max is not None else f" At least {kind.min:g}."
    return ""


def _variable(option: click.Option) -> str:
    return f" Or `{option.envvar}`." if isinstance(option.envvar, str) else ""


def _text(text: str) -> str:
    """For a cell or a paragraph of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def edge_page() -> str:
    """`springtide-edge`, in its own words."""

    def words(*arguments: str) -> list[str]:
        # As wide on every terminal.
        wide = {**os.environ, "COLUMNS": "100"}
        done = subprocess.run(
            [str(EDGE), *arguments, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env=wide,
            stdin=subprocess.DEVNULL,
        )
        return ["```text", *done.stdout.rstrip("\n").splitlines(), "```", ""]

    whole = words()
    listed = itertools.takewhile(str.strip, whole[whole.index("Commands:") + 1 :])
    commands = [found[1] for line in listed if (found := re.match(r"  (\w+)", line))]
    lines = ["# springtide-edge", "", MADE, "", *whole]
    for name in commands:
        if name != "help":
            lines += [f"## springtide-edge {name}", "", *words(name)]
    return "\n".join(lines).rstrip("\n") + "\n"


def metrics_page() -> str:
    """The controller's gauges, and where the others' are."""
    lines = ["# Metrics", "", MADE, "", "## The collector's", ""]
    lines += ["Over HTTP, on each edge: [in its own reference](collector.md#metrics).", "", "## The edge's", ""]
    lines += [
        "By `springtide-edge watch --metrics FILE.prom` (`run`, `follow`), for node_exporter's textfile collector:",
        "[in its reference](edge-command.md#springtide-edge-watch).",
    ]
    lines += ["", "## The controller's", ""]
    lines += [
        "Jobs end, so theirs are written to a file for node_exporter's textfile collector: `springtide decide initcwnd",
        "--metrics FILE.prom`, `springtide decide congestion --metrics FILE.prom` and `springtide status --metrics",
        "FILE.prom`. Each replaces its file at once. All are gauges.",
        "",
        "| metric | what |",
        "|---|---|",
    ]
    for name, metric in METRICS.items():
        labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
        lines.append(f"| `{name}{labels}` | {_text(metric.help)} |")
    return "\n".join(lines) + "\n"


def view_columns() -> Columns:
    """Name and type of each view's columns, as the engine reports them."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"chdb://{folder}/store", create=True, wait_s=10, on_wait=print)
        try:
            migrate(store, read_migrations())
            rows = store.query(
                "select columns.table as view, columns.name as name, columns.type as type from system.columns "
                "inner join system.tables on columns.database = tables.database and columns.table = tables.name "
                "where columns.database = currentDatabase() and tables.engine = 'View' order by view, columns.position"
            )
        finally:
            store.close()
    found: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        found.setdefault(row["view"], []).append((row["name"], row["type"]))
    return found


def configuration_page(page: str) -> str:
    """The page with the policy's defaults as they are now."""
    return re.sub(
        r"(?s)(```yaml\n)# Every key is optional.*?```", lambda m: f"{m[1]}{default_yaml()}```", page, count=1
    )


if __name__ == "__main__":
    for page, text in pages().items():
        (FOLDER / page).write_text(text)
