"""The report as one HTML page that needs nothing else: a sentence with the numbers, tables, plots as SVG inside it.

Plots are 400 units wide, so that a telephone shows their text as large as the page's; lines differ in width and dashes,
so that grey suffices, and the later is the thinner, so that none hides another. A table that is wider than the window
scrolls in its own box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from springtide import instants
from springtide.laws.base import Figure
from springtide.laws.effect import LEVEL, BenefitLine, Effect
from springtide.laws.paired import LEVEL as PAIRED_LEVEL
from springtide.laws.registry import LAWS
from springtide.learn.report import Report
from springtide.learn.slices import HEAD
from springtide.pages import render

# Most groups that are named as worse, the worst first.
MOST_WORSE = 10
TABLE = (*("outcome", "units", "by", "group", "treated", "held out", "difference", "interval"), "reading")
SLICES_NOTE = (
    "Closed connections. Started: with other values than the kernel's default; the others with those. Times are "
    "geometric means of the time with data outstanding of those that delivered 100 to 300 kB; the difference is within "
    "the same round, path, tenant and system, its interval by bootstrap over rounds. What kept a connection from the "
    "values (a SYN that was sent again, a brake, an edge held out) may itself make it slower."
)


def page(report: Report) -> str:
    return render(
        __file__,
        report=report,
        show=instants.show,
        headline=headline(report.lines),
        worse=worse(report.lines),
        sections=_sections(report),
        figures=[(figure, _highest(figure)) for figure in report.figures],
        caveats=[text for law in LAWS for text in law.caveats],
    )


def headline(lines: Sequence[BenefitLine]) -> str:
    """One sentence with each law's number: over all units, as they were decided."""
    titles = {law.name: law.benefit_title for law in LAWS}
    found = [f"{titles[line.law]}: {_number(line)}" for line in lines if line.answers]
    return f"{'; '.join(found)}." if found else "Nothing can be compared yet: no unit was treated within this time."


def worse(lines: Sequence[BenefitLine]) -> str:
    """Names groups in which the treated are worse off beyond chance; empty without such."""
    found = sorted((line for line in lines if line.reading == "worse"), key=lambda one: -abs(one.effect.effect or 0.0))
    if not found:
        return ""
    named = ", ".join(f"{line.by} {line.group} ({_number(line)})" for line in found[:MOST_WORSE])
    named += f" and {len(found) - MOST_WORSE} more" if len(found) > MOST_WORSE else ""
    return (
        f"Worse than held out in {len(found)} of {len(lines)} comparisons: {named}. "
        "Of 40 without any effect one looks so by chance: look first at what is worse in more than one report."
    )


def _number(line: BenefitLine) -> str:
    *_, treated, held_out, size, interval = cells(line)
    if not interval:
        return f"{line.outcome} not known yet, of {treated} treated and {held_out} held out there are too few"
    return f"{line.outcome} {size} ({interval}{_by(line)})" + ("" if line.effect.shown else ", which may be chance")


def _by(line: BenefitLine) -> str:
    return "" if line.method == "held out" else f", {line.method}"


def methods(lines: Sequence[BenefitLine]) -> list[str]:
    """Says how the lines were measured, on how many units, and what each way assumes."""
    found: dict[str, list[BenefitLine]] = {}
    for line in lines:
        found.setdefault(line.method, []).append(line)
    return [f"Measured by {name}, {_most(name, own)}: {own[0].assumption}" for name, own in found.items()]


def _most(method: str, lines: Sequence[BenefitLine]) -> str:
    """The units of the line that has most, and the level of intervals."""
    treated, held_out = max((line.effect.treated, line.effect.held_out) for line in lines)
    if method == "held out":
        return f"{treated} units treated and {held_out} not, intervals of {LEVEL:.1%}"
    what = {"disable test": "tests", "untreated share": "hours of paths"}.get(method, "blocks of a pair with both")
    return f"{treated} {what}, intervals of {PAIRED_LEVEL:.1%}"


def cells(line: BenefitLine) -> tuple[str, ...]:
    """A line as the table shows it."""
    *counts, size, interval = effect_cells(line.effect)
    own, others = line.sides
    if own is not None and others is not None:
        size += f", {own / 1000:.0f} ms beside {others / 1000:.0f} ms"
    return line.outcome, line.units, line.by, line.group, *counts, size, interval


def effect_cells(effect: Effect) -> tuple[str, ...]:
    counts = (str(effect.treated), str(effect.held_out))
    if effect.effect is None or effect.low is None or effect.high is None:
        return *counts, "too few", ""
    return *counts, f"{effect.effect:+.1%}", f"{effect.low:+.1%} to {effect.high:+.1%}"


def _sections(report: Report) -> Iterator[tuple[str, Sequence[str], Sequence[str], list[tuple[str, ...]], list[bool]]]:
    """Tables by law, by tenant and by system: title, text, head, rows, and whether each row is bold."""
    for law in LAWS:
        if law.benefit_title:
            lines = [line for line in report.lines if line.law == law.name]
            rows = [(*cells(line), line.reading) for line in lines]
            texts = (law.benefit_note, *methods(lines))
            yield law.benefit_title, texts, TABLE, rows, [line.effect.shown for line in lines]
    for title, found in (("By tenant", report.tenants), ("Clients by autonomous system", report.systems)):
        if found:
            rows = [one.cells()[1:] for one in found]
            yield title, (SLICES_NOTE,), HEAD[1:], rows, [one.effect.shown for one in found]


def _highest(figure: Figure) -> float:
    """The highest value that is drawn; 0 where there is nothing to draw."""
    factors = figure.scales.items()
    values = [float(row[name]) * by for row in figure.rows for name, by in factors if row[name] is not None]
    return max(values) or 1.0 if len(figure.rows) > 1 and values else 0.0
