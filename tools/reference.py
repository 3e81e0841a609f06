"""The pages of the reference that are made from the code, as the site is built (tools/docs_site.py).

    python -m tools.reference

writes anew what is checked in of it, which tests hold to the code: the bundle's JSON Schema
(docs/reference/bundle.schema.json), and the words that shells complete (controller/springtide/cli/words.json).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
from springtide._core import bundle_schema
from springtide.cli import cli, completion
from springtide.laws.registry import METRICS
from springtide.policy import default_yaml
from springtide.store import open_store
from springtide.store.migrations import migrate, read_migrations
from springtide.store.reference import Columns, tables_page

from dashboards.generate import documents
from dashboards.reference import page as dashboards_page

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "docs/reference/bundle.schema.json"
BINARIES = ROOT / "target/release"
MADE = "Made from the code as this site was built."


def pages() -> Mapping[str, str]:
    """Every page by its name in docs/reference."""
    return {name: page() for name, page in PAGES.items()}


def schema() -> str:
    """JSON Schema of a bundle."""
    return json.dumps(json.loads(bundle_schema()), indent=2) + "\n"


def completed_words() -> str:
    """Commands, options and choices that shells complete, a line for each command."""
    whole = completion.described(cli)
    lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in whole.pop("commands").items())
    return json.dumps(whole)[:-1] + ', "commands": {\n' + ",\n".join(lines) + "\n}}\n"


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
    """Turns text that stands as it is behind a \\b into a block of code."""
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


def output(program: str, *arguments: str) -> str:
    """Output of a program on hosts, as wide on every terminal."""
    done = subprocess.run(
        [BINARIES / program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.rstrip("\n")


def _block(text: str, language: str = "text") -> list[str]:
    return [f"```{language}", *(line.rstrip() for line in text.splitlines()), "```", ""]


def _helps(program: str) -> list[str]:
    """A page of the help of a program on hosts and of each of its commands."""
    whole = output(program, "--help")
    lines = [f"# {program}", "", MADE, "", *_block(whole)]
    for line in itertools.takewhile(str.strip, whole.partition("Commands:\n")[2].splitlines()):
        found = re.match(r"  (\w+)", line)
        if found and found[1] != "help":
            lines += [f"## {program} {found[1]}", "", *_block(output(program, found[1], "--help"))]
    return lines


def edge_page() -> str:
    """The commands of `springtide-edge`."""
    return "\n".join(_helps("springtide-edge"))


def collector_page() -> str:
    """The commands of `springtide-collector`, and its configuration file."""
    lines = _helps("springtide-collector")
    lines += ["## Configuration file", "", *_block(output("springtide-collector", "config", "--default"), "toml")]
    return "\n".join(lines)


def policy_page() -> str:
    """The policy's keys with their defaults."""
    return "\n".join(["# policy.yaml", "", MADE, "", *_block(default_yaml(), "yaml")])


def collector_metrics() -> Iterator[tuple[str, str, str]]:
    """Name with its labels, type and meaning of each metric of the collector."""
    page = output("springtide-collector", "metrics")
    for name, meaning, kind in re.findall(r"^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$", page, re.M):
        labels = re.search(rf"^{name}{{(.*?)}}", page, re.M)
        shown = ",".join(re.findall(r'(\w+)="', labels[1])) if labels else ""
        yield f"{name}{{{shown}}}" if shown else name, kind, meaning


def metrics_page() -> str:
    """The metrics of the collector and of the controller, and where those of the edge are."""
    lines = ["# Metrics", "", MADE, "", "## The collector's", ""]
    lines += ["Over HTTP, on each edge, where `http.listen` is set.", "", "| metric | type | what |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {_text(meaning)} |" for name, kind, meaning in collector_metrics()]
    lines += ["", "## The edge's", ""]
    lines += [
        "By `springtide-edge watch --metrics FILE.prom` (`run`, `follow`), for node_exporter's textfile collector:",
        "[in its reference](edge-command.md#springtide-edge-watch).",
    ]
    lines += ["", "## The controller's", ""]
    lines += [
        "Jobs end, so theirs are written to files for node_exporter's textfile collector: by `springtide decide all",
        "--metrics-dir DIR` and `springtide status --metrics FILE.prom`. A command replaces its file at once. All are",
        "gauges.",
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


PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "collector-command.md": collector_page,
    "dashboards.md": lambda: dashboards_page(documents()),
    "edge-command.md": edge_page,
    "metrics.md": metrics_page,
    "policy.md": policy_page,
    "tables.md": lambda: tables_page(read_migrations(), view_columns()),
}


if __name__ == "__main__":
    SCHEMA.write_text(schema())
    completion.WORDS.write_text(completed_words())
