"""Compares the collector with `ss` of the same guest, and its reports of a connection that closes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Sample = Mapping[str, Any]
Ends = tuple[int, int]

# Form of a value in `ss -tinmeO` -> the sample's field, and how many of its units one is. A value left out is 0.
NUMBERS = {
    r"\brto:([\d.]+)": ("rto", 1000),
    r"\bato:([\d.]+)": ("ato", 1000),
    r"\brtt:([\d.]+)/": ("rtt", 1000),
    r"\brtt:[\d.]+/([\d.]+)": ("rttvar", 1000),
    r"\brcv_rtt:([\d.]+)": ("rcv_rtt", 1000),
    r"\bminrtt:([\d.]+)": ("min_rtt", 1000),
    r"\bbusy:(\d+)ms": ("busy_time", 1000),
    r" mss:(\d+)": ("snd_mss", 1),
    r"\bpmtu:(\d+)": ("pmtu", 1),
    r"\brcvmss:(\d+)": ("rcv_mss", 1),
    r"\badvmss:(\d+)": ("advmss", 1),
    r"\bcwnd:(\d+)": ("snd_cwnd", 1),
    r"\bbytes_sent:(\d+)": ("bytes_sent", 1),
    r"\bbytes_acked:(\d+)": ("bytes_acked", 1),
    r"\bbytes_received:(\d+)": ("bytes_received", 1),
    r"\bbytes_retrans:(\d+)": ("bytes_retrans", 1),
    r"\bsegs_out:(\d+)": ("segs_out", 1),
    r"\bsegs_in:(\d+)": ("segs_in", 1),
    r"\bdata_segs_out:(\d+)": ("data_segs_out", 1),
    r"\bdata_segs_in:(\d+)": ("data_segs_in", 1),
    r"\bunacked:(\d+)": ("unacked", 1),
    r"\blost:(\d+)": ("lost", 1),
    r"\bretrans:(\d+)/": ("retrans", 1),
    r"\bretrans:\d+/(\d+)": ("total_retrans", 1),
    r"\bdelivered:(\d+)": ("delivered", 1),
    r"\brcv_space:(\d+)": ("rcv_space", 1),
    r"\brcv_ssthresh:(\d+)": ("rcv_ssthresh", 1),
    r"\bsnd_wnd:(\d+)": ("snd_wnd", 1),
    r"\bnotsent:(\d+)": ("notsent_bytes", 1),
    r"\bwscale:(\d+),": ("snd_wscale", 1),
    r"\bwscale:\d+,(\d+)": ("rcv_wscale", 1),
    r"\bdelivery_rate (\d+)bps": ("delivery_rate", 1 / 8),
    r"\bpacing_rate (\d+)bps": ("pacing_rate", 1 / 8),
    r"\bpacing_rate \d+bps/(\d+)bps": ("max_pacing_rate", 1 / 8),
    r"\bino:(\d+)": ("inode", 1),
    r"\bskmem:\(r(\d+)": ("skmem_rmem_alloc", 1),
    r"\bskmem:\(r\d+,rb(\d+)": ("skmem_rcvbuf", 1),
    r",t(\d+)": ("skmem_wmem_alloc", 1),
    r",tb(\d+)": ("skmem_sndbuf", 1),
    r",f(\d+)": ("skmem_fwd_alloc", 1),
    r",w(\d+)": ("skmem_wmem_queued", 1),
    r",o(\d+)": ("skmem_optmem", 1),
    r",bl(\d+)": ("skmem_backlog", 1),
    r",d(\d+)\)": ("skmem_drops", 1),
}
# ss leaves these out where they are as at first.
UNSAID = {"max_pacing_rate": 2**64 - 1}
# These grow meanwhile, so they are judged by what lies between the two looks.
LAST = {"lastsnd": "last_data_sent", "lastrcv": "last_data_recv", "lastack": "last_ack_recv"}
TIMES = {"rto", "ato", "rtt", "rttvar", "rcv_rtt", "min_rtt", "busy_time"}
# Between the look of ss and that of the collector, in an emulated guest, milliseconds.
BETWEEN_MS = 20_000


def words() -> Mapping[str, Callable[[str, Sample], bool]]:
    """Further fields: what a line of ss has to say for the sample to be true."""
    return {
        "cookie": lambda line, sample: f"sk:{sample['cookie']:x} " in line,
        "state": lambda line, sample: line.startswith("ESTAB") and sample["state"] == "TCP_STATE_ESTABLISHED",
        "congestion_algorithm": lambda line, sample: f" {sample['congestion_algorithm']} " in line,
        "delivery_rate_app_limited": lambda line, sample: (
            sample["delivery_rate_app_limited"] == ("app_limited" in line)
        ),
        "rqueue": lambda line, sample: int(line.split()[1]) == sample["rqueue"],
        "wqueue": lambda line, sample: int(line.split()[2]) == sample["wqueue"],
    }


def fields() -> list[str]:
    """Every field that is compared."""
    return sorted([*(name for name, _ in NUMBERS.values()), *words(), *LAST.values()])


def seen(said: str, title: str) -> list[str]:
    """The lines of one part of what a guest printed."""
    return [line.partition(" ")[2] for line in said.splitlines() if line.startswith(f"{title} ")]


def as_ss(said: str) -> str:
    """Differences in what a guest printed, empty where there are none."""
    theirs = {}
    for line in seen(said, "ss"):
        parts = line.split()
        theirs[_port(parts[3]), _port(parts[4])] = line
    ours: dict[Ends, Sample] = {}
    for line in seen(said, "sample"):
        if not line.startswith("{"):
            return f"the collector says {line}"
        sample = json.loads(line)
        ours[sample["src_port"], sample["dst_port"]] = sample
    if len(theirs) < 2:
        return f"ss shows {len(theirs)} connections"
    if missing := [ends for ends in theirs if ends not in ours]:
        return f"the collector lacks {missing[0]}"
    wrong = {f"{name} is {ours[ends].get(name)}" for ends, line in theirs.items() for name in differ(line, ours[ends])}
    return f"{', '.join(sorted(wrong))}; ss says {' | '.join(theirs.values())}" if wrong else ""


def differ(line: str, sample: Sample) -> Iterator[str]:
    """The fields that a line of ss contradicts."""
    for form, (name, scale) in NUMBERS.items():
        value = re.search(form, line)
        said = float(value[1]) * scale if value else UNSAID.get(name, 0)
        # Three digits behind a millisecond's point are all that ss prints; of rates it prints bits.
        if abs(said - float(sample.get(name, 0))) > (1 if name in TIMES else 0):
            yield name
    for name, holds in words().items():
        if not holds(line, sample):
            yield name
    for theirs, name in LAST.items():
        value = re.search(rf"\b{theirs}:(\d+)", line)
        if not 0 <= float(sample[name]) - float(value[1] if value else 0) <= BETWEEN_MS:
            yield name


def closes(said: str, kind: str, wanted: Mapping[str, int | str]) -> str:
    """Faults of the collector's row of this kind, of the connection that sent 100,000 bytes; empty without any."""
    found = large(said, kind)
    if len(found) != 1:
        return f"{len(found)} rows of {kind}, wanted 1: {seen(said, 'row')!r:.600}"
    differs = {name: found[0].get(name) for name, value in wanted.items() if found[0].get(name) != value}
    return f"{differs}, wanted {dict(wanted)}" if differs else ""


def large(said: str, kind: str) -> list[Sample]:
    """The rows of this kind whose connection sent as much; others have closed before."""
    rows = [json.loads(line) for line in seen(said, "row") if line.startswith("{")]
    return [row for row in rows if row["kind"] == f"SAMPLE_KIND_{kind}" and row["bytes_acked"] >= 100_000]


def close(said: str) -> str:
    """Faults of its close record; the FIN that came counts as a byte."""
    if wrong := closes(said, "CLOSE", {"state": "TCP_STATE_CLOSE", "bytes_received": 100_001}):
        return wrong
    [row] = large(said, "CLOSE")
    sent = row["bytes_sent"] - row["bytes_retrans"]
    return "" if sent == 100_000 else f"{sent} bytes sent, wanted 100,000"


def first_flight(said: str) -> str:
    """Faults of the record of that connection's first flight."""
    wanted: dict[str, int | str] = {"started_window": 60, "started_prefix_length": 24, "bytes_acked": 100_001}
    # A slow guest may send something again: both say so, or neither.
    wanted |= {name: row[name] for row in large(said, "CLOSE") for name in ("total_retrans", "data_segs_out")}
    if wrong := closes(said, "FIRST_FLIGHT", wanted):
        return wrong
    [row] = large(said, "FIRST_FLIGHT")
    times = [row.get(name, 0) for name in ("acked_10k_time", "acked_50k_time", "acked_100k_time", "lived_time")]
    return "" if 0 < times[0] <= times[1] <= times[2] <= times[3] else f"times out of order: {times}"


def _port(end: str) -> int:
    return int(end.rpartition(":")[2])
