"""An old and a new kernel of Debian's, booted by emulation: the edge's programs do there what they do here."""

from __future__ import annotations

import pytest

from testkit.kernels.__main__ import run

pytestmark = pytest.mark.root


@pytest.mark.parametrize("series", ["6.1", "6.12"])
def test_every_check_passes(series: str) -> None:
    row = run(series, lockdowns=())
    assert row["wrong"] == {}
    assert row["loads"]
    assert len(row["checks"]) == 17
