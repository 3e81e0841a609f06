"""`springtide topics` against a real broker."""

from __future__ import annotations

from pathlib import Path

from testkit.home import Home
from testkit.kafka import Broker


def test_topics_are_made_once_widened_set_and_never_narrowed(shared: Broker, tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = tmp_path / "topics.yaml"

    def write(partitions: int, hours: int) -> None:
        topic = f"{{partitions: {partitions}, replication: 1, retention_hours: {hours}}}"
        path.write_text(f"version: 1\ntopics:\n  springtide.new: {topic}\n")

    def run(command: str, code: int = 0) -> list[tuple[str, str, str, bool]]:
        found = home.json("topics", command, "--kafka", shared.bootstrap, "--file", path, code=code)["differences"]
        return [(d["what"], d["found"], d["wanted"], d["refused"] is not None) for d in found]

    write(partitions=2, hours=24)
    assert run("check", code=1) == [("topic", "missing", "2 partitions", False)]
    assert len(run("apply")) == 1
    assert run("apply") == run("check") == []
    write(partitions=4, hours=48)
    doctor = ("doctor", "--site", "--kafka", shared.bootstrap, "--topics", path)
    found = [f for f in home.json(*doctor, code=1)["findings"] if f["check"] in ("kafka", "topics")]
    assert [(f["verdict"], f["what"]) for f in found] == [
        ("fine", "answers"),
        ("fix", "partitions is 2, should be 4"),
        ("fix", "retention.ms is 86400000, should be 172800000"),
    ]
    differs = [("partitions", "2", "4", False), ("retention.ms", "86400000", "172800000", False)]
    assert run("check", code=1) == differs
    assert run("apply") == differs
    assert run("check") == []
    write(partitions=3, hours=48)
    assert run("apply") == [("partitions", "4", "3", True)]
    assert run("check", code=1) == [("partitions", "4", "3", True)]
    path.write_text("version: 1\ntopics:\n  springtide.new: {partition: 3}\n")
    [line] = home.refused("topics", "check", "--kafka", shared.bootstrap, "--file", path)
    assert "topics.yaml:3: topics.springtide.new.partition: unknown key; did you mean partitions?" in line


def test_brokers_that_do_not_answer_are_one_line(tmp_path: Path) -> None:
    arguments = ("--kafka", "127.0.0.1:9", "--kafka-option", "socket.connection.setup.timeout.ms=1000")
    result = Home(tmp_path).run("topics", "check", *arguments, code=1)
    assert result.stderr.splitlines()[-1].startswith("springtide: topics cannot be read: ")
