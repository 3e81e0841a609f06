"""`make chain`: collectors -> Kafka -> store -> Airflow -> Ansible -> edges, with a kill at each hop; needs root.

Exit codes: 0 all holds, 1 something does not (`wrong` in run.json says what), 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from rich.console import Console
from springtide.errors import SpringtideError

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


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """SIGINT and SIGTERM raise KeyboardInterrupt: once, and not after a call of what this gives. What was started is
    then ended undisturbed."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def disturb_no_more() -> None:
        for number in numbers:
            # A handler, since what is started would inherit SIG_IGN.
            signal.signal(number, lambda *_: None)

    def interrupt(*_: Any) -> None:
        disturb_no_more()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield disturb_no_more
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str] | None = None) -> int:
    given = options(arguments)
    folder = given.out.resolve().with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)
    given.out.unlink(missing_ok=True)
    try:
        with interruptible() as ending, Lab.up(TOPOLOGY, f"chain{os.getpid()}") as lab:
            found = Chain(folder, lab, given.kill, Console(stderr=True), ending).run()
    except KeyboardInterrupt:
        print("chain: interrupted; what it had started has ended", file=sys.stderr)
        return 130
    except LabError as error:
        print(f"chain: {error}", file=sys.stderr)
        return error.exit_code
    except (SpringtideError, KafkaException, RuntimeError, OSError) as error:
        print(f"chain: {error}; logs are below {folder}", file=sys.stderr)
        return 1
    books = json.dumps({**asdict(found.books), "kills": found.kills})
    given.out.write_text(books + "\n")
    rest = {name: value for name, value in asdict(found).items() if name not in ("books", "kills")}
    (folder / "run.json").write_text(json.dumps(rest, indent=1) + "\n")
    for what in found.wrong:
        print(f"chain: {what}", file=sys.stderr)
    print(books)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
