"""`springtide doctor`: what is wrong with a host or a site, in the order in which one thing blocks the next."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from springtide.cli import cli
from springtide.doctor import clock, collector, disk, kernel, programs, signatures, sysctls
from springtide.doctor import store as stores
from springtide.doctor.clock import Clock, Offset
from springtide.doctor.collector import Collector
from springtide.doctor.disk import Disk
from springtide.doctor.finding import Finding, Verdict
from springtide.doctor.kernel import Kernel
from springtide.doctor.signatures import File, Signatures
from springtide.doctor.store import HostClock
from springtide.store import migrations

from testkit.home import ROUND, Home
from testkit.spool import record, write_spool
from testkit.traffic import Socket

CONFIG = Path("/etc/springtide/collector.toml")
KEYS = Path("/etc/springtide/allowed_signers")
KEY = Path("/etc/springtide/publisher")
GOOD_KEY = {"key": KEY, "key_file": File(0o600, 0), "sign_error": "", "trust_error": ""}
SYSCTLS = dict.fromkeys(sysctls.NAMES, "1") | {"tcp_rmem": "4096 400000 6291456"}


def kernel_of(release: str = "6.12.1-amd64", **changed: Any) -> list[Finding]:
    return list(kernel.check(Kernel(release, algorithms=("reno", "cubic", "bbr"), **changed)))


def seen_collector(**changed: Any) -> list[Finding]:
    known = {"config_error": "", "health": "", "running": True, **changed}
    return list(collector.check(Collector(CONFIG, "127.0.0.1:9462", **known)))


def trusted(**changed: Any) -> list[Finding]:
    return list(signatures.check(Signatures(**{"allowed_signers": KEYS, "signers": File(0o644, 0), **changed})))


BROKEN = [
    (kernel_of("3.10.0-1160"), "fix", "kernel: 3.10.0-1160: its tcp_info has no busy_time"),
    (kernel_of("4.19.0"), "advice", "kernel: 4.19.0: its tcp_info has no snd_wnd"),
    (kernel_of(diag_error="No such file or directory"), "fix", "sock_diag: NETLINK_SOCK_DIAG: sockets cannot be read"),
    (kernel_of(closes_error="Operation not permitted"), "fix", "close events: NETLINK_SOCK_DIAG: cannot be received"),
    (list(kernel.check(Kernel("6.1.0", algorithms=("reno",)))), "advice", "bbr: tcp_available_congestion_control: has"),
    (list(programs.check({"ip": None, "ssh": "", "ssh-keygen": ""})), "fix", "iproute2: ip: is not installed"),
    (list(programs.check({"ip": "", "ssh": "OpenSSH_7.9p1", "ssh-keygen": ""})), "fix", "cannot verify signatures"),
    (list(programs.check({"ip": "", "ssh": None, "ssh-keygen": None})), "fix", "openssh: ssh-keygen: is not installed"),
    (list(clock.check(Clock(synchronised=False))), "fix", "clock: adjtimex: the kernel's clock is not synchronised"),
    (list(clock.check(Clock(most_off_s=4.0))), "advice", "may be off by 4.0 s"),
    (list(clock.check(Clock(error="not permitted"))), "unknown", "fails: not permitted"),
    (list(clock.check_offsets([Offset("ch-1", -9.0, 0.5)])), "fix", "ch-1: its clock is 9.0 s behind this one"),
    (list(stores.check_clocks([HostClock("ams-1", 100.0)])), "fix", "ams-1: its samples are 100.0 s ahead"),
    (list(disk.check({"store /x": Disk(10**12, 10**10)})), "fix", "disk: store /x: only 10.0 of 1000.0 GB are free"),
    (list(disk.check({"store /x": Disk(10**10, 9 * 10**8)})), "fix", "only 0.9 of 10.0 GB are free"),
    (list(disk.check({"store /x": Disk(10**12, 10**11)})), "advice", "100.0 of 1000.0 GB are free"),
    (list(disk.check({"spool /x": Disk(10**12, 10**12, 100, 1)})), "fix", "1 inodes are left"),
    (seen_collector(running=False, config_error=None), "fix", "collector: springtide-collector: is not installed"),
    (seen_collector(config_error="line 3: unknown key"), "fix", "is refused; line 3: unknown key"),
    (seen_collector(health=None), "fix", "collector: http://127.0.0.1:9462/healthz: does not answer"),
    (seen_collector(health="sink kafka: 90 s behind"), "fix", "is unhealthy: sink kafka: 90 s behind"),
    (seen_collector(namespaces=4), "advice", "3 other network namespaces (containers) are not seen"),
    (trusted(signers=None), "fix", "does not exist, so that no bundle is accepted"),
    (trusted(signers=File(0o664, 0)), "fix", "mode 0664, owner 0: others than root can write it"),
    (trusted(signers=File(0o644, 1000)), "fix", "mode 0644, owner 1000"),
    (trusted(key=KEY), "fix", "signing key: /etc/springtide/publisher: does not exist"),
    (trusted(**{**GOOD_KEY, "key_file": File(0o640, 0)}), "fix", "mode 0640: others can read it"),
    (trusted(**{**GOOD_KEY, "sign_error": "a: b: passphrase"}), "fix", "does not sign; passphrase"),
    (trusted(**{**GOOD_KEY, "trust_error": "its key is not there"}), "fix", "its key is not there"),
    (trusted(**GOOD_KEY, refused={"ams-1.json.sig": "is missing"}), "fix", "signature: ams-1.json.sig: is missing"),
    (
        list(sysctls.check({**SYSCTLS, "tcp_rmem": "4096 131072 6291456"}, 100)),
        "advice",
        "45 segments at first",
    ),
    (list(sysctls.check({**SYSCTLS, "tcp_slow_start_after_idle": "0"}, 100)), "advice", "sends its whole old window"),
    (list(sysctls.check({**SYSCTLS, "tcp_no_metrics_save": "0"}, 100)), "advice", "saved ssthresh"),
    (list(sysctls.check({**SYSCTLS, "tcp_sack": "0"}, 100)), "advice", "tcp_sack: sysctl: is 0"),
    (list(sysctls.check({}, 100)), "unknown", "tcp_rmem: /proc/sys/net/ipv4/tcp_rmem: cannot be read"),
]


@pytest.mark.parametrize(("found", "verdict", "text"), BROKEN, ids=[text for _, _, text in BROKEN])
def test_what_is_wrong_is_one_line_with_what_to_do(found: list[Finding], verdict: str, text: str) -> None:
    [one] = [one for one in found if text in str(one)]
    assert one.verdict.value == verdict
    assert one.todo or one.verdict is Verdict.UNKNOWN
    assert "\n" not in str(one)


FINE: list[Iterable[Finding]] = [
    kernel_of(),
    programs.check({"ip": "", "ssh": "OpenSSH_9.2p1 Debian", "ssh-keygen": ""}),
    clock.check(Clock(most_off_s=0.02)),
    clock.check_offsets([Offset("ch-1", 0.3, 0.4), Offset("ch-2", 30.0, 29.0)]),
    stores.check_clocks([HostClock("ams-1", 0.9)]),
    disk.check({"store /x": Disk(10**12, 10**12, 100, 100)}),
    seen_collector(namespaces=4, sees_all=True),
    trusted(**GOOD_KEY, verified=4),
    sysctls.check(SYSCTLS, 100),
    sysctls.check({**SYSCTLS, "tcp_no_metrics_save": "0", sysctls.NO_SSTHRESH: "1"}, 100),
]


@pytest.mark.parametrize("found", FINE)
def test_what_is_right_is_fine(found: Iterable[Finding]) -> None:
    assert {one.verdict for one in found} == {Verdict.FINE}


def test_every_host_check_runs_on_this_machine(home: Home, tmp_path: Path) -> None:
    """Real kernel, programs and files; no collector runs here."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    found = answer(home, "--host", "--collector-address", nobody, "--allowed-signers", tmp_path / "none", code=1)
    assert {(one["check"], one["verdict"]) for one in found} >= {
        ("kernel", "fine"),
        ("sock_diag", "fine"),
        ("close events", "fine"),
        ("iproute2", "fine"),
        ("openssh", "fine"),
        ("trusted keys", "fix"),
        ("collector", "fix"),
    }
    assert not {"store", "kafka"} & {one["check"] for one in found}


def answer(home: Home, *arguments: object, code: int) -> list[dict[str, str]]:
    answer = home.json("doctor", *arguments, code=code)
    assert answer["fine"] is (code == 0)
    return list(answer["findings"])


def to_fix(found: list[dict[str, str]]) -> list[str]:
    """Without the machine's own clock and disks, which are as they are."""
    return [f"{one['check']}: {one['what']}" for one in found if one["verdict"] == "fix" and not ours(one)]


def ours(one: dict[str, str]) -> bool:
    return one["where"] == "adjtimex" or one["check"] == "disk"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "publisher"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    signers = tmp_path / "allowed_signers"
    signers.write_text(f"springtide {path.with_suffix('.pub').read_text()}")
    signers.chmod(0o644)
    return path


def site(home: Home, key: Path) -> tuple[object, ...]:
    signers = key.with_name("allowed_signers")
    return ("--site", "--publish-dir", home.path / "publish", "--sign-key", key, "--allowed-signers", signers)


@pytest.mark.usefixtures("clock")
def test_a_site_that_works_is_fine_and_then_each_fault_is_found(
    home: Home, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "gather", lambda: Clock())
    monkeypatch.setattr(disk, "gather", lambda paths: {str(path): Disk(10**12, 10**12) for path in paths.values()})
    signed = ("--publish-dir", home.path / "publish", "--sign-key", key)
    sockets = [Socket("ams-1", n, "10.77.1.1", f"10.77.2.{n}", "ams") for n in range(1, 5)]
    samples = [s.at(ROUND - 290 + 50 * n, n, 90_000 * n) for s in sockets for n in range(6)]
    write_spool(home.spool, "a", [record(samples)])
    home.run("ingest", home.spool)
    home.run("decide", "initcwnd")
    assert to_fix(answer(home, *site(home, key), code=1)) == [
        "published: nothing yet",
        "on the fleet: nothing yet",
        "last push: none yet",
    ]
    home.run("publish", *signed)
    current = home.path / "publish/current"
    current.symlink_to((home.path / "publish/candidate").resolve() / "edges")
    rollout = '{"at_unix_s": %d, "details": {}, "digest": "", "edges": [], "event": "rollout", "id": "a", '
    rollout += '"publication": "", "reason": "", "verdict": "done", "who": "ann"}\n'
    with (home.path / "publish/journal.jsonl").open("a") as journal:
        journal.write(rollout % ROUND)
    found = answer(home, *site(home, key), code=0)
    assert to_fix(found) == []
    assert {one["check"] for one in found if one["verdict"] == "fine"} >= {"store", "schema", "freshness", "signature"}

    key.chmod(0o640)
    assert to_fix(answer(home, *site(home, key), code=1)) == [
        "signing key: mode 0640: others can read it, and sign what every edge accepts"
    ]
    key.chmod(0o600)
    bundle = next((home.path / "publish/candidate/edges").glob("*.json"))
    bundle.write_bytes(bundle.read_bytes().replace(b"10.77.2.0", b"10.77.9.0"))
    [one] = to_fix(answer(home, *site(home, key), code=1))
    assert one.startswith("signature: does not match this content")
    home.fleet.write_text("version: 1\npops: {ams: {prefixs: []}}\n")
    output = home.run("doctor", *site(home, key), code=1).stdout
    assert output.startswith(f" 1. fleet: {home.fleet}:2: pops.ams.")
    assert "unknown key; did you mean prefixes?" in output


def test_an_old_schema_comes_before_what_needs_it(bare_home: Home, key: Path, tmp_path: Path) -> None:
    bare_home.path.joinpath("store").mkdir()
    opened = bare_home.open()
    files = migrations.read_migrations()
    migrations.migrate(opened, files[:3])
    opened.close()
    found = answer(bare_home, *site(bare_home, key), code=1)
    pending = files[3:]
    assert to_fix(found) == [f"schema: lacks {len(pending)} migrations, {pending[0].path.name} first"]
    assert [one["check"] for one in found if one["verdict"] == "unknown"] == ["kafka", "freshness"]


def test_a_key_that_edges_do_not_trust(home: Home, key: Path) -> None:
    other = key.with_name("other")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    found = answer(home, *site(home, other), code=1)
    assert any("is not in" in one["what"] for one in found if one["check"] == "signing key")
    key.with_name("allowed_signers").chmod(0o666)
    found = answer(home, *site(home, key), code=1)
    assert any("mode 0666" in one["what"] for one in found if one["check"] == "trusted keys")


def test_brokers_and_stores_that_do_not_answer(home: Home, key: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    url = f"clickhouse://ann:secret@{nobody}/springtide?retries=0"
    environment = {**home.environment, "SPRINGTIDE_STORE": url}
    words = [str(word) for word in (*site(home, key), "--kafka", f"{nobody},no-port")]
    done = CliRunner().invoke(cli, ["doctor", *words], env=environment)
    assert done.exit_code == 1
    assert f"kafka: {nobody}: cannot be reached: Connection refused" in done.stdout
    assert "kafka: no-port: cannot be reached: is not HOST:PORT" in done.stdout
    assert "topics: " in done.stdout
    assert "cannot connect in 1 tries" in done.stdout
    assert "secret" not in done.output


def test_a_host_whose_clock_is_ahead_is_reported(home: Home, key: Path) -> None:
    ahead = Socket("fra-1", 1, "10.77.2.1", "10.77.1.9", "fra").at(time.time() + 100, 1, 0)
    write_spool(home.spool, "a", [record([ahead])])
    home.run("ingest", home.spool)
    found = answer(home, *site(home, key), code=1)
    [one] = [one for one in found if one["check"] == "hosts' clocks"]
    assert (one["verdict"], one["where"]) == ("fix", "fra-1")
