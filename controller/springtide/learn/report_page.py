"""The report as one HTML page that needs nothing else: a sentence with the numbers, tables, plots as SVG inside it.

Plots are 400 units wide, so that a telephone shows their text as large as the page's; lines differ in width and dashes,
so that grey suffices, and the later is the thinner, so that none hides another. A table that is wider than the window
scrolls in its own box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from springtide import instants
from springtide.laws.base import Figure, Law
from springtide.laws.effect import LEVEL, BenefitLine, Effect
from springtide.laws.paired import LEVEL as PAIRED_LEVEL
from springtide.laws.registry import LAWS
from springtide.learn.report import Report
from springtide.learn.slices import HEAD

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 400, 200, 52, 392, 26
# Colour, width and dashes of the first to the fourth line.
LINES = (("#7cb6cf", 5, "none"), ("#222", 1.5, "none"), ("#a85b00", 2.5, "8 4"), ("#222", 1.5, "2 3"))
KEY_ROW = 18
# Most groups that are named as worse, the worst first.
MOST_WORSE = 10
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .2em .9em .2em 0; text-align: left }
td.number, th.number { text-align: right } tr + tr td { border-top: 1px solid #eee } .shown { font-weight: 600 }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: #555 } .muted { color: #595959 }
.lead { font-size: 1.25em; font-weight: 600 }
"""
_OWN_STYLE = """
body { overflow-wrap: anywhere } .scroll { overflow-x: auto }
.scroll table { white-space: nowrap; overflow-wrap: normal }
svg { display: block; max-width: 560px } svg text { fill: #222 }
@media (max-width: 760px) {
  .scroll table, .scroll tbody { display: block; white-space: normal } .scroll tr:first-child { display: none }
  .scroll tr { display: flex; flex-wrap: wrap; gap: 0 1.2em; border-top: 1px solid #999; padding: .5em 0 }
  .scroll td, .scroll tr + tr td { padding: 0; border: 0 }
  .scroll td:empty { display: none }
  .scroll td::before { content: attr(data-label) " "; color: #595959; font-weight: 400 }
}
"""

CAVEATS = (
    "Treated and held-out share bottlenecks: what one side uses the other may lack. That makes a difference look "
    "larger than it would be if all were treated; the fewer of a path's connections are held out, the less.",
    "Many groups are looked at: of 40 without any effect, one interval excludes zero by chance.",
    "Decided: every unit as it was decided, whether its sockets show it or not; where edges did not apply it, the "
    "difference shrinks towards none. Seen: only units whose sockets show what was decided for them, treated and held "
    "out; what kept others from it may be what makes them slow.",
)


SLICES_NOTE = (
    "Closed connections. Started: with other values than the kernel's default; the others with those. Times are "
    "geometric means of the time with data outstanding of those that delivered 100 to 300 kB; the difference is within "
    "the same round, path, tenant and system, its interval by bootstrap over rounds. What kept a connection from the "
    "values (a SYN that was sent again, a brake, an edge held out) may itself make it slower."
)


def page(report: Report) -> str:
    until, since = instants.show(report.until), instants.show(report.since)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Springtide: benefit report</title><style>{STYLE}{_OWN_STYLE}</style></head><body><main>",
        f"<p class='lead'>{escape(headline(report.lines))}</p>",
        *(f"<p>{escape(text)}</p>" for text in (worse(report.lines), report.remedy) if text),
        "<h1>Benefit report</h1>",
        f"<p>Rounds after {since} up to {until}. Treated against held-out, which a hash chose; intervals by bootstrap "
        "over prefixes or edges, or by the randomisation of switched pairs. Bold: the interval excludes zero.</p>",
        *(part for law in LAWS if law.benefit_title for part in _of_law(law, report)),
        *_slices(report),
        *(part for figure in report.figures for part in (_head(figure.title, figure.note), _plot(figure))),
        "<h2>What could mislead</h2>",
        *(f"<p>{escape(text)}</p>" for text in (*CAVEATS, *(text for law in LAWS for text in law.caveats))),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


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


def _of_law(law: Law, report: Report) -> tuple[str, str]:
    lines = [line for line in report.lines if line.law == law.name]
    said = "".join(f"<p>{escape(text)}</p>" for text in methods(lines))
    return _head(law.benefit_title, law.benefit_note), said + _table(lines)


def _head(title: str, note: str) -> str:
    return f"<h2>{escape(title)}</h2>" + (f"<p>{escape(note)}</p>" if note else "")


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


def _table(lines: Sequence[BenefitLine]) -> str:
    if not lines:
        return "<p class='muted'>Nothing to compare within this time.</p>"
    head = ("outcome", "units", "by", "group", "treated", "held out", "difference", "interval", "reading")
    return _grid(head, [((*cells(line), line.reading), line.effect.shown) for line in lines])


def _grid(head: Sequence[str], lines: Sequence[tuple[Sequence[str], bool]]) -> str:
    """Lines of cells, each with whether it is bold."""
    rows = ["<tr>" + "".join(f"<th scope='col'>{name}</th>" for name in head) + "</tr>"]
    for line, shown in lines:
        kind = " class='shown'" if shown else ""
        named = zip(head, line, strict=True)
        row = "".join(f"<td data-label='{name}'>{escape(cell)}</td>" for name, cell in named)
        rows.append(f"<tr{kind}>{row}</tr>")
    return f"<div class='scroll' tabindex='0'><table>{''.join(rows)}</table></div>"


def _slices(report: Report) -> Iterator[str]:
    """Tables by tenant and by system, where there are any."""
    titles = (("By tenant", report.tenants), ("Clients by autonomous system", report.systems))
    for title, found in titles:
        if found:
            yield _head(title, SLICES_NOTE)
            yield _grid(HEAD[1:], [(one.cells()[1:], one.effect.shown) for one in found])


def _plot(figure: Figure) -> str:
    """Lines over rounds, one a column; each value times the column's factor."""
    rows = figure.rows
    points = {
        name: [(row["round_s"], float(row[name]) * factor) for row in rows if row[name] is not None]
        for name, factor in figure.scales.items()
    }
    values = [value for line in points.values() for _, value in line]
    if len(rows) < 2 or not values:
        return "<p class='muted'>Nothing to draw within this time.</p>"
    first, last, most = rows[0]["round_s"], rows[-1]["round_s"], max(values) or 1.0
    top = KEY_ROW * len(points) + 10
    height = top + HEIGHT

    def place(moment: float, value: float) -> str:
        x = LEFT + (moment - first) / (last - first) * (RIGHT - LEFT)
        y = height - BOTTOM - value / most * (HEIGHT - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{escape(figure.title, quote=True)}'>"]
    for share in (0.0, 0.5, 1.0):
        _, y = place(first, most * share).split(",")
        parts.append(f"<line x1='{LEFT}' x2='{RIGHT}' y1='{y}' y2='{y}' stroke='#ddd'/>")
        parts.append(f"<text x='{LEFT - 8}' y='{float(y) + 4:.1f}' text-anchor='end'>{most * share:.3g}</text>")
    parts.append(f"<text x='4' y='{height - 6}'>{instants.show(first)}</text>")
    parts.append(f"<text x='{RIGHT}' y='{height - 6}' text-anchor='end'>{instants.show(last)}</text>")
    for at, (name, line) in enumerate(points.items()):
        colour, width, dashes = LINES[at]
        look = f"fill='none' stroke='{colour}' stroke-width='{width}' stroke-dasharray='{dashes}'"
        y_key, label = 12 + KEY_ROW * at, escape(name.replace("_", " "))
        parts.append(f"<polyline points='{' '.join(place(*point) for point in line)}' {look}/>")
        parts.append(f"<line x1='{LEFT}' x2='{LEFT + 44}' y1='{y_key - 4}' y2='{y_key - 4}' {look}/>")
        parts.append(f"<text x='{LEFT + 54}' y='{y_key}'>{label}</text>")
    return "".join([*parts, "</svg>"])
