"""Objects over fresh connections, in both directions of opening: `python lab/transfers.py send|receive` in a namespace.

The receiver asks with a size in 8 bytes, the sender answers with as many bytes, and the receiver closes, or asks again
after a pause. Either of them may open the connections; the other one listens, and says `ready`. The receiver prints one
JSON line a connection, with each answer's time from its request to the last byte; the sender one with the segments that
it sent again. Only the standard library is imported.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol

# struct tcp_info, linux/tcp.h: 8 bytes, then 32-bit numbers, of which tcpi_total_retrans is the 24th.
_TOTAL_RETRANS = 8 + 4 * 23
# After these come four of 64 bits and five of 32: tcpi_data_segs_out.
_DATA_SEGS_OUT = 8 + 4 * 24 + 8 * 4 + 4 * 5
# After that come four of 64 bits and two of 32: tcpi_bytes_sent, of 64.
_BYTES_SENT = _DATA_SEGS_OUT + 4 + 8 * 4 + 4 * 2
# Then two of 64 bits and six of 32: tcpi_total_rto, of 16, from Linux 6.7 on.
_TOTAL_RTO = _BYTES_SENT + 8 * 2 + 4 * 6
_SIZE = struct.Struct(">Q")
# Bytes, a segment.
_PIECE = 1448


class Peer(Protocol):
    """One end of a transfer; `connect_ms` where it opened the connection."""

    def __call__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect_ms: float = 0.0
    ) -> Awaitable[None]: ...


def counted(connection: Any) -> dict[str, int]:
    """Segments with data that a socket has sent, their bytes, of all segments those that it has sent again, and its
    timeouts, 0 where the kernel does not count them."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    places = {"segments": ("I", _DATA_SEGS_OUT), "resent": ("I", _TOTAL_RETRANS), "bytes": ("Q", _BYTES_SENT)}
    places["timeouts"] = ("H", _TOTAL_RTO)
    return {
        name: struct.unpack_from(form, information.ljust(256, b"\0"), place)[0]
        for name, (form, place) in places.items()
    }


def send(pause_s: float) -> Peer:
    """Answers requests until the other end closes; at once, or with a pause after each piece."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect_ms: float = 0.0) -> None:
        connection = writer.get_extra_info("socket")
        # Nothing else was sent yet.
        handshake = counted(connection)["resent"]
        peer = list(writer.get_extra_info("peername")[:2])
        sent = 0
        try:
            while request := await reader.read(_SIZE.size):
                size = _SIZE.unpack(request)[0]
                piece = _PIECE if pause_s else size
                for begin in range(0, size, piece):
                    writer.write(bytes(min(piece, size - begin)))
                    if pause_s:
                        await asyncio.sleep(pause_s)
                sent += size
            said = {"sent": sent, "peer": peer, "handshake_resent": handshake, **counted(connection)}
            print(json.dumps(said), flush=True)
        except (OSError, struct.error) as error:
            print(json.dumps({"sent": sent, "peer": peer, "error": str(error)}), flush=True)
        finally:
            writer.close()

    return one


def receive(size: int, answers: int = 1, between_s: float = 0.0) -> Peer:
    """Asks for so many answers, with a pause between two, and closes after the last byte."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connect_ms: float = 0.0) -> None:
        connection = writer.get_extra_info("socket")
        opened = {"connect_ms": round(connect_ms, 3), "handshake_resent": counted(connection)["resent"]}
        opened["port"] = connection.getsockname()[1]
        took: list[float] = []
        left = 0
        try:
            while not left and len(took) < answers:
                if took:
                    await asyncio.sleep(between_s)
                begin = time.perf_counter()
                writer.write(_SIZE.pack(size))
                left = size
                while left > 0:
                    data = await reader.read(1 << 20)
                    if not data:
                        break
                    left -= len(data)
                took.append(round((time.perf_counter() - begin) * 1000, 3))
            print(json.dumps({"ms": took[0], "later_ms": took[1:], "missing": left, **opened}), flush=True)
        except OSError as error:
            print(json.dumps({"missing": left, "error": str(error)}), flush=True)
        finally:
            writer.close()

    return one


async def listen(addresses: list[str], port: int, peer: Peer, congestion: str = "") -> None:
    """Until the process is ended. `congestion`: the control of connections; empty is the host's."""
    server = await asyncio.start_server(peer, addresses, port, backlog=512)
    for one in server.sockets if congestion else ():
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


async def connect(address: str, port: int, at_s: list[float], peer: Peer) -> None:
    """Opens a connection at each of the times; they may overlap."""
    start = time.perf_counter()

    async def one(at: float) -> None:
        await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
        begin = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection(address, port)
        except OSError as error:
            print(json.dumps({"missing": -1, "error": str(error)}), flush=True)
            return
        await peer(reader, writer, (time.perf_counter() - begin) * 1000)

    await asyncio.gather(*(one(at) for at in at_s))


def main() -> None:
    role, task = sys.argv[1], json.loads(sys.argv[2])
    if group := task.get("cgroup"):
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    # A garbage collection's pause would show in the measurement.
    gc.disable()
    if role == "send":
        peer = send(task.get("pause_s", 0.0))
    else:
        peer = receive(task["size"], task.get("answers", 1), task.get("between_s", 0.0))
    if "listen" in task:
        asyncio.run(listen(task["listen"], task["port"], peer, task.get("congestion", "")))
    else:
        asyncio.run(connect(task["connect"], task["port"], task["at_s"], peer))


if __name__ == "__main__":
    main()
