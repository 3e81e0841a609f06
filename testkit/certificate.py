"""A certificate for loopback, signed by itself."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """PEM files: what clients trust, and what a server needs."""

    trusted: Path
    served: Path


def make_certificate(directory: Path) -> Certificate:
    """For localhost and 127.0.0.1, good for two days. Raises CalledProcessError when openssl does not make it."""
    key, trusted, served = (directory / name for name in ("key.pem", "trusted.pem", "served.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run([*command, *names, "-keyout", key, "-out", trusted], check=True, capture_output=True)
    served.write_bytes(key.read_bytes() + trusted.read_bytes())
    return Certificate(trusted, served)
