"""Ports and addresses of the edge that opted out: what their connections start with, on real sockets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from lab.connections import own_network
from testkit import bpf
from testkit.bpf import Program, ask

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def made() -> Iterator[Program]:
    with own_network(), bpf.program(f"sto{os.getpid()}") as found:
        # As on a network: loopback's own segments hold more than a first window.
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500"], check=True)
        yield found


@pytest.fixture
def program(made: Program) -> Iterator[Program]:
    yield made
    made.withdraw()


def entry(prefix: str, **values: Any) -> dict[str, Any]:
    return {"prefix": prefix, **values}


# Both sockets of one connection to a port; the opener has the listener's address, or `source`.
SERVED = """
def served(port, host, source=None):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    opener = socket.create_connection((host, port), 20, (source or host, 0))
    accepted = listener.accept()[0]
    listener.close()
    return opener, accepted
"""


def test_connections_of_ports_and_addresses_that_opted_out_are_left_alone(program: Program) -> None:
    values = {"initcwnd": 40, "start_rate": 5_000_000, "congestion": {"algorithm": "reno", "from_bytes": 0}}
    entries = [entry("127.0.0.0/8", **values), entry("::1/128", **values)]
    sides = [{"prefix": "127.0.3.0/24"}, {"port": 7443}, {"port": 7025, "prefix": "127.0.2.0/24"}]
    code = """
found, here = {}, "127.0.0.1"
asked = {"port": (7443, here), "port six": (7443, "::1"), "another port": (7444, here),
         "address": (7444, "127.0.3.9", here), "both": (7025, "127.0.2.1", here),
         "its port only": (7025, here), "its address only": (7026, "127.0.2.1", here)}
for name, arguments in asked.items():
    opener, accepted = served(*arguments)
    found[name] = [[window(one), capped(one), algorithm(one) == "reno"] for one in (opener, accepted)]
print(json.dumps(found))
"""
    treated, alone = [40, True, True], [10, False, False]
    program.apply({"entries": entries, "opted_out": sides})
    found = ask(program, SERVED + code)
    # The opener's own port is none of these; its own address is in no network of these.
    assert found == {
        "port": [treated, alone],
        "port six": [treated, alone],
        "another port": [treated, treated],
        "address": [treated, alone],
        "both": [treated, alone],
        "its port only": [treated, treated],
        "its address only": [treated, treated],
    }
    totals = program.status()["totals"]
    assert (totals["opted_out"], totals["started"], totals["excluded"]) == (4, 10, 0)
    # A connection that this host opens from such an address: its window is set before the SYN otherwise.
    opener = "print(json.dumps([window(one) for one in served(7444, '127.0.0.1', '127.0.3.1')]))"
    assert ask(program, SERVED + opener) == [10, 40]
    # With the next bundle they are no more.
    program.apply({"entries": entries})
    assert all(ends == [treated, treated] for ends in ask(program, SERVED + code).values())
    assert program.status()["totals"]["opted_out"] == 5


def test_sixty_four_ports_opt_out_and_the_last_one_counts(program: Program) -> None:
    sides = [{"port": 7000 + number} for number in range(64)]
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=40)], "opted_out": sides})
    code = "print(json.dumps([window(served(port, '127.0.0.1')[1]) for port in (7000, 7063, 7064)]))"
    assert ask(program, SERVED + code) == [10, 10, 40]
    bundle = {"entries": [entry("127.0.0.0/8", initcwnd=40)], "opted_out": [*sides, {"port": 7064}]}
    with pytest.raises(AssertionError, match="65 ports and networks are left alone"):
        program.apply(bundle)


def test_who_opted_out_announces_what_the_kernel_does(program: Program) -> None:
    program.apply({"entries": [entry("127.0.0.0/8", receive_window=4)], "opted_out": [{"port": 7443}]})
    code = """
announced = {}
for port in (7443, 7444):
    opener, accepted = served(port, "127.0.0.1")
    # tcpi_snd_wnd of the opener: what the accepting end has announced.
    announced[port] = struct.unpack_from("I", opener.getsockopt(6, 11, 256), 228)[0]
print(json.dumps(announced))
"""
    found = ask(program, SERVED + code)
    assert found["7443"] > 20_000
    assert found["7444"] < 5 * 1460


def test_the_first_flight_of_who_opted_out_is_of_ten_segments(program: Program) -> None:
    """By what is on its way while nothing is acknowledged: the other end's socket takes nothing more."""
    program.apply({"entries": [entry("127.0.0.0/8", initcwnd=40)], "opted_out": [{"port": 7443}]})
    code = """
import ctypes
# "Keep 0 bytes", as SO_ATTACH_FILTER wants it (struct sock_fprog).
nothing = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
deaf = struct.pack("HxxxxxxP", 1, ctypes.addressof(nothing))
# No probe of a tail that is lost.
open("/proc/sys/net/ipv4/tcp_early_retrans", "w").write("0")
flights = []
for port in (7443, 7444):
    opener, accepted = served(port, "127.0.0.1")
    opener.setsockopt(socket.SOL_SOCKET, 26, deaf)
    accepted.setblocking(False)
    accepted.send(bytes(200_000))
    time.sleep(0.05)
    info = accepted.getsockopt(6, 11, 256)
    # tcpi_unacked, tcpi_bytes_acked.
    flights.append([struct.unpack_from("I", info, 24)[0], struct.unpack_from("Q", info, 120)[0]])
print(json.dumps(flights))
"""
    assert ask(program, SERVED + code) == [[10, 0], [40, 0]]


def test_the_maps_of_a_program_from_before_there_was_opting_out_are_replaced(program: Program) -> None:
    bundle = {"entries": [entry("127.0.0.0/8", initcwnd=40)], "opted_out": [{"port": 7443}]}
    program.apply(bundle)
    for name in ("left_alone", "opted_out"):
        (program.pins / "v6" / name).unlink()
    assert "the map left_alone is gone" in program.status()["drift"]
    assert program.apply(bundle)["program"] == "new"
    code = "print(json.dumps([window(served(port, '127.0.0.1')[1]) for port in (7443, 7444)]))"
    assert ask(program, SERVED + code) == [10, 40]
    assert program.status()["drift"] == []
