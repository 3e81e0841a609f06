"""Columns as the engine's RowBinary: rows of fixed width, without an object for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Masked values are null.
Columns = Mapping[str, NDArray[Any]]

_TYPES = {"u1": "UInt8", "u4": "UInt32", "u8": "UInt64", "i8": "Int64", "f8": "Float64", "b1": "UInt8"}


@contextmanager
def binary_source(columns: Columns) -> Iterator[tuple[str, str]]:
    """What to select and the table function to select it from, while the context lasts.

    A file in memory leaves nothing behind, whatever becomes of this process.
    """
    fields: list[tuple[str, np.dtype[Any]]] = []
    structure, select = [], []
    for name, column in columns.items():
        nullable = isinstance(column, np.ma.MaskedArray)
        text = column.dtype.kind == "S"
        fields += [(f"{name}_is_null", np.dtype("u1"))] * nullable + [(name, column.dtype)]
        structure += [f"{name}_is_null UInt8"] * nullable + [f"{name} {_type(column.dtype)}"]
        value = f"toStringCutToZero({name})" if text else name
        select.append(f"if({name}_is_null, null, {value})" if nullable else value)
    rows = np.zeros(len(next(iter(columns.values()))), np.dtype(fields))
    for name, column in columns.items():
        rows[name] = np.ma.getdata(column)
        if isinstance(column, np.ma.MaskedArray):
            rows[f"{name}_is_null"] = np.ma.getmaskarray(column)
    fd = os.memfd_create("springtide-columns", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(rows.data)
        yield ", ".join(select), f"file('/proc/self/fd/{fd}', 'RowBinary', '{', '.join(structure)}')"
    finally:
        os.close(fd)


def _type(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "S":
        return f"FixedString({dtype.itemsize})"
    return _TYPES[dtype.str.lstrip("<|")]
