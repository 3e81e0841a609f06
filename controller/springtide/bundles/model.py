"""One JSON document for each edge: which initial window new connections use towards which prefix, which clients use
BBR, and until when."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from springtide import instants
from springtide.errors import SpringtideError
from springtide.fleet import Fleet, Prefix, prefix_order
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd.decision import Action, Decision, is_left_out
from springtide.laws.initcwnd.edges import EdgeDecision
from springtide.policy import Policy


class Route(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str = Field(description="IPv4 or IPv6 prefix in its shortest form, like 10.77.2.0/24")
    initcwnd: int = Field(description="initial congestion window of new connections to it, in segments")


class Choice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str = Field(description="client prefix in its shortest form, IPv4 /24 or IPv6 /56")
    algorithm: str = Field(description="congestion control by the kernel's name for it, like bbr")
    min_object_bytes: int = Field(
        description="for connections that have delivered this much; the others keep the default"
    )


class Bundle(BaseModel):
    """The document's shape; what its values must be is for `validate` to say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    edge: str = Field(description="whose it is; an edge refuses another's")
    pop: str = Field(description="the edge's PoP")
    round: str = Field(description="the round that decided it, like 2026-01-02T03:05:00Z; an edge never goes back")
    policy_version: str = Field(description="first 12 hex digits of the SHA-256 of the effective policy")
    created_at: str = Field(description="when it was rendered, like 2026-01-02T03:05:04Z")
    expires_at: str = Field(description="from then on the edge withdraws it by itself")
    routes: list[Route] = Field(description="sorted by IP version, network address and length; unique")
    congestion: list[Choice] = Field(
        default_factory=list, description="sorted and unique as routes; every other client keeps the kernel's default"
    )
    digest: str = Field(description="sha256:<hex> over the canonical JSON of all other fields")


@dataclass(frozen=True)
class Rendered:
    """A round's bundles, and the decisions whose evidence is too old to be promised for a bundle's lifetime."""

    documents: dict[str, bytes]
    left_out: list[Decision]


def json_schema() -> str:
    """The published JSON Schema of a bundle, as docs/reference/bundle.schema.json holds it."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | Bundle.model_json_schema(), indent=2) + "\n"


def canonical(document: Mapping[str, Any]) -> bytes:
    """UTF-8, keys sorted, no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical form of everything but the digest itself."""
    rest = {name: value for name, value in document.items() if name != "digest"}
    return f"sha256:{hashlib.sha256(canonical(rest)).hexdigest()}"


def render(
    fleet: Fleet,
    policy: Policy,
    round_unix_s: int,
    decisions: Iterable[Decision],
    created_unix_s: int,
    on_bbr: Mapping[str, Iterable[Prefix]] | None = None,
    of_edges: Iterable[EdgeDecision] = (),
) -> Rendered:
    """A bundle for every edge of the fleet, those without routes included: that is how an edge loses its old ones.

    A bundle lives until its round + bundle.ttl_s, the edge taking it back by itself. A decision that dies before that
    is left out: so no edge can use a value for longer than initcwnd.ttl_s after its last evidence, whoever is down, and
    one silent pair shortens no other's life. Policy keeps bundle.ttl_s <= initcwnd.ttl_s, so fresh ones always fit. An
    override is an operator's word and needs no evidence. Edges that are held out get no routes; what `of_edges` says of
    single edges stands above that too.

    `on_bbr` are each PoP's client prefixes that use BBR, None where that is not decided or not to be carried: then the
    field is left out. Held-out prefixes are not among them; every edge of the PoP gets them.
    """
    expires = round_unix_s + policy.bundle.ttl_s
    values: dict[tuple[str, str, int], int] = {}
    left_out = []
    for decision in decisions:
        if decision.action is not Action.SET or decision.initcwnd is None:
            continue
        if is_left_out(decision, expires):
            left_out.append(decision)
        else:
            values[decision.pair] = decision.initcwnd
    held_out = held_out_edges(fleet, policy.holdout)
    said = {(one.edge, one.dst_pop, one.ip_version): one.initcwnd for one in of_edges}
    documents = {}
    for pop in fleet.pops:
        towards = [
            (prefix, other_name, values.get((pop, other_name, prefix.version)))
            for other_name, other in fleet.pops.items()
            if other_name != pop
            for prefix in other.prefixes
        ]
        towards.sort(key=lambda route: prefix_order(route[0]))
        routes = [(prefix, value) for prefix, _, value in towards if value is not None]
        chosen = [] if on_bbr is None else sorted(on_bbr.get(pop, ()), key=prefix_order)
        for edge in fleet.pops[pop].edges:
            own = [] if edge in held_out else routes
            if any(name == edge for name, _, _ in said):
                own = _with_edge(edge, towards, said, held_out=edge in held_out)
            document: dict[str, Any] = {
                "schema_version": 1,
                "edge": edge,
                "pop": pop,
                "round": instants.show(round_unix_s),
                "policy_version": policy.version,
                "created_at": instants.show(created_unix_s),
                "expires_at": instants.show(expires),
                "routes": [{"prefix": str(prefix), "initcwnd": value} for prefix, value in own],
            }
            if on_bbr is not None:
                least = policy.congestion.min_object_bytes
                document["congestion"] = [
                    {"prefix": str(prefix), "algorithm": "bbr", "min_object_bytes": least} for prefix in chosen
                ]
            documents[edge] = canonical({**document, "digest": digest(document)})
    return Rendered(documents, left_out)


def _with_edge(
    edge: str,
    towards: Iterable[tuple[Prefix, str, int | None]],
    said: Mapping[tuple[str, str, int], int | None],
    *,
    held_out: bool,
) -> list[tuple[Prefix, int]]:
    """The routes of an edge that operators spoke of."""
    values = (
        (prefix, said.get((edge, dst, prefix.version), None if held_out else value)) for prefix, dst, value in towards
    )
    return [(prefix, value) for prefix, value in values if value is not None]


def write(folder: Path, documents: Mapping[str, bytes], signatures: Mapping[str, bytes]) -> list[Path]:
    """Each file whole or not at all: all are on disk under temporary names before the first gets its own.

    An edge without a signature loses the one of an earlier bundle. Returns the bundles' paths.
    Raises SpringtideError, having removed the temporary files.
    """
    files = {f"{edge}.json": content for edge, content in sorted(documents.items())}
    files |= {f"{edge}.json.sig": content for edge, content in sorted(signatures.items())}
    temporary: dict[Path, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = folder / name
            temporary[path] = folder / f".{name}.{os.getpid()}"
            with temporary[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, written in temporary.items():
            written.replace(path)
        for edge in documents.keys() - signatures.keys():
            (folder / f"{edge}.json.sig").unlink(missing_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        for written in temporary.values():
            written.unlink(missing_ok=True)
        raise SpringtideError(
            f"{folder}: bundles cannot be written: {error.strerror}; choose a writable --out"
        ) from error
    return [folder / f"{edge}.json" for edge in sorted(documents)]
