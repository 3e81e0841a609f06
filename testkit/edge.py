"""An edge host in a namespace of its own, beside a peer, and bundles for it."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import itertools
import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

PROGRAM = Path(__file__).parents[1] / "target/release/springtide-edge"
NAME = "ams-1"
EXPIRED = 15  # the exit code of an apply that comes too late
Item = TypeVar("Item")


class Outcome(NamedTuple):
    """Results of a run of the command: exit code, the object of `--json`, standard error."""

    code: int
    report: dict[str, Any]
    errors: str


def at_once(task: Callable[[Item], None], items: Iterable[Item], *, threads: int = 8) -> None:
    """The task for each item, many at a time, for what mostly waits. All failures are reported, not only the first."""
    with ThreadPoolExecutor(threads) as pool:
        begun = {pool.submit(task, item): getattr(item, "__name__", item) for item in items}
    failures = [f"{name}: {failed!r}" for run, name in begun.items() if (failed := run.exception()) is not None]
    assert not failures, "\n\n".join(failures)


def remount_read_only(folder: Path) -> None:
    """A process that another thread begins has all of our files open until it is another program: try again then."""
    give_up = time.monotonic() + 60
    command = ["mount", "-o", "remount,ro", str(folder)]
    while (done := subprocess.run(command, check=False, capture_output=True, text=True)).returncode:
        assert "busy" in done.stderr, done.stderr
        assert time.monotonic() < give_up, done.stderr
        time.sleep(0.02)


def instant(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """With the digest that belongs to the content."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return dict(document, digest="sha256:" + hashlib.sha256(text.encode()).hexdigest())


@functools.cache
def in_order(prefix: str) -> tuple[int, int, int]:
    """Sort key of bundles: IP version, network, length."""
    network = ipaddress.ip_network(prefix)
    return network.version, int(network.network_address), network.prefixlen


_made = itertools.count()


def enforcement(by: str = "routes", **more: Any) -> dict[str, Any]:
    """Way in which an edge enforces a bundle, with every field that it must have."""
    return {"by": by, "live": "leave", "otherwise": "default", **more}


def bundle(windows: Mapping[str, int], *, now: float | None = None, ttl: float = 600, **fields: Any) -> dict[str, Any]:
    """A valid bundle, by routes; `fields` override before the digest is taken. Without `now`, of a newer round than the
    one made before it: of one round and second an edge takes only one.
    """
    created = int(time.time() if now is None else now)
    later = next(_made) if now is None else 0
    ordered = sorted(windows, key=in_order)
    document: dict[str, Any] = {
        "schema_version": 1,
        "edge": NAME,
        "pop": "ams",
        "round": instant(created // 300 * 300 + later),
        "policy_version": "0123456789ab",
        "created_at": instant(created),
        "expires_at": instant(created + ttl),
        "entries": [{"prefix": prefix, "initcwnd": windows[prefix]} for prefix in ordered],
    }
    fields["enforce"] = enforcement(**fields.get("enforce", {}))
    return sealed(document | fields)


def make_key(path: Path) -> Path:
    """An SSH key pair without a passphrase: PATH and PATH.pub."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "publisher", "-f", str(path)], check=True)
    return path


def sign(path: Path, key: Path, namespace: str = "springtide-bundle") -> Path:
    """PATH.sig, as an operator's ssh-keygen writes it."""
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace]
    signature = subprocess.run(command, input=path.read_bytes(), check=True, capture_output=True).stdout
    signed = path.with_name(path.name + ".sig")
    signed.write_bytes(signature)
    return signed


def load(path: Path) -> dict[str, Any]:
    """A file of a state directory: a line with its checksum, and a document."""
    checksum, body = path.read_bytes().split(b"\n", 1)
    assert checksum.decode() == hashlib.sha256(body).hexdigest()
    found: dict[str, Any] = json.loads(body)
    return found


def save(path: Path, document: Mapping[str, Any]) -> None:
    """As `load` reads it."""
    body = json.dumps(document).encode()
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


class Edge:
    """Two links to one peer (`up0`, `up1`), IPv4 and IPv6; the peer is .2 and ::2 on both."""

    def __init__(self, directory: Path) -> None:
        unique = f"{os.getpid()}-{secrets.token_hex(3)}"
        self.name, self.peer = f"sprt-e-{unique}", f"sprt-p-{unique}"
        self.directory = directory
        self.state_dir, self.run_dir = directory / "state", directory / "run"
        self.key = make_key(directory / "publisher")
        self.allowed_signers = directory / "allowed_signers"
        self.allowed_signers.write_text(f"springtide {self.key.with_suffix('.pub').read_text()}")
        self._bundles = 0

    @classmethod
    @contextmanager
    def made(cls, directory: Path) -> Iterator[Edge]:
        edge = cls(directory)
        try:
            for namespace in (edge.name, edge.peer):
                subprocess.run(["ip", "netns", "add", namespace], check=True)
            lines = [f"link add up{number} type veth peer name up{number} netns {edge.peer}" for number in (0, 1)]
            for namespace, host in ((edge.name, 1), (edge.peer, 2)):
                lines.append("link set lo up")
                for number in (0, 1):
                    link = f"up{number}"
                    lines += [
                        f"link set {link} addrgenmode none",
                        f"addr add 192.168.{number}.{host}/24 dev {link}",
                        f"addr add fd00:{number}::{host}/64 dev {link} nodad",
                        f"link set {link} up",
                    ]
                edge.batch(lines, namespace=namespace)
                lines = []
            edge.wait_for_carrier()
            yield edge
        finally:
            for namespace in (edge.name, edge.peer):
                subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)

    def wait_for_carrier(self) -> None:
        """Until the kernel has seen that both ends of both links are up, and has routes to their addresses, which it
        does in its own time: 0.2 s, where the bound is for a machine that stands still."""
        give_up = time.monotonic() + 60
        own = {"local fd00::1", "local fd00:1::1"}
        while (
            "linkdown" in (seen := self.batch(["route show table all", "link show"]))
            or "NO-CARRIER" in seen
            or not all(f"{one} " in self.ip("-6", "route", "show", "table", "local") for one in own)
        ):
            assert time.monotonic() < give_up, "the links did not come up"
            time.sleep(0.01)

    def ip(self, *arguments: str, namespace: str | None = None) -> str:
        command = ["ip", "-n", namespace or self.name, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def batch(self, lines: Sequence[str], *options: str, namespace: str | None = None) -> str:
        command = ["ip", "-n", namespace or self.name, *options, "-batch", "-"]
        done = subprocess.run(command, input="\n".join(lines) + "\n", check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def table(self, version: int = 4, table: str = "201") -> list[str]:
        """The lines of a table, spaces evened out; a table that does not exist is empty."""
        command = ["ip", "-n", self.name, "-N", "-o", f"-{version}", "route", "show", "table", table]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return [" ".join(line.split()) for line in done.stdout.splitlines()]

    def windows(self) -> dict[str, int]:
        """Destination as printed -> initcwnd, of table 201."""
        found = {}
        for version in (4, 6):
            for line in self.table(version):
                words = line.split()
                found[words[0]] = int(words[words.index("initcwnd") + 1])
        return found

    def picture(self) -> dict[str, str]:
        """Everything that routes packets, byte for byte as `ip` prints it."""
        lines = ["route show table all", "rule show"]
        return {version: self.batch(lines, version, "-d") for version in ("-4", "-6")}

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs the edge's program in the edge's namespace."""
        inside = ["ip", "netns", "exec", self.name, str(PROGRAM)]
        signers = ["--allowed-signers", str(self.allowed_signers)] if arguments[:1] == ("apply",) else []
        places = ["--state-dir", str(self.state_dir), "--run-dir", str(self.run_dir)]
        return [*inside, *arguments, *signers, "--json", "--edge", NAME, *places]

    def run(self, *arguments: str, later: int = 0) -> Outcome:
        """A run of the command; by the clock of its boot, so many seconds later."""
        command = self.command(*arguments)
        at = command.index(str(PROGRAM))
        command[at:at] = ["unshare", "--time", f"--boottime={later}"] if later else []
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "panicked" not in done.stderr, done.stderr
        return Outcome(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)

    def write(self, document: Mapping[str, Any]) -> str:
        self._bundles += 1
        path = self.directory / f"{self._bundles}.json"
        path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
        sign(path, self.key)
        return str(path)

    def apply(self, routes: Mapping[str, int]) -> Outcome:
        return self.run("apply", self.write(bundle(routes)))

    def apply_briefly(self, routes: Mapping[str, int], life_s: int) -> int:
        """Apply a bundle of so many seconds' life; when it ends. A run that a busy machine delays until after that is
        refused rightly, and says nothing: another bundle has twice the life."""
        while True:
            ends = int(time.time()) + life_s
            outcome = self.run("apply", self.write(bundle(routes, expires_at=instant(ends))))
            if outcome.code == 0:
                return ends
            assert (outcome.code, time.time() >= ends) == (EXPIRED, True), outcome
            life_s *= 2

    def status(self) -> dict[str, Any]:
        return self.run("status").report
