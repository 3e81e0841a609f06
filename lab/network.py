"""Making the namespaces of a lab, and setting what is deliberate in them."""

from __future__ import annotations

from pathlib import Path

from lab import host, state
from lab.errors import LabError
from lab.topology import Topology, gateway
from lab.wan_config import TUN, namespace

_ALGORITHM = "net.ipv4.tcp_congestion_control"


def make_namespaces(known: state.State) -> None:
    """Raises LabError when one cannot be made."""
    host.run(["ip", "-batch", "-"], "".join(f"netns add {name}\n" for name in known.namespaces))


def set_sysctls(known: state.State, topology: Topology) -> None:
    """Sets the topology's sysctls in each edge's namespace.

    A namespace takes only algorithms that the host allows to everyone, so the host's list is widened for that moment;
    the state file remembers it until it is restored. Call with the lock held.
    """
    values = topology.sysctl_values()
    algorithm = values.get(_ALGORITHM)
    allowed = host.ALLOWED.read_text().strip()
    if algorithm is not None and algorithm not in host.AVAILABLE.read_text().split():
        raise LabError(f"this kernel has no congestion control {algorithm}: run `modprobe tcp_{algorithm}`")
    widened = algorithm is not None and algorithm not in allowed.split()
    if widened:
        state.save(known.model_copy(update={"allowed_congestion_control": allowed}))
        host.ALLOWED.write_text(f"{allowed} {algorithm}")
    try:
        text = "".join(f"{name} = {value}\n" for name, value in values.items())
        for edge in topology.edges():
            host.run(host.inside(namespace(known.lab, edge), ["sysctl", "-q", "-p", "-"]), text)
    finally:
        if widened:
            host.ALLOWED.write_text(allowed)
            state.save(known)


def set_addresses(lab: str, topology: Topology, edge: str) -> None:
    """Addresses and routes of an edge: its own prefix on the device, everything else by the PoP's gateway."""
    pop = topology.pops[topology.edges()[edge]]
    lines = ["link set lo up", f"link set {TUN} txqueuelen 4000 up"]
    routes: dict[int, str] = {}
    for address in topology.edge(edge).addresses:
        home = next(prefix for prefix in pop.prefixes if address in prefix)
        nodad = " nodad" if address.version == 6 else ""
        lines.append(f"addr add {address}/{home.prefixlen} dev {TUN}{nodad}")
        routes.setdefault(address.version, f"-{address.version} route add default via {gateway(home)} dev {TUN}")
    name = namespace(lab, edge)
    host.run(["ip", "-n", name, "-batch", "-"], "\n".join(lines) + "\n")
    for route in routes.values():
        host.run(["ip", "-n", name, *route.split()])


def log_tail(path: Path) -> str:
    """The last line of a log, for a message."""
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no output"
