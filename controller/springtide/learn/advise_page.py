"""Advice as one HTML page that needs nothing else: a sentence, two plots as SVG, the paths, the risks, what loss costs.

Plots are 400 units wide, so that a telephone shows their text as large as the page's; what differs differs in shape,
so that grey suffices. Names are escaped wherever they come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from springtide import instants
from springtide.learn.advise import Advice
from springtide.learn.advise_path import RISKS, SIZES, Path
from springtide.learn.advise_words import (
    CAVEATS,
    COLUMNS,
    KEY,
    MAIN_SIZE,
    WORDS,
    cells,
    headline,
    least,
    named,
    size_name,
)
from springtide.learn.losses import COLUMNS as LOSS_COLUMNS
from springtide.learn.losses import KEY as LOSS_KEY
from springtide.learn.losses import Losses
from springtide.learn.report_page import STYLE

WIDTH = 400
# Where plots begin and end: beside them is room for a value.
LEFT, RIGHT = 44, 340
# Paths in the plot, and characters of a name in it.
DRAWN, NAME = 12, 48
ROW = 40
_OWN_STYLE = """
svg { display: block; max-width: 560px; margin: 1em 0 }
svg text { fill: #222 } svg .axis { fill: #555 } body { max-width: 86em } p, h1, h2, ul, caption { max-width: 56em }
table { font-size: .9em } td, th { padding-right: .6em; white-space: nowrap }
td.name { white-space: normal; overflow-wrap: anywhere; min-width: 4em } td[data-label=to] { min-width: 9em }
li { overflow-wrap: anywhere } main { min-width: 0 }
caption { text-align: left; font-weight: 600 }
@media (max-width: 1300px) {
  table, tbody, caption { display: block; font-size: 1em } thead { display: none }
  tr { display: flex; flex-wrap: wrap; gap: 0 1.2em; border-top: 1px solid #999; padding: .5em 0 }
  tr + tr td { border: 0 } td, td.number { padding: 0; text-align: left }
  td::before { content: attr(data-label) " "; color: #595959; font-weight: 400 }
  td[data-label=from], td[data-label=to] { font-weight: 600 } td.name, td[data-label] { min-width: 0 }
}
"""
_NAMES = frozenset(("from", "to", "risk"))


def page(advice: Advice, top: int) -> str:
    """The best `top` of at least one path."""
    since, until = instants.show(advice.since), instants.show(advice.until)
    best = advice.paths[:top]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        "<title>Springtide: what faster starts would gain</title>",
        f"<style>{STYLE}{_OWN_STYLE}</style></head><body><main>",
        f"<p class='lead'>{escape(headline(advice))}</p>",
        "<h1>What starts at the proved rate would gain</h1>",
        f"<p>From samples after {since} up to {until}: {len(advice.paths)} paths with a rate, {advice.unknown} "
        f"without. {advice.local:,} connections of hosts to themselves were left out. Nothing was decided or "
        "pushed.</p>",
        f"<h2>{size_name(MAIN_SIZE)} on the paths that save most</h2>",
        _paths(best[:DRAWN]),
        "<h2>By size of the answer</h2>",
        _sizes(advice),
        f"<h2>The best {len(best)} of {len(advice.paths)} paths</h2>",
        _table(KEY, COLUMNS, list(map(cells, best))),
        "<h2>What it would risk</h2>",
        *_risks(advice),
        *_loss(advice.loss),
        "<h2>What could mislead</h2>",
        *(f"<p>{escape(text)}</p>" for text in CAVEATS),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _paths(paths: Sequence[Path]) -> str:
    """A line for each path, from what its 100 kB take to what they would take."""
    most = max(path.saving(MAIN_SIZE).default_ms for path in paths)
    height = ROW * len(paths) + 78
    parts = [
        *_opening(
            "paths",
            height,
            f"Time of {size_name(MAIN_SIZE)}, by default and started at the proved rate",
            "; ".join(_described(path) for path in paths),
        ),
        f"<circle cx='{LEFT}' cy='14' r='5' fill='#fff' stroke='#222' stroke-width='2'/>",
        f"<text x='{LEFT + 12}' y='18'>kernel's default</text>",
        f"<circle cx='{LEFT + 190}' cy='14' r='5' fill='#0b5f80'/>",
        f"<text x='{LEFT + 202}' y='18'>at the proved rate</text>",
    ]
    for at, path in enumerate(paths):
        main, y = path.saving(MAIN_SIZE), 60 + ROW * at
        default, start = _place(main.default_ms, most), _place(main.start_ms, most)
        low, high = (_place(main.default_ms - bound, most) for bound in (main.saved_ms.high, main.saved_ms.low))
        name = f"{path.src_pop} to {path.destination}"
        short = name if len(name) <= NAME else f"{name[: NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
        at_most = "\N{LESS-THAN OR EQUAL TO}" if main.may_be_more else ""
        parts += [
            f"<text x='4' y='{y - 14}'>{escape(short)}</text>",
            f"<line x1='{start:.1f}' x2='{default:.1f}' y1='{y}' y2='{y}' stroke='#222' stroke-dasharray='2 3'/>",
            f"<line x1='{low:.1f}' x2='{high:.1f}' y1='{y}' y2='{y}' stroke='#0b5f80' stroke-width='3'/>",
            f"<circle cx='{default:.1f}' cy='{y}' r='5' fill='#fff' stroke='#222' stroke-width='2'/>",
            f"<circle cx='{start:.1f}' cy='{y}' r='5' fill='#0b5f80'/>",
            f"<text x='{min(start, low) - 9:.1f}' y='{y + 4}' text-anchor='end'>{at_most}{main.start_ms:.0f}</text>",
            f"<text x='{max(default, high) + 9:.1f}' y='{y + 4}'>{main.default_ms:.0f} ms</text>",
        ]
    return "".join([*parts, *_axis(height, most, "ms from request to last byte; thick: interval of 95 %"), "</svg>"])


def _sizes(advice: Advice) -> str:
    """A frame for each size, as long as it takes by default, filled as far as it would take."""
    means = [(size_bytes, *advice.mean_ms(size_bytes)) for size_bytes in SIZES]
    most = max(default for _, default, _ in means)
    height = ROW * len(means) + 40
    described = "; ".join(
        f"{size_name(size_bytes)}: {default:.0f} ms by default, {saved:.0f} ms saved"
        for size_bytes, default, saved in means
    )
    parts = [*_opening("sizes", height, "Mean time by size, and what is saved of it", described)]
    for at, (size_bytes, default, saved) in enumerate(means):
        y = 18 + ROW * at
        text = f"{size_name(size_bytes)}: {default - saved:.0f} instead of {default:.0f} ms"
        parts += [
            f"<text x='4' y='{y - 4}'>{text}</text>",
            f"<rect x='4' y='{y}' width='{(default - saved) / most * 380:.1f}' height='12' fill='#0b5f80'/>",
            f"<rect x='4' y='{y}' width='{default / most * 380:.1f}' height='12' fill='none' stroke='#222'/>",
        ]
    note = "filled: started at the proved rate; frame: by default"
    return "".join([*parts, f"<text class='axis' x='4' y='{height - 10}'>{note}</text>", "</svg>"])


def _opening(name: str, height: int, title: str, description: str) -> tuple[str, ...]:
    return (
        f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-labelledby='{name}-title {name}-text'>",
        f"<title id='{name}-title'>{escape(title)}</title><desc id='{name}-text'>{escape(description)}</desc>",
    )


def _axis(height: int, most: float, label: str) -> Iterator[str]:
    y = height - 36
    yield f"<line x1='{LEFT}' x2='{RIGHT}' y1='{y}' y2='{y}' stroke='#555'/>"
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = LEFT + share * (RIGHT - LEFT)
        yield f"<line x1='{x}' x2='{x}' y1='{y}' y2='{y + 4}' stroke='#555'/>"
        yield f"<text class='axis' x='{x}' y='{y + 16}' text-anchor='{anchor}'>{most * share:.3g}</text>"
    yield f"<text class='axis' x='{LEFT}' y='{y + 31}'>{escape(label)}</text>"


def _place(ms: float, most: float) -> float:
    return LEFT + ms / most * (RIGHT - LEFT)


def _described(path: Path) -> str:
    main = path.saving(MAIN_SIZE)
    return (
        f"{path.src_pop} to {path.destination}: {main.default_ms:.0f} ms by default, "
        f"{least(main.may_be_more)}{main.saved_ms.estimate:.0f} ms saved"
    )


def _loss(found: Losses) -> Iterator[str]:
    lines = list(found.lines())
    if lines:
        yield "<h2>What loss costs</h2>"
        yield from (f"<p>{escape(line)}</p>" for line in lines)
        yield _table(LOSS_KEY, LOSS_COLUMNS, found.table())


def _table(key: str, columns: Sequence[str], lines: Sequence[Mapping[str, str]]) -> str:
    def kind(name: str) -> str:
        return " class='name'" if name in _NAMES else " class='number'"

    head = "".join(f"<th scope='col'{kind(name)}>{escape(name)}</th>" for name in columns)
    rows = [
        "".join(f"<td{kind(name)} data-label='{escape(name)}'>{escape(text)}</td>" for name, text in row.items())
        for row in lines
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><caption>{escape(key)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _risks(advice: Advice) -> Iterator[str]:
    found = {risk: paths for risk, paths in advice.at_risk().items() if paths}
    if not found:
        yield "<p class='muted'>Nothing that samples show.</p>"
        return
    yield "<ul>"
    for risk, paths in found.items():
        text = f"{RISKS[risk]}. {len(paths)} paths: {named(paths, 20)}"
        yield f"<li><strong>{escape(WORDS[risk])}</strong>: {escape(text)}</li>"
    yield "</ul>"
