"""What a push costs on a fleet: 30 edges with 1,000 routes each, through Ansible and real sshd in namespaces.

Whole runs of the plays, wave by wave, without gates. Adds apply_s, unchanged_s, rollback_s and withdraw_s to
out/bench/push.json.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

from testkit.farm import Farm

ROOT = Path(__file__).resolve().parents[1]
EDGES, ROUTES = 30, 1_000
WITHDRAW_TARGET_S = 60.0


def timed(farm: Farm, play: str, windows: int) -> float:
    """Seconds of a play; every edge must then have so many routes."""
    begin = time.perf_counter()
    played = farm.play(play)
    taken = time.perf_counter() - begin
    found = {len(routes) for routes in farm.windows().values()}
    if played.code != 0 or found != {windows}:
        raise SystemExit(
            f"bench/push_fleet.py: {play}: exit code {played.code}, routes {found}: {played.output[-2000:]}"
        )
    print(f"{play}: {taken:.1f} s")
    return taken


def main() -> None:
    routes = {f"10.{number >> 8}.{number & 255}.0/24": 50 for number in range(ROUTES)}
    with (
        tempfile.TemporaryDirectory(prefix="springtide-bench-") as directory,
        Farm.made(Path(directory), EDGES) as farm,
    ):
        farm.publish(farm.documents(routes))
        result = {
            "edges": EDGES,
            "routes_each": ROUTES,
            "cores": os.cpu_count(),
            "apply_s": timed(farm, "rollout.yml", ROUTES),
            "unchanged_s": timed(farm, "rollout.yml", ROUTES),
            "rollback_s": timed(farm, "rollback.yml", 0),
        }
        farm.publish(farm.documents(routes, later=2))
        timed(farm, "rollout.yml", ROUTES)
        result["withdraw_s"] = timed(farm, "withdraw.yml", 0)
    out = ROOT / "out/bench/push.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(out.read_text()) if out.exists() else {}
    out.write_text(json.dumps(known | result | {"withdraw_target_s": WITHDRAW_TARGET_S}, indent=2) + "\n")


if __name__ == "__main__":
    main()
