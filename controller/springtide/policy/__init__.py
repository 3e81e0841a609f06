"""policy.yaml: every tunable, each with its default, its range and where the default comes from."""

from springtide.laws.congestion.policy import CongestionDampingPolicy, CongestionOverride, CongestionPolicy
from springtide.laws.damping import DampingPolicy
from springtide.laws.holdout import HoldoutPolicy
from springtide.laws.initcwnd.policy import InitcwndPolicy, Override
from springtide.laws.start.policy import StartOverride, StartPolicy
from springtide.laws.switchback import ExperimentPolicy
from springtide.policy.defaults import default_yaml
from springtide.policy.enforce import EnforceOverride, EnforcePolicy
from springtide.policy.sections import BundlePolicy, CompletenessPolicy, GatePolicy, RetentionPolicy, RoundPolicy
from springtide.policy.whole import ADVICE_ONLY, Policy, examined, load_policy
from springtide.section import CLIENT_PREFIX_LENGTH, MAX_HISTORY_S, MAX_OBJECT_BYTES, MAX_TTL_S

__all__ = [
    "ADVICE_ONLY",
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
    "EnforceOverride",
    "EnforcePolicy",
    "ExperimentPolicy",
    "GatePolicy",
    "HoldoutPolicy",
    "InitcwndPolicy",
    "Override",
    "Policy",
    "RetentionPolicy",
    "RoundPolicy",
    "StartOverride",
    "StartPolicy",
    "default_yaml",
    "examined",
    "load_policy",
]
