"""Kernel settings that decide how much a large initial window helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from springtide.doctor.finding import Finding, advice, fine, unknown

ROOT = Path("/proc/sys/net/ipv4")
NAMES = ("tcp_rmem", "tcp_slow_start_after_idle", "tcp_no_metrics_save", "tcp_timestamps", "tcp_sack")
# Since Linux 5.6, where it is 1.
NO_SSTHRESH = "tcp_no_ssthresh_metrics_save"
# Ethernet's 1500 bytes less the headers of IPv4 and TCP and its timestamps.
MSS = 1448
# The most that the role routes may write.
MOST_RMEM = 8_388_608


def gather(root: Path = ROOT) -> dict[str, str]:
    """By name; what cannot be read is left out."""
    found = {}
    for name in (*NAMES, NO_SSTHRESH):
        try:
            found[name] = (root / name).read_text().strip()
        except OSError:
            continue
    return found


def check(seen: Mapping[str, str], cmax: int) -> Iterator[Finding]:
    """`cmax`: the policy's largest window, segments."""
    for name in NAMES:
        if name not in seen:
            yield unknown(name, str(ROOT / name), "cannot be read")
    if "tcp_rmem" in seen:
        yield _receive(seen["tcp_rmem"], cmax)
    if seen.get("tcp_slow_start_after_idle") == "0":
        what = "is 0: a connection that was idle sends its whole old window at once"
        yield advice("tcp_slow_start_after_idle", "sysctl", what, "set 1: it then restarts at the learnt window")
    elif "tcp_slow_start_after_idle" in seen:
        yield fine("tcp_slow_start_after_idle", "sysctl", "is 1: idle connections restart at the learnt window")
    if seen.get("tcp_no_metrics_save") == "0" and seen.get(NO_SSTHRESH) != "1":
        what = "is 0: a peer's saved ssthresh ends the slow start of its next connections early"
        yield advice("tcp_no_metrics_save", "sysctl", what, "set 1, and run `ip tcp_metrics flush` once")
    elif "tcp_no_metrics_save" in seen:
        yield fine("tcp_no_metrics_save", "sysctl", "no ssthresh is saved")
    for name, lost in (("tcp_timestamps", "round-trip times of repeats"), ("tcp_sack", "which segments were lost")):
        if seen.get(name) == "0":
            yield advice(name, "sysctl", f"is 0: senders cannot measure {lost}", "set 1")


def _receive(text: str, cmax: int) -> Finding:
    """Half of the middle value is advertised to a peer at first; a larger window has to wait."""
    try:
        middle = int(text.split()[1])
    except (IndexError, ValueError):
        return unknown("tcp_rmem", "sysctl", f"{text!r} is not three numbers")
    wanted = 2 * cmax * MSS
    if middle >= wanted:
        return fine("tcp_rmem", "sysctl", f"lets peers send {middle // 2 // MSS} segments at once")
    what = f"its middle value {middle} lets peers send {middle // 2 // MSS} segments at first, of {cmax}"
    todo = f"edges.yml -e edge_receive_buffer_bytes={min(max(wanted, 131_072), MOST_RMEM)}"
    return advice("tcp_rmem", "sysctl", what, todo)
