"""Format, start, stop, kill and restart one KRaft node whose jars come from Maven Central."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

_POM = Path(__file__).with_name("pom.xml")
_CLUSTER = "c3ByaW5ndGlkZS1sYWItMQ"  # 22 characters of base64: the form of a KRaft cluster id
_READY_S = 300.0  # It takes six seconds, sixteen beside five times its work, and over a minute beside fifteen times.


class BrokerError(RuntimeError):
    """The broker could not be fetched, formatted or started; the message has which one and where its log is."""


def jars() -> Path:
    """The directory with the broker's jars, fetched once and kept under ~/.cache/springtide.

    Raises BrokerError when Maven or Java is missing, or the jars cannot be fetched.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "springtide"
    kept = cache / f"kafka-{_POM.stat().st_size}-{hash_of(_POM)}"
    if kept.is_dir():
        return kept
    for command in ("mvn", "java"):
        if shutil.which(command) is None:
            raise BrokerError(f"{command} is missing: apt-get install maven default-jre-headless")
    cache.mkdir(parents=True, exist_ok=True)
    fresh = cache / f".{kept.name}.{os.getpid()}"
    fetched = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        raise BrokerError(f"cannot fetch the broker's jars with mvn: {fetched.stdout.strip()[-300:]}")
    _keep(fresh, kept)
    return kept


def _keep(fresh: Path, kept: Path) -> None:
    """One move, so that nobody finds a part of it."""
    try:
        fresh.rename(kept)
    except OSError:  # another process was first
        shutil.rmtree(fresh, ignore_errors=True)


def _beside(name: str) -> Path:
    """A path beside the jars, for what a first broker leaves to the next ones of the same jars."""
    return jars().with_name(f"{jars().name}-{name}")


def _classes() -> Path:
    """An archive of a broker's classes, for this Java: with it, a start takes half the time."""
    java = Path(shutil.which("java") or "java").resolve()
    return _beside(f"{java.stat().st_mtime_ns}.jsa")


def hash_of(path: Path) -> str:
    """First twelve hex digits of the file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _free_ports(count: int) -> list[int]:
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


class Broker:
    """One broker with its data in `directory`; a context manager.

    The address stays the same over `kill` and `start`, so that clients can be watched as they come back. With
    `certificate` (PEM with its key) it also listens for TLS, and with `user` and password, on a third port, for those
    who give them over TLS (SASL/PLAIN).
    """

    def __init__(
        self,
        directory: Path,
        heap: str = "512m",
        settings: dict[str, str] | None = None,
        certificate: Path | None = None,
        user: tuple[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.heap = heap
        self.settings = settings or {}
        self.certificate = certificate
        self.user = user
        self.port, self._controller_port, self._tls_port, self._sasl_port = _free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = 0  # where in the log this start begins

    @property
    def bootstrap(self) -> str:
        """host:port for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def bootstrap_tls(self) -> str:
        """The same for clients that use TLS."""
        return f"127.0.0.1:{self._tls_port}"

    @property
    def bootstrap_sasl(self) -> str:
        """And for those that have a password."""
        return f"127.0.0.1:{self._sasl_port}"

    @property
    def log(self) -> Path:
        """The broker's own output."""
        return self.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def _fresh(self) -> Path:
        """The path at which a first broker writes the archive when it ends."""
        return _beside(f"classes.{os.getpid()}.{self.port}")

    def _java(self, *arguments: str) -> list[str]:
        # Java takes an archive of classes only for the same jars in the same order.
        path = ":".join(map(str, sorted(jars().glob("*.jar"))))
        lean = (f"-Xmx{self.heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return ["java", *lean, "-cp", path, *arguments]

    def _format(self) -> Path:
        properties = self.directory / "server.properties"
        if properties.exists():
            return properties
        self.directory.mkdir(parents=True, exist_ok=True)
        clients = f"PLAINTEXT://{self.bootstrap}"
        secure = {}
        if self.certificate:
            clients += f",SSL://{self.bootstrap_tls}"
            secure = {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.certificate),
            }
        if self.user:
            clients += f",SASL_SSL://{self.bootstrap_sasl}"
            name, password = self.user
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            secure["sasl.enabled.mechanisms"] = "PLAIN"
            secure["listener.name.sasl_ssl.plain.sasl.jaas.config"] = f'{module} required user_{name}="{password}";'
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": clients,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # After SIGKILL the node may come back only when its old session has ended: 9 s by default.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            "auto.create.topics.enable": "false",
            **secure,
            **self.settings,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        data, kept = self.directory / "data", _beside("formatted")
        if kept.is_dir():
            shutil.copytree(kept, data)
            return properties
        format_it = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties))
        formatted = subprocess.run(self._java(*format_it), capture_output=True, text=True, check=False)
        if formatted.returncode != 0:
            properties.unlink()
            raise BrokerError(f"cannot format {data}: {formatted.stderr.strip()[-300:]}")
        _keep(shutil.copytree(data, kept.with_name(f".{kept.name}.{os.getpid()}")), kept)
        return properties

    def start(self) -> Self:
        """Start it and wait until it accepts connections.

        Raises BrokerError when it ends early or is not ready within five minutes.
        """
        properties = self._format()
        classes = _classes()
        archive = f"SharedArchiveFile={classes}" if classes.exists() else f"ArchiveClassesAtExit={self._fresh}"
        line = self._java(f"-XX:{archive}", "kafka.Kafka", str(properties))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(line, stdout=log, stderr=log)
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise BrokerError(f"the broker ended with exit code {self._process.returncode}: see {self.log}")
            if b"Kafka Server started" in self.log.read_bytes()[self._mark :]:
                return self
            time.sleep(0.1)
        self.kill()
        raise BrokerError(f"the broker was not ready within {_READY_S:g} s: see {self.log}")

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode == 128 + signal.SIGTERM and self._fresh.exists():
            self._fresh.rename(_classes())
        self._process = None
        self._mark = self.log.stat().st_size

    def stop(self) -> None:
        """Ask it to shut down, and wait; after 30 s it is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what a power cut looks like."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: accepts connections and answers nothing."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self._process:
            self._process.send_signal(signal.SIGCONT)

    def topic(self, name: str, partitions: int = 2, settings: dict[str, str] | None = None) -> None:
        """Create a topic; one that exists is an error of the broker's own words."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        try:
            admin.create_topics([NewTopic(name, partitions, 1, config=settings or {})])[name].result(30)
        except KafkaException as error:
            raise BrokerError(f"cannot create topic {name}: {error}") from error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        self.stop()
