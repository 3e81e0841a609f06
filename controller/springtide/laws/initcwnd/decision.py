"""One decision on a pair's initial window, as people and bundles read it."""

from __future__ import annotations

from enum import StrEnum
from types import SimpleNamespace

Pair = tuple[str, str, int]


class Action(StrEnum):
    NONE = "none"
    SET = "set"
    WITHDRAW = "withdraw"


class Decision(SimpleNamespace):
    """One row of path_decisions, its columns as attributes (rows.WINDOWS.rows names them); instants in seconds since
    the epoch, windows in segments, None is none."""

    @property
    def pair(self) -> Pair:
        return self.src_pop, self.dst_pop, self.ip_version


def is_left_out(decision: Decision, expires_unix_s: int) -> bool:
    """Whether a bundle with this expiry leaves the decision out, which would expire before it."""
    if decision.action is not Action.SET or decision.reason == "override":
        return False
    return decision.expires_at is None or decision.expires_at < expires_unix_s
