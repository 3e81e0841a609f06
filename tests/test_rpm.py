"""The .rpm packages, beside the .deb ones: the same files, and scripts that behave alike, as rpm runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.debian import PACKAGES, built, listing, packaged, run
from testkit.edge import Edge, bundle
from testkit.machine import Machine, machine

pytestmark = pytest.mark.proof
# Notes what it is asked, in place of systemd's own.
SYSTEMCTL = '#!/bin/sh\necho "$*" >> /run/calls\n'
RESTARTS = {
    "springtide-collector": "springtide-collector.service",
    "springtide-edge": "springtide-edge-watch.service springtide-edge-follow.timer springtide-edge-probe-serve.service",
}


def ask(package: Path, query: str) -> str:
    return run("rpm", "--query", "--package", package, "--queryformat", query).stdout


@pytest.fixture(scope="module", params=PACKAGES)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(str(request.param), tmp_path_factory, "rpm")


def test_it_brings_the_files_of_the_debian_package(package: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    name = ask(package, "%{NAME}")
    found = {}
    for line in ask(package, "[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]").splitlines():
        mode, owner, path = line.split()
        assert owner == "root:root", line
        if not mode.startswith("d"):
            found[path.removeprefix("/")] = mode
    assert found == listing(built(name, tmp_path_factory))
    own = ask(package, "[%{FILEFLAGS:fflags} %{FILENAMES}\n]").splitlines()
    kept = [line.split()[1] for line in own if line.startswith("cn ")]
    assert kept == (["/etc/springtide/collector.toml"] if name == "springtide-collector" else [])


def test_it_says_what_it_is_and_needs_only_the_hosts_libraries(package: Path) -> None:
    name = ask(package, "%{NAME}")
    assert package.name == f"{ask(package, '%{NVRA}')}.rpm"
    needs = run("rpm", "--query", "--package", "--requires", package).stdout.split("\n")
    libraries = {found[1] for line in needs if (found := re.match(r"(lib\w+)\.so", line))}
    assert libraries == {"libc", "libgcc_s"} | (
        {"libssl", "libcrypto", "libm"} if name == "springtide-collector" else {"libelf", "libz"}
    )


@pytest.fixture(scope="module")
def host() -> Iterator[Machine]:
    """A machine with rpm, whose systemctl only notes what it is asked."""
    with machine() as made:
        (made.root / "usr/bin/systemctl").unlink(missing_ok=True)
        (made.root / "usr/bin/systemctl").write_text(SYSTEMCTL)
        (made.root / "usr/bin/systemctl").chmod(0o755)
        made.run("mkdir -p /run/systemd/system /srv/rpm; rm -rf /etc/springtide /var/lib/springtide; rpm --initdb")
        yield made


@pytest.mark.root
def test_rpm_installs_upgrades_and_removes_it(host: Machine, package: Path) -> None:
    """A newer version is this one once more, by another release number. Debian's rpm knows none of the libraries."""
    name = ask(package, "%{NAME}")
    (host.root / "srv/rpm" / package.name).write_bytes(package.read_bytes())
    rpm = f"unshare --net rpm --nodeps {{}} /srv/rpm/{package.name}"

    def calls(script: str) -> list[str]:
        host.run(f"rm -f /run/calls; {script}; touch /run/calls")
        return host.run("cat /run/calls").splitlines()

    again = ["daemon-reload", f"try-restart {RESTARTS[name]}"]
    assert calls(rpm.format("--install")) == again
    assert host.run(f"{name} --version").split()[0] == name
    assert calls(rpm.format("--upgrade --force")) == again
    assert host.run(f"rpm --query --all {name}").split() == [package.stem]
    [removal] = calls(f"unshare --net rpm --erase {name}")
    assert removal.startswith(f"disable --now {RESTARTS[name]}")
    host.run(f"! command -v {name}; test ! -e /etc/springtide -a ! -e /usr/share/doc/{name}")


@pytest.mark.root
def test_the_edges_removal_takes_everything_back_and_an_upgrade_does_not(
    host: Machine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = built("springtide-edge", tmp_path_factory, "rpm")
    (host.root / "srv/rpm" / package.name).write_bytes(package.read_bytes())
    with Edge.made(tmp_path) as edge:
        edge.ip("route", "add", "default", "via", "192.168.0.2")
        assert edge.run("apply", edge.write(bundle({"10.1.0.0/16": 50}))).code == 0
        inside = ("nsenter", f"--net=/run/netns/{edge.name}")
        for step in ("--install", "--upgrade --force"):
            run(*inside, *host.command(f"rpm --nodeps {step} /srv/rpm/{package.name}"))
            assert edge.windows() == {"10.1.0.0/16": 50}
        run(*inside, *host.command("rpm --erase springtide-edge"))
        assert edge.windows() == {}


def test_the_same_programs_give_the_same_bytes(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    packaged(tmp_path)
    for name in PACKAGES:
        for kind in ("deb", "rpm"):
            once = built(name, tmp_path_factory, kind)
            assert (tmp_path / once.name).read_bytes() == once.read_bytes(), once.name
