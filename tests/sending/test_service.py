"""The collector under the options of its packaged unit: what they close must not be what it needs."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from lab.collector import binary, wait_until
from testkit.certificate import make_certificate
from testkit.clickhouse import Front
from testkit.home import Home
from testkit.kafka import Broker, read_topic
from testkit.service import allowed, options
from testkit.witness import balanced, in_spool, in_store

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "collector/packaging"
UNIT = PACKAGING / "springtide-collector.service"
DROP_IN = PACKAGING / "all-namespaces.conf"
TOPIC = "samples"
SINKS = ("file", "kafka", "clickhouse")
ADDRESS = ("127.0.0.1", 9462)
# For the next notice.
PATIENCE_S = 60.0


def command(state: Path, units: list[Path], bring: list[Path], *words: object) -> list[str]:
    brought = [word for file in bring for word in ("--bring", str(file))]
    start = [sys.executable, "-m", "testkit.service", "--state", str(state), *brought]
    return [*start, *map(str, units), "--", *map(str, words)]


def page(path: str) -> str:
    connection = http.client.HTTPConnection(*ADDRESS, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def metric(name: str) -> float:
    found = re.search(rf"^springtide_collector_{re.escape(name)} (\S+)$", page("/metrics"), re.M)
    assert found, name
    return float(found[1])


def delivered(sink: str, rows: int) -> bool:
    return metric(f'rows_delivered_total{{sink="{sink}"}}') > rows


def answers() -> bool:
    try:
        return '"ok"' in page("/healthz")
    except OSError:
        return False


@contextmanager
def manager(name: str) -> Iterator[socket.socket]:
    """The service manager's socket, under an abstract name: it is in no file system."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind("\0" + name)
        notify.settimeout(PATIENCE_S)
        yield notify


def wait_for_notification(notify: socket.socket, what: str) -> None:
    """Waits until the collector has sent it to its service manager."""
    while not notify.recv(4096).decode().startswith(what):
        pass


def forget_notifications(notify: socket.socket) -> None:
    """Those that nobody has read: where they are many, the kernel takes no further one."""
    notify.settimeout(0)
    with suppress(BlockingIOError):
        while notify.recv(4096):
            pass
    notify.settimeout(PATIENCE_S)


@pytest.fixture
def state(home: Home) -> Path:
    folder = home.path / "state"
    folder.mkdir()
    return folder


def test_every_sink_and_every_turn_works_under_the_unit(load: None, home: Home, state: Path) -> None:
    certificate = make_certificate(home.path)
    # As the package brings it, but for the interval; where it can be changed later.
    configuration = state / "collector.toml"
    packaged = (PACKAGING / "collector.toml").read_text().replace('#interval = "1s"', 'interval = "200ms"', 1)
    configuration.write_text(packaged)
    with (
        closing(home.open()) as store,
        Broker(home.path / "kafka") as broker,
        Front(store, certificate=certificate.served) as front,
        manager(f"springtide-{os.getpid()}") as notify,
        (home.path / "log").open("wb") as log,
    ):
        broker.topic(TOPIC)
        settings = {
            "CONFIG": "/var/lib/springtide-collector/collector.toml",
            "KAFKA": broker.bootstrap,
            "KAFKA_TOPIC": TOPIC,
            "CLICKHOUSE": front.url,
            "CLICKHOUSE_CA": "/srv/trusted.pem",
            "NO_CLOSES": "true",
        }
        environment = {f"SPRINGTIDE_COLLECTOR_{name}": value for name, value in settings.items()}
        environment |= {"NOTIFY_SOCKET": f"@springtide-{os.getpid()}", "WATCHDOG_USEC": "400000"}
        bring = [binary(), certificate.trusted]
        words = command(state, [UNIT], bring, "/srv/springtide-collector", "run", "--stats")
        running = subprocess.Popen(words, cwd=ROOT, stderr=log, env={**os.environ, **environment})
        try:
            wait_for_notification(notify, "READY=1")
            wait_for_notification(notify, "WATCHDOG=1")
            wait_until("answer of /healthz", answers)
            for sink in SINKS:
                wait_until(f"row in {sink}", partial(delivered, sink, 2000))
            configuration.write_text(packaged.replace('"200ms"', '"300ms"', 1))
            forget_notifications(notify)
            running.send_signal(signal.SIGHUP)
            wait_for_notification(notify, "RELOADING=1")
            wait_for_notification(notify, "READY=1")
            assert metric("poll_interval_seconds") == 0.3
            running.send_signal(signal.SIGTERM)
            wait_for_notification(notify, "STOPPING=1")
            assert running.wait(60) == 0
        finally:
            running.kill()
            running.wait()
        text = (home.path / "log").read_text()
        assert "not permitted" not in text, text
        counters = json.loads(text.splitlines()[-1])
        assert all(balanced(counters, sink) for sink in counters["sinks"])
        assert counters["sinks"]["file"]["rows_delivered"] == counters["rows_read"]
        read = in_spool((state / "spool").glob("*.spool"))
        assert len(read) == counters["rows_read"]
        assert in_store(store) <= read
        assert read_topic(broker.bootstrap, TOPIC)


# Commands that the unit must refuse, each with the complaint that shows it.
REFUSED = {
    "touch /usr/bin/x": "Read-only file system",
    "touch /proc/sys/kernel/hostname": "Permission denied",
    "ls -d /proc/1": "No such file or directory",
    "unshare --net true": "Operation not permitted",
    "mount -t tmpfs none /tmp": "must be superuser",
    "chroot / true": "Operation not permitted",
    "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'": "Address family not supported",
    "python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)'": "Operation not permitted",
    "python3 -c 'import os; os.setpriority(os.PRIO_PROCESS, 0, 5)'": "Operation not permitted",
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_what_the_unit_refuses_is_refused(tmp_path: Path, attempt: str) -> None:
    """Without this the test above could pass under options that do nothing."""
    # /usr/bin first: another Python may live where the unit may not look.
    environment = {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "LC_ALL": "C"}
    words = command(tmp_path, [UNIT], [], shutil.which("sh") or "/bin/sh", "-c", attempt)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert REFUSED[attempt] in done.stderr, done.stderr


def test_the_drop_in_reads_the_namespaces_of_others_and_the_unit_alone_does_not(tmp_path: Path) -> None:
    listen = "import socket, time; a = socket.create_server(('127.0.0.1', 0))"
    script = f"{listen}; print(a.getsockname()[1], flush=True); time.sleep(600)"
    elsewhere = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, script]
    with subprocess.Popen(elsewhere, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout
            port = int(other.stdout.readline())
            inode = Path(f"/proc/{other.pid}/ns/net").stat().st_ino

            def once(units: list[Path], netns: str) -> subprocess.CompletedProcess[str]:
                look = ("/srv/springtide-collector", "once", "--format", "json", "--filter", f"sport {port}")
                words = command(tmp_path, units, [binary()], *look, "--netns", netns)
                return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

            done = once([UNIT, DROP_IN], "all")
            assert done.returncode == 0, done.stderr
            assert inode in {json.loads(line)["netns"] for line in done.stdout.splitlines()}, done.stdout + done.stderr
            assert once([UNIT], "auto").stdout == ""
            assert "CAP_SYS_ADMIN" in once([UNIT], "all").stderr
        finally:
            other.kill()


def test_lines_of_the_filter_mean_what_systemd_means() -> None:
    filters = options([UNIT])["SystemCallFilter"]
    calls = allowed(filters)
    assert {"socket", "recvmsg", "prlimit64", "execve"} <= calls
    assert not {"setrlimit", "mount", "bpf", "chown", "setuid", "reboot"} & calls
    assert "chown" in allowed([*filters, "@chown"])
