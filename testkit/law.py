"""The law of the initial window over rounds: its inputs, its decisions, and hypothesis' strategies for inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st
from springtide.laws.initcwnd.decision import Decision, Pair
from springtide.policy import InitcwndPolicy, Override, Policy

from testkit.home import ROUND
from testkit.pairs import PairObservation, Previous, carry, decide_pairs

STEP = 300
PAIR = ("ams", "fra", 4)


def observation(mean: float | None = 40.0, earned: int = 5, dst: str = "fra", **more: Any) -> PairObservation:
    bound = None if mean is None else max(1, int(mean))
    values: dict[str, Any] = {
        "connections_seen": earned,
        "connections_earned": earned,
        "mean_cwnd": mean,
        "min_cwnd": bound,
        "max_cwnd": bound,
        "retransmit_ratio": 0.01,
        **more,
    }
    return PairObservation("ams", dst, 4, **values)


def lossy(mean: float | None = 40.0, share: float = 0.5, young: int = 100, **more: Any) -> PairObservation:
    return observation(mean, young_connections=young, young_lossy_connections=round(share * young), **more)


def clean(mean: float | None = 40.0, young: int = 100, **more: Any) -> PairObservation:
    return lossy(mean, 0.0, young, **more)


def policy(**keys: Any) -> Policy:
    """The bare law: hysteresis and damping are off by default."""
    bare = {
        "duty_rounds": 1,
        "hysteresis": 0.0,
        "history_weight": 0.0,
        "falling_history_weight": 0.0,
        "min_connections": 3,
        "loss_step_rounds": 1,
    }
    return Policy(initcwnd=InitcwndPolicy.model_validate({**bare, **keys}))


def override(**keys: Any) -> Override:
    plain = {"src": "ams", "dst": "fra", "initcwnd": 20, "until": "2026-01-02T03:10:00Z", "reason": "drain"}
    return Override.model_validate({**plain, **keys})


def run(rounds: Iterable[Sequence[PairObservation]], law: Policy) -> list[list[Decision]]:
    """Rounds one after the other, each remembering what the ones before it left."""
    last: dict[Pair, Previous] = {}
    measured: dict[Pair, list[int]] = defaultdict(list)
    history = []
    for index, observations in enumerate(rounds):
        now = ROUND + STEP * index
        decisions = decide_pairs(now, law, observations, last)
        since = now + STEP - (law.initcwnd.duty_window_rounds - 1) * STEP
        last = {}
        for decision in decisions:
            if decision.last_evidence == now:
                measured[decision.pair].append(now)
            left = carry(decision, sum(moment >= since for moment in measured[decision.pair]))
            if left is not None:
                last[decision.pair] = left
        history.append(decisions)
    return history


def values(rounds: Iterable[PairObservation], law: Policy) -> list[int | None]:
    return [decision.initcwnd for [decision] in run([[one] for one in rounds], law)]


def reasons(rounds: Iterable[PairObservation], law: Policy) -> list[str]:
    return [decision.reason for [decision] in run([[one] for one in rounds], law)]


means = st.floats(0.5, 5000)
any_observation = st.builds(
    lambda mean, earned, dst, share, young, receiver: lossy(
        mean, share, young, earned=earned, dst=dst, receiver_cwnd=receiver
    ),
    means,
    st.integers(0, 6),
    st.sampled_from(["fra", "nyc", "lax"]),
    st.sampled_from([0.0, 0.0, 0.03, 0.1, 0.5]) | st.floats(0, 1),
    st.integers(0, 60),
    st.none() | st.floats(0, 500),
)
observations_of_a_round = st.lists(any_observation, max_size=3, unique_by=lambda o: o.dst_pop)
laws = st.builds(
    lambda keys, bounds: policy(**keys, cmin=min(bounds), cmax=max(bounds)),
    st.fixed_dictionaries(
        {
            "history_weight": st.floats(0, 0.99),
            "falling_history_weight": st.floats(0, 0.99),
            "collapse": st.floats(0, 1),
            "min_connections": st.integers(1, 5),
            "ttl_s": st.integers(900, 3000),
            "careful": st.booleans(),
            "hysteresis": st.floats(0, 0.5),
            "duty_rounds": st.integers(1, 3),
            "loss_hold_s": st.integers(0, 3000),
            "loss_step_rounds": st.integers(1, 2),
            "loss_min_connections": st.integers(1, 40),
            "loss_step": st.floats(1.05, 2),
        }
    ),
    st.tuples(st.integers(1, 1000), st.integers(1, 1000)),
)
histories = st.lists(observations_of_a_round, max_size=12)
