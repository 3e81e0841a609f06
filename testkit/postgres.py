"""A PostgreSQL server on loopback, of the programs that the host has, made as the container image makes its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from testkit.oldserver import free_port

READY_S = 60  # until a server answers: only for a machine that stands still
# Debian's account for it, who cannot enter what is root's alone. The server refuses to run as root.
ACCOUNT = "postgres"


class PostgresError(RuntimeError):
    """The server is not installed or did not start; the message has the end of its log."""


@dataclass(frozen=True)
class Server:
    """Where it listens, and the role that may do everything there."""

    port: int
    user: str
    password: str
    programs: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that libpq and asyncpg look for: the client programs need no more."""
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
        }

    def url(self, database: str) -> str:
        """For SQLAlchemy; without the password, which stands in the environment (PGPASSWORD)."""
        return f"postgresql+psycopg2://{self.user}@127.0.0.1:{self.port}/{database}"

    def make(self, database: str) -> None:
        """A new database, of `user`."""
        _run(self, "createdb", database, environment={**os.environ, **self.environment})


def programs() -> Path:
    """The newest version's folder. Raises PostgresError where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise PostgresError("PostgreSQL is missing: apt-get install postgresql")
    return found[-1].parent


@contextlib.contextmanager
def server(user: str, password: str) -> Iterator[Server]:
    """A new one, of `user`, to whom it listens by password (SCRAM); ended and deleted at the end. Needs root."""
    made = Server(free_port(), user, password, programs())
    folder = Path(tempfile.mkdtemp(prefix="springtide-postgres-"))
    shutil.chown(folder, ACCOUNT)
    secret = folder / "password"
    secret.write_text(password)
    shutil.chown(secret, ACCOUNT)
    data, log = folder / "data", folder / "log"
    initdb = ("initdb", "--pgdata", data, "--username", user, "--pwfile", secret, "--auth=scram-sha-256")
    try:
        _run(made, *initdb, "--encoding=UTF8", "--no-locale", "--no-sync")
        options = ("-D", data, "-k", folder, "-h", "127.0.0.1", "-p", str(made.port), "-c", "fsync=off")
        with log.open("wb") as written, subprocess.Popen(_command(made, "postgres", *options), stderr=written) as ours:
            try:
                _wait(made, ours, log)
                yield made
            finally:
                # Its fast end: open connections are closed. setpriv became the server: this is its own process.
                ours.send_signal(signal.SIGINT)
    finally:
        shutil.rmtree(folder)


def _command(made: Server, program: str, *arguments: str | Path) -> list[str]:
    as_account = ("setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups")
    return [*as_account, str(made.programs / program), *map(str, arguments)]


def _run(made: Server, program: str, *arguments: str | Path, environment: Mapping[str, str] = os.environ) -> None:
    done = subprocess.run(
        _command(made, program, *arguments), env=environment, capture_output=True, text=True, check=False, cwd="/"
    )
    if done.returncode:
        raise PostgresError(f"{program}: {(done.stderr or done.stdout).strip()[-500:]}")


def _wait(made: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    ready = [str(made.programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={made.port}"]
    give_up = time.monotonic() + READY_S
    while subprocess.run(ready, check=False).returncode:
        if process.poll() is not None or time.monotonic() > give_up:
            raise PostgresError(f"the server does not answer: {log.read_text()[-500:]}")
        time.sleep(0.1)
