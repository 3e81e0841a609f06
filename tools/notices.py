"""The notices of what is linked into a program: its crates, the C libraries that they bring, Rust's own library.

    python -m tools.notices PACKAGE        prints them, for /usr/share/doc/PACKAGE/notices.txt.gz

The list is cargo's own, without what only the compiler runs (procedural macros, build scripts); the texts are those in
the crates' sources. Exit code 1 where one has none, or links a C library that is not known here: nobody would have
looked for its notices.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEXT = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)
# Where a crate lets choose, the other licence's text says nothing of this program.
NOT_CHOSEN = ("LICENSE.LGPL-2.1",)
# Crates that link C libraries, and where those that they build in have their notices; OpenSSL and Python are
# the host's own.
LINKED = {
    "libbpf-sys": ("libbpf/LICENSE", "libbpf/LICENSE.BSD-2-Clause"),
    "rdkafka-sys": ("librdkafka/LICENSES.txt",),
    "ring": ("third_party/fiat/LICENSE",),
    "zstd-sys": ("zstd/LICENSE",),
    "openssl-sys": (),
    "pyo3-ffi": (),
}
# The crate has no text of its own: the licence that its manifest names, with its authors.
STANDARD = {"MIT": "MIT.txt"}


class NoticesError(Exception):
    """Something is linked whose notices cannot be found; the message names it."""


def linked(package: str, host: str) -> list[dict[str, Any]]:
    """Cargo's records of the crates linked into `package` on `host` (a target triple), without the workspace's."""
    common = ("--locked", "--format-version=1", f"--filter-platform={host}")
    known = json.loads(_run("cargo", "metadata", *common))["packages"]
    # The whole workspace's: it is built at once, and features that one program wants come into the others.
    tree = _run(
        *("cargo", "tree", "--locked", "--workspace", f"--target={host}", "--edges=normal,no-proc-macro"),
        *("--prefix=depth", "--no-dedupe", "--format={p}"),
    )
    names = below(tree, package)
    found = [each for each in known if (each["name"], each["version"]) in names and each["source"]]
    return sorted(found, key=lambda each: (each["name"], each["version"]))


def below(tree: str, package: str) -> set[tuple[str, str]]:
    """Names and versions of what stands below `package` in cargo's tree, of lines `DEPTHname vVERSION ...`."""
    found, inside = set(), False
    for depth, name, version in re.findall(r"^(\d+)(\S+) v(\S+)", tree, re.MULTILINE):
        if depth == "0":
            inside = name == package
        elif inside:
            found.add((name, version))
    return found


def texts(crate: Mapping[str, Any]) -> list[str]:
    """The crate's notices. Raises NoticesError where there are none, or it links a C library that LINKED lacks."""
    folder = Path(crate["manifest_path"]).parent
    name = crate["name"]
    if crate["links"] and name not in LINKED:
        raise NoticesError(f"{name}: links {crate['links']}: write into tools/notices.py where its notices are")
    own = [path for path in sorted(folder.iterdir()) if TEXT.fullmatch(path.name) and path.is_file()]
    named = [folder / crate["license_file"]] if crate["license_file"] else []
    brought = [folder / path for path in LINKED.get(name, ())]
    chosen = [path for path in dict.fromkeys([*own, *named, *brought]) if path.name not in NOT_CHOSEN]
    found = [path.read_text(errors="replace") for path in chosen]
    if not own and not named:
        standard = STANDARD.get(crate["license"] or "")
        if standard is None:
            raise NoticesError(f"{name} {crate['version']}: has no licence text: add its licence to LICENSES/")
        authors = "".join(f"Copyright (c) {author}\n" for author in crate["authors"])
        found.append(authors + (ROOT / "LICENSES" / standard).read_text())
    return found


def notices(package: str, crates: list[dict[str, Any]], standard_library: str) -> str:
    """The whole page: who is linked, under which licence, and each text once."""
    numbers: dict[str, int] = {}
    full: dict[int, str] = {}
    lines = [
        f"What is linked into {package} beside its own code, and the notices of that. A licence that a crate lets",
        "choose: any of those named; of LGPL-2.1 OR BSD-2-Clause, BSD-2-Clause.",
        "",
    ]
    for crate in crates:
        mine = []
        for text in texts(crate):
            number = numbers.setdefault(" ".join(text.split()), len(numbers) + 1)
            full.setdefault(number, text)
            mine.append(str(number))
        licence = crate["license"] or "see its text"
        lines.append(f"{crate['name']} {crate['version']}: {licence} (text {', '.join(dict.fromkeys(mine))})")
    lines += ["Rust's standard library: MIT OR Apache-2.0 (last text)"]
    for number, text in full.items():
        lines += ["", "=" * 80, f"Text {number}", "=" * 80, text.rstrip()]
    lines += ["", "=" * 80, "Rust's standard library", "=" * 80, standard_library.rstrip(), ""]
    return "\n".join(lines)


def host() -> str:
    """The target triple of what is built: SPRINGTIDE_TARGET, else that of this machine."""
    if target := os.environ.get("SPRINGTIDE_TARGET"):
        return target
    return re.findall(r"^host: (.*)$", _run("rustc", "-vV"), re.MULTILINE)[0]  # type: ignore[no-any-return]


def standard_library() -> str:
    """Notices of Rust's toolchain for its standard library, as text."""
    page = Path(_run("rustc", "--print", "sysroot").strip()) / "share/doc/rust/COPYRIGHT-library.html"
    if not page.is_file():
        raise NoticesError(f"{page}: does not exist: the toolchain lacks the notices of its library")
    body = re.sub(r"<(style|title)>.*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return html.unescape("\n".join(_lines(re.sub(r"<[^>]*>", "", body))))


def _lines(text: str) -> Iterator[str]:
    """Without the empty lines that tags leave, but one between paragraphs."""
    empty = True
    for line in text.splitlines():
        if line.strip() or not empty:
            yield line.rstrip()
        empty = not line.strip()


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    [package] = sys.argv[1:]
    try:
        print(notices(package, linked(package, host()), standard_library()), end="")
    except NoticesError as error:
        sys.exit(f"notices: {error}")


if __name__ == "__main__":
    main()
