"""Serialized Envelopes as columns, parsed by the engine in this process."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from springtide.errors import StoreError
from springtide.store.base import encode
from springtide.store.engine import crash_by_default, engine
from springtide.store.files import proto_file

# The syntax tree of a text, which is a parameter here and never part of a statement.
SYNTAX = "select parseQueryToJSON({text:String}) as tree"


@contextmanager
def message_source(structure: str, messages: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    """A table function over all TcpSamples in `messages`, and the settings that it needs, while the context lasts.

    All Envelopes are merged into one, since the engine's file reader stops after the first: in protobuf the
    concatenation of messages is their merge. A file in memory is removed even if this process is killed.
    """
    fd = os.memfd_create("springtide-batch", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(varint(sum(map(len, messages))))
            file.writelines(messages)
        quoted = structure.replace("\\", "\\\\").replace("'", "\\'")
        yield f"file('/proc/self/fd/{fd}', 'ProtobufList', '{quoted}')", f"format_schema = '{proto_file()}:TcpSample'"
    finally:
        os.close(fd)


def parsed_columns(
    structure: str, messages: Sequence[bytes], select: str = "select *", fits: str = "1"
) -> tuple[list[str], list[list[Any]]]:
    """Names and columns, as JSON values, of the rows that fit; raises StoreError when the engine cannot parse."""
    with message_source(structure, messages) as (source, settings):
        form = "output_format_json_quote_64bit_integers = 0, max_threads = 1"
        fitting = f"(select * from {source} where {fits})"
        columns = _query("messages", f"{select} from {fitting} settings {settings}, {form}", {})
    return list(columns), list(columns.values())


def syntax(sql: str) -> str:
    """As Store.syntax, in the engine of this process."""
    return str(_query("query", SYNTAX, {"text": encode(sql)})["tree"][0])


def _query(what: str, sql: str, params: Mapping[str, str]) -> dict[str, list[Any]]:
    """The result's columns, from the engine in this process without an open store."""
    query: Callable[..., Any] = engine("chdb").query
    try:
        columns: dict[str, list[Any]] = json.loads(bytes(query(sql, "JSONColumns", params=params).bytes()))
        crash_by_default()
    except Exception as error:
        code = re.search(r"Code: (\d+)", str(error))
        reason = re.sub(r"\s+", " ", str(error)).strip().removeprefix("Code: ")[:500]
        raise StoreError(f"{what}: {reason}", int(code[1]) if code else 0) from error
    return columns


def varint(number: int) -> bytes:
    """A base-128 varint, as protobuf writes lengths."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
