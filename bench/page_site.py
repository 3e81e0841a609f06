"""The page of bench/page.py: its objects, and the nginx that serves them over HTTP/1.1."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path as File
from random import Random
from typing import Any

from lab import host
from lab.collector import wait_until
from lab.lab import Lab
from lab.nginx import temporary

PORT = 8000
PAGE = "www.page.test"
HOSTS = ("a.page.test", "b.page.test", "c.page.test")
HTML_BYTES = 20_000
# Objects by kind, in the order in which the page names them.
KINDS = {"css": 2, "js": 4, "bmp": 24}
LEAST_BYTES, MOST_BYTES = 5_000, 60_000
SEED = 33
# A BMP's header, and pixels of a byte each in rows of a multiple of four, all of shades of grey.
BMP_HEADER, SHADES, BMP_ROW = 54, 1024, 128
TAGS = {
    "css": '<link rel="stylesheet" href="{}">',
    "js": '<script src="{}" defer></script>',
    "bmp": '<img src="{}" width="64" height="64" alt="">',
}


def sizes() -> dict[str, int]:
    """Bytes of each object by its name, as many small ones as their logarithm is equally likely."""
    chance = Random(SEED)
    names = [f"{kind}{number}.{kind}" for kind, count in KINDS.items() for number in range(count)]
    return {name: round(math.exp(chance.uniform(math.log(LEAST_BYTES), math.log(MOST_BYTES)))) for name in names}


def write(directory: File) -> int:
    """The page and its objects. Returns their bytes together."""
    directory.mkdir()
    (directory / "page.html").write_text(html(list(sizes())))
    for name, size in sizes().items():
        (directory / name).write_bytes(content(name, size))
    return sum(file.stat().st_size for file in directory.iterdir())


def html(names: Sequence[str]) -> str:
    """Styles and scripts at its head, then images between paragraphs. Each host serves every third object."""
    chance = Random(SEED)
    tags = [
        TAGS[name.rpartition(".")[2]].format(f"http://{HOSTS[at % len(HOSTS)]}:{PORT}/{name}")
        for at, name in enumerate(names)
    ]
    head = [tag for tag in tags if not tag.startswith("<img")]
    images = [tag for tag in tags if tag.startswith("<img")]
    # No request for an icon.
    begin = [
        "<!doctype html><html><head><title>page</title>",
        '<link rel="icon" href="data:,">',
        *head,
        "</head><body>",
    ]
    end = "</body>\n"
    rest = HTML_BYTES - sum(len(line) + 1 for line in [*begin, *images]) - len(end)
    each = rest // len(images) - len("<p></p>\n")
    lines = [f"<p>{words(chance, each)}</p>\n{image}" for image in images]
    return "\n".join([*begin, *lines, end])


def words(chance: Random, length: int) -> str:
    return "".join(chance.choice("abcdefghij     ") for _ in range(length))


def content(name: str, size: int) -> bytes:
    """Valid, of random content."""
    chance = Random(f"{SEED} {name}")
    if not name.endswith(".bmp"):
        return f"/*{words(chance, size - 4)}*/".encode()
    rows = (size - BMP_HEADER - SHADES) // BMP_ROW
    begin = BMP_HEADER + SHADES
    header = b"BM" + b"".join(
        value.to_bytes(width, "little")
        for value, width in [
            *((begin + rows * BMP_ROW, 4), (0, 4), (begin, 4)),
            *((40, 4), (BMP_ROW, 4), (rows, 4), (1, 2), (8, 2), (0, 4), (rows * BMP_ROW, 4)),
            *((0, 4), (0, 4), (256, 4), (0, 4)),
        ]
    )
    greys = b"".join(bytes([shade, shade, shade, 0]) for shade in range(256))
    return header + greys + chance.randbytes(rows * BMP_ROW)


def configuration(address: str, run: File, pages: File) -> str:
    """nginx.conf: one line in the log for each request, as it ends."""
    return f"""\
daemon off;
worker_processes 1;
pid {run}/nginx.pid;
error_log {run}/error.log warn;
events {{
    worker_connections 1024;
}}
http {{
    log_format requests escape=json '{{"connection":$connection,"path":"$uri","status":$status}}';
    access_log {run}/requests.json requests;
    types {{
        text/html html;
        text/css css;
        text/javascript js;
        image/bmp bmp;
    }}
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    add_header Cache-Control no-store;
    {temporary(run)}
    server {{
        listen {address}:{PORT};
        root {pages};
    }}
}}
"""


class Site:
    """An nginx on an edge, and what it has been asked for."""

    def __init__(self, run: File) -> None:
        self._log = run / "requests.json"
        self._seen = 0
        self._connections: set[int] = set()

    def asked(self) -> list[dict[str, Any]]:
        """Requests that have ended since the last call."""
        lines = self._log.read_text().splitlines()
        found = [json.loads(line) for line in lines[self._seen :]]
        self._seen = len(lines)
        return found

    def fault(self, requests: Sequence[dict[str, Any]]) -> str:
        """Why these are not one load of the page over connections of its own; nothing where they are."""
        wanted = sorted(["/page.html", *(f"/{name}" for name in sizes())])
        if sorted(one["path"] for one in requests) != wanted or any(one["status"] != 200 for one in requests):
            return f"{len(requests)} requests of {len(wanted)}: {requests[:3]}"
        mine = {int(one["connection"]) for one in requests}
        used = mine & self._connections
        self._connections |= mine
        return f"{len(used)} connections had served a load before" if used else ""


@contextmanager
def served(lab: Lab, edge: str, pages: File, run: File) -> Iterator[Site]:
    """The pages, from the edge's first address."""
    run.mkdir()
    config = run / "nginx.conf"
    config.write_text(configuration(str(lab.topology.edge(edge).addresses[0]), run, pages))
    # A server that waits for a processor would show in the times.
    command = host.promptly([host.nginx(), "-p", str(run), "-e", str(run / "error.log"), "-c", str(config)])
    server = lab.popen(edge, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until("nginx", (run / "nginx.pid").exists)
        yield Site(run)
    finally:
        server.terminate()
        server.wait(10)
