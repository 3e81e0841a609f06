"""Edges with real sshd in namespaces of their own, a publisher that reaches them, and rounds for them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from springtide.publication.folder import PublishFolder

from testkit.edge import PROGRAM, bundle, make_key
from testkit.published import publish

ANSIBLE = Path(__file__).resolve().parents[1] / "deploy" / "ansible"
BIN = Path(sys.executable).parent
REGIONS = ("europe", "america")
# A next round's windows, beside those of `publish` by default.
NEW = {"10.200.1.0/24": 35, "10.200.3.0/24": 50}

SSHD = """\
HostKey {d}/host
PidFile none
AuthorizedKeysFile {d}/authorized
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
# Not the one of whoever runs the tests: its shell start files may do anything, and wait for anybody.
SetEnv HOME={d}
PermitRootLogin prohibit-password
MaxStartups 100
# The default with sntrup761 takes a fifth of a second of processor time for each connection.
KexAlgorithms curve25519-sha256
Subsystem sftp internal-sftp
"""


# `ip netns exec` has given it mounts of its own.
ROOTED = """
over=$1; shift
mkdir $over; mount -t tmpfs springtide-test $over; mkdir $over/upper $over/work $over/root
mount -t overlay springtide-test -o lowerdir=/,upperdir=$over/upper,workdir=$over/work $over/root
for each in proc sys dev; do mount --rbind /$each $over/root/$each; done
exec chroot $over/root "$@"
"""


# Prints the addresses whose sshd has not answered within a minute.
ANSWERED = """
import socket, sys, time
give_up = time.monotonic() + 60
for address in sys.argv[1:]:
    while True:
        try:
            socket.create_connection((address, 22), 1).close()
            break
        except OSError:
            if time.monotonic() > give_up:
                print(address)
                break
            time.sleep(0.05)
"""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait for what a play must reach: the minute is only for a machine that stands still."""
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.05)


@dataclass
class Played:
    """Results of an ansible-playbook run; `stats` is Ansible's own per host."""

    code: int
    output: str
    stats: dict[str, dict[str, int]]


@dataclass
class Node:
    name: str
    address: str
    namespace: str
    directory: Path
    sshd: subprocess.Popen[bytes] | None = None
    # A root of its own: this machine's files, and what is written stays in memory and goes with the last process.
    rooted: bool = False

    @property
    def root(self) -> Path:
        """Where the host's root is seen from here."""
        assert self.sshd is not None
        return Path(f"/proc/{self.sshd.pid}/root")

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    def start(self) -> None:
        command = ["ip", "netns", "exec", self.namespace]
        command += ["sh", "-ec", ROOTED, "sh", str(self.directory / "over")] if self.rooted else []
        command += ["/usr/sbin/sshd", "-D", "-e", "-f", f"{self.directory}/sshd"]
        with (self.directory / "sshd.log").open("ab") as log:
            self.sshd = subprocess.Popen(command, stderr=log, start_new_session=True)

    def stop(self) -> None:
        if self.sshd is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.sshd.pid, signal.SIGKILL)
            self.sshd.wait()
            self.sshd = None

    def force(self, command: str, unless: str = "") -> None:
        """From now on sshd runs this instead of the command, unless that matches the pattern (of `case`) `unless`."""
        script = self.directory / "forced"
        as_requested = (
            f'case $SSH_ORIGINAL_COMMAND in {unless}) exec sh -c "$SSH_ORIGINAL_COMMAND";; esac\n' if unless else ""
        )
        script.write_text(f"#!/bin/sh\n{as_requested}{command}\n")
        script.chmod(0o755)
        self.stop()
        # Connections that the publisher keeps open would go on asking the old one.
        for pid in Farm.run("ip", "netns", "pids", self.namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        (self.directory / "sshd").write_text(SSHD.format(d=self.directory) + f"ForceCommand {script}\n")
        self.start()
        wait_for(lambda: "Server listening" in (self.directory / "sshd.log").read_text(), "sshd did not start")

    def die(self) -> None:
        """The host is gone: no sshd, no link."""
        self.stop()
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "wan0", "down"], check=True)

    def windows(self) -> dict[str, int]:
        """Destination -> initcwnd of table 201."""
        command = ["ip", "-n", self.namespace, "-j", "route", "show", "table", "201"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        routes = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else []
        return {route["dst"]: next(m["initcwnd"] for m in route["metrics"] if "initcwnd" in m) for route in routes}

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", "-n", self.namespace, *arguments], check=True)

    def picture(self) -> str:
        """All that routes packets, as `ip` prints it."""
        lines = ["route show table all", "rule show"]
        return "".join(Farm.batch(self.namespace, lines, version, "-d") for version in ("-4", "-6"))

    def program(self, *arguments: str) -> list[str]:
        """The command line of the edge's own program."""
        return ["ip", "netns", "exec", self.namespace, str(PROGRAM), *arguments]

    def routes(self, *arguments: str, seconds_later: int = 0) -> dict[str, Any]:
        """The edge's own command, as its timer runs it, some time later by the clock of this boot; its report."""
        command = ["ip", "netns", "exec", self.namespace, "unshare", "--time", f"--boottime={seconds_later}"]
        command += [str(PROGRAM), *arguments, "--state-dir", str(self.state_dir), "--json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode in (0, 3), done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


@dataclass
class Farm:
    """`edges` by name; `publish` and `play` are what an operator does."""

    directory: Path
    unique: str = field(default_factory=lambda: f"{os.getpid()}-{secrets.token_hex(3)}")
    edges: dict[str, Node] = field(default_factory=dict)
    rooted: bool = False
    # A socket's path may have 107 characters, which pytest's folders leave no room for.
    sockets: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="sprt-"))

    @classmethod
    @contextlib.contextmanager
    def made(cls, directory: Path, count: int = 3, *, rooted: bool = False) -> Iterator[Farm]:
        farm = cls(directory, rooted=rooted)
        try:
            farm.make(count)
            yield farm
        finally:
            farm.end()

    @property
    def namespace(self) -> str:
        return f"sprt-f-{self.unique}"

    @property
    def publish_dir(self) -> Path:
        return self.directory / "publish"

    @property
    def folder(self) -> PublishFolder:
        return PublishFolder(self.publish_dir)

    def make(self, count: int) -> None:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for name in ("publisher", "login", "host"):
            make_key(self.directory / name)
        (self.directory / "allowed_signers").write_text(f"springtide {(self.directory / 'publisher.pub').read_text()}")
        self.run("ip", "netns", "add", self.namespace)
        lines = ["link add lan type bridge", "addr add 10.99.0.1/16 dev lan", "link set lan up", "link set lo up"]
        for number in range(count):
            region = REGIONS[number % len(REGIONS)]
            node = Node(
                f"{region[:2]}-{number}",
                f"10.99.{1 + number // 250}.{1 + number % 250}",
                f"sprt-g{number}-{self.unique}",
                self.directory / f"edge{number}",
                rooted=self.rooted,
            )
            node.directory.mkdir()
            self.run("ip", "netns", "add", node.namespace)
            lines += [
                f"link add e{number} type veth peer name wan0 netns {node.namespace}",
                f"link set e{number} master lan up",
            ]
            (node.directory / "host").write_bytes((self.directory / "host").read_bytes())
            (node.directory / "host").chmod(0o600)
            (node.directory / "authorized").write_bytes((self.directory / "login.pub").read_bytes())
            (node.directory / "sshd").write_text(SSHD.format(d=node.directory))
            self.edges[node.name] = node
        self.batch(self.namespace, lines)
        # A host that is gone is one without a route after a second, not after ssh's own patience.
        quick = ("base_reachable_time_ms=500", "delay_first_probe_time=1", "retrans_time_ms=100")
        sysctls = [f"net.ipv4.neigh.lan.{setting}" for setting in quick]
        self.run("ip", "netns", "exec", self.namespace, "sysctl", "-q", "-w", *sysctls)
        for node in self.edges.values():
            commands = [
                "link set lo up",
                "link set wan0 addrgenmode none",
                f"addr add {node.address}/16 dev wan0",
                "link set wan0 up",
            ]
            self.batch(node.namespace, [*commands, "route add default via 10.99.0.1"])
            node.start()
        self.write_inventory()
        self.wait_for_sshd()

    def write_inventory(self) -> None:
        pops: dict[str, Any] = {}
        for name, node in self.edges.items():
            number = int(name.split("-")[1])
            region = REGIONS[number % len(REGIONS)]
            pop = pops.setdefault(name[:2], {"region": region, "prefixes": [], "edges": {}})
            own = f"10.{100 + number}.0.0/16" if number < 150 else f"172.{16 + number // 256}.{number % 256}.0/24"
            pop["prefixes"].append(own)
            pop["edges"][name] = {"address": node.address}
        (self.directory / "fleet.yaml").write_text(yaml.safe_dump({"version": 1, "pops": pops}))

    def wait_for_sshd(self) -> None:
        """Wait for an answer of each edge's: the minute is only for a machine that stands still."""
        addresses = [node.address for node in self.edges.values()]
        probe = ["ip", "netns", "exec", self.namespace, sys.executable, "-c", ANSWERED, *addresses]
        missing = subprocess.run(probe, check=True, capture_output=True, text=True).stdout.split()
        assert not missing, f"sshd of {', '.join(missing)} does not answer"

    @staticmethod
    def run(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @staticmethod
    def batch(namespace: str, lines: list[str], *options: str) -> str:
        command = ["ip", "-n", namespace, *options, "-batch", "-"]
        done = subprocess.run(command, input="\n".join(lines) + "\n", check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def documents(
        self, windows: Mapping[str, int] | None = None, *, later: float = 0, ttl: float = 600, **fields: str | int
    ) -> dict[str, dict[str, Any]]:
        """A bundle for every edge; `later` seconds from now, so that rounds of one second can follow each other."""
        routes = {"10.200.1.0/24": 30, "10.200.2.0/24": 40} if windows is None else dict(windows)
        now = time.time() + later
        return {name: bundle(routes, now=now, ttl=ttl, edge=name, **fields) for name in self.edges}

    def publish(self, documents: Mapping[str, Mapping[str, Any]] | None = None, *, key: str = "publisher") -> Path:
        given = self.documents() if documents is None else documents
        return publish(self.folder, given, self.directory / key)

    def command(self, play: str, *arguments: str, **variables: Any) -> list[str]:
        settings = {
            "springtide_publish_dir": str(self.publish_dir),
            "springtide_allowed_signers": str(self.directory / "allowed_signers"),
            "springtide_edge_allowed_signers": str(self.directory / "allowed_signers"),
            "springtide_validate": False,
            "springtide_gate": False,
            "springtide_gate_delay_s": 0,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.directory / "login"),
            "ansible_python_interpreter": sys.executable,
        } | variables
        # Edges share this machine's files, so each needs a place of its own.
        (self.directory / "host_vars").mkdir(exist_ok=True)
        for name, node in self.edges.items():
            own = {
                "springtide_state_dir": str(node.state_dir),
                "springtide_etc_dir": str(node.directory / "etc"),
                "edge_sysctl_file": str(node.directory / "receivers.conf"),
                "springtide_edge_program": str(PROGRAM),
            }
            (self.directory / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(own))
        command = ["ip", "netns", "exec", self.namespace, str(BIN / "ansible-playbook")]
        command += ["-i", str(self.directory / "fleet.yaml"), "-e", json.dumps(settings)]
        path = str(ANSIBLE / "playbooks" / play) if play.endswith(".yml") else play
        return [*command, *arguments, path]

    def environment(self) -> dict[str, str]:
        # An edge is given up after ten silent seconds: a busy machine's stall of four is none that has gone.
        ssh = "-o ControlMaster=auto -o ControlPersist=5s -o ServerAliveInterval=1 -o ServerAliveCountMax=10"
        ssh += " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=5"
        return {
            **os.environ,
            "SPRINGTIDE_STORE": f"chdb://{self.directory}/store",
            "SPRINGTIDE_FLEET": str(self.directory / "fleet.yaml"),
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.directory / "ansible"),
            "ANSIBLE_LOCAL_TEMP": str(self.directory / "ansible/tmp"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": self.sockets,
            "ANSIBLE_SSH_ARGS": f"{ssh} -o LogLevel=ERROR",
            "ANSIBLE_NOCOLOR": "1",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def start(
        self, play: str, *arguments: str, environment: Mapping[str, str] | None = None, **variables: Any
    ) -> subprocess.Popen[str]:
        command = self.command(play, *arguments, **variables)
        surroundings = self.environment() | dict(environment or {})
        return subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def play(
        self, play: str, *arguments: str, environment: Mapping[str, str] | None = None, **variables: Any
    ) -> Played:
        running = self.start(play, *arguments, environment=environment, **variables)
        output, errors = running.communicate(timeout=600)  # the bound is only for a machine that stands still
        stats = {
            match[1]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", match[2])}
            for match in re.finditer(r"^(\S+)\s+: (ok=.*)$", output, re.MULTILINE)
        }
        return Played(running.returncode, output + errors, stats)

    def windows(self) -> dict[str, dict[str, int]]:
        return {name: node.windows() for name, node in self.edges.items()}

    def hold(self) -> dict[str, int]:
        """A first round on every edge, applied by their own command, which is quicker than a rollout; what it sets."""
        folder = self.publish(self.documents(later=-3))
        signers = ["--allowed-signers", str(self.directory / "allowed_signers")]
        for name, node in self.edges.items():
            node.routes("apply", f"{folder}/edges/{name}.json", "--edge", name, *signers)
        self.folder.point("current", folder / "edges")
        return {"10.200.1.0/24": 30, "10.200.2.0/24": 40}

    def script(self, text: str) -> list[str]:
        """A gate that does what the test needs; it is called with the wave's number and edges."""
        path = self.directory / "gate.sh"
        path.write_text(
            "#!/bin/sh\nwhile [ $# -gt 1 ]; do case $1 in --wave) wave=$2;; --changed) changed=$2;; esac; shift; done\n"
            f"{text}\n"
        )
        path.chmod(0o755)
        return [str(path)]

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.publish_dir / "journal.jsonl").read_text().splitlines()]

    def end(self) -> None:
        for namespace in [self.namespace, *(node.namespace for node in self.edges.values())]:
            # Sessions of sshd and connections that ssh kept open: all that runs in our namespaces is ours.
            found = subprocess.run(["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True)
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for node in self.edges.values():
            if node.sshd is not None:
                node.sshd.wait()
            subprocess.run(["ip", "netns", "del", node.namespace], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)
        shutil.rmtree(self.sockets, ignore_errors=True)
