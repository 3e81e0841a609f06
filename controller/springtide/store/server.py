"""A ClickHouse server, over its native protocol."""

from __future__ import annotations

import importlib
import logging
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from springtide.errors import StoreError
from springtide.frame import Frame
from springtide.store.address import ServerAddress
from springtide.store.base import Param, Row, encode
from springtide.store.binary import Columns, require_columns
from springtide.store.messages import parsed_columns, syntax
from springtide.store.reading import Limits
from springtide.store.values import from_json, to_json

T = TypeVar("T")

# DBMS_MIN_PROTOCOL_VERSION_WITH_PARAMETERS of ClickHouse's ProtocolDefines.h: below it they would be left out silently.
REVISION_WITH_PARAMETERS = 54459
UNKNOWN_DATABASE = 81
# Several Envelopes in one Kafka message need it.
OLDEST = "26.3 or newer"
# First pause before another try, seconds; each further one doubles.
BACKOFF_S = 0.2
# The server ends a query at its limit; the connection is given up only if it does not.
GRACE_S = 30.0
READS = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:select|with|show|describe|explain|exists)\b", re.IGNORECASE)


class _Wire:
    """A parameter as the protocol requires it: text as the engine parses it, escaped again as a string literal.

    The driver puts quotes around a value that is neither text nor a list, and changes nothing else in it.
    """

    def __init__(self, value: Param) -> None:
        self._text = encode(value).replace("\\", "\\\\").replace("'", "\\'")

    def __str__(self) -> str:
        return self._text


class ServerStore:
    """Reads are retried when the connection breaks; a statement that may change rows only if it was not sent yet."""

    def __init__(self, address: ServerAddress, *, create: bool, limits: Limits | None = None) -> None:
        if limits is not None:
            address = replace(address, query_timeout_s=limits.seconds)
        self._address = address
        driver: Any = importlib.import_module("clickhouse_driver")
        self._errors: Any = importlib.import_module("clickhouse_driver.errors")
        # The driver logs tracebacks of errors that are reported here in one line.
        logger = logging.getLogger("clickhouse_driver")
        logger.propagate = False
        logger.addHandler(logging.NullHandler())
        system_authorities = ssl.get_default_verify_paths().cafile
        self._client: Any = driver.Client(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
            secure=address.secure,
            verify=address.verify,
            ca_certs=str(address.ca) if address.ca else system_authorities,
            connect_timeout=address.connect_timeout_s,
            send_receive_timeout=address.connect_timeout_s,
            sync_request_timeout=address.connect_timeout_s,
            client_name="springtide",
            # Only `_run` decides whether a statement may be sent again.
            disable_reconnect=True,
            tcp_keepalive=True,
            settings={"server_side_params": True, "max_execution_time": max(1, round(address.query_timeout_s))},
        )
        # Sent with every query, so that a new connection has them too.
        self._limits: dict[str, int] = {}
        self._column_types: dict[str, dict[str, str]] = {}
        try:
            self.execute("select 1")
        except StoreError as error:
            self._client.disconnect()
            if not (create and error.code == UNKNOWN_DATABASE):
                raise
            self._create_database()
        if limits is not None:
            self._limits = self._allowed(limits.settings())

    @property
    def url(self) -> str:
        return self._address.shown

    def query(self, sql: str, params: Mapping[str, Param] | None = None) -> list[Row]:
        rows, columns = self._run(lambda: self._send(sql, params, with_column_types=True), retry=_is_read(sql))
        return [{name: to_json(value, kind) for value, (name, kind) in zip(row, columns, strict=True)} for row in rows]

    def columns(
        self, sql: str, dtype: np.dtype[np.void], params: Mapping[str, Param] | None = None
    ) -> NDArray[np.void]:
        return self.frame(sql, dtype, params).table()

    def frame(
        self, sql: str, dtype: np.dtype[np.void], params: Mapping[str, Param] | None = None, expected: int = 0
    ) -> Frame:
        found, types = self._run(
            lambda: self._send(sql, params, with_column_types=True, columnar=True), retry=_is_read(sql)
        )
        require_columns(self.url, types, dtype)
        columns = {}
        for (name, _), column in zip(types, found or [[]] * len(types), strict=True):
            listed = [one.encode() for one in column] if dtype[name].kind == "S" else column
            columns[name] = np.array(listed, dtype[name])
        return Frame(dtype, columns)

    def execute(self, sql: str, params: Mapping[str, Param] | None = None) -> None:
        self._run(lambda: self._send(sql, params), retry=_is_read(sql))

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        listed = list(rows)
        if not listed:
            return
        types = self._types(table)
        names = list(listed[0])
        try:
            columns = [[from_json(row[name], types[name]) for row in listed] for name in names]
        except (KeyError, ValueError) as error:
            raise StoreError(f"store {self.url}: insert into {table}: {error!r} does not fit its columns") from error
        statement = f"insert into {table} ({', '.join(names)}) values"
        self._insert(statement, columns)

    def insert_columns(self, table: str, columns: Columns) -> None:
        if not len(next(iter(columns.values()))):
            return
        types = self._types(table)
        listed = [
            [None if one is None else from_json(_plain(one), types[name]) for one in column.tolist()]
            for name, column in columns.items()
        ]
        statement = f"insert into {table} ({', '.join(columns)}) values"
        self._insert(statement, listed)

    def insert_messages(
        self, table: str, select: str, structure: str, messages: Sequence[bytes], fits: str = "1"
    ) -> int:
        # chDB parses in this process, the server enriches and stores: the native protocol has columns, not protobuf.
        names, columns = parsed_columns(structure, messages, select, fits)
        types = self._types(table.partition(" ")[0])
        listed = [[from_json(one, types[name]) for one in column] for name, column in zip(names, columns, strict=True)]
        count = len(listed[0])
        if count:
            statement = f"insert into {table} values"
            self._insert(statement, listed)
        return count

    def parse_messages(self, select: str, structure: str, messages: Sequence[bytes]) -> list[Row]:
        names, columns = parsed_columns(structure, messages, select)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def syntax(self, sql: str) -> str:
        return syntax(sql)

    def close(self) -> None:
        self._client.disconnect()

    def _allowed(self, settings: dict[str, int]) -> dict[str, int]:
        """Without `readonly` for a user whose profile sets it, who may not; with 1 no setting may be changed."""
        [row] = self.query("select value from system.settings where name = 'readonly'")
        return {name: value for name, value in settings.items() if row["value"] == "0" or name != "readonly"}

    def _create_database(self) -> None:
        connection = self._client.connection
        connection.database = ""
        self.execute(f"create database if not exists {self._address.database}")
        self._client.disconnect()
        connection.database = self._address.database
        self.execute("select 1")

    def _types(self, table: str) -> dict[str, str]:
        if table not in self._column_types:
            columns = self.query(f"describe table {table}")
            self._column_types[table] = {row["name"]: row["type"] for row in columns}
        return self._column_types[table]

    def _insert(self, statement: str, columns: Sequence[Sequence[Any]]) -> None:
        """Every insert of rows; the server confirms when they are written, or returns an error."""

        def send() -> Any:
            # As in sql/users.xml for the embedded engine; servers without query parameters do not have it either.
            known = self._client.connection.server_info.used_revision >= REVISION_WITH_PARAMETERS
            # And rows of sharded tables are on their shards when this returns, not only on the connected server.
            settings = {"max_partitions_per_insert_block": 0, "distributed_foreground_insert": 1} if known else {}
            return self._client.execute(statement, columns, columnar=True, settings=settings)

        self._run(send, retry=False)

    def _send(self, sql: str, params: Mapping[str, Param] | None, **options: bool) -> Any:
        if params and self._client.connection.server_info.used_revision < REVISION_WITH_PARAMETERS:
            version = ".".join(map(str, self._client.connection.server_info.version_tuple()))
            raise StoreError(f"store {self.url}: server {version} has no query parameters; use ClickHouse {OLDEST}")
        wire = {name: _Wire(value) for name, value in params.items()} if params else None
        return self._client.execute(sql, wire, settings=self._limits or None, **options)

    def _run(self, send: Callable[[], T], *, retry: bool) -> T:
        """Connect, then send. A broken connection is retried if nothing was sent yet, or with `retry`."""
        for attempt in range(self._address.retries + 1):
            sent = False
            try:
                self._connect()
                sent = True
                return send()
            except self._errors.ServerException as error:
                if not sent:
                    self._client.disconnect()
                raise StoreError(f"store {self.url}: {_server_reason(error)}", error.code) from error
            except (self._errors.NetworkError, self._errors.SocketTimeoutError, OSError, EOFError) as error:
                self._client.disconnect()
                if attempt == self._address.retries or (sent and not retry):
                    raise self._lost(error, sent) from error
            except (self._errors.Error, TypeError, ValueError, AttributeError, OverflowError) as error:
                # Most are values that are not of their column's type; the connection is in an undefined state.
                self._client.disconnect()
                raise StoreError(f"store {self.url}: the driver refuses: {_line(error)}") from error
            time.sleep(BACKOFF_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _connect(self) -> None:
        """A server that accepts the connection and then sends nothing is given up after the connect timeout."""
        connection = self._client.connection
        connection.send_receive_timeout = self._address.connect_timeout_s
        if connection.connected:
            if connection.ping():
                return
            self._client.disconnect()
        connection.connect()
        connection.send_receive_timeout = self._address.query_timeout_s + GRACE_S
        connection.socket.settimeout(connection.send_receive_timeout)

    def _lost(self, error: Exception, sent: bool) -> StoreError:
        reason = _line(error)
        if isinstance(error, self._errors.SocketTimeoutError | TimeoutError):
            reason = f"timed out: {reason}"
        if not sent:
            tries = f"{self._address.retries + 1} tries"
            fix = "check host, port, secure, and that the server runs"
            return StoreError(f"store {self.url}: cannot connect in {tries}: {reason[:300]}; {fix}")
        fix = "it may have been executed: check that the server runs, then run the command again"
        return StoreError(f"store {self.url}: connection lost during a statement: {reason[:300]}; {fix}")


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _is_read(sql: str) -> bool:
    return READS.match(sql) is not None


def _line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__


def _server_reason(error: Any) -> str:
    """The server's message on one line, in chDB's form, without its stack trace."""
    text = str(error.message).partition("Stack trace:")[0]
    text = re.sub(r"\s+", " ", text).strip().removeprefix("DB::Exception: ")
    return f"{error.code}. DB::Exception: {text}"[:500]
