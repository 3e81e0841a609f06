"""A cluster's replicated tables, created by the engine in process with a Keeper in its memory. There they can be
created and inspected; without a server's port for other replicas they accept no rows, no change and no `on cluster`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from springtide.store.files import engine_file

CLUSTER = "main"
SERVER = f"""<clickhouse>
<zookeeper><implementation>testkeeper</implementation></zookeeper>
<macros><shard>s1</shard><replica>r1</replica></macros>
<remote_servers><{CLUSTER}><shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard></{CLUSTER}></remote_servers>
"""
MAKE = """
import json, os, sys
from pathlib import Path
from springtide.store import engine, open_store
folder = Path(sys.argv[1])
engine.engine_file = lambda **_: folder / "engine.xml"
store = open_store(f"chdb://{folder}/store", create=True, wait_s=1, on_wait=print)
try:
    for statement in json.load(sys.stdin):
        store.execute(statement)
    print(json.dumps(store.query("select table, zookeeper_path, replica_name from system.replicas")), flush=True)
except Exception as error:
    print(error, file=sys.stderr, flush=True)
    os._exit(1)
# This Keeper crashes in an orderly shutdown.
os._exit(0)
"""


def replicas(folder: Path, statements: Sequence[str]) -> dict[str, tuple[str, str]]:
    """By table: its path in Keeper and its replica's name there, of what these statements create in the database
    `springtide` on shard `s1`, replica `r1`."""
    text = (engine_file().parent / "engine.xml").read_text()
    (folder / "engine.xml").write_text(text.replace("<clickhouse>", SERVER, 1))
    (folder / "users.xml").write_text((engine_file().parent / "users.xml").read_text())
    command = [sys.executable, "-c", MAKE, str(folder)]
    # The bound is only for a machine that stands still.
    done = subprocess.run(
        command, input=json.dumps(statements), check=False, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    rows = json.loads(done.stdout.splitlines()[-1])
    return {row["table"]: (row["zookeeper_path"], row["replica_name"]) for row in rows}
