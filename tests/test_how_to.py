"""Runs the collector as its how-to page shows, but for what a service manager does."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.collector import binary, wait_until

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/how-to/run-the-collector.md").read_text()
# They act on the machine itself.
NOT_HERE = {"apt-get", "systemctl", "journalctl", "mkdir", "cp"}


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found, language
    return found


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


def test_all_commands_are_of_a_known_kind() -> None:
    assert {line.split()[0] for line in commands()} <= NOT_HERE | {"springtide-collector", "curl"}


@dataclass
class Edge:
    """A machine's directories below one of our own, and its collector's port."""

    directory: Path
    port: int

    def here(self, text: str) -> str:
        for path in ("/etc/springtide", "/var/lib/springtide-collector"):
            text = text.replace(path, str(self.directory) + path)
        return text.replace("127.0.0.1:9462", f"127.0.0.1:{self.port}")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{binary().parent}:{os.environ['PATH']}",
            "SPRINGTIDE_COLLECTOR_CONFIG": self.here("/etc/springtide/collector.toml"),
        }
        shell = ["bash", "-o", "pipefail", "-c", self.here(command)]
        return subprocess.run(shell, env=environment, capture_output=True, text=True, check=False, timeout=120)

    def configure(self, text: str) -> None:
        self.directory.joinpath("etc/springtide/collector.toml").write_text(self.here(text))


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    folder = tmp_path / "etc/springtide"
    folder.mkdir(parents=True)
    # As the package's unit has it made.
    (tmp_path / "var/lib/springtide-collector").mkdir(parents=True)
    (folder / "kafka.properties").write_text(blocks("properties")[0])
    (folder / "clickhouse.password").write_text("correct horse battery staple\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Edge(tmp_path, port)
    made.configure((ROOT / "collector/packaging/collector.toml").read_text())
    return made


@pytest.mark.parametrize("configuration", blocks("toml"))
def test_each_configuration_is_in_force_as_it_stands(edge: Edge, configuration: str) -> None:
    edge.configure(configuration)
    done = edge.run("springtide-collector run --check-config")
    assert done.returncode == 0, done.stderr
    for line in edge.here(configuration).splitlines():
        if "=" in line and "sasl" not in line:
            assert line in done.stdout.splitlines(), done.stdout
    for name in re.findall(r"^(s\w+\.\w+) = \"(.*)\"$", configuration, re.M):
        assert f'"{name[0]}={name[1]}"' in done.stdout


def test_the_variables_of_the_drop_in_are_known(edge: Edge) -> None:
    """They hand over the files that the configurations name, and go before these."""
    edge.configure(blocks("toml")[1])
    names = re.findall(r"^Environment=(\S+)=%d/(\S+)$", blocks("ini")[0], re.M)
    assert names
    for variable, file in names:
        assert f"LoadCredential={file}:/etc/springtide/{file}" in blocks("ini")[0]
        given = f"/etc/springtide/../springtide/{file}"
        done = edge.run(f"{variable}={given} springtide-collector run --check-config")
        assert done.returncode == 0, done.stderr
        assert edge.here(given) in done.stdout


@pytest.fixture
def running(edge: Edge) -> Iterator[Edge]:
    command = [str(binary()), "run", "--config", edge.here("/etc/springtide/collector.toml")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as collector:
        wait_until("healthy collector", lambda: edge.run("curl -sf http://127.0.0.1:9462/healthz").returncode == 0)
        yield edge
        collector.terminate()


def test_the_commands_work_beside_a_collector_with_the_packaged_configuration(running: Edge) -> None:
    for command in commands():
        if command.split()[0] not in NOT_HERE:
            done = running.run(command)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert done.stdout, command


def test_the_account_is_of_metrics_that_are_there(running: Edge) -> None:
    page = running.run("curl -s http://127.0.0.1:9462/metrics").stdout
    [account] = [line for line in PAGE.splitlines() if line.startswith("    rows_read_total + ")]
    # Drops are there once a row is dropped.
    names = set(re.findall(r"rows_\w+", account)) - {"rows_dropped_total", "rows_recovered_total"}
    assert len(names) == 3
    assert all(f"springtide_collector_{name}" in page for name in names)
