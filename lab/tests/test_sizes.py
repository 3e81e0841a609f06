"""The load's objects have the published shares."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import sizes


def test_the_two_published_numbers_hold_exactly() -> None:
    objects = sizes.load_objects()
    assert sum(size > 15_000 for size in objects) == 0.54 * len(objects)
    assert sum(size < 200_000 for size in objects) == 0.85 * len(objects)


def test_probes_are_the_published_ones() -> None:
    assert sizes.PROBES == (10_000, 50_000, 100_000)


@given(st.lists(st.floats(0, 1), min_size=2))
def test_quantiles_grow_with_the_share_and_stay_on_the_curve(shares: list[float]) -> None:
    found = [sizes.quantile(share) for share in sorted(shares)]
    assert all(small <= large for small, large in pairwise(found))
    assert 1_000 <= found[0] <= found[-1] <= 1_000_000


@pytest.mark.parametrize(("share", "size"), sizes.PAPER)
def test_the_curve_passes_through_its_points(share: float, size: int) -> None:
    assert sizes.quantile(share) == size


def test_a_share_beyond_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a share"):
        sizes.quantile(1.1)
