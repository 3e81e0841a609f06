"""Files that Springtide brings beside its code: SQL, the contract, plays, DAGs, dashboards, units.

In a wheel these stand in the folder `_files` of the package, under the paths that they have in a checkout
(tools/wheel.py lists them); nothing else knows which of the two this is. The plays' collection stands beside the
package, where Ansible finds it.
"""

from __future__ import annotations

from pathlib import Path

from springtide.errors import InputError

_PACKAGE = Path(__file__).resolve().parent

# The names by which `springtide files` knows what an operator hands to other programs.
NAMES = {
    "ansible": "deploy/ansible",
    "dags": "pipeline/dags",
    "pools": "pipeline/pools.json",
    "dashboards": "dashboards/json",
    "prometheus": "dashboards/prometheus",
    "systemd": "deploy/systemd",
    "sql": "sql",
    "proto": "proto",
}


def root() -> Path:
    """The folder that holds them: in the package, or the checkout."""
    in_wheel = _PACKAGE / "_files"
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent.parent


def shipped(path: str) -> Path:
    """Where the file or folder is that has this path in a checkout, `sql/engine.xml` for instance."""
    return root() / path


def named(name: str) -> Path:
    """One of NAMES. Raises InputError where the installation lacks it."""
    path = shipped(NAMES[name])
    if not path.exists():
        raise InputError([f"{path}: does not exist: install springtide from its wheel, or as an editable checkout"])
    return path
