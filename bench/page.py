"""A web page of many objects, loaded by a browser over a path that loses packets: as the kernel recovers, and as
bundles say.

Chromium loads a page of 20 kB that names 30 objects of 5 to 60 kB at three other hosts, over HTTP/1.1 without TLS:
together 0.8 MB over a dozen connections or more. The path has a round trip of 100 ms, 100 Mbit/s, a long queue, and
random loss of the same share in both directions. Load time is what the browser itself says: from the start of the
navigation to the end of the load event. Each load has a browser context of its own, so it has no connection and no
cache of an earlier one; nginx's log is held against that.

The two ways take turns. `default` has no entries. In `both` the edges of server and client have
`handshake_timeout_ms`, as the law gives it for the round trip, and the server's `copied_bytes`. One connection in ten
recovers as the kernel does. Without loss there is a third of the turns. Intervals are of 95 %, by bootstrap over the
loads.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as File
from statistics import mean
from typing import Any

import numpy as np

from bench.page_site import HOSTS, PAGE, PORT, Site, served, write
from bench.recovery import address_of, copied, give
from bench.recovery_paths import WAYS, Path, all_paths, edge_of, topology
from bench.runner import Bench, BenchError, Run, in_turns, progress
from bench.start_paths import SERVER
from lab.counters import TcpCounters
from lab.lab import Lab
from testkit.devtools import CHROMIUM, TRIES, Pipe, Silent, browser

OURS = ("default", "both")
RTT_MS = 100
RESAMPLES, LEVEL = 10_000, (0.025, 0.975)
BOUNDS = ("ratio", "low_ratio", "high_ratio")
SEED = 34
# Packets of a page's connections that are under way when it is closed are gone before the next begins.
REST_S = 0.3
# Without loss the ways should not differ, and each load is much like the last: fewer say so.
LOSSLESS_PART = 3
# No names but the page's, no proxy, no second attempt by TLS, and nothing that the browser asks for by itself.
OPTIONS = (
    "--no-proxy-server",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-component-extensions-with-background-pages",
    "--disable-domain-reliability",
    "--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,OptimizationHints,MediaRouter",
)
LOADED = """
new Promise(done => {
    const look = () => {
        const [load] = performance.getEntriesByType('navigation');
        load.loadEventEnd ? done(load.loadEventEnd - load.startTime) : setTimeout(look, 5);
    };
    look();
})
"""


@dataclass
class Loads:
    """Loads of one way: their milliseconds, the connections that served them, and both ends' TCP counters."""

    ms: list[float] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    server: list[TcpCounters] = field(default_factory=list)
    client: list[TcpCounters] = field(default_factory=list)


class Visitor:
    """A browser on a client's edge, and the site that it loads the page from."""

    def __init__(self, lab: Lab, edges: tuple[str, str], site: Site, pipe: Pipe) -> None:
        self._lab, self._edges, self._site, self._pipe = lab, edges, site, pipe
        self.loads = Loads()

    def load(self) -> None:
        time.sleep(REST_S)
        before = self._lab.counters()
        ms = loaded(self._pipe)
        after = self._lab.counters()
        requests = self._site.asked()
        if fault := self._site.fault(requests):
            raise BenchError(f"not a fresh load of the whole page: {fault}")
        self.loads.ms.append(ms)
        self.loads.connections.append(len({one["connection"] for one in requests}))
        server, client = (after[edge] - before[edge] for edge in self._edges)
        self.loads.server.append(server)
        self.loads.client.append(client)


def opened(stack: ExitStack, lab: Lab, edge: str, address: str, profile: File) -> Pipe:
    """A browser that has loaded the page once. One that hangs as it begins is replaced."""
    names = ", ".join(f"MAP {name} {address}" for name in (PAGE, *HOSTS))
    options = [*OPTIONS, f"--host-resolver-rules={names}, MAP * ~NOTFOUND"]
    for number in range(1, TRIES + 1):
        try:
            # A lock that a browser left in its profile would keep the next one out.
            pipe = stack.enter_context(browser(profile / str(number), options, partial(lab.popen, edge)))
            loaded(pipe)
        except Silent:
            if number == TRIES:
                raise
        else:
            return pipe
    raise AssertionError("unreachable")


def loaded(pipe: Pipe) -> float:
    """Milliseconds of a load by a browser that has loaded nothing yet."""
    context = pipe.call("Target.createBrowserContext")["browserContextId"]
    target = pipe.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
    session = pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    pipe.call("Page.enable", session)
    pipe.events.clear()
    answer = pipe.call("Page.navigate", session, url=f"http://{PAGE}:{PORT}/page.html")
    if "errorText" in answer:
        raise BenchError(f"the browser did not load the page: {answer['errorText']}")
    pipe.until("Page.loadEventFired")
    found = pipe.call("Runtime.evaluate", session, expression=LOADED, awaitPromise=True, returnByValue=True)
    # Its connections are closed with it.
    pipe.call("Target.disposeBrowserContext", browserContextId=context)
    return float(found["result"]["value"])


def interval(ours: Sequence[float], default: Sequence[float], what: Any) -> tuple[float, float]:
    """Give the interval of the ratio of both ways' statistic, which takes an array and an axis."""
    chance = np.random.default_rng(SEED)
    drawn = [
        what(np.asarray(values)[chance.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
        for values in (ours, default)
    ]
    low, high = np.quantile(drawn[0] / drawn[1], LEVEL)
    return float(low), float(high)


STATISTICS: Mapping[str, Any] = {
    "mean": np.mean,
    "p50": partial(np.quantile, q=0.5),
    "p95": partial(np.quantile, q=0.95),
}


def figures(run: Run, loss: str, way: str, loads: Loads, default: Loads) -> str:
    """The figures of a loss and way, and their row."""
    labels = {"loss": loss, "way": way}
    server, client = loads.server, loads.client
    resent = sum(one.retrans_segs for one in server)
    values: dict[str, float] = {f"load_{name}_ms": float(what(loads.ms)) for name, what in STATISTICS.items()}
    times = [f"{value:.0f}" for value in values.values()]
    values |= {
        "loads": len(loads.ms),
        "connections_per_load": mean(loads.connections),
        "segments_resent_share": resent / (resent + sum(one.out_segs for one in server)),
        "server_timeouts_per_load": mean(one.timeouts for one in server),
        "client_timeouts_per_load": mean(one.timeouts for one in client),
    }
    ratios = [""] * len(STATISTICS) if way == "default" else []
    for name, what in STATISTICS.items() if way != "default" else ():
        ratio, (low, high) = float(what(loads.ms) / what(default.ms)), interval(loads.ms, default.ms, what)
        values |= {
            f"{name}_per_default_{bound}": value for bound, value in zip(BOUNDS, (ratio, low, high), strict=True)
        }
        ratios.append(f"{ratio:.2f} ({low:.2f} to {high:.2f})")
    for name, value in values.items():
        run.figure(name, value, **labels)
    cells = [f"{loss} %", way, *times, *ratios, f"{values['segments_resent_share']:.2%}", str(len(loads.ms))]
    return f"| {' | '.join(cells)} |"


def visit(lab: Lab, path: Path, run: Run, pages: File, temporary: File) -> dict[str, Loads]:
    """Loads over one path, the ways in turns."""
    with ExitStack() as stack:
        visitors = {}
        for way in OURS:
            server, client = edge_of(SERVER, WAYS[way][0]), edge_of(path.name, WAYS[way][1])
            name = f"{path.name}-{way}"
            site = stack.enter_context(served(lab, server, pages, temporary / f"nginx-{name}"))
            address = address_of(lab, SERVER, WAYS[way][0])
            pipe = opened(stack, lab, client, address, temporary / f"profile-{name}")
            site.fault(site.asked())
            visitors[way] = Visitor(lab, (server, client), site, pipe)
        before = copied(lab, temporary)
        turns = run.turns if float(path.loss) else math.ceil(run.turns / LOSSLESS_PART)
        in_turns(turns, {way: visitor.load for way, visitor in visitors.items()})
        after = copied(lab, temporary)
        asked = turns * sum(file.stat().st_size for file in pages.iterdir())
        for way in OURS:
            run.figure("copied_per_asked_ratio", (after[way] - before[way]) / asked, loss=path.loss, way=way)
        return {way: visitor.loads for way, visitor in visitors.items()}


def over(losses: Sequence[str], run: Run) -> dict[str, dict[str, Loads]]:
    """Loads by loss and way. Raises BenchError where there is no browser, or it falls silent."""
    if not CHROMIUM.exists():
        raise BenchError("there is no Chromium: run `tools/setup --browser`")
    paths = [path for path in all_paths((RTT_MS,), losses) if not path.only]
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="springtide-bench-") as temporary,
        Lab.up(topology(paths), f"bench-page-{os.getpid()}") as lab,
        ExitStack() as stack,
    ):
        # nginx's worker reads them without root's rights.
        File(temporary).chmod(0o755)
        give(lab, paths, File(temporary), stack)
        pages = File(temporary) / "pages"
        run.figure("page_bytes", write(pages))
        for path in paths:
            progress(f"loss of {path.loss} %")
            try:
                found[path.loss] = visit(lab, path, run, pages, File(temporary))
            except Silent as silent:
                raise BenchError(str(silent)) from silent
    return found


def measure(run: Run) -> None:
    found = over([str(loss) for loss in run.sizes["loss"]], run)
    rows = [figures(run, loss, way, ways[way], ways["default"]) for loss, ways in found.items() for way in OURS]
    head = "| loss | way | mean | p50 | p95 | mean / default's | p50 / default's | p95 / default's | sent again | n |"
    run.note("\n".join(["Load time of the page, ms", "", head, "|---|---|" + "---:|" * 8, *rows]))


BENCH = Bench(
    name="page",
    summary="a web page in a browser over a path that loses packets: as the kernel recovers, and as bundles say",
    measure=measure,
    # Per cent.
    sizes={"loss": ((0, 2), (2,))},
    seconds=360,
    turns=(60, 1),
    root=True,
)
