"""Words of a law (actions, reasons) as tables have them and as arrays do: an enumeration, and its members' places."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import numpy as np

Words = TypeVar("Words", bound=StrEnum)


def codes(words: type[Words]) -> dict[Words, np.uint8]:
    """Each word's number in arrays: its place among the members, which is never changed."""
    return {word: np.uint8(place) for place, word in enumerate(words)}
