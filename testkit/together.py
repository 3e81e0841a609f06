"""Tests of one file that share what is dear, such as a roll-up: it is run once for what all of them give.

    @together
    def test_x(number: int) -> Iterator[Rolled]:
        rolled = Rolled(traffic(number))
        yield rolled
        assert rolled.seen(FRA)["hosts"] == number

A test makes its case, yields it, or several, and goes on when those of all of the file's tests have been run side by
side. A class of cases has `run`, and sees to it that none affects another; a file has one that asks the store. A test
takes parameters and no fixtures: its yield gives pytest's request, to ask for some. What fails while a case is made
fails its own test.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import wraps
from typing import Any, ParamSpec, Protocol, Self

import pytest

from testkit.home import Home

P = ParamSpec("P")


class Case(Protocol):
    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        """Let each of them know what came of it."""


class Together:
    """Tests that have begun, up to their yield, by their ids; what they gave has been run."""

    def __init__(self, items: Iterable[Any], home: Home) -> None:
        self.begun: dict[str, Generator[Case | Sequence[Case], pytest.FixtureRequest | None]] = {}
        self.failed: dict[str, Exception] = {}
        kinds: dict[type[Case], list[Case]] = defaultdict(list)
        for item in items:
            test = getattr(getattr(item, "function", None), "begins", None)
            if test is None:
                continue
            try:
                self.begun[item.nodeid] = steps = test(**getattr(getattr(item, "callspec", None), "params", {}))
                given = next(steps)
            except Exception as error:
                self.failed[item.nodeid] = error
                continue
            for case in given if isinstance(given, Sequence) else (given,):
                kinds[type(case)].append(case)
        for kind, cases in kinds.items():
            kind.run(home, cases)

    def finish(self, test: str, request: pytest.FixtureRequest | None = None) -> None:
        if test in self.failed:
            raise self.failed[test]
        with closing(self.begun[test]) as steps, suppress(StopIteration):
            steps.send(request)
            raise AssertionError("a test yields once")


def together(test: Callable[P, Iterator[Any]]) -> Callable[..., None]:
    @wraps(test)
    def finish(request: pytest.FixtureRequest, side_by_side: Together, **_: Any) -> None:
        side_by_side.finish(request.node.nodeid, request)

    own = inspect.signature(finish, follow_wrapped=False).parameters
    named = [*(own[name] for name in ("request", "side_by_side")), *inspect.signature(test).parameters.values()]
    vars(finish).update(begins=test, __signature__=inspect.Signature(named))
    return finish
