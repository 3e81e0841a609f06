"""The law of starts over rounds: rows that it is given, and what it makes of them round by round."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from springtide.laws.start.evidence import GROUPED, OBSERVED
from springtide.laws.start.law import PREVIOUS, STARTS, UNSEEN, decide
from springtide.policy import Policy

ROUND, STEP = 1_767_312_000, 300
MSS = 1448
Rows = NDArray[np.void]
NONE = np.zeros(0, GROUPED)
# Rules that `python -m bench rules` leaves out, to see which tests notice it.
WITHOUT = os.environ.get("SPRINGTIDE_WITHOUT_RULES", "").split()
# Each by its name: springtide-core has them.
Reason: Any = SimpleNamespace(**{name.upper(): name for name in STARTS.reasons})


def policy(**start: Any) -> Policy:
    return Policy.model_validate({"start": start})


def row(name: str = "p", **values: Any) -> Rows:
    """An OBSERVED row of a unit that nothing is known of but these."""
    seen = np.full(1, UNSEEN)
    seen["src_pop"], seen["destination"], seen["ip_version"] = b"ams", name.encode(), 4
    seen["mss"], seen["min_rtt_us"] = MSS, 100_000
    for key, value in values.items():
        seen[key] = value
    return seen


def proved(rate: float, name: str = "p", connections: int = 20, **values: Any) -> Rows:
    return row(
        name,
        connections=100,
        share_rate=rate,
        share_connections=connections,
        path_rate=2 * rate,
        path_buckets=10,
        **values,
    )


def well(**values: Any) -> dict[str, Any]:
    """A trial's first flights without loss."""
    return {"flights_0": 200, "flights_1": 30, "t100_0_us": 300_000, "t100_1_us": 200_000} | values


@dataclass
class Loop:
    """Rounds one after the other."""

    policy: Policy
    groups: Rows = field(default_factory=lambda: NONE)
    now: int = ROUND
    last: Rows = field(default_factory=lambda: np.zeros(0, PREVIOUS))

    def round(self, *rows: Rows, frozen: tuple[str, ...] = ()) -> Rows:
        seen = np.concatenate(rows) if rows else np.zeros(0, OBSERVED)
        decided = decide(self.now, self.policy, seen, self.last, self.groups, frozen, WITHOUT)
        self.last, self.now = STARTS.carry(decided, self.now).table(), self.now + STEP
        return decided.table()

    def in_use(self, rate: float, name: str = "p") -> Rows:
        """Rounds until a proved rate is in use."""
        for _ in range(6):
            found = self.round(proved(rate, name, **well()))
        assert found["window"][0] > 0
        return found


def reason(decided: Rows, at: int = 0) -> str:
    return STARTS.reasons[int(decided["reason"][at])]


def group(*names: str, of: str = "eu>us") -> Rows:
    found = np.zeros(len(names), GROUPED)
    found["src_pop"], found["ip_version"], found["group"] = b"ams", 4, of.encode()
    found["destination"] = [name.encode() for name in names]
    return found


def trains(rate: float, low: float = 0.97, **values: Any) -> dict[str, Any]:
    """Twenty, whose slowest quarter shows this part of the rate."""
    return {"trains": 20, "train_rate": rate, "train_low_rate": low * rate} | values


def carried(**values: Any) -> dict[str, Any]:
    """First flights without loss, of which all was carried."""
    return {"flights_0": 30, "segments_0": 2100, "carried_0": 1.0} | values


def good(**values: Any) -> dict[str, Any]:
    """A trial's, too."""
    return carried(flights_1=20, segments_1=1400, carried_1=1.0, t100_0_us=3e5, t100_1_us=2e5) | values


def beginning() -> Loop:
    """A lower bound, of connections that never met the path, is on trial."""
    loop = Loop(policy())
    for _ in range(2):
        found = loop.round(row(connections=100, reached_rate=4e5, reached_connections=30))
    assert reason(found) is Reason.TRIAL_PROVED
    assert found["trial_connection_rate"][0] < 1e6
    return loop


def in_use(loop: Loop, rate: float, **values: Any) -> Rows:
    """Rounds until what trains show is in use."""
    for _ in range(3):
        found = loop.round(row(connections=100, **trains(rate), **good(**values)))
    assert abs(found["connection_rate"][0] - 0.95 * rate) <= 1e-4 * rate
    return found
