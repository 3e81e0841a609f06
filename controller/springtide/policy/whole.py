"""All sections together, their version, policy.yaml read, and the rules between sections."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from springtide.document import Document, load, validate
from springtide.errors import InputError, Problem
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
from springtide.laws.switchback import contradictions as of_experiment
from springtide.policy import enforce as of_enforce
from springtide.policy.enforce import EnforceOverride, EnforcePolicy
from springtide.policy.sections import BundlePolicy, CompletenessPolicy, GatePolicy, RetentionPolicy, RoundPolicy
from springtide.section import Section, items, tunable

Mode = Literal["act", "advise"]
# What stands before the rest of a sentence, wherever something is refused or closes for that reason.
ADVICE_ONLY = "advice only (mode: advise): nothing is pushed"


class Policy(Section):
    mode: Mode = tunable(
        "act",
        "act: rounds are published for rollout.yml. advise: everything runs and is decided, and nothing is pushed.",
        source="an operator sees what would be gained before anything is risked",
    )
    round: RoundPolicy = RoundPolicy()
    completeness: CompletenessPolicy = CompletenessPolicy()
    initcwnd: InitcwndPolicy = InitcwndPolicy()
    damping: DampingPolicy = DampingPolicy()
    holdout: HoldoutPolicy = HoldoutPolicy()
    experiment: ExperimentPolicy = ExperimentPolicy()
    overrides: list[Override] = items(Override.commented())
    congestion: CongestionPolicy = CongestionPolicy()
    congestion_damping: CongestionDampingPolicy = CongestionDampingPolicy()
    congestion_overrides: list[CongestionOverride] = items(CongestionOverride.commented())
    start: StartPolicy = StartPolicy()
    start_overrides: list[StartOverride] = items(StartOverride.commented())
    recovery: RecoveryPolicy = RecoveryPolicy()
    recovery_overrides: list[RecoveryOverride] = items(RecoveryOverride.commented())
    bundle: BundlePolicy = BundlePolicy()
    enforce: EnforcePolicy = EnforcePolicy()
    enforce_overrides: list[EnforceOverride] = items(EnforceOverride.commented())
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
        """How one edge enforces a bundle of this round."""
        return of_enforce.enforce_of(self.enforce, self.enforce_overrides, edge, pop, now_unix_s)

    def paces(self, now_unix_s: int) -> bool:
        """Whether any edge may enforce a bundle of this round by bpf."""
        return of_enforce.paces(self.enforce, self.enforce_overrides, now_unix_s)


def load_policy(path: Path) -> Policy:
    """Raises InputError with every problem of the file."""
    document = load(path)
    policy = validate(document, Policy)
    problems = list(contradictions(document, policy))
    if problems:
        raise InputError(problems)
    return policy


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys: each key may be within its range, and yet contradict another."""
    interval_s, keep = policy.round.interval_s, policy.retention
    yield from of_initcwnd.contradictions(document, policy.initcwnd, policy.damping, policy.overrides, interval_s)
    yield from of_congestion.contradictions(document, policy.congestion, policy.congestion_damping, interval_s)
    paced = policy.enforce.by == "bpf" or any(one.by == "bpf" for one in policy.enforce_overrides)
    most_on_trial = policy.enforce.max_trial_permille
    yield from of_start.contradictions(
        document, policy.start, policy.start_overrides, policy.overrides, most_on_trial, paced
    )
    yield from of_recovery.contradictions(document, policy.recovery_overrides)
    yield from of_enforce.contradictions(document, policy.enforce, policy.enforce_overrides)
    yield from of_experiment(document, policy.experiment, most_on_trial, paced)
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
