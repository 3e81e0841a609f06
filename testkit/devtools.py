"""Debian's Chromium, controlled by the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_S = 60  # for the next word of the browser's: what takes as long hangs, or the machine stands still
# A browser may hang as it begins (seen once in hundreds, on a busy machine): another is asked then.
# All three hang with odds of one in a million where one in a hundred does.
TRIES = 3
# Without what a browser does by itself: updates, sync, a sandbox that root cannot have.
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1100,1600",
    "--remote-debugging-pipe",
)


class Silent(AssertionError):
    """The browser has sent nothing for PATIENCE_S, or ended."""


class Pipe:
    """Messages of the protocol, each ended by a zero byte; events that come between answers are kept."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        # Not select(): a process of many tests may have more than its 1,024 descriptors.
        self._readable = selectors.DefaultSelector()
        self._readable.register(from_browser, selectors.EVENT_READ)
        self._rest = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def until(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def close(self) -> None:
        self._readable.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not self._readable.select(PATIENCE_S):
                raise Silent(f"the browser has sent nothing for {PATIENCE_S} s")
            part = os.read(self._from, 1 << 16)
            if not part:
                raise Silent("the browser ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))


@contextmanager
def browser(
    profile: Path, options: Sequence[str] = (), start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
) -> Iterator[Pipe]:
    """Chromium reads commands from its descriptor 3 and answers on 4. `start` is called as subprocess.Popen is."""
    commands, answers = os.pipe(), os.pipe()
    shell = f'exec "$0" "$@" 3<&{commands[0]} 4>&{answers[1]}'
    process = start(
        ["/bin/bash", "-c", shell, str(CHROMIUM), *OPTIONS, *options, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(commands[0], answers[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands[0])
    os.close(answers[1])
    pipe = Pipe(commands[1], answers[0])
    try:
        yield pipe
    finally:
        pipe.close()
        os.close(commands[1])
        os.close(answers[0])
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
