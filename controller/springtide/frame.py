"""Many rows as columns, each an array of its own: what takes one value of every row fetches no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from springtide.pieces import fill, taken


@dataclass(frozen=True)
class Coded:
    """A column of texts of which few are different: these, each once, and of each row the number of its own."""

    texts: NDArray[np.bytes_]
    numbers: NDArray[np.unsignedinteger[Any]]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: slice | NDArray[Any]) -> Coded:
        return Coded(self.texts, self.numbers[at])

    def listed(self) -> NDArray[np.bytes_]:
        """Each row's own."""
        listed: NDArray[np.bytes_] = self.texts[self.numbers]
        return listed

    def tolist(self) -> list[bytes]:
        texts: list[bytes] = self.listed().tolist()
        return texts


class Frame:
    """Rows of `dtype`, read like a structured array: a column by its name, some of the rows by their places. What is
    coded stays so in `columns`, and texts take the room that they come with, if it is not more than `dtype` has."""

    def __init__(self, dtype: np.dtype[np.void], columns: Mapping[str, NDArray[Any] | Coded]) -> None:
        self.dtype = dtype
        self.columns: Mapping[str, NDArray[Any] | Coded] = {
            name: _column(columns[name], dtype[name]) for name in dtype.names or ()
        }

    @classmethod
    def of(cls, rows: Frame | NDArray[np.void]) -> Frame:
        return rows if isinstance(rows, Frame) else cls(rows.dtype, taken(rows, rows.dtype.names or ()))

    @classmethod
    def empty(cls, count: int, dtype: np.dtype[np.void]) -> Frame:
        """Nothing says what is in them yet."""
        return cls(dtype, {name: np.empty(count, dtype[name]) for name in dtype.names or ()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, at: str) -> NDArray[Any]: ...

    @overload
    def __getitem__(self, at: slice | NDArray[Any]) -> Frame: ...

    def __getitem__(self, at: str | slice | NDArray[Any]) -> Frame | NDArray[Any]:
        if isinstance(at, str):
            return listed(self.columns[at])
        return Frame(self.dtype, {name: column[at] for name, column in self.columns.items()})

    def __iter__(self) -> Iterator[np.void]:
        return iter(self.table())

    def tolist(self) -> list[tuple[Any, ...]]:
        return list(zip(*(column.tolist() for column in self.columns.values()), strict=True))

    def table(self) -> NDArray[np.void]:
        """The same as a structured array."""
        rows = np.empty(len(self), self.dtype)
        fill(rows, {name: self[name] for name in self.columns})
        return rows


def _column(column: NDArray[Any] | Coded, form: np.dtype[Any]) -> NDArray[Any] | Coded:
    if isinstance(column, Coded):
        return Coded(column.texts.astype(form), column.numbers)
    found = np.asarray(column)
    return found if fits(found.dtype, form) else found.astype(form, copy=False)


def listed(column: NDArray[Any] | Coded) -> NDArray[Any]:
    """Each row's own."""
    return column.listed() if isinstance(column, Coded) else column


def fits(narrow: np.dtype[Any], form: np.dtype[Any]) -> bool:
    """Whether these are texts of at most that room."""
    return narrow.kind == form.kind == "S" and narrow.itemsize <= form.itemsize
