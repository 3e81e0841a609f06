"""One pair's week under each controller, and what each controller costs and gains over all pairs, as SVG.

Pictures are as narrow as a telephone, so that their text is not shrunk; curves differ in shape, so
that grey suffices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from bench.calm.controllers import INTERVAL_S
from bench.calm.simulate import Shown, Tally, best

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES = 4.2
OURS, OTHERS = "#0b5f80", "#b9bec6"


@contextmanager
def drawn(height_inches: float, path: Path) -> Iterator[Figure]:
    """A figure, which is written as SVG at the end."""
    import matplotlib as mpl
    from matplotlib import figure as figures

    with mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "springtide", "font.family": "sans-serif", "font.size": 9}
    ):
        figure = figures.Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    # A tenth of a point is finer than any screen; only within tags, not in the texts between them.
    path.write_text(re.sub(r"(\d\.\d)\d+(?=[^<>]*>)", r"\1", text.getvalue()))


def draw(tallies: Sequence[Tally], shown: Shown, days: float, path: Path) -> None:
    with drawn(10, path) as figure:
        grid = figure.add_gridspec(3, 1, height_ratios=[3, 1.2, 1.2])
        weeks, calm, gain = (figure.add_subfigure(grid[at]) for at in range(3))
        panels = weeks.subplots(2, 1, sharex=True)
        ours, plain = tallies[0].name, tallies[2].name
        for axes, pair in zip(panels, _lively(shown), strict=False):
            hours = [at * INTERVAL_S / 3600 for at in range(len(pair))]
            fits = [best(capacity) for capacity, _ in pair]
            axes.fill_between(hours, fits, color="#dcdfe4", step="post", label="what fits")
            # The thin dashes over the thick line: neither hides the other where they agree.
            axes.step(hours, [each[0] or 10 for _, each in pair], "-", where="post", color=OURS, lw=2.2, label=ours)
            axes.step(hours, [each[2] or 10 for _, each in pair], "--", where="post", color="#222", lw=0.7, label=plain)
            axes.set_ylabel("window, segments")
            axes.set_ylim(bottom=0)
        panels[-1].set_xlabel("hours")
        weeks.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9)
        summaries = [tally.summary(days) for tally in tallies]
        for part, key, title in (
            (calm, "changes_per_pair_and_day_median", "changes per pair and day, median: fewer is calmer"),
            (gain, "share_of_attainable_gain", "share of the attainable gain: more is better"),
        ):
            axes = part.subplots()
            values = [float(one[key]) for one in summaries]
            colours = [OURS, *[OTHERS] * (len(tallies) - 1)]
            bars = axes.barh([tally.name for tally in tallies], values, color=colours, edgecolor="#222")
            axes.bar_label(bars, fmt="%.3g", padding=2)
            # Room for the longest bar's number.
            axes.set_xlim(0, 1.2 * max(values))
            axes.invert_yaxis()
            part.suptitle(title, fontsize=9)


def _lively(shown: Shown) -> Shown:
    """The two pairs whose best window moves most: a flat line shows no difference."""
    return sorted(shown, key=lambda pair: -len({best(capacity) for capacity, _ in pair}))[:2]
