"""Shows what the last run of `make test` spent: the slowest files, and the slowest tests.

    python -m tools.tests             the 30 slowest of each, of out/tests.json
    python -m tools.tests 10 FILE     the 10 slowest, of another file (make proof: out/proof.json)

Seconds are of one process of the four that run tests, so that they add up to about four times what one waits. `cpu` is
processor time of the tests and of the children that they waited for. Exit code 2 where there is no such file.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def lines(spent: dict[str, Any], most: int) -> list[str]:
    files = [(one["setup"] + one["call"] + one["teardown"], name, one) for name, one in spent["files"].items()]
    total, cpu = sum(seconds for seconds, _, _ in files), sum(one["cpu"] for _, _, one in files)
    shown = [f"{total:.0f} s, {cpu:.0f} s of processor time, {len(spent['tests'])} tests in {len(files)} files", ""]
    shown.append("      s  set-up    cpu  tests  file")
    for seconds, name, one in sorted(files, key=lambda item: -item[0])[:most]:
        shown.append(f"{seconds:7.1f} {one['setup']:7.1f} {one['cpu']:6.1f} {one['tests']:6.0f}  {name}")
    shown += ["", "      s  test"]
    for test, seconds in sorted(spent["tests"].items(), key=lambda item: -item[1])[:most]:
        shown.append(f"{seconds:7.1f}  {test}")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.tests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("most", nargs="?", type=int, default=30, help="how many of each")
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "out/tests.json", help="what a run wrote")
    given = parser.parse_args()
    try:
        spent = json.loads(given.file.read_text())
    except OSError as error:
        print(f"{given.file}: {error.strerror}; run `make test` first", file=sys.stderr)
        return 2
    # `| head` closes the pipe.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print("\n".join(lines(spent, given.most)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
