"""The roles for collectors and servers, on a host with a root of its own; what they write is read by its programs."""

from __future__ import annotations

import hashlib
import re
import secrets
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from testkit import rights
from testkit.farm import BIN, Farm, Node, Played
from testkit.kafka.broker import jars

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[3]
PASSWORD = secrets.token_hex(12)
START_VALUES = "start-values.conf"
UNIT = "etc/systemd/system/kafka.service"
CONTROL = "Package: {}\nVersion: {}\nArchitecture: all\nMaintainer: A Test <test@springtide.invalid>\nDescription: {}\n"

# A file of ClickHouse's own package, as far as the role meets it; rights.PACKAGED is the other file.
MAIN = "<clickhouse><user_directories><users_xml><path>users.xml</path></users_xml></user_directories></clickhouse>"


def package(folder: Path, name: str, version: str, files: dict[str, bytes], postinst: str = "") -> Path:
    """NAME.deb; a file that goes under /usr/bin can be run, one under /etc is configuration."""
    tree = folder / name
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
        (tree / path).chmod(0o755 if path.startswith("usr/bin") else 0o644)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(CONTROL.format(name, version, "for a test"))
    (tree / "DEBIAN/conffiles").write_text("".join(f"/{path}\n" for path in files if path.startswith("etc/")))
    if postinst:
        (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh -e\n{postinst}\n")
        (tree / "DEBIAN/postinst").chmod(0o755)
    made = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Znone", tree, made], check=True, capture_output=True)
    return made


def collector_package(folder: Path) -> Path:
    """As `make package` builds it, of the same files, without building anything."""
    packaging = ROOT / "collector/packaging"
    unit = "springtide-collector.service"
    files = {
        "usr/bin/springtide-collector": (ROOT / "target/release/springtide-collector").read_bytes(),
        f"usr/lib/systemd/system/{unit}": (packaging / unit).read_bytes(),
        "etc/springtide/collector.toml": (packaging / "collector.toml").read_bytes(),
        f"usr/share/doc/springtide-collector/{START_VALUES}": (packaging / START_VALUES).read_bytes(),
    }
    return package(folder, "springtide-collector", "1.0", files)


def clickhouse_package(folder: Path) -> Path:
    etc = {"config.xml": MAIN, "users.xml": rights.PACKAGED}
    files = {f"etc/clickhouse-server/{name}": text.encode() for name, text in etc.items()}
    postinst = "useradd --system --user-group clickhouse; install -d -o clickhouse -m 750 /var/lib/clickhouse"
    return package(folder, "clickhouse-server", "26.3.1.1", files, postinst)


def kafka_archive(folder: Path) -> Path:
    """The broker's jars as Apache's archive has them."""
    path = folder / "kafka_2.13-4.1.0.tgz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(jars(), "kafka_2.13-4.1.0/libs")
    return path


def certificate(folder: Path, address: str) -> None:
    """server.crt, server.key, and both in server.pem."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    # librdkafka compares what it connects to with names only.
    command += ["-addext", f"subjectAltName=DNS:{address},IP:{address}", "-keyout", "server.key", "-out", "server.crt"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())


def settings(folder: Path, node: Node) -> dict[str, Any]:
    certificate(folder, node.address)
    archive = kafka_archive(folder)
    owner = subprocess.run(["dpkg", "-S", Path("/usr/bin/java").resolve()], check=True, capture_output=True, text=True)
    return {
        "ansible_python_interpreter": "/usr/bin/python3",
        "kafka_archive": str(archive),
        "kafka_archive_checksum": f"sha512:{hashlib.sha512(archive.read_bytes()).hexdigest()}",
        "kafka_java_package": owner.stdout.partition(":")[0],
        "kafka_manage_service": False,
        "kafka_heap": "256m",
        "kafka_address": node.address,
        "kafka_certificate": str(folder / "server.pem"),
        "kafka_users": {"collector": PASSWORD},
        "clickhouse_package_files": [str(clickhouse_package(folder))],
        "clickhouse_manage_service": False,
        "clickhouse_address": node.address,
        "clickhouse_certificate": str(folder / "server.crt"),
        "clickhouse_private_key": str(folder / "server.key"),
        "clickhouse_users": [
            {"name": "springtide", "password_sha256": hashlib.sha256(PASSWORD.encode()).hexdigest()},
            {
                "name": "collector",
                "password_sha256": hashlib.sha256(b"another").hexdigest(),
                "networks": ["10.99.0.0/16"],
                "grants": ["GRANT INSERT ON springtide.tcp_samples", "GRANT dictGet ON springtide.*"],
            },
        ],
        "collector_package": str(collector_package(folder)),
        "collector_manage_service": False,
        "collector_start_values": True,
        "collector_kafka_brokers": f"{node.address}:9094",
        "collector_kafka_options": {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"},
        "collector_kafka_secrets": {"sasl.username": "collector", "sasl.password": PASSWORD},
        "collector_clickhouse_url": f"https://{node.address}:8443",
        "collector_clickhouse_password": "another",
    }


def set_up(farm: Farm, values: dict[str, Any], *arguments: str) -> Played:
    """Both plays in one run."""
    servers = farm.directory / "servers.yml"
    hosts = {"hosts": dict.fromkeys(farm.edges)}
    servers.write_text(yaml.safe_dump({"kafka": hosts, "clickhouse": hosts}))
    plays = str(ROOT / "deploy/ansible/playbooks/servers.yml")
    played = farm.play("collectors.yml", "-i", str(servers), *arguments, plays, **values)
    assert PASSWORD not in played.output, "a password stands in what Ansible prints"
    return played


@pytest.mark.proof
def test_a_site_is_installed_and_its_programs_take_what_is_written(tmp_path: Path) -> None:
    with Farm.made(tmp_path, count=1, rooted=True) as farm:
        node = farm.edges["eu-0"]
        values = settings(tmp_path, node)
        # Kafka resolves the names of both ends, and there is no DNS here to answer at once that there are none.
        with (node.root / "etc/hosts").open("a") as hosts:
            hosts.write(f"{node.address} eu-0\n10.99.0.1 publisher\n")
        looked = set_up(farm, values, "--check", "--diff")
        assert looked.code == 0, looked.output
        assert looked.stats["eu-0"]["changed"] > 15
        for line in ("+brokers = ", "+    <tcp_port_secure>9440</tcp_port_secure>", "+User=kafka"):
            assert line in looked.output, f"--diff does not show {line}"
        assert not any(
            (node.root / path).exists() for path in (UNIT, "opt/kafka", "etc/springtide", "etc/clickhouse-server")
        )

        done = set_up(farm, values)
        assert done.code == 0, done.output
        again = set_up(farm, values, "--diff")
        assert (again.code, again.stats["eu-0"]["changed"]) == (0, 0), again.output

        for path in (
            "etc/kafka/server.properties",
            "etc/kafka/server.pem",
            "etc/springtide/collector-kafka.properties",
        ):
            assert (node.root / path).stat().st_mode & 0o007 == 0, f"{path}: everybody can read it"
        services = ("kafka.service", "springtide-collector.service")
        verified = inside(node, "systemd-analyze", "verify", "--man=no", *services)
        assert (verified.returncode, verified.stderr) == (0, "")
        drop_in = node.root / "etc/systemd/system/springtide-collector.service.d" / START_VALUES
        assert drop_in.read_bytes() == (ROOT / "collector/packaging" / START_VALUES).read_bytes()
        without = farm.play("collectors.yml", **values | {"collector_start_values": False})
        assert without.code == 0, without.output
        assert not drop_in.exists()
        checked = inside(node, "springtide-collector", "run", "--check-config")
        assert checked.returncode == 0, checked.stderr
        assert '"springtide.tcp_samples"' in checked.stdout
        clickhouse_reads(node, tmp_path)
        with kafka_runs(node):
            make_topics(farm, node)


def inside(node: Node, *command: str) -> subprocess.CompletedProcess[str]:
    entered = ["ip", "netns", "exec", node.namespace, "chroot", str(node.root), *command]
    return subprocess.run(entered, check=False, capture_output=True, text=True)


def clickhouse_reads(node: Node, folder: Path) -> None:
    """By the engine of today, in process: who may do what, and the profile. The ports it does not open."""
    etc = node.root / "etc/clickhouse-server"
    users = (etc / "users.d/springtide.xml").read_text()
    store = rights.make_store(folder / "chdb")
    assert rights.faults_of_default(store, users) == []
    # As a collector that inserts by itself: with the look-up of its PoP, and with nothing that it was not given.
    inserted, read = rights.run_queries(
        store, rights.acting(users, "collector"), [rights.INSERT, "select * from springtide.rollups"]
    )
    assert inserted == ""
    assert "Not enough privileges" in read
    may = users.replace(
        "<profile>dictionaries</profile>", "<profile>default</profile><access_management>1</access_management>"
    )
    answers = rights.run_queries(
        store,
        rights.acting(may, "springtide"),
        [
            "select name, auth_type[1] from system.users where name != 'default' order by name",
            "show create user springtide",
            "show create user collector",
            "select value from system.settings where name = 'optimize_on_insert'",
            rights.INSERTED,
        ],
    )
    assert answers[0] == "collector\tsha256_password\nspringtide\tsha256_password"
    assert answers[1].rpartition(" HOST ")[2].startswith("LOCAL"), answers[1]
    assert "10.99.0.0/16" in answers[2]
    assert answers[3:] == ["0", "1\tams"]
    contract = node.root / "var/lib/clickhouse/format_schemas/springtide/tcp_sample.proto"
    assert contract.read_bytes() == (ROOT / "proto/springtide/v1/tcp_sample.proto").read_bytes()


@contextmanager
def kafka_runs(node: Node) -> Iterator[None]:
    """The command of the unit as the unit's user; bounds on its start and end are for a machine that stands still."""
    found = re.search(r"^ExecStart=(.*)$", (node.root / UNIT).read_text(), re.MULTILINE)
    assert found is not None
    enter = ["ip", "netns", "exec", node.namespace, "chroot", str(node.root), "runuser", "-u", "kafka", "--"]
    log = node.directory / "kafka.log"
    with log.open("wb") as out:
        broker = subprocess.Popen([*enter, *found[1].split()], stdout=out, stderr=out)
    try:
        give_up = time.monotonic() + 120
        while "Kafka Server started" not in log.read_text():
            assert broker.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < give_up, log.read_text()[-3000:]
            time.sleep(0.1)
        yield
    finally:
        broker.terminate()
        broker.wait(60)


def make_topics(farm: Farm, node: Node) -> None:
    """From another host, with TLS and the password; without them it is not reached at all."""
    topics = farm.directory / "topics.yaml"
    topics.write_text(
        yaml.safe_dump({"version": 1, "topics": {"springtide.tcp_samples": {"partitions": 1, "replication": 1}}})
    )
    options = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "collector",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(farm.directory / "server.crt"),
    }
    command = ["ip", "netns", "exec", farm.namespace, str(BIN / "springtide"), "topics", "apply", "--file", str(topics)]
    command += ["--kafka", f"{node.address}:9094"]
    command += [word for key, value in options.items() for word in ("--kafka-option", f"{key}={value}")]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    knock = f"import socket; socket.create_connection(('{node.address}', 9092), 5)"
    plain = ["ip", "netns", "exec", farm.namespace, str(BIN / "python"), "-c", knock]
    assert "Connection refused" in subprocess.run(plain, check=False, capture_output=True, text=True).stderr
