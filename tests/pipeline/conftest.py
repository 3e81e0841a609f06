"""A real broker with the samples' topic, and a store that is ready."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide.observe.kafka_tables import TOPIC

from testkit.home import FLEET, Home
from testkit.kafka import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka") as running:
        running.topic(TOPIC)
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.fleet.write_text(FLEET)
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    home.spool.mkdir()
    home.run("migrate")
    return home
