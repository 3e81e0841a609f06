"""All sections together, and their version."""

from __future__ import annotations

import hashlib
import json

from pydantic import Field

from springtide.policy.bundle import BundlePolicy
from springtide.policy.congestion import CongestionPolicy
from springtide.policy.damping import CongestionDampingPolicy, DampingPolicy
from springtide.policy.gate import GatePolicy
from springtide.policy.holdout import HoldoutPolicy
from springtide.policy.initcwnd import InitcwndPolicy
from springtide.policy.overrides import CongestionOverride, Override
from springtide.policy.retention import RetentionPolicy
from springtide.policy.rounds import CompletenessPolicy, RoundPolicy
from springtide.policy.section import Section


class Policy(Section):
    round: RoundPolicy = RoundPolicy()
    completeness: CompletenessPolicy = CompletenessPolicy()
    initcwnd: InitcwndPolicy = InitcwndPolicy()
    damping: DampingPolicy = DampingPolicy()
    holdout: HoldoutPolicy = HoldoutPolicy()
    overrides: list[Override] = Field(default_factory=list)
    congestion: CongestionPolicy = CongestionPolicy()
    congestion_damping: CongestionDampingPolicy = CongestionDampingPolicy()
    congestion_overrides: list[CongestionOverride] = Field(default_factory=list)
    bundle: BundlePolicy = BundlePolicy()
    gate: GatePolicy = GatePolicy()
    retention: RetentionPolicy = RetentionPolicy()

    @property
    def version(self) -> str:
        """First 12 hex digits of the SHA-256 of the effective policy as canonical JSON, defaults included."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]
