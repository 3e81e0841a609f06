"""Airflow on this machine, its processes apart: API server, scheduler, DAG processor, triggerer. Loopback only.

    python -m pipeline.local HOME [--port N]

`standalone` would leave its children behind when it is stopped, so each process is ours, and ended by its id.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PROCESSES = ("api-server", "scheduler", "dag-processor", "triggerer")
START_S = 180
STOP_S = 30
USER = "springtide"
# Commands one after the other in one process: importing Airflow takes seconds.
PREPARE = """
import sys
from airflow.__main__ import main
for words in (("db", "migrate"), ("pools", "import", sys.argv[1])):
    sys.argv[1:] = words
    main()
"""
# A step's process is a fork of the scheduler's: it has what that one imported. chdb would be there without its threads.
IMPORTED = """
from airflow.providers.standard.decorators import python
from springtide.jobs import consume, decide, due, notice, publish

__all__ = []
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class LocalAirflow:
    """One Airflow in `home`: `prepare`, `start`, `stop`. `more` is environment for it and its tasks.

    `database` is SQLAlchemy's URL of what it keeps its runs in; where it is empty, a SQLite file in `home`.
    """

    home: Path
    port: int = 8080
    more: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    database: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        found: dict[str, str] = json.loads((self.home / "passwords.json").read_text())
        return found[USER]

    def environment(self) -> dict[str, str]:
        settings = {
            "CORE__DAGS_FOLDER": ROOT / "pipeline/dags",
            "CORE__LOAD_EXAMPLES": False,
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": 4,
            "CORE__DEFAULT_TASK_RETRY_DELAY": 20,
            "CORE__FERNET_KEY": "",
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": self.home / "passwords.json",
            # SQLite has one writer at a time: the others wait so many seconds (5 by default) before theirs fails.
            "DATABASE__SQL_ALCHEMY_CONN": self.database or f"sqlite:///{self.home}/airflow.db?timeout=60",
            "API__HOST": "127.0.0.1",
            "API__PORT": self.port,
            "API__WORKERS": 1,
            "API__BASE_URL": self.url,
            "API__SECRET_KEY": self._secret("api"),
            "API_AUTH__JWT_SECRET": self._secret("jwt"),
            # Reading a DAG file anew costs seconds of a core, and ours change with a release. Not rarer: Airflow may
            # forget that a run has ended (exceeds_max_non_backfill), and begins none until the file is read again.
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 150,
            "USAGE_DATA_COLLECTION__ENABLED": False,
        }
        return {
            **os.environ,
            "AIRFLOW_HOME": str(self.home),
            "SPRINGTIDE_ANSIBLE_DIR": str(ROOT / "deploy/ansible"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
            **self.more,
        }

    def _secret(self, name: str) -> str:
        path = self.home / f"{name}.secret"
        if not path.exists():
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(32))
        return path.read_text()

    def prepare(self) -> None:
        """The database, the pools and a password, made once."""
        self.home.mkdir(parents=True, exist_ok=True)
        for folder in ("logs", "config"):
            (self.home / folder).mkdir(exist_ok=True)
        (self.home / "config/airflow_local_settings.py").write_text(IMPORTED)
        passwords = self.home / "passwords.json"
        if not passwords.exists():
            handle = os.open(passwords, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump({USER: secrets.token_urlsafe(18)}, file)
        command = [sys.executable, "-c", PREPARE, str(ROOT / "pipeline/pools.json")]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"airflow db migrate, pools import: {(done.stderr or done.stdout).strip()[-2000:]}")

    def start(self, names: Sequence[str] = PROCESSES) -> None:
        """Start them, and wait until the API answers. Raises RuntimeError with the end of a log."""
        for name in names:
            with (self.home / f"logs/{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [BIN / "airflow", name],
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        give_up = time.monotonic() + START_S
        while not self._answers():
            self.check()
            if time.monotonic() > give_up:
                raise RuntimeError(f"the API server does not answer after {START_S} s; see {self.home}/logs")
            time.sleep(0.2)

    def check(self) -> None:
        """Raises RuntimeError when a process has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                end = (self.home / f"logs/{name}.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"airflow {name} has ended with code {process.returncode}: {end}")

    def _answers(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/api/v2/version")
            return connection.getresponse().status == HTTPStatus.OK
        return False

    def stop(self) -> None:
        """End every process with all of its children; a session of its own makes them one group.

        The API server is killed, after those that ask it: all that it has is in the database, and its own end takes
        four seconds of a core.
        """
        asking = [process for name, process in self.processes.items() if name != "api-server"]
        for number, processes in ((signal.SIGTERM, asking), (signal.SIGKILL, self.processes.values())):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + STOP_S
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        self.processes.clear()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.local", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("home", type=Path, help="AIRFLOW_HOME; made where it is not there")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    airflow = LocalAirflow(options.home.resolve(), options.port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        airflow.prepare()
        airflow.start()
        print(f"Airflow on {airflow.url}, user {USER}, password {airflow.password}; Ctrl-C ends it", flush=True)
        while True:
            airflow.check()
            time.sleep(1)
    except KeyboardInterrupt:
        pass
    except RuntimeError as error:
        sys.exit(f"airflow: {error}")
    finally:
        airflow.stop()


if __name__ == "__main__":
    main()
