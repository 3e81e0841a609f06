"""Does with a statement and a body what a ClickHouse server would, by the embedded store."""

from __future__ import annotations

import os
import re
import threading

from springtide.errors import StoreError
from springtide.store import Store

# INSERT INTO t (...) SELECT ... FROM input('structure') FORMAT f: a server parses the body, and the SELECT converts.
_INSERT = re.compile(
    r"\s*(insert\s+into\s.+?\sselect\s.+?\sfrom\s+)input\(('(?:[^'\\]|\\.|'')*')\)\s+format\s+(\w+)\s*", re.I | re.S
)
_READ = re.compile(r"\s*(select\s.+?)\s+format\s+(\w+)\s*", re.I | re.S)


class Engine:
    """Runs what a client sends. Every method raises StoreError with the engine's own code."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.Lock()

    def run(self, statement: str, body: bytes, settings: dict[str, str]) -> str:
        """The answer's text; nothing for an INSERT."""
        if insert := _INSERT.fullmatch(statement):
            self._insert(insert, body, settings)
            return ""
        if read := _READ.fullmatch(statement):
            return self._read(read)
        raise StoreError("Syntax error: this front takes SELECT and INSERT ... FROM input('...') only", 62)

    def _insert(self, insert: re.Match[str], body: bytes, settings: dict[str, str]) -> None:
        into, structure, form = insert.groups()
        given = ", ".join(f"{name} = {_literal(value)}" for name, value in settings.items())
        fd = os.memfd_create("body", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(body)
            statement = f"{into} file('/proc/self/fd/{fd}', '{form}', {structure})"
            with self._lock:
                self.store.execute(statement + (f" settings {given}" if given else ""))
        finally:
            os.close(fd)

    def _read(self, read: re.Match[str]) -> str:
        select, form = read.groups()
        with self._lock:
            # The server makes the lines, so that a client sees its escapes and not ours.
            lines = self.store.query(f"select formatRowNoNewline('{form}', *) as line from ({select})")
        return "".join(f"{row['line']}\n" for row in lines)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
