"""Serialized Envelopes as columns, parsed by the engine in this process."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from springtide.errors import StoreError
from springtide.store.files import proto_file


@contextmanager
def message_source(structure: str, messages: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    """A table function over all TcpSamples in `messages`, and the settings that it needs, while the context lasts.

    One Envelope is made of many: in protobuf, the concatenation of messages is their merge. The engine's file reader
    stops after the first of several. A file in memory leaves nothing behind, whatever becomes of this process.
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


def parsed_columns(structure: str, messages: Sequence[bytes]) -> tuple[list[str], list[list[Any]]]:
    """Names and columns, as JSON values; raises StoreError when the engine cannot parse."""
    query: Callable[..., Any] = importlib.import_module("chdb").query
    with message_source(structure, messages) as (source, settings):
        form = "output_format_json_quote_64bit_integers = 0, max_threads = 1"
        try:
            text = bytes(query(f"select * from {source} settings {settings}, {form}", "JSONColumns").bytes())
        except Exception as error:
            code = re.search(r"Code: (\d+)", str(error))
            reason = re.sub(r"\s+", " ", str(error)).strip().removeprefix("Code: ")[:500]
            raise StoreError(f"messages: {reason}", int(code[1]) if code else 0) from error
    columns = json.loads(text)
    return list(columns), list(columns.values())


def varint(number: int) -> bytes:
    """A base-128 varint, as protobuf writes lengths."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
