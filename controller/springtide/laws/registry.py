"""The laws that there are, in the order in which people meet them. A new one is a package and a line here."""

from __future__ import annotations

from springtide.laws.base import Law
from springtide.laws.congestion.interface import CONGESTION
from springtide.laws.initcwnd.interface import INITCWND

LAWS: tuple[Law, ...] = (INITCWND, CONGESTION)
# The newest round that it decided is the one that is published; the others' newest decisions go with it.
LEADING: Law = INITCWND
BY_NAME = {law.name: law for law in LAWS}
