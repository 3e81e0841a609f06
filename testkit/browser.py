"""A page as Debian's Chromium shows it."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import image

from testkit.devtools import CHROMIUM, TRIES, Pipe, Silent, browser

# Where pictures are kept for people.
SCREENS = Path(__file__).parents[1] / "out/screens"
WIDTHS = (400, 1400)
# Pixels of a picture; the browser refuses to draw a far longer page. What fits and scrolls is asked of the whole page.
MOST_HIGH = 16_384
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
# Things that a reader would miss, a line each: outside the window and in no box of its own that scrolls; text that its
# box hides; texts of a plot that are cut, lie on one another or are too small. Within `main`, where there is one;
# without a drawer that waits wholly outside the window until one opens it.
FAULTS = """
(() => {
    const found = [], root = document.querySelector('main') || document.documentElement;
    const wide = document.documentElement.clientWidth, fits = 1;
    const name = one => one.tagName.toLowerCase() + ' "' + one.textContent.trim().slice(0, 40) + '"';
    const scrolls = style => ['auto', 'scroll'].includes(style.overflowX);
    const inScrollBox = one => {
        for (let up = one.parentElement; up && up !== document.body; up = up.parentElement)
            if (scrolls(getComputedStyle(up))) return true;
        return false;
    };
    const inDrawer = one => {
        for (let up = one; up && up !== document.body; up = up.parentElement) {
            const box = up.getBoundingClientRect();
            if (getComputedStyle(up).position === 'fixed' && (box.right <= 0 || box.left >= wide)) return true;
        }
        return false;
    };
    if (document.documentElement.scrollWidth > wide + fits)
        found.push('the page is ' + document.documentElement.scrollWidth + ' px wide in a window of ' + wide);
    for (const one of root.querySelectorAll('*')) {
        if (one.closest('svg') && one.tagName !== 'svg') continue;
        const box = one.getBoundingClientRect(), style = getComputedStyle(one);
        if (!box.width || !box.height || style.visibility === 'hidden' || inDrawer(one)) continue;
        if ((box.right > wide + fits || box.left < -fits) && !inScrollBox(one))
            found.push(name(one) + ' is outside the window: ' + box.left + ' to ' + box.right);
        const hides = ['hidden', 'clip'];
        if (one.tagName !== 'svg' && one.textContent.trim() && (
            hides.includes(style.overflowX) && one.scrollWidth > one.clientWidth + fits ||
            hides.includes(style.overflowY) && one.scrollHeight > one.clientHeight + fits))
            found.push(name(one) + ' is cut by its box');
    }
    for (const plot of root.querySelectorAll('svg')) {
        const frame = plot.getBoundingClientRect();
        const texts = [...plot.querySelectorAll('text')].map(one => ({one, box: one.getBoundingClientRect()}));
        texts.forEach(({one, box}, at) => {
            if (box.left < frame.left - fits || box.right > frame.right + fits ||
                box.top < frame.top - fits || box.bottom > frame.bottom + fits)
                found.push(name(one) + ' leaves its plot');
            const matrix = one.getScreenCTM(), scale = Math.hypot(matrix.a, matrix.b);
            const size = parseFloat(getComputedStyle(one).fontSize) * scale;
            if (size < 9) found.push(name(one) + ' is ' + size.toFixed(1) + ' px high');
            // A line's box is higher than its letters.
            const slack = 0.15 * Math.min(box.width, box.height);
            for (const other of texts.slice(at + 1))
                if (Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left) > 2 * slack &&
                    Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top) > 2 * slack)
                    found.push(name(one) + ' lies on ' + name(other.one));
        });
    }
    return found;
})()
"""


@dataclass
class Seen:
    """The browser's requests and errors, and the sizes of plots and tables. `beyond`: pixels by which the page is wider
    than its window or a plot's text leaves the plot. `faults`: what a reader would miss (FAULTS). `picture`: a PNG."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    boxes: list[dict[str, Any]] = field(default_factory=list)
    beyond: float = 0
    faults: list[str] = field(default_factory=list)
    picture: bytes = b""

    @property
    def colours(self) -> int:
        """Different colours in the picture: a blank page has one."""
        pixels = image.imread(io.BytesIO(self.picture), format="png")
        # One number a colour: to sort rows of three takes minutes for a long page.
        return len(np.unique((pixels[..., :3] * 255).astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)))


def look(page: Path, profile: Path, width: int = 0) -> Seen:
    """Load a file, in a window of so many pixels where it is given, and wait until it is loaded.

    Raises AssertionError where there is no browser or it fails."""
    [seen] = look_at([(page, width)], profile)
    return seen


def look_at(pages: Iterable[tuple[Path, int]], profile: Path) -> list[Seen]:
    """The same for several files, each in a window of its width in pixels (0: the browser's own), by one browser."""
    if not CHROMIUM.exists():
        raise AssertionError("there is no Chromium: run `tools/setup --dev`")
    wanted = list(pages)
    for number in range(1, TRIES + 1):
        try:
            # A lock that a browser left in its profile would keep the next one out.
            with browser(profile / str(number)) as pipe:
                return [_look(pipe, page, width) for page, width in wanted]
        except Silent:
            if number == TRIES:
                raise
    raise AssertionError("unreachable")


def screens(pages: Mapping[str, Path], profile: Path) -> dict[str, Seen]:
    """Each page, by a name, at each of WIDTHS: `NAME-WIDTH`, which is also its picture's name in SCREENS."""
    wanted = [(f"{name}-{width}", page, width) for name, page in pages.items() for width in WIDTHS]
    found = look_at(((page, width) for _, page, width in wanted), profile)
    SCREENS.mkdir(parents=True, exist_ok=True)
    for (name, _, _), seen in zip(wanted, found, strict=True):
        (SCREENS / f"{name}.png").write_bytes(seen.picture)
    return {name: seen for (name, _, _), seen in zip(wanted, found, strict=True)}


def _look(pipe: Pipe, page: Path, width: int) -> Seen:
    pipe.events.clear()
    target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
    session = pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Network", "Log", "Runtime"):
        pipe.call(f"{domain}.enable", session)
    if width:
        metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        pipe.call("Emulation.setDeviceMetricsOverride", session, **metrics)
    pipe.call("Page.navigate", session, url=page.as_uri())
    pipe.until("Page.loadEventFired")

    def value(expression: str) -> Any:
        answer = pipe.call("Runtime.evaluate", session, expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{page}: {answer['exceptionDetails']}")
        return answer["result"]["value"]

    boxes, beyond, faults = value(BOXES), value(BEYOND), value(FAULTS)
    wide, high = value("innerWidth"), value("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": wide, "height": min(high, MOST_HIGH), "scale": 1}
    shot = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    picture = pipe.call("Page.captureScreenshot", session, **shot)["data"]
    found = Seen(boxes=boxes, beyond=beyond, faults=faults, picture=base64.b64decode(picture))
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
    pipe.call("Target.closeTarget", targetId=target)
    return found
