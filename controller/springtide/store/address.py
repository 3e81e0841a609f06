"""clickhouse:// URLs: a server's address, credentials, TLS and timeouts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from springtide.errors import InputError, Problem

PASSWORD_VARIABLE = "SPRINGTIDE_STORE_PASSWORD"  # noqa: S105 (the name of a variable)

FORM = "write clickhouse://USER@HOST:PORT/DATABASE?secure=1"


@dataclass(frozen=True)
class ServerAddress:
    """The parts of a clickhouse:// URL. No representation contains the password."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(repr=False)
    secure: bool = False
    # Whether the server's certificate must be signed by a known authority and name the host.
    verify: bool = True
    # PEM file of the certificate authorities to trust instead of the system's.
    ca: Path | None = None
    connect_timeout_s: float = 10.0
    query_timeout_s: float = 300.0
    # Number of times that a connection, or a read, is tried again.
    retries: int = 3

    @property
    def shown(self) -> str:
        """The address for messages and logs, without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"clickhouse://{quote(self.user)}@{host}:{self.port}/{self.database}"


def carries_password(url: str) -> bool:
    """Whether a store's URL has a password in it, which must not be visible in a process list."""
    authority = url.partition("://")[2].partition("/")[0]
    return ":" in authority.rpartition("@")[0]


def parse(url: str) -> ServerAddress:
    """Raises InputError for each part that is wrong; no message quotes the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _wrong(f"is not a valid URL with a host and a port; {FORM}") from None
    options, problems = _options(parts)
    database = parts.path.removeprefix("/")
    if not parts.hostname:
        problems.append(f"has no host; {FORM}")
    if not database.replace("_", "a").isalnum():
        problems.append(f"must name a database of letters, digits and underscores; {FORM}")
    if parts.fragment:
        problems.append(f"has a '#': write %23 for one in a name or password; {FORM}")
    password, fault = _password(parts, options.pop("password_file", None))
    if fault:
        problems.append(fault)
    if problems:
        raise InputError([Problem("--store", "url", *problem.rsplit("; ", 1)) for problem in problems])
    return ServerAddress(
        host=parts.hostname or "",
        port=port or (9440 if options.get("secure") else 9000),
        user=unquote(parts.username or "default"),
        password=password,
        database=database,
        **options,
    )


def _boolean(text: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[text]


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 86_400:
        raise ValueError(text)
    return value


def _retries(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 20:
        raise ValueError(text)
    return value


def _readable(text: str) -> Path:
    path = Path(text)
    with path.open("rb"):
        return path


OPTIONS: dict[str, tuple[Callable[[str], object], str]] = {
    "secure": (_boolean, "1 or 0"),
    "verify": (_boolean, "1 or 0"),
    "ca": (_readable, "a PEM file that can be read"),
    "password_file": (_readable, "a file that can be read"),
    "connect_timeout_s": (_seconds, "0.1 to 86400 seconds"),
    "query_timeout_s": (_seconds, "0.1 to 86400 seconds"),
    "retries": (_retries, "0 to 20"),
}


def _options(parts: SplitResult) -> tuple[dict[str, Any], list[str]]:
    options: dict[str, Any] = {}
    problems = []
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            problems.append(f"has an unknown option {name!r}; known are {', '.join(OPTIONS)}")
            continue
        read, range_ = OPTIONS[name]
        try:
            options[name] = read(text)
        except (KeyError, ValueError, OSError):
            problems.append(f"{name} = {text!r} is not {range_}; correct it")
    if not options.get("secure") and ("ca" in options or "verify" in options):
        problems.append("has ca or verify without secure=1; add secure=1")
    return options, problems


def _password(parts: SplitResult, file: object) -> tuple[str, str | None]:
    """The password from the URL, its password_file, or the environment; and an error."""
    if isinstance(file, Path):
        if parts.password is not None:
            return "", "has a password and a password_file; keep one"
        return file.read_text().rstrip("\r\n"), None
    if parts.password is not None:
        return unquote(parts.password), None
    return os.environ.get(PASSWORD_VARIABLE, ""), None


def _wrong(text: str) -> InputError:
    return InputError([Problem("--store", "url", *text.rsplit("; ", 1))])
