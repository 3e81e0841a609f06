"""ClickHouse's HTTP interface, as far as inserting needs it, over the embedded store.

No ClickHouse server of today can be had from Debian, so clients are tested against this: requests, headers, status
codes and error texts as a server gives them (ClickHouse documentation, "HTTP Interface"), bodies parsed by the engine.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit

import zstandard
from springtide.errors import StoreError
from springtide.store import Store

from testkit.clickhouse.engine import Engine

_MAX_BODY = 256 * 1024 * 1024
# Parameters of the request, not settings of the statement.
_NOT_SETTINGS = {"query", "user", "password", "database", "session_id", "query_id", "wait_end_of_query"}
# Status by exception code, where it is not 500 (src/Server/HTTP/exceptionCodeToHTTPStatus.cpp).
_STATUS = {36: 400, 38: 400, 47: 404, 60: 404, 62: 400, 81: 404, 115: 404, 159: 408, 516: 403, 497: 403, 48: 501}

Kind = Literal["refuse", "limit", "reset", "lost-answer", "read-only", "late-exception", "denied", "hang"]


@dataclass
class Fault:
    """A fault of the next `times` inserts.

    "refuse" answers 503 as an overloaded server does; "limit" 429 as a proxy does; "reset" cuts the connection before
    the insert; "lost-answer" inserts and then cuts the connection, which is how duplicates come about; "read-only"
    answers as a read-only replica; "late-exception" answers 200 with the exception in the body; "denied" as to
    a user without the right to insert; "hang" answers nothing until the front is closed.
    """

    kind: Kind
    times: int = 1


class Front:
    """The server, on a free port of loopback; a context manager.

    `user` and `password` are required when given; `certificate` (PEM with its key) makes it HTTPS. `tokens` are the
    deduplication tokens of all inserts, in order.
    """

    def __init__(
        self, store: Store, user: str = "default", password: str = "", certificate: Path | None = None, port: int = 0
    ) -> None:
        self.engine = Engine(store)
        self.user, self.password = user, password
        self.faults: list[Fault] = []
        self.tokens: list[str] = []
        self.clients: set[socket.socket] = set()
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._scheme = "https" if certificate else "http"
        front = self

        class Handler(_Handler):
            owner = front

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT, or https://localhost:PORT."""
        host = "localhost" if self._scheme == "https" else "127.0.0.1"
        return f"{self._scheme}://{host}:{self._server.server_address[1]}"

    def inserts(self, token: str) -> Kind | None:
        """Note an insert's token; the kind of the fault that it meets."""
        with self._lock:
            self.tokens.append(token)
            while self.faults and self.faults[0].times <= 0:
                self.faults.pop(0)
            if not self.faults:
                return None
            self.faults[0].times -= 1
            return self.faults[0].kind

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening and cut what is connected; a client finds nobody."""
        self.closed.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(10)
            for client in list(self.clients):
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    owner: Front
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.owner.clients.add(self.connection)

    def finish(self) -> None:
        self.owner.clients.discard(self.connection)
        with contextlib.suppress(OSError):  # a connection that was cut
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test's output belongs to the test."""

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ping":
            self._answer(200, "Ok.\n")
        else:
            self._answer(404, "There is no handle " + self.path + "\n")

    def do_POST(self) -> None:
        body = b"".join(self._body())
        parameters = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
        user = self.headers.get("X-ClickHouse-User", "default")
        if (user, self.headers.get("X-ClickHouse-Key", "")) != (self.owner.user, self.owner.password):
            return self._exception(StoreError(f"{user}: Authentication failed. (AUTHENTICATION_FAILED)", 516))
        statement = parameters.get("query", "")
        fault = None
        if statement.lower().startswith("insert"):
            fault = self.owner.inserts(parameters.get("insert_deduplication_token", ""))
        if self._refused(fault):
            return None
        try:
            body = self._decoded(body)
            # As a server does: the statement is the parameter followed by the body, unless the body is data.
            if not statement:
                statement, body = body.decode(), b""
            settings = {name: value for name, value in parameters.items() if name not in _NOT_SETTINGS}
            text = self.owner.engine.run(statement, body, settings)
        except StoreError as error:
            return self._exception(error)
        except (zstandard.ZstdError, gzip.BadGzipFile, UnicodeDecodeError) as error:
            return self._exception(StoreError(f"the body cannot be read: {error}", 36))
        if fault == "lost-answer":
            return self._cut()
        return self._answer(200, text)

    def _refused(self, fault: Kind | None) -> bool:
        """Answer with the fault, if it is one that comes before the insert."""
        match fault:
            case "reset":
                self._cut()
            case "refuse":
                self._exception(StoreError("Too many simultaneous queries. (TOO_MANY_SIMULTANEOUS_QUERIES)", 202), 503)
            case "limit":
                self._answer(429, "slow down\n")
            case "read-only":
                self._exception(StoreError("Table is in readonly mode. (TABLE_IS_READ_ONLY)", 242))
            case "late-exception":
                self._answer(200, "Code: 252. DB::Exception: Too many parts. (TOO_MANY_PARTS)\n")
            case "hang":
                self.owner.closed.wait()
                self._cut()
            case "denied":
                self._exception(StoreError("Not enough privileges. (ACCESS_DENIED)", 497))
            case _:
                return False
        return True

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            yield self.rfile.read(min(int(self.headers.get("Content-Length", 0)), _MAX_BODY))

    def _decoded(self, body: bytes) -> bytes:
        coding = self.headers.get("Content-Encoding", "")
        if coding == "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
        if coding == "gzip":
            return gzip.decompress(body)
        if coding:
            raise StoreError(f"Unknown compression method {coding}. (NOT_IMPLEMENTED)", 48)
        return body

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _exception(self, error: StoreError, status: int | None = None) -> None:
        code = error.code or 1002
        text = f"Code: {code}. DB::Exception: {error}\n"
        self._answer(status or _STATUS.get(code, 500), text, {"X-ClickHouse-Exception-Code": str(code)})

    def _answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
