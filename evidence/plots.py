"""The one style of the plots: as narrow as a telephone; lines differ in dashes, and in grey too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.calm.plot import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LINES", "drawn", "legend"]
# Okabe and Ito's colours, which the colour-blind tell apart, from dark to light.
LINES: Sequence[Mapping[str, Any]] = [
    {"color": "#000000", "linestyle": "-", "linewidth": 1.2},
    {"color": "#0072b2", "linestyle": "--", "linewidth": 1.6},
    {"color": "#d55e00", "linestyle": "-.", "linewidth": 1.6},
    {"color": "#009e73", "linestyle": ":", "linewidth": 2.0},
    {"color": "#cc79a7", "linestyle": (0, (6, 2, 1, 2)), "linewidth": 1.4},
    {"color": "#e69f00", "linestyle": (0, (1, 1)), "linewidth": 2.0},
    {"color": "#56b4e9", "linestyle": (0, (8, 2)), "linewidth": 2.0},
    {"color": "#777777", "linestyle": "-", "linewidth": 2.4},
]


def legend(figure: Figure, axes: Axes) -> None:
    """Beside the panel: within it, it would hide a curve."""
    axes.grid(alpha=0.25)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
