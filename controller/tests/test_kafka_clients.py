"""Messages of Kafka's client library reach people as lines of ours: once, and without its threads and times."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from springtide.observe.kafka import SECRETS, text
from springtide.store import Engine

from testkit.home import Home

ROOT = Path(__file__).parents[2]
# A broker that nobody is behind.
AWAY = "127.0.0.1:1"


@pytest.fixture
def silent() -> Iterator[str]:
    """A broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", [("topics", "check"), ("topics", "apply"), ("tail",)])
@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("bogus=1", 'No such configuration property: "bogus"'),
        ("security.protocol=tls", "security.protocol"),
        # librdkafka tells of this one only where it begins to work.
        ("ssl.ca.location=/nonexistent/ca.pem", "ssl.ca.location failed"),
    ],
)
def test_a_property_that_the_client_refuses_is_one_line(
    own_home: Home, command: tuple[str, ...], option: str, reason: str
) -> None:
    tls = ("--kafka-option", "security.protocol=ssl")
    done = own_home.run(*command, "--kafka", AWAY, *tls, "--kafka-option", option, code=2)
    [line] = done.stderr.splitlines()
    assert line.startswith("springtide: --kafka-option: property: ")
    assert reason in line


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("sasl.password", "line 1: is not KEY=VALUE"),
        ("# a comment\n\nsecurity.protocol=ssl\nmy word=x", "line 4: is not KEY=VALUE"),
        ("sasl.password=a\x01word", "line 1: is not KEY=VALUE"),
        ("bootstrap.servers=word:1", "bootstrap.servers: is not taken; give --kafka"),
        ("log.queue=true", "log.queue: is not taken"),
        ("group.id=word", "group.id: is set by consume itself"),
        ("\ufeffsasl.password=word\r\nbogus=1\r\n", 'No such configuration property: "bogus"'),
    ],
)
def test_a_file_of_properties_is_read_by_line(own_home: Home, lines: str, message: str) -> None:
    file = own_home.path / "kafka.properties"
    file.write_bytes(lines.encode())
    done = own_home.run("consume", "--kafka", AWAY, "--seconds", "1", "--kafka-options-file", file, code=2)
    [line] = done.stderr.splitlines()
    assert message in line
    assert "word" not in line


def test_a_secret_is_not_taken_from_the_command_line(own_home: Home) -> None:
    done = own_home.run("tail", "--kafka", AWAY, "--kafka-option", "sasl.password=word", code=2)
    assert "sasl.password: is a secret" in done.stderr
    assert "word=" not in done.stderr
    collectors = (ROOT / "collector/src/sinks/kafka/options.rs").read_text()
    [named] = re.findall(r"const SECRETS: .*? = \[(.*?)\];", collectors, re.S)
    assert set(re.findall(r'"(.*?)"', named)) == set(SECRETS)


def test_the_engine_gets_each_property_once() -> None:
    given = {"session.timeout.ms": "9000", "sasl.password": "<&]]>"}
    with Engine(kafka=given).configuration(reading=False) as file:
        kept = file.parent
        assert kept.stat().st_mode & 0o777 == 0o700
        [own] = ElementTree.parse(file).iter("kafka")  # noqa: S314 (our own)
        found = {one.tag: one.text for one in own}
        assert len(found) == len(own)
    assert (found["session_timeout_ms"], found["sasl_password"], found["heartbeat_interval_ms"]) == (
        "9000",
        "<&]]>",
        "1500",
    )
    assert not kept.exists()


def test_doctor_finds_a_property_that_the_client_refuses(own_home: Home, silent: str) -> None:
    words = ("doctor", "--site", "--kafka", silent, "--kafka-option", "bogus=1", "--json")
    found = json.loads(own_home.run(*words, code=1).stdout)["findings"]
    [one] = [each for each in found if each["check"] == "kafka"]
    assert one["verdict"] == "fix"
    assert 'No such configuration property: "bogus"' in one["what"]


@pytest.mark.usefixtures("each_opens")
def test_consume_says_each_complaint_once(own_home: Home) -> None:
    """However often the client tries, and in however many threads."""
    done = own_home.run("consume", "--kafka", AWAY, "--seconds", "4", "--until-caught-up", code=1)
    lines = done.stderr.splitlines()
    assert lines
    assert all(line.startswith(f"springtide: {AWAY}: ") for line in lines)
    assert sum("Connect to" in line for line in lines[:-1]) <= 1
    assert len(lines) == len(set(lines))
    assert not re.search(r"thrd:|rdkafka#|#consumer-|after \d+ms|identical error", done.stderr)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "[thrd:kafka-1:9092/bootstrap]: kafka-1:9092/bootstrap: Connect to ipv4#192.0.2.1:9092 failed: Connection "
            "refused (after 0ms in state CONNECT, 1 identical error(s) suppressed)",
            "kafka-1:9092/bootstrap: Connect to ipv4#192.0.2.1:9092 failed: Connection refused",
        ),
        (
            "[thrd:app]: ClickHouse-host-db-table#consumer-12: kafka-1:9092/bootstrap: Connect to ipv4#192.0.2.1:9092 "
            "failed: Connection refused (after 7ms in state CONNECT)",
            "kafka-1:9092/bootstrap: Connect to ipv4#192.0.2.1:9092 failed: Connection refused",
        ),
        ("[thrd:kafka-1:9092/bootstrap]: 2/2 brokers are down", "2/2 brokers are down"),
        # The engine's own stays as it is.
        ("Code: 243. DB::Exception: no space (disk 'default')", "Code: 243. DB::Exception: no space (disk 'default')"),
    ],
)
def test_a_complaint_is_told_without_its_attempt(said: str, shown: str) -> None:
    assert text(said) == shown
