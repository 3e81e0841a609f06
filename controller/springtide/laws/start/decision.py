"""The words of a decision on how connections start, as springtide-core has them (core/src/step/start/reason.rs)."""

from __future__ import annotations

from enum import StrEnum

from springtide import _core


class Action(StrEnum):
    NONE = "none"
    TRY = "try"
    SET = "set"
    WITHDRAW = "withdraw"


# By number.
ACTIONS = tuple(Action(name) for name in _core.actions("start"))
REASONS = tuple(name for name, _ in _core.reasons("start"))
# The rule that decides on each reason.
RULES = dict(_core.reasons("start"))
