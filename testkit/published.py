"""Bundles of decisions, and publications of bundles, that a test has written by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from springtide import instants
from springtide.bundles.model import Document, fields_of, parse, seal
from springtide.bundles.published import PublishedBundles
from springtide.bundles.render import Rendered
from springtide.bundles.render import render as render_contributions
from springtide.fleet import Fleet, Prefix
from springtide.laws.congestion import interface as congestion
from springtide.laws.entry import Part
from springtide.laws.initcwnd import interface as initcwnd
from springtide.laws.initcwnd.decision import Decision
from springtide.laws.initcwnd.edges import EdgeDecision
from springtide.policy import Policy
from springtide.publication.folder import PublishFolder

from testkit.home import ROUND


def canonical(fields: Mapping[str, Any]) -> bytes:
    """As edges have it: UTF-8, keys sorted, no spaces."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=vars).encode()


def digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical form of everything but the digest itself."""
    rest = {name: value for name, value in fields.items() if name != "digest"}
    return f"sha256:{hashlib.sha256(canonical(rest)).hexdigest()}"


def publish(
    folder: PublishFolder, bundles: Mapping[str, Mapping[str, Any]], key: Path | None = None, fleet: bytes = b""
) -> Path:
    """Edge -> a bundle's fields, which get the digest that they should have."""
    documents = {edge: parse(edge, canonical({**fields, "digest": digest(fields)})) for edge, fields in bundles.items()}
    return PublishedBundles(folder).publish(documents, key, fleet)


def render(
    fleet: Fleet,
    policy: Policy,
    round_unix_s: int,
    decisions: Iterable[Decision],
    created_unix_s: int,
    on_bbr: Mapping[str, Iterable[Prefix]] | None = None,
    of_edges: Iterable[EdgeDecision] = (),
) -> Rendered:
    """Bundles of decisions by both laws, without a store."""
    expires = round_unix_s + policy.bundle.ttl_s
    contributions = [
        initcwnd.contribution(fleet, policy, decisions, expires, of_edges),
        congestion.contribution(fleet, policy, on_bbr),
    ]
    return render_contributions(fleet, policy, round_unix_s, created_unix_s, contributions)


def document(windows: dict[str, int], round_s: int = ROUND, ttl_s: int = 900, created_s: int = 30) -> Document:
    """A bundle of ams-1, by routes, with a window for each prefix."""
    return seal(
        {
            "schema_version": 1,
            "edge": "ams-1",
            "pop": "ams",
            "round": instants.show(round_s),
            "policy_version": "0123456789ab",
            "created_at": instants.show(round_s + created_s),
            "expires_at": instants.show(round_s + ttl_s),
            "enforce": Part(by="routes", otherwise="default", live="leave"),
            "entries": [Part(prefix=prefix, initcwnd=value) for prefix, value in windows.items()],
        }
    )


def changed(of: Document, **fields: Any) -> Document:
    """The bundle with other fields, and the digest that it then has."""
    return seal({**fields_of(of.bundle), **fields})


def clients_of(count: int, least: int = 100_000, algorithm: str = "bbr") -> dict[str, Document]:
    """Two edges of one PoP, which are given the same."""
    given = Part(algorithm=algorithm, from_bytes=least)
    entries = [Part(prefix=f"192.{n // 250}.{n % 250}.0/24", congestion=given) for n in range(count)]
    return {edge: changed(document({}), edge=edge, entries=entries) for edge in ("ams-1", "ams-2")}
