"""Dashboards as pictures, for places without Grafana: each panel from its query, with its own units and thresholds.

    python -m dashboards draw OUT

writes OUT/NAME.png for each dashboard, of the last day (or --from, --to) in the store that SPRINGTIDE_STORE names.
Panels that ask Prometheus say so and stay empty.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox
from PIL import Image
from springtide.store import Store

from dashboards.plugin import View, expanded, values_of

# Grafana's grid: 24 columns; a row of it is 30 pixels and a gap of 8 high (grafana.com, "Dashboard JSON model").
COLUMNS = 24
ROW_INCHES = 0.38
WIDTH_INCHES = 16.0
# Rows of the grid that a row of a table takes, and a panel with nothing to show but its title.
TABLE_ROW, EMPTY_ROWS = 0.55, 4
# Pixels of the times below a line.
LABELS_PX = 14
DAY_S = 86_400
# The width of one bar alone: a round.
BAR_S = 300
# Points that Grafana asks for over a panel's width, and the shortest time between two.
POINTS, SHORTEST_S = 288, 10
# By Grafana's name of a unit: what stands behind a number, and whether thousands have prefixes.
UNITS = {
    "percent": (" %", False),
    "percentunit": (" %", False),
    "Mbits": (" Mbit/s", False),
    "Bps": ("B/s", True),
    "bytes": ("B", True),
    "decbytes": ("B", True),
    "deckbytes": (" kB", False),
    "decmbytes": (" MB", False),
    "cps": (" c/s", False),
    "rowsps": (" rows/s", False),
}
PREFIXES = ("", "k", "M", "G", "T")
# Units of time, in seconds, and those of them that have prefixes of their own.
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
LONG = (("d", DAY_S), ("h", 3600), ("min", 60), *SECONDS.items())
COLOURS = {"green": "#56A64B", "yellow": "#E0B400", "orange": "#FF780A", "red": "#E02F44", "text": "#333333"}

INSTANT = re.compile(r"^\d{4}-(\d\d-\d\d \d\d:\d\d):\d\d(\.\d+)?$")
# Letters of a cell; a longer text ends in an ellipsis.
LONGEST = 36
Rows = list[dict[str, Any]]


def shown(value: object, unit: str | None) -> str:
    """A value as a panel shows it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        # Without year and seconds.
        return "" if value is None else INSTANT.sub(r"\1", str(value))
    if unit in SECONDS:
        seconds = value * SECONDS[unit]
        name, length = next((one for one in LONG if abs(seconds) >= one[1]), (unit, SECONDS[unit]))
        return f"{_digits(seconds / length)} {name}"
    name, prefixes = UNITS.get(unit or "", ("", unit == "short"))
    number = float(value) * (100 if unit == "percentunit" else 1)
    power = 0
    while prefixes and abs(number) >= 1000 and power < len(PREFIXES) - 1:
        number, power = number / 1000, power + 1
    digits = _digits(number)
    return f"{digits} {PREFIXES[power]}{name}".rstrip() if prefixes else f"{digits}{name}"


def _digits(number: float) -> str:
    """Three of them, without powers of ten: few know those at a glance."""
    if 0 < abs(number) < 1e-4:
        return f"{number:.6f}".rstrip("0").rstrip(".")
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"


def drawn(document: Mapping[str, Any], view: View, rows_of: Callable[[dict[str, Any]], Rows | None]) -> Figure:
    """A dashboard; `rows_of` gives what a panel's query gives, None for one of Prometheus."""
    span = (_day(view.since), _day(view.until))
    found = [(panel, [] if panel["type"] == "row" else rows_of(panel)) for panel in document["panels"]]
    places = _places(found)
    height = max(place["y"] + place["h"] for place in places) + 1
    figure = Figure(figsize=(WIDTH_INCHES, height * ROW_INCHES), dpi=80, facecolor="white")
    figure.suptitle(document["title"], x=0.01, y=1 - 0.3 / height, ha="left", fontsize=15, weight="bold")
    for (panel, rows), place in zip(found, places, strict=True):
        left, top = place["x"] / COLUMNS, 1 - (place["y"] + 1) / height
        if panel["type"] == "row":
            figure.text(left + 0.01, top - 0.7 / height, panel["title"], fontsize=11, weight="bold", va="center")
            continue
        # Lines have their names below.
        below = 1.8 if rows and panel["type"] == "timeseries" else 0.6
        inside = (place["w"] / COLUMNS - 0.055, (place["h"] - 1.4 - below) / height)
        axes = figure.add_axes((left + 0.045, top - (place["h"] - below) / height, *inside))
        axes.set_title(panel["title"], loc="left", fontsize=9)
        if not rows:
            axes.set_axis_off()
            text = "no rows" if rows is not None else f"from Prometheus: {panel['description']}"
            text = textwrap.fill(text, int(axes.bbox.width / 6))
            axes.text(0, 0.95, text, va="top", fontsize=8, color="#777777")
        else:
            {"stat": _number, "timeseries": _lines, "table": _table}[panel["type"]](axes, panel, rows)
            if panel["type"] == "timeseries":
                axes.set_xlim(span)
    return figure


def _places(found: list[tuple[dict[str, Any], Rows | None]]) -> list[dict[str, float]]:
    """Each panel's place. Those side by side are as high as the one that has most to show, which lifts what follows."""
    bands: dict[int, list[float]] = defaultdict(list)
    for panel, rows in found:
        place = panel["gridPos"]
        high = EMPTY_ROWS if rows is None else place["h"]
        if panel["type"] == "table":
            high = EMPTY_ROWS + TABLE_ROW * len(rows or ())
        bands[place["y"]].append(min(place["h"], high))
    tops = accumulate((max(bands[y]) for y in sorted(bands)), initial=0.0)
    top_of = dict(zip(sorted(bands), tops, strict=False))
    return [
        panel["gridPos"] | {"y": top_of[panel["gridPos"]["y"]], "h": max(bands[panel["gridPos"]["y"]])}
        for panel, _ in found
    ]


def _day(unix_s: float) -> float:
    """An instant as matplotlib's dates: days since the epoch."""
    return unix_s / DAY_S


def _steps(panel: Mapping[str, Any]) -> list[tuple[float, str]]:
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    return [(float("-inf") if step["value"] is None else step["value"], step["color"]) for step in steps]


def _number(axes: Axes, panel: Mapping[str, Any], rows: Rows) -> None:
    [value] = rows[-1].values()
    reached = [colour for least, colour in _steps(panel) if isinstance(value, int | float) and value >= least]
    axes.set_axis_off()
    text = shown(value, panel["fieldConfig"]["defaults"].get("unit"))
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=20, color=COLOURS[(reached or ["text"])[-1]])


def _lines(axes: Axes, panel: Mapping[str, Any], rows: Rows) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        moment = _day(datetime.fromisoformat(row["time"]).replace(tzinfo=UTC).timestamp())
        numbers = {name: value for name, value in row.items() if name not in ("time", "series")}
        for name, value in numbers.items():
            if value is not None:
                series[str(row.get("series", name))].append((moment, float(value)))
    stacked = defaults["custom"].get("stacking", {}).get("mode") == "normal"
    floor: dict[float, float] = defaultdict(float)
    # A bar is narrower than the time from one row to the next.
    moments = sorted({moment for points in series.values() for moment, _ in points})
    wide = 0.7 * min((after - before for before, after in pairwise(moments)), default=BAR_S / DAY_S)
    for name, points in series.items():
        times, values = [point[0] for point in points], [point[1] for point in points]
        if stacked:
            axes.bar(times, values, width=wide, bottom=[floor[moment] for moment in times], label=name)
            for moment, value in points:
                floor[moment] += value
        else:
            axes.plot(*_broken(points, defaults["custom"]["spanNulls"] / 1000), linewidth=1.2, label=name)
            axes.plot(times, values, "." if len(points) < 20 else "", color=axes.lines[-1].get_color())
    if defaults["custom"].get("thresholdsStyle", {}).get("mode") == "dashed":
        for least, colour in _steps(panel)[1:]:
            axes.axhline(least, linestyle="--", linewidth=1, color=COLOURS[colour])
    _scale(axes, defaults.get("unit"), all(value == int(value) for points in series.values() for _, value in points))
    if series:
        # Below, as Grafana has it: no line is hidden.
        lines, names = axes.get_legend_handles_labels()
        columns = max(1, int(axes.bbox.width / (30 + 4.2 * max(map(len, series)))))
        axes.legend(
            lines[: 2 * columns],
            names[: 2 * columns],
            loc="upper left",
            bbox_to_anchor=(-0.02, -LABELS_PX / axes.bbox.height),
            ncols=columns,
            columnspacing=1.2,
            fontsize=6,
            frameon=False,
            borderpad=0,
        )


def _broken(points: list[tuple[float, float]], longest_s: float) -> tuple[list[float], list[float]]:
    """Times and values of a line that breaks where nothing is known for longer than that."""
    times, values = [points[0][0]], [points[0][1]]
    for (before, _), (moment, value) in pairwise(points):
        # Days are no whole seconds.
        if (moment - before) * DAY_S > longest_s + 1:
            times.append(moment)
            values.append(float("nan"))
        times.append(moment)
        values.append(value)
    return times, values


def _scale(axes: Axes, unit: str | None, whole: bool) -> None:
    """Axes from zero in the panel's unit, and by time of day; `whole` numbers have no parts."""
    low, high = axes.get_ylim()
    values = [value for line in axes.lines for value in np.asarray(line.get_ydata())]
    axes.set_ylim(*((0, 1) if values and not any(values) else (min(0, low), max(0, high))))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))
    axes.xaxis_date()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda day, _: f"{datetime.fromtimestamp(day * DAY_S, UTC):%H:%M}"))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _table(axes: Axes, panel: Mapping[str, Any], rows: Rows) -> None:
    units = {
        override["matcher"]["options"]: setting["value"]
        for override in panel["fieldConfig"].get("overrides", [])
        for setting in override["properties"]
        if setting["id"] == "unit"
    }
    names = list(rows[0])
    cells = [[_cut(shown(row[name], units.get(name))) for name in names] for row in rows]
    heads = ["\n".join(textwrap.wrap(name.replace("_", " "), 12)) for name in names]
    lines = max(head.count("\n") for head in heads) + 1
    widths = [2 + max(map(len, (*head.split("\n"), *column))) for head, *column in zip(heads, *cells, strict=True)]
    # One row, and one line of the names of columns, as parts of the panel.
    one, line = (TABLE_ROW * part * ROW_INCHES * axes.figure.dpi / axes.bbox.height for part in (1, 0.7))
    cells = cells[: max(1, int((1 - lines * line) / one))]
    axes.set_axis_off()
    high = lines * line + len(cells) * one
    made = axes.table(
        cells,
        colLabels=heads,
        colWidths=[width / sum(widths) for width in widths],
        edges="B",
        cellLoc="left",
        colLoc="left",
        bbox=Bbox.from_bounds(0, 1 - high, 1, high),
    )
    made.auto_set_font_size(False)
    made.set_fontsize(7)
    for (row, _), cell in made.get_celld().items():
        cell.set_height(one if row else lines * line)
        cell.PAD = 0.03


def of_store(store: Store, document: Mapping[str, Any], view: View, typed: Mapping[str, list[str]]) -> Figure:
    """A dashboard over a store; `typed` is what stands in its text boxes, where that is not the default."""
    values = values_of(store, document, view, typed)

    def rows_of(panel: dict[str, Any]) -> Rows | None:
        queries = [target["rawSql"] for target in panel["targets"] if "rawSql" in target]
        return store.query(expanded(queries[0], values, view)) if queries else None

    return drawn(document, view, rows_of)


def save(figure: Figure, path: Path) -> None:
    """Writes a picture with as many colours as lines and letters need: a third of the bytes."""
    figure.savefig(made := BytesIO())
    Image.open(made).convert("RGB").quantize(128).save(path, optimize=True)


def draw(store: Store, documents: Mapping[str, dict[str, Any]], folder: Path, since: int, until: int) -> Iterator[Path]:
    """Every dashboard over this span (seconds since the epoch), as NAME.png in a folder."""
    view = View(since, until, max(SHORTEST_S, (until - since) // POINTS))
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        path = folder / f"{Path(name).stem}.png"
        save(of_store(store, document, view, {}), path)
        yield path
