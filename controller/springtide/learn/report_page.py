"""The report as one HTML page that needs nothing else: tables, and plots as SVG inside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from springtide import instants
from springtide.laws.base import BenefitLine, Figure, Law
from springtide.laws.effect import LEVEL, Effect
from springtide.laws.registry import LAWS
from springtide.learn.report import Report

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 860, 240, 70, 26, 10
COLOURS = ("#0b7fab", "#d08a2e", "#7cc0d8", "#e6c79c")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .2em .9em .2em 0; text-align: left }
td.number, th.number { text-align: right } tr + tr td { border-top: 1px solid #eee } .shown { font-weight: 600 }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: #555 } .muted { color: #777 }
"""

CAVEATS = (
    "Treated and held-out share bottlenecks: what one side uses the other may lack. That makes a difference look "
    "larger than it would be if all were treated; the fewer of a path's connections are held out, the less.",
    "Many groups are looked at: of 40 without any effect, one interval excludes zero by chance.",
    "Decided: every unit as it was decided, whether its sockets show it or not; where edges did not apply it, the "
    "difference shrinks towards none. Seen: only units whose sockets show what was decided for them, treated and held "
    "out; what kept others from it may be what makes them slow.",
)


def page(report: Report) -> str:
    until, since = instants.show(report.until), instants.show(report.since)
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Springtide: benefit report</title>",
        f"<style>{STYLE}</style><h1>Benefit report</h1>",
        f"<p>Rounds after {since} up to {until}. Treated against held-out, which a hash chose; intervals of "
        f"{LEVEL:.1%} by bootstrap over prefixes or edges. Bold: the interval excludes zero.</p>",
        *(part for law in LAWS if law.benefit_title for part in _of_law(law, report)),
        *(part for figure in report.figures for part in (_head(figure.title, figure.note), _plot(figure))),
        "<h2>What could mislead</h2>",
        *(f"<p>{escape(text)}</p>" for text in (*CAVEATS, *(text for law in LAWS for text in law.caveats))),
        "</html>\n",
    ]
    return "\n".join(parts)


def _of_law(law: Law, report: Report) -> tuple[str, str]:
    lines = [line for line in report.lines if line.law == law.name]
    return _head(law.benefit_title, law.benefit_note), _table(lines)


def _head(title: str, note: str) -> str:
    return f"<h2>{escape(title)}</h2>" + (f"<p>{escape(note)}</p>" if note else "")


def cells(line: BenefitLine) -> tuple[str, ...]:
    """A line as the table shows it."""
    return line.outcome, line.units, line.by, line.group, *effect_cells(line.effect)


def effect_cells(effect: Effect) -> tuple[str, ...]:
    counts = (str(effect.treated), str(effect.held_out))
    if effect.effect is None or effect.low is None or effect.high is None:
        return *counts, "too few", ""
    return *counts, f"{effect.effect:+.1%}", f"{effect.low:+.1%} to {effect.high:+.1%}"


def _table(lines: Sequence[BenefitLine]) -> str:
    if not lines:
        return "<p class='muted'>Nothing to compare within this time.</p>"
    head = ("outcome", "units", "by", "group", "treated", "held out", "difference", "interval")
    rows = [f"<tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>"]
    for line in lines:
        kind = " class='shown'" if line.effect.shown else ""
        rows.append(f"<tr{kind}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells(line))}</tr>")
    return f"<table>{''.join(rows)}</table>"


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
    first, last, top = rows[0]["round_s"], rows[-1]["round_s"], max(values) or 1.0

    def place(moment: float, value: float) -> str:
        x = LEFT + (moment - first) / (last - first) * (WIDTH - LEFT - 10)
        y = HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)
        return f"{x:.1f},{y:.1f}"

    parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>"]
    for share in (0.0, 0.5, 1.0):
        _, y = place(first, top * share).split(",")
        parts.append(f"<line x1='{LEFT}' x2='{WIDTH - 10}' y1='{y}' y2='{y}' stroke='#ddd'/>")
        parts.append(f"<text x='{LEFT - 8}' y='{float(y) + 4:.1f}' text-anchor='end'>{top * share:.3g}</text>")
    parts.append(f"<text x='{LEFT}' y='{HEIGHT - 6}'>{instants.show(first)}</text>")
    parts.append(f"<text x='{WIDTH - 10}' y='{HEIGHT - 6}' text-anchor='end'>{instants.show(last)}</text>")
    for at, (name, line) in enumerate(points.items()):
        path = " ".join(place(*point) for point in line)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{COLOURS[at]}' stroke-width='1.6'/>")
        label = escape(name.replace("_", " "))
        parts.append(f"<text x='{LEFT + 10 + 130 * at}' y='{TOP + 12}' style='fill:{COLOURS[at]}'>{label}</text>")
    return "".join([*parts, "</svg>"])
