"""The laws that there are, in the order in which people meet them. A new one is a package and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from springtide.laws.base import Law
from springtide.laws.congestion.interface import CONGESTION
from springtide.laws.initcwnd.interface import INITCWND
from springtide.laws.recovery.interface import RECOVERY
from springtide.laws.start.interface import START
from springtide.metrics import METRICS as COMMON_METRICS
from springtide.metrics import Metric

LAWS: tuple[Law, ...] = (INITCWND, CONGESTION, START, RECOVERY)
# The newest round that it decided is the one that is published; the others' newest decisions go with it.
LEADING: Law = INITCWND
BY_NAME = {law.name: law for law in LAWS}
if len(BY_NAME) < len(LAWS):
    # Its command, task and table would silently be the other one's.
    raise ValueError(f"two laws have one name: {', '.join(sorted(law.name for law in LAWS))}; give the new one another")
# Every metric of the controller.
METRICS: Mapping[str, Metric] = COMMON_METRICS | {name: one for law in LAWS for name, one in law.metrics.items()}
