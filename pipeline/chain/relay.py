"""The edges' management network: their loopback's port leads to the same port of this machine's.

A lab's namespaces reach only each other, over the emulated WAN. The listening sockets are made inside, and what they
accept is carried on from here, so that nothing of it crosses the WAN whose connections are measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_CLONE_NEWNET = 0x4000_0000
_BLOCK = 65_536


def _enter(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open() as there:
        if libc.setns(there.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(namespace))


def _listening(namespace: Path, port: int) -> socket.socket:
    """On the loopback of a namespace; made by a thread that enters it, and a thread has a namespace of its own."""
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def enter() -> None:
        try:
            _enter(namespace)
            made.append(socket.create_server(("127.0.0.1", port)))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


class Relay:
    """While the context lasts. A port on which nobody listens here closes the connections that come for it."""

    def __init__(self, namespaces: Sequence[Path], port: int) -> None:
        self.namespaces, self.port = namespaces, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        sockets = [_listening(namespace, self.port) for namespace in self.namespaces]
        self._thread.start()
        for each in sockets:
            made = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._carry, sock=each), self._loop)
            self._servers.append(made.result())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            self._loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_end_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _carry(self, edge: asyncio.StreamReader, to_edge: asyncio.StreamWriter) -> None:
        writers = [to_edge]
        try:
            here, to_here = await asyncio.open_connection("127.0.0.1", self.port)
            writers.append(to_here)
            ways = [asyncio.ensure_future(_pour(*way)) for way in ((edge, to_here), (here, to_edge))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # nobody listens, or the relay ends: the edge sees its connection end
        finally:
            for writer in writers:
                writer.close()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await source.read(_BLOCK):
            target.write(block)
            await target.drain()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
