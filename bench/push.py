"""What a push costs on one edge: 10,000 signed routes applied, beside a bare `ip -batch` of the same routes.

The command is the one that the role routes installs. Both run in the same fresh network namespace, in turn; the ratio
is of the medians. Writes out/bench/push.json.
"""

from __future__ import annotations

import json
import py_compile
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from testkit.edge import SCRIPT, Edge, bundle

ROOT = Path(__file__).resolve().parents[1]
ROUTES, TURNS = 10_000, 9
TARGET = 1.6


def bare(edge: Edge, lines: str) -> float:
    """Seconds that `ip -batch` takes; the table is empty again afterwards."""
    begin = time.perf_counter()
    command = ["ip", "netns", "exec", edge.name, "ip", "-batch", "-"]
    subprocess.run(command, input=lines.encode(), check=True)
    taken = time.perf_counter() - begin
    edge.ip("route", "flush", "table", "201")
    return taken


def applied(edge: Edge, path: str, script: Path) -> float:
    """Seconds that `apply` takes, signature, plan, read-back and record included; withdrawn again afterwards."""
    begin = time.perf_counter()
    outcome = edge.run("apply", path, script=script)
    taken = time.perf_counter() - begin
    if outcome.code != 0 or outcome.report["added"] != ROUTES:
        raise SystemExit(f"bench/push.py: apply failed: {outcome.errors or outcome.report}")
    edge.run("withdraw")
    return taken


def installed(folder: Path) -> Path:
    """The edge's command as the role installs it: what it imports lies beside it, compiled."""
    py_compile.compile(str(shutil.copy(SCRIPT, folder)))
    command = folder / "springtide-routes"
    template = ROOT / "deploy/ansible/roles/routes/templates/springtide-routes.j2"
    command.write_text(template.read_text().replace("{{ routes_library }}", str(folder)))
    return command


def main() -> None:
    routes = {f"10.{number >> 8}.{number & 255}.0/24": 50 for number in range(ROUTES)}
    owner = "table 201 proto 201 via 192.168.0.2 dev up0 scope 0 initcwnd 50"
    lines = "".join(f"route add {prefix} {owner}\n" for prefix in routes)
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as directory, Edge.made(Path(directory)) as edge:
        edge.ip("route", "add", "default", "via", "192.168.0.2")
        path = edge.write(bundle(routes))
        script = installed(Path(directory))
        turns = [(bare(edge, lines), applied(edge, path, script)) for _ in range(TURNS)]
    floor, ours = (statistics.median(column) for column in zip(*turns, strict=True))
    result = {"routes": ROUTES, "ip_batch_s": floor, "apply_one_edge_s": ours, "apply_ratio": ours / floor}
    out = ROOT / "out/bench/push.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result | {"target": TARGET}, indent=2) + "\n")
    print(f"apply {ours:.3f} s, ip -batch {floor:.3f} s, ratio {ours / floor:.2f} (target {TARGET})")


if __name__ == "__main__":
    main()
