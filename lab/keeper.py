"""Takes a lab down when the process that has it up has ended, however that was: then its standard input ends."""

from __future__ import annotations

import contextlib
import sys


def main(lab: str) -> None:
    """Waits. Raises LabError when something cannot be removed."""
    sys.stdin.buffer.read()
    # Not before: it waits for as long as a lab is up, and should cost little.
    from lab import teardown
    from lab.errors import InputError

    # Its owner may have taken it down.
    with contextlib.suppress(InputError):
        teardown.take_down(lab)


if __name__ == "__main__":
    main(sys.argv[1])
