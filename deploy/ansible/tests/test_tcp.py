"""The purpose of it all: a new connection starts with the window of the bundle, and with 10 again afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import pytest
from testkit.edge import Edge, bundle
from testkit.loopback import on_loopback

pytestmark = pytest.mark.root

# linux/tcp.h: tcpi_snd_cwnd is at byte 80 of struct tcp_info.
WINDOW = """
import json, socket, struct, sys
def window(connection):
    algorithm = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode()
    return struct.unpack_from("=I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 80)[0], algorithm
"""
LISTEN = (
    WINDOW
    + """
servers = [socket.create_server((address, 7000 + n), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
           for n, address in enumerate(sys.argv[1:])]
print("ready", flush=True)
for server in servers:
    connection, _ = server.accept()
    print(json.dumps(window(connection)), flush=True)
"""
)
CONNECT = (
    WINDOW
    + """
windows = []
for n, pair in enumerate(sys.argv[1:]):
    source, address = pair.split(",")
    windows.append(window(socket.create_connection((address, 7000 + n), 10, (source, 0))))
print(json.dumps(windows))
"""
)


class Sides(NamedTuple):
    """Windows right after the handshake, per connection: at the side that connected, at the side that accepted."""

    connecting: list[int]
    accepting: list[int]
    # Congestion controls, of both sides.
    algorithms: list[list[str]]


def connect(client: str, server: str, pairs: list[tuple[str, str]]) -> Sides:
    """One connection for each (source, destination), from one namespace to the other."""
    inside = ["ip", "netns", "exec"]
    listening = [*inside, server, sys.executable, "-c", LISTEN, *(destination for _, destination in pairs)]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            connecting = subprocess.run(
                [*inside, client, sys.executable, "-c", CONNECT, *(",".join(pair) for pair in pairs)],
                check=True,
                capture_output=True,
                text=True,
            )
            accepted = [json.loads(process.stdout.readline()) for _ in pairs]
        finally:
            process.kill()
    connected = json.loads(connecting.stdout)
    algorithms = [[name for _, name in side] for side in (connected, accepted)]
    return Sides([found for found, _ in connected], [found for found, _ in accepted], algorithms)


def test_new_connections_start_with_the_bundles_window_and_with_ten_after_expiry(edge: Edge) -> None:
    for namespace in (edge.name, edge.peer):
        # Windows remembered from earlier connections would blur what the routes do.
        command = ["ip", "netns", "exec", namespace, "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1"]
        subprocess.run(command, check=True)
    far, near = ["10.77.2.1", "10.88.2.1", "fd77:2::1"], ["192.168.0.1", "192.168.0.1", "fd00:0::1"]
    on_loopback(far, edge.peer)
    edge.batch(["route add 10.0.0.0/8 via 192.168.0.2", "route add fd77::/16 via fd00:0::2"])
    out = list(zip(near, far))
    back = list(zip(far, near))

    assert connect(edge.name, edge.peer, out).connecting == [10, 10, 10]

    assert edge.apply({"10.77.2.0/24": 83, "fd77:2::/48": 40}).code == 0
    assert connect(edge.name, edge.peer, out)[:2] == ([83, 10, 40], [10, 10, 10])
    assert connect(edge.peer, edge.name, back)[:2] == ([10, 10, 10], [83, 10, 40]), "servers are what edges mostly are"

    # Its ten minutes have passed by the clock of a boot: connections have all the time that they take.
    assert edge.run("expire", later=700).report["removed"] == 2
    assert connect(edge.name, edge.peer, out).connecting == [10, 10, 10]
    assert connect(edge.peer, edge.name, back).accepting == [10, 10, 10]


def test_a_congestion_control_acts_from_the_first_byte_where_the_bundle_allows_it(edge: Edge) -> None:
    far = ["10.77.2.1", "10.77.3.1", "10.77.4.1", "10.77.5.1", "fd77:2::1"]
    near = ["192.168.0.1"] * 4 + ["fd00:0::1"]
    on_loopback(far, edge.peer)
    edge.batch(["route add 10.0.0.0/8 via 192.168.0.2", "route add fd77::/16 via fd00:0::2"])
    before = connect(edge.name, edge.peer, list(zip(near, far))).algorithms[0]
    assert "reno" not in before, "with the host's own default nothing could be seen"
    wanted = ["reno", "reno", before[2], before[3], "reno"]
    choices = [("10.77.2.0/24", "reno", 0), ("10.77.3.0/24", "reno", 0), ("10.77.4.0/24", "reno", 100_000)]
    choices += [("10.77.5.0/24", "nosuch", 0), ("fd77:2::/56", "reno", 0)]
    entries: list[dict[str, object]] = [
        {"prefix": prefix, "congestion": {"algorithm": algorithm, "from_bytes": least}}
        for prefix, algorithm, least in choices
    ]
    entries[0]["initcwnd"] = 83
    document = bundle({}, entries=entries)
    outcome = edge.run("apply", edge.write(document))
    assert (outcome.code, outcome.report["routes"], outcome.report["not_enforced"]["congestion"]) == (3, 3, 1)
    [refused] = outcome.report["refused"]
    assert refused["prefix"] == "10.77.5.0/24"
    assert "nosuch cannot be used here" in refused["reason"]
    found = connect(edge.name, edge.peer, list(zip(near, far)))
    assert (found.connecting[0], found.algorithms[0]) == (83, wanted)
    passive = connect(edge.peer, edge.name, list(zip(far, near)))
    assert (passive.accepting[0], passive.algorithms[1]) == (83, wanted)
    assert " lock" not in " ".join(edge.table() + edge.table(6)), "an application's own choice counts"
    assert edge.run("status").code == 0
    edge.run("withdraw")
    assert connect(edge.name, edge.peer, list(zip(near, far))).algorithms[0] == before
