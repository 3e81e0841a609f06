"""Counted UDP packets between two edges: `python udp.py receive PORT | send ADDRESS PORT COUNT SIZE RATE_MBIT`.

The receiver prints "ready", and when no packet has come for a second after the first, one JSON line: how many came,
their IP bytes, the seconds from the first to the last by the kernel's clock of arrival, and how often one came out of
order.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from itertools import pairwise

# linux: asm-generic/socket.h; Python does not name it.
SO_TIMESTAMPNS = 35
# IPv4 and UDP headers.
HEADERS = 28


def receive(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # Root may go beyond rmem_max: a slow reader must not look like loss.
        sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.bind(("0.0.0.0", port))  # noqa: S104  # inside a namespace of the lab
        print("ready", flush=True)
        sock.settimeout(20)
        numbers, stamps, size = [], [], 0
        try:
            while True:
                data, extra, _, _ = sock.recvmsg(2048, 64)
                sock.settimeout(1)
                numbers.append(struct.unpack_from("!I", data)[0])
                seconds, nanoseconds = struct.unpack("qq", extra[0][2])
                stamps.append(seconds + nanoseconds / 1e9)
                size += len(data) + HEADERS
        except TimeoutError:
            pass
    # Counted after the first, whose own time on the link lies before its arrival.
    disorder = sum(later < sooner for sooner, later in pairwise(numbers))
    span_s = stamps[-1] - stamps[0] if stamps else 0.0
    result = {"count": len(numbers), "distinct": len(set(numbers)), "bytes": size, "span_s": span_s}
    print(json.dumps(result | {"disorder": disorder}), flush=True)


def send(address: str, port: int, count: int, size: int, rate_mbit: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, port))
        begin = time.monotonic()
        for number in range(count):
            due = begin + number * size * 8 / (rate_mbit * 1e6)
            time.sleep(max(0.0, due - time.monotonic()))
            sock.send(struct.pack("!I", number).ljust(size - HEADERS, b"\0"))


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]))
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
