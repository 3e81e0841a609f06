"""What `make release` leaves, for one who has nothing else: checksums, lists of contents, notices, installation.

The installation follows docs/how-to/install.md line by line, with folders of its own in the places of the machine's (a
mount namespace) and the checkout hidden. Only `pip` is another: uv, which has the same wheels in its cache.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.debian import PACKAGES, run

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/how-to/install.md").read_text()
UV = ROOT / ".venv/bin/uv"
# A panic's place in a crate's source, as the compiler leaves it in a program.
CRATE = re.compile(rb"/registry/src/[^/]+/([a-z0-9_-]+?)-(\d+\.\d+\.\d+[^/]*)/")
PIN = re.compile(r"^([a-z0-9][\w.-]*)==([\w.+!-]+)", re.M)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, made once; from what uv has in its cache, else from the network."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    for more in ({"UV_OFFLINE": "1"}, {}):
        done = subprocess.run(
            [ROOT / "tools/release", folder], env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return folder
    raise AssertionError(done.stderr)


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_checksums_are_of_every_file_and_a_changed_byte_is_seen(release: Path, tmp_path: Path) -> None:
    assert checked(release).returncode == 0
    named = {line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    for suffix, count in ((".whl", 1), (".deb", 2), (".lock", 2), (".cdx.json", 3)):
        assert sum(name.endswith(suffix) for name in named) == count, suffix
    copy = shutil.copytree(release, tmp_path / "copy")
    [wheel] = copy.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"\0" * 2)
    assert wheel.name in checked(copy).stdout


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = subprocess.run([ROOT / "tools/release", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def contents(release: Path, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """A CycloneDX document's components by name and version."""
    [path] = release.glob(f"{name}_*.cdx.json")
    document = json.loads(path.read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert document["metadata"]["component"]["name"] == name
    components = document["components"]
    assert len({each["bom-ref"] for each in components}) == len(components)
    assert {each["scope"] for each in components} <= {"required", "optional", "excluded"}
    return {(each["name"], each["version"]): each for each in components}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_crate_of_the_lock_file_is_named_with_its_checksum(release: Path, name: str) -> None:
    found = contents(release, name)
    locked = [each for each in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"] if "source" in each]
    assert len(locked) > 200
    for crate in locked:
        assert found[crate["name"], crate["version"]]["hashes"][0]["content"] == crate["checksum"]


def test_every_pinned_distribution_is_named_and_what_is_installed_is_marked(release: Path) -> None:
    found = contents(release, "springtide")
    assert set(found) == set(PIN.findall((ROOT / "requirements.lock").read_text()))
    controller, airflow = (
        set(PIN.findall((release / f"requirements-{part}.lock").read_text())) for part in ("controller", "airflow")
    )
    assert {key for key, each in found.items() if each["scope"] == "required"} == controller
    assert {key for key, each in found.items() if each["scope"] == "optional"} == airflow - controller
    assert {"chdb", "pydantic", "ansible-core"} <= {name for name, _ in controller}
    assert "pytest" not in {name for name, _ in airflow}


@pytest.fixture(scope="module", params=PACKAGES)
def unpacked(request: pytest.FixtureRequest, release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package as dpkg unpacks it, below a root of its own that is called as the package is."""
    root = tmp_path_factory.mktemp("unpacked") / str(request.param)
    (root / "var/lib/dpkg").mkdir(parents=True)
    [package] = release.glob(f"{request.param}_*.deb")
    force = ("--force-depends", "--force-not-root", "--force-script-chrootless", f"--log={root}/dpkg.log")
    run("dpkg", f"--root={root}", *force, "--unpack", package)
    return root


def test_what_a_program_shows_to_be_linked_is_listed_and_has_its_notice(release: Path, unpacked: Path) -> None:
    """The program's own bytes name crates: each is in both lists."""
    name = unpacked.name
    program = (unpacked / "usr/bin" / name).read_bytes()
    shown = {(crate.decode(), version.decode()) for crate, version in CRATE.findall(program)}
    assert len(shown) > 10
    listed = {key for key, each in contents(release, name).items() if each["scope"] == "required"}
    assert shown <= listed
    notices = gzip.decompress((unpacked / f"usr/share/doc/{name}/notices.txt.gz").read_bytes()).decode()
    assert listed - {key for key in listed if key[0] == "rust-std"} == {
        (crate, version) for crate, version in re.findall(r"^([\w-]+) (\d\S+): .* \(text [\d, ]+\)$", notices, re.M)
    }
    brought = {
        "springtide-collector": ("Magnus Edenhill", "Meta Platforms, Inc. and affiliates", "Rust Project"),
        "springtide-edge": ("The Libbpf Authors", "Rust Project"),
    }
    for words in brought[name]:
        assert words in notices, words
    own = (unpacked / f"usr/share/doc/{name}/copyright").read_text()
    assert "License: Apache-2.0" in own
    assert ("GPL-2.0-only or BSD-2-Clause" in own) is (name == "springtide-edge")


def tracked(*paths: str) -> list[str]:
    return run("git", "-C", ROOT, "ls-files", *paths).stdout.split()


def test_the_wheel_has_what_other_programs_read_byte_for_byte(release: Path) -> None:
    [path] = release.glob("*.whl")
    files = tracked("sql", "proto", "pipeline/dags", "pipeline/pools.json", "dashboards/json", "dashboards/prometheus")
    assert len(files) > 60
    with zipfile.ZipFile(path) as wheel:
        for file in files:
            assert wheel.read(f"springtide/_files/{file}") == (ROOT / file).read_bytes(), file
        for file in tracked("deploy/ansible/roles", "deploy/ansible/plugins", "deploy/ansible/playbooks"):
            if (ROOT / file).is_file():
                inside = file.replace("deploy/ansible/", "ansible_collections/springtide/fleet/")
                assert wheel.read(inside) == (ROOT / file).read_bytes(), file
        assert not [name for name in wheel.namelist() if "/tests/" in name or name.endswith(".pyc")]


def test_the_captures_come_with_their_authors_words() -> None:
    folder = ROOT / "collector/tests/captures"
    assert list(folder.glob("*.pcap"))
    assert "Copyright (c) 2024 randomizedcoder" in (folder / "LICENSE").read_text()
    assert "randomizedcoder/xtcp2" in (folder / "README.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def lines(title: str) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", section(title), re.S) for line in block.splitlines()]


@pytest.fixture(scope="module")
def machine(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders for /opt, /etc, /var/lib and /usr/local/bin, the release beside them, and uv in place of pip."""
    folder = tmp_path_factory.mktemp("machine")
    for name in ("opt", "lib"):
        (folder / name).mkdir()
    shutil.copytree("/usr/local/bin", folder / "bin", symlinks=True)
    shutil.copytree("/etc", folder / "etc", symlinks=True)
    (folder / "etc/springtide").mkdir(exist_ok=True)
    [fleet] = re.findall(r"```yaml\n(.*?)```", section("The controller"), re.S)
    (folder / "etc/springtide/fleet.yaml").write_text(fleet)
    shutil.copy(UV, folder / "uv")
    pip = folder / "pip"
    # What is pinned as links to the cache: hundreds of megabytes are not copied. The wheel is.
    pip.write_text(
        f"""#!/bin/sh
case "$*" in *.lock) UV_LINK_MODE=symlink ;; *) UV_LINK_MODE=copy ;; esac
export UV_LINK_MODE
set -- {folder}/uv pip "$@" --python /opt/springtide/bin/python
"$@" --offline 2>/dev/null || exec "$@"
"""
    )
    pip.chmod(0o755)
    shutil.copytree(release, folder / "release")
    yield folder
    shutil.rmtree(folder)


def there(machine: Path, script: str) -> str:
    """What bash prints for a script on that machine, in the release's folder; fails where a command does."""
    mounts = "".join(
        f"mount --bind {machine}/{name} {place}\n"
        for name, place in (("opt", "/opt"), ("lib", "/var/lib"), ("bin", "/usr/local/bin"), ("etc", "/etc"))
    )
    hidden = f"mount -t tmpfs none {ROOT}\n"
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve().parent
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", f"set -euo pipefail\n{mounts}{hidden}{script}"],
        cwd=machine / "release",
        env={"PATH": f"{python}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.root
def test_the_pages_steps_install_a_controller_that_works_without_a_checkout(machine: Path) -> None:
    steps = lines("The controller")
    assert {line.split()[0].rpartition("/")[2] for line in steps} == {
        "sha256sum",
        "python3",
        "pip",
        "ln",
        "springtide",
    }
    made = next(index for index, line in enumerate(steps) if line.startswith("python3 -m venv"))
    steps.insert(made + 1, f"ln -sf {machine}/pip /opt/springtide/bin/pip")
    printed = there(machine, "\n".join(steps))
    for migration in tracked("sql/migrations/*.sql"):
        assert Path(migration).stem in printed, migration

    paths = there(
        machine, "/opt/springtide/bin/python -c 'import sys, springtide; print(springtide.__file__, *sys.path)'"
    )
    assert str(ROOT) not in paths
    assert paths.startswith("/opt/springtide/lib/")
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert version in there(machine, "springtide --version")

    files = json.loads(there(machine, "springtide files --json"))
    assert all(path.startswith("/opt/springtide/") for path in files.values())
    there(machine, "\n".join(f"test -e {path}" for path in files.values()))
    plays = sorted(Path(each).name for each in tracked("deploy/ansible/playbooks/*.yml") if each.count("/") == 3)
    assert len(plays) >= 6
    # With the inventory, whose plugin stands in the collection: the canaries' names come from fleet.yaml.
    checking = f"ansible-playbook --syntax-check {' '.join(f'playbooks/{play}' for play in plays)}"
    shown = there(
        machine, f'cd "$(springtide files ansible)"\n{checking}\nansible-playbook --list-hosts playbooks/edges.yml'
    )
    for word in (*plays, "ams-1", "sin-1"):
        assert word in shown, word


def test_the_page_names_what_is_not_executed() -> None:
    """Every command of the page is in the first section, or named as not executed."""
    elsewhere = {line.split()[0] for title in re.findall(r"^## (.*)$", PAGE, re.M) for line in lines(title)}
    left = section("What is tested, and what is not")
    for command in elsewhere - {"springtide", "sha256sum", "python3", "ln", "/opt/springtide/bin/pip"}:
        assert f"`{command}" in left, command
    for line in lines("How samples come") + lines("Each round") + lines("Is it right?"):
        assert f"`{' '.join(line.split()[:2])}" in left, line
