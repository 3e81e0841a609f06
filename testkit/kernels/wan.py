"""`python -m testkit.kernels.wan [SERIES]`: the lab's emulator beside the kernel's netem and tbf, on five paths.

Both in one guest; the emulator runs once more on this machine itself, since a guest's slow processor is part of what is
measured there. Into out/emulator.json; `--docs` instead keeps that as emulator.json beside this file, and writes the
table of lab/topologies/README.md from it. Needs root.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lab.host import promptly
from testkit.kernels.__main__ import CACHE
from testkit.kernels.debian import SUITES, kernel
from testkit.kernels.guest import ROOT, boot
from testkit.kernels.table import Table

WAN, CROSSING = ROOT / "target/release/springtide-wan", ROOT / "target/release/examples/crossing"
# tbf counts a packet's frame; the emulator counts the packet.
PACKET, FRAME = 1228, 1242


class Way(NamedTuple):
    """A path as it is asked for."""

    rtt_ms: int
    rate_mbit: int
    queue_packets: int
    loss_percent: float


# Rates that an emulated guest carries twice.
WAYS = {
    "near": Way(10, 8, 20, 0),
    "middle": Way(50, 10, 41, 0),
    "far": Way(102, 6, 30, 0.5),
    "lossy": Way(80, 5, 20, 2),
    "thin": Way(300, 2, 10, 5),
}
COLUMNS = {"rtt_ms": "round trip, ms", "rate_mbit": "rate, Mbit/s", "queue_packets": "queue", "loss_percent": "loss, %"}
BY = ("asked", "kernel", "emulator", "here")


def emulated(way: Way) -> dict[str, Any]:
    """The emulator's configuration of a path with all that is asked one way, and delay alone back."""
    there: dict[str, Any] = {"delay_ms": way.rtt_ms / 2, "rate_mbit": way.rate_mbit, "queue_bytes": 1 << 30}
    there |= {"queue_packets": way.queue_packets, "loss": {"bernoulli": way.loss_percent / 100}}
    if not way.loss_percent:
        del there["loss"]
    back = {"delay_ms": way.rtt_ms / 2}
    ends = {"a": "10.1.0.1", "b": "10.2.0.1"}
    return {
        "seed": 1,
        "nodes": [
            {"name": name, "netns": f"sprt-wan-{name}", "tun": "wan0", "pop": name, "addresses": [address]}
            for name, address in ends.items()
        ],
        "intra": back,
        "paths": [{"src": "a", "dst": "b", "shape": there}, {"src": "b", "dst": "a", "shape": back}],
    }


def inputs(ways: Mapping[str, Way]) -> dict[str, bytes]:
    """The paths as the script reads them, and the emulator's file of each."""
    lines = "".join(f"{name} {' '.join(map(str, way))}\n" for name, way in ways.items())
    return {"paths": lines.encode()} | {
        f"{name}.json": json.dumps(emulated(way)).encode() for name, way in ways.items()
    }


def here(ways: Mapping[str, Way], crossing: Path = CROSSING) -> str:
    """The script's output on this machine, of the emulator alone.

    It runs before ordinary processes, so that it measures the path and not what computes beside it.
    """
    with tempfile.TemporaryDirectory() as made:
        for name, content in inputs(ways).items():
            (Path(made) / name).write_bytes(content)
        path = os.pathsep.join([str(WAN.parent), str(crossing.parent), os.environ["PATH"]])
        script = ["sh", str(Path(__file__).with_name("wan.sh")), made]
        done = subprocess.run(
            promptly(script), capture_output=True, text=True, check=True, env=os.environ | {"PATH": path}
        )
    return done.stdout + done.stderr


def crossings(said: str, ways: Mapping[str, Way]) -> dict[tuple[str, str], dict[str, float]]:
    """(By what, path) -> what `crossing` found. Raises OSError where one is missing."""
    found = {}
    for by, name, text in re.findall(r"^way (\S+) (\S+) (.*)$", said, re.MULTILINE):
        if not text.startswith("{"):
            raise OSError(f"{name} by {by}: {text}")
        found[by, name] = json.loads(text)
        if by == "kernel":
            found[by, name]["rate_mbit"] *= FRAME / PACKET
    if "all ways" not in said or {name for _, name in found} != set(ways):
        raise OSError(f"not every path was measured: {said[-600:]!r}")
    return found


def run(series: str) -> dict[str, Any]:
    """Measures each path: {"version", "ways": {name: {"asked", "kernel", "emulator", "here"}}}."""
    files = {f"bin/{one.name}": one.read_bytes() for one in (WAN, CROSSING)}
    said = boot(kernel(series, CACHE), files | inputs(WAYS), init="wan.sh")
    in_guest, outside = crossings(said, WAYS), crossings(here(WAYS), WAYS)
    named = re.search(r"kernel (\d\S+)$", said, re.MULTILINE)
    ways = {
        name: {
            "asked": way._asdict(),
            "kernel": in_guest["kernel", name],
            "emulator": in_guest["emulator", name],
            "here": outside["emulator", name],
        }
        for name, way in WAYS.items()
    }
    return {"version": named[1] if named else series, "ways": ways}


def table(result: Mapping[str, Any]) -> str:
    """A row a path: what was asked for, what the qdiscs and the emulator did in the guest, and the latter here."""
    lines = ["| path | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, found in result["ways"].items():
        cells = [" / ".join(f"{found[by][key]:.4g}" for by in BY) for key in COLUMNS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLE = Table(
    ROOT / "lab/topologies/README.md", Path(__file__).with_name("emulator.json"), "testkit.kernels.wan", table
)


def main() -> int:
    out = ROOT / "out/emulator.json"
    if sys.argv[1:] == ["--docs"]:
        TABLE.keep(json.loads(out.read_text()))
        return 0
    series = sys.argv[1] if sys.argv[1:] else "6.12"
    if series not in SUITES:
        print(f"kernels: no series {series!r}: there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    result = run(series)
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"asked / netem and tbf of {result['version']} / the emulator there / the emulator here\n{table(result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
