"""Lists what a part of a release is made of, as a CycloneDX document: every package that the lock files name.

    python -m tools.sbom NAME VERSION RELEASE      NAME: springtide, springtide-collector, springtide-edge,
                                                   springtide-fleet or springtide-airflow

A component's `scope` is CycloneDX's: `required` is linked into the program, or installed beside the wheel; `optional`
comes with the extra `airflow`; `excluded` only builds or tests, or is for other platforms. RELEASE is the folder with
the wheel's two lists of requirements. Plays and DAGs by themselves are made of nothing else: they name what runs them,
as it is pinned. The time is SOURCE_DATE_EPOCH (seconds since 1970).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.notices import ROOT, host, linked

# A name and its version in what `uv pip compile` writes; the same name may come twice, for different platforms.
PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)", re.MULTILINE)
Pins = set[tuple[str, str]]
# Plays and DAGs by themselves, and what runs them.
RUN_BY = {"springtide-fleet": "ansible-core", "springtide-airflow": "apache-airflow"}
# Name of such a crate's library; those without one, ring for instance, are their own.
LIBRARIES = {"libbpf-sys": "libbpf", "rdkafka-sys": "librdkafka", "zstd-sys": "zstd"}


def crates(lock: Mapping[str, Any], into: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    """A component for each crate of a parsed Cargo.lock, without the workspace's; `into`: what is linked: licences."""
    found = []
    for each in lock["package"]:
        if "source" not in each:
            continue
        key = (each["name"], each["version"])
        component = _component("cargo", *key, "required" if key in into else "excluded")
        component["hashes"] = [{"alg": "SHA-256", "content": each["checksum"]}]
        if key in into:
            component["licenses"] = [{"expression": into[key]}]
        found.append(component)
    return found


def brought(into: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """A component for each C library that a crate in `into` builds in: `libx-sys 1.2.3+v4.5.6` brings libx 4.5.6."""
    found = []
    for name, version in into:
        built_in = re.search(r"\+[a-z.]*(\d.*)$", version)
        if name in LIBRARIES and built_in:
            found.append(_component("generic", LIBRARIES[name], built_in[1], "required"))
    return found


def distributions(every: Pins, controller: Pins, airflow: Pins) -> list[dict[str, Any]]:
    """A component for each pinned distribution. Raises ValueError where a part has what the whole lacks."""
    if beyond := (controller | airflow) - every:
        raise ValueError(f"requirements.lock lacks {sorted(beyond)}: `make lock`")
    scopes = {pin: "required" if pin in controller else "optional" if pin in airflow else "excluded" for pin in every}
    return [_component("pypi", *pin, scopes[pin]) for pin in sorted(every)]


def pins(path: Path) -> Pins:
    return {(name, version) for name, version in PINNED.findall(path.read_text())}


def document(name: str, version: str, components: list[dict[str, Any]], moment_s: int) -> dict[str, Any]:
    """The whole, for the part of the release that is called `name`."""
    kind = "pypi" if name == "springtide" else "generic" if name in RUN_BY else "deb"
    purl = f"pkg:{kind}/{name}@{version}"
    own = {"type": "application", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    own["licenses"] = [{"license": {"id": "Apache-2.0"}}]  # type: ignore[assignment]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(moment_s, UTC).isoformat(), "component": own},
        "components": components,
    }


def _component(kind: str, name: str, version: str, scope: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name}@{version.replace('+', '%2B')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "scope": scope, "purl": purl}


def _program(name: str) -> list[dict[str, Any]]:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    # An old manifest separates licences by a slash.
    into = {(each["name"], each["version"]): each["license"].replace("/", " OR ") for each in linked(name, host())}
    toolchain = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    library = _component("generic", "rust-std", toolchain, "required")
    library["licenses"] = [{"expression": "MIT OR Apache-2.0"}]
    return [*crates(lock, into), *brought(into), library]


def main() -> None:
    name, version, release = sys.argv[1:]
    if name == "springtide":
        parts = (Path(release) / f"requirements-{part}.lock" for part in ("controller", "airflow"))
        components = distributions(pins(ROOT / "requirements.lock"), *map(pins, parts))
        components += _program("springtide-native")
    elif name in RUN_BY:
        found = pins(ROOT / "requirements.lock") | {("springtide", version)}
        wanted = {RUN_BY[name]} | ({"springtide"} if name == "springtide-airflow" else set())
        components = [_component("pypi", *pin, "required") for pin in sorted(found) if pin[0] in wanted]
    else:
        components = _program(name)
    made = document(name, version, components, int(os.environ["SOURCE_DATE_EPOCH"]))
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
