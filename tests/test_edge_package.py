"""The edge program's Debian package: what it brings, what it starts, and what its removal leaves behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testkit.debian import built, listing, run
from testkit.edge import Edge, bundle

pytestmark = pytest.mark.proof
COMMANDS = ("apply", "check", "completion", "expire", "follow", "probe", "run", "status", "verify", "watch", "withdraw")
FILES = {
    "usr/bin/springtide-edge": "-rwxr-xr-x",
    "usr/lib/systemd/system/springtide-edge-follow.service": "-rw-r--r--",
    "usr/lib/systemd/system/springtide-edge-follow.timer": "-rw-r--r--",
    "usr/lib/systemd/system/springtide-edge-probe-serve.service": "-rw-r--r--",
    "usr/lib/systemd/system/springtide-edge-probe.service": "-rw-r--r--",
    "usr/lib/systemd/system/springtide-edge-probe.timer": "-rw-r--r--",
    "usr/lib/systemd/system/springtide-edge-watch.service": "-rw-r--r--",
    "usr/share/doc/springtide-edge/copyright": "-rw-r--r--",
    "usr/share/doc/springtide-edge/metrics.conf": "-rw-r--r--",
    "usr/share/doc/springtide-edge/notices.txt.gz": "-rw-r--r--",
    "usr/share/man/man1/springtide-edge.1.gz": "-rw-r--r--",
    **{f"usr/share/man/man1/springtide-edge-{name}.1.gz": "-rw-r--r--" for name in COMMANDS},
}
# libelf1 has another name where time_t became 64 bits wide.
LIBRARIES = {"libc6", "libgcc-s1", "libelf1", "libelf1t64", "zlib1g"}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("springtide-edge", tmp_path_factory)


def test_it_brings_the_program_its_units_and_its_page_and_needs_only_libc(package: Path) -> None:
    assert listing(package) == FILES
    [needs] = [line for line in run("dpkg-deb", "--info", package).stdout.splitlines() if "Depends:" in line]
    assert {word.split()[0] for word in needs.partition(":")[2].split(",")} <= LIBRARIES


@pytest.mark.root
def test_its_removal_takes_everything_back_and_an_upgrade_does_not(package: Path, tmp_path: Path) -> None:
    """The scripts as dpkg runs them, in an edge's namespace, with a systemctl that only notes what it is asked."""
    control, root = tmp_path / "control", tmp_path / "root"
    run("dpkg-deb", "-e", package, control)
    run("dpkg-deb", "-x", package, root)
    (tmp_path / "bin").mkdir()
    calls = tmp_path / "calls"
    systemctl = tmp_path / "bin/systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$*" >> {calls}\n')
    systemctl.chmod(0o755)
    with Edge.made(tmp_path) as edge:
        edge.ip("route", "add", "default", "via", "192.168.0.2")
        assert edge.run("apply", edge.write(bundle({"10.1.0.0/16": 50}))).code == 0

        def script(name: str, action: str) -> None:
            # Its own /var/lib and /run: this machine's are not touched.
            own = (
                'mount -t tmpfs none /var/lib && mount -t tmpfs none /run && mkdir -p /run/systemd/system && exec "$@"'
            )
            inside = ["ip", "netns", "exec", edge.name, "unshare", "--mount", "sh", "-c", own, "sh"]
            path = f"PATH={tmp_path / 'bin'}:{root / 'usr/bin'}:/usr/bin:/bin"
            subprocess.run([*inside, "env", path, str(control / name), action], check=True)

        script("prerm", "upgrade")
        script("postinst", "configure")
        assert edge.windows() == {"10.1.0.0/16": 50}
        assert calls.read_text().splitlines() == [
            "daemon-reload",
            "try-restart springtide-edge-watch.service springtide-edge-follow.timer"
            " springtide-edge-probe-serve.service",
        ]
        script("prerm", "remove")
        assert edge.windows() == {}
        last = calls.read_text().splitlines()[-1].split()
        assert last[:2] == ["disable", "--now"]
        units = {name.rpartition("/")[2] for name in FILES if "/systemd/" in name}
        # A unit that a timer or nothing starts has nothing to be disabled.
        assert set(last[2:]) == units - {"springtide-edge-follow.service", "springtide-edge-probe.service"}
