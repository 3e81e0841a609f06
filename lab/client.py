"""The HTTP client that runs inside a namespace: `python -m lab.client` with a task as JSON on standard input.

Task `probe` fetches objects over fresh connections at given times and prints one JSON line for each. Task `load` keeps
connections open, requests objects from each at random times until its time is over or SIGTERM comes, and prints one
JSON line with what it did. Only the standard library is imported: a namespace's client is ready in a tenth of a second.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# After an error a connection is made anew, but not in a tight loop.
_RETRY_S = 1.0


class FetchError(Exception):
    """The answer is not the requested object, or the connection ended before it was complete."""


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[float] | None = None
        self._header = b""
        self._body_left: int | None = None
        self._size = 0

    async def get(self, size: int) -> float:
        """Fetches the object of this size; the time of its last byte on the clock of time.perf_counter.

        Raises FetchError.
        """
        if self._transport is None or self._transport.is_closing():
            raise FetchError("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._header, self._body_left, self._size = b"", None, size
        # The shortest request that HTTP/1.1 allows: what the client sends is not evidence of a path's capacity.
        self._transport.write(b"GET /o/%d HTTP/1.1\r\nHost: o\r\n\r\n" % size)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # asyncio gives a stream protocol a Transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(f"the connection ended early ({exc or 'closed by the server'})")

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._body_left is None:
            self._header += data
            head, separator, body = self._header.partition(b"\r\n\r\n")
            if not separator:
                return
            if (
                not head.startswith(b"HTTP/1.1 200 ")
                or b"\r\nContent-Length: %d\r\n" % self._size not in head + b"\r\n"
            ):
                self._fail(f"the server answered {head[:100]!r}")
                self.close()
                return
            self._body_left = self._size - len(body)
        else:
            self._body_left -= len(data)
        if self._body_left <= 0 and self._answer is not None and not self._answer.done():
            self._answer.set_result(now)

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(FetchError(why))


async def _connect(address: str, port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, address, port)
    return connection


async def probe_all(task: dict[str, Any]) -> None:
    """Each probe has `id`, `at_s` after the start, `address`, `port` and `size`; `timeout_s` bounds each."""
    start = time.perf_counter()
    # A garbage collection's pause would show in the measurement.
    gc.disable()
    await asyncio.gather(*(_probe(one, start, task["timeout_s"]) for one in task["probes"]))


async def _probe(one: dict[str, Any], start: float, timeout_s: float) -> None:
    await asyncio.sleep(max(0.0, start + one["at_s"] - time.perf_counter()))
    found: dict[str, Any] = {"id": one["id"], "connect_ms": None, "transfer_ms": None, "ok": False, "error": None}
    connection = None
    try:
        async with asyncio.timeout(timeout_s):
            begin = time.perf_counter()
            connection = await _connect(one["address"], one["port"])
            connected = time.perf_counter()
            found["connect_ms"] = round((connected - begin) * 1000, 3)
            done = await connection.get(one["size"])
            found["transfer_ms"] = round((done - connected) * 1000, 3)
            found["ok"] = True
    except TimeoutError:
        found["error"] = f"not done after {timeout_s} s"
    except (OSError, FetchError) as error:
        found["error"] = str(error)
    finally:
        if connection is not None:
            connection.close()
    print(json.dumps(found), flush=True)


@dataclass
class Done:
    """Counts of a load: answered requests, their object bytes, and errors (each also closes its connection)."""

    requests: int = 0
    bytes: int = 0
    errors: int = 0


async def load_all(task: dict[str, Any]) -> Done:
    """Each of `connections` has `address`, `port` and `requests_per_s`, and if it is not to stay for the whole time
    `ends`: how likely it ends after an answer. `sizes` and the rest are common to all."""
    done = Done()
    loop = asyncio.get_running_loop()
    workers = [
        loop.create_task(_ask(one, task["sizes"], task["pauses"], random.Random(f"{task['seed']}-{index}"), done))
        for index, one in enumerate(task["connections"])
    ]
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        async with asyncio.timeout(task["seconds"]):
            await stop.wait()
    except TimeoutError:
        pass
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return done


async def _ask(one: dict[str, Any], sizes: Sequence[int], pauses: bool, chance: random.Random, done: Done) -> None:
    """Requests at random times with the wanted mean rate, or one after another without `pauses`.

    A slow answer delays the next request and is not made up for.
    """
    connection = None
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due = max(loop.time(), due + (chance.expovariate(one["requests_per_s"]) if pauses else 0.0))
        await asyncio.sleep(due - loop.time())
        size = chance.choice(sizes)
        try:
            if connection is None:
                connection = await _connect(one["address"], one["port"])
            await connection.get(size)
            done.requests += 1
            done.bytes += size
            if "ends" in one and chance.random() < one["ends"]:
                connection.close()
                connection = None
        except (OSError, FetchError):
            done.errors += 1
            if connection is not None:
                connection.close()
            connection = None
            await asyncio.sleep(_RETRY_S)


def main() -> None:
    task = json.load(sys.stdin)
    if task["task"] == "probe":
        asyncio.run(probe_all(task))
    else:
        print(json.dumps(asdict(asyncio.run(load_all(task)))), flush=True)


if __name__ == "__main__":
    main()
