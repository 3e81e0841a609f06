#!/usr/bin/env python3
"""Springtide on an edge: the routes of a bundle into the kernel, and out again.

The whole edge side in one file that needs only the standard library of Python 3.8 and `ip` (iproute2): it is a command
and, imported, the core of an Ansible module. From outside to inside: command line, operations (apply, withdraw, expire,
follow, watch, status), the state directory, the rim to the kernel, and the pure part that decides (bundle, routes,
plan, difference).

`ip` tells what stands in the kernel. What is written goes over netlink, in the messages that `ip -batch` would send, or
through `ip -batch` itself where a route carries something unusual. Taking back needs no `ip`: it lists and deletes over
netlink, the rules first, which alone puts the host back at its default.

What it owns: routes with `proto 201` in `table 201`, and per address family the rule `pref 1000 lookup 201 protocol
201`. Everything else is read, never written.

How it stays whole: a run that changes the kernel first writes an intent (what stood before), then changes, reads back,
and commits by renaming state.json. A failure restores what stood before; after a kill or a crash the next run does it,
whichever command it is (`status` only says so). In doubt, the routes go: the kernel's default is always safe.

How taking back always ends: it waits for the lock a few seconds and goes on without it. The run that holds the lock
looks before and after each write whether that has happened, and then takes its own routes back (`Fence`). A withdrawal
that the state directory does not take is remembered in /run, and by the rule itself: within one boot a rule that is
gone was taken away, and is not put back by anything but an apply.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import datetime
import errno
import fcntl
import functools
import gc
import hashlib
import itertools
import json
import math
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    NamedTuple,
    NoReturn,
    Sequence,
    TextIO,
    Tuple,
    TypeVar,
)

SCHEMA_VERSION = 1
TABLE = "201"
PROTO = "201"
RULE_PREF = 1000
RULE = f"pref {RULE_PREF} lookup {TABLE} protocol {PROTO}"
MAIN_TABLE, LOCAL_TABLE = "254", "255"  # linux/rtnetlink.h: RT_TABLE_MAIN, RT_TABLE_LOCAL

# The edge's own bounds stand behind the controller's policy: they hold when a well-formed bundle is still wrong.
MAX_INITCWND = 1000  # 1.4 MB in the first round trip; ten times the largest default of the policy, a slip above it
MAX_ROUTES = 100_000  # ten times what a fleet needs; also the largest that the policy can ask for
MAX_CONGESTION = 100_000  # the largest that the policy can ask for
MAX_OBJECT_BYTES = 1_000_000_000  # as the policy
CLIENT_PREFIX_LENGTH = {4: 24, 6: 56}  # how far the controller tells clients apart
MAX_STATE_BYTES = 256 * 1024 * 1024  # 100,000 routes with many hops each, wanted and refused
MAX_MARK_BYTES = 64 * 1024
MAX_BUNDLE_BYTES = 16 * 1024 * 1024  # 100,000 of the longest IPv6 routes are 7.5 MB
MIN_LENGTH = {4: 8, 6: 16}  # a shorter prefix is most of the Internet: a default route by another name
CLOCK_TOLERANCE_S = 300  # an edge whose clock is further off must not judge expiry
MAX_ROUND_AHEAD_S = 3600  # older rounds are refused, so a round far ahead would lock every later one out
MAX_LIFETIME_S = 2 * 86400  # twice what the policy allows; the expiry is the dead man's switch

# What a routing daemon changes comes in bursts: wait until it is quiet, but not so long that a copy is stale for 2 s.
QUIET_S, BURST_S = 0.1, 0.5
WATCH_INTERVAL_S = 20  # also without an event: what expired goes, and what a killed run left is repaired
EXPIRY_MARGIN_S = 1.05  # what a route has left is shown in whole seconds, and not at all in its last hundredth
# linux/rtnetlink.h, RTNLGRP_*: links, IPv4 and IPv6 addresses, routes and rules, nexthop objects
WATCH_GROUPS = (1, 5, 9, 7, 11, 8, 19, 32)
SOL_NETLINK, NETLINK_ADD_MEMBERSHIP = 270, 1  # linux/socket.h, linux/netlink.h
NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK = 10, 11, 12

LOCK_WAIT_S = 30.0
SHORT_WAIT_S = 2.0  # for taking back, which then goes on without the lock
DELETE_PASSES = 5  # what another run still writes meanwhile goes with the next pass
IP_TIMEOUT_S = 120.0
CAP_NET_ADMIN = 12  # linux/capability.h

DONE, FAILED, REFUSED, PARTIAL = 0, 1, 2, 3
# A bundle that must not be used, told apart so that a rollout can tell an attack from an accident.
UNSIGNED, WRONG_SIGNER, ALTERED, OTHER_EDGE, REPLAYED, EXPIRED = 10, 11, 12, 13, 14, 15

SIGNATURE_NAMESPACE = "springtide-bundle"  # ssh-keygen(1) -n: a signature made for anything else is not one of ours
SIGNER = "springtide"  # the principal that stands before the keys in allowed_signers
MAX_SIGNATURE_BYTES = 64 * 1024  # an armored signature by a 16384-bit RSA key is under 6 KB
MAX_SIGNERS_BYTES = 1024 * 1024  # thousands of keys
DEFAULT_ALLOWED_SIGNERS = "/etc/springtide/allowed_signers"
DEFAULT_STATE_DIR = "/var/lib/springtide"
DEFAULT_RUN_DIR = "/run/springtide"
DEFAULT_EDGE_FILE = "/etc/springtide/edge"
MAX_EDGE_FILE_BYTES = 4096

Document = Dict[str, Any]
Parsed = TypeVar("Parsed")
Prefix = Tuple[int, int, int]  # IP version, network address as a number, length; sorts as bundles are sorted


class RefusedError(Exception):
    """Input or host not fit; nothing was changed. One line: what, where, what to do."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class FailedError(Exception):
    """Something broke while working; the message says what state the host is in."""

    exit_code = FAILED


class WithdrawnError(FailedError):
    """Another run has withdrawn the routes without waiting for this one: nothing may be put back."""


class UnrecordedError(FailedError):
    """The kernel holds just what the bundle wants, and no longer than it wants it; only the record is the older one."""


def read_regular(path: str, limit: int) -> tuple[os.stat_result, bytes]:
    """What a file is, and up to `limit` + 1 bytes of it. Never waits, as for the writer of a pipe. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", path)
        with open(handle, "rb", closefd=False) as file:
            return status, file.read(limit + 1)
    finally:
        os.close(handle)


# --- bundle ----------------------------------------------------------------------------------------------------------


class Destination(NamedTuple):
    """One route of a bundle: the prefix as written and as numbers, and the initial window in segments."""

    text: str
    prefix: Prefix
    initcwnd: int


class Choice(NamedTuple):
    """The congestion control of a client prefix, for connections that have delivered so many bytes.

    Nothing here applies it: it is checked and kept with the bundle, for what enforces it.
    """

    text: str
    prefix: Prefix
    algorithm: str
    min_object_bytes: int


class Bundle(NamedTuple):
    """A bundle that passed every check. Times in seconds since the epoch."""

    edge: str
    pop: str
    round: int
    policy_version: str
    created_at: int
    expires_at: int
    digest: str
    routes: tuple[Destination, ...]
    congestion: tuple[Choice, ...]
    raw: bytes


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# As long as the kernel's TCP_CA_NAME_MAX of 16 allows, its end included.
_ALGORITHM = re.compile(r"[a-z0-9_-]{1,15}")
_POLICY_VERSION = re.compile(r"[0-9a-f]{12}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WINDOW = re.compile(r"\binitcwnd (\d+)")
_INSTANT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", re.ASCII)
_LENGTHS = {str(length): length for length in range(129)}
_FIELDS = (
    "schema_version",
    "edge",
    "pop",
    "round",
    "policy_version",
    "created_at",
    "expires_at",
    "routes",
    "digest",
)
# What bundles may leave out.
_OPTIONAL = ("congestion",)
_CHOICE_FIELDS = ("prefix", "algorithm", "min_object_bytes")
_RENDER = "render it again with `springtide bundle`"


def canonical_digest(document: Document) -> str:
    """sha256 over the canonical JSON (UTF-8, sorted keys, no spaces) of `document` without its `digest`."""
    body = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def digest_matches(raw: bytes, document: Document) -> bool:
    """Whether the digest is of the content; as bundles are rendered, the bytes beside it are what was digested."""
    digest: str = document["digest"]
    before, found, after = raw.partition(b'"digest":"%s",' % digest.encode())
    if found and "sha256:" + hashlib.sha256(before + after).hexdigest() == digest:
        return True
    return canonical_digest(document) == digest


def parse_prefix(text: str) -> Prefix:
    """`10.0.0.0/8`, `fd00::/48`, or a bare host address as the kernel prints it.

    Raises ValueError with the problem as text: not an address, not in its shortest form, bits set beyond the length.
    """
    address, slash, length_text = text.partition("/")
    version, family, bits = (6, socket.AF_INET6, 128) if ":" in address else (4, socket.AF_INET, 32)
    try:
        packed = socket.inet_pton(family, address)
    except (OSError, ValueError):
        raise ValueError(f"{text!r} is not an IP prefix") from None
    if socket.inet_ntop(family, packed) != address:
        raise ValueError(f"{text!r} is not in canonical form ({socket.inet_ntop(family, packed)}/...)")
    length = bits
    if slash:
        length = _LENGTHS.get(length_text, 129)
        if length > bits:
            raise ValueError(f"{text!r} has no valid prefix length")
    network = int.from_bytes(packed, "big")
    if network & ((1 << (bits - length)) - 1):
        raise ValueError(f"{text!r} has bits set beyond its length")
    return version, network, length


def parse_instant(text: object) -> int:
    """Seconds since the epoch of `2026-01-02T03:05:00Z`. Raises ValueError."""
    match = _INSTANT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not an instant like 2026-01-02T03:05:00Z")
    year, month, day, hour, minute, second = map(int, match.groups())
    return int(datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.timezone.utc).timestamp())


def format_instant(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(int(seconds), tz=datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def destination_problem(prefix: Prefix) -> str | None:
    """Why no bundle may name this destination, or None."""
    version, network, length = prefix
    if length < MIN_LENGTH[version]:
        return f"/{length} is wider than /{MIN_LENGTH[version]}, the widest that an edge takes (no default routes)"
    if version == 4:
        first = network >> 24
        special = first in (0, 127) or first >= 224 or network >> 16 == 0xA9FE
    else:
        special = network >> 112 == 0 or network >> 120 == 0xFF or network >> 118 == 0xFE80 >> 6
    return "it is loopback, link-local, multicast or reserved space" if special else None


def parse_bundle(raw: bytes, source: str, edge: str, now: float) -> Bundle:
    """Check everything that can be known without the kernel. `now` in seconds since the epoch.

    Raises RefusedError with `SOURCE: FIELD: PROBLEM; WHAT TO DO`.
    """

    def bad(field: str, problem: str, fix: str = _RENDER, code: int = REFUSED) -> RefusedError:
        return RefusedError(f"{source}: {field}: {problem}; {fix}", code)

    document = _load_json(raw, bad)
    for field in _FIELDS:
        if field not in document:
            raise bad(field, "is missing")
    for field in document:
        if field not in _FIELDS + _OPTIONAL:
            raise bad(_printable(field), "is not a field of a bundle", "remove it, or update this edge's Springtide")
    if type(document["schema_version"]) is not int or document["schema_version"] != SCHEMA_VERSION:
        found = _printable(document["schema_version"])
        raise bad("schema_version", f"is {found}, this edge reads {SCHEMA_VERSION}", "update this edge's Springtide")
    for field, pattern in (("edge", _NAME), ("pop", _NAME), ("policy_version", _POLICY_VERSION), ("digest", _DIGEST)):
        if not isinstance(document[field], str) or not pattern.fullmatch(document[field]):
            raise bad(field, f"{_printable(document[field])} does not look like a {field.replace('_', ' ')}")
    instants = {}
    for field in ("round", "created_at", "expires_at"):
        try:
            instants[field] = parse_instant(document[field])
        except ValueError as error:
            raise bad(field, _printable(str(error), quote=False)) from error
    routes = _check_routes(document["routes"], bad)
    congestion = _check_congestion(document.get("congestion", []), bad)
    if not digest_matches(raw, document):
        fix = "fetch the bundle again: it was cut or altered on its way"
        raise bad("digest", "does not match the content", fix, ALTERED)
    if document["edge"] != edge:
        raise bad("edge", f"is for {document['edge']}, this is {edge}", f"push {edge}.json to this edge", OTHER_EDGE)
    _check_times(instants, now, bad)
    return Bundle(
        edge=document["edge"],
        pop=document["pop"],
        policy_version=document["policy_version"],
        digest=document["digest"],
        routes=routes,
        congestion=congestion,
        raw=raw,
        **instants,
    )


def _printable(value: object, quote: bool = True) -> str:
    """Any value from a hostile file on one short line of ASCII."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value) if quote else str(value).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 120 else text[:117] + "..."


def _load_json(raw: bytes, bad: Callable[..., RefusedError]) -> Document:
    if len(raw) > MAX_BUNDLE_BYTES:
        raise bad("size", f"is over {MAX_BUNDLE_BYTES} bytes", "lower bundle.max_routes in policy.yaml")

    def no_duplicates(pairs: list[tuple[str, Any]]) -> Document:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice in one object")
        return found

    def no_constants(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=no_duplicates, parse_constant=no_constants)
    except (ValueError, RecursionError) as error:
        problem = _printable(str(error), quote=False)
        raise bad("JSON", problem, "fetch the bundle again: it was cut or altered on its way") from error
    if not isinstance(document, dict):
        raise bad("JSON", "is not an object")
    return document


def _check_routes(routes: object, bad: Callable[..., RefusedError]) -> tuple[Destination, ...]:
    if not isinstance(routes, list):
        raise bad("routes", "is not a list")
    if len(routes) > MAX_ROUTES:
        fix = "lower bundle.max_routes in policy.yaml"
        raise bad("routes", f"{len(routes)} are more than the {MAX_ROUTES} that an edge takes", fix)
    checked: list[Destination] = []
    previous: Prefix = (0, 0, 0)
    for number, route in enumerate(routes):
        if not isinstance(route, dict) or len(route) != 2 or "prefix" not in route or "initcwnd" not in route:
            raise bad(f"routes[{number}]", "must have exactly the fields prefix and initcwnd")
        text, initcwnd = route["prefix"], route["initcwnd"]
        prefix = _read_prefix(text, "10.77.2.0/24", f"routes[{number}].prefix", bad)
        problem = destination_problem(prefix)
        if problem:
            raise bad(f"routes[{number}].prefix", f"{text}: {problem}", "narrow the PoP's prefix in fleet.yaml")
        if prefix <= previous:
            raise bad(f"routes[{number}].prefix", _disorder(text, prefix, previous))
        if type(initcwnd) is not int or not 1 <= initcwnd <= MAX_INITCWND:
            problem = f"{_printable(initcwnd)} is not a whole number in 1..{MAX_INITCWND}"
            raise bad(f"routes[{number}].initcwnd", problem, "set initcwnd.cmax in policy.yaml")
        previous = prefix
        checked.append(Destination(text, prefix, initcwnd))
    return tuple(checked)


def _read_prefix(text: object, example: str, field: str, bad: Callable[..., RefusedError]) -> Prefix:
    if not isinstance(text, str) or "/" not in text:
        raise bad(field, f"{_printable(text)} is not a prefix like {example}")
    try:
        return parse_prefix(text)
    except ValueError as error:
        raise bad(field, _printable(str(error), quote=False)) from error


def _disorder(text: str, prefix: Prefix, previous: Prefix) -> str:
    order = "occurs twice" if prefix == previous else "is out of order (IP version, network, length)"
    return f"{text} {order}"


def _check_congestion(choices: object, bad: Callable[..., RefusedError]) -> tuple[Choice, ...]:
    if not isinstance(choices, list):
        raise bad("congestion", "is not a list")
    if len(choices) > MAX_CONGESTION:
        fix = "lower bundle.max_congestion in policy.yaml"
        raise bad("congestion", f"{len(choices)} are more than the {MAX_CONGESTION} that an edge takes", fix)
    checked: list[Choice] = []
    previous: Prefix = (0, 0, 0)
    for number, choice in enumerate(choices):
        field = f"congestion[{number}]"
        if not isinstance(choice, dict) or set(choice) != set(_CHOICE_FIELDS):
            raise bad(field, f"must have exactly the fields {', '.join(_CHOICE_FIELDS)}")
        text, algorithm, least = (choice[name] for name in _CHOICE_FIELDS)
        prefix = _read_prefix(text, "192.0.2.0/24", f"{field}.prefix", bad)
        if prefix[2] != CLIENT_PREFIX_LENGTH[prefix[0]]:
            raise bad(f"{field}.prefix", f"{text} is neither an IPv4 /24 nor an IPv6 /56")
        if prefix <= previous:
            raise bad(f"{field}.prefix", _disorder(text, prefix, previous))
        if not isinstance(algorithm, str) or not _ALGORITHM.fullmatch(algorithm):
            raise bad(f"{field}.algorithm", f"{_printable(algorithm)} is no name of a congestion control")
        if type(least) is not int or not 0 <= least <= MAX_OBJECT_BYTES:
            raise bad(f"{field}.min_object_bytes", f"{_printable(least)} is no whole number in 0..{MAX_OBJECT_BYTES}")
        previous = prefix
        checked.append(Choice(text, prefix, algorithm, least))
    return tuple(checked)


def _check_times(instants: dict[str, int], now: float, bad: Callable[..., RefusedError]) -> None:
    created, expires = instants["created_at"], instants["expires_at"]
    clock = "set this edge's clock, or render the bundle again"
    if expires <= created:
        raise bad("expires_at", "is not after created_at")
    if expires - created > MAX_LIFETIME_S:
        raise bad(
            "expires_at", f"is more than {MAX_LIFETIME_S} s after created_at", "lower bundle.ttl_s in policy.yaml"
        )
    if created > now + CLOCK_TOLERANCE_S:
        raise bad("created_at", f"is {int(created - now)} s in the future of this edge's clock", clock)
    if instants["round"] > created + MAX_ROUND_AHEAD_S:
        raise bad("round", f"is more than {MAX_ROUND_AHEAD_S} s after created_at")
    if expires <= now:
        raise bad("expires_at", f"it expired {int(now - expires)} s ago", "render a newer round and push that", EXPIRED)


# --- signature -------------------------------------------------------------------------------------------------------


def verify_signature(path: str, content: bytes, allowed_signers: str) -> None:
    """Nothing of `content` is looked at before one of the allowed keys has signed just these bytes, in PATH.sig.

    Raises RefusedError: no signature, a signer that is not allowed, or other bytes than those that were signed.
    """
    try:
        status, signers = read_regular(allowed_signers, MAX_SIGNERS_BYTES)
    except OSError as error:
        fix = "put the publisher's public key there, or take the bundle unchecked with --unsigned"
        raise RefusedError(f"{allowed_signers}: {error.strerror}; {fix}", UNSIGNED) from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RefusedError(f"{allowed_signers}: others than its owner root can write it; chmod and chown it to root")
    if len(signers) > MAX_SIGNERS_BYTES:
        raise RefusedError(f"{allowed_signers}: is over {MAX_SIGNERS_BYTES} bytes; keep the publisher's keys only")
    signed = f"{path}.sig"
    if not Path(signed).exists():
        fix = "sign with `springtide bundle --sign-key`, push both files, or say --unsigned"
        raise RefusedError(f"{signed}: signature: is missing; {fix}", UNSIGNED)
    signature = read_file(signed, MAX_SIGNATURE_BYTES)
    code, errors = _ssh_keygen(("verify", "-I", SIGNER), content, signature, signers)
    if code == 0:
        return
    if _ssh_keygen(("check-novalidate",), content, signature)[0] == 0:
        problem = f"its key does not stand in {allowed_signers} as one of {SIGNER!r}"
        raise RefusedError(f"{signed}: signature: {problem}; sign with an allowed key", WRONG_SIGNER)
    problem = f"is not one of this content ({_printable(_one_line(errors), quote=False)})"
    raise RefusedError(f"{signed}: signature: {problem}; fetch both files again: one was altered on its way", ALTERED)


def _ssh_keygen(
    arguments: Sequence[str], content: bytes, signature: bytes, signers: bytes | None = None
) -> tuple[int, str]:
    """Exit code and errors of `ssh-keygen -Y`; every input as it was read once, whatever the files say by now."""
    with contextlib.ExitStack() as stack:

        def held(name: str, data: bytes) -> int:
            file = stack.enter_context(os.fdopen(os.memfd_create(f"springtide-{name}"), "w+b"))
            file.write(data)
            file.flush()
            return file.fileno()

        handles = [held("signature", signature)]
        command = ["ssh-keygen", "-Y", *arguments, "-n", SIGNATURE_NAMESPACE, "-s", f"/dev/fd/{handles[0]}"]
        if signers is not None:
            handles.append(held("signers", signers))
            command += ["-f", f"/dev/fd/{handles[1]}"]
        try:
            done = subprocess.run(
                command, input=content, capture_output=True, pass_fds=handles, timeout=IP_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RefusedError(f"ssh-keygen: {error}; install OpenSSH 8.2 or newer on this edge") from error
    return done.returncode, done.stderr.decode("utf-8", "replace")


# --- what the kernel prints ------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """What `ip route show` prints after a destination, taken apart so that it can be written with another initcwnd.

    `head`, `initcwnd N` and `hops` in this order are the arguments of `ip route add`. `obstacle` says why they would
    not be faithful ("" when they are). `narrow` marks a route for some packets only (by TOS or source). `expires` are
    the seconds that it has left, rounded down, or None.
    """

    proto: str
    metric: int
    narrow: bool
    dead: bool
    head: str
    initcwnd: int
    hops: str
    obstacle: str
    expires: int | None = None

    def arguments(self, initcwnd: int) -> str:
        return f"{self.head} initcwnd {initcwnd}{self.hops}"


class KernelRoute(NamedTuple):
    """One line of `ip route show`: destination as numbers and as printed, type of route, and its way."""

    prefix: Prefix
    text: str
    kind: str
    way: Way


# linux/rtnetlink.h, rtm_type; `ip -N` prints the number, an iproute2 without -N for types prints the name.
_KINDS = {
    "1": "unicast",
    "2": "local",
    "3": "broadcast",
    "4": "anycast",
    "5": "multicast",
    "6": "blackhole",
    "7": "unreachable",
    "8": "prohibit",
    "9": "throw",
    "10": "nat",
}
_KIND_NAMES = frozenset(_KINDS.values())
# ip-route(8). `ip` can set a lock on the first group only; rto_min it always locks.
_LOCKABLE = frozenset(
    ("mtu", "window", "rtt", "rttvar", "ssthresh", "cwnd", "advmss", "reordering", "hoplimit", "congctl", "initcwnd")
)
_METRICS = _LOCKABLE | {"rto_min", "initrwnd", "quickack", "fastopen_no_cookie"}
# Set by the kernel or a driver as things are at the moment, not by whoever wrote the route.
_MOMENTARY = frozenset(
    ("linkdown", "pervasive", "offload", "trap", "notify", "rt_offload", "rt_trap", "rt_offload_failed")
)
_SKIPPED_WITH_VALUE = frozenset(("pref", "table"))


@functools.lru_cache(maxsize=65536)  # in a table of ours a few next hops and windows repeat over and over
def parse_way(text: str, version: int) -> Way:
    """Read what follows the destination. Whatever is unknown becomes an `obstacle`.

    Text and not JSON, because `ip -j` leaves out which metrics are locked.
    """
    words = iter(text.replace("\\", " ").split())
    proto, scope, metric, initcwnd = "3", "0", 0, 0  # what `ip` leaves out: RTPROT_BOOT, RT_SCOPE_UNIVERSE
    narrow = dead = False
    expires: int | None = None
    nexthop_id = obstacle = ""
    path: list[str] = []
    attributes: list[str] = []
    hops: list[str] = []
    target = path
    try:
        for word in words:
            if word == "via":
                gateway = next(words)
                target.append(f"via {gateway} {next(words)}" if gateway in ("inet", "inet6") else f"via {gateway}")
            elif word in ("dev", "weight"):
                target.append(f"{word} {next(words)}")
            elif word == "onlink":
                target.append(word)
            elif word == "proto":
                proto = next(words)
            elif word == "scope":
                scope = next(words)
            elif word == "src":
                attributes.append(f"src {next(words)}")
            elif word == "metric":
                metric = int(next(words))
            elif word in _METRICS:
                value = next(words)
                locked = value == "lock"
                if locked:
                    value = next(words)
                if word == "initcwnd":
                    initcwnd = int(value)
                elif word == "rto_min":
                    attributes.append(f"rto_min {value}")
                    obstacle = obstacle if locked else "rto_min without a lock, which ip cannot write"
                elif locked and word not in _LOCKABLE:
                    obstacle = f"a lock on {word}, which ip cannot write"
                else:
                    attributes.append(f"{word} lock {value}" if locked else f"{word} {value}")
            elif word == "features":
                value = next(words)
                attributes.append(f"features {value}")
                obstacle = obstacle if value == "ecn" else f"features {value}"
            elif word == "nexthop":
                target = hops
                hops.append(word)
            elif word == "nhid":
                nexthop_id = next(words)
            elif word in ("tos", "from"):
                narrow = True
                next(words)
            elif word == "dead":
                dead = dead or target is path  # of a multipath route only some hops may be dead
            elif word == "expires":
                # The kernel shows one that has run out until it clears up, but no longer uses it.
                expires = int(next(words).rstrip("sec"))
                dead = dead or expires <= 0
            elif word in _SKIPPED_WITH_VALUE:
                next(words)
            elif word not in _MOMENTARY:
                obstacle = f"{_printable(word)}, which is not copied"
                break
    except (StopIteration, ValueError):
        obstacle = f"an end that is not understood: {_printable(text[-60:])}"
    if nexthop_id:
        path, hops = [f"nhid {nexthop_id}"], []
    if version == 4:
        # Without it `ip` guesses the scope from the gateway, and guesses wrong for nexthop ids.
        path.append(f"scope {scope}")
    return Way(
        proto=proto,
        metric=metric,
        narrow=narrow,
        dead=dead,
        head=" ".join(path + attributes),
        initcwnd=initcwnd,
        hops="".join(f" {hop}" for hop in hops),
        obstacle=obstacle,
        expires=expires,
    )


def split_line(line: str) -> tuple[str, str, str]:
    """Type of route, destination, and the rest, of one line of `ip -N -o route show`."""
    first, _, rest = line.partition(" ")
    kind = _KINDS.get(first, first)
    if kind not in _KIND_NAMES:
        return "unicast", first, rest
    destination, _, rest = rest.partition(" ")
    return kind, destination, rest


def route_lines(output: str) -> Iterator[str]:
    """The lines that are routes; what `ip` indents belongs to the line before and repeats it in other words."""
    return (line for line in output.splitlines() if line and not line[0].isspace())


def parse_routes(output: str, version: int) -> list[KernelRoute]:
    """Every route of `ip -N -o route show`. Raises ValueError for a destination that cannot be read."""
    routes = []
    for line in route_lines(output):
        kind, text, rest = split_line(line)
        prefix = (version, 0, 0) if text == "default" else parse_prefix(text)
        routes.append(KernelRoute(prefix, text, kind, parse_way(rest, version)))
    return routes


def own_metric(version: int) -> int:
    """The priority of our routes; IPv6 has no zero (linux/ipv6_route.h, IP6_RT_PRIO_USER)."""
    return 0 if version == 4 else 1024


class OwnTable(NamedTuple):
    """Table 201 of one address family: our routes as prefix -> arguments, and the lines that are not ours."""

    routes: dict[str, str]
    foreign: list[str]


def sort_own_table(output: str, version: int) -> OwnTable:
    """Ours is what this program would have written; everything else in the table is foreign."""
    table = OwnTable({}, [])
    host = "/32" if version == 4 else "/128"
    for line in route_lines(output):
        kind, text, rest = split_line(line)
        way = parse_way(rest, version)
        ours = (
            way.proto == PROTO
            and kind == "unicast"
            and text != "default"
            and way.metric == own_metric(version)
            and not way.narrow
            and not way.obstacle
            and way.initcwnd > 0
        )
        name = text if "/" in text else text + host
        if ours and name not in table.routes:
            table.routes[name] = way.arguments(way.initcwnd)
        else:
            table.foreign.append(line.strip())
    return table


# --- plan ------------------------------------------------------------------------------------------------------------


def last_address(prefix: Prefix) -> int:
    version, network, length = prefix
    return network | ((1 << ((32 if version == 4 else 128) - length)) - 1)


class Index:
    """Routes of one address family, for longest match and for what lies inside a prefix."""

    def __init__(self, routes: Iterable[KernelRoute]) -> None:
        ordered = sorted(routes, key=lambda route: route.prefix)
        by_length: dict[int, dict[int, list[KernelRoute]]] = {}
        for route in ordered:
            _, network, length = route.prefix
            by_length.setdefault(length, {}).setdefault(network, []).append(route)
        self._by_length = sorted(by_length.items(), reverse=True)
        self._ordered = ordered
        self._networks = [route.prefix[1] for route in ordered]

    def lasts(self) -> float:
        """Seconds until the next of these routes runs out; infinity when none will."""
        left = (route.way.expires for route in self._ordered if not route.way.dead)
        return min((seconds + EXPIRY_MARGIN_S for seconds in left if seconds is not None), default=math.inf)

    def marks(self) -> set[int]:
        """The first address of each route, and the first one behind it."""
        return {mark for route in self._ordered for mark in (route.prefix[1], last_address(route.prefix) + 1)}

    def covering(self, prefix: Prefix) -> list[list[KernelRoute]]:
        """Routes that contain the whole prefix, longest first, those of one length together."""
        version, network, length = prefix
        bits = 32 if version == 4 else 128
        return [
            routes[network >> (bits - shorter) << (bits - shorter)]
            for shorter, routes in self._by_length
            if shorter <= length and network >> (bits - shorter) << (bits - shorter) in routes
        ]

    def first_inside(self, prefix: Prefix, shortest: int) -> KernelRoute | None:
        """A route at least `shortest` long that lies inside the prefix, or None."""
        networks = self._networks
        position, end = bisect.bisect_left(networks, prefix[1]), len(networks)
        last = last_address(prefix)
        while position < end and networks[position] <= last:
            if self._ordered[position].prefix[2] >= shortest:
                return self._ordered[position]
            position += 1
        return None


class Plan(NamedTuple):
    """What table 201 shall hold (prefix -> arguments), what cannot be served (prefix -> reason), and for how many
    seconds at most this is so.
    """

    routes: dict[str, str]
    refused: dict[str, str]
    lasts: float = math.inf


def find_next_hop(prefix: Prefix, main: Index, local: Index) -> KernelRoute:
    """The edge's own route to a destination, safe to copy. Raises ValueError with the reason when there is none.

    Longest match as the kernel does it, not `ip route get`: that would see our own table first.
    """
    inside = local.first_inside(prefix, prefix[2])
    if inside is not None:
        raise ValueError(f"the edge's own address {inside.text} lies inside it")
    for routes in local.covering(prefix):
        if any(route.kind == "local" for route in routes):
            raise ValueError("it is the edge's own (its local table has a route over all of it)")
    inside = main.first_inside(prefix, prefix[2] + 1)
    if inside is not None:
        raise ValueError(f"the edge's more specific route {inside.text} lies inside it and our rule would hide it")
    for routes in main.covering(prefix):
        chosen, reason = choose(routes)
        if reason:
            raise ValueError(reason)
        if chosen is not None:
            return chosen
    raise ValueError("no route of the edge's own covers it")


def choose(routes: Sequence[KernelRoute]) -> tuple[KernelRoute | None, str]:
    """Which route of one prefix to copy, or why none; neither when all are dead: then a shorter prefix counts."""
    alive = [route for route in routes if not route.way.dead]
    if not alive:
        return None, ""
    if any(route.way.narrow for route in alive):
        return None, f"the edge routes {alive[0].text} by TOS or source, which our rule would bypass"
    metric = min(route.way.metric for route in alive)
    best = [route for route in alive if route.way.metric == metric]
    chosen = best[0]
    if chosen.kind != "unicast":
        return None, f"the edge's own route to it, {chosen.text}, is {chosen.kind}"
    if len(best) > 1:
        return None, f"the edge has several routes {chosen.text} of one metric: which one counts is not clear"
    if chosen.way.obstacle:
        return None, f"the edge's own route to it, {chosen.text}, carries {chosen.way.obstacle}"
    return chosen, ""


def plan_routes(destinations: Iterable[Destination], main: dict[int, Index], local: dict[int, Index]) -> Plan:
    """Copy the next hop of every destination. `main` and `local`: IP version -> that table."""
    plan = Plan({}, {}, min((index.lasts() for index in main.values()), default=math.inf))
    marks = {version: sorted(main[version].marks() | local[version].marks()) for version in main}
    answers: dict[tuple[int, int], Way | str] = {}
    written: dict[tuple[int, int, int], str] = {}
    for text, prefix, initcwnd in destinations:
        version = prefix[0]
        if version not in main:
            plan.refused[text] = f"this host has no IPv{version}"
            continue
        # Where no route of the edge begins or has just ended, none lies inside, and what covers one destination between
        # two marks covers every other one there: they share the answer.
        place = bisect.bisect_left(marks[version], prefix[1])
        shared = place == len(marks[version]) or marks[version][place] > last_address(prefix)
        if shared and (version, place, initcwnd) in written:
            plan.routes[text] = written[version, place, initcwnd]
            continue
        answer = answers.get((version, place)) if shared else None
        if answer is None:
            try:
                answer = find_next_hop(prefix, main[version], local[version]).way
            except ValueError as reason:
                answer = str(reason)
            if shared:
                answers[version, place] = answer
        if isinstance(answer, str):
            plan.refused[text] = answer
            continue
        plan.routes[text] = answer.arguments(initcwnd)
        if shared:
            written[version, place, initcwnd] = plan.routes[text]
    return plan


class Change(NamedTuple):
    """One step from one table to another: verb is `add`, `replace` or `del`."""

    verb: str
    prefix: str
    arguments: str


def difference(actual: dict[str, str], wanted: dict[str, str]) -> list[Change]:
    """The steps that turn `actual` into `wanted`, each prefix once, removals first."""
    steps = [Change("del", prefix, "") for prefix in actual if prefix not in wanted]
    for prefix, arguments in wanted.items():
        if prefix not in actual:
            steps.append(Change("add", prefix, arguments))
        elif actual[prefix] != arguments:
            steps.append(Change("replace", prefix, arguments))
    return steps


def version_of(prefix: str) -> int:
    return 6 if ":" in prefix else 4


class Snapshot(NamedTuple):
    """What is ours in the kernel: routes (prefix -> arguments) and the IP versions that have our rule."""

    routes: dict[str, str]
    rules: tuple[int, ...]


def with_rules(routes: dict[str, str]) -> Snapshot:
    """A rule for each IP version that has a route, and none for one that has not."""
    return Snapshot(routes, tuple(sorted({version_of(prefix) for prefix in routes})))


def owner(version: int) -> str:
    """What makes a route ours, as arguments of `ip route`."""
    metric = own_metric(version)
    return f"table {TABLE} proto {PROTO}" + (f" metric {metric}" if metric else "")


def batch(actual: Snapshot, wanted: Snapshot, steps: Iterable[Change], version: int) -> list[Change]:
    """What to write, in order: our rule is gone before the last route, and comes after the first one.

    `steps` is the difference of the two snapshots' routes. The rule is a change without a prefix.
    """
    changes = [step for step in steps if version_of(step.prefix) == version]
    if version in actual.rules and version not in wanted.rules:
        changes.insert(0, Change("del", "", RULE))
    if version in wanted.rules and version not in actual.rules:
        changes.append(Change("add", "", RULE))
    return changes


def batch_line(change: Change, version: int) -> str:
    """As `ip -VERSION -batch -` reads it."""
    verb, prefix, arguments = change
    return f"route {verb} {prefix} {owner(version)} {arguments}" if prefix else f"rule {verb} {arguments}"


# --- rules -----------------------------------------------------------------------------------------------------------

_OUR_RULE = {"priority": RULE_PREF, "src": "all", "table": TABLE, "protocol": PROTO}


def rule_problem(rules: Sequence[Document], version: int) -> str | None:
    """Why our rule must not stand among these (`ip -N -j rule show`), or None.

    Ours is asked before every rule behind it, so up to the lookup of main there must be none that chooses by
    anything else: a source, a mark or a VRF would be bypassed.
    """
    for rule in sorted(rules, key=lambda rule: int(rule["priority"])):
        if rule == _OUR_RULE or rule["priority"] < RULE_PREF:
            continue
        shown = " ".join(f"{key} {value}" if value is not None else key for key, value in rule.items())
        where = f"`ip -{version} rule`: `{shown}`"
        if rule["priority"] == RULE_PREF:
            return f"{where} stands where Springtide's rule belongs; give it another preference"
        if {"priority": rule["priority"], "src": "all", "table": MAIN_TABLE} == {
            key: value for key, value in rule.items() if key != "protocol"
        }:
            return None
        return f"{where} would be bypassed by Springtide's rule; move it before {RULE_PREF} or leave this edge out"
    return f"`ip -{version} rule`: none after {RULE_PREF} looks up main; leave this edge out"


# --- netlink ---------------------------------------------------------------------------------------------------------

# linux/netlink.h
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_DUMP = 1, 4, 0x10, 0x300
NLM_F_CAPPED, NLM_F_ACK_TLVS, NLMSGERR_ATTR_MSG = 0x100, 0x200, 1
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
# linux/rtnetlink.h
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE, RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 24, 25, 26, 32, 33, 34
RTM_F_CLONED = 0x200
RTN_UNICAST, RT_SCOPE_NOWHERE = 1, 255
RTNH_F_DEAD, RTNH_F_ONLINK = 1, 4
RTA_DST, RTA_SRC, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH = 1, 2, 4, 5, 6, 7, 8, 9
RTA_CACHEINFO, RTA_TABLE, RTA_VIA, RTA_PREF, RTA_NH_ID = 12, 15, 18, 20, 30
_NUMBERED_METRICS = {
    "mtu": 2,
    "window": 3,
    "ssthresh": 6,
    "cwnd": 7,
    "advmss": 8,
    "reordering": 9,
    "initcwnd": 11,
    "initrwnd": 14,
    "quickack": 15,
}
FR_ACT_TO_TBL, FRA_PRIORITY, FRA_TABLE, FRA_PROTOCOL = 1, 6, 15, 21  # linux/fib_rules.h

_VERBS = {
    "route add": (RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL),
    "route replace": (RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE),
    "route del": (RTM_DELROUTE, NLM_F_REQUEST),
    "rule add": (RTM_NEWRULE, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL),
    "rule del": (RTM_DELRULE, NLM_F_REQUEST),
}
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_BODY = struct.Struct("=BBBBBBBBI")  # rtmsg: family, lengths of dst and src, tos, table, proto, scope, type, flags
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
_NEXTHOP = struct.Struct("=HBBi")  # rtnexthop: length, flags, weight - 1, interface
# Bytes. Also when every message fails, the answers fit into a receive buffer: 200 of at most 1 KiB of kernel memory.
SENT_AT_ONCE = 8 * 1024
RECEIVE_BUFFER, SO_RCVBUFFORCE = 1024 * 1024, 33  # where the host's own default is small; asm-generic/socket.h


def attribute(kind: int, value: bytes) -> bytes:
    """One rtattr, padded to four bytes."""
    return _ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each rtattr. Raises ValueError when they do not fill `data`."""
    at = 0
    while at + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < 4:
            break
        yield kind & 0x3FFF, data[at + 4 : at + length]  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
        at += length + -length % 4
    if at < len(data):
        raise ValueError("attributes that do not fill their message")


def messages_of(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, flags, sequence and body of each message that one datagram holds."""
    at, header, unpack = 0, _HEADER.size, _HEADER.unpack_from
    while at + header <= len(data):
        length, kind, flags, sequence, _ = unpack(data, at)
        yield kind, flags, sequence, data[at + header : at + length]
        at += length + -length % 4 if length > header else header


def destination_start(size: int) -> bytes:
    """What stands between an rtmsg and an address of `size` bytes: the table, as the kernel dumps it, and a header."""
    return attribute(RTA_TABLE, _u32(int(TABLE))) + _ATTRIBUTE.pack(4 + size, RTA_DST)


def rule_message(verb: str, version: int, sequence: int) -> bytes:
    """Our rule comes or goes."""
    kind, flags = _VERBS[f"rule {verb}"]
    action = FR_ACT_TO_TBL if verb == "add" else 0
    body = _BODY.pack(family_of(version), 0, 0, 0, int(TABLE), 0, 0, action, 0)
    body += attribute(FRA_PRIORITY, _u32(RULE_PREF)) + attribute(FRA_PROTOCOL, bytes([int(PROTO)]))
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def is_our_rule(body: bytes) -> bool:
    """Of a dumped rule. Raises ValueError."""
    found = dict(attributes(body[_BODY.size :]))
    marks = {FRA_PRIORITY: _u32(RULE_PREF), FRA_TABLE: _u32(int(TABLE)), FRA_PROTOCOL: bytes([int(PROTO)])}
    return all(found.get(kind) == value for kind, value in marks.items())


def is_our_route(body: bytes) -> bool:
    """Of a dumped route, by its table and protocol: also one that this program would never have written."""
    _, _, _, _, table, proto, _, _, flags = _BODY.unpack_from(body)
    return (table, proto) == (int(TABLE), int(PROTO)) and not flags & RTM_F_CLONED


def deletion(body: bytes, sequence: int) -> bytes:
    """Of a dumped route, by what the kernel finds it by and nothing else: what it carries can contradict itself, as a
    nexthop id beside the hop that the id stands for, and a message that says both is refused. Raises ValueError.
    """
    family, length, source, tos, table, proto, _, _, _ = _BODY.unpack_from(body)
    kind, flags = _VERBS["route del"]
    keys = (RTA_DST, RTA_SRC, RTA_PRIORITY, RTA_TABLE)
    key = b"".join(attribute(name, value) for name, value in attributes(body[_BODY.size :]) if name in keys)
    key = _BODY.pack(family, length, source, tos, table, proto, RT_SCOPE_NOWHERE, 0, 0) + key
    return _HEADER.pack(_HEADER.size + len(key), kind, flags, sequence, 0) + key


def family_of(version: int) -> int:
    return int(socket.AF_INET if version == 4 else socket.AF_INET6)


class Encoder:
    """Changes as the messages that `ip -batch` would send; made anew for every batch, because the numbers of interfaces
    change.
    """

    def __init__(self, version: int, interface: Callable[[str], int] = socket.if_nametoindex) -> None:
        self._version, self._family, self._size = version, family_of(version), 4 if version == 4 else 16
        self._interface = interface
        self._owner = owner(version)
        self._start = struct.Struct(f"{_HEADER.format}BB")  # up to the destination's length
        self._frames: dict[tuple[str, str], tuple[int, int, bytes, bytes] | None] = {}

    def messages(self, changes: Iterable[Change]) -> list[bytes] | None:
        """Numbered from 0. None when one is only expressed by `ip`, or should be complained about by it."""
        frames, pack, family, made = self._frames, self._start.pack, self._family, []
        fixed, packed = self._start.size + self._size, socket.inet_pton
        for sequence, (verb, prefix, arguments) in enumerate(changes):
            if not prefix:
                made.append(rule_message(verb, self._version, sequence))
                continue
            key = verb, arguments
            if key not in frames:
                frames[key] = self._frame(verb, arguments)
            frame = frames[key]
            if frame is None:
                return None
            kind, flags, before, after = frame
            address, _, length = prefix.partition("/")
            start = pack(fixed + len(before) + len(after), kind, flags, sequence, 0, family, int(length))
            made.append(start + before + packed(family, address) + after)
        return made

    def essence(self, arguments: str) -> Essence | None:
        """Of the route of ours with these arguments."""
        frame = self._frame("add", arguments)
        if frame is None:
            return None
        _, _, before, after = frame
        return essence(bytes([self._family, 0]) + before[: _BODY.size - 2], after)

    def _frame(self, verb: str, arguments: str) -> tuple[int, int, bytes, bytes] | None:
        """Type and flags of the message, and its bytes between the destination's length and address, and after that."""
        try:
            scope, hop_flags, after = self._parsed(f"{self._owner} {arguments}")
        except (OSError, ValueError, struct.error):
            return None
        kind = RTN_UNICAST
        if verb == "del":
            scope, kind = RT_SCOPE_NOWHERE, 0
        body = _BODY.pack(self._family, 0, 0, 0, int(TABLE), int(PROTO), scope, kind, hop_flags)
        return (*_VERBS[f"route {verb}"], body[2:] + destination_start(self._size), after)

    def _parsed(self, text: str) -> tuple[int, int, bytes]:
        """Scope, flags and attributes of what follows the destination. Raises OSError, ValueError, struct.error."""
        path, *hops = text.split(" nexthop ")
        scope, metrics = 0, {}
        flags, tail, others = self._hop(path)
        for word, value in others:
            if word in _NUMBERED_METRICS:
                metrics[_NUMBERED_METRICS[word]] = int(value)
            elif word == "scope":
                (scope,) = bytes([int(value)])
            elif word == "src":
                tail += attribute(RTA_PREFSRC, socket.inet_pton(self._family, value))
            elif word in ("metric", "nhid"):
                tail += attribute(RTA_PRIORITY if word == "metric" else RTA_NH_ID, _u32(int(value)))
            elif (word, value) not in (("table", TABLE), ("proto", PROTO)):
                raise ValueError(word)
        if hops:
            tail += attribute(RTA_MULTIPATH, b"".join(map(self._multipath, hops)))
        if metrics:
            values = (attribute(number, _u32(metrics[number])) for number in sorted(metrics))
            tail += attribute(RTA_METRICS, b"".join(values))
        return scope, flags, tail

    def _hop(self, text: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        """Flags and attributes of one hop, and the words that are not about the hop. Raises OSError, ValueError."""
        flags, tail, others = 0, b"", []
        words = iter(text.split())
        for word in words:
            if word == "onlink":
                flags |= RTNH_F_ONLINK
                continue
            value = next(words, "")
            if word == "via":
                tail += attribute(RTA_GATEWAY, socket.inet_pton(self._family, value))
            elif word == "dev":
                tail += attribute(RTA_OIF, _u32(self._interface(value)))
            else:
                others.append((word, value))
        return flags, tail, others

    def _multipath(self, text: str) -> bytes:
        flags, tail, others = self._hop(text)
        values = dict(attributes(tail))
        (interface,) = struct.unpack("=i", values.pop(RTA_OIF, b""))
        ((word, weight),) = others
        if word != "weight":
            raise ValueError(word)
        gateway = b"".join(attribute(kind, value) for kind, value in values.items())
        return _NEXTHOP.pack(_NEXTHOP.size + len(gateway), flags, int(weight) - 1, interface) + gateway


def _u32(number: int) -> bytes:
    return struct.pack("=I", number)


Essence = Tuple[bytes, FrozenSet[Tuple[int, bytes]]]


def essence(body: bytes, tail: bytes) -> Essence:
    """What makes two routes alike but for the destination: of the kernel's as it dumps it, and of one that was sent.

    `body` is the rtmsg, `tail` what follows the destination. As `parse_way`, it leaves out what is of the moment, and
    with a nexthop id what that id stands for. Raises ValueError.
    """
    family, _, source, tos, table, proto, scope, kind, flags = _BODY.unpack(body)
    found = dict(attributes(tail))
    skipped = {RTA_CACHEINFO, RTA_PREF}
    if RTA_NH_ID in found:
        skipped |= {RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH}
    lasting = flags & (RTNH_F_DEAD | RTNH_F_ONLINK)
    words = _BODY.pack(family, 0, source, tos, table, proto, scope, kind, lasting)
    return words, frozenset((key, value) for key, value in found.items() if key not in skipped)


def translate(bodies: Iterable[bytes], version: int, known: dict[Essence, str]) -> dict[str, str] | None:
    """Dumped routes as prefix -> arguments, or None when one is not `known`. Raises ValueError."""
    family, size = (socket.AF_INET, 4) if version == 4 else (socket.AF_INET6, 16)
    start = destination_start(size)
    address = _BODY.size + len(start)
    end = address + size
    seen: dict[bytes, str | None] = {}
    routes = {}
    for body in bodies:
        like = body[2:address] + body[end:]
        if like not in seen:
            placed = body[_BODY.size : address] == start
            seen[like] = known.get(essence(body[: _BODY.size], body[end:])) if placed else None
        arguments = seen[like]
        if arguments is None:
            return None
        routes[f"{socket.inet_ntop(family, body[address:end])}/{body[1]}"] = arguments
    return routes


class Rtnetlink:
    """A conversation with the kernel. Every call raises OSError when it breaks down."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._socket.settimeout(IP_TIMEOUT_S)
        options = [(SOL_NETLINK, NETLINK_CAP_ACK, 1), (SOL_NETLINK, NETLINK_EXT_ACK, 1)]
        for option in (*options, (socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)):
            with contextlib.suppress(OSError):  # errors are shorter and clearer with them, and there is room for more
                self._socket.setsockopt(*option)

    def __enter__(self) -> Rtnetlink:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(
        self, messages: Sequence[bytes], check: Callable[[], None] = lambda: None, *, through: bool = False
    ) -> tuple[int, str] | None:
        """In order, many at once; the position of the first that the kernel refused and why, or None.

        The sequence number of a message is its position. What was sent together with a refused one is still done, and
        with `through` what comes after it too. `check` is called before each part and ends it by raising.
        """
        begin, first = 0, None
        while begin < len(messages):
            end, size = begin, 0
            while end < len(messages) and (end == begin or size + len(messages[end]) <= SENT_AT_ONCE):
                size += len(messages[end])
                end += 1
            last = bytearray(messages[end - 1])
            length, kind, flags, sequence, port = _HEADER.unpack_from(last)
            _HEADER.pack_into(last, 0, length, kind, flags | NLM_F_ACK, sequence, port)  # what succeeds says nothing
            check()
            self._socket.sendto(b"".join(messages[begin : end - 1]) + last, (0, 0))
            refused = self._answer(end - 1)  # always: what stays unread is taken for the answer to what is sent next
            first = first or refused
            if first is not None and not through:
                break
            begin = end
        return first

    def _answer(self, last: int) -> tuple[int, str] | None:
        refused = None
        while True:
            for kind, flags, sequence, body in messages_of(self._socket.recv(65536)):
                if kind != NLMSG_ERROR:
                    continue
                (code,) = struct.unpack_from("=i", body)
                if code and refused is None:
                    refused = sequence, _refusal(-code, flags, body)
                if sequence == last:
                    return refused

    def dump(self, version: int, table: int) -> list[bytes] | None:
        """The bodies of one table's routes; None when it was changed while the kernel told them."""
        self._socket.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        bodies, whole = self._ask(RTM_GETROUTE, version, table)
        return bodies if whole else None

    def our_rules(self, version: int) -> list[bytes]:
        """The bodies of the rules that carry our marks. Raises OSError, ValueError."""
        return [body for body in self._ask(RTM_GETRULE, version, 0)[0] if is_our_rule(body)]

    def our_routes(self, version: int) -> list[bytes]:
        """The bodies of the routes that carry our marks. Raises OSError."""
        with contextlib.suppress(OSError):  # without it an old kernel tells the routes of every table
            self._socket.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        try:
            bodies, _ = self._ask(RTM_GETROUTE, version, int(TABLE))
        except FileNotFoundError:  # no such table
            return []
        return [body for body in bodies if is_our_route(body)]

    def _ask(self, kind: int, version: int, table: int) -> tuple[list[bytes], bool]:
        """The bodies that a dump of one address family gives, and whether it is of one moment. Raises OSError."""
        family = family_of(version)
        body = _BODY.pack(family, 0, 0, 0, table, 0, 0, 0, 0)
        flags = NLM_F_REQUEST | NLM_F_DUMP
        self._socket.sendto(_HEADER.pack(_HEADER.size + len(body), kind, flags, 0, 0) + body, (0, 0))
        bodies: list[bytes] = []
        whole = True
        while True:
            for answer, flags, _, body in messages_of(self._socket.recv(65536)):
                whole = whole and not flags & NLM_F_DUMP_INTR
                if answer in (NLMSG_ERROR, NLMSG_DONE):
                    (code,) = struct.unpack_from("=i", body) if len(body) >= 4 else (0,)
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    return bodies, whole
                if body[0] == family:  # a kernel without one answers for all others
                    bodies.append(body)


def _refusal(code: int, flags: int, body: bytes) -> str:
    """The kernel's own words where it has some, else the error's name."""
    texts = {}
    if flags & (NLM_F_CAPPED | NLM_F_ACK_TLVS) == NLM_F_CAPPED | NLM_F_ACK_TLVS:
        with contextlib.suppress(ValueError):
            texts = dict(attributes(body[4 + _HEADER.size :]))
    text = texts.get(NLMSGERR_ATTR_MSG, b"").rstrip(b"\0").decode("utf-8", "replace")
    return f"{os.strerror(code)} ({text})" if text else os.strerror(code)


# --- the rim to the kernel -------------------------------------------------------------------------------------------


def never() -> None:
    """The check of a run that no other one can overtake."""


class Kernel:
    """Runs `ip`. `lock_fd` is handed to every child: when this process is killed while `ip` still works through a
    batch, the lock stays taken until that child is gone too. `check` is called before and after each write; it raises
    WithdrawnError when nothing may be put back any more.
    """

    def __init__(self, lock_fd: int | None = None, check: Callable[[], None] = never) -> None:
        directories = (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin")
        programs = [str(Path(directory, "ip")) for directory in directories if directory]
        self._program = next((program for program in programs if os.access(program, os.X_OK)), "")
        self._pass_fds = () if lock_fd is None else (lock_fd,)
        self._check = check
        self.versions = (4, 6) if Path("/proc/net/if_inet6").exists() else (4,)

    def run(self, arguments: Sequence[str], given: str = "") -> tuple[int, str, str]:
        """Exit code, output, errors. Raises RefusedError without `ip`, FailedError when it cannot run or hangs.

        The input lies complete in memory before `ip` starts. Through a pipe, a kill of this process would cut a line
        in two, and `ip` takes the first half for a command: without its `table 201`, that one is about main.
        """
        if not self._program:
            raise RefusedError("ip: not found; install iproute2")
        try:
            with os.fdopen(os.memfd_create("springtide-batch"), "w+b") as batch:
                batch.write(given.encode())
                batch.seek(0)
                done = subprocess.run(
                    [self._program, *arguments],
                    stdin=batch,
                    capture_output=True,
                    pass_fds=self._pass_fds,
                    timeout=IP_TIMEOUT_S,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FailedError(f"ip {' '.join(arguments)}: {error}; run it by hand to see why") from error
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    def table(self, version: int, table: str) -> str:
        """The lines of one routing table; a table that does not exist is empty."""
        arguments = [f"-{version}", "-N", "-o", "route", "show", "table", table]
        code, output, errors = self.run(arguments)
        if code and "FIB table does not exist" not in errors:
            raise FailedError(f"ip {' '.join(arguments)}: {_one_line(errors)}; run it by hand to see why")
        return output

    def own_table(self, version: int) -> OwnTable:
        return self._read(version, TABLE, sort_own_table)

    def index(self, version: int, table: str) -> Index:
        return Index(self._read(version, table, parse_routes))

    def _read(self, version: int, table: str, parse: Callable[[str, int], Parsed]) -> Parsed:
        try:
            return parse(self.table(version, table), version)
        except ValueError as error:
            raise FailedError(f"ip -{version} route show table {table}: {error}; is iproute2 5.5 or newer?") from error

    def rules(self, version: int) -> list[Document]:
        arguments = [f"-{version}", "-N", "-j", "rule", "show"]
        code, output, errors = self.run(arguments)
        try:
            rules = json.loads(output) if code == 0 else None
        except ValueError:
            rules = None
        if not isinstance(rules, list):
            raise FailedError(f"ip {' '.join(arguments)}: {_one_line(errors)}; run it by hand to see why")
        return rules

    def snapshot(self, versions: Iterable[int] | None = None) -> Snapshot:
        """What is ours, of all IP versions or of some."""
        routes: dict[str, str] = {}
        rules = []
        for version in self.versions if versions is None else versions:
            routes.update(self.own_table(version).routes)
            if _OUR_RULE in self.rules(version):
                rules.append(version)
        return Snapshot(routes, tuple(rules))

    def move(self, actual: Snapshot, wanted: Snapshot) -> list[Change]:
        """From one to the other, then read back what was written to. Returns the steps.

        Raises FailedError, with the kernel somewhere in between; WithdrawnError when it must be nowhere but at nothing.
        """
        steps = difference(actual.routes, wanted.routes)
        written = []
        for version in self.versions:
            changes = batch(actual, wanted, steps, version)
            if changes:
                written.append(version)
                self._write(version, changes)
        found = self._read_back(written, wanted.routes)
        self._check()
        if found != of_versions(wanted, written):
            left = difference(found.routes, of_versions(wanted, written).routes)
            sample = f"{left[0].verb} {left[0].prefix} {left[0].arguments}" if left else f"rules {found.rules}"
            raise FailedError(f"read back: table {TABLE} is {len(left)} steps from what was written ({sample})")
        return steps

    def _write(self, version: int, changes: Sequence[Change]) -> None:
        """In order, the rule always alone: it comes only after a look whether all was withdrawn meanwhile, so whatever
        wakes late, this process or its `ip`, writes routes that nothing looks up.

        Raises FailedError, with some of them done.
        """
        for _, part in itertools.groupby(changes, key=lambda change: bool(change.prefix)):
            self._send(version, list(part))
        self._check()

    def _send(self, version: int, changes: Sequence[Change]) -> None:
        """Over netlink, or by `ip` when one is not expressed there."""
        messages = Encoder(version).messages(changes)
        if messages is None:
            self._check()
            self._batch(version, [batch_line(change, version) for change in changes])
            return
        try:
            with Rtnetlink() as conversation:
                refused = conversation.send(messages, self._check)
        except OSError as error:
            raise FailedError(f"netlink: {len(changes)} changes: {error}") from error
        if refused is not None:
            position, reason = refused
            raise FailedError(f"netlink: {batch_line(changes[position], version)}: {reason}")

    def _batch(self, version: int, lines: Sequence[str]) -> None:
        code, _, errors = self.run([f"-{version}", "-batch", "-"], "\n".join(lines) + "\n")
        if code:
            failed = re.search(r"Command failed -:(\d+)", errors)
            line = lines[int(failed.group(1)) - 1] if failed else f"{len(lines)} lines"
            reason = _one_line(errors.split("Command failed")[0]) or f"exit code {code}"
            raise FailedError(f"ip -{version} -batch: {line}: {reason}")

    def _read_back(self, versions: Iterable[int], wanted: dict[str, str]) -> Snapshot:
        """As `snapshot`, but quicker where the table is just what was wanted: then the kernel's answer is compared as
        it comes. On any doubt `ip` reads, and what it says counts.
        """
        routes: dict[str, str] = {}
        rules = []
        for version in versions:
            expected = {prefix: way for prefix, way in wanted.items() if version_of(prefix) == version}
            routes.update(expected if self._holds(version, expected) else self.own_table(version).routes)
            if _OUR_RULE in self.rules(version):
                rules.append(version)
        return Snapshot(routes, tuple(rules))

    def _holds(self, version: int, expected: dict[str, str]) -> bool:
        encoder, known = Encoder(version), {}
        for arguments in set(expected.values()):
            form = encoder.essence(arguments)
            if form is None:
                return False
            known[form] = arguments
        try:
            with Rtnetlink() as conversation:
                bodies = conversation.dump(version, int(TABLE))
            return bodies is not None and translate(bodies, version, known) == expected
        except (OSError, ValueError):
            return False

    def marked(self) -> dict[int, bool]:
        """The IP versions in which something carries our marks, and whether the rule is there. Raises FailedError."""
        found = {}
        try:
            with Rtnetlink() as conversation:
                for version in self.versions:
                    rules = conversation.our_rules(version)
                    if rules or conversation.our_routes(version):
                        found[version] = bool(rules)
        except (OSError, ValueError) as error:
            raise FailedError(f"netlink: what is ours: {error}; withdraw") from error
        return found

    def withdraw(self) -> tuple[int, int]:
        """Rules first, so that the host is back at its default with the first step. Returns (routes, rules) removed.

        By table and protocol number and not by what we remember, over netlink alone: it needs no state and no `ip`, and
        takes any shape of route. Raises FailedError after having tried everything.
        """
        removed, trouble = [], []
        for what in ("rules", "routes"):
            removed.append(0)
            for version in (4, 6):
                try:
                    removed[-1] += _take_back(what, version)
                except (OSError, ValueError) as error:
                    if getattr(error, "errno", None) not in (errno.EAFNOSUPPORT, errno.EOPNOTSUPP):
                        trouble.append(f"IPv{version} {what}: {error}")
        if trouble:
            raise FailedError(f"withdraw: {'; '.join(trouble)}; run it again, then `ip rule del {RULE}`")
        rules, routes = removed
        return routes, rules


def _take_back(what: str, version: int) -> int:
    """Remove the rules or routes with our marks, as often as there are some. Returns how many there were.

    Raises OSError, ValueError.
    """
    most, refused = 0, None
    with Rtnetlink() as conversation:
        for _ in range(DELETE_PASSES):
            if what == "rules":
                count = len(conversation.our_rules(version))
                messages = [rule_message("del", version, place) for place in range(count)]
            else:
                messages = [deletion(body, place) for place, body in enumerate(conversation.our_routes(version))]
            if not messages:
                return most
            most = max(most, len(messages))
            refused = conversation.send(messages, through=True)
    raise OSError(f"{len(messages)} are left, {refused[1] if refused else 'somebody brings them back'}")


def of_versions(snapshot: Snapshot, versions: Sequence[int]) -> Snapshot:
    """The part of a snapshot that belongs to some IP versions."""
    routes = {prefix: arguments for prefix, arguments in snapshot.routes.items() if version_of(prefix) in versions}
    return Snapshot(routes, tuple(version for version in snapshot.rules if version in versions))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and a polite kill wait until the kernel is whole again; the children inherit this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Clock(NamedTuple):
    """Wall clock and time since boot in seconds, and which boot."""

    wall: float
    boottime: float
    boot_id: str

    @staticmethod
    def read() -> Clock:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return Clock(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), boot_id)


def expired(state: Document, clock: Clock) -> bool:
    """By the wall clock, or by the time since boot: a clock that was set back does not keep routes alive."""
    if clock.wall >= state["expires_at"]:
        return True
    return bool(clock.boot_id == state["boot_id"] and clock.boottime >= state["boottime_expires"])


# --- the state directory ---------------------------------------------------------------------------------------------


class DamagedError(Exception):
    """A file of the state directory is not what this program wrote."""


Identity = Tuple[int, int, int, int]  # of a file: device, inode, time of change in ns, size


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


class Store:
    """`lock`, `state.json` (what is applied), `intent.json` (while changing), `bundle-<digest>.json` (last good).

    Beside it, in `run_dir`, the mark: that a withdrawal was asked for, and why. Memory that needs no disk, until the
    next restart. `withdrawal_seen` in state and intent is the mark that stood when that run began; any other mark came
    later, and counts.

    `check` notices that another run has withdrawn the routes without waiting for the lock that this one holds: that one
    leaves a mark, an intent or a state, whichever can still be written, and this one knows its own. The mark counts
    from the beginning of the run, the files from when it has the lock.
    """

    def __init__(self, directory: str, run_dir: str = DEFAULT_RUN_DIR) -> None:
        self.directory = Path(directory)
        name = hashlib.sha256(os.fsencode(self.directory.absolute())).hexdigest()[:16]
        self._mark = Path(run_dir) / f"withdrawn-{name}.json"
        self._expected = self._identities()
        self.withdrawal_seen, _ = self.marked()

    @contextlib.contextmanager
    def locked(self, wait: float = LOCK_WAIT_S) -> Iterator[int]:
        """Yields the descriptor of the lock. Raises RefusedError (unusable directory) or FailedError (still busy)."""
        try:
            lock = self._open_lock()
        except OSError as error:
            raise RefusedError(f"{self.directory}: {error.strerror}; name another with --state-dir") from error
        try:
            give_up = time.monotonic() + wait
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > give_up:
                        problem = f"taken by another run for {wait:.0f} s; wait for it, or see `fuser` on it"
                        raise FailedError(f"{self.directory}/lock: {problem}") from None
                    time.sleep(0.02)
            found = self._identities()
            self._expected.update({name: found[name] for name in ("state.json", "intent.json")})
            yield lock
        finally:
            os.close(lock)

    def _open_lock(self) -> int:
        path, flags = str(self.directory / "lock"), os.O_NONBLOCK | os.O_CLOEXEC
        # Making what is there already waits for a disk that hangs.
        with contextlib.suppress(OSError):
            if stat.S_IMODE(self.directory.stat().st_mode) == 0o700:
                return os.open(path, os.O_RDWR | flags)
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if stat.S_IMODE(self.directory.stat().st_mode) != 0o700:
                self.directory.chmod(0o700)
            return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        except OSError:
            # A disk that takes no writes any more: whoever only reads can hold the lock as well.
            with contextlib.suppress(OSError):
                return os.open(path, os.O_RDONLY | flags)
            raise

    def write(self, name: str, content: bytes) -> None:
        """All or nothing, on the disk when it returns. Raises OSError."""
        self._expected[name] = _replace(self.directory / name, content, sync=True)
        self._sync()

    def _sync(self) -> None:
        handle = os.open(str(self.directory), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def save(self, name: str, document: Document) -> None:
        """A line with the sha256 of the rest, so that damage is seen, then the document. Raises OSError."""
        body = json.dumps(document).encode()
        self.write(name, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    def load(self, name: str) -> Document | None:
        """None when there is none. Raises DamagedError."""
        path = self.directory / name
        try:
            _, content = read_regular(str(path), MAX_STATE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DamagedError(f"{path}: {error.strerror}") from error
        checksum, _, body = content.partition(b"\n")
        if checksum.decode("ascii", "replace") != hashlib.sha256(body).hexdigest():
            raise DamagedError(f"{path}: its checksum does not match its content")
        document: Document = json.loads(body)
        if document["schema_version"] != SCHEMA_VERSION:
            raise DamagedError(f"{path}: written by another version of this program")
        return document

    def remove(self, name: str) -> None:
        """Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            (self.directory / name).unlink()
            self._expected[name] = None
            self._sync()

    def set_aside(self, name: str) -> None:
        """Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            (self.directory / name).replace(self.directory / f"{name}.damaged")
            self._expected[name] = None

    def keep_only(self, bundle: str) -> None:
        """Raises OSError."""
        for path in self.directory.glob("bundle-*.json"):
            if path.name != bundle:
                path.unlink()

    def _identities(self) -> dict[str, Identity | None]:
        """Which files lie there now; None is none."""
        found: dict[str, Identity | None] = {}
        for path in (self.directory / "state.json", self.directory / "intent.json", self._mark):
            try:
                found[path.name] = identity(path.stat())
            except OSError:
                found[path.name] = None
        return found

    def check(self) -> None:
        """Raises WithdrawnError."""
        found = self._identities()
        if any(self._expected[name] != there for name, there in found.items()):
            raise WithdrawnError("another run withdrew every route meanwhile")

    def mark(self, when: str, reason: str) -> bool:
        """Remember in /run that everything is withdrawn; whether that is possible."""
        content = json.dumps({"at": when, "reason": reason, "by": os.urandom(8).hex()}).encode()
        try:
            self._mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._expected[self._mark.name] = _replace(self._mark, content, sync=False)
        except OSError:
            return False
        return True

    def marked(self) -> tuple[str | None, Document]:
        """Which mark stands now, None without one, and what it says, as `withdrawn` in a state."""
        try:
            _, content = read_regular(str(self._mark), MAX_MARK_BYTES)
        except OSError:
            return None, {}
        said = {"at": "a time that is not known", "reason": "withdrawn"}
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(content)
            said = {"at": str(found["at"]), "reason": str(found["reason"])}
        return hashlib.sha256(content).hexdigest()[:16], said


def _replace(path: Path, content: bytes, sync: bool) -> Identity:
    """Raises OSError, and then leaves what was there before."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()  # a run that stands still may have it open, and would write into ours
        handle = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            written = identity(os.fstat(file.fileno()))
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return written


# --- operations ------------------------------------------------------------------------------------------------------


def load_state(store: Store, notes: list[str]) -> Document | None:
    """The state, or None when there is none or it was damaged (then it is set aside and noted)."""
    try:
        return store.load("state.json")
    except DamagedError as damage:
        done = "set aside as state.json.damaged"
        try:
            store.set_aside("state.json")
        except OSError as error:
            done = f"not set aside: {error.strerror}"
        notes.append(f"{damage}; {done}")
        return None


def repair(store: Store, kernel: Kernel, clock: Clock, notes: list[str]) -> None:
    """Finish what a killed run left: back to what stood before an apply, on to the end of a withdrawal.

    The kernel first; a disk that does not take the record of it leaves that to a later run.
    """
    try:
        intent = store.load("intent.json")
    except DamagedError as damage:
        kernel.withdraw()
        notes.append(f"{damage}; withdrew every route, set it aside")
        with contextlib.suppress(OSError):
            store.set_aside("intent.json")
        return
    if intent is None:
        return
    try:
        state = store.load("state.json")
    except DamagedError:
        state = None
    recorded = None
    if intent["operation"] == "withdraw":
        kernel.withdraw()
        if state is not None and state["withdrawn"] is None:
            recorded = withdrawn(state, clock, intent["reason"])
        notes.append("finished a withdrawal that was interrupted")
    elif state is not None and state["transaction"] == intent["transaction"]:
        pass  # it was committed; only the clearing up was cut off
    elif later_withdrawal(store, intent) is not None:
        kernel.withdraw()
        notes.append("found an interrupted apply and a withdrawal that came after it: withdrew every route")
    elif intent["boot_id"] == clock.boot_id:
        before = Snapshot(intent["before"]["routes"], tuple(intent["before"]["rules"]))
        notes.append("found an interrupted apply: " + restore(kernel, before))
    try:
        if recorded is not None:
            store.save("state.json", recorded)
        store.remove("intent.json")
    except OSError as error:
        notes.append(f"{store.directory}: {error.strerror}: the record of that is not written")


def later_withdrawal(store: Store, record: Document) -> str | None:
    """Why everything was withdrawn after a state or an intent was begun, where only /run remembers it, or None."""
    mark, said = store.marked()
    return None if mark in (None, record.get("withdrawal_seen")) else str(said["reason"])


def restore(kernel: Kernel, before: Snapshot) -> str:
    """Back to `before`, verified; when the kernel does not allow it, to nothing. Returns what was done, as text.

    Raises FailedError when not even withdrawing works.
    """
    try:
        kernel.move(kernel.snapshot(), before)
    except (FailedError, RefusedError) as error:
        kernel.withdraw()
        return f"the state before could not be restored ({error}), so every route was withdrawn"
    return f"the state before ({len(before.routes)} routes) is restored and verified"


def withdrawn(state: Document, clock: Clock, reason: str, *, forget_round: bool = False) -> Document:
    """Keeps round and creation time: what was refused as too old stays refused.

    With `forget_round` any round is new, of bundles that are created from now on; older ones stay refused.
    """
    out = dict(state, routes={}, refused={}, withdrawn={"at": format_instant(clock.wall), "reason": reason})
    return dict(out, round=0, created_at=0, created_after=int(clock.wall)) if forget_round else out


def check_newer(bundle: Bundle, state: Document | None, source: str) -> None:
    """Raises RefusedError for a replay or a late straggler: a bundle that is older than the last one applied or than
    the last `--forget-round`, or another one of the same round and creation time.
    """
    if state is None:
        return
    problem = ""
    for field in ("round", "created_at"):
        value, applied = getattr(bundle, field), state[field]
        if value != applied:
            if value < applied:
                problem = f"{field}: {format_instant(value)} is older than the applied {format_instant(applied)}"
            break
    else:
        if bundle.digest != state["bundle_digest"]:
            problem = f"digest: another bundle of {format_instant(bundle.created_at)} is the applied one"
    since = state.get("created_after")
    if since is not None and bundle.created_at <= since:
        problem = f"created_at: {format_instant(bundle.created_at)} is before the rounds were begun anew, just after"
        problem += f" {format_instant(since)}"
    if problem:
        raise RefusedError(f"{source}: {problem}; push the newest round", REPLAYED)


def read_file(path: str, limit: int) -> bytes:
    """Up to `limit` + 1 bytes of a regular file. Raises RefusedError."""
    try:
        return read_regular(path, limit)[1]
    except OSError as error:
        what = "name a bundle" if error.errno == errno.EINVAL else "name a bundle that this user can read"
        raise RefusedError(f"{path}: file: {error.strerror}; {what}") from error


def apply(
    path: str,
    edge: str,
    state_dir: str,
    allowed_signers: str | None = DEFAULT_ALLOWED_SIGNERS,
    run_dir: str = DEFAULT_RUN_DIR,
) -> Document:
    """Make table 201 hold the bundle's routes. Returns the report that `--json` prints.

    `allowed_signers` None takes the bundle on anybody's word; otherwise PATH.sig must be by one of that file's keys.
    Raises RefusedError (nothing was changed) and FailedError (the message says what state the host is in).
    """
    clock = Clock.read()
    store = Store(state_dir, run_dir)
    raw = read_file(path, MAX_BUNDLE_BYTES)
    if allowed_signers is not None:
        verify_signature(path, raw, allowed_signers)
    bundle = parse_bundle(raw, path, edge, clock.wall)
    with store.locked() as lock:
        kernel = Kernel(lock, store.check)
        notes: list[str] = []
        with uninterrupted():
            repair(store, kernel, clock, notes)
            state = load_state(store, notes)
            try:
                check_newer(bundle, state, path)
                plan, before = survey(kernel, bundle.routes)
            except RefusedError as error:
                if notes:
                    raise RefusedError(f"{error}; before that: {'; '.join(notes)}", error.exit_code) from error
                raise
            steps = commit(store, kernel, clock, bundle, plan, before, state)
    if allowed_signers is None:
        notes.append("UNSIGNED: whoever could write this bundle set these routes; no signature was checked")
    return _report("apply", bundle, plan, steps or (), changed=steps is not None, notes=notes)


def _report(
    command: str, bundle: Bundle, plan: Plan, steps: Iterable[Change], *, changed: bool, notes: list[str]
) -> Document:
    verbs = [step.verb for step in steps]
    return {
        "command": command,
        "changed": changed,
        "edge": bundle.edge,
        "round": format_instant(bundle.round),
        "digest": bundle.digest,
        "expires_at": format_instant(bundle.expires_at),
        "routes": len(plan.routes),
        "added": verbs.count("add"),
        "replaced": verbs.count("replace"),
        "removed": verbs.count("del"),
        "refused": [{"prefix": prefix, "reason": reason} for prefix, reason in plan.refused.items()],
        "notes": notes,
    }


def preview(path: str, edge: str, state_dir: str, allowed_signers: str | None = DEFAULT_ALLOWED_SIGNERS) -> Document:
    """What `apply` would do now, changing nothing: its report, and the routes `before` and `after` it.

    Raises what `apply` raises before it changes anything.
    """
    clock = Clock.read()
    raw = read_file(path, MAX_BUNDLE_BYTES)
    if allowed_signers is not None:
        verify_signature(path, raw, allowed_signers)
    bundle = parse_bundle(raw, path, edge, clock.wall)
    store = Store(state_dir)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(store.locked()) if store.directory.is_dir() else None
        try:
            state = store.load("state.json")
        except DamagedError as damage:
            notes.append(f"{damage}; would be set aside")
            state = None
        if (store.directory / "intent.json").exists():
            notes.append("a run was interrupted; its repair would come first")
        check_newer(bundle, state, path)
        plan, before = survey(Kernel(lock), bundle.routes)
    record = {"bundle_digest": bundle.digest, "routes": plan.routes, "refused": plan.refused, "withdrawn": None}
    recorded = state is not None and all(state[key] == value for key, value in record.items())
    changed = not recorded or before != with_rules(plan.routes) or bool(notes)
    steps = difference(before.routes, plan.routes)
    report = _report("preview", bundle, plan, steps, changed=changed, notes=notes)
    return dict(report, before=before.routes, after=plan.routes)


def survey(kernel: Kernel, destinations: Sequence[Destination]) -> tuple[Plan, Snapshot]:
    """What a bundle's routes mean on this host, and what is ours now. Raises RefusedError when the host is not fit."""
    needed = {destination.prefix[0] for destination in destinations}
    own: dict[str, str] = {}
    with_rule: list[int] = []
    main: dict[int, Index] = {}
    local: dict[int, Index] = {}
    for version in kernel.versions:
        table, rules = kernel.own_table(version), kernel.rules(version)
        own.update(table.routes)
        if _OUR_RULE in rules:
            with_rule.append(version)
        if version not in needed:
            continue
        if table.foreign:
            problem = f"`{_one_line(table.foreign[0])}` is not Springtide's"
            raise RefusedError(f"`ip -{version} route show table {TABLE}`: {problem}; move it to another table")
        unfit = rule_problem(rules, version)
        if unfit:
            raise RefusedError(unfit)
        main[version], local[version] = kernel.index(version, MAIN_TABLE), kernel.index(version, LOCAL_TABLE)
    return plan_routes(destinations, main, local), Snapshot(own, tuple(with_rule))


def stale(kernel: Kernel) -> bool:
    """Whether a copy in the kernel, whichever run wrote it, is not what the host's routing of this moment means."""
    held = kernel.snapshot().routes
    copies = (Destination(text, parse_prefix(text), int(_WINDOW.findall(way)[-1])) for text, way in held.items())
    try:
        return survey(kernel, list(copies))[0].routes != held
    except RefusedError:
        return True


def bundle_name(digest: str) -> str:
    """The file of the state directory that holds the last good bundle."""
    return f"bundle-{digest[7:23]}.json"


def commit(
    store: Store,
    kernel: Kernel,
    clock: Clock,
    bundle: Bundle,
    plan: Plan,
    before: Snapshot,
    state: Document | None,
) -> list[Change] | None:
    """Intent, kernel, state: in this order, undone as a whole. Returns the steps, or None when nothing changed."""
    wanted = with_rules(plan.routes)
    name = bundle_name(bundle.digest)
    boottime_expires = clock.boottime + (bundle.expires_at - clock.wall)
    if state is not None and (state["bundle_digest"], state["boot_id"]) == (bundle.digest, clock.boot_id):
        # A clock that was set back since gives the same bundle no longer life.
        boottime_expires = min(boottime_expires, state["boottime_expires"])
    transaction = os.urandom(8).hex()
    claim = {
        "schema_version": SCHEMA_VERSION,
        "transaction": transaction,
        "edge": bundle.edge,
        "pop": bundle.pop,
        "round": bundle.round,
        "created_at": bundle.created_at,
        "expires_at": bundle.expires_at,
        "policy_version": bundle.policy_version,
        "bundle": name,
        "bundle_digest": bundle.digest,
        "applied_at": int(clock.wall),
        "boot_id": clock.boot_id,
        "boottime_expires": boottime_expires,
        "created_after": None if state is None else state.get("created_after"),
        "withdrawal_seen": store.withdrawal_seen,
        "withdrawn": None,
    }
    new_state = dict(claim, routes=plan.routes, refused=plan.refused)
    same = ("bundle_digest", "routes", "refused", "withdrawn", "withdrawal_seen")
    if before == wanted and state is not None and all(state.get(key) == new_state[key] for key in same):
        return None
    before_it = {"routes": before.routes, "rules": list(before.rules)}
    intent = dict(claim, operation="apply", before=before_it)
    store.check()
    try:
        store.write(name, bundle.raw)
        store.save("intent.json", intent)
    except OSError as error:
        with contextlib.suppress(OSError):
            store.remove("intent.json")
        what = f"{store.directory}: {error.strerror}; nothing was changed"
        alive = state is not None and state["withdrawn"] is None and state["expires_at"] <= bundle.expires_at
        if alive and before == wanted:
            raise UnrecordedError(f"{what}, the routes are already this bundle's: make room, then again") from error
        raise FailedError(f"{what}: make room, then again") from error
    try:
        steps = kernel.move(before, wanted)
        store.save("state.json", new_state)
        store.check()
    except WithdrawnError as error:
        reason = later_withdrawal(store, claim) or "withdrawn while it was applied"
        _withdraw(store, kernel, clock, reason, [], "apply")
        raise WithdrawnError(f"{error}, so this one took back its own too; apply again") from error
    except (FailedError, OSError) as error:
        done = restore(kernel, before)
        with contextlib.suppress(OSError):
            store.remove("intent.json")
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise FailedError(f"apply: {problem}; {done}; mend the cause and apply again") from error
    # Committed. What fails from here on is clearing up, which the next run does.
    with contextlib.suppress(OSError):
        store.remove("intent.json")
        store.keep_only(name)
    return steps


def withdraw(
    state_dir: str,
    reason: str = "withdrawn by command",
    run_dir: str = DEFAULT_RUN_DIR,
    *,
    forget_round: bool = False,
) -> Document:
    """Every route and rule of ours out of the kernel. The red button: works without state, disk, `ip` or lock.

    Raises FailedError when the kernel refuses, or when only the record of it could not be written.
    """
    clock = Clock.read()
    store = Store(state_dir, run_dir)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        lock = lock_for_a_while(stack, store, notes)
        with uninterrupted():
            return _withdraw(
                store, Kernel(lock), clock, reason, notes, "withdraw", held=lock is not None, forget_round=forget_round
            )


def lock_for_a_while(stack: contextlib.ExitStack, store: Store, notes: list[str]) -> int | None:
    """The lock, or None where it is not to be had soon: taking back does not depend on it."""
    try:
        return stack.enter_context(store.locked(SHORT_WAIT_S))
    except (RefusedError, FailedError) as error:
        notes.append(f"went on without the lock: {error}")
        return None


def _withdraw(
    store: Store,
    kernel: Kernel,
    clock: Clock,
    reason: str,
    notes: list[str],
    command: str,
    *,
    held: bool = True,
    forget_round: bool = False,
) -> Document:
    """The kernel comes before the disk, which may hang: a run that is killed between them has left the mark, or rules
    that are gone, for the next one. Without the lock (`held`) the intent stays, for whoever holds it and for the next
    run. Raises FailedError.
    """
    remembered = store.mark(format_instant(clock.wall), reason) if not held or command == "withdraw" else None
    try:
        routes, rules = kernel.withdraw()
    finally:
        intent = {"schema_version": SCHEMA_VERSION, "operation": "withdraw", "reason": reason}
        with contextlib.suppress(OSError):  # without a disk the routes are gone all the same
            store.save("intent.json", intent)
    if not held:  # where there is no mark, only the intent tells the run that holds the lock
        routes, rules = map(max, (routes, rules), kernel.withdraw())
    changed = bool(routes or rules)
    try:
        state = load_state(store, notes)
        if forget_round and state is None:
            notes.append("no state, so no round to forget")
        if state is not None and (state["withdrawn"] is None or forget_round):
            _record(store, withdrawn(state, clock, reason, forget_round=forget_round))
            changed = True
        if held:
            store.remove("intent.json")
    except OSError as error:
        if not store.directory.is_dir():
            notes.append("no state directory, nothing to record")
        else:
            if remembered is None:
                remembered = store.mark(format_instant(clock.wall), reason)
            memory = "remembered until the next restart" if remembered else "and not in the run directory either"
            problem = f"{routes} routes and {rules} rules are withdrawn, but the record is not written ({memory})"
            raise FailedError(f"{store.directory}: {error.strerror}; {problem}: make room, then again") from error
    return {"command": command, "changed": changed, "removed": routes, "reason": reason, "notes": notes}


def _record(store: Store, state: Document) -> None:
    """A withdrawn state. On a full disk the last good bundle makes room, nobody needs it any more. Raises OSError."""
    try:
        store.save("state.json", state)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        store.keep_only("")
        store.save("state.json", state)


TAKEN_AWAY = "was taken away, by hand or by a withdrawal that could not be recorded"


def overdue(store: Store, kernel: Kernel, state: Document | None, clock: Clock) -> str | None:
    """Why every route of ours must go now, or None. `state` may be the intent of a run that is at work."""
    if state is None or state["withdrawn"] is not None:
        if not kernel.marked():
            return None
        return "no state says until when these routes hold" if state is None else "left over from a withdrawal"
    reason = later_withdrawal(store, state)
    if reason is not None:
        return reason
    if expired(state, clock):
        return f"expired at {format_instant(state['expires_at'])}"
    if clock.boot_id != state["boot_id"]:
        if clock.wall < state["applied_at"] - CLOCK_TOLERANCE_S:
            return "since the restart the clock is before the last apply, so it cannot tell when these routes expire"
        return None
    there = kernel.marked()
    gone = [version for version in with_rules(state.get("routes", {})).rules if not there.get(version)]
    if gone:
        return f"the IPv{gone[0]} rule {TAKEN_AWAY}"
    return None


def claim_of(store: Store, clock: Clock) -> Document | None:
    """What says, to a run without the lock, until when routes of ours may stand: the intent of an apply that may be at
    work, else the state. None when nothing does.
    """
    try:
        intent = store.load("intent.json")
        if intent is None:
            return store.load("state.json")
    except DamagedError:
        return None
    alive = intent["operation"] == "apply" and intent["boot_id"] == clock.boot_id
    return intent if alive and "expires_at" in intent else None


def expire(state_dir: str, run_dir: str = DEFAULT_RUN_DIR) -> Document:
    """Withdraw when the applied bundle has expired, or when it can't be known whether it has; else change nothing.

    Raises FailedError.
    """
    clock = Clock.read()
    store = Store(state_dir, run_dir)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        lock = lock_for_a_while(stack, store, notes)
        kernel = Kernel(lock, store.check)
        with uninterrupted():
            if lock is None:
                reason = overdue(store, kernel, claim_of(store, clock), clock)
            else:
                repair(store, kernel, clock, notes)
                reason = overdue(store, kernel, load_state(store, notes), clock)
            if reason is not None:
                return _withdraw(store, kernel, clock, reason, notes, "expire", held=lock is not None)
    changed = bool(notes) and lock is not None
    return {"command": "expire", "changed": changed, "removed": 0, "reason": None, "notes": notes}


def follow(state_dir: str, run_dir: str = DEFAULT_RUN_DIR) -> Document:
    """Make table 201 what the last good bundle means by the routing of this moment; withdraw it once it has expired.

    A copy that cannot be brought up to date is not left standing: then every route goes.
    Raises RefusedError and FailedError.
    """
    clock = Clock.read()
    store = Store(state_dir, run_dir)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        lock = lock_for_a_while(stack, store, notes)
        kernel = Kernel(lock, store.check)
        if lock is None:
            with uninterrupted():
                reason = overdue(store, kernel, claim_of(store, clock), clock)
                if reason is not None:
                    return _withdraw(store, kernel, clock, reason, notes, "follow", held=False)
            notes.clear()
            try:
                kernel = Kernel(stack.enter_context(store.locked()), store.check)
            except (RefusedError, FailedError) as error:
                # Whoever holds it may stand still for ever, and the copies with it.
                if not (stale(kernel) if isinstance(error, FailedError) else kernel.marked()):
                    raise
                return _withdraw(store, kernel, clock, f"could not follow: {error}", notes, "follow", held=False)
        with uninterrupted():
            return _follow(store, kernel, clock, notes)


def _follow(store: Store, kernel: Kernel, clock: Clock, notes: list[str]) -> Document:
    repair(store, kernel, clock, notes)
    state = load_state(store, notes)
    reason = overdue(store, kernel, state, clock)
    if reason is not None:
        return _withdraw(store, kernel, clock, reason, notes, "follow")
    steps: list[Change] | None = None
    plan = Plan({}, {})
    if state is not None and state["withdrawn"] is None:
        try:
            bundle = last_good(store, state)
            # The routing may change again between reading it and copying it: a second look, then no third.
            try:
                steps, plan = _copy_again(store, kernel, clock, bundle, state)
            except WithdrawnError:
                raise
            except FailedError as error:
                notes.append(str(error))
                steps, plan = _copy_again(store, kernel, clock, bundle, state)
        except WithdrawnError:
            raise
        except (RefusedError, FailedError, DamagedError) as error:
            return _withdraw(store, kernel, clock, f"could not follow: {error}", notes, "follow")
    verbs = [step.verb for step in steps or ()]
    return {
        "command": "follow",
        "changed": steps is not None or bool(notes),
        "added": verbs.count("add"),
        "replaced": verbs.count("replace"),
        "removed": verbs.count("del"),
        "reason": None,
        "next_look_s": None if math.isinf(plan.lasts) else plan.lasts,
        "refused": [{"prefix": prefix, "reason": reason} for prefix, reason in plan.refused.items()],
        "notes": notes,
    }


def _copy_again(
    store: Store, kernel: Kernel, clock: Clock, bundle: Bundle, state: Document
) -> tuple[list[Change] | None, Plan]:
    plan, before = survey(kernel, bundle.routes)
    return commit(store, kernel, clock, bundle, plan, before, state), plan


def last_good(store: Store, state: Document) -> Bundle:
    """The bundle that is applied, from the state directory, which only root can write. Raises DamagedError.

    Its times were judged when it came; how long it still holds is for `expired` to say.
    """
    path = store.directory / bundle_name(state["bundle_digest"])
    try:
        _, raw = read_regular(str(path), MAX_BUNDLE_BYTES)
        bundle = parse_bundle(raw, str(path), state["edge"], state["created_at"])
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from error
    except RefusedError as error:
        raise DamagedError(str(error)) from error
    if bundle.digest != state["bundle_digest"]:
        raise DamagedError(f"{path}: is not the bundle that was applied")
    return bundle


def watch(
    state_dir: str,
    interval: float,
    say: Callable[[Document], None],
    complain: Callable[[str], None],
    run_dir: str = DEFAULT_RUN_DIR,
) -> NoReturn:
    """`follow` at the start, after each change of the host's routing, when a route of the host's runs out, and every
    `interval` seconds; never returns.

    A pass that fails is said, and tried again at the next event or after a second, then two, then four. The first
    raises as `follow` does.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as events:
        events.bind((0, 0))  # without an address of its own a socket misses what the kernel itself says
        for group in WATCH_GROUPS:
            events.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
        report = follow(state_dir, run_dir)
        say(report)
        pause = 0.0
        while True:
            await_change(events, pause or min(interval, report.get("next_look_s") or interval))
            try:
                report = follow(state_dir, run_dir)
            except (RefusedError, FailedError, OSError) as error:
                complain(f"watch: {_one_line(str(error))}; trying again")
                pause = min(interval, WATCH_INTERVAL_S, 2 * pause or 1.0)
                continue
            pause = 0.0
            if report["changed"]:
                say(report)


def await_change(events: socket.socket, longest: float) -> None:
    """Return when the routing has changed and then been quiet, or changed for a while; or after `longest` seconds.

    What the messages say does not matter: the tables are read anew, so one that was lost costs nothing.
    """
    end, wait = None, longest
    while True:
        events.settimeout(wait)
        try:
            events.recv(65536)
        except socket.timeout:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
        now = time.monotonic()
        end = now + BURST_S if end is None else end
        wait = min(QUIET_S, end - now)
        if wait <= 0:
            return


def status(state_dir: str, run_dir: str = DEFAULT_RUN_DIR) -> Document:
    """What is applied, and how the kernel differs from what that means by the host's routing of this moment.

    Changes nothing. Raises RefusedError and FailedError.
    """
    clock = Clock.read()
    store = Store(state_dir, run_dir)
    notes: list[str] = []
    with store.locked() as lock:
        kernel = Kernel(lock)
        actual = kernel.snapshot()
        try:
            state = store.load("state.json")
        except DamagedError as damage:
            notes.append(f"{damage}; `expire` or `withdraw` clears it")
            state = None
        if (store.directory / "intent.json").exists():
            notes.append("a run was interrupted; `expire` or the next `apply` repairs it")
        if state is not None and state["withdrawn"] is None and later_withdrawal(store, state) is not None:
            state = dict(state, routes={}, refused={}, withdrawn=store.marked()[1])
        wanted = Snapshot({}, ())
        why = "" if state is None or state["withdrawn"] is None else str(state["withdrawn"]["reason"])
        if why.endswith(TAKEN_AWAY) and state is not None and not expired(state, clock):
            notes.append("perhaps nobody wanted that withdrawal; the next `apply` brings the routes back")
        if state is not None and state["withdrawn"] is None:
            wanted = with_rules(state["routes"])
            try:
                plan, _ = survey(kernel, last_good(store, state).routes)
                wanted = with_rules(plan.routes)
                state = dict(state, refused=plan.refused)
            except (RefusedError, DamagedError) as error:
                notes.append(f"{error}: the copies cannot follow; `follow` or `watch` withdraws them")
    report: Document = {"command": "status", "applied": False}
    if state is not None:
        report = {
            "command": "status",
            "applied": state["withdrawn"] is None,
            "edge": state["edge"],
            "pop": state["pop"],
            "round": format_instant(state["round"]),
            "policy_version": state["policy_version"],
            "digest": state["bundle_digest"],
            "applied_at": format_instant(state["applied_at"]),
            "expires_at": format_instant(state["expires_at"]),
            "expired": expired(state, clock),
            "withdrawn": state["withdrawn"],
            "refused": [{"prefix": prefix, "reason": reason} for prefix, reason in state["refused"].items()],
        }
    drift = [
        {"prefix": step.prefix, "wanted": wanted.routes.get(step.prefix), "found": actual.routes.get(step.prefix)}
        for step in difference(actual.routes, wanted.routes)
    ]
    for version in sorted(set(actual.rules) ^ set(wanted.rules)):
        found, missing = (RULE, None) if version in actual.rules else (None, RULE)
        drift.append({"prefix": f"IPv{version} rule", "wanted": missing, "found": found})
    overdue = bool(report.get("expired")) and bool(report["applied"])
    report.update(routes=len(actual.routes), drift=drift, notes=notes, in_sync=not (drift or notes or overdue))
    return report


# --- command line ----------------------------------------------------------------------------------------------------

_EPILOG = """examples:
  springtide_routes.py apply /etc/springtide/ams-1.json    routes of the bundle into table 201
  springtide_routes.py status                              what is applied, until when, and drift
  springtide_routes.py expire                              from a timer: withdraw once the bundle has expired
  springtide_routes.py watch                               a service: copies follow the host's own routing
  springtide_routes.py follow                              from a timer: one pass of watch
  springtide_routes.py withdraw                            every route out, the host as it was
  springtide_routes.py withdraw --forget-round             and new rounds are taken again, with the clock set right

exit codes: 0 done (or nothing to do); 1 failed, and the message says what state the host is in; 2 refused, nothing was
changed (bad bundle, wrong usage, a host that is not fit, no CAP_NET_ADMIN); 3 not whole: apply refused some
destinations and serves the others, or status found drift, damage, an overdue expiry or that somebody deleted our rule.
A bundle that must not be used, nothing changed: 10 not signed, 11 signed by a key that is not allowed, 12 altered, 13
another edge's, 14 older than the last applied one, or another one of the same round and creation time, 15 expired.
"""


def parser() -> argparse.ArgumentParser:
    # As wide as the epilog. Without a width argparse asks for the terminal's at every option, and for that it imports
    # shutil with every compressor of Python.
    form = functools.partial(argparse.RawDescriptionHelpFormatter, width=118)
    common = argparse.ArgumentParser(add_help=False, formatter_class=form)
    common.add_argument("--json", action="store_true", help="one JSON object on standard output")
    common.add_argument("--state-dir", default=DEFAULT_STATE_DIR, metavar="DIR", help=f"default {DEFAULT_STATE_DIR}")
    common.add_argument(
        "--run-dir",
        default=DEFAULT_RUN_DIR,
        metavar="DIR",
        help=f"remembers a withdrawal that the state directory does not take; default {DEFAULT_RUN_DIR}",
    )
    common.add_argument("--edge", metavar="NAME", help=f"this edge's name; default: the content of {DEFAULT_EDGE_FILE}")
    top = argparse.ArgumentParser(
        prog="springtide_routes.py",
        description="Springtide's routes on this edge: table 201, proto 201, rule pref 1000. Nothing else is touched.",
        epilog=_EPILOG,
        formatter_class=form,
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    apply_command = commands.add_parser(
        "apply", parents=[common], formatter_class=form, help="routes of a bundle into the kernel"
    )
    apply_command.add_argument("bundle", metavar="BUNDLE", help="the bundle's file; its signature is BUNDLE.sig")
    apply_command.add_argument(
        "--allowed-signers",
        default=DEFAULT_ALLOWED_SIGNERS,
        metavar="FILE",
        help=f"whose signatures count, as in ssh-keygen(1); default {DEFAULT_ALLOWED_SIGNERS}",
    )
    apply_command.add_argument("--unsigned", action="store_true", help="take a bundle whose origin nobody vouches for")
    commands.add_parser("status", parents=[common], formatter_class=form, help="what is applied, until when, and drift")
    withdraw_command = commands.add_parser(
        "withdraw", parents=[common], formatter_class=form, help="every route and rule of Springtide out of the kernel"
    )
    withdraw_command.add_argument(
        "--forget-round",
        action="store_true",
        help="take any round again, of bundles created from now on: for a round that was applied under a wrong clock",
    )
    commands.add_parser(
        "expire", parents=[common], formatter_class=form, help="withdraw if the applied bundle has expired"
    )
    commands.add_parser(
        "follow",
        parents=[common],
        formatter_class=form,
        help="expire, and copy next hops again that have changed since",
    )
    watch_command = commands.add_parser(
        "watch", parents=[common], formatter_class=form, help="follow after each change of the host's routing"
    )
    watch_command.add_argument(
        "--interval",
        type=int,
        choices=range(1, 3601),
        default=WATCH_INTERVAL_S,
        metavar="S",
        help=f"seconds after which it looks also without a change, 1 to 3600; default {WATCH_INTERVAL_S}",
    )
    return top


def edge_name(given: str | None) -> str:
    """Raises RefusedError."""
    name, source = given, "--edge"
    if name is None:
        source = DEFAULT_EDGE_FILE
        try:
            name = read_regular(DEFAULT_EDGE_FILE, MAX_EDGE_FILE_BYTES)[1].decode("utf-8").strip()
        except (OSError, ValueError) as error:
            problem = error.strerror if isinstance(error, OSError) else "is not text"
            raise RefusedError(f"{source}: edge: {problem}; write this edge's name there, or use --edge") from error
    if not _NAME.fullmatch(name):
        raise RefusedError(f"{source}: edge: {_printable(name)} is not a name of an edge; use the one in fleet.yaml")
    return name


def require_net_admin() -> None:
    """Raises RefusedError."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if match is None or not int(match.group(1), 16) >> CAP_NET_ADMIN & 1:
        raise RefusedError("springtide_routes.py: changing routes takes CAP_NET_ADMIN; run it as root")


def exit_code(report: Document) -> int:
    if report["command"] == "status":
        return DONE if report["in_sync"] else PARTIAL
    return PARTIAL if report.get("refused") else DONE


def render(report: Document) -> str:
    """The report as people read it."""
    lines = []
    if report["command"] == "apply":
        counts = ", ".join(f"{report[key]} {key}" for key in ("added", "replaced", "removed"))
        verb = "applied" if report["changed"] else "unchanged"
        lines.append(f"{verb}: {report['edge']}, round {report['round']}, until {report['expires_at']}")
        lines.append(f"routes: {report['routes']} ({counts})")
    elif report["command"] == "status":
        if report["applied"]:
            until = "EXPIRED" if report["expired"] else "until"
            lines.append(f"applied: {report['edge']}, round {report['round']}, {until} {report['expires_at']}")
        elif report.get("withdrawn"):
            lines.append(f"withdrawn at {report['withdrawn']['at']}: {report['withdrawn']['reason']}")
        else:
            lines.append("nothing applied")
        lines.append(f"routes: {report['routes']} in the kernel, {'in sync' if report['in_sync'] else 'NOT in sync'}")
        lines += [f"drift: {d['prefix']}: wanted {d['wanted']}, found {d['found']}" for d in report["drift"]]
    elif report["command"] == "follow" and report["reason"] is None:
        counts = ", ".join(f"{report[key]} {key}" for key in ("added", "replaced", "removed"))
        lines.append(f"follow: {counts if report['changed'] else 'unchanged'}")
    else:
        why = f" ({report['reason']})" if report["reason"] else ""
        lines.append(f"{report['command']}: {report['removed']} routes removed{why}")
    lines += [f"refused: {refused['prefix']}: {refused['reason']}" for refused in report.get("refused", [])]
    lines += [f"note: {note}" for note in report["notes"]]
    return "\n".join(lines)


def shown(report: Document, as_json: bool) -> str:
    return json.dumps(dict(report, exit_code=exit_code(report))) if as_json else render(report)


def open_standard_streams() -> None:
    """Whoever starts us may have closed them; nothing of ours may come to lie there."""
    for handle in (0, 1, 2):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free one


def put(text: str, stream: TextIO | None) -> None:
    """A line for whoever still reads. A terminal or pipe that is gone keeps nothing from being done."""
    if stream is None:
        return
    try:
        print(text, file=stream, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def complain(text: str) -> None:
    put(f"springtide_routes.py: {text}", sys.stderr)


def run(options: argparse.Namespace) -> Document:
    """Raises RefusedError, FailedError, OSError."""
    places = (options.state_dir, options.run_dir)
    if options.command == "apply":
        signers = None if options.unsigned else options.allowed_signers
        if signers is None:
            complain("WARNING: --unsigned: no signature is checked")
        return apply(options.bundle, edge_name(options.edge), options.state_dir, signers, options.run_dir)
    if options.command == "withdraw":
        return withdraw(options.state_dir, run_dir=options.run_dir, forget_round=options.forget_round)
    if options.command == "watch":
        say = functools.partial(show, as_json=options.json)
        watch(options.state_dir, options.interval, say, complain, options.run_dir)
    return {"status": status, "follow": follow, "expire": expire}[options.command](*places)


def show(report: Document, as_json: bool) -> None:
    put(shown(report, as_json), sys.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    gc.set_threshold(200_000)  # a bundle is so many small objects that all stay: none of them is garbage
    open_standard_streams()
    options = parser().parse_args(arguments)
    try:
        require_net_admin()
        report = run(options)
    except (RefusedError, FailedError) as error:
        put(str(error), sys.stderr)
        if options.json:
            failure = {"command": options.command, "error": str(error), "exit_code": error.exit_code}
            put(json.dumps(failure), sys.stdout)
        return error.exit_code
    except KeyboardInterrupt:
        complain("interrupted, after finishing what it had begun; see `status`")
        return FAILED
    except OSError as error:
        put(f"{error.filename or options.state_dir}: {error.strerror}; run `status`, then again", sys.stderr)
        return FAILED
    show(report, options.json)
    return exit_code(report)


if __name__ == "__main__":
    sys.exit(main())
