"""Answers of a wave's edges, from their hostvars: plain Python reads better than Jinja chains."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

Hosts = Iterable[Mapping[str, Any]]


def named(hosts: Hosts) -> list[dict[str, str]]:
    """Edges as springtide_waves takes them."""
    return [{"name": str(host["inventory_hostname"]), "region": str(host["springtide_region"])} for host in hosts]


def _where(hosts: Hosts, variable: str, fits: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    return [str(host["inventory_hostname"]) for host in hosts if fits(host.get(variable) or {"missing": True})]


def _is_bad(answer: Mapping[str, Any]) -> bool:
    return bool(answer.get("failed") or answer.get("unreachable") or answer.get("missing"))


def bad(hosts: Hosts, variable: str) -> list[str]:
    """Edges that failed, were not reached, or never answered."""
    return _where(hosts, variable, _is_bad)


def good(hosts: Hosts, variable: str) -> list[str]:
    """Edges that did it; those that were skipped did not."""
    return _where(hosts, variable, lambda answer: not (_is_bad(answer) or answer.get("skipped")))


def changed(hosts: Hosts, variable: str) -> list[str]:
    """Edges that did it and are not as before."""
    return _where(hosts, variable, lambda answer: not _is_bad(answer) and bool(answer.get("changed")))


def holding(hosts: Hosts, variable: str) -> list[str]:
    """Edges that failed only to write down what their kernel holds all the same."""
    return _where(hosts, variable, lambda answer: bool(answer.get("holds")))


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "springtide_named": named,
            "springtide_bad": bad,
            "springtide_good": good,
            "springtide_changed": changed,
            "springtide_holding": holding,
        }
