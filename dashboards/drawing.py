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
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import Bbox
from springtide.store import Store

from dashboards.plugin import View, expanded, values_of

# Grafana's grid: 24 columns; a row of it is 30 pixels and a gap of 8 high (grafana.com, "Dashboard JSON model").
COLUMNS = 24
ROW_INCHES = 0.38
WIDTH_INCHES = 16.0
SHOWN_ROWS = 12
DAY_S = 86_400
# The width of one bar alone: a round.
BAR_S = 300
# Points that Grafana asks for over a panel's width, and the shortest time between two.
POINTS, SHORTEST_S = 288, 10
# By Grafana's name of a unit: what stands behind a number, and whether thousands have prefixes.
UNITS = {
    "percent": (" %", False),
    "percentunit": (" %", False),
    "ms": (" ms", False),
    "s": (" s", False),
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
COLOURS = {"green": "#56A64B", "yellow": "#E0B400", "orange": "#FF780A", "red": "#E02F44", "text": "#333333"}

INSTANT = re.compile(r"^\d{4}-(\d\d-\d\d \d\d:\d\d):\d\d$")
Rows = list[dict[str, Any]]


def shown(value: object, unit: str | None) -> str:
    """A value as a panel shows it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        # Without year and seconds.
        return "" if value is None else INSTANT.sub(r"\1", str(value))
    name, prefixes = UNITS.get(unit or "", ("", unit == "short"))
    number = float(value) * (100 if unit == "percentunit" else 1)
    power = 0
    while prefixes and abs(number) >= 1000 and power < len(PREFIXES) - 1:
        number, power = number / 1000, power + 1
    digits = f"{number:.3g}" if abs(number) < 1000 else f"{number:.0f}"
    return f"{digits} {PREFIXES[power]}{name}".rstrip() if prefixes else f"{digits}{name}"


def drawn(document: Mapping[str, Any], view: View, rows_of: Callable[[dict[str, Any]], Rows | None]) -> Figure:
    """A dashboard; `rows_of` gives what a panel's query gives, None for one of Prometheus."""
    span = (_day(view.since), _day(view.until))
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in document["panels"]) + 1
    figure = Figure(figsize=(WIDTH_INCHES, height * ROW_INCHES), dpi=80, facecolor="white")
    figure.suptitle(document["title"], x=0.01, y=1 - 0.3 / height, ha="left", fontsize=15, weight="bold")
    for panel in document["panels"]:
        place = panel["gridPos"]
        left, top = place["x"] / COLUMNS, 1 - (place["y"] + 1) / height
        if panel["type"] == "row":
            figure.text(left + 0.01, top - 0.7 / height, panel["title"], fontsize=11, weight="bold", va="center")
            continue
        inside = (place["w"] / COLUMNS - 0.05, (place["h"] - 2.4) / height)
        axes = figure.add_axes((left + 0.035, top - (place["h"] - 1.2) / height, *inside))
        axes.set_title(panel["title"], loc="left", fontsize=9)
        rows = rows_of(panel)
        if not rows:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "from Prometheus" if rows is None else "no rows", ha="center", color="#777777")
        else:
            {"stat": _number, "timeseries": _lines, "table": _table}[panel["type"]](axes, panel, rows)
            if panel["type"] == "timeseries":
                axes.set_xlim(span)
    return figure


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
            axes.plot(times, values, marker="." if len(points) < 20 else None, label=name)
    if defaults["custom"].get("thresholdsStyle", {}).get("mode") == "dashed":
        for least, colour in _steps(panel)[1:]:
            axes.axhline(least, linestyle="--", linewidth=1, color=COLOURS[colour])
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, defaults.get("unit"))))
    axes.xaxis_date()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda day, _: f"{datetime.fromtimestamp(day * DAY_S, UTC):%H:%M}"))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, loc="best", ncols=max(1, len(series) // 6))


def _table(axes: Axes, panel: Mapping[str, Any], rows: Rows) -> None:
    units = {
        override["matcher"]["options"]: setting["value"]
        for override in panel["fieldConfig"].get("overrides", [])
        for setting in override["properties"]
        if setting["id"] == "unit"
    }
    names = list(rows[0])
    cells = [[textwrap.shorten(shown(row[name], units.get(name)), 22) for name in names] for row in rows[:SHOWN_ROWS]]
    axes.set_axis_off()
    heads = ["\n".join(textwrap.wrap(name.replace("_", " "), 12)) for name in names]
    high = (len(cells) + 1) / (SHOWN_ROWS + 1)
    place = Bbox.from_bounds(0, 1 - high, 1, high)
    made = axes.table(cells, colLabels=heads, edges="B", cellLoc="left", colLoc="left", bbox=place)
    made.auto_set_font_size(False)
    made.set_fontsize(7)


def of_store(store: Store, document: Mapping[str, Any], view: View, typed: Mapping[str, list[str]]) -> Figure:
    """A dashboard over a store; `typed` is what stands in its text boxes, where that is not the default."""
    values = values_of(store, document, view, typed)

    def rows_of(panel: dict[str, Any]) -> Rows | None:
        queries = [target["rawSql"] for target in panel["targets"] if "rawSql" in target]
        return store.query(expanded(queries[0], values, view)) if queries else None

    return drawn(document, view, rows_of)


def draw(store: Store, documents: Mapping[str, dict[str, Any]], folder: Path, since: int, until: int) -> Iterator[Path]:
    """Every dashboard over this span (seconds since the epoch), as NAME.png in a folder."""
    view = View(since, until, max(SHORTEST_S, (until - since) // POINTS))
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        path = folder / f"{Path(name).stem}.png"
        of_store(store, document, view, {}).savefig(path)
        yield path
