"""The law of starts in a closed loop with the model of first flights, which knows nothing of the law."""

from __future__ import annotations

import numpy as np
import pytest
from springtide.policy import Policy

from bench.calm.controllers import INTERVAL_S
from bench.calm.start_controllers import Start
from bench.calm.start_flights import LIFTS, Given, best, gained, meet
from bench.calm.start_paths import Floats, Paths
from bench.calm.start_weeks import HARM, START, weeks

# Rate in Mbit/s, round trip in ms, queue in packets: short queues, one that is as long as the pipe, deep, a policer.
SHAPES = ((50, 102, 41), (20, 150, 20), (12, 54, 10), (77, 102, 97), (200, 150, 8000), (60, 100, 4))
POLICY = Policy()


def paths() -> Paths:
    """Without others beside, and nothing that changes by itself."""
    made = Paths(len(SHAPES), seed=5, calm=True)
    made.rate = np.array([rate * 125_000.0 for rate, _, _ in SHAPES])
    made.rtt_ms = np.array([float(rtt) for _, rtt, _ in SHAPES])
    made.queue = np.array([float(queue) for _, _, queue in SHAPES])
    made.at_once, made.bulk = np.ones(len(SHAPES), np.int64), np.zeros(len(SHAPES))
    made.met, made.region = np.full(len(SHAPES), 10.0), np.arange(len(SHAPES))
    return made


def rounds(law: Start, made: Paths, begin: int, count: int) -> tuple[list[Floats], list[Floats]]:
    """Round by round what is lacking of the gain of one who knows the path, and what is sent again more than by the
    default."""
    lacking, harm = [], []
    for now in range(begin, begin + count):
        moment = made.moment(now)
        default, oracle = meet(moment, Given.default(made.count)), best(moment, LIFTS[1:])
        met = meet(moment, law.given()), meet(moment, law.trial)
        lacking.append(gained(oracle, default) - gained(met[0], default))
        harm.append(met[0].resent_share() - default.resent_share())
        law.round(START + now * INTERVAL_S, moment, met, default)
    return lacking, harm


def test_every_path_comes_near_its_limit_without_harm() -> None:
    made = paths()
    law = Start(POLICY, "start", made)
    lacking, harm = rounds(law, made, 0, 40)
    # Nothing is given to all before it was tried.
    assert (np.abs(lacking[0] - lacking[1]) < 1e-9).all()
    assert np.mean(lacking[-10:]) < 0.1
    # A policer's four packets, and rates that chance puts at the path's own, cost some; none a point.
    assert np.max(harm) < 0.01
    assert np.mean(harm) < HARM


@pytest.mark.parametrize(("rate", "queue"), [(0.25, 0.1), (4.0, 1.0)])
def test_a_change_is_followed(rate: float, queue: float) -> None:
    made = paths()
    law = Start(POLICY, "start", made)
    rounds(law, made, 0, 40)
    made.rate, made.queue = made.rate * rate, np.maximum(4, made.queue * queue)
    lacking, harm = rounds(law, made, 40, 40)
    # The round that shows a collapse is the last one that harms; gain comes back by trials.
    assert np.max(harm[2:]) < 0.01
    assert np.mean(harm[2:]) < HARM
    assert np.mean(lacking[-10:]) < 0.15


@pytest.mark.proof
def test_thin_paths_gain_more_where_they_borrow() -> None:
    # Among twenty thin pairs one or two would decide it.
    found = weeks(pairs=100, days=0.75, seed=3, policy=Policy())
    thin = {name: one for (name, which), one in found.items() if which == "half thin: the thin"}
    ours, alone = thin["start"], thin["the same without groups"]
    assert ours["share_of_attainable_gain"] > alone["share_of_attainable_gain"]
    assert ours["sent_again_share"] < ours["sent_again_share_default"]
    every = {name: one for (name, which), one in found.items() if which == "all"}
    best_one, bursts = every["start"], every["initcwnd as a burst"]
    assert best_one["share_of_gain_at_all"] > bursts["share_of_gain_at_all"]
    assert best_one["sent_again_share"] < bursts["sent_again_share"]
    # Who knows the truth a round late gains more, and not all; who tries first changes little.
    late, tries = every["knows each path a round late"], every["knows it, and tries first"]
    for one in (late, tries):
        assert best_one["share_of_attainable_gain"] < one["share_of_attainable_gain"] < 1
    assert 10 * tries["changes_per_pair_and_day_median"] < late["changes_per_pair_and_day_median"]
    assert tries["trial_changes_per_pair_and_day_median"] > 0
