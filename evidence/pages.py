"""One page for each source, and a first page with every claim, as Markdown; plots beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.claims import SOURCES, Claim, Measured, verdict
from evidence.part import Figure

# The first page is the only one with this machine's name on it; the others follow from the same run.
INDEX = "index.md"
RULE = """A claim holds where the interval reaches what the source states: `yes` where all of the interval keeps it,
`reached` where a part does. The interval is of 95 %, by bootstrap over single measurements; of the model, which has no
chance, it is the span over curves that fit the source as well. Where a source gives no number, the bound is ours and
stands in brackets."""


def write(
    folder: Path,
    claims: Sequence[Claim],
    found: Mapping[str, Measured],
    figures: Sequence[Figure],
    conditions: Mapping[str, Any],
) -> list[Path]:
    """Writes the pages of all sources that have something to show. Gives back what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        if figure.plot is not None:
            figure.plot(folder / f"{figure.name}.svg")
    measured = [claim for claim in claims if claim.id in found]
    texts = {INDEX: first(measured, found, conditions)}
    for source in SOURCES:
        own = [claim for claim in measured if claim.source == source]
        shown = [figure for figure in figures if figure.source == source]
        if own or shown:
            texts[f"{source}.md"] = page(source, own, found, shown)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def first(claims: Sequence[Claim], found: Mapping[str, Measured], conditions: Mapping[str, Any]) -> str:
    """The page with every claim."""
    verdicts = [verdict(claim, found[claim.id]) for claim in claims]
    kept, wholly = len(claims) - verdicts.count("no"), verdicts.count("yes")
    lines = [
        "# Evidence",
        "",
        f"{kept} of {len(claims)} claims hold on this machine, {wholly} of them by all of their interval."
        " `make evidence` measures all and writes these pages.",
        "",
        RULE,
        "",
    ]
    for source in {claim.source: None for claim in claims}:
        own = [claim for claim in claims if claim.source == source]
        lines += [f"## {SOURCES[source]}", "", f"[Conditions, tables and plots]({source}.md).", ""]
        lines += [*table_of(own, found), ""]
    versions = conditions.get("versions", {})
    rows = [[name, str(value)] for name, value in conditions.items() if name != "versions"]
    rows += [[name, str(value)] for name, value in versions.items()]
    lines += ["## Machine", "", *table(["what", "value"], rows)]
    return "\n".join(lines) + "\n"


def page(source: str, claims: Sequence[Claim], found: Mapping[str, Measured], figures: Sequence[Figure]) -> str:
    """One source: its claims, why ours differ, and what was measured under which conditions."""
    lines = [f"# {SOURCES[source]}", "", "Made by `make evidence`; [all sources and the machine](index.md).", ""]
    if claims:
        lines += [*table_of(claims, found), ""]
    reasons = [f"- `{claim.id}`: {claim.why}" for claim in claims if claim.why]
    if reasons:
        lines += ["## What to know of single claims", "", *reasons, ""]
    for figure in figures:
        lines += [f"## {figure.title}", "", figure.text, ""]
        if figure.plot is not None:
            lines += [f"![{figure.title}]({figure.name}.svg)", ""]
        if figure.rows:
            lines += [*table(figure.head, figure.rows), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def table_of(claims: Iterable[Claim], found: Mapping[str, Measured]) -> list[str]:
    """Theirs and ours, claim by claim."""
    rows = []
    for claim in claims:
        one = found[claim.id]
        sign = {"least": "≥ ", "most": "≤ ", "same": ""}[claim.sense]
        theirs = f"({sign}{number(claim.within)})" if claim.theirs is None else f"{sign}{number(claim.theirs)}"
        rows.append(
            [
                f"`{claim.id}`",
                f"{claim.text} ({claim.place})",
                f"{theirs} {claim.unit}".strip(),
                f"{number(one.ours)} {claim.unit}".strip(),
                f"{number(one.low)} to {number(one.high)}",
                f"{one.n:,}",
                verdict(claim, one).replace("no", "**no**"),
            ]
        )
    return table(["id", "claim", "theirs", "ours", "interval", "n", "holds"], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Markdown; columns after the second are numbers."""
    rule = ["---" if at < 2 else "---:" for at in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def number(value: float) -> str:
    """Three digits, or all of a larger whole number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
