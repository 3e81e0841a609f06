"""Tests that share a run: each fails alone, and what they gave is run once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from testkit.home import Home
from testkit.together import Together, together


class Doubled:
    runs = 0

    def __init__(self, number: int) -> None:
        self.number, self.found = number, 0

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        cls.runs += 1
        for case in cases:
            case.found = 2 * case.number


@together
@pytest.mark.parametrize(("given", "expected"), [(1, 2), (20, 40)])
def test_each_of_several_goes_on_with_its_own(given: int, expected: int) -> Iterator[Sequence[Doubled]]:
    assert expected == 2 * given
    one, other = Doubled(given), Doubled(given + 1)
    yield one, other
    assert (one.found, other.found) == (expected, expected + 2)


@together
def test_all_of_a_file_are_run_at_once() -> Iterator[Doubled]:
    yield Doubled(3)
    assert Doubled.runs == 1


def begun(*tests: Any) -> Together:
    """No case asks for a home."""
    return Together([SimpleNamespace(nodeid=test.__name__, function=test) for test in tests], Home(Path("/nowhere")))


def test_what_fails_in_one_fails_no_other() -> None:
    class Own(Doubled):
        pass

    @together
    def makes_nothing() -> Iterator[Own]:
        raise ValueError("no such peer")
        yield

    @together
    def expects_more() -> Iterator[Own]:
        yield (case := Own(1))
        assert case.found == 3

    @together
    def waits_twice() -> Iterator[Own]:
        yield Own(1)
        yield Own(2)

    @together
    def is_well() -> Iterator[Own]:
        yield (case := Own(1))
        assert case.found == 2

    shared = begun(makes_nothing, expects_more, waits_twice, is_well, test_what_fails_in_one_fails_no_other)
    with pytest.raises(ValueError, match="no such peer"):
        shared.finish("makes_nothing")
    with pytest.raises(AssertionError, match="2 == 3"):
        shared.finish("expects_more")
    with pytest.raises(AssertionError, match="yields once"):
        shared.finish("waits_twice")
    shared.finish("is_well")
