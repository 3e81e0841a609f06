"""chDB: ClickHouse inside this process, in a directory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.errors import InputError, Problem, StoreError
from springtide.frame import Frame
from springtide.store.base import Param, Row, encode
from springtide.store.binary import Columns, binary_source, read_blocks
from springtide.store.engine import Engine, crash_by_default, engine
from springtide.store.lock import DirectoryLock
from springtide.store.messages import SYNTAX, message_source
from springtide.store.reading import Limits

DATABASE = "springtide"
UNKNOWN_DATABASE = 81


class EmbeddedStore:
    """chDB opens a directory for one process at a time: this waits up to `wait_s` seconds until it is free.

    With `limits` it is opened as a user who may only read Springtide's tables, within them.
    """

    def __init__(
        self,
        directory: Path,
        wait_s: float,
        on_wait: Callable[[str], None],
        limits: Limits | None = None,
        given: Engine | None = None,
    ) -> None:
        self._directory = directory
        try:
            # A store that is reached by two names has one lock. A link may lead to what is not there yet.
            real = directory.resolve()
            real.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"store {self.url}: {error.strerror}: {error.filename}; choose another --store") from error
        except RuntimeError as error:
            text = f"store {self.url}: is a symbolic link that leads to itself; choose another --store"
            raise StoreError(text) from error
        self._lock = DirectoryLock(real.parent / f"{real.name}.lock")
        self._lock.acquire(wait_s, on_wait)
        try:
            # The import maps a 300 MB library: only commands that need a store load it.
            chdb: Any = engine("chdb.session")
            given = given or Engine()
            with given.configuration(reading=limits is not None) as file:
                options = f"config-file={file}&max_server_memory_usage={given.memory_bytes}"
                self._session: Any = chdb.Session(f"{real}?{options}")
            crash_by_default()
        except Exception as error:
            self._lock.release()
            raise StoreError(
                f"store {self.url}: cannot be opened: {_reason(error)}; is it a chDB directory?"
            ) from error
        try:
            if limits is None:
                self.execute(f"create database if not exists {DATABASE}")
            self.execute(f"use {DATABASE}")
            if limits is not None:
                # For the whole session: `readonly` cannot be unset.
                self.execute("set " + ", ".join(f"{name} = {value}" for name, value in limits.settings().items()))
        except StoreError as error:
            self.close()
            if error.code != UNKNOWN_DATABASE:
                raise
            raise InputError([Problem(self.url, "schema", "is missing", "run `springtide migrate`")]) from error

    @property
    def url(self) -> str:
        return f"chdb://{self._directory}"

    def query(self, sql: str, params: Mapping[str, Param] | None = None) -> list[Row]:
        text = self._run(sql, params, "JSONEachRow").decode("utf-8", errors="replace")
        return [json.loads(line) for line in text.split("\n") if line]

    def columns(
        self, sql: str, dtype: np.dtype[np.void], params: Mapping[str, Param] | None = None
    ) -> NDArray[np.void]:
        return self.frame(sql, dtype, params).table()

    def frame(
        self, sql: str, dtype: np.dtype[np.void], params: Mapping[str, Param] | None = None, expected: int = 0
    ) -> Frame:
        encoded = {name: encode(value) for name, value in (params or {}).items()}
        try:
            # Block by block: all of them as one result are copied each time that its memory grows.
            with self._session.send_query(sql, "Native", params=encoded) as stream:
                return read_blocks(self.url, (block.get_memview().view() for block in stream), dtype, expected)
        except StoreError:
            raise
        except Exception as error:
            raise _store_error(f"store {self.url}", error) from error

    def execute(self, sql: str, params: Mapping[str, Param] | None = None) -> None:
        self._run(sql, params, "Null")

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        lines = [json.dumps(row) for row in rows]
        if not lines:
            return
        columns = ", ".join(json.loads(lines[0]))
        # The default parser of doubles may be wrong in the last bit: a decision must be read as it was written.
        head = f"insert into {table} ({columns}) settings precise_float_parsing = 1 format JSONEachRow"
        self._write(table, "\n".join([head, *lines]), len(lines))

    def insert_columns(self, table: str, columns: Columns) -> None:
        with binary_source(columns) as (select, source):
            statement = f"insert into {table} ({', '.join(columns)}) select {select} from {source}"
            self._write(table, statement, len(next(iter(columns.values()))))

    def insert_messages(
        self, table: str, select: str, structure: str, messages: Sequence[bytes], fits: str = "1"
    ) -> int:
        with message_source(structure, messages) as (source, settings):
            return self._write(
                table, f"insert into {table} {select} from (select * from {source} where {fits}) settings {settings}"
            )

    def parse_messages(self, select: str, structure: str, messages: Sequence[bytes]) -> list[Row]:
        with message_source(structure, messages) as (source, settings):
            return self.query(f"{select} from {source} settings {settings}, max_threads = 1")

    def syntax(self, sql: str) -> str:
        [row] = self.query(SYNTAX, {"text": sql})
        return str(row["tree"])

    def close(self) -> None:
        self._session.close()
        self._lock.release()

    def _write(self, table: str, statement: str, rows: int | None = None) -> int:
        """Every insert, by `query`, whose errors are raised. (`send_insert` of chDB reports rows as written that a full
        disk or a limit refused.) Raises StoreError unless the engine wrote `rows`, where given."""
        written = int(self._query(statement, None, "Null").rows_written())
        if rows is not None and written != rows:
            text = f"store {self.url}: insert into {table}: {written} of {rows} rows were written; run it again"
            raise StoreError(text)
        return written

    def _run(self, sql: str, params: Mapping[str, Param] | None, form: str) -> bytes:
        return bytes(self._query(sql, params, form).bytes())

    def _query(self, sql: str, params: Mapping[str, Param] | None, form: str) -> Any:
        encoded = {name: encode(value) for name, value in (params or {}).items()}
        try:
            return self._session.query(sql, form, params=encoded)
        except Exception as error:
            with suppress(Exception):
                # The rows that it gave before it failed would be the first ones of the next statement's result.
                self._session.query("select 1", "Null")
            raise _store_error(f"store {self.url}", error) from error


def _store_error(what: str, error: Exception) -> StoreError:
    code = re.search(r"Code: (\d+)", str(error))
    return StoreError(f"{what}: {_reason(error)}", int(code[1]) if code else 0)


def _reason(error: Exception) -> str:
    """The engine's message on one line, without its first prefixes."""
    line = re.sub(r"\s+", " ", str(error)).strip()
    return line.removeprefix("Streaming query failed: ").removeprefix("Code: ")[:500]
