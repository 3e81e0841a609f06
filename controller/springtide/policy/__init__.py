"""policy.yaml: every tunable, each with its default, its range and where the default comes from."""

from springtide.policy.bundle import BundlePolicy
from springtide.policy.congestion import CongestionPolicy
from springtide.policy.damping import CongestionDampingPolicy, DampingPolicy
from springtide.policy.defaults import default_yaml
from springtide.policy.gate import GatePolicy
from springtide.policy.holdout import HoldoutPolicy
from springtide.policy.initcwnd import InitcwndPolicy
from springtide.policy.limits import CLIENT_PREFIX_LENGTH, MAX_HISTORY_S, MAX_OBJECT_BYTES, MAX_TTL_S
from springtide.policy.load import load_policy
from springtide.policy.overrides import CongestionOverride, Override
from springtide.policy.retention import RetentionPolicy
from springtide.policy.rounds import CompletenessPolicy, RoundPolicy
from springtide.policy.whole import Policy

__all__ = [
    "CLIENT_PREFIX_LENGTH",
    "MAX_HISTORY_S",
    "MAX_OBJECT_BYTES",
    "MAX_TTL_S",
    "BundlePolicy",
    "CompletenessPolicy",
    "CongestionDampingPolicy",
    "CongestionOverride",
    "CongestionPolicy",
    "DampingPolicy",
    "GatePolicy",
    "HoldoutPolicy",
    "InitcwndPolicy",
    "Override",
    "Policy",
    "RetentionPolicy",
    "RoundPolicy",
    "default_yaml",
    "load_policy",
]
