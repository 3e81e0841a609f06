"""Edges that are held out."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from springtide.fleet import Fleet
from springtide.laws.holdout import held_out_edges
from springtide.policy import HoldoutPolicy

edge_names = st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True), unique=True, max_size=60)


def fleet(edges: list[str]) -> Fleet:
    pops = {
        "ams": {"prefixes": ["10.77.1.0/24"], "edges": {edge: {"address": "10.77.1.1"} for edge in edges}},
        "fra": {"prefixes": ["10.77.2.0/24"], "edges": {}},
    }
    return Fleet.model_validate({"version": 1, "pops": pops})


@given(edge_names, st.floats(0.01, 0.5), st.integers(2, 10))
def test_a_share_of_each_pop_and_at_least_one_where_it_is_large_enough(
    edges: list[str], share: float, least: int
) -> None:
    held_out = held_out_edges(fleet(edges), HoldoutPolicy(edge_share=share, min_edges=least))
    assert held_out <= set(edges)
    assert len(held_out) == (max(1, round(share * len(edges))) if len(edges) >= least else 0)
    assert held_out_edges(fleet(edges[::-1]), HoldoutPolicy(edge_share=share, min_edges=least)) == held_out
    assert not held_out_edges(fleet(edges), HoldoutPolicy(edge_share=0.0))


@given(edge_names, st.floats(0.01, 0.5))
def test_an_edge_that_joins_moves_at_most_one_other(edges: list[str], share: float) -> None:
    law = HoldoutPolicy(edge_share=share)
    assume(len(edges) >= law.min_edges)
    before, after = held_out_edges(fleet(edges), law), held_out_edges(fleet([*edges, "zz-newcomer"]), law)
    assert len((before ^ after) - {"zz-newcomer"}) <= 1
