"""A page as Debian's Chromium shows it, controlled by the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import io
import json
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import image

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_S = 120
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
BOXES = """
[...document.querySelectorAll('svg, table')].map(one => {
    const box = one.getBoundingClientRect();
    return {name: one.tagName.toLowerCase(), width: box.width, height: box.height,
            drawn: one.querySelectorAll('path, polyline, line, rect, circle').length};
})
"""

BEYOND = """
Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth,
    ...[...document.querySelectorAll('svg text')].map(one => {
        const text = one.getBoundingClientRect(), plot = one.closest('svg').getBoundingClientRect();
        return Math.max(text.right - plot.right, plot.left - text.left,
                        text.bottom - plot.bottom, plot.top - text.top);
    }))
"""


@dataclass
class Seen:
    """What the browser requested, its errors, the size of plots and tables, by how many pixels the page is wider than
    its window or a plot's text leaves the plot, and the picture."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    boxes: list[dict[str, Any]] = field(default_factory=list)
    beyond: float = 0
    picture: bytes = b""

    @property
    def colours(self) -> int:
        """Different colours in the picture: a blank page has one."""
        pixels = image.imread(io.BytesIO(self.picture), format="png")
        return len(np.unique((pixels[..., :3] * 255).astype(np.uint8).reshape(-1, 3), axis=0))


class _Pipe:
    """Messages of the protocol, each ended by a zero byte; events that come between answers are kept."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
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

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], PATIENCE_S)[0]:
                raise AssertionError(f"the browser has sent nothing for {PATIENCE_S} s")
            part = os.read(self._from, 1 << 16)
            if not part:
                raise AssertionError("the browser ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))


@contextmanager
def _browser(profile: Path) -> Iterator[_Pipe]:
    """Chromium reads commands from its descriptor 3 and answers on 4."""
    commands, answers = os.pipe(), os.pipe()
    shell = f'exec "$0" "$@" 3<&{commands[0]} 4>&{answers[1]}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", shell, CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(commands[0], answers[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        yield _Pipe(commands[1], answers[0])
    finally:
        os.close(commands[1])
        os.close(answers[0])
        process.terminate()
        process.wait(60)


def look(page: Path, profile: Path, width: int = 0) -> Seen:
    """Load a file, in a window of so many pixels where it is given, and wait until it is loaded.

    Raises AssertionError where there is no browser or it fails."""
    if not CHROMIUM.exists():
        raise AssertionError("there is no Chromium: run `tools/setup --dev`")
    with _browser(profile) as pipe:
        target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
        session = pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            pipe.call(f"{domain}.enable", session)
        if width:
            metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
            pipe.call("Emulation.setDeviceMetricsOverride", session, **metrics)
        pipe.call("Page.navigate", session, url=page.as_uri())
        pipe.until("Page.loadEventFired")
        boxes = pipe.call("Runtime.evaluate", session, expression=BOXES, returnByValue=True)["result"]["value"]
        beyond = pipe.call("Runtime.evaluate", session, expression=BEYOND, returnByValue=True)["result"]["value"]
        picture = pipe.call("Page.captureScreenshot", session, format="png", captureBeyondViewport=True)["data"]
        found = Seen(boxes=boxes, beyond=beyond, picture=base64.b64decode(picture))
        for event in pipe.events:
            params = event.get("params", {})
            if event.get("method") == "Network.requestWillBeSent":
                found.requests.append(params["request"]["url"])
            elif event.get("method") == "Log.entryAdded":
                found.complaints.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.exceptionThrown":
                found.complaints.append(params["exceptionDetails"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.complaints.append(json.dumps(params["args"]))
        return found
