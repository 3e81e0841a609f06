"""Lines of the publisher's journal: torn, damaged, without room, and as the store and people read them."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from springtide.errors import SpringtideError
from springtide.jobs import audit
from springtide.publication import journal
from springtide.publication.__main__ import main
from springtide.publication.folder import PublishFolder
from springtide.publication.record import record
from springtide.publication.withdrawal import WITHDRAWN, withdraw, withdrawn

from testkit.home import Home

pytestmark = pytest.mark.usefixtures("clock")


def by_a_play(folder: Path, reason: str) -> None:
    record(PublishFolder(folder), journal.Event("withdraw", reason=reason))


def by_the_controller(folder: Path, reason: str) -> None:
    journal.append(folder, journal.Event("withdraw", reason=reason))


Writer = Callable[[Path, str], None]


WRITERS = pytest.mark.parametrize("write", [by_a_play, by_the_controller])


LINE = b'{"at_unix_s": 1767323105, "details": {}, "event": "roll'


@WRITERS
@pytest.mark.parametrize("torn", [b"{", LINE, b"\xff\x00" * 9, b"[" * 200_000, b'{"event": 1}', b"x\ry"])
def test_a_partial_line_of_the_journal_is_kept_and_hides_no_other(tmp_path: Path, write: Writer, torn: bytes) -> None:
    path = tmp_path / journal.FILE
    write(tmp_path, "a")
    before = path.stat().st_size
    with path.open("ab") as file:
        file.write(torn)
    assert journal.read(tmp_path)[1:] == (before, 0), "a line that is being written is not judged"
    write(tmp_path, "b")
    events, end, bad = journal.read(tmp_path)
    assert [event.reason for event in events if event.event == "withdraw"] == ["a", "b"]
    [damaged] = [event for event in events if event.event == journal.DAMAGED]
    assert (bad, end) == (1, path.stat().st_size)
    assert torn in path.read_bytes()
    assert damaged.reason
    assert damaged.reason.isprintable()
    # A reader that goes on from before it finds the same.
    assert journal.read(tmp_path, before)[0][0] == damaged


@WRITERS
def test_a_line_that_the_disk_has_no_room_for_leaves_nothing(tmp_path: Path, write: Writer) -> None:
    path = tmp_path / journal.FILE
    write(tmp_path, "a")
    size = path.stat().st_size
    writer = os.fork()
    if writer == 0:
        # The kernel ends a write in the middle as a full disk does, but with EFBIG.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
        try:
            write(tmp_path, "b" * 300)
        except (OSError, SpringtideError):
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) == 7
    assert path.stat().st_size == size
    write(tmp_path, "c")
    events, _, bad = journal.read(tmp_path)
    assert ([event.reason for event in events], bad) == (["a", "c"], 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("at_unix_s", value) for value in ("1e400", '"5"', "1.5", "-1", str(1 << 32), "true", "null")),
        *(("event", value) for value in ("[]", "5", "null", r'"\udcff"')),
        *(("edges", value) for value in ("null", "5", "[1]", '"ams-1"')),
        *(("details", value) for value in ("null", "5", "[]")),
        ("reason", r'"\ud800"'),
        ("verdict", "[]"),
    ],
)
def test_a_line_with_a_value_of_another_type_is_damaged_and_stops_nobody(home: Home, name: str, value: str) -> None:
    folder = home.path / "publish"
    by_the_controller(folder, "a")
    line = (folder / journal.FILE).read_text()
    fields = {key: json.dumps(one) for key, one in json.loads(line).items()} | {name: value}
    (folder / journal.FILE).write_text("{" + ", ".join(f'"{key}": {one}' for key, one in fields.items()) + "}\n" + line)
    events, _, bad = journal.read(folder)
    assert ([event.event for event in events], bad) == (["damaged", "withdraw"], 1)
    assert all(0 <= event.at_unix_s < 1 << 32 for event in events)


def test_a_reason_that_is_not_utf8_can_be_stored_and_shown(tmp_path: Path) -> None:
    """As the command line gives it: a byte that is not UTF-8 is half a surrogate pair."""
    by_the_controller(tmp_path, "caf\udce9 \u00e9")
    [event], _, bad = journal.read(tmp_path)
    assert (event.reason, bad) == ("caf? \u00e9", 0)
    withdraw(tmp_path, "caf\udce9")
    assert (withdrawn(tmp_path) or "").endswith(": caf?")
    (tmp_path / WITHDRAWN).write_bytes(b"by hand: caf\xe9")
    assert withdrawn(tmp_path) == "by hand: caf\ufffd"


@pytest.mark.parametrize(
    "arguments",
    [
        ["end-withdrawal", "--publish-dir", ""],
        ["withdraw", "--reason", "x", "--publish-dir", ""],
        ["record", "--event", "drift", "--publish-dir", "x", "--details", '{"a":' * 100_000],
    ],
)
def test_an_empty_folder_or_a_detail_without_end_is_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert (ended.value.code, list(tmp_path.iterdir())) == (2, [])


def test_history_and_status_show_a_damaged_line(home: Home) -> None:
    folder = home.path / "publish"
    where = ("--publish-dir", folder)
    home.run("migrate")
    by_the_controller(folder, "a")
    assert "journal" not in {line["what"] for line in home.json("status", *where, code=1)["steps"]}
    with (folder / journal.FILE).open("ab") as file:
        file.write(LINE)
    by_a_play(folder, "b")
    for _ in range(2):
        rows = home.json("history", *where)
        assert sorted((row["event"], row["reason"]) for row in rows) == [
            ("damaged", LINE.decode()),
            ("withdraw", "a"),
            ("withdraw", "b"),
        ]
        (folder / audit.SENT).unlink()
    [line] = [line for line in home.json("status", *where, code=1)["steps"] if line["what"] == "journal"]
    assert line["text"].startswith("1 lines cannot be read:")
