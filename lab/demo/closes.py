"""Segments sent and retransmitted by each closed connection, as `ss --events` prints sockets when they close."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NUMBER = re.compile(r"\b(bytes_acked|data_segs_out):(\d+)")
_RETRANS = re.compile(r"\bretrans:\d+/(\d+)")


@dataclass(frozen=True)
class Close:
    """One closed connection: the peer, bytes acknowledged, data segments sent (repeats included) and sent again."""

    local_port: int
    peer: str
    bytes_acked: int
    segments: int
    retransmitted: int


def parse(lines: Iterable[str]) -> Iterator[Close]:
    """Connections in the output of `ss -HEtinO`; a closed listener, and one that sent nothing, is left out."""
    for line in lines:
        columns = line.split(None, 5)
        if len(columns) < 6:
            continue
        numbers = {name: int(value) for name, value in _NUMBER.findall(columns[5])}
        if "data_segs_out" not in numbers:
            continue
        local_port = columns[3].rpartition(":")[2]
        peer = columns[4].rpartition(":")[0].strip("[]")
        again = _RETRANS.search(columns[5])
        yield Close(
            int(local_port),
            str(ipaddress.ip_address(peer.partition("%")[0])),
            numbers.get("bytes_acked", 0),
            numbers["data_segs_out"],
            int(again.group(1)) if again else 0,
        )
