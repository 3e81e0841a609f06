"""A web server in a namespace, from which edges fetch their bundles: nginx, with its usual tags."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.nginx import temporary
from testkit.farm import Farm

CONFIGURATION = """\
user root;
daemon off;
worker_processes 1;
pid {run}/nginx.pid;
error_log {run}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    log_format looks '$status $uri';
    access_log {run}/access.log looks;
    default_type application/octet-stream;
    keepalive_timeout 60s;
    {temporary}
    server {{
        listen {address}:{port}{tls};
        root {folder};
    }}
}}
"""


class Origin:
    """Serves `folder`. `url` is its address in the namespace."""

    def __init__(self, namespace: str, directory: Path, address: str, certificate: Path | None) -> None:
        self.folder, self.run = directory / "offered", directory / "nginx"
        for path in (self.folder, self.run):
            path.mkdir(exist_ok=True)
        self.namespace, self.address, self.port = namespace, address, 8443 if certificate else 8080
        self.url = f"{'https' if certificate else 'http'}://{address}:{self.port}"
        tls = f" ssl;\nssl_certificate {certificate};\nssl_certificate_key {certificate}" if certificate else ""
        places = {"run": self.run, "folder": self.folder, "address": address, "port": self.port, "tls": tls}
        places["temporary"] = temporary(self.run)
        (self.run / "nginx.conf").write_text(CONFIGURATION.format(**places))
        self.server: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def made(
        cls, namespace: str, directory: Path, address: str = "127.0.0.1", certificate: Path | None = None
    ) -> Iterator[Origin]:
        origin = cls(namespace, directory, address, certificate)
        origin.start()
        try:
            yield origin
        finally:
            origin.stop()

    def start(self) -> None:
        command = ["nginx", "-p", str(self.run), "-c", str(self.run / "nginx.conf")]
        inside = ["ip", "netns", "exec", self.namespace]
        self.server = subprocess.Popen([*inside, *command], stderr=subprocess.DEVNULL)
        listening = [*inside, "ss", "-Hltn", "src", f"{self.address}:{self.port}"]
        give_up = time.monotonic() + 60
        while not subprocess.run(listening, check=True, capture_output=True).stdout:
            assert time.monotonic() < give_up, (self.run / "error.log").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait()
            self.server = None

    def processor_s(self) -> float:
        """Processor seconds of the server and of its worker, so far."""
        assert self.server is not None
        workers = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split()
        ticks = 0
        for pid in (str(self.server.pid), *workers):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(words[11]) + int(words[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def looks(self) -> list[str]:
        """Status and path of each request."""
        return (self.run / "access.log").read_text().splitlines()

    def put(self, edge: str, content: bytes) -> None:
        new = self.folder / f".{edge}"
        new.write_bytes(content)
        new.replace(self.folder / f"{edge}.bundle")

    def offer(self, bundles: Mapping[str, str]) -> None:
        """Offer the files at these paths, each with its signature."""
        for edge, path in bundles.items():
            self.put(edge, Path(f"{path}.sig").read_bytes() + Path(path).read_bytes())


@contextmanager
def pullers(farm: Farm, origin: Origin, interval_s: int = 1) -> Iterator[dict[str, Path]]:
    """Every edge's own `springtide-edge pull`; the file of each to which it reports what it applied, a line each."""
    reports = {name: node.directory / "pulled.jsonl" for name, node in farm.edges.items()}
    running: list[subprocess.Popen[bytes]] = []
    with ExitStack() as files:
        try:
            for name, node in farm.edges.items():
                places = ["--state-dir", str(node.state_dir), "--run-dir", str(node.directory / "run"), "--json"]
                options = ["--origin", origin.url, "--interval", str(interval_s), "--edge", name, *places]
                command = node.program("pull", *options, "--allowed-signers", str(farm.directory / "allowed_signers"))
                report = files.enter_context(reports[name].open("wb"))
                running.append(subprocess.Popen(command, stdout=report, stderr=subprocess.DEVNULL))
            yield reports
            assert all(one.poll() is None for one in running), "a pull has ended by itself"
        finally:
            for one in running:
                one.terminate()
            for one in running:
                one.wait()
