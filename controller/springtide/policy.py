"""policy.yaml: every tunable, each with its default, its range and where the default comes from."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.fields import FieldInfo

from springtide.document import Document, load, validate
from springtide.errors import InputError, Problem

# A decision older than this is dead under any policy: it bounds how far back the controller looks for the last one.
MAX_TTL_S = 86_400


def _from(source: str) -> dict[str, JsonValue]:
    return {"source": source}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoundPolicy(_Section):
    """When decisions are made."""

    interval_s: int = Field(
        default=300,
        description="Seconds between rounds; a round T covers [T - interval_s, T).",
        json_schema_extra=_from(
            "the selective-BBR article decides every five minutes; Riptide III-B updates every i_u seconds on each host"
        ),
        ge=5,
        le=3600,
    )
    lateness_s: int = Field(
        default=60,
        description="Seconds after a round's end for which its samples are waited for; what is later is counted.",
        json_schema_extra=_from(
            "collectors hand over every few seconds, and a broker's restart takes some tens of them; a decision that "
            "waits longer than a minute is late itself"
        ),
        ge=0,
        le=3600,
    )


class InitcwndPolicy(_Section):
    """The initial congestion window per ordered pair of PoPs and IP version (Riptide III-B)."""

    combiner: Literal["mean"] = Field(
        default="mean",
        description="How the earned windows of a round become one observed value.",
        json_schema_extra=_from("Riptide III-B, Algorithm 1"),
    )
    history_weight: float = Field(
        default=0.5,
        description="Weight of the previous value; the rest goes to the newest one. 0 forgets at once.",
        json_schema_extra=_from(
            "Riptide III-B calls it alpha in the text (weight of history), Table I defines alpha the other way; "
            "no value is published: 0.5 closes half of a gap in each round"
        ),
        ge=0.0,
        le=0.99,
    )
    cmin: int = Field(
        default=10,
        description="Smallest window that is ever set, segments.",
        json_schema_extra=_from("Linux's own default, RFC 6928"),
        ge=1,
        le=1000,
    )
    cmax: int = Field(
        default=100,
        description="Largest window that is ever set, segments.",
        json_schema_extra=_from("Riptide IV: the knee of its results is at 100; beyond it there was no further gain"),
        ge=1,
        le=1000,
    )
    min_connections: int = Field(
        default=3,
        description="Connections that must have earned their window before a round's observation counts.",
        json_schema_extra=_from(
            "one connection is an anecdote; back-office pools keep more than that between PoPs (Riptide II-A)"
        ),
        ge=1,
        le=1_000_000,
    )
    ttl_s: int = Field(
        default=1800,
        description="Seconds after its last evidence at which a value dies and the kernel's default returns.",
        json_schema_extra=_from(
            "Riptide III-B: 90 s at one update a second, the blog post 600 s; ours is six rounds of five minutes"
        ),
        ge=5,
        le=MAX_TTL_S,
    )


class BundlePolicy(_Section):
    """What an edge is given, and for how long."""

    ttl_s: int = Field(
        default=900,
        description="Seconds after its round at which an edge withdraws a bundle on its own.",
        json_schema_extra=_from("three rounds: two pushes may fail before the edges fall back to the kernel's default"),
        ge=5,
        le=MAX_TTL_S,
    )
    max_routes: int = Field(
        default=10_000,
        description="Most routes that one bundle may hold.",
        json_schema_extra=_from("`ip -batch` applies 10,000 routes in 0.25 s"),
        ge=1,
        le=100_000,
    )
    max_bytes: int = Field(
        default=1_000_000,
        description="Largest size of one bundle, bytes.",
        json_schema_extra=_from(
            "10,000 routes of 45 bytes, doubled: what outgrows this is broken (Cloudflare, 18 November 2025)"
        ),
        ge=1000,
        le=16_000_000,
    )
    min_prefix_length_ipv4: int = Field(
        default=16,
        description="Shortest (widest) IPv4 prefix that a bundle may name.",
        json_schema_extra=_from("a PoP draws from a /16 at most; an edge takes nothing wider than a /8"),
        ge=8,
        le=32,
    )
    min_prefix_length_ipv6: int = Field(
        default=32,
        description="Shortest (widest) IPv6 prefix that a bundle may name.",
        json_schema_extra=_from("registries give an operator a /32; an edge takes nothing wider than a /16"),
        ge=16,
        le=128,
    )


class RetentionPolicy(_Section):
    """How long rows are kept; `springtide retention apply` sets it."""

    samples_days: int = Field(
        default=7,
        description="Days of single samples.",
        json_schema_extra=_from("a week shows every day of it beside the day before; the largest table by far"),
        ge=1,
        le=36_500,
    )
    sockets_days: int = Field(
        default=3,
        description="Days of each round's sockets.",
        json_schema_extra=_from("round tables are made of them at once; afterwards they serve close looks only"),
        ge=1,
        le=36_500,
    )
    rounds_days: int = Field(
        default=90,
        description="Days of round tables.",
        json_schema_extra=_from("a quarter: a season of decisions can be replayed and backfilled"),
        ge=1,
        le=36_500,
    )
    hours_days: int = Field(
        default=400,
        description="Days of hours.",
        json_schema_extra=_from("a year and a month: this month beside the same month a year ago"),
        ge=1,
        le=36_500,
    )
    days_days: int = Field(
        default=1830,
        description="Days of days.",
        json_schema_extra=_from("five years: how paths grow"),
        ge=1,
        le=36_500,
    )
    decisions_days: int = Field(
        default=400,
        description="Days of decisions.",
        json_schema_extra=_from("as long as the hours that show their effect"),
        ge=1,
        le=36_500,
    )


class Policy(_Section):
    round: RoundPolicy = RoundPolicy()
    initcwnd: InitcwndPolicy = InitcwndPolicy()
    bundle: BundlePolicy = BundlePolicy()
    retention: RetentionPolicy = RetentionPolicy()

    @property
    def version(self) -> str:
        """First 12 hex digits of the SHA-256 of the effective policy as canonical JSON, defaults included."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def load_policy(path: Path) -> Policy:
    """Raises InputError with every problem of the file."""
    document = load(path)
    policy = validate(document, Policy)
    problems = list(_contradictions(document, policy))
    if problems:
        raise InputError(problems)
    return policy


def _contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys; the message stands at the key that the file gives."""
    keep = policy.retention
    rules = [
        (("initcwnd", "cmin"), policy.initcwnd.cmin, ("initcwnd", "cmax"), policy.initcwnd.cmax),
        # An edge may use a value until its bundle expires: a fresh decision must outlive the bundle that carries it.
        (("bundle", "ttl_s"), policy.bundle.ttl_s, ("initcwnd", "ttl_s"), policy.initcwnd.ttl_s),
        # Otherwise every route would vanish before the next round could renew it.
        (("round", "interval_s"), policy.round.interval_s, ("bundle", "ttl_s"), policy.bundle.ttl_s),
        # Each tier is made of the one before it.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "hours_days"), keep.hours_days),
        (("retention", "hours_days"), keep.hours_days, ("retention", "days_days"), keep.days_days),
        # The controller reads its last decisions; so does whoever asks why.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "decisions_days"), keep.decisions_days),
    ]
    for low_keys, low, high_keys, high in rules:
        if low > high:
            keys = low_keys if low_keys in document.lines else high_keys
            message = f"{'.'.join(low_keys)} = {low} is above {'.'.join(high_keys)} = {high}"
            yield document.problem(keys, message, f"lower {'.'.join(low_keys)} or raise {'.'.join(high_keys)}")


def default_yaml() -> str:
    """The default policy as a commented policy.yaml."""
    lines = ["# Every key is optional; these are the defaults."]
    for section_name, section in Policy.model_fields.items():
        model = section.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"policy section {section_name} is not a model")
        lines += ["", f"# {model.__doc__}", f"{section_name}:"]
        for name, info in model.model_fields.items():
            for text in (info.description or "", f"Range: {_range(info)}.", f"Source: {_source(info)}."):
                lines += textwrap.wrap(text, width=110, initial_indent="  # ", subsequent_indent="  #   ")
            lines.append(f"  {name}: {json.dumps(info.default)}")
    return "\n".join(lines) + "\n"


def _source(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra["source"]) if isinstance(extra, dict) else ""


def _range(info: FieldInfo) -> str:
    limits = {kind: getattr(item, kind) for item in info.metadata for kind in ("ge", "le") if hasattr(item, kind)}
    if limits:
        return f"{limits['ge']} to {limits['le']}"
    return ", ".join(str(choice) for choice in getattr(info.annotation, "__args__", ()))
