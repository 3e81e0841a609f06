"""Advice as one HTML page that needs nothing else: a sentence, two plots as SVG, the paths, the risks, what loss costs.

Plots are 400 units wide, so that a telephone shows their text as large as the page's; what differs differs in shape,
so that grey suffices.
"""

from __future__ import annotations

from springtide import instants
from springtide.learn import advise_words as words
from springtide.learn import losses
from springtide.learn.advise import Advice
from springtide.learn.advise_path import RISKS, SIZES
from springtide.pages import render

# Paths in the plot.
DRAWN = 12


def page(advice: Advice, top: int) -> str:
    """The best `top` of at least one path."""
    best = advice.paths[:top]
    return render(
        __file__,
        advice=advice,
        show=instants.show,
        words=words,
        losses=losses,
        RISKS=RISKS,
        size=words.size_name(words.MAIN_SIZE),
        drawn=[(path, path.saving(words.MAIN_SIZE)) for path in best[:DRAWN]],
        means=[(words.size_name(size_bytes), *advice.mean_ms(size_bytes)) for size_bytes in SIZES],
        best=[words.cells(path).values() for path in best],
        loss=[row.values() for row in advice.loss.table()],
    )
