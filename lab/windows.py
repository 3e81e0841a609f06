"""Congestion windows of the connections that an edge serves, read from `ss`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from lab import nginx
from lab.topology import Topology

COMMAND = ["ss", "-tinHO", "state", "established", "sport", "=", f":{nginx.PORT}"]
_FIELD = re.compile(r"\b(cwnd|ssthresh|bytes_acked):(\d+)")


@dataclass(frozen=True)
class Window:
    """One connection: who serves whom, the window in segments, and what was acknowledged in bytes."""

    src: str
    dst: str
    cwnd: int
    bytes_acked: int


def parse(topology: Topology, edge: str, output: str) -> Iterator[Window]:
    """The connections to edges of the lab in the output of COMMAND on `edge`."""
    pops = topology.edges()
    owner = {address: pops[name] for name in pops for address in topology.edge(name).addresses}
    for line in output.splitlines():
        # Recv-Q, Send-Q, local, peer, and then the fields of tcp_info.
        peer = line.split()[3].rpartition(":")[0].strip("[]")
        dst = owner.get(ip_address(peer.removeprefix("::ffff:")))
        fields = {name: int(value) for name, value in _FIELD.findall(line)}
        if dst is not None and "cwnd" in fields:
            yield Window(pops[edge], dst, fields["cwnd"], fields.get("bytes_acked", 0))
