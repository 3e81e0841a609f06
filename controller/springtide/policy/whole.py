"""All sections together, their version, policy.yaml read, and the rules between sections."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from springtide.document import Document, load, validate
from springtide.errors import InputError, Problem
from springtide.laws import holdout as of_holdout
from springtide.laws import switchback as of_experiment
from springtide.laws.congestion import policy as of_congestion
from springtide.laws.congestion.policy import CongestionDampingPolicy, CongestionOverride, CongestionPolicy
from springtide.laws.damping import DampingPolicy
from springtide.laws.holdout import HoldoutPolicy
from springtide.laws.initcwnd import policy as of_initcwnd
from springtide.laws.initcwnd.policy import InitcwndPolicy, Override
from springtide.laws.recovery import policy as of_recovery
from springtide.laws.recovery.policy import RecoveryOverride, RecoveryPolicy
from springtide.laws.start import policy as of_start
from springtide.laws.start.policy import StartOverride, StartPolicy
from springtide.laws.switchback import ExperimentPolicy
from springtide.policy import enforce as of_enforce
from springtide.policy.enforce import EnforceOverride, EnforcePolicy
from springtide.policy.sections import BundlePolicy, CompletenessPolicy, GatePolicy, RetentionPolicy, RoundPolicy
from springtide.section import Section

Mode = Literal["act", "advise"]
# Beginning of a sentence, wherever something is refused or closes for that reason.
ADVICE_ONLY = "advice only (mode: advise): nothing is pushed"


class Policy(Section):
    mode: Mode = "act"
    """act: rounds are published for rollout.yml. advise: everything runs and is decided, and nothing is pushed.
    Source: an operator sees what would be gained before anything is risked."""
    round: RoundPolicy = RoundPolicy()
    completeness: CompletenessPolicy = CompletenessPolicy()
    initcwnd: InitcwndPolicy = InitcwndPolicy()
    damping: DampingPolicy = DampingPolicy()
    holdout: HoldoutPolicy = HoldoutPolicy()
    experiment: ExperimentPolicy = ExperimentPolicy()
    overrides: list[Override] = Field(default_factory=list)
    congestion: CongestionPolicy = CongestionPolicy()
    congestion_damping: CongestionDampingPolicy = CongestionDampingPolicy()
    congestion_overrides: list[CongestionOverride] = Field(default_factory=list)
    start: StartPolicy = StartPolicy()
    start_overrides: list[StartOverride] = Field(default_factory=list)
    recovery: RecoveryPolicy = RecoveryPolicy()
    recovery_overrides: list[RecoveryOverride] = Field(default_factory=list)
    bundle: BundlePolicy = BundlePolicy()
    enforce: EnforcePolicy = EnforcePolicy()
    enforce_overrides: list[EnforceOverride] = Field(default_factory=list)
    gate: GatePolicy = GatePolicy()
    retention: RetentionPolicy = RetentionPolicy()

    @property
    def version(self) -> str:
        """First 12 hex digits of the SHA-256 of the effective policy as canonical JSON, defaults included; without
        `mode`, which changes no decision."""
        canonical = json.dumps(self.model_dump(mode="json", exclude={"mode"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def advises(self) -> bool:
        """Whether nothing may be pushed, whatever is decided."""
        return self.mode == "advise"

    def enforce_of(self, edge: str, pop: str, now_unix_s: int) -> EnforcePolicy:
        """The way in which one edge enforces a bundle of this round."""
        found = next((one for one in self.enforce_overrides if one.covers(edge, pop, now_unix_s)), None)
        if found is None:
            return self.enforce
        return self.enforce.model_copy(update={"by": found.by, "otherwise": found.otherwise or self.enforce.otherwise})

    def paces(self, now_unix_s: int) -> bool:
        """Whether any edge may enforce a bundle of this round by bpf; of 0: of any round."""
        words = self.enforce_overrides
        return self.enforce.by == "bpf" or any(one.by == "bpf" and one.holds(now_unix_s) for one in words)


def load_policy(path: Path) -> Policy:
    """Raises InputError with every problem of the file."""
    policy, problems = examined(path)
    if problems:
        raise InputError(problems)
    return policy


def examined(path: Path) -> tuple[Policy, list[Problem]]:
    """The file's policy, and what of it contradicts another key. Raises InputError where single keys are wrong."""
    document = load(path)
    policy = validate(document, Policy)
    return policy, list(contradictions(document, policy))


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys: each key may be within its range, and yet contradict another."""
    for part in (of_initcwnd, of_congestion, of_start, of_recovery, of_enforce, of_experiment, of_holdout):
        yield from part.contradictions(document, policy)
    for section in ("overrides", "enforce_overrides"):
        for index, one in enumerate(getattr(policy, section)):
            if one.edges is not None and len(set(one.edges)) < len(one.edges):
                yield document.problem((section, index, "edges"), "names an edge twice", "name each once")
    interval_s, keep = policy.round.interval_s, policy.retention
    for low_keys, low, high_keys, high in (
        # An edge may use a value until its bundle expires: a fresh decision must outlive the bundle that carries it.
        (("bundle", "ttl_s"), policy.bundle.ttl_s, ("initcwnd", "ttl_s"), policy.initcwnd.ttl_s),
        (("bundle", "ttl_s"), policy.bundle.ttl_s, ("start", "ttl_s"), policy.start.ttl_s),
        # Otherwise every route would vanish before the next round could renew it.
        (("round", "interval_s"), interval_s, ("bundle", "ttl_s"), policy.bundle.ttl_s),
        # Each tier is made of the one before it.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "hours_days"), keep.hours_days),
        (("retention", "hours_days"), keep.hours_days, ("retention", "days_days"), keep.days_days),
        # The controller reads its last decisions; so do explain and report.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "decisions_days"), keep.decisions_days),
    ):
        yield from document.not_above(low_keys, low, high_keys, high)
