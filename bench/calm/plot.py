"""One pair's week under each controller, and what each controller costs and gains over all pairs, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.calm.controllers import INTERVAL_S
from bench.calm.simulate import Shown, Tally, best

COLOURS = ("#0b7fab", "#7cc0d8", "#d08a2e", "#a34a4a", "#8a8f98")


def draw(tallies: Sequence[Tally], shown: Shown, days: float, path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "springtide", "font.family": "sans-serif"}):
        figure = Figure(figsize=(10, 7.5), layout="constrained")
        grid = figure.add_gridspec(3, 2)
        for row, pair in enumerate(_lively(shown)):
            axes = figure.add_subplot(grid[row, :])
            hours = [at * INTERVAL_S / 3600 for at in range(len(pair))]
            axes.plot(hours, [best(capacity) for capacity, _ in pair], color="#bbb", linewidth=4, label="what fits")
            for which in (2, 0):
                windows = [each[which] or 10 for _, each in pair]
                axes.step(hours, windows, where="post", color=COLOURS[which], linewidth=1, label=tallies[which].name)
            axes.set_ylabel("segments")
            axes.set_xlabel("hours")
            axes.legend(fontsize=8, loc="upper right")
        summaries = [tally.summary(days) for tally in tallies]
        for column, (key, title) in enumerate(
            [
                ("changes_per_pair_and_day_median", "changes per pair and day"),
                ("share_of_attainable_gain", "share of the attainable gain"),
            ]
        ):
            axes = figure.add_subplot(grid[2, column])
            bars = axes.barh([tally.name for tally in tallies], [float(one[key]) for one in summaries], color=COLOURS)
            axes.bar_label(bars, fmt="%.3g", fontsize=8, padding=2)
            axes.invert_yaxis()
            axes.set_title(title, fontsize=9)
            axes.tick_params(labelsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _lively(shown: Shown) -> Shown:
    """The two pairs whose best window moves most: a flat line shows no difference."""
    return sorted(shown, key=lambda pair: -len({best(capacity) for capacity, _ in pair}))[:2]
