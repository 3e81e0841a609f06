"""`springtide-edge probe` between its two sides, and against what neither should trust the other for."""

from __future__ import annotations

import json
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from testkit.edge import PROGRAM, bundle
from testkit.host import ENTRIES, FAR, NEAR, Host

SIZES = [10_000, 50_000, 100_000]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"

LONG = 120  # seconds: a run takes one, or 15 where servers hold it; this is for a machine that stands still


def fetch(
    folder: Path, targets: list[str], *more: str, inside: tuple[str, ...] = ()
) -> tuple[str, list[dict[str, Any]]]:
    """Output of one run, and the lines that it left, in the order of sizes."""
    folder.mkdir(exist_ok=True)
    before = set(folder.iterdir())
    file = folder.with_suffix(".targets")
    file.write_text("".join(f"{target}\n" for target in targets))
    command = [*inside, str(PROGRAM), "probe", "--targets", str(file), "--out", str(folder), "--edge", "fra-1"]
    done = subprocess.run([*command, "--spread", "0", *more], check=False, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stderr) == (0, "")
    [made] = set(folder.iterdir()) - before
    lines = [json.loads(line) for line in made.read_text().splitlines()]
    return done.stdout, sorted(lines, key=lambda line: (line["bytes"], line["server"]))


@contextmanager
def serving(*addresses: str, inside: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """The server, as soon as it takes connections."""
    given = [word for address in addresses for word in ("--serve", address)]
    with subprocess.Popen([*inside, str(PROGRAM), "probe", *given], text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    """Tries until the server listens."""
    deadline = time.monotonic() + LONG
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), LONG, (source, 0))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def answered(port: int, request: bytes, source: str = "127.0.0.1") -> bytes:
    """All that comes for a request, until the server ends it."""
    with connected(port, source) as one:
        one.sendall(request)
        found = b""
        while piece := one.recv(1 << 16):
            found += piece
        return found


# --- what it measures


def test_each_object_comes_once_from_each_target(tmp_path: Path) -> None:
    port, closed = free(), free()
    with serving(f"127.0.0.1:{port}", f"127.0.0.2:{port}"):
        connected(port).close()
        said, lines = fetch(tmp_path / "out", [f"127.0.0.1:{port}", f"127.0.0.2:{port}", f"127.0.0.3:{closed}"])
    assert said.endswith(": 6 ok, 3 unreachable\n")
    wanted = [(size, f"127.0.0.{n}", "unreachable" if n == 3 else "ok") for size in SIZES for n in (1, 2, 3)]
    assert [(line["bytes"], line["server"], line["result"]) for line in lines] == wanted
    for line in lines:
        assert (line["host"], abs(line["time"] - time.time()) < LONG) == ("fra-1", True)
        if line["result"] == "ok":
            assert 0 < line["connect_us"] <= line["first_byte_us"] <= line["total_us"] < LONG * 1_000_000
            assert line["window"] >= 10
        else:
            assert not {"connect_us", "first_byte_us", "total_us", "window"} & set(line)


@pytest.mark.root
@pytest.mark.parametrize("by", ["routes", "bpf"])
def test_the_servers_side_starts_with_the_window_in_force(host: Host, tmp_path: Path, by: str) -> None:
    """The edge that serves has the window in force for the prefix of the edge that fetches."""
    commands = [f"route add {near} dev up0 src {far}" for near, far in zip(NEAR, FAR, strict=True)]
    # Whom one asks for a link's address from an address of another link, does not answer.
    [link] = json.loads(host.edge.ip("-j", "link", "show", "up0"))
    commands += [f"neigh replace {near} lladdr {link['address']} dev up0" for near in NEAR]
    host.edge.batch(commands, namespace=host.edge.peer)
    inside = (*host.inside(), "sh", "-c", f'echo 0 >{host.cgroup}/cgroup.procs; exec "$0" "$@"')
    from_peer = ("ip", "netns", "exec", host.edge.peer)
    targets = ["192.168.0.1:8017", "[fd00:0::1]:8017"]

    def windows() -> list[tuple[str, int, int]]:
        folder = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        _, lines = fetch(folder, targets, inside=from_peer)
        assert {line["result"] for line in lines} == {"ok"}
        return [(line["server"], line["bytes"], line["window"]) for line in lines]

    with serving("[::]:8017", inside=inside):
        while not listening(host, 8017):
            time.sleep(0.01)
        assert windows() == [(server, size, 10) for size in SIZES for server in ("192.168.0.1", "fd00::1")]
        if by == "bpf":
            assert host.run("apply", host.document()).code == 0
        else:
            routes = {str(entry["prefix"]): int(str(entry["initcwnd"])) for entry in ENTRIES}
            assert host.run("apply", host.edge.write(bundle(routes))).code == 0
        assert windows() == [
            (server, size, window) for size in SIZES for server, window in (("192.168.0.1", 60), ("fd00::1", 40))
        ]


def listening(host: Host, port: int) -> bool:
    command = ["ip", "netns", "exec", host.edge.name, "ss", "-Htln", f"sport = :{port}"]
    return bool(subprocess.run(command, check=True, capture_output=True).stdout)


# --- servers that it must not trust


@contextmanager
def hostile(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does this with each connection, whose request it has read; its port."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        ended = threading.Event()

        def one(client: socket.socket) -> None:
            with client:
                try:
                    client.recv(4096)
                    answer(client)
                except OSError:
                    pass

        def serve() -> None:
            while not ended.is_set():
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(client,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield int(server.getsockname()[1])
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)


def forever(*pieces: bytes, pause_s: float = 0.0) -> Callable[[socket.socket], None]:
    """The first pieces once, the last without end."""

    def send(client: socket.socket) -> None:
        for piece in pieces[:-1]:
            client.sendall(piece)
        while True:
            client.sendall(pieces[-1])
            time.sleep(pause_s)

    return send


def once(*pieces: bytes) -> Callable[[socket.socket], None]:
    return lambda client: client.sendall(b"".join(pieces))


def reset(client: socket.socket) -> None:
    client.sendall(HEAD % 10_000 + b"x" * 500)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def silent(client: socket.socket) -> None:
    client.recv(1)


OTHER = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/probe/10000\r\nContent-Length: 10000\r\n\r\n"
# Outcomes of fetching each of the three objects: of 10, 50 and 100 kB.
HOSTILE: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "no end of heads": (forever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100), "answer answer answer"),
    "one endless line": (forever(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 4096), "answer answer answer"),
    "a huge head": (once(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 8000, b"\r\n\r\n"), "answer answer answer"),
    "no end of body": (forever(HEAD % 10_000, b"z" * 65_536), "ok answer answer"),
    "more in one piece than the body": (once(HEAD % 10_000 + b"z" * 1_000_000), "answer answer answer"),
    "nothing": (silent, "timeout timeout timeout"),
    "a byte now and then": (forever(HEAD % 10_000, b"z", pause_s=0.2), "timeout answer answer"),
    "a byte of the head now and then": (forever(b"H", pause_s=0.2), "timeout timeout timeout"),
    "half": (once(HEAD % 10_000, b"z" * 5000), "closed answer answer"),
    "a reset": (reset, "closed answer answer"),
    "an end": (once(b""), "closed closed closed"),
    "elsewhere": (once(OTHER, b"z" * 10_000), "answer answer answer"),
    "an error": (once(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), "answer answer answer"),
    "another protocol": (once(b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n\r\n"), "answer answer answer"),
    "chunks": (once(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"), "answer answer answer"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_no_server_holds_it_or_fills_it(tmp_path: Path, how: str) -> None:
    """It ends, its file is small, and what came is called what it was. Beside it, other targets are served."""
    answer, expected, port = *HOSTILE[how], free()
    limit = "3" if "timeout" in expected else "60"  # seconds: what is answered takes a few milliseconds
    with hostile(answer) as bad, serving(f"127.0.0.1:{port}"):
        connected(port).close()
        _, lines = fetch(tmp_path / "out", [f"127.0.0.2:{bad}", f"127.0.0.1:{port}"], "--timeout", limit)
    found = {"127.0.0.1": "", "127.0.0.2": ""}
    for line in lines:
        found[line["server"]] += f" {line['result']}"
    assert found["127.0.0.1"] == " ok ok ok"
    # A piece may or may not come with the head.
    either = [f" {expected}", f" {expected}".replace(" answer", " ok", 1)]
    assert found["127.0.0.2"] in (either if how == "more in one piece than the body" else either[:1])
    assert all(line.get("window") is None for line in lines if line["server"] == "127.0.0.2")
    assert sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) < 6 * 300


def test_nothing_is_fetched_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "targets").write_text("127.0.0.1:9\n")
    command = [str(PROGRAM), "probe", "--targets", str(tmp_path / "targets"), "--edge", "fra-1", "--spread", "0"]
    done = subprocess.run([*command, "--out", str(tmp_path / "absent")], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    fix = "make the folder, which this user may write to"
    assert done.stderr == f"--out {tmp_path}/absent: No such file or directory; {fix}\n"


# --- clients that it must not trust

REQUEST = b"GET /probe/100000 HTTP/1.1\r\nHost: x\r\n\r\n"


def descriptors(process: subprocess.Popen[str]) -> int:
    return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())


def resident_kb(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0])


def test_ten_thousand_idle_clients_cost_little_and_keep_nobody_out(tmp_path: Path) -> None:
    """Each from an address of its own, none of which asks for anything or ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 11_000:
        pytest.skip("too few descriptors for the clients")
    port = free()
    with ExitStack() as held, serving(f"127.0.0.1:{port}") as process:
        # Other tests of this process may have left a thousand open, as stores do.
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        for n in range(10_000):
            held.enter_context(connected(port, f"127.1.{n // 250}.{n % 250 + 1}"))
            if n % 2500 == 2499:
                _, lines = fetch(tmp_path / f"out{n}", [f"127.0.0.1:{port}"])
                assert [line["result"] for line in lines] == ["ok"] * 3
        assert descriptors(process) < 64 + 16
        assert resident_kb(process) < 40_000


def unread(port: int, source: str = "127.0.0.1", request: bytes = REQUEST) -> socket.socket:
    """A client that has asked and reads nothing."""
    one = connected(port, source)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.sendall(request)
    return one


def test_one_address_that_reads_nothing_keeps_no_other_out(tmp_path: Path) -> None:
    port = free()
    with serving(f"127.0.0.1:{port}") as process, ExitStack() as held:
        for _ in range(200):
            held.enter_context(unread(port, "127.0.0.9"))
        _, lines = fetch(tmp_path / "out", [f"127.0.0.1:{port}"], "--timeout", "60")
        assert descriptors(process) < 4 + 16
    assert {line["result"] for line in lines} <= {"ok", "answer"}


@pytest.mark.parametrize("request_of", [REQUEST, b"\r\n\r\n"], ids=["unread", "read, and kept open"])
def test_many_addresses_that_read_slowly_keep_no_other_out(tmp_path: Path, request_of: bytes) -> None:
    """Sixteen times what one address may hold is all that there is: they have five seconds, not half a minute."""
    port = free()
    with serving(f"127.0.0.1:{port}") as process, ExitStack() as held:
        for n in range(64):
            held.enter_context(unread(port, f"127.0.1.{n // 4 + 1}", request_of))
        _, lines = fetch(tmp_path / "out", [f"127.0.0.1:{port}"], "--timeout", "15")
        assert descriptors(process) <= 64 + 16
    assert [line["result"] for line in lines] == ["ok"] * 3


def test_whoever_comes_as_the_last_place_is_taken_waits_for_one() -> None:
    port = free()
    with serving(f"127.0.0.1:{port}") as process, ExitStack() as held:
        for n in range(63):
            held.enter_context(unread(port, f"127.0.1.{n // 4 + 1}"))
        # The answer to one that came after them: all are served.
        assert answered(port, REQUEST).startswith(b"HTTP/1.1 ")
        process.send_signal(signal.SIGSTOP)
        held.enter_context(unread(port, "127.0.1.16"))
        last = held.enter_context(unread(port))
        process.send_signal(signal.SIGCONT)
        assert last.recv(1 << 16).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("half_closed", [False, True])
def test_what_nobody_reads_is_kept_by_no_kernel(half_closed: bool) -> None:
    """A connection is given up when another one replaces it, or when its client will send no more."""

    def forsaken() -> int:
        """Connections that no process has any more, and whose last bytes nobody has acknowledged."""
        command = ["ss", "-Htn", "state", "fin-wait-1", "state", "last-ack", f"sport = :{port}"]
        return len(subprocess.run(command, check=True, capture_output=True).stdout.splitlines())

    port = free()
    with serving(f"127.0.0.1:{port}"), ExitStack() as held:
        for _ in range(20):
            one = held.enter_context(unread(port))
            if half_closed:
                one.shutdown(socket.SHUT_WR)
            time.sleep(0.05)
        # 4 connections of an address are what there may be.
        assert forsaken() <= 4


def test_a_second_has_no_more_than_so_many_objects() -> None:
    """At its most 5 MB; the others are refused at once, and the next second has as many again."""
    port = free()
    with serving(f"127.0.0.1:{port}"):
        connected(port).close()
        begun = time.monotonic()
        answers = [answered(port, REQUEST) for _ in range(400)]
        seconds = time.monotonic() - begun
        full = [answer for answer in answers if answer.startswith(b"HTTP/1.1 200 ") and len(answer) > 100_000]
        busy = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503 ")]
        assert len(full) + len(busy) == 400
        assert len(full) <= 50 * (seconds + 2)


@pytest.mark.parametrize(
    "request_of",
    [
        b"GET /probe/1000000000 HTTP/1.1\r\n\r\n",
        b"GET /../etc/passwd HTTP/1.1\r\n\r\n",
        b"POST /probe/10000 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"\r\n\r\n",
    ],
)
def test_there_is_nothing_else_to_be_had(request_of: bytes) -> None:
    port = free()
    with serving(f"127.0.0.1:{port}"):
        found = answered(port, request_of)
    assert found == b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("text", [b"GET /probe/10000 HTTP/1.1\r\nX: " + b"y" * 100_000, b"\0" * 5000, b"G" * 1024])
def test_a_head_that_is_too_long_is_not_read_on(text: bytes) -> None:
    port = free()
    with serving(f"127.0.0.1:{port}") as process:
        with suppress(ConnectionResetError, BrokenPipeError):
            assert answered(port, text) == b""
        assert answered(port, REQUEST).startswith(b"HTTP/1.1 200 OK\r\n")
        assert resident_kb(process) < 40_000


def test_a_client_that_asks_slowly_is_left(tmp_path: Path) -> None:
    port = free()
    with serving(f"127.0.0.1:{port}"), connected(port) as slow:
        ended = False
        for byte in REQUEST[:-1]:
            try:
                slow.sendall(bytes([byte]))
                slow.settimeout(0.4)
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended, "it waits longer than the five seconds in which a request must be there"
        assert answered(port, REQUEST).startswith(b"HTTP/1.1 200 OK\r\n")
