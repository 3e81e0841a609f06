"""`make chain`: collectors -> Kafka -> store -> Airflow -> Ansible -> edges, with a kill at each hop; needs root.

Exit codes: 0 all holds, 1 something does not (`wrong` in the result says what), 2 bad usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from rich.console import Console

from lab.errors import LabError
from lab.host import REPOSITORY
from lab.lab import Lab
from pipeline.chain.run import HOPS, Chain

TOPOLOGY = REPOSITORY / "lab/topologies/chain.yaml"


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m pipeline.chain", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--out", type=Path, default=Path("out/chain.json"), help="the rest goes into a folder beside it")
    made.add_argument("--kill", nargs="*", choices=HOPS, default=HOPS, metavar="HOP", help=f"of {', '.join(HOPS)}")
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = options(arguments)
    folder = given.out.resolve().with_suffix("")
    screen = Console(stderr=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)
    given.out.unlink(missing_ok=True)
    try:
        with Lab.up(TOPOLOGY, f"chain{os.getpid()}") as lab:
            found = Chain(folder, lab, given.kill, screen).run()
    except LabError as error:
        print(f"chain: {error}", file=sys.stderr)
        return error.exit_code
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    for what in found["wrong"]:
        print(f"chain: {what}", file=sys.stderr)
    print(json.dumps({name: value for name, value in found.items() if name != "in_force"}))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
