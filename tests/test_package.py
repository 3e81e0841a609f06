"""The collector's Debian package, as an administrator meets it: built, taken apart, looked at by systemd, and run."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from testkit.debian import ROOT, built, listing, run

pytestmark = pytest.mark.proof
UNIT = "springtide-collector.service"
PAGE = ROOT / "docs/how-to/run-the-collector.md"
COMMANDS = ("once", "run", "decode", "cat", "config", "top", "estimate", "completion", "metrics")
DOC = "usr/share/doc/springtide-collector"
# Every file, with its mode.
FILES = {
    "usr/bin/springtide-collector": "-rwxr-xr-x",
    f"usr/lib/systemd/system/{UNIT}": "-rw-r--r--",
    "etc/springtide/collector.toml": "-rw-r--r--",
    f"{DOC}/all-namespaces.conf": "-rw-r--r--",
    f"{DOC}/start-values.conf": "-rw-r--r--",
    f"{DOC}/copyright": "-rw-r--r--",
    f"{DOC}/notices.txt.gz": "-rw-r--r--",
    "usr/share/man/man1/springtide-collector.1.gz": "-rw-r--r--",
    **{f"usr/share/man/man1/springtide-collector-{name}.1.gz": "-rw-r--r--" for name in COMMANDS},
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collector's package, built from the release binary."""
    return built("springtide-collector", tmp_path_factory)


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's files below a root of their own."""
    root = tmp_path_factory.mktemp("root")
    run("dpkg-deb", "-x", package, root)
    return root


def test_it_brings_the_binary_its_unit_its_configuration_and_its_pages(package: Path) -> None:
    assert listing(package) == FILES


def test_it_says_what_it_is_and_needs(package: Path) -> None:
    output = run("dpkg-deb", "--info", package).stdout
    assert re.search(r"^ Package: springtide-collector$", output, re.M)
    assert re.search(r"^ Depends: .*libc6.*libssl3", output, re.M)
    assert run("dpkg-deb", "-I", package, "conffiles").stdout.split() == ["/etc/springtide/collector.toml"]


def test_an_installation_starts_nothing_and_an_upgrade_restarts_what_runs(package: Path) -> None:
    script = run("dpkg-deb", "-I", package, "postinst").stdout
    assert re.findall(r"deb-systemd-invoke (\S+)", script) == ["try-restart"]
    # Enabled again only where it was.
    assert re.search(r"was-enabled springtide-collector.service; then\s.*\s.*enable springtide", script)
    assert "deb-systemd-invoke stop" in run("dpkg-deb", "-I", package, "prerm").stdout


def test_a_page_is_there_for_each_command_and_names_its_options(installed: Path) -> None:
    for command in COMMANDS:
        page = installed / f"usr/share/man/man1/springtide-collector-{command}.1.gz"
        text = gzip.decompress(page.read_bytes()).decode()
        assert f".TH springtide-collector-{command} 1" in text
        help_text = run(installed / "usr/bin/springtide-collector", command, "--help").stdout
        options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", help_text, re.M))
        assert options
        for option in options:
            assert option.replace("-", "\\-") in text, f"{command} {option}"


def test_the_binary_runs_with_the_packaged_configuration(installed: Path) -> None:
    binary = installed / "usr/bin/springtide-collector"
    configuration = installed / "etc/springtide/collector.toml"
    effective = run(binary, "run", "--check-config", "--config", configuration).stdout
    assert 'listen = "127.0.0.1:9462"' in effective
    # Paths that it may write lie in the unit's state directory.
    unit = (installed / "usr/lib/systemd/system" / UNIT).read_text()
    state = re.search(r"^StateDirectory=(.+)$", unit, re.M)
    assert state
    directories = re.findall(r'^dir = "(.+)"$', effective, re.M)
    assert directories == [f"/var/lib/{state[1]}/spool", f"/var/lib/{state[1]}/queue"]


@pytest.mark.root
def test_it_needs_no_privilege(installed: Path) -> None:
    """Two polls into a spool, as nobody."""
    # Not pytest's own directory: only its owner may enter that.
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o777)
        shutil.copy(installed / "usr/bin/springtide-collector", directory)
        command = ["./springtide-collector", "run", "--polls", "2", "--interval", "10ms", "--spool-dir", "spool"]
        subprocess.run(command, cwd=directory, check=True, user=65534, group=65534, extra_groups=[])
        assert list((directory / "spool").glob("*.spool"))


@pytest.fixture
def machine(installed: Path, tmp_path: Path) -> Path:
    """The package beside the units that every machine has."""
    root = tmp_path / "machine"
    shutil.copytree(installed, root, symlinks=True)
    shutil.copytree("/lib/systemd/system", root / "lib/systemd/system", symlinks=True)
    shutil.copy(root / "usr/lib/systemd/system" / UNIT, root / "lib/systemd/system" / UNIT)
    (root / "bin").mkdir()
    shutil.copy("/bin/kill", root / "bin/kill")
    return root


def verified(root: Path) -> str:
    """Complaints of systemd about the unit."""
    return run("systemd-analyze", "verify", f"--root={root}", "--man=no", UNIT).stderr


def exposed(root: Path) -> tuple[set[str], float]:
    """Rights that systemd finds open, and how open the whole is."""
    output = run("systemd-analyze", "security", "--offline=true", f"--root={root}", "--no-pager", UNIT).stdout
    return opened(output), exposure(output)


def opened(text: str) -> set[str]:
    return set(re.findall(r"^✗ (\S+)", text, re.M))


def exposure(text: str) -> float:
    found = re.search(r"^→ Overall exposure level for \S+: ([\d.]+)", text, re.M)
    assert found, text
    return float(found[1])


def documented() -> list[str]:
    """systemd's words on the page: of the unit alone, and what each drop-in adds."""
    blocks = re.findall(r"```text\n(✗.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 3
    return blocks


def test_systemd_finds_the_unit_right_and_as_closed_as_the_page_says(machine: Path) -> None:
    assert verified(machine) == ""
    found, level = exposed(machine)
    page = documented()[0]
    assert found <= opened(page)
    assert level <= exposure(page)


@pytest.mark.parametrize(("name", "block"), [("all-namespaces.conf", 1), ("start-values.conf", 2)])
def test_a_drop_in_opens_what_the_page_says(machine: Path, name: str, block: int) -> None:
    drop_in = machine / "etc/systemd/system" / f"{UNIT}.d"
    drop_in.mkdir(parents=True)
    shutil.copy(machine / DOC / name, drop_in)
    assert verified(machine) == ""
    found, level = exposed(machine)
    blocks = documented()
    alone, more = blocks[0], blocks[block]
    assert found <= opened(alone) | opened(more)
    assert level <= exposure(more)


def test_systemd_would_notice_a_mistake(machine: Path) -> None:
    unit = machine / "lib/systemd/system" / UNIT
    unit.write_text(unit.read_text().replace("LockPersonality=", "LockPersonalty="))
    assert "LockPersonalty" in verified(machine)
    assert "LockPersonality=" in exposed(machine)[0]
