"""Units that the law decides on: an ordered pair of PoPs, or a PoP and a client prefix, one IP version."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Coded, Frame, listed
from springtide.laws.columns import Keys, Table, begins, located, union
from springtide.observe.pairs import PAIR_KEY
from springtide.pieces import fill

# `destination` is the other PoP's name, or a client prefix as text, like 203.0.113.0/24.
UNIT_KEY = PAIR_KEY
_KEY = np.dtype(UNIT_KEY)


def width(longest: int) -> int:
    """Number of bytes of each destination that are read where none is longer, in whole words: most are far shorter than
    one may be. (A statement fails on a longer one that another process wrote since that was asked; it is run again.)"""
    return max(-(-longest // 8) * 8, 8)


def keys(table: Table | Frame) -> Keys:
    """One sortable key a row: by source, destination, IP version."""
    packed = np.empty(len(table), _KEY)
    fill(packed, {name: table[name] for name in _KEY.names or ()})
    return packed.view(f"S{_KEY.itemsize}").reshape(len(table))


def placed(*frames: Frame) -> tuple[Frame, list[NDArray[np.intp]]]:
    """All units of these frames, sorted, each once, and of each frame the rows that are theirs (of several the first,
    -1 is none). The units are the first frame itself where it has just these rows: where a round has the units of the
    one before nothing is searched for."""
    first = frames[0]
    if _ascends(first) and all(frame is first or not len(frame) or _alike(frame, first) for frame in frames[1:]):
        every, none = np.arange(len(first)), np.full(len(first), -1)
        return first, [every if len(frame) else none for frame in frames]
    of_first = keys(first)
    own = [of_first if frame is first or _alike(frame, first) else keys(frame) for frame in frames]
    wanted = union(*own)
    return first if wanted is of_first else named(wanted), [located(one, wanted) for one in own]


def _ascends(frame: Frame) -> bool:
    """Whether its units are sorted, each once."""
    src, destination, version = frame.columns["src_pop"], frame["destination"], frame["ip_version"]
    further = (destination[1:] > destination[:-1]) | ((version[1:] > version[:-1]) & ~begins(destination)[1:])
    at = np.flatnonzero(begins(src))
    further[at[1:] - 1] = listed(src[at[1:]]) > listed(src[at[1:] - 1])
    return bool(further.all())


def _alike(frame: Frame, other: Frame) -> bool:
    """Whether they are of the same units in the same order."""
    return len(frame) == len(other) and all(
        _same(frame.columns[name], other.columns[name]) for name in _KEY.names or ()
    )


def _same(one: NDArray[Any] | Coded, other: NDArray[Any] | Coded) -> bool:
    if isinstance(one, Coded) and isinstance(other, Coded):
        known = {text: number for number, text in enumerate(one.texts.tolist())}
        # A text that only the other has is no row's of this one.
        of_one = np.array([known.get(text, len(known)) for text in other.texts.tolist()], np.uint32)
        return np.array_equal(one.numbers, of_one[other.numbers])
    texts, others = listed(one), listed(other)
    if texts.dtype == others.dtype and texts.dtype.itemsize % 8 == 0:
        # Texts as numbers are compared eight bytes at once.
        texts, others = (np.ascontiguousarray(column).view(np.uint64) for column in (texts, others))
    return np.array_equal(texts, others)


def named(wanted: Keys) -> Frame:
    """The columns of such keys."""
    return Frame.of(wanted.astype(f"S{_KEY.itemsize}").view(_KEY).reshape(len(wanted)))
