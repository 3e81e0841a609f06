"""The interface of every store, and the encoding of values as ClickHouse's own {name:Type} parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Frame
from springtide.store.binary import Columns

Param = str | int | float | bool | None | Sequence[str] | Sequence[int]
Row = dict[str, Any]


class Store(Protocol):
    """A ClickHouse engine, in this process or on a server. Every method raises StoreError when the engine refuses."""

    @property
    def url(self) -> str: ...

    def query(self, sql: str, params: Mapping[str, Param] | None = None) -> list[Row]:
        """Rows by column name; 64-bit integers are exact, NaN is None."""
        ...

    def columns(
        self, sql: str, dtype: np.dtype[np.void], params: Mapping[str, Param] | None = None
    ) -> NDArray[np.void]:
        """Many rows at once, without an object for each: columns of fixed width, those of `dtype` by name in any order.
        Raises StoreError where the statement returns other columns."""
        ...

    def frame(
        self, sql: str, dtype: np.dtype[np.void], params: Mapping[str, Param] | None = None, expected: int = 0
    ) -> Frame:
        """The same, each column an array of its own. With about as many rows as are `expected` it takes less memory."""
        ...

    def execute(self, sql: str, params: Mapping[str, Param] | None = None) -> None: ...

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        """Insert rows that all have the same columns; doubles are stored bit for bit. All are stored if it returns."""
        ...

    def insert_columns(self, table: str, columns: Columns) -> None:
        """Many rows at once, without an object for each: columns of one length, masked values are null."""
        ...

    def insert_messages(
        self, table: str, select: str, structure: str, messages: Sequence[bytes], fits: str = "1"
    ) -> int:
        """Insert the result of `select` over the TcpSamples in `messages`, each a serialized Envelope without its
        length, for which the expression `fits` is true; returns their number.

        `structure` names the columns that are parsed, with the engine's types. The engine parses; a message that it
        cannot parse fails the whole call, of which a part may have been stored.
        """
        ...

    def parse_messages(self, select: str, structure: str, messages: Sequence[bytes]) -> list[Row]:
        """As insert_messages, without inserting: the rows that `select` returns."""
        ...

    def syntax(self, sql: str) -> str:
        """The engine's own syntax tree of one statement, as JSON; the statement is not run."""
        ...

    def close(self) -> None: ...


def encode(value: Param) -> str:
    """A parameter in the text form that the engine parses: escaped as in TabSeparated, arrays as literals."""
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _escape(value)
    if isinstance(value, Sequence):
        return "[" + ",".join(f"'{_quote(item)}'" if isinstance(item, str) else str(item) for item in value) + "]"
    return str(value)


def _escape(text: str) -> str:
    for raw, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0")):
        text = text.replace(raw, escaped)
    return text


def _quote(text: str) -> str:
    return _escape(text).replace("'", "\\'")
