"""Whether clocks can be trusted: rounds, expiries and the order of bundles are wall-clock time."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from springtide.doctor.finding import Finding, advice, fine, fix, unknown
from springtide.errors import StoreError
from springtide.store import Store

# linux/timex.h
TIME_ERROR, STA_UNSYNC = 5, 0x40
# A bundle's times are whole seconds, and a round waits for its samples for minutes.
TOLERANCE_S = 2.0


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


@dataclass(frozen=True)
class Clock:
    """As adjtimex(2) reports it; `error` when the call fails."""

    synchronised: bool = True
    most_off_s: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Offset:
    """Seconds that another clock is ahead of ours, within `uncertain_s`."""

    whose: str
    ahead_s: float
    uncertain_s: float = 0.0


def gather() -> Clock:
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        return Clock(error=os.strerror(ctypes.get_errno()))
    return Clock(state != TIME_ERROR and not timex.status & STA_UNSYNC, timex.maxerror / 1e6)


def server_offset(store: Store) -> Offset | None:
    """The server's clock against ours; None when it cannot be read (a server too old)."""
    before = time.time()
    try:
        at = store.query("select toUnixTimestamp64Milli(now64(3)) as at")[0]["at"] / 1000
    except StoreError:
        return None
    after = time.time()
    return Offset(store.url, at - (before + after) / 2, (after - before) / 2)


def check(seen: Clock) -> Iterator[Finding]:
    where = "adjtimex"
    if seen.error:
        yield unknown("clock", where, f"fails: {seen.error}")
    elif not seen.synchronised:
        todo = "run chrony or systemd-timesyncd (`timedatectl set-ntp true`), and wait until it is synchronised"
        yield fix("clock", where, "the kernel's clock is not synchronised", todo)
    elif seen.most_off_s > TOLERANCE_S:
        todo = "see `chronyc tracking` or `timedatectl timesync-status`"
        yield advice("clock", where, f"may be off by {seen.most_off_s:.1f} s", todo)
    else:
        yield fine("clock", where, f"synchronised, off by at most {seen.most_off_s:.3f} s")


def check_offsets(seen: Sequence[Offset]) -> Iterator[Finding]:
    for other in seen:
        if abs(other.ahead_s) - other.uncertain_s > TOLERANCE_S:
            way = "ahead of" if other.ahead_s > 0 else "behind"
            what = f"its clock is {abs(other.ahead_s):.1f} s {way} this one"
            yield fix("clock", other.whose, what, "synchronise both by NTP")
        else:
            yield fine("clock", other.whose, f"agrees within {max(abs(other.ahead_s), other.uncertain_s):.1f} s")
