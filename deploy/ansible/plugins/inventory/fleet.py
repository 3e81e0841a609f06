"""fleet.yaml as Ansible's inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: Edges of fleet.yaml
description:
  - Every edge of fleet.yaml is a host, in the groups C(edges), C(pop_NAME) and C(region_NAME), with C(-) as C(_).
  - Needs nothing but Ansible, so that a withdrawal works where the controller does not.
  - C(springtide check) says what is wrong with a fleet.yaml, and where.
extends_documentation_fragment: []
options: {}
author:
  - The Springtide authors
"""

import re
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def edges(document: object) -> list[tuple[str, str, str, str]]:
    """(edge, PoP, region, address) in the file's order. Raises ValueError or TypeError with what is wrong."""
    if not isinstance(document, dict) or document.get("version") != 1 or not isinstance(document.get("pops"), dict):
        raise ValueError("it is not a fleet of version 1 with pops")
    found: list[tuple[str, str, str, str]] = []
    for pop, about in document["pops"].items():
        if not isinstance(about, dict):
            raise TypeError(f"pops.{pop} is not a mapping")
        region = about.get("region", "default")
        for edge, host in (about.get("edges") or {}).items():
            address = host.get("address") if isinstance(host, dict) else None
            for name in (pop, edge):
                if not isinstance(name, str) or not NAME.fullmatch(name):
                    raise ValueError(f"{name!r} is not a name")
            if not isinstance(region, str) or not isinstance(address, str):
                raise TypeError(f"pops.{pop}: region and the address of {edge} must be text")
            if any(edge == other for other, *_ in found):
                raise ValueError(f"{edge} is there twice")
            found.append((edge, pop, region, address))
    return found


def group(kind: str, name: str) -> str:
    return f"{kind}_" + re.sub(r"[^a-z0-9_]", "_", name.lower())


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]  # Ansible brings no types
    NAME = "springtide.fleet.fleet"

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and Path(path).name in ("fleet.yaml", "fleet.yml")

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        try:
            found = edges(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
            raise AnsibleParserError(f"{path}: {error}; `springtide check` says more") from error
        inventory.add_group("edges")
        for edge, pop, region, address in found:
            inventory.add_host(edge, group="edges")
            for kind, name in (("pop", pop), ("region", region)):
                inventory.add_host(edge, group=inventory.add_group(group(kind, name)))
            inventory.set_variable(edge, "ansible_host", address)
            inventory.set_variable(edge, "springtide_pop", pop)
            inventory.set_variable(edge, "springtide_region", region)
