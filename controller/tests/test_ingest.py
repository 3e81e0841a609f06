"""`springtide ingest`: every good record once, every bad byte kept aside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from testkit.home import Home
from testkit.proto import FIELDS, Value, message, row
from testkit.spool import frame, record, write_spool
from testkit.traffic import Socket

START = 1_767_322_800
SQL_COUNTS = "select (select count() from tcp_samples) as physical, (select count() from tcp_samples final) as logical"


def samples(count: int, first: int = 1, host: str = "ams-1") -> list[dict[str, Value]]:
    sockets = [Socket(host, first + index, "10.77.1.10", "10.77.2.20", pop="ams") for index in range(count)]
    return [socket.at(START, poll=7, bytes_acked=1000 + socket.cookie) for socket in sockets]


def counts(home: Home) -> tuple[int, int]:
    [found] = home.query(SQL_COUNTS)
    return found["physical"], found["logical"]


def test_loads_once_and_a_second_run_adds_nothing(home: Home) -> None:
    write_spool(home.spool, "ams-1-1", [record(samples(3)), record(samples(4, first=10), codec=0)])
    write_spool(home.spool, "ams-1-2", [record(samples(5, first=20))])
    first = home.json("ingest", home.spool)
    assert {key: first[key] for key in ("files", "records", "rows", "rejected_records", "already_loaded")} == {
        "files": 2,
        "records": 3,
        "rows": 12,
        "rejected_records": 0,
        "already_loaded": 0,
    }
    second = home.json("ingest", home.spool)
    assert (second["records"], second["rows"], second["already_loaded"]) == (0, 0, 3)
    assert counts(home) == (12, 12)


def test_a_renamed_or_copied_file_is_known_again(home: Home) -> None:
    path = write_spool(home.spool, "ams-1-1", [record(samples(3))])
    home.run("ingest", home.spool)
    (home.spool / "copy.spool").write_bytes(path.read_bytes())
    path.rename(home.spool / "renamed.spool")
    assert home.json("ingest", home.spool)["already_loaded"] == 2
    assert counts(home) == (3, 3)


def test_the_same_record_twice_in_one_run_is_loaded_once(home: Home) -> None:
    write_spool(home.spool, "a", [record(samples(3)), record(samples(3))])
    summary = home.json("ingest", home.spool)
    assert (summary["records"], summary["already_loaded"]) == (1, 1)
    assert counts(home) == (3, 3)


def test_every_field_arrives_as_sent_and_absent_is_not_zero(home: Home) -> None:
    """Field n carries a value of its own; a second row carries present zeros, a third nothing optional."""
    base = samples(3)
    full: dict[str, Value] = dict(base[0])
    for name, field in FIELDS.items():
        if name not in full:
            of_its_own: dict[str, Value] = {"bool": True, "string": f"v{field.number}"}
            full[name] = of_its_own.get(field.type, field.number)
    zero = {**base[1], **{name: "" if f.type == "string" else 0 for name, f in FIELDS.items() if f.optional}}
    bare = {name: value for name, value in base[2].items() if not FIELDS[name].optional}
    write_spool(home.spool, "a", [record([full, zero, bare])])
    home.run("ingest", home.spool)
    got_full, got_zero, got_bare = home.query("select * from tcp_samples final order by cookie")
    for name, field in FIELDS.items():
        if field.type in ("TcpState", "SampleKind", "bytes"):
            continue
        assert got_full[name] == full[name], name
        if field.optional:
            assert got_zero[name] is not None, name
            assert not got_zero[name], name
            assert got_bare[name] is None, name
    assert (got_full["state"], got_full["kind"]) == ("ESTABLISHED", "POLL")
    assert (got_full["src_ip"], got_full["dst_ip"]) == ("::ffff:10.77.1.10", "::ffff:10.77.2.20")


def test_the_table_has_a_column_for_every_field_of_the_contract(home: Home) -> None:
    columns = {
        row["name"]: row["type"]
        for row in home.query("select name, type from system.columns where table = 'tcp_samples'")
    }
    assert set(FIELDS) <= set(columns)
    assert {name for name in FIELDS if "Nullable" in columns[name]} == {n for n, f in FIELDS.items() if f.optional}


def test_addresses_find_their_pop_in_both_families(home: Home) -> None:
    pairs = [
        ("10.77.1.9", "10.77.3.1", "ams", "nyc", 4),
        ("fd77:2::5", "fd77:1::6", "fra", "ams", 6),
        ("192.0.2.1", "10.77.2.1", "", "fra", 4),
        ("10.77.1.9", "2001:db8::1", "ams", "", 6),
    ]
    rows = [Socket("h", index, src, dst).at(START, 1, 0) for index, (src, dst, *_) in enumerate(pairs)]
    # A dual-stack socket: family 10, but IPv4 travels.
    rows.append(Socket("h", 4, "10.77.1.9", "10.77.2.7").at(START, 1, 0, family=10))
    write_spool(home.spool, "a", [record(rows)])
    home.run("ingest", home.spool)
    got = home.query("select src_pop, dst_pop, ip_version from tcp_samples final order by cookie")
    expected = [tuple(pair[2:]) for pair in pairs] + [("ams", "fra", 4)]
    assert [(g["src_pop"], g["dst_pop"], g["ip_version"]) for g in got] == expected


def test_a_changed_fleet_enriches_what_comes_after_and_splits_no_duplicate(home: Home) -> None:
    write_spool(home.spool, "a", [record(samples(2))])
    home.run("ingest", home.spool)
    home.fleet.write_text(home.fleet.read_text().replace("fra:", "muc:").replace("fra-1", "muc-1"))
    # The same samples in another record: a redelivery, which the ledger cannot know.
    write_spool(home.spool, "b", [record(samples(3))])
    home.run("ingest", home.spool)
    assert counts(home) == (5, 3)
    assert {row["dst_pop"] for row in home.query("select dst_pop from tcp_samples final")} == {"muc"}


POISONED_ROWS: dict[str, dict[str, Value]] = {
    "poison: address of four bytes": {"src_ip": b"abcd"},
    "poison: address of 17 bytes": {"dst_ip": bytes(17)},
    "poison: unknown state": {"state": 14},
    "poison: state beyond 32 bits": {"state": 2**63},
    "poison: negative kind": {"kind": -1},
    "poison: port too large": {"src_port": 70000},
    "poison: number of eight bits too large": {"ca_state": 256},
    "poison: not UTF-8": {"host": b"ams\xff"},
    "poison: NUL": {"congestion_algorithm": "cu\0bic"},
    "poison: endless name": {"pop": "a" * 256},
    "poison: no host": {"host": ""},
    "poison: before the calendar": {"time_unix_us": -(2**63)},
    "poison: after the calendar": {"time_unix_us": 2**63 - 1},
}


def damaged(kind: str) -> tuple[list[bytes], int]:
    """Three records of which the middle or the tail is bad, and how many rows survive."""
    good = [record(samples(2, first=10 * n)) for n in range(1, 4)]
    if kind == "flipped byte":
        middle = bytearray(good[1])
        middle[40] ^= 0x01
        return [good[0], bytes(middle), good[2]], 4
    if kind == "truncated tail":
        return [good[0], good[1], good[2][:-5]], 4
    if kind == "truncated header":
        return [good[0], good[1], good[2][:11]], 4
    if kind == "garbage between":
        return [good[0], os.urandom(3000).replace(b"STB1", b"...."), good[1], good[2]], 6
    if kind == "lying length":
        return [good[0], good[1][:12] + b"\xff\xff\xff\x7f" + good[1][16:], good[2]], 4
    if kind == "marker inside garbage":
        return [b"STB1STB1" + good[1][:30], good[0], good[2]], 4
    if kind == "zeros at the end":
        return [*good, bytes(4096)], 6
    if kind == "unknown codec":
        return [good[0], frame(b"xxxx", 1, codec=9), good[2]], 4
    if kind == "not zstd":
        return [good[0], frame(b"not a zstd frame", 1), good[2]], 4
    if kind == "zstd bomb":
        bomb = zstandard.ZstdCompressor(level=1).compress(bytes(65 << 20))
        return [good[0], frame(bomb, 1), good[2]], 4
    if kind == "wrong row count":
        return [good[0], frame(message([row(samples(1)[0])]), 2, codec=0), good[2]], 4
    if kind == "row past its message":
        plain = message([row(samples(1)[0])])
        return [good[0], frame(plain[:-3], 1, codec=0), good[2]], 4
    if kind in POISONED_ROWS:
        # The row beside it in the same record is loaded.
        [bad] = samples(1, first=99)
        return [good[0], record([{**bad, **POISONED_ROWS[kind]}, samples(1)[0]]), good[2]], 5
    if kind == "poison: not protobuf":
        return [good[0], frame(message([b"\xff" * 40]), 1, codec=0), good[2]], 4
    raise ValueError(kind)


KINDS = (
    "flipped byte",
    "truncated tail",
    "truncated header",
    "garbage between",
    "lying length",
    "marker inside garbage",
    "zeros at the end",
    "unknown codec",
    "not zstd",
    "zstd bomb",
    "wrong row count",
    "row past its message",
    *POISONED_ROWS,
    "poison: not protobuf",
)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_bytes_are_kept_aside_and_nothing_else_is_lost(shared: Home, tmp_path: Path, kind: str) -> None:
    records, survivors = damaged(kind)
    spool = tmp_path / "kinds"
    path = write_spool(spool, "bad", records)
    write_spool(spool, "good", [record(samples(5, first=1000))])
    before = path.read_bytes()
    for table in ("tcp_samples", "ingest_ledger"):
        shared.open().execute(f"truncate table {table}")

    result = shared.run("ingest", spool, "--json", code=2)
    summary = json.loads(result.stdout)
    assert summary["rows"] == survivors + 5
    assert summary["rejected_records"] == 1
    kept = list((spool / "rejected").iterdir())
    assert len(kept) == 1
    position = int(kept[0].name.split(".")[-3])
    assert kept[0].read_bytes() == before[position : position + summary["rejected_bytes"]]
    [line] = result.stderr.splitlines()
    assert f"{path}: byte {position}: " in line
    assert str(kept[0]) in line
    assert path.read_bytes() == before

    again = shared.json("ingest", spool)
    assert (again["rejected_records"], again["rejected_bytes"], again["rows"]) == (0, 0, 0)
    assert again["already_rejected"] == 1
    [physical, logical] = counts(shared)
    assert logical == survivors + 5
    if not kind.startswith("poison"):
        assert physical == logical


def test_each_edges_folder_is_loaded_and_a_bad_one_costs_no_other(home: Home, tmp_path: Path) -> None:
    """As `spools.yml` leaves them. Where a link leads, and what was kept aside, is nobody's spool."""
    write_spool(home.spool, "own", [record(samples(1))])
    for number, edge in enumerate(("ams-1", "ams-2"), 1):
        (home.spool / edge).mkdir()
        write_spool(home.spool / edge, "own", [record(samples(3, first=10 * number))])
    (home.spool / "ams-1/bad.spool").write_bytes(b"nothing like it")
    for folder in (home.spool / "rejected", tmp_path / "elsewhere"):
        folder.mkdir()
        write_spool(folder, "not", [record(samples(5, first=100))])
    (home.spool / "linked").symlink_to(tmp_path / "elsewhere")
    result = home.run("ingest", home.spool, "--delete", "--json", code=2)
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["rejected_records"], summary["deleted_files"]) == (7, 1, 3)
    assert counts(home) == (7, 7)
    assert len(list((home.spool / "ams-1/rejected").iterdir())) == 1
    # A folder that --delete has emptied may be empty; another may not.
    for path in [*home.spool.glob("*/*.spool"), *home.spool.glob("*.spool")]:
        path.unlink()
    assert home.json("ingest", home.spool, "--delete")["files"] == 0
    empty = home.run("ingest", home.spool, code=2)
    assert "has no sealed spool file" in empty.stderr


def test_poison_among_many_records_is_found(home: Home) -> None:
    records = [record(samples(3, first=10 * n)) for n in range(1, 40)]
    records[17] = frame(message([b"\xff" * 40]), 1, codec=0)
    write_spool(home.spool, "many", records)
    summary = json.loads(home.run("ingest", home.spool, "--json", code=2).stdout)
    assert (summary["records"], summary["rejected_records"]) == (38, 1)
    assert counts(home)[1] == 38 * 3


def test_delete_removes_only_what_is_wholly_loaded(home: Home) -> None:
    good = write_spool(home.spool, "good", [record(samples(2))])
    bad = write_spool(home.spool, "bad", [record(samples(2, first=9)), b"junk"])
    still_open = home.spool / "ams-1-3.spool.open"
    still_open.write_bytes(record(samples(2, first=30)))
    home.run("ingest", home.spool, "--delete", code=2)
    assert (good.exists(), bad.exists(), still_open.exists()) == (False, True, True)
    assert counts(home)[1] == 4
    home.run("ingest", home.spool, "--delete")
    assert bad.exists()


def test_a_field_that_this_version_does_not_know_is_passed_over(home: Home) -> None:
    newer = row(samples(1)[0]) + b"\xf8\x3f\x05"
    write_spool(home.spool, "newer", [frame(message([newer]), 1, codec=0)])
    assert home.json("ingest", home.spool)["rows"] == 1


def test_clocks_of_every_age_load(home: Home) -> None:
    """200 days in one record; the epoch, and values beyond any date, are kept aside."""
    moments = [START + 86_400 * day for day in range(200)] + [0, -5, 2**62 // 1_000_000]
    rows = [Socket("h", n, "10.77.1.1", "10.77.2.2").at(moment, 1, 0) for n, moment in enumerate(moments)]
    write_spool(home.spool, "clocks", [record(rows), record(samples(3))])
    summary = json.loads(home.run("ingest", home.spool, "--json", code=2).stdout)
    assert (summary["rows"], summary["records"], summary["rejected_records"]) == (203, 1, 1)
    [problem] = summary["problems"]
    assert "byte 0: 3 of its 203 rows do not fit: time_unix_us: is too far from now" in problem
    assert counts(home)[1] == 203
    assert json.loads(home.run("ingest", home.spool, "--json").stdout)["rows"] == 0


def test_bad_fleet_loads_nothing(home: Home) -> None:
    write_spool(home.spool, "a", [record(samples(2))])
    home.fleet.write_text(home.fleet.read_text().replace("10.77.2.0/24", "10.77.1.128/25"))
    [line] = home.refused("ingest", home.spool)
    assert "fleet.yaml:10: pops.fra.prefixes[0]: 10.77.1.128/25 overlaps 10.77.1.0/24 of pop ams (line 5)" in line
    assert counts(home) == (0, 0)


def test_a_store_without_schema_is_refused(bare_home: Home) -> None:
    [line] = bare_home.refused("ingest", bare_home.spool)
    assert "springtide migrate" in line
    assert not (bare_home.path / "store").exists()


def test_an_unreadable_place_for_rejects_fails_and_forgets_nothing(home: Home) -> None:
    write_spool(home.spool, "a", [b"junk", record(samples(2))])
    (home.spool / "rejected").write_text("in the way")
    failed = home.run("ingest", home.spool, "--json", code=1)
    assert "rejected" in failed.stderr
    summary = json.loads(failed.stdout)
    assert (summary["rejected_records"], summary["unkept_records"], summary["rows"]) == (0, 1, 2)
    (home.spool / "rejected").unlink()
    summary = json.loads(home.run("ingest", home.spool, "--json", code=2).stdout)
    assert (summary["rejected_records"], summary["unkept_records"], summary["already_loaded"]) == (1, 0, 1)


# Kills the process at the critical moment: rows are inserted, the ledger is not written.
KILLED_BETWEEN = """
import os, signal, sys
from springtide.cli import cli
from springtide.observe import ledger
ledger.record_loaded = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cli.main(["ingest", sys.argv[1]])
"""


def test_killed_between_rows_and_ledger_counts_once(own_home: Home) -> None:
    write_spool(own_home.spool, "a", [record(samples(50))])
    environment = {**os.environ, **own_home.environment}
    done = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, str(own_home.spool)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert counts(own_home) == (50, 50)
    assert own_home.json("ingest", own_home.spool)["rows"] == 50
    assert counts(own_home) == (100, 50)
    own_home.json("ingest", own_home.spool)
    assert counts(own_home) == (100, 50)


# One record a batch, announced: thirty inserts and thirty ledger entries in which to be killed.
SMALL_STEPS = """
import sys
from springtide.cli import cli
from springtide.observe import ingest, ledger
ingest.BATCH_BYTES, ingest.LOOKUP_RECORDS = 1, 1
look_up = ledger.known
def announced(store, digests):
    print("step", flush=True)
    return look_up(store, digests)
ledger.known = announced
cli.main(["ingest", sys.argv[1]])
"""


@pytest.mark.proof
def test_killed_anywhere_and_run_again_counts_once(own_home: Home) -> None:
    for n in range(30):
        write_spool(own_home.spool, f"f{n:02}", [record(samples(200, first=1 + 200 * n))])
    environment = {**os.environ, **own_home.environment}
    ends = []
    for steps in (1, 2, 5, 9, 14, 20):
        command = [sys.executable, "-c", SMALL_STEPS, str(own_home.spool)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline() == b"step\n"
        time.sleep(0.003 * steps)
        process.kill()
        ends.append(process.wait())
        process.stdout.close()
    assert -signal.SIGKILL in ends
    own_home.run("ingest", own_home.spool)
    assert counts(own_home)[1] == 6000
    assert own_home.json("ingest", own_home.spool)["rows"] == 0


def test_the_delivery_delay_of_rows_can_be_queried(home: Home) -> None:
    began = time.time()
    samples = [
        Socket("ams-1", 1, "10.77.1.1", "10.77.2.1", "ams").at(began - age, poll=7, bytes_acked=0) for age in (60, 90)
    ]
    write_spool(home.spool, "ams-1", [record(samples)])
    home.run("ingest", home.spool)
    rows = home.query("select host, sum(row_count) as n, max(lag_max_s) as lag from ingest_lag group by host")
    assert [(row["host"], int(row["n"])) for row in rows] == [("ams-1", 2)]
    assert 88 < rows[0]["lag"] < 92 + time.time() - began
