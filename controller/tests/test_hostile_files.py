"""Spool folders and access logs as others may leave them: whatever lies there, what is good beside it is loaded.

Long: one list of what files can hold, and what each must come to.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import zlib
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from springtide.observe import accesslog
from springtide.observe.folder import Bytes, Folder
from springtide.observe.spool import Damage, Record, read_spool
from springtide.store import Row, Store
from springtide.store.embedded import EmbeddedStore

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.spool import frame, record, write_spool
from testkit.traffic import Socket

SLOW = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def samples(count: int, first: int = 1) -> list[dict[str, Value]]:
    return [Socket("ams-1", first + n, "10.77.1.10", "10.77.2.20", pop="ams").at(ROUND, 7, 1000) for n in range(count)]


def line(n: int, **changed: Any) -> bytes:
    given = {
        "time": ROUND - 200 + n / 1000,
        "host": "ams-1",
        "request_id": f"{n:032x}",
        "client": "192.0.2.7",
        "server": "10.77.1.1",
        "method": "GET",
        "status": 200,
        "bytes": 125_000,
        "request_time": 0.1,
    }
    return json.dumps({**given, **changed}).encode() + b"\n"


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


ODD: dict[str, Callable[[Path], object]] = {
    "dangling.spool": lambda path: path.symlink_to("nowhere"),
    "loop.spool": lambda path: path.symlink_to(path.name),
    "away.spool": lambda path: path.symlink_to("/etc/passwd"),
    "folder.spool": lambda path: path.mkdir(),
    "pipe.spool": os.mkfifo,
    "socket.spool": bind,
}
# Names of files that hold good records.
NAMES = [b"-x.spool", b"new\nline.spool", b"\xff\xfe.spool", b"a b'\"$(c).spool", b"x" * 249 + b".spool", b".spool"]


def test_odd_entries_and_names_stop_nothing(home: Home) -> None:
    home.spool.mkdir(exist_ok=True)
    for odd, make in ODD.items():
        make(home.spool / odd)
    for n, name in enumerate(NAMES):
        # Each with bytes to keep aside, which are named after it.
        content = record(samples(2, first=1 + 10 * n)) + b"junk of " + name
        (home.spool / os.fsdecode(name)).write_bytes(content)
    result = home.run("ingest", home.spool, "--json", "--delete", code=2)
    summary = json.loads(result.stdout)
    assert summary["rows"] == 2 * len(NAMES)
    assert (summary["files"], summary["unreadable_files"]) == (len(NAMES), len(ODD))
    assert (summary["rejected_records"], summary["deleted_files"]) == (len(NAMES), 0)
    lines = result.stderr.splitlines()
    assert len(lines) == len(NAMES) + len(ODD) == len(summary["problems"])
    assert all(one.isprintable() for one in lines)
    assert sum("is not a regular file" in one for one in lines) == len(ODD)
    kept = sorted(path.read_bytes() for path in (home.spool / "rejected").iterdir())
    assert kept == sorted(b"junk of " + name for name in NAMES)
    assert "root:" not in result.output
    again = json.loads(home.run("ingest", home.spool, "--json", code=2).stdout)
    assert (again["rows"], again["already_loaded"], again["already_rejected"]) == (0, len(NAMES), len(NAMES))


def test_a_file_without_read_permission_is_reported(tmp_path: Path) -> None:
    """Root may read everything: this is tried as nobody."""
    write_spool(tmp_path, "closed", [b"x"]).chmod(0)
    write_spool(tmp_path, "open", [b"x"]).chmod(0o644)
    tmp_path.chmod(0o755)
    with Folder(tmp_path) as folder:
        os.seteuid(65534)
        try:
            os.close(folder.open("open.spool"))
            with pytest.raises(PermissionError):
                folder.open("closed.spool")
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("place", ["the folder", "a longer name"])
def test_a_planted_link_is_not_written_through(home: Home, place: str) -> None:
    bad = b"junk of the first"
    path = write_spool(home.spool, "a", [bad, record(samples(2))])
    victim = home.path / "victim"
    home.run("ingest", home.spool, code=2)
    [kept] = (home.spool / "rejected").iterdir()
    # The same bytes come again in a store that has not seen them, and this time somebody was there before.
    path.rename(home.spool / "gone")
    kept.unlink()
    victim.write_text("precious")
    if place == "the folder":
        (home.spool / "rejected").rmdir()
        (home.path / "elsewhere").mkdir()
        (home.spool / "rejected").symlink_to(home.path / "elsewhere")
    else:
        (home.spool / "rejected" / "b.spool.0").symlink_to(victim)
    write_spool(home.spool, "b", [b"other junk", record(samples(3, first=9))])
    code = 1 if place == "the folder" else 2
    summary = json.loads(home.run("ingest", home.spool, "--json", code=code).stdout)
    assert summary["rows"] == 3
    assert summary["unkept_records"] == (place == "the folder")
    assert victim.read_text() == "precious"
    assert not list((home.path / "elsewhere").glob("*"))


def test_a_link_in_place_of_the_kept_bytes_is_replaced(home: Home) -> None:
    path = write_spool(home.spool, "a", [b"junk"])
    home.run("ingest", home.spool, code=2)
    [kept] = (home.spool / "rejected").iterdir()
    victim = home.path / "victim"
    victim.write_text("precious")
    kept.unlink()
    kept.symlink_to(victim)
    # Another store, which has not dealt with these bytes yet.
    store = home.open()
    store.execute("truncate table ingest_ledger")
    store.close()
    home.run("ingest", home.spool, code=2)
    assert (victim.read_text(), kept.is_symlink(), kept.read_bytes()) == ("precious", False, path.read_bytes())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_damage_everywhere_is_remembered_together(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at a time, a file of a few megabytes would hold up all others for hours."""
    write_spool(home.spool, "a", [part for n in range(200) for part in (frame(b"\0", 0, 0), b"%d" % n)])
    tables: list[str] = []
    insert = EmbeddedStore.insert

    def counted(self: EmbeddedStore, table: str, rows: Iterable[Row]) -> None:
        tables.append(table)
        insert(self, table, rows)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "insert", counted)
        summary = json.loads(home.run("ingest", home.spool, "--json", code=2).stdout)
    assert summary["rejected_records"] == len(list((home.spool / "rejected").iterdir())) == 200
    assert tables.count("ingest_ledger") < 10
    again = json.loads(home.run("ingest", home.spool, "--json").stdout)
    assert (again["rejected_records"], again["already_rejected"]) == (0, 200)


def test_other_bytes_at_the_same_place_lose_none_that_were_kept(home: Home) -> None:
    for junk in (b"first", b"other", b"first", b"other"):
        write_spool(home.spool, "a", [junk])
        home.run("ingest", home.spool, code=2 if len(list(home.spool.glob("rejected/*"))) < 2 else None)
    assert sorted(path.read_bytes() for path in home.spool.glob("rejected/*")) == [b"first", b"other"]


def test_a_file_truncated_while_it_is_read_is_reported(tmp_path: Path) -> None:
    path = write_spool(tmp_path, "a", [record(samples(1)) for _ in range(3)])
    with path.open("r+b") as file:
        items = read_spool("a", file.fileno())
        assert isinstance(next(items), Record)
        file.truncate(10)
        with pytest.raises(OSError, match="shorter"):
            list(items)


def headers(count: int) -> bytes:
    """A file of headers only, each of which claims all that follows."""
    fields = [(0, bytes(3), 1, 20 * (count - n - 1)) for n in range(count)]
    return b"".join(b"STB1" + struct.pack("<B3sII", *one) + b"????" for one in fields)


def bytes_read(data: bytes, path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    path.write_bytes(data)
    total = 0
    read = Bytes.read

    def counted(self: Bytes, start: int, length: int) -> bytes:
        nonlocal total
        found = read(self, start, length)
        total += len(found)
        return found

    with monkeypatch.context() as patch, path.open("rb") as file:
        patch.setattr(Bytes, "read", counted)
        parts = list(read_spool("a", file.fileno()))
    rest = [part.data if isinstance(part, Damage) else part.raw() for part in parts]
    assert b"".join(rest) == data
    return total


def test_work_grows_with_a_files_length_whatever_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = record(samples(1), codec=0)
    # Whole records between the headers: each good one ends a search, and each header would begin another.
    pieces = [tiny + headers(1)[:12] + struct.pack("<I", 16_000) + b"????" for _ in range(400)]
    for shape in (headers(4000), b"".join(pieces) + bytes(16_000)):
        once = bytes_read(shape, tmp_path / "a", monkeypatch)
        twice = bytes_read(shape + shape, tmp_path / "a", monkeypatch)
        assert twice < 2.5 * once
    # Minutes of checksums if each were computed by itself: 400 GB.
    assert bytes_read(headers(200_000), tmp_path / "a", monkeypatch) < 1 << 31


JUNK = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"STB1", b"STB", headers(1), headers(3), record(samples(1))[:-1], b"STB1STB1" + bytes(40)]),
    st.builds(
        lambda codec, rows, length, tail: b"STB1" + struct.pack("<B3sIII", codec, bytes(3), rows, length, 7) + tail,
        st.integers(0, 2),
        st.integers(0, 9),
        st.integers(0, 2000),
        st.binary(max_size=30),
    ),
)
GOOD = [record(samples(1, first=n), codec=n % 2) for n in range(1, 4)] + [frame(b"", 0), frame(b"x" * 700, 5)]


def defined(data: bytes) -> list[int]:
    """Where records are by the format's definition, read as its page describes it: the slow way."""
    found, at = [], 0
    while at < len(data):
        head = data[at : at + 20]
        end = at + 20 + int.from_bytes(head[12:16], "little")
        whole = len(head) == 20 and head[:4] == b"STB1" and head[4] < 2 and head[5:8] == bytes(3) and end <= len(data)
        if whole and zlib.crc32(head[4:16] + data[at + 20 : end]) == int.from_bytes(head[16:], "little"):
            found.append(at)
            at = end
        else:
            at += 1
    return found


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.one_of(JUNK, st.sampled_from(GOOD)), max_size=14))
def test_bytes_of_any_kind_between_records_lose_none(tmp_path: Path, parts: list[bytes]) -> None:
    data = b"".join(parts)
    (tmp_path / "a").write_bytes(data)
    with (tmp_path / "a").open("rb") as file:
        items = list(read_spool("a", file.fileno()))
    assert [item.position for item in items if isinstance(item, Record)] == defined(data)
    assert b"".join(item.raw() if isinstance(item, Record) else item.data for item in items) == data


# Each with what is wrong, in a word or two.
BAD_LINES = {
    "nested": (b"[" * 30_000 + b"\n", "JSON"),
    "nested objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"\n", "JSON"),
    "lone surrogate": (line(90).replace(b"ams-1", b"\\ud800"), "is not a JSON object"),
    "raw surrogate": (line(90).replace(b"ams-1", b"\xed\xa0\x80"), "JSON"),
    "scoped client": (line(90, client="fe80::1%eth0"), "client"),
    "scoped server": (line(90, server="fe80::1%1"), "server"),
    "not UTF-8": (b'{"host": "\xff\xfe"}\n', "JSON"),
    "UTF-16": (line(90).decode().encode("utf-16-le") + b"\n", "JSON"),
    "not a number": (line(90, bytes=float("nan")), "JSON"),
    "infinite": (line(90).replace(b"125000", b"1e999"), "JSON"),
    "huge": (line(90).replace(b"125000", b"9" * 4000), "bytes"),
    "huger": (line(90).replace(b"125000", b"9" * 9000), "bytes"),
    "NUL": (b"\0\0\0\n", "JSON"),
    "long": (line(90, host="x" * 70_000), "longer"),
    "very long": (b"x" * 3_000_000 + b"\n", "longer"),
    "empty": (b"\n", "JSON"),
    "far beyond": (line(90, time=1e300), "time"),
    "in 2096": (line(90, time=3.999e9), "time: is too far from now"),
    "in 1970": (line(90, time=0), "time: is too far from now"),
}


def test_no_line_stops_the_others(home: Home) -> None:
    path = home.path / "access.json"
    bad = [one for one, _ in BAD_LINES.values()]
    good = [line(n) for n in range(len(bad) + 1)]
    # A text that the engine must take as it is.
    good += [line(2000, host="a\0b\\\u2028\U0001f600'\"")]
    path.write_bytes(
        b"".join(one for pair in zip(good, bad, strict=False) for one in pair) + b"".join(good[len(bad) :])
    )
    result = home.run("ingest-logs", path, "--json", code=2)
    summary = json.loads(result.stdout)
    assert home.query("select uniqExact(request_id) as n from http_requests") == [{"n": len(good)}]
    assert summary["rows"] == len(good)
    assert summary["rejected_lines"] >= len(bad)
    assert all(one.isprintable() and len(one) < 400 for one in result.stderr.splitlines())
    kept = path.with_name("access.json.rejected").read_bytes()
    assert all(one in kept for one in bad)


def test_lines_of_many_days_load(home: Home) -> None:
    """A day is a partition, and the engine takes a hundred of them at once by default."""
    path = home.path / "access.json"
    path.write_bytes(b"".join(line(1 + day, time=ROUND - 86_400 * day) for day in range(150)))
    assert home.json("ingest-logs", path)["rows"] == 150
    assert home.query("select uniqExact(request_id) as n from http_requests") == [{"n": 150}]


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_reported_with_its_fault(store: Store, name: str) -> None:
    bad, word = BAD_LINES[name]
    [fault] = accesslog.judged(store, [bad.removesuffix(b"\n")], ROUND)
    assert isinstance(fault, str)
    assert word in fault


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("::1"), st.just("fe80::1%2")
)
KEYS = ["time", "host", "request_id", "client", "server", "method", "status", "bytes", "request_time"]
KEYS.append("request_time_ms")


@SLOW
@given(
    changes=st.lists(
        st.dictionaries(st.sampled_from(KEYS), st.one_of(SCALARS, st.lists(SCALARS, max_size=2)), max_size=2),
        max_size=20,
    ),
    junk=st.lists(st.binary(max_size=40).filter(lambda one: b"\n" not in one), max_size=10),
)
@example(changes=[{"time": 1.797693134862316e302}, {"request_time": -1.7e308}], junk=[])
def test_every_parsed_line_is_accepted_by_the_engine(
    store: Store, changes: list[dict[str, Any]], junk: list[bytes]
) -> None:
    """Whatever the lines, those that are taken go in together with all others: none of them can hold the batch up."""
    lines = [line(n + 1, **one) for n, one in enumerate(changes)]
    judged = accesslog.judged(store, [*lines, *junk, line(10_000)], ROUND)
    rows = [row for row in judged if not isinstance(row, str)]
    store.execute("truncate table http_requests")
    store.insert("http_requests", rows)
    [found] = store.query("select count() as n, countIf(request_id = 10000) as last from http_requests")
    assert found == {"n": len(rows), "last": 1}
    assert all(ip_address(row["client_ip"]) for row in rows)


def test_bad_lines_are_kept_once_and_none_is_lost(home: Home) -> None:
    path = home.path / "access.json"
    kept = path.with_name("access.json.rejected")
    first, second, torn = b"first\n", b"second\n", b"torn"
    path.write_bytes(line(1) + first + torn)
    home.run("ingest-logs", path, code=2)
    home.run("ingest-logs", path, code=2)
    assert kept.read_bytes() == first + torn
    # Rotated: another file of the same name.
    path.write_bytes(second + line(2) + first + torn)
    for _ in range(2):
        home.run("ingest-logs", path, code=2)
        assert kept.read_bytes() == first + torn + b"\n" + second
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("planted", ["link", "dangling link", "pipe", "folder", "second name"])
def test_a_planted_rejected_file_is_left_alone_and_stops_nothing(home: Home, planted: str) -> None:
    victim = home.path / "victim"
    victim.write_text("precious")
    path = home.path / "access.json"
    kept = path.with_name("access.json.rejected")
    if planted == "link":
        kept.symlink_to(victim)
    elif planted == "dangling link":
        kept.symlink_to(home.path / "made")
    elif planted == "pipe":
        os.mkfifo(kept)
    elif planted == "folder":
        kept.mkdir()
    else:
        kept.hardlink_to(victim)
    path.write_bytes(line(1) + b"bad\n" + line(2))
    result = home.run("ingest-logs", path, "--json", code=1)
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["rejected_lines"], summary["unkept_lines"]) == (2, 1, 1)
    [problem] = result.stderr.splitlines()
    assert "cannot be kept" in problem
    assert victim.read_text() == "precious"
    assert not (home.path / "made").exists()


def test_unreadable_logs_stop_no_other(home: Home) -> None:
    os.mkfifo(home.path / "pipe.json")
    (home.path / "dangling.json").symlink_to("nowhere")
    (home.path / "folder.json").mkdir()
    odd = Path(os.fsdecode(os.fsencode(home.path) + b"/\xff\n.json"))
    odd.write_bytes(line(1) + b"bad\n")
    (home.path / "z.json").write_bytes(line(2))
    logs = [home.path / "none.json", *sorted(home.path.glob("*.json"))]
    result = home.run("ingest-logs", *logs, "--json", code=2)
    summary = json.loads(result.stdout)
    assert (summary["files"], summary["rows"], summary["unreadable_files"]) == (2, 2, 4)
    assert len(result.stderr.splitlines()) == 5
