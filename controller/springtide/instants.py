"""Instants as Springtide writes them, and rounds: instants that are multiples of the policy's interval.

Standard library, and relative imports: Ansible's plugins have a link to it.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from .errors import InputError, Problem

# As users write how long ago: -90m, -6h, -2d.
AGO = re.compile(r"-(\d{1,6})([mhd])", re.ASCII)
UNIT_S = {"m": 60, "h": 3600, "d": 86_400}
FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Clocks synchronised by NTP agree within a second; what is further ahead comes from a wrong clock.
CLOCK_TOLERANCE_S = 60
# So far ahead of an edge's clock may a bundle be made that it takes (core/src/check.rs).
EDGE_TOLERANCE_S = 300


def now() -> int:
    """The controller's wall clock, seconds since the epoch: the one place that reads it."""
    return int(time.time())


def show(unix_s: int) -> str:
    """Seconds since the epoch as 2026-01-02T03:05:00Z."""
    return datetime.fromtimestamp(unix_s, UTC).strftime(FORMAT)


def when(unix_s: int | None) -> str:
    """The same; None is never."""
    return "never" if unix_s is None else show(unix_s)


def parse(text: str) -> int:
    """2026-01-02T03:05:00Z as seconds since the epoch. Raises ValueError for any other form."""
    moment = datetime.strptime(text, FORMAT).replace(tzinfo=UTC)
    unix_s = int(moment.timestamp())
    if show(unix_s) != text:
        raise ValueError(f"{text!r} is not an instant like 2026-01-02T03:05:00Z")
    return unix_s


def latest_round(now_unix_s: int, interval_s: int) -> int:
    """The newest round whose span [T - interval, T) has closed."""
    return now_unix_s // interval_s * interval_s


def parse_round(text: str, interval_s: int, option: str = "--round") -> int:
    """A round given by the user with this option: an instant, or the round of so long ago.

    Raises InputError for neither, and for no multiple of the interval.
    """
    if ago := AGO.fullmatch(text):
        moment = latest_round(now() - int(ago[1]) * UNIT_S[ago[2]], interval_s)
        if moment < interval_s:
            raise InputError([Problem(option, "round", f"{text} is before 1970", "give a later one")])
        return moment
    try:
        unix_s = parse(text)
    except ValueError:
        fix = "write it as 2026-01-02T03:05:00Z, or as -90m, -6h or -2d"
        raise InputError([Problem(option, "round", f"{text!r} is not an instant", fix)]) from None
    if unix_s < 0:
        raise InputError([Problem(option, "round", f"{text} is before 1970", "give a later one")])
    if unix_s % interval_s or unix_s < interval_s:
        before = max(interval_s, unix_s // interval_s * interval_s)
        message = f"{text} is not a multiple of round.interval_s = {interval_s}"
        fix = f"the nearest rounds are {show(before)} and {show(before + interval_s)}"
        raise InputError([Problem(option, "round", message, fix)])
    return unix_s
