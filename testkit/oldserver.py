"""Debian's ClickHouse server, 18.16, on loopback in a folder of its own: real, if old."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

UNPACKED = Path(__file__).resolve().parents[1] / "target" / "tools" / "clickhouse"
# Awkward in a URL on purpose.
USER, PASSWORD = "springtide", "p@ss:w/ord%#"
# A server starts and a query shows in a second: this is for a machine that stands still.
PATIENCE_S = 60

CERTIFICATE = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
CERTIFICATE += ["-addext", "subjectAltName=DNS:localhost"]

CONFIG = """\
<yandex>
  <logger><level>warning</level><log>{folder}/log</log><errorlog>{folder}/errors</errorlog></logger>
  <http_port>{http}</http_port>
  <tcp_port>{port}</tcp_port>
  <tcp_port_secure>{secure_port}</tcp_port_secure>
  <openSSL><server>
    <certificateFile>{folder}/server.crt</certificateFile>
    <privateKeyFile>{folder}/server.key</privateKeyFile>
    <verificationMode>none</verificationMode>
    <loadDefaultCAFile>false</loadDefaultCAFile>
    <preferServerCiphers>true</preferServerCiphers>
  </server></openSSL>
  <listen_host>127.0.0.1</listen_host>
  <path>{folder}/data/</path>
  <tmp_path>{folder}/tmp/</tmp_path>
  <format_schema_path>{folder}/schemas/</format_schema_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
  <timezone>UTC</timezone>
</yandex>
"""

USERS = """\
<yandex>
  <profiles><default><max_memory_usage>1000000000</max_memory_usage></default></profiles>
  <quotas><default/></quotas>
  <users><user_name>
    <password>{password}</password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota>
  </user_name></users>
</yandex>
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class OldServer:
    """Use `start`, `kill` and `stop`; the data stay in `folder`."""

    folder: Path
    port: int
    secure_port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(UNPACKED / "lib")}
        command = [str(UNPACKED / "clickhouse-server"), f"--config-file={self.folder}/config.xml"]
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    complaint = (self.folder / "output").read_text()[-2000:]
                    self.kill()
                    raise AssertionError(f"clickhouse-server did not start:\n{complaint}") from None
                time.sleep(0.05)
            else:
                return

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_S)
            self.process = None


def install(folder: Path) -> OldServer:
    """A configured server with a certificate for `localhost`, not started."""
    if not (UNPACKED / "clickhouse-server").exists():
        raise AssertionError("no clickhouse-server: run tools/setup")
    server = OldServer(folder, free_port(), free_port())
    for name in ("data", "tmp", "schemas"):
        (folder / name).mkdir()
    config = CONFIG.format(folder=folder, port=server.port, secure_port=server.secure_port, http=free_port())
    (folder / "config.xml").write_text(config)
    (folder / "users.xml").write_text(USERS.format(password=escape(PASSWORD)).replace("user_name", "springtide"))
    subprocess.run(
        [*CERTIFICATE, "-keyout", "server.key", "-out", "server.crt"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return server
