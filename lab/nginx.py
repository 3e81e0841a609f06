"""nginx in a namespace: its configuration and the objects that it serves."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from lab import sizes
from lab.topology import Address

PORT = 80
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def write_objects(directory: Path) -> None:
    """One file for each size, named by it: /o/10000 has 10,000 bytes. They are holes and take no memory."""
    directory.mkdir(parents=True, exist_ok=True)
    for size in {*sizes.PROBES, *chain.from_iterable(sizes.KINDS.values())}:
        with (directory / str(size)).open("wb") as file:
            file.truncate(size)


def temporary(run: Path) -> str:
    """Directives that keep all that nginx writes beside its logs below `run`."""
    return "\n    ".join(f"{kind}_temp_path {run}/{kind};" for kind in TEMPORARY)


def configuration(edge: str, addresses: Iterable[Address], run: Path, objects: Path) -> str:
    """nginx.conf for one edge. Connections stay open for as many requests as the load makes."""
    listens = [f"listen {f'[{address}]' if address.version == 6 else address}:{PORT};" for address in addresses]
    return f"""\
daemon off;
worker_processes 1;
pid {run}/nginx.pid;
error_log {run}/error.log warn;
events {{
    worker_connections 4096;
}}
http {{
    # docs/reference/access-log.md
    log_format springtide escape=json
        '{{"time":$msec,"host":"{edge}","request_id":"$request_id","client":"$remote_addr","server":"$server_addr",'
        '"method":"$request_method","status":$status,"bytes":$body_bytes_sent,"request_time":$request_time}}';
    access_log {run}/access.json springtide buffer=64k flush=1s;
    default_type application/octet-stream;
    server_tokens off;
    etag off;
    sendfile on;
    # The header travels with the first bytes of the object, and its last bytes wait for nothing.
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 3600s;
    keepalive_requests 1000000000;
    {temporary(run)}
    server {{
        {" ".join(listens)}
        location /o/ {{
            alias {objects}/;
        }}
    }}
}}
"""
