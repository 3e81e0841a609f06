"""Parts of bundles: an entry has the values that connections to one destination start with. Laws hand over entries, and
those of all laws for one prefix become one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from springtide._core import bundle_schema
from springtide.fleet import Fleet
from springtide.laws.holdout import held_out_edges
from springtide.policy import Policy


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Names of all parts' fields, and whether they are lists."""
    for name, field in schema.get("properties", {}).items():
        yield name, field["type"] == "array"
        yield from _fields(field.get("items", field))


# Fields of all parts: core/src/bundle.rs defines them, with their bounds.
_IS_LIST = dict(_fields(json.loads(bundle_schema())))


class Part:
    """An object of a bundle: its fields as attributes, those that are missing None or an empty list. springtide-core
    defines which fields each has, and judges their values."""

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - _IS_LIST.keys():
            raise TypeError(f"no part of a bundle has {', '.join(sorted(unknown))}")
        vars(self).update((name, value) for name, value in values.items() if value is not None)

    def __getattr__(self, name: str) -> Any:
        if name in _IS_LIST:
            return [] if _IS_LIST[name] else None
        raise AttributeError(f"no part of a bundle has {name}")

    @property
    def largest_window(self) -> int:
        """The largest window with which connections may start, on trial or not; 0 is none."""
        on_trial = None if self.trial is None else self.trial.initcwnd
        return max(self.initcwnd or 0, on_trial or 0)

    def but(self, **values: Any) -> Part:
        """The same with other values."""
        return Part(**{**vars(self), **values})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and vars(self) == vars(other)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"edges share parts of bundles: make another one, by but({name}=...)")

    def __repr__(self) -> str:
        return f"Part({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def to_json(part: object) -> str:
    """Without spaces, in the order in which fields were given; their bytes are as many as in a bundle."""
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False, default=vars)


def paced(fleet: Fleet, policy: Policy, round_unix_s: int) -> dict[str, list[str]]:
    """Each PoP's edges that enforce by bpf, but for those that are held out."""
    held_out = held_out_edges(fleet, policy.holdout)
    found: dict[str, list[str]] = {pop: [] for pop in fleet.pops}
    for edge, pop in fleet.edges().items():
        if edge not in held_out and policy.enforce_of(edge, pop, round_unix_s).by == "bpf":
            found[pop].append(edge)
    return found


def path_name(src_pop: str, destination: str, ip_version: int) -> str:
    """A path as people read it."""
    return f"{src_pop} to {destination} (IPv{ip_version})"
