"""clickhouse:// against a real server; what that version does not support, against a recorder and chDB.

Long: one server for all of it, which takes seconds to start.
"""

from __future__ import annotations

import importlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from springtide.errors import InputError, StoreError
from springtide.store import Limits, Store, open_store
from springtide.store.base import encode
from springtide.store.reading import query_read_only

from testkit.home import ROUND, Home
from testkit.oldserver import PASSWORD, PATIENCE_S, USER, OldServer, install
from testkit.proto import message, row
from testkit.traffic import Socket

SECRET = quote(PASSWORD, safe="")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldServer]:
    server = install(tmp_path_factory.mktemp("clickhouse"))
    server.start()
    yield server
    server.kill()


def url(server: OldServer, options: str = "", *, host: str = "127.0.0.1", port: int = 0) -> str:
    return f"clickhouse://{USER}:{SECRET}@{host}:{port or server.port}/springtide{options}"


def connect(address: str, *, create: bool = True) -> Store:
    return open_store(address, create=create, wait_s=1, on_wait=print)


@pytest.fixture
def remote(server: OldServer) -> Iterator[Store]:
    # Messages are parsed by an engine in this process, which has one store.
    Home.release()
    store = connect(url(server))
    yield store
    store.close()


# Expressions that both engines have, and whose JSON form differs by settings.
EXPRESSIONS = [
    "toUInt64('18446744073709551615')",
    "toInt64('-9223372036854775808')",
    "nan",
    "1 / 0",
    "toFloat32(0.1)",
    "[toFloat32(0.1), toFloat32(16777216)]",
    "0.1 + 0.2",
    "toDateTime('2026-01-02 03:04:05', 'UTC')",
    "[toDateTime('2026-01-02 03:04:05', 'UTC')]",
    "toDate('2026-01-02')",
    "cast(2 as Enum8('a' = 1, 'b' = 2))",
    "cast(null as Nullable(UInt8))",
    "cast(7 as Nullable(UInt8))",
    "tuple(1, 'x', toDate('2026-01-02'))",
    "toFixedString('abc', 3)",
    "unhex('FF41')",
    "'tab\\t, newline\\n, quote\\' and \\\\'",
    "'Füße 👣'",
    "emptyArrayString()",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_both_engines_give_the_same_values(remote: Store, store: Store, expression: str) -> None:
    sql = f"select {expression} as x"
    assert remote.query(sql) == store.query(sql)


TABLE = """create table {name} (
    n UInt64, i Int32, x Float64, s String, e Enum8('none' = 0, 'set' = 1), m Nullable(UInt32),
    t DateTime('UTC'), l Nullable(DateTime('UTC')), d Date, a Array(UInt16)
) engine = {engine}"""


def test_columns_come_back_alike_on_both_engines(remote: Store, store: Store) -> None:
    columns = {
        "n": np.array([2**64 - 1, 0], "<u8"),
        "i": np.array([-5, 2**31 - 1], "<i8"),
        "x": np.array([0.1, 5e-324]),
        "s": np.array([b"\xc3\xa4\t'\\", b""], "S8"),
        "e": np.array([1, 0], "u1"),
        "m": np.ma.masked_equal(np.array([0, 7], "<u4"), 0),
        "t": np.array([ROUND, 1], "<u4"),
        "l": np.ma.masked_equal(np.array([0, ROUND], "<u4"), 0),
    }
    instants = "toUnixTimestamp(t) as t, toUnixTimestamp(l) as l"
    found = []
    for one in (remote, store):
        one.execute(TABLE.format(name="by_columns", engine="Memory"))
        one.insert_columns("by_columns", columns)
        one.insert_columns("by_columns", {name: column[:0] for name, column in columns.items()})
        found.append(one.query(f"select n, i, x, s, e, m, {instants} from by_columns"))
    assert found[0] == found[1]
    assert found[0] == [
        {"n": 2**64 - 1, "i": -5, "x": 0.1, "s": "ä\t'\\", "e": "set", "m": None, "t": ROUND, "l": None},
        {"n": 0, "i": 2**31 - 1, "x": 5e-324, "s": "", "e": "none", "m": 7, "t": 1, "l": ROUND},
    ]


def test_what_is_inserted_comes_back_alike_on_both_engines(remote: Store, store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"n": 2**64 - 1, "i": -5, "x": 0.1, "s": "ä\t'\\", "e": "set", "m": None}
        | {"t": "2026-01-02 03:04:05", "l": None, "d": "2026-01-02", "a": [1, 65535]},
        {"n": 0, "i": 2**31 - 1, "x": 5e-324, "s": "", "e": "none", "m": 7}
        | {"t": "1970-01-01 00:00:01", "l": "2026-01-02 03:04:05", "d": "2026-01-03", "a": []},
    ]
    for one in (remote, store):
        one.execute(TABLE.format(name="alike", engine="Memory"))
        one.insert("alike", rows)
        one.insert("alike", [])
        assert one.query("select * from alike") == rows


@pytest.mark.parametrize("count", [0, 3])
def test_columns_are_alike_on_both_engines(remote: Store, store: Store, count: int) -> None:
    dtype = np.dtype([("name", "S64"), ("big", "<u8"), ("small", "u1"), ("double", "<f8")])
    sql = (
        "select toFixedString(concat('pop', toString(number)), 64) as name, toUInt64('18446744073709551615') as big, "
        f"toUInt8(number) as small, if(number = 1, nan, 0.1 + number) as double from numbers(3) where number < {count}"
    )
    here, there = store.columns(sql, dtype), remote.columns(sql, dtype)
    assert len(here) == count
    assert there.tobytes() == here.tobytes()


def test_columns_go_by_name(remote: Store, store: Store) -> None:
    dtype = np.dtype([("small", "u1"), ("name", "S4"), ("big", "<u8")])
    for one in (remote, store):
        found = one.columns("select toUInt64(7) as big, toUInt8(1) as small, toFixedString('ams', 4) as name", dtype)
        assert found.tolist() == [(1, b"ams", 7)]
        with pytest.raises(StoreError, match=r"lacks the columns \['big'\] and has \['large'\]"):
            one.columns("select toUInt64(7) as large, toUInt8(1) as small, toFixedString('ams', 4) as name", dtype)


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_doubles_come_back_bit_for_bit(remote: Store, values: list[float]) -> None:
    remote.execute("create table if not exists doubles (i UInt32, x Float64) engine = Memory")
    remote.insert("doubles", [{"i": i, "x": x} for i, x in enumerate(values)])
    got = remote.query("select x from doubles order by i")
    remote.execute("drop table doubles")
    assert [row["x"] for row in got] == values


def test_values_that_do_not_fit_are_one_line_and_leave_the_store_usable(remote: Store) -> None:
    remote.execute("create table narrow (n UInt8, t DateTime('UTC')) engine = Memory")
    good = {"n": 1, "t": "2026-01-02 03:04:05"}
    for bad in ({"n": "many"}, {"n": None}, {"n": 2**70}, {"t": "yesterday"}):
        with pytest.raises(StoreError, match=r"fit|refuses") as caught:
            remote.insert("narrow", [good, good | bad])
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match="fit"):
        remote.insert("narrow", [{"no_such_column": 1}])
    remote.insert("narrow", [good])
    assert remote.query("select count() as c from narrow") == [{"c": 1}]


def test_messages_are_parsed_here_and_enriched_there(remote: Store) -> None:
    remote.execute(
        "create table small (host String, kind Int8, cwnd Nullable(UInt32), rtt Nullable(UInt32)) engine = Memory"
    )
    samples = [Socket("ams-1", cookie, "10.77.1.1", "10.77.2.1").at(1, 1, 10, snd_cwnd=cookie) for cookie in (3, 4)]
    envelopes = []
    for sample in samples:
        framed = message([row(sample)])
        assert framed[0] & 0x80  # a length of two bytes
        envelopes.append(framed[2:])
    select = "select upper(host) as host, kind, snd_cwnd as cwnd, rtt"
    structure = "host String, kind Int8, snd_cwnd Nullable(UInt32), rtt Nullable(UInt32)"
    remote.insert_messages("small (host, kind, cwnd, rtt)", select, structure, envelopes)
    expected = [{"host": "AMS-1", "kind": 1, "cwnd": cwnd, "rtt": None} for cwnd in (3, 4)]
    assert remote.query("select * from small order by cwnd") == expected
    with pytest.raises(StoreError, match="DB::Exception"):
        remote.parse_messages(select, structure, [b"\xff\xff\xff"])


def test_engine_errors_are_one_line_with_their_code(remote: Store) -> None:
    with pytest.raises(StoreError, match=r"DB::Exception: Table .*nowhere") as caught:
        remote.query("select *\nfrom nowhere")
    assert caught.value.code == 60
    assert "\n" not in str(caught.value)
    assert "Stack trace" not in str(caught.value)


def test_a_server_too_old_for_parameters_is_named(remote: Store) -> None:
    with pytest.raises(StoreError, match=r"server 18\.16\.1 has no query parameters; use ClickHouse 26\.3 or newer"):
        remote.query("select {x:UInt8}", {"x": 1})


def test_a_database_is_created_only_on_request(server: OldServer) -> None:
    address = url(server).removesuffix("springtide") + "another"
    with pytest.raises(StoreError, match="another") as caught:
        connect(address, create=False)
    assert caught.value.code == 81
    connect(address).close()
    connect(address, create=False).close()


def test_a_query_ends_at_its_timeout(server: OldServer) -> None:
    store = connect(url(server, "?query_timeout_s=1"))
    with pytest.raises(StoreError) as caught:
        store.query("select count() from system.numbers where not ignore(number)")
    assert caught.value.code == 159
    assert store.query("select 1 as one") == [{"one": 1}]
    store.close()


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except StoreError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def running(watcher: Store, mark: str) -> bool:
    query = f"select count() as c from system.processes where query like '%{mark}%' and query not like '%processes%'"
    return bool(watcher.query(query)[0]["c"])


def test_kill_9_mid_query_a_read_is_retried_and_a_write_is_not(server: OldServer) -> None:
    watcher = connect(url(server))
    watcher.execute("create table kept (n UInt64) engine = MergeTree order by n")
    watcher.insert("kept", [{"n": 1}])
    reader, writer = (connect(url(server, "?retries=12")) for _ in range(2))
    slow = "from system.numbers where sleepEachRow(0.1) = 0 limit 20 settings max_block_size = 1"
    reading, read = in_thread(lambda: reader.query(f"select count() as marked_read from (select number {slow})"))
    writing, written = in_thread(lambda: writer.execute(f"insert into kept select number as marked_write {slow}"))
    try:
        wait_until(lambda: running(watcher, "marked_read") and running(watcher, "marked_write"))
        server.kill()
        writing.join(PATIENCE_S)
    finally:
        # A second time has no effect; without it a server that still ran would not be ended.
        server.kill()
        server.start()
    reading.join(PATIENCE_S)
    assert read == [[{"marked_read": 20}]]
    [refusal] = written
    assert "connection lost during a statement" in str(refusal)
    # The same stores work again, also one that was idle meanwhile; acknowledged rows are stored.
    for store in (watcher, reader, writer):
        assert store.query("select n from kept") == [{"n": 1}]
        store.close()


def test_a_connection_that_the_server_closed_while_idle_is_opened_again_even_for_writes(server: OldServer) -> None:
    store = connect(url(server))
    store.execute("create table idle (n UInt64) engine = MergeTree order by n")
    server.kill()
    server.start()
    store.insert("idle", [{"n": 5}])
    assert store.query("select n from idle") == [{"n": 5}]
    store.close()


def test_no_server_there(server: OldServer) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(StoreError, match=r"cannot connect in 1 tries: .*refused.*; check host, port"):
            connect(url(server, "?retries=0", port=nobody.getsockname()[1]))


def test_a_server_that_sends_nothing_is_given_up(server: OldServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(StoreError, match="timed out"):
        connect(url(server, "?retries=0&connect_timeout_s=0.3", port=mute.getsockname()[1]))


def test_tls_trusts_the_named_authority_and_the_name_in_the_certificate(server: OldServer) -> None:
    port, ca = server.secure_port, server.folder / "server.crt"
    store = connect(url(server, f"?secure=1&ca={ca}", host="localhost", port=port))
    assert store.query("select 1 as one") == [{"one": 1}]
    store.close()
    for options, reason in [
        ("?secure=1&retries=0", "self-signed certificate"),
        (f"?secure=1&retries=0&ca={ca}", "IP address mismatch"),
        ("?retries=0", "cannot connect"),
    ]:
        with pytest.raises(StoreError, match=reason):
            connect(url(server, options, port=port))
    connect(url(server, "?secure=1&verify=0", port=port)).close()


@pytest.mark.parametrize("place", ["url", "file", "environment"])
def test_the_password_comes_from_one_of_three_places(
    server: OldServer, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = url(server).replace(f":{SECRET}@", "@")
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    if place == "environment":
        monkeypatch.setenv("SPRINGTIDE_STORE_PASSWORD", PASSWORD)
    address = {"url": url(server), "file": f"{plain}?password_file={file}", "environment": plain}[place]
    store = connect(address)
    assert store.query("select currentDatabase() as d") == [{"d": "springtide"}]
    assert PASSWORD not in f"{store.url} {store!r}"
    store.close()


def test_a_wrong_password_is_not_repeated(server: OldServer) -> None:
    with pytest.raises(StoreError) as caught:
        connect(url(server).replace(SECRET, "Geheimnis"))
    assert "Geheimnis" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_password_on_the_command_line_is_refused(bare_home: Home) -> None:
    [line] = bare_home.refused("migrate", "--store", "clickhouse://me:Geheimnis@db.example/springtide")
    assert "list of processes; put it into the variable SPRINGTIDE_STORE_PASSWORD" in line
    assert "Geheimnis" not in line


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("clickhouse://me:Geheimnis@/springtide", "has no host"),
        ("clickhouse://me:Geheimnis@db.example", "must name a database"),
        ("clickhouse://me:Geheimnis@db.example/a;b", "must name a database"),
        ("clickhouse://me:Geheimnis@db.example:port/a", "not a valid URL with a host and a port"),
        ("clickhouse://me:Geheimnis@db.example:99999/a", "not a valid URL with a host and a port"),
        ("clickhouse://me:Geheimnis@[::1/a", "not a valid URL with a host and a port"),
        ("clickhouse:me:Geheimnis@db.example/a", "has no host"),
        ("clickhouses://me:Geheimnis@db.example/a", "is not a store"),
        ("clickhouse://me:Geheimnis@db.example/a?tls=1", "unknown option 'tls'; known are secure"),
        ("clickhouse://me:Geheimnis@db.example/a?secure=maybe", "secure = 'maybe' is not 1 or 0"),
        ("clickhouse://me:Geheimnis@db.example/a?retries=99", "retries = '99' is not 0 to 20"),
        ("clickhouse://me:Geheimnis@db.example/a?connect_timeout_s=nan", "is not 0.1 to 86400 seconds"),
        ("clickhouse://me:Geheimnis@db.example/a?secure=1&ca=/nowhere", "ca = '/nowhere' is not a PEM file"),
        ("clickhouse://me:Geheimnis@db.example/a?verify=0", "without secure=1"),
        ("clickhouse://me:Geheimnis@db.example/a?password_file=/dev/null", "keep one"),
    ],
)
def test_urls_that_are_wrong_are_refused_without_their_password(address: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(address, create=False, wait_s=1, on_wait=print)
    assert message in str(caught.value)
    assert "Geheimnis" not in str(caught.value)


# Bytes that the driver sends to a new server: recorded, because the real one at hand is older than parameters.
REVISION = 54459


def word(text: bytes) -> bytes:
    assert len(text) < 128
    return bytes([len(text)]) + text


HELLO = b"\0" + word(b"Recorder") + b"\x1a\x03" + b"\xbb\xa9\x03" + word(b"UTC") + word(b"recorder") + b"\x01"


# The end of a query: an empty block of data with no name.
NO_MORE_DATA = b"\x02\0\x01\0\x02\xff\xff\xff\xff\0\0\0"


class Recorder:
    """A server as far as the driver can see: it sends a hello, answers pings, and confirms every query.

    TCP may split and join what it receives, and the driver may connect again.
    """

    def __init__(self) -> None:
        self.queries: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._greet(connection)
                self._answer(connection)

    def _greet(self, connection: socket.socket) -> None:
        """Receives the driver's hello, answers it, and receives the quota key, which is empty."""
        # The driver waits for the answer, so nothing is joined to its hello.
        hello = b""
        while not hello.endswith(word(b"me") + b"\0"):
            if not (chunk := connection.recv(1 << 20)):
                return
            hello += chunk
        connection.sendall(HELLO)
        connection.recv(1)

    def _answer(self, connection: socket.socket) -> None:
        pending = b""
        while chunk := connection.recv(1 << 20):
            pending += chunk
            if pending == b"\x04":
                connection.sendall(b"\x04")
            elif pending[0] == 1 and pending.endswith(NO_MORE_DATA):
                self.queries.append(pending)
                connection.sendall(b"\x05")
            else:
                continue
            pending = b""

    def close(self) -> None:
        # Closing alone does not wake the thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)


def take(data: bytes) -> tuple[bytes, bytes]:
    """A string of the protocol, and what follows it."""
    length = shift = 0
    for i, byte in enumerate(data):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return data[i + 1 : i + 1 + length], data[i + 1 + length :]
    raise AssertionError("no string")


def sent_parameters(packet: bytes, sql: str) -> dict[str, str]:
    """Name and value of each parameter after the query's text; each has the flag of a custom setting."""
    rest = packet[packet.index(sql.encode()) + len(sql.encode()) :]
    found: dict[str, str] = {}
    while True:
        name, rest = take(rest)
        if not name:
            return found
        assert rest[0] == 2
        value, rest = take(rest[1:])
        found[name.decode()] = value.decode()


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[Recorder, Store]]:
    recorder = Recorder()
    store = connect(f"clickhouse://me@127.0.0.1:{recorder.port}/springtide")
    yield recorder, store
    store.close()
    recorder.close()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "String": TEXT,
    "Array(String)": st.lists(TEXT, max_size=4),
    "Array(UInt64)": st.lists(st.integers(0, 2**64 - 1), max_size=4),
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "Float64": st.floats(allow_nan=False, allow_infinity=False),
    "Nullable(UInt8)": st.none() | st.integers(0, 255),
    "Bool": st.booleans(),
}


@pytest.mark.parametrize("kind", list(PARAMETERS))
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parameters_are_sent_as_the_protocol_requires(
    recorded: tuple[Recorder, Store], store: Store, kind: str, data: st.DataObject
) -> None:
    value = data.draw(PARAMETERS[kind])
    recorder, client = recorded
    sql = f"select {{x:{kind}}} as x"
    client.execute(sql, {"x": value})
    wire = sent_parameters(recorder.queries[-1], sql)
    # The server parses the value as a literal (a dumped Field), whose value is the parameter's text.
    [literal] = store.query(f"select {wire['x']} as text")
    assert literal["text"] == encode(value)
    [answer] = store.query(sql, {"x": value})
    # A double that is a whole number is printed as one, in its shortest form.
    assert (float(answer["x"]) if isinstance(value, float) else answer["x"]) == value


def test_the_driver_is_loaded_only_for_servers(bare_home: Home) -> None:
    command = "import sys, springtide.cli; sys.exit('clickhouse_driver' in sys.modules or 'chdb' in sys.modules)"
    subprocess = importlib.import_module("subprocess")
    path = str(Path(__file__).resolve().parents[1])
    assert subprocess.run([sys.executable, "-c", command], env={"PYTHONPATH": path}, check=False).returncode == 0


def test_who_may_only_read_is_held_to_it_by_every_query(server: OldServer, remote: Store) -> None:
    """The limits are sent with each query, so that a new connection has them too."""
    remote.execute("create table if not exists readers (a UInt8) engine = Log")
    limits = Limits(seconds=2, memory_bytes=100_000_000, rows=1000)
    reader = open_store(url(server), create=False, wait_s=1, on_wait=print, limits=limits)
    for again in range(2):
        for attack in ("insert into readers select 1", "drop table readers", "set readonly = 0"):
            with pytest.raises(StoreError, match="readonly"):
                reader.execute(attack)
        with pytest.raises(StoreError, match="readonly"):
            reader.query("select 1 as a settings readonly = 0, max_execution_time = 0")
        with pytest.raises(StoreError, match="Timeout"):
            reader.query("select count() from system.numbers")
        with pytest.raises(StoreError, match="Limit for result"):
            reader.query("select number from system.numbers")
        assert query_read_only(reader, "select count() as n from readers", {}) == [{"n": 0}]
        with pytest.raises(InputError, match="is not a SELECT"):
            query_read_only(reader, "kill query where 1", {})
        if not again:
            server.kill()
            server.start()
    reader.close()
    remote.execute("drop table readers")
