"""The words of a decision on how connections start."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    NONE = "none"
    # Only a share of the connections is given values.
    TRY = "try"
    SET = "set"
    WITHDRAW = "withdraw"


ACTIONS = tuple(Action)


class Reason(StrEnum):
    """The rule that made the decision what it is: the last one that changed a value, or kept it from changing."""

    NO_EVIDENCE = "no_evidence"
    THIN_EVIDENCE = "thin_evidence"
    BELOW_DUTY_CYCLE = "below_duty_cycle"
    # In use, and what is proved does not ask for another value.
    PROVED = "proved"
    HELD_THIN_EVIDENCE = "held_thin_evidence"
    HELD_INCOMPLETE_INPUT = "held_incomplete_input"
    HELD_CEILING = "held_ceiling"
    HELD_DAMPING = "held_damping"
    # Falls.
    LOWERED = "lowered"
    COLLAPSED = "collapsed"
    LOSS = "loss"
    BRAKED = "braked"
    ROUND_TRIP_CHANGED = "round_trip_changed"
    DEFAULT_ASKED = "default_asked"
    EXPIRED = "expired"
    # Trials of what is proved, of a step beyond what was reached, of the group's low quantile; and what became of them.
    TRIAL_PROVED = "trial_proved"
    TRIAL_STEP = "trial_step"
    TRIAL_BORROWED = "trial_borrowed"
    ON_TRIAL = "on_trial"
    PROMOTED = "promoted"
    PROMOTED_BORROWED = "promoted_borrowed"
    TRIAL_LOSS = "trial_loss"
    TRIAL_SLOWER = "trial_slower"
    TRIAL_NO_GAIN = "trial_no_gain"
    TRIAL_OVERTAKEN = "trial_overtaken"
    OVERRIDE = "override"


REASONS = tuple(Reason)
