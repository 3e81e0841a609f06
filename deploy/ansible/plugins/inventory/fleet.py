"""fleet.yaml as Ansible's inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: Edges of fleet.yaml
description:
  - Every edge of fleet.yaml is a host, in the groups C(edges), C(pop_NAME) and C(region_NAME), with C(-) as C(_).
  - Edges with C(push) false are in the group C(not_pushed) too. Rollouts, rollbacks and drift leave them alone.
  - Needs nothing but Ansible, so that a withdrawal works where the controller does not.
  - What C(springtide check) refuses of PoPs, regions, edges and addresses is refused here, and then no edge is known;
    C(springtide check) reports what is wrong, and where.
extends_documentation_fragment: []
options: {}
author:
  - The Springtide authors
"""

import re
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Iterator

import yaml
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.plugins.loader import action_loader, connection_loader, filter_loader, shell_loader, test_loader

# The rules of the controller's fleet.py for what is read here, word for word; the tests hold both to the same cases.
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ADDRESS = re.compile(r"[0-9A-Za-z][0-9A-Za-z.:_-]{0,252}")
REGION = re.compile(r"[^\W_][\w .-]{0,62}")
# Ansible means something else by these, and folders of spools keep what is bad as `rejected`.
RESERVED = frozenset({"all", "edges", "localhost", "ungrouped", "rejected"})


def read(text: str) -> object:
    """YAML without repeated keys or aliases. Raises ValueError and YAMLError."""
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
        raise ValueError("it uses a YAML alias")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for mapping in _mappings(node):
        keys = [key.value if key.tag == "tag:yaml.org,2002:str" else None for key, _ in mapping.value]
        for key in keys:
            if key is None or keys.count(key) > 1:
                raise ValueError(f"line {mapping.start_mark.line + 1}: a key is not text, or {key!r} is there twice")
    return yaml.safe_load(text)


def _mappings(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _mappings(value)


def edges(document: object) -> list[tuple[str, str, str, str, bool]]:
    """(edge, PoP, region, address, push) in the file's order. Raises ValueError with what is wrong."""
    # The tenants' connections are the controller's to judge: no host is named there.
    whole = _mapping("it", document, {"version", "pops", "tenants"}, {"version", "pops"})
    if type(whole["version"]) is not int or whole["version"] != 1 or not whole["pops"]:
        raise ValueError("it is not a fleet of version 1 with pops")
    found: dict[str, tuple[str, str, str, str, bool]] = {}
    for pop, about in _mapping("pops", whole["pops"]).items():
        given = _mapping(f"pops.{pop}", about, {"region", "prefixes", "edges"}, {"prefixes"})
        region = _fitting(given.get("region", "default"), REGION, "a region")
        _fitting(pop, NAME, "a name")
        if not isinstance(given["prefixes"], list) or not given["prefixes"]:
            raise ValueError(f"pops.{pop}.prefixes is not a list of prefixes")
        for edge, host in _mapping(f"pops.{pop}.edges", given.get("edges", {})).items():
            _fitting(edge, NAME, "a name")
            if edge in RESERVED:
                raise ValueError(f"{edge!r} is not a name for an edge: Ansible means something else by it")
            if edge in found:
                raise ValueError(f"{edge} is there twice")
            about_edge = _mapping(f"the edge {edge}", host, {"address", "push"}, {"address"})
            address = _fitting(about_edge["address"], ADDRESS, f"the address of {edge}")
            push = about_edge.get("push", True)
            if not isinstance(push, bool):
                raise ValueError(f"push of {edge} is neither true nor false")  # noqa: TRY004 (the file's content is wrong)
            if not _is_host(address):
                raise ValueError(f"{address!r} is not the address of {edge}")
            found[edge] = (edge, pop, region, address, push)
    return list(found.values())


def _mapping(what: str, value: object, may: Any = None, must: Any = ()) -> dict[str, Any]:
    """A mapping with only the allowed keys, where those are given, and every required key."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a mapping")  # noqa: TRY004 (the file's content is wrong)
    for key in value:
        if may is not None and key not in may:
            raise ValueError(f"{what} has an unknown key {key!r}")
    for key in sorted(must):
        if key not in value:
            raise ValueError(f"{what} is without {key}")
    return value


def _is_host(text: str) -> bool:
    """Whether a text is an IP address or may be a host's name, which has no colon and not numbers alone."""
    if ":" not in text and text.strip(".0123456789"):
        return True
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _fitting(value: object, rule: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not rule.fullmatch(value):
        raise ValueError(f"{value!r} is not {what}")
    return value


def group(kind: str, name: str) -> str:
    return f"{kind}_" + re.sub(r"[^a-z0-9_]", "_", name.lower())


def load_early() -> None:
    """Loads once what each step needs: Ansible makes a process for each step on each edge, a copy of this one, which
    would load it anew."""
    for loader in (filter_loader, test_loader):
        list(loader.all())
    for connection in ("springtide.fleet.ssh", "ansible.builtin.local"):
        connection_loader.get(connection, class_only=True)
    shell_loader.get("sh")
    action_loader.get("springtide.fleet.springtide_edge", class_only=True)


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]  # Ansible brings no types
    NAME = "springtide.fleet.fleet"

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and Path(path).name in ("fleet.yaml", "fleet.yml")

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        try:
            found = edges(read(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise AnsibleParserError(f"{path}: {error}; see `springtide check`") from error
        inventory.add_group("edges")
        # No edge can have this name: it has an underscore.
        inventory.add_group("not_pushed")
        for edge, pop, region, address, push in found:
            inventory.add_host(edge, group="edges")
            if not push:
                inventory.add_host(edge, group="not_pushed")
            for kind, name in (("pop", pop), ("region", region)):
                inventory.add_host(edge, group=inventory.add_group(group(kind, name)))
            inventory.set_variable(edge, "ansible_host", address)
            inventory.set_variable(edge, "springtide_pop", pop)
            inventory.set_variable(edge, "springtide_region", region)
        # A plugin that cannot be loaded is a matter of the step that needs it.
        with suppress(Exception, SystemExit):
            load_early()
