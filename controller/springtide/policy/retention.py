"""How long rows live."""

from __future__ import annotations

from springtide.policy.section import Section, tunable


class RetentionPolicy(Section):
    """How long rows are kept; `springtide retention apply` sets it."""

    samples_days: int = tunable(
        7,
        "Days of single samples.",
        source="a week shows every day of it beside the day before; the largest table by far",
        ge=1,
        le=36_500,
    )
    sockets_days: int = tunable(
        3,
        "Days of each round's sockets.",
        source="round tables are made of them at once; afterwards they serve close looks only",
        ge=1,
        le=36_500,
    )
    rounds_days: int = tunable(
        90,
        "Days of round tables.",
        source="a quarter: a season of decisions can be replayed and backfilled",
        ge=1,
        le=36_500,
    )
    hours_days: int = tunable(
        400,
        "Days of hours.",
        source="a year and a month: this month beside the same month a year ago",
        ge=1,
        le=36_500,
    )
    days_days: int = tunable(
        1830,
        "Days of days.",
        source="five years: how paths grow",
        ge=1,
        le=36_500,
    )
    decisions_days: int = tunable(
        400,
        "Days of decisions and of the audit.",
        source="as long as the hours that show their effect",
        ge=1,
        le=36_500,
    )
    rejected_days: int = tunable(
        30,
        "Days of what came by Kafka and was none of ours.",
        source="long enough to look into what a sender does wrong; anybody who may send can make it grow",
        ge=1,
        le=36_500,
    )
