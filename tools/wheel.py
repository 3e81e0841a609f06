"""Adds to the wheel what it brings beside Python code: hatch calls this as it builds one.

It is for one platform, since the compiled part of the controller is in it, and for any Python from 3.11 on.
An editable installation gets none of it: it finds the files in the checkout, and copies would grow old beside them.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# springtide/shipped.py finds these, under the paths that they have here.
FILES = (
    "sql",
    "proto",
    "pipeline/dags",
    "pipeline/pools.json",
    "dashboards/json",
    "dashboards/prometheus",
    "deploy/systemd",
    "deploy/ansible/ansible.cfg",
    "deploy/ansible/playbooks",
)
# Ansible finds collections that Python packages bring. The plays stand there too, as a link here: wheels have none.
COLLECTION = "ansible_collections/springtide/fleet"
IN_COLLECTION = ("galaxy.yml", "README.md", "CHANGELOG.md", "meta", "playbooks", "plugins", "roles")


# Made by `make setup`; for another processor by tools/compile-arm64.
MODULE = "springtide/_core.abi3.so"
TARGET = os.environ.get("SPRINGTIDE_TARGET", "")
# Notices of what is linked into it; made by `make release`.
NOTICES = "target/notices/springtide-native.txt"
# A page of each command; made by `make release`.
MANUAL = "target/man/controller"


class Hook(BuildHookInterface):  # type: ignore[misc]
    """Adds the files to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"] |= wanted(Path(self.root))
            build_data["shared_data"] |= {str(page): f"share/man/man1/{page.name}" for page in manual(Path(self.root))}
            build_data["pure_python"] = False
            platform = f"linux-{TARGET.split('-')[0]}" if TARGET else sysconfig.get_platform()
            build_data["tag"] = f"cp311-abi3-{platform.translate(str.maketrans('-.', '__'))}"


def manual(root: Path) -> list[Path]:
    """The manual pages that are there."""
    return sorted((root / MANUAL).glob("springtide*.1"))


def wanted(root: Path) -> dict[str, str]:
    """Each file's path below `root`, as it is, and in the wheel."""
    pairs = {path: f"springtide/_files/{path}" for path in FILES}
    pairs |= {f"deploy/{COLLECTION}/{name}": f"{COLLECTION}/{name}" for name in IN_COLLECTION}
    of_target = root / "target" / TARGET / "release/libspringtide_native.so"
    module = of_target if TARGET else root / "controller" / MODULE
    if not module.exists():
        raise FileNotFoundError(f"{module}: is not built; run `make setup`")
    pairs |= {NOTICES: "springtide/_files/notices.txt"} if (root / NOTICES).exists() else {}
    return {str(module): MODULE} | {
        str(file): os.path.normpath(f"{inside}/{file.relative_to(root / path)}")
        for path, inside in pairs.items()
        for file in files(root / path)
    }


def files(path: Path) -> list[Path]:
    """All files below a folder, or the file itself, through links; in one order, whatever the disk's."""
    found = [Path(folder, name) for folder, _, names in os.walk(path, followlinks=True) for name in names]
    return sorted(each for each in found or [path] if each.suffix != ".pyc")
