"""`make bench-pipeline`: writes out/bench/pipeline.json.

python -m bench.pipeline [--rows N] [--turns N] [--round-rows N] [--prefixes N] [--rounds N] [--codecs]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from springtide.fleet import load_fleet

from bench import rounds as round_tables
from bench.pipeline.ingest import ROOT, TOPIC, compare, fleet_file, from_files, new_store, produce
from bench.pipeline.storage import measure_codecs, measure_storage
from testkit.kafka import Broker

POLLS = 60


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(rows: int, turns: int, codecs: bool) -> dict[str, Any]:
    """All figures, with a broker and stores of their own that are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="springtide-bench-") as name:
        folder = Path(name)
        with Broker(folder / "kafka", heap="1g") as broker:
            broker.topic(TOPIC)
            say(f"replaying about {rows:,} rows into Kafka and files")
            made, size = produce(broker, rows // POLLS, POLLS, folder)
            say(f"{made:,} rows; from files and from Kafka in turns")
            wire = sum(path.stat().st_size for path in (folder / "kafka").rglob("*.log")) / made
            result = {
                "rows": made,
                "message_bytes_per_row": round(size / made, 1),
                "wire_bytes_per_row": round(wire, 1),
                **compare(broker, folder, made, turns),
            }
        say("merging, and measuring the disk")
        (folder / "disk").mkdir()
        store = new_store(folder / "disk")
        try:
            from_files(store, load_fleet(fleet_file(folder)), folder, made)
            result |= measure_storage(store)
            if codecs:
                say("trying other codecs")
                result["codecs"] = measure_codecs(store)
        finally:
            store.close()
    return result


def measure_rounds(rows: int, prefixes: int, rounds: int) -> dict[str, Any]:
    """The roll-up of one round, and the controller's reads."""
    say(f"one round's tables over {rows:,} rows, then reads over {rounds} rounds of {prefixes:,} prefixes")
    found = round_tables.measure(rows, prefixes, rounds)
    return {f"rollup_{name}" if name == "rows" else name: value for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pipeline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--round-rows", type=int, default=20_000_000)
    parser.add_argument("--prefixes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=72)
    parser.add_argument("--codecs", action="store_true", help="also what each column takes under other codecs")
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench/pipeline.json")
    given = parser.parse_args()
    result = measure(given.rows, given.turns, given.codecs)
    result |= measure_rounds(given.round_rows, given.prefixes, given.rounds)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
