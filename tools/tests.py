"""Shows what the last run of `make test` spent: the slowest files, and the slowest tests.

    python -m tools.tests             the 30 slowest of each, of out/tests.json
    python -m tools.tests 10 FILE     the 10 slowest, of another file (make proof: out/proof.json)

Seconds are of one process of the four that run tests, so that they add up to about four times what one waits. `cpu` is
processor time of the tests and of the children that they waited for. Exit code 2 where there is no such file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lines(spent: dict[str, dict[str, dict[str, float]]], most: int) -> list[str]:
    files = [(one["setup"] + one["call"] + one["teardown"], name, one) for name, one in spent["files"].items()]
    total, cpu = sum(seconds for seconds, _, _ in files), sum(one["cpu"] for _, _, one in files)
    shown = [f"{total:.0f} s, {cpu:.0f} s of processor time, {len(spent['tests'])} tests in {len(files)} files", ""]
    shown.append("      s  set-up    cpu  tests  file")
    for seconds, name, one in sorted(files, key=lambda item: -item[0])[:most]:
        shown.append(f"{seconds:7.1f} {one['setup']:7.1f} {one['cpu']:6.1f} {one['tests']:6.0f}  {name}")
    shown += ["", "      s  test"]
    for seconds, test in sorted(((one["s"], test) for test, one in spent["tests"].items()), reverse=True)[:most]:
        shown.append(f"{seconds:7.1f}  {test}")
    return shown


def main() -> int:
    most, path = (*sys.argv[1:], *("30", str(ROOT / "out/tests.json"))[len(sys.argv) - 1 :])[:2]
    try:
        spent = json.loads(Path(path).read_text())
    except OSError as error:
        print(f"{path}: {error.strerror}; run `make test` first", file=sys.stderr)
        return 2
    print("\n".join(lines(spent, int(most))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
