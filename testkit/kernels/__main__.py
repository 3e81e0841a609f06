"""`python -m testkit.kernels [SERIES ...]`: every check on every kernel, into out/kernels.json.

`python -m testkit.kernels --docs` runs nothing: it keeps that result as kernels.json beside this file, and writes the
table of docs/explanation/routes.md from it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testkit.edge import PROGRAM, bundle, make_key, sign
from testkit.kernels.compare import as_ss, close, fields, first_flight
from testkit.kernels.debian import SUITES, kernel
from testkit.kernels.guest import ROOT, boot
from testkit.kernels.table import TABLE

CACHE = Path.home() / ".cache/springtide/kernels"
LOCKDOWNS = ("integrity", "confidentiality")
# A guest's last check.
LAST = "untyped_leaves_no_route"


def by_program(window: int, otherwise: str = "default") -> dict[str, Any]:
    """A bundle, newer than what was made before, by which IPv4 connections start with this window."""
    entries = [
        {
            "prefix": "10.77.2.0/24",
            "copied_bytes": 20_000,
            "handshake_timeout_ms": 200,
            "initcwnd": window,
            "start_rate": 5_000_000,
        },
        {"prefix": "10.77.3.0/24", "congestion": {"algorithm": "bbr", "from_bytes": 0}},
        {"prefix": "fd77:2::/48", "copied_bytes": 20_000, "initcwnd": 40},
    ]
    enforce = {"by": "bpf", "otherwise": otherwise, "record_permille": 1000}
    return bundle({}, ttl=3600, enforce=enforce, entries=entries)


def by_routes(window: int) -> dict[str, Any]:
    return bundle({"10.77.2.0/24": window, "fd77:2::/48": window}, ttl=3600)


def inputs() -> dict[str, bytes]:
    """Signed bundles in the order in which a guest applies them, whose signature counts, and another build."""
    documents = {
        "bpf.json": by_program(60),
        "again.json": by_program(50),
        "upgrade.json": by_program(60),
        "routes.json": by_routes(30),
        "objects.json": by_routes(31),
        "untyped.json": by_program(60),
        "otherwise.json": by_program(60, "routes"),
    }
    # Its eBPF object differs in the compiler's name, so it is another one and does the same.
    found = {"bin/springtide-edge-next": PROGRAM.read_bytes().replace(b"clang version", b"clang Version")}
    with tempfile.TemporaryDirectory() as made:
        key = make_key(Path(made) / "key")
        found["allowed_signers"] = b"springtide " + key.with_suffix(".pub").read_bytes()
        for name, document in documents.items():
            path = Path(made) / name
            path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
            found[name], found[f"{name}.sig"] = path.read_bytes(), sign(path, key).read_bytes()
    return found


def checks(said: str) -> dict[str, str]:
    """Name -> what is wrong, empty where nothing is, of what a guest printed."""
    found = {}
    for line in said.splitlines():
        word, _, rest = line.partition(" ")
        if word == "check":
            name, verdict, *text = rest.split(" ", 2)
            found[name] = "" if verdict == "ok" else " ".join(text) or "failed"
    return found


def run(series: str, lockdowns: Sequence[str] = LOCKDOWNS) -> dict[str, Any]:
    """One kernel's row: {"version", "loads", "checks": {name: bool}, "wrong": {name: text}}."""
    folder, files = kernel(series, CACHE), inputs()
    said = boot(folder, files)
    found = checks(said)
    found["collector_as_ss"] = as_ss(said)
    found["collector_closes"], found["collector_first_flights"] = close(said), first_flight(said)
    for mode in lockdowns:
        locked = checks(boot(folder, {**files, "only_loads": b""}, f"lockdown={mode}"))
        wrong = [locked.get(name, f"no answer to {name}") for name in ("applies", "opens_ipv4", "names_lockdown")]
        found[f"lockdown_{mode}"] = next(filter(None, wrong), "")
    if LAST not in found:
        found["whole_run"] = f"the guest stopped early: {said[-300:]!r}"
    # Behind what the firmware writes to the terminal.
    named = re.search(r"kernel (\d\S+)$", said, re.MULTILINE)
    return {
        "version": named[1] if named else series,
        # Where the kernel refuses the program, `apply` succeeds and leaves connections at the default.
        "loads": found.get("opens_ipv4", "no answer") == "",
        "checks": {name: not wrong for name, wrong in found.items()},
        "wrong": {name: wrong for name, wrong in found.items() if wrong},
    }


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row["checks"]))
    print("| check | " + " | ".join(row["version"] for row in rows) + " |")
    print("|---" * (len(rows) + 1) + "|")
    for name in names:
        print(f"| {name} | " + " | ".join("yes" if row["checks"].get(name) else "no" for row in rows) + " |")
    for row in rows:
        for name, wrong in row["wrong"].items():
            print(f"{row['version']}: {name}: {wrong}", file=sys.stderr)


def main() -> int:
    out = ROOT / "out/kernels.json"
    if sys.argv[1:] == ["--docs"]:
        TABLE.keep(json.loads(out.read_text()))
        return 0
    rows = []
    for series in sys.argv[1:] or SUITES:
        if series not in SUITES:
            print(f"kernels: no series {series!r}: there are {', '.join(SUITES)}", file=sys.stderr)
            return 2
        print(f"== kernel {series}, three boots by emulation", file=sys.stderr, flush=True)
        rows.append(run(series))
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"kernels": rows, "fields": fields()}, indent=2) + "\n")
    show(rows)
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
