"""A real broker, a topic of a test's own on it, and stores that are ready."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide.observe.kafka_tables import TOPIC

from testkit.home import FLEET, Home
from testkit.kafka import Broker, Feed


@pytest.fixture(autouse=True)
def _signals_stay() -> Iterator[None]:
    """`consume` takes them for itself, and runs in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    Home.release()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that admits messages of 10 MB, as few do: what they do to the consumer is a question."""
    with Broker(tmp_path_factory.mktemp("kafka"), settings={"message.max.bytes": "20000000"}) as running:
        yield running


@pytest.fixture
def feed(shared: Broker) -> Feed:
    return Feed.of(shared)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """For a test that kills it, with the topic that commands take by default."""
    with Broker(tmp_path / "kafka") as running:
        running.topic(TOPIC)
        yield running


def ready(path: Path, template: Path) -> Home:
    home = Home(path)
    home.fleet.write_text(FLEET)
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    home.spool.mkdir()
    shutil.copytree(template, path / "store", symlinks=True)
    return home


@pytest.fixture
def home(tmp_path: Path, template: Path) -> Home:
    return ready(tmp_path, template)


@pytest.fixture
def clean(tmp_path: Path, template: Path) -> Home:
    """A second one, which takes by another way what `home` takes from Kafka."""
    path = tmp_path / "clean"
    path.mkdir()
    return ready(path, template)
