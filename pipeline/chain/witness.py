"""Which sockets the kernel announces as closing: to `ss`, beside the collector."""

from __future__ import annotations

import re
import tempfile
from types import TracebackType
from typing import Self

from lab.lab import Lab
from pipeline.chain.books import Socket

_COOKIE = re.compile(r"\bsk:([0-9a-f]+)")


def cookies(text: str) -> set[int]:
    """Of the lines that `ss -HEteO` printed."""
    return {int(found, 16) for found in _COOKIE.findall(text)}


class Closes:
    """Those of an edge, while the context lasts."""

    def __init__(self, lab: Lab, edge: str) -> None:
        self.lab, self.edge = lab, edge
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 (read after the context's end)

    def __enter__(self) -> Self:
        # stdbuf: ss would keep its last lines in a buffer that SIGTERM throws away.
        self._running = self.lab.popen(self.edge, ["stdbuf", "-oL", "ss", "-HEteO"], stdout=self._out)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.terminate()
        self._running.wait(10)

    def sockets(self) -> set[Socket]:
        self._out.seek(0)
        return {(self.edge, cookie) for cookie in cookies(self._out.read())}
