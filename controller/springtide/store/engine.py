"""The embedded engine: its library, and what a command gives it beside its configuration."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.sax.saxutils import escape

from springtide.store.files import engine_file

# Signals of a crash that the library handles. On arm64 a trap is one.
CRASHES = {getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP")}


@dataclass(frozen=True)
class Engine:
    """`memory_bytes` bounds the whole engine, its background threads included; 0: nine tenths of the machine's memory.
    `kafka`: librdkafka's properties of its Kafka client."""

    memory_bytes: int = 0
    kafka: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def configuration(self, *, reading: bool) -> Iterator[Path]:
        """Its configuration's file. One with properties, which may be passwords, is root's and lasts no longer."""
        shipped = engine_file(reading=reading)
        if not self.kafka:
            yield shipped
            return
        with TemporaryDirectory(prefix="springtide-") as folder:
            written = Path(folder) / shipped.name
            # It names its users' file relative to itself.
            shutil.copy(shipped.with_name("users.xml"), folder)
            # The engine puts another element's text in place of ${its name}.
            values = {name.replace(".", "_"): escape(value, {"${": "${dollar}{"}) for name, value in self.kafka.items()}
            more = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
            # It takes a second element of a name for another property.
            text = re.sub("|".join(f"<{name}>.*?</{name}>" for name in values), "", shipped.read_text())
            written.write_text(text.replace("</kafka>", f"{more}</kafka><dollar>$</dollar>"))
            yield written


def crash_by_default() -> None:
    """Takes back the handlers that the library sets with its first session or query. After a crash of one of its
    threads they wait forever, with the store locked: only SIGKILL would end the process."""
    # Python sets handlers in this thread alone.
    if threading.current_thread() is threading.main_thread():
        for number in CRASHES:
            signal.signal(number, signal.SIG_DFL)


def engine(module: str) -> Any:
    """chdb, or a module of it. All of Springtide's instants are UTC; the library reads TZ as it is loaded, and ends
    with a name that it does not know by an error that says nothing of it."""
    zone = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    try:
        return importlib.import_module(module)
    finally:
        if zone is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = zone
