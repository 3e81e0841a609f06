"""python -m bench.pipeline: the bench `pipeline`, by the name under which sql/migrations/0013 cites it."""

import sys

from bench.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["pipeline", *sys.argv[1:]]))
