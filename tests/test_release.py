"""Uses what `make release` leaves, with nothing else: checksums, lists of contents, notices, installation.

The installation follows docs/how-to/install.md and run-in-airflow.md line by line, on this machine under a layer of its
own and with the checkout hidden. Only `pip` is another: uv, which has the same wheels in its cache.

Long: a release is made once, and all that is done with it stands here.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testkit import postgres
from testkit.debian import PACKAGES, run
from testkit.machine import Machine, machine
from testkit.oldserver import free_port
from testkit.release import bring, shared
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/how-to/install.md").read_text()
# A panic's place in a crate's source, as the compiler leaves it in a program.
CRATE = re.compile(rb"/registry/src/[^/]+/([a-z0-9_-]+?)-(\d+\.\d+\.\d+[^/]*)/")
# Airflow starts a process for each step: seconds on an idle machine, minutes on a busy one.
PATIENCE_S = 600
# The policy's default, which the page leaves as it is.
ROUND_S = 300
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
PIN = re.compile(r"^([a-z0-9][\w.-]*)==([\w.+!-]+)", re.M)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, signed."""
    return shared(tmp_path_factory)


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.proof
def test_checksums_are_of_every_file_and_a_changed_byte_is_seen(release: Path, tmp_path: Path) -> None:
    assert checked(release).returncode == 0
    named = {line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in release.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    for suffix, count in ((".whl", 1), (".deb", 2), (".rpm", 2), (".lock", 2), (".tar.gz", 2), (".cdx.json", 5)):
        assert sum(name.endswith(suffix) for name in named) == count, suffix
    copy = shutil.copytree(release, tmp_path / "copy")
    [wheel] = copy.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"\0" * 2)
    assert wheel.name in checked(copy).stdout


@pytest.mark.proof
def test_a_folder_with_other_files_is_left_alone(release: Path, tmp_path: Path) -> None:
    """Also one that has checksums of its own, and a release with a file of somebody's."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  theirs\n")
    (copy := shutil.copytree(release, tmp_path.with_name("copy"))).joinpath("mine").write_text("mine")
    for folder in (tmp_path, copy):
        before = sorted(path.name for path in folder.iterdir())
        done = subprocess.run([ROOT / "tools/release", folder], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f"{folder} has a file of something else in it (mine)" in done.stderr
        assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.proof
def test_the_signature_is_of_these_checksums_by_that_key_and_for_releases(release: Path, tmp_path: Path) -> None:
    """As the page verifies it; another key, another purpose and another text are seen."""
    [line] = [line for line in lines("What is installed") if line.startswith("ssh-keygen -Y verify")]
    public = release.with_name("releaser.pub").read_text()
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "another")
    copy = shutil.copytree(release, tmp_path / "copy")

    def verified(key: str, purpose: str = "springtide-release") -> bool:
        signers = tmp_path / "signers"
        signers.write_text(f'springtide namespaces="{purpose}" {key}')
        script = line.replace("/etc/springtide/release_signers", str(signers))
        return subprocess.run(["bash", "-c", script], cwd=copy, capture_output=True, check=False).returncode == 0

    assert verified(public)
    assert not verified((tmp_path / "another.pub").read_text())
    assert not verified(public, "springtide-bundle")
    with (copy / "SHA256SUMS").open("a") as sums:
        sums.write("\n")
    assert not verified(public)


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


@pytest.mark.proof
@pytest.mark.parametrize("name", PACKAGES)
def test_every_crate_of_the_lock_file_is_named_with_its_checksum(release: Path, name: str) -> None:
    found = contents(release, name)
    locked = [each for each in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"] if "source" in each]
    assert len(locked) > 200
    for crate in locked:
        assert found[crate["name"], crate["version"]]["hashes"][0]["content"] == crate["checksum"]


@pytest.mark.proof
def test_every_pinned_distribution_is_named_and_what_is_installed_is_marked(release: Path) -> None:
    every = contents(release, "springtide")
    found = {key: each for key, each in every.items() if each["purl"].startswith("pkg:pypi/")}
    assert set(found) == set(PIN.findall((ROOT / "requirements.lock").read_text()))
    controller, airflow = (
        set(PIN.findall((release / f"requirements-{part}.lock").read_text())) for part in ("controller", "airflow")
    )
    assert {key for key, each in found.items() if each["scope"] == "required"} == controller
    assert {key for key, each in found.items() if each["scope"] == "optional"} == airflow - controller
    assert {"chdb", "pydantic", "ansible-core"} <= {name for name, _ in controller}
    assert "pytest" not in {name for name, _ in airflow}
    # Linked into the compiled module, or only into programs.
    scopes = {each["name"]: each["scope"] for each in every.values() if each["purl"].startswith("pkg:cargo/")}
    assert (scopes["pyo3"], scopes["serde_json"], scopes["libbpf-rs"]) == ("required", "required", "excluded")


@pytest.fixture(scope="module", params=PACKAGES)
def unpacked(request: pytest.FixtureRequest, release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package as dpkg unpacks it, below a root of its own that is called as the package is."""
    root = tmp_path_factory.mktemp("unpacked") / str(request.param)
    (root / "var/lib/dpkg").mkdir(parents=True)
    [package] = release.glob(f"{request.param}_*.deb")
    force = ("--force-depends", "--force-not-root", "--force-script-chrootless", f"--log={root}/dpkg.log")
    run("dpkg", f"--root={root}", *force, "--unpack", package)
    return root


@pytest.mark.proof
def test_what_a_program_shows_to_be_linked_is_listed_and_has_its_notice(release: Path, unpacked: Path) -> None:
    """The program's own bytes name crates: each is in both lists."""
    name = unpacked.name
    program = (unpacked / "usr/bin" / name).read_bytes()
    shown = {(crate.decode(), version.decode()) for crate, version in CRATE.findall(program)}
    assert len(shown) > 10
    components = contents(release, name)
    listed = {key for key, each in components.items() if each["scope"] == "required"}
    # C libraries and Rust's own have no crate.
    cargo = {key for key in listed if components[key]["purl"].startswith("pkg:cargo/")}
    assert shown <= cargo
    notices = gzip.decompress((unpacked / f"usr/share/doc/{name}/notices.txt.gz").read_bytes()).decode()
    assert cargo == {
        (crate, version) for crate, version in re.findall(r"^([\w-]+) (\d\S+): .* \(text [\d, ]+\)$", notices, re.M)
    }
    brought = {
        "springtide-collector": ("Magnus Edenhill", "Meta Platforms, Inc. and affiliates", "Rust Project"),
        "springtide-edge": ("The Libbpf Authors", "Rust Project"),
    }
    built_in = {"springtide-collector": {"librdkafka", "zstd"}, "springtide-edge": {"libbpf"}}[name]
    assert {each for each, _ in listed - cargo} == built_in | {"rust-std"}
    for library, version in listed - cargo:
        assert re.fullmatch(r"\d+(\.\d+)+", version), library
    for words in brought[name]:
        assert words in notices, words
    own = (unpacked / f"usr/share/doc/{name}/copyright").read_text()
    assert "License: Apache-2.0" in own
    assert ("GPL-2.0-only or BSD-2-Clause" in own) is (name == "springtide-edge")


def tracked(*paths: str) -> list[str]:
    return run("git", "-C", ROOT, "ls-files", *paths).stdout.split()


@pytest.mark.proof
def test_the_wheel_has_what_other_programs_read_byte_for_byte(release: Path) -> None:
    [path] = release.glob("*.whl")
    files = tracked("sql", "proto", "pipeline/dags", "pipeline/pools.json", "dashboards/json", "dashboards/prometheus")
    assert len(files) > 60
    with zipfile.ZipFile(path) as wheel:
        for file in files:
            assert wheel.read(f"springtide/_files/{file}") == (ROOT / file).read_bytes(), file
        for file in tracked("controller/springtide/*.html"):
            assert wheel.read(file.removeprefix("controller/")) == (ROOT / file).read_bytes(), file
        for file in tracked("deploy/ansible/roles", "deploy/ansible/plugins", "deploy/ansible/playbooks"):
            if (ROOT / file).is_file():
                inside = file.replace("deploy/ansible/", "ansible_collections/springtide/fleet/")
                assert wheel.read(inside) == (ROOT / file).read_bytes(), file
        assert not [name for name in wheel.namelist() if "/tests/" in name or name.endswith(".pyc")]
        assert b"\npyo3 " in wheel.read("springtide/_files/notices.txt")
        pages = [name for name in wheel.namelist() if ".data/data/share/man/man1/springtide-publish.1" in name]
        assert len(pages) == 1


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plays and DAGs by themselves, as a release has them."""
    folder = tmp_path_factory.mktemp("archives")
    run(ROOT / "tools/archives", folder)
    return folder


def alone(begin: str, folder: Path, **more: str) -> None:
    """Runs the page's line that begins so, in this folder."""
    [line] = [line for line in lines("Only the plays, or only the DAGs") if line.startswith(begin)]
    subprocess.run(["bash", "-c", line], cwd=folder, env={**os.environ, **more}, capture_output=True, check=True)


def test_the_plays_install_by_themselves(archives: Path, tmp_path: Path) -> None:
    """With the version of the release, every play, and the inventory that reads fleet.yaml."""
    own = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "ANSIBLE_HOME": str(tmp_path / "home"), "LC_ALL": "C.UTF-8"}
    alone("ansible-galaxy ", archives, **own)
    installed = tmp_path / "ansible_collections/springtide/fleet"
    manifest = json.loads((installed / "MANIFEST.json").read_text())
    assert manifest["collection_info"]["version"] == VERSION
    plays = {Path(each).name for each in tracked("deploy/ansible/playbooks/*.yml") if each.count("/") == 3}
    assert {path.name for path in (installed / "playbooks").glob("*.yml")} == plays
    assert not [path for path in installed.rglob("*") if path.is_symlink() or path.name == "tests"]
    [fleet] = re.findall(r"```yaml\n(.*?)```", section("The controller"), re.S)
    (tmp_path / "fleet.yaml").write_text(fleet)
    checking = ["--syntax-check", *(f"springtide.fleet.{play.removesuffix('.yml')}" for play in sorted(plays))]
    for words, expected in (checking, plays), (["--list-hosts", "springtide.fleet.edges"], {"ams-1", "sin-1"}):
        shown = subprocess.run(
            ["ansible-playbook", "-i", "fleet.yaml", *words],
            cwd=tmp_path,
            env={**os.environ, **own, "ANSIBLE_INVENTORY_ENABLED": "springtide.fleet.fleet"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert not [word for word in expected if word not in shown], shown


# As Airflow's DAG processor reads a folder of DAGs.
READ_DAGS = """
import json, pathlib, sys
from airflow.dag_processing.dagbag import BundleDagBag
folder = pathlib.Path(sys.argv[1])
found = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
import springtide_common
print(json.dumps([found.import_errors, sorted(found.dags), springtide_common.__file__]))
"""


def test_the_dags_install_by_themselves(archives: Path, tmp_path: Path) -> None:
    """Each is there, beside those that an Airflow has already, and imports only what comes with it."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / ".airflowignore").write_text("theirs")
    alone("tar ", archives, AIRFLOW_HOME=str(tmp_path))
    assert (dags / ".airflowignore").read_text() == "theirs"
    command = [sys.executable, "-c", READ_DAGS, str(dags)]
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    errors, found, common = json.loads(done.stdout.splitlines()[-1])
    assert errors == {}
    assert found == sorted(Path(each).stem for each in tracked("pipeline/dags/*.py") if "common" not in each)
    assert common == str(dags / "springtide_common.py")


def test_plays_and_dags_are_the_same_bytes_again(archives: Path, tmp_path: Path) -> None:
    run(ROOT / "tools/archives", tmp_path)
    assert len(list(archives.iterdir())) == 2
    for path in archives.iterdir():
        assert path.name.endswith(f"-{VERSION}.tar.gz")
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


@pytest.mark.parametrize("name", ["springtide-fleet", "springtide-airflow"])
def test_plays_and_dags_name_what_runs_them(name: str) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-m", "tools.sbom", name, VERSION, ROOT]
    document = json.loads(subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True).stdout)
    assert document["metadata"]["component"]["purl"] == f"pkg:generic/{name}@{VERSION}"
    pinned = set(PIN.findall((ROOT / "requirements.lock").read_text())) | {("springtide", VERSION)}
    needed = {(each["name"], each["version"]) for each in document["components"]}
    assert needed <= pinned
    assert {each for each, _ in needed} == (
        {"ansible-core"} if name == "springtide-fleet" else {"apache-airflow", "springtide"}
    )


def test_the_captures_come_with_their_authors_words() -> None:
    folder = ROOT / "collector/tests/captures"
    assert list(folder.glob("*.pcap"))
    assert "Copyright (c) 2024 randomizedcoder" in (folder / "LICENSE").read_text()
    assert "randomizedcoder/xtcp2" in (folder / "README.md").read_text()


def section(title: str, page: str = PAGE) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def lines(title: str, page: str = PAGE) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", section(title, page), re.S) for line in block.splitlines()]


class Publisher(Machine):
    """A machine with a release in /srv/release, and uv in place of the new environment's pip."""

    def steps(self, steps: list[str], given: str = "", **more: str) -> str:
        """Runs the page's lines in the release's folder, and returns what they print."""
        made = [index for index, line in enumerate(steps) if line.startswith("python3 -m venv")]
        for index in made:
            steps = [*steps[: index + 1], "ln -sf /srv/pip /opt/springtide/bin/pip", *steps[index + 1 :]]
        return self.run("\n".join(steps), "/srv/release", given, more)


@pytest.fixture(scope="module")
def publisher(release: Path) -> Iterator[Publisher]:
    with machine() as made:
        publisher = Publisher(made.process, made.own)
        bring(publisher, release)
        yield publisher


@pytest.mark.root
@pytest.mark.proof
def test_apt_installs_the_packages_and_takes_them_away(publisher: Publisher) -> None:
    """The pages' command, with apt and dpkg and the packages' own scripts; the programs start, and nothing is left."""
    collector = "apt-get install ./springtide-collector_*.deb"
    assert collector in (ROOT / "docs/how-to/run-the-collector.md").read_text()
    assert f"`{collector}`" in PAGE
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    for line in (collector, "apt-get install ./springtide-edge_*.deb"):
        publisher.run(
            line.replace("install", "install --quiet --yes --no-install-recommends"), "/srv/release", "", quiet
        )
    for name in PACKAGES:
        assert publisher.run(f"{name} --version").split() == [name, VERSION]
        assert publisher.run(f"dpkg-query --show --showformat='${{db:Status-Abbrev}}' {name}").strip() == "ii"
    assert "host =" in publisher.run("springtide-collector run --check-config --config /etc/springtide/collector.toml")
    assert publisher.run("springtide-collector once").startswith("STATE ")
    removed = publisher.run(f"apt-get purge --quiet --yes {' '.join(PACKAGES)}", more=quiet)
    assert "withdraw: 0 routes removed" in removed
    publisher.run(f"test ! -e /etc/springtide/collector.toml; ! command -v {PACKAGES[0]}; ! command -v {PACKAGES[1]}")


@pytest.fixture(scope="module")
def controller(publisher: Publisher) -> tuple[Publisher, str]:
    """The same machine after the steps of "The controller", and what they printed."""
    [fleet] = re.findall(r"```yaml\n(.*?)```", section("The controller"), re.S)
    (publisher.root / "etc/springtide").mkdir(exist_ok=True)
    (publisher.root / "etc/springtide/fleet.yaml").write_text(fleet)
    steps = lines("The controller")
    assert {line.split()[0].rpartition("/")[2] for line in steps} == {
        "sha256sum",
        "python3",
        "pip",
        "ln",
        "mkdir",
        "springtide",
    }
    return publisher, publisher.steps(steps)


@pytest.mark.root
@pytest.mark.proof
def test_the_pages_steps_install_a_controller_that_works_without_a_checkout(controller: tuple[Publisher, str]) -> None:
    there, printed = controller
    for migration in tracked("sql/migrations/*.sql"):
        assert Path(migration).stem in printed, migration

    paths = there.run("/opt/springtide/bin/python -c 'import sys, springtide; print(springtide.__file__, *sys.path)'")
    assert str(ROOT) not in paths
    assert paths.startswith("/opt/springtide/lib/")
    assert VERSION in there.run("springtide --version")

    files = json.loads(there.run("springtide files --json"))
    assert all(path.startswith("/opt/springtide/") for path in files.values())
    there.run("\n".join(f"test -e {path}" for path in files.values()))
    plays = sorted(Path(each).name for each in tracked("deploy/ansible/playbooks/*.yml") if each.count("/") == 3)
    assert len(plays) >= 6
    # With the inventory, whose plugin stands in the collection: the canaries' names come from fleet.yaml.
    checking = f"ansible-playbook --syntax-check {' '.join(f'playbooks/{play}' for play in plays)}"
    listing = "ansible-playbook --list-hosts playbooks/edges.yml"
    shown = there.run(f'cd "$(springtide files ansible)"\n{checking}\n{listing}')
    for word in (*plays, "ams-1", "sin-1"):
        assert word in shown, word


def locally(line: str) -> str:
    """A play for ams-1 on this machine itself, not by ssh; of the network it sets a namespace of its own."""
    return f"unshare --net bash -c 'ip link set lo up; {line} -e ansible_connection=local --limit ams-1,localhost'"


@pytest.fixture(scope="module")
def prepared(controller: tuple[Publisher, str]) -> tuple[Publisher, list[str]]:
    """After the steps of "Prepare" of push-routes.md, and what the recaps of its plays have of the edge."""
    there, _ = controller
    steps = lines("Prepare", (ROOT / "docs/how-to/push-routes.md").read_text())
    assert {line.split()[0] for line in steps} == {"ssh-keygen", "echo", "cd", "ansible-playbook"}
    there.run("cp springtide-edge_*.deb /var/lib/springtide/springtide-edge.deb", "/srv/release")
    steps = [locally(line) if line.startswith("ansible-playbook ") else line for line in steps]
    printed = there.run("\n".join([*steps, steps[-1]]))
    return there, re.findall(r"^ams-1 +: (.*)$", printed, re.M)


@pytest.mark.root
@pytest.mark.proof
def test_the_pages_play_brings_the_package_to_an_edge(prepared: tuple[Publisher, list[str]]) -> None:
    there, recaps = prepared
    looked, played, again = recaps
    assert all("failed=0" in each for each in recaps)
    assert "changed=0 " not in looked + played
    assert "changed=0 " in again
    assert there.run("dpkg-query --show --showformat='${db:Status-Abbrev}' springtide-edge").strip() == "ii"
    assert there.run("cat /etc/springtide/edge") == "ams-1\n"


@pytest.mark.root
@pytest.mark.proof
def test_a_round_by_the_pages_lines(prepared: tuple[Publisher, list[str]]) -> None:
    """Spooled samples become a signed publication for every edge."""
    there, _ = prepared
    # Into the round that is not over: it may end before the last of these lines.
    first = int(time.time()) // ROUND_S * ROUND_S - 8 * ROUND_S
    ends = (("ams", "10.77.1.1", "10.77.2.9"), ("sin", "10.77.2.1", "10.77.1.9"))
    sockets = [Socket(f"{pop}-1", number, here, far, pop) for number, (pop, here, far) in enumerate(ends, 1)]
    rows = [
        each.at(first + poll * ROUND_S / 2 + 5, poll + 1, (poll + 1) * each.snd_cwnd * MSS * 2)
        for each in sockets
        for poll in range(18)
    ]
    folder = there.root / "var/spool/springtide"
    folder.mkdir(parents=True, exist_ok=True)
    write_spool(folder, "samples", [record(rows)])
    [ingest] = [line for line in lines("How samples come") if line.startswith("springtide ingest ")]
    (there.root / "var/lib/prometheus/node-exporter").mkdir(parents=True, exist_ok=True)
    steps = [ingest, *lines("Each round")]
    assert {"publish", "decide", "rollup"} <= {line.split()[1] for line in steps}
    there.run("\n".join(steps))
    candidate = there.run("find /var/lib/springtide/publish/candidate/ -type f -printf '%f\n'").split()
    assert {f"{edge}.json{end}" for edge in ("ams-1", "ams-2", "sin-1") for end in ("", ".sig")} <= set(candidate)
    # An edge is missing, no broker answers and no rollout was: doctor and status report it by their codes.
    for line in lines("Is it right?"):
        assert there.run(f"{line} || test $? = 1"), line


@pytest.mark.root
@pytest.mark.proof
def test_an_upgrade_by_the_pages_lines(prepared: tuple[Publisher, list[str]]) -> None:
    """From this release to itself; but for doctor, which a site without a rollout does not please."""
    there, _ = prepared
    page = (ROOT / "docs/how-to/upgrade.md").read_text()
    steps = re.findall(r"```sh\n(.*?)```", page, re.S)[0].splitlines()
    assert steps[-1] == "springtide doctor --site"
    assert [line.split()[0] for line in steps].count("ansible-playbook") == 1
    steps = [locally(line) if line.startswith("ansible-playbook ") else line for line in steps[:-1]]
    assert re.search(r"^ams-1 .*failed=0", there.steps(steps), re.M)
    events = there.run("springtide history --json")
    assert [word for word in ("pause", "resume") if f'"{word}"' in events] == ["pause", "resume"]


@dataclass(frozen=True)
class Scheduled:
    """A publisher after the steps of run-in-airflow.md, with the database in which Airflow keeps its runs."""

    publisher: Publisher
    database: postgres.Server

    def ask(self, query: str) -> list[str]:
        """Lines of an SQL query's answer."""
        environment = {**os.environ, **self.database.environment}
        command = [str(self.database.programs / "psql"), "--no-psqlrc", "--tuples-only", "--no-align", "-c", query]
        done = subprocess.run([*command, "airflow"], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()


# Set before each line that needs them, as a person's shell keeps them.
SOURCED = "set -a; . /etc/springtide/airflow.env; set +a"


@pytest.fixture(scope="module")
def scheduled(controller: tuple[Publisher, str]) -> Iterator[Scheduled]:
    """All lines of the page's installation, but apt's, which this machine has behind it, and systemd's."""
    there, _ = controller
    page = (ROOT / "docs/how-to/run-in-airflow.md").read_text()
    steps = lines("Install", page)
    assert SOURCED in steps
    before, after = (steps[: steps.index(SOURCED)], steps[steps.index(SOURCED) :])
    left_out = {"apt-get", "systemctl"}
    assert {line.split()[0] for line in steps if line.split()[0] in left_out} == left_out
    port, secret = free_port(), secrets.token_hex(18)
    with postgres.server("postgres", secrets.token_hex(18)) as database:
        # createuser asks for the password, twice; the administrator's comes from the environment.
        there.steps(
            [line for line in before if line.split()[0] not in left_out],
            f"{secret}\n{secret}\n",
            **database.environment,
        )
        [given] = re.findall(r"```ini\n(.*?)```", section("Install", page), re.S)
        assert "PGPASSWORD=...\n" in given
        given = given.replace("127.0.0.1:5432", f"127.0.0.1:{database.port}")
        given = given.replace("PGPASSWORD=...", f"PGPASSWORD={secret}")
        # Several machines share these addresses here.
        given += f"AIRFLOW__API__PORT={port}\nAIRFLOW__API__BASE_URL=http://127.0.0.1:{port}\n"
        given += f"AIRFLOW__CORE__EXECUTION_API_SERVER_URL=http://127.0.0.1:{port}/execution/\n"
        (there.root / "etc/springtide/airflow.env").write_text(given)
        there.steps([line for line in after if line.split()[0] not in left_out])
        yield Scheduled(there, database)


@pytest.mark.root
@pytest.mark.proof
def test_the_wheels_dags_run_in_an_installed_airflow_on_postgresql(scheduled: Scheduled, tmp_path: Path) -> None:
    """By the unit's command lines: scheduler, executor, DAG processor and API server, of the release alone."""
    there = scheduled.publisher
    assert scheduled.ask("select * from import_error") == []
    names = {f"springtide_{name}" for name in ("round", "rollout", "drift", "report", "maintenance", "backfill")}
    assert set(scheduled.ask("select dag_id from serialized_dag")) == names
    assert set(scheduled.ask("select dag_id from dag where not is_paused")) == {
        "springtide_round",
        "springtide_rollout",
    }
    assert there.run("stat --format=%a /etc/springtide/airflow.env").strip() == "600"

    unit = (there.root / "etc/systemd/system/springtide-airflow@.service").read_text()
    [start] = re.findall(r"^ExecStart=(.*)$", unit, re.M)
    with contextlib.ExitStack() as ended:
        for name in ("api-server", "scheduler", "dag-processor"):
            script = f"{SOURCED}; exec {start.replace('%i', name)}"
            ended.enter_context(there.running(script, tmp_path / name))
        there.run(
            f"{SOURCED}\nairflow dags unpause springtide_maintenance\nairflow dags trigger springtide_maintenance"
        )
        query = "select state from dag_run where dag_id = 'springtide_maintenance'"
        give_up = time.monotonic() + PATIENCE_S
        while (states := set(scheduled.ask(query))) - {"success", "failed"}:
            assert time.monotonic() < give_up, states
            time.sleep(0.5)
    tasks = scheduled.ask("select task_id, state from task_instance where dag_id = 'springtide_maintenance'")
    assert states == {"success"}, tasks
    assert {"migrations|success", "retention|success"} <= set(tasks)
