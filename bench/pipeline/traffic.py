"""Messages as collectors send them: the sockets of the real captures, moved onto a fleet and evolved from poll to poll.

A capture shows some 200 connections of one host at one moment. Each replayed connection begins as one of them, with
addresses, a round-trip time and a window of its own; what changes between two polls are the fields that change between
the dumps of one capture. Half of the connections are idle: their counters stand, only their ages grow.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.runner import ROOT, TARGET
from testkit.proto import ENUMS, FIELDS, address, varint

CAPTURES = ROOT / "collector/tests/captures"
COLLECTOR = TARGET / "springtide-collector"

# Three in the morning of yesterday: samples that are old come through no topic.
BEGIN_S = (int(time.time()) // 86_400 - 1) * 86_400 + 10_800
INTERVAL_S = 10
# As many as the collector puts into one message.
ROWS_A_MESSAGE = 1000
POPS, HOSTS = 8, 16
IDLE = 0.5
PREFIXES_PER_POP = 2000

Update = Callable[[random.Random, Any], None]


@dataclass(frozen=True)
class Batch:
    """One Kafka message: its key, and the serialized Envelope."""

    host: str
    envelope: bytes
    rows: int

    @property
    def payload(self) -> bytes:
        """The message's value: a varint length and the Envelope."""
        return varint(len(self.envelope)) + self.envelope


@cache
def sample_type() -> Any:
    """The class of TcpSample, made from the contract's text: no generated code to keep in step."""
    file = descriptor_pb2.FileDescriptorProto(name="tcp_sample.proto", package="springtide.v1", syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    message = file.message_type.add(name="TcpSample")
    kinds = descriptor_pb2.FieldDescriptorProto
    for field in FIELDS.values():
        added = message.field.add(name=field.name, number=field.number, label=kinds.LABEL_OPTIONAL)
        if field.type in ENUMS:
            added.type, added.type_name = kinds.TYPE_ENUM, f".springtide.v1.{field.type}"
        else:
            added.type = getattr(kinds, f"TYPE_{field.type.upper()}")
        if field.optional:
            added.proto3_optional = True
            added.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("springtide.v1.TcpSample"))


@cache
def captured() -> Sequence[dict[str, Any]]:
    """Every established connection of the captures, as `springtide-collector decode` shows it."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted(CAPTURES.glob("*.pcap")):
        done = subprocess.run([COLLECTOR, "decode", path], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            sample = json.loads(line)
            if sample["state"] == "TCP_STATE_ESTABLISHED":
                found[path.name, sample["cookie"]] = sample
    return list(found.values())


class Connection:
    """One replayed connection; `sample` is its next row."""

    def __init__(self, draw: random.Random, host: int, cookie: int, idle: bool) -> None:
        template = draw.choice(captured())
        sample = sample_type()()
        for name, value in template.items():
            kind = FIELDS[name].type
            setattr(sample, name, address(value) if kind == "bytes" else ENUMS[kind][value] if kind in ENUMS else value)
        pop = host % POPS
        self.idle = idle
        self.sample = sample
        self.mss = draw.choice((1448, 1448, 1448, 1428, 1400, 1348))
        self.rtt_us = int(draw.lognormvariate(10.6, 0.8))  # median 40 ms
        sample.host, sample.pop = f"edge-{host}", f"pop{pop}"
        sample.boot_id = f"{host:08x}-64f0-4a10-9f6e-7d1b3c2a9e55"
        sample.netns, sample.cookie, sample.inode = 4026531840, cookie, draw.randrange(1 << 20)
        sample.src_ip, sample.src_port = address(f"10.77.{pop}.{1 + host}"), 443
        sample.dst_ip, sample.dst_port = address(_peer(draw, pop)), draw.randrange(1024, 65536)
        sample.snd_mss, sample.advmss, sample.pmtu = self.mss, self.mss, self.mss + 52
        sample.snd_cwnd = int(10 + draw.lognormvariate(2.5, 1))
        sample.snd_wnd = sample.rcv_wnd = draw.choice((65535, 131072, 262144, 1048576, 3145728))
        sample.rtt, sample.rttvar = self.rtt_us, self.rtt_us // 8
        sample.min_rtt = int(self.rtt_us * 0.95)
        sample.rto = 200_000 + self.rtt_us
        for _ in range(draw.randrange(1, 12)):
            self._send(draw)

    def at(self, draw: random.Random, unix_us: int, poll: int) -> bytes:
        """The row that a poll at this moment gives, serialized."""
        sample = self.sample
        sample.time_unix_us, sample.poll_sequence = unix_us, poll
        if self.idle:
            for name in ("last_data_sent", "last_data_recv", "last_ack_recv"):
                setattr(sample, name, getattr(sample, name) + 1000 * INTERVAL_S)
        else:
            self._send(draw)
        row: bytes = sample.SerializeToString()
        return row

    def close(self, unix_us: int) -> bytes:
        """Its close record: what the kernel has of a socket that is gone."""
        sample = self.sample
        sample.time_unix_us, sample.poll_sequence = unix_us, 0
        sample.kind, sample.state = ENUMS["SampleKind"]["SAMPLE_KIND_CLOSE"], ENUMS["TcpState"]["TCP_STATE_CLOSE"]
        for name in FIELDS:
            if name == "congestion_algorithm" or name.startswith(("skmem_", "bbr_")):
                sample.ClearField(name)
        row: bytes = sample.SerializeToString()
        return row

    def _send(self, draw: random.Random) -> None:
        """An interval of traffic: what changes between two dumps of a capture, and the counters that belong to it."""
        sample = self.sample
        sent = int(draw.lognormvariate(11, 1.5))
        requested = draw.randrange(80, 900)
        segments = 1 + sent // self.mss
        lost = segments // 100 if draw.random() < 0.1 else 0
        spent_us = max(self.rtt_us, self.rtt_us * segments // max(sample.snd_cwnd, 1))
        sample.bytes_acked += sent
        sample.bytes_sent += sent + lost * self.mss
        sample.bytes_received += requested
        sample.segs_out += segments + lost + 1
        sample.data_segs_out += segments + lost
        sample.delivered += segments
        sample.segs_in += segments // 2 + 1
        sample.data_segs_in += 1
        sample.busy_time += spent_us
        if lost:
            sample.bytes_retrans += lost * self.mss
            sample.total_retrans += lost
            sample.snd_cwnd = sample.snd_ssthresh = max(10, int(sample.snd_cwnd * 0.7))
        elif segments > sample.snd_cwnd:
            sample.snd_cwnd = min(600, sample.snd_cwnd + draw.randrange(1, 8))
        sample.rtt = int(self.rtt_us * draw.uniform(0.97, 1.3))
        sample.rttvar = int(sample.rtt * draw.uniform(0.02, 0.2))
        sample.min_rtt = min(sample.min_rtt, sample.rtt)
        sample.rto = 200_000 + sample.rtt
        sample.delivery_rate = sent * 1_000_000 // spent_us
        sample.delivery_rate_app_limited = segments < sample.snd_cwnd
        sample.pacing_rate = sample.snd_cwnd * self.mss * 1_200_000 // sample.rtt
        for name in ("last_data_sent", "last_data_recv", "last_ack_recv"):
            setattr(sample, name, draw.randrange(1000 * INTERVAL_S))
        if sample.HasField("bbr_bw"):
            sample.bbr_bw, sample.bbr_min_rtt = sample.delivery_rate, sample.min_rtt


def _peer(draw: random.Random, pop: int) -> str:
    """A fifth of the connections go to other PoPs, a quarter of the others use IPv6."""
    if draw.random() < 0.2:
        return f"10.77.{(pop + draw.randrange(1, POPS)) % POPS}.{draw.randrange(1, 17)}"
    # Few prefixes have most of the connections.
    prefix = min(int(draw.paretovariate(0.7)), PREFIXES_PER_POP) + pop * PREFIXES_PER_POP
    if draw.random() < 0.25:
        return f"2001:db8:{prefix >> 8:x}:{prefix & 255:02x}{draw.randrange(256):02x}::{draw.randrange(1, 65535):x}"
    return f"100.{64 + (prefix >> 8)}.{prefix & 255}.{draw.randrange(1, 255)}"


def replay(sockets: int, polls: int, churn: float = 0.01, seed: int = 1) -> Iterator[Batch]:
    """About `sockets * polls` rows, poll by poll and host by host; `churn` is the share that ends between two polls."""
    draw = random.Random(seed)
    cookies = iter(range(1, 1 << 40))
    fresh = [_connection(draw, number % HOSTS, next(cookies)) for number in range(sockets)]
    hosts = [fresh[number::HOSTS] for number in range(HOSTS)]
    for poll in range(polls):
        for number, held in enumerate(hosts):
            at_us = (BEGIN_S + poll * INTERVAL_S) * 1_000_000 + number * 61_000
            rows = []
            for place, connection in enumerate(held):
                # A socket takes about 1.5 microseconds to read, and all of a datagram get its time.
                rows.append(connection.at(draw, at_us + place // 64 * 96, 1000 + poll))
                if draw.random() < churn:
                    ended_us = at_us + draw.randrange(INTERVAL_S * 1_000_000)
                    rows.append(connection.close(ended_us))
                    held[place] = _connection(draw, number, next(cookies))
            yield from _batches(f"edge-{number}", rows)


def _connection(draw: random.Random, host: int, cookie: int) -> Connection:
    # The kernel hands out cookies from a counter of its own on each CPU.
    return Connection(draw, host, (cookie << 12) | draw.randrange(4) << 10, idle=draw.random() < IDLE)


def _batches(host: str, rows: Sequence[bytes]) -> Iterator[Batch]:
    tag = varint(1 << 3 | 2)
    for first in range(0, len(rows), ROWS_A_MESSAGE):
        part = rows[first : first + ROWS_A_MESSAGE]
        envelope = b"".join(tag + varint(len(row)) + row for row in part)
        yield Batch(host, envelope, len(part))
