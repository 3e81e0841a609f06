"""Requests between edges, and their times."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import client, fetches, sizes, transfers
from lab.tests.conftest import TOPOLOGY
from lab.topology import Topology, load_topology
from lab.traffic import load_tasks, plan_probes, probe_tasks

SPACING_S = 0.2


@given(count=st.integers(1, 12), pairs=st.sets(st.sampled_from(load_topology(TOPOLOGY).pairs()), min_size=1))
def test_each_pair_gets_its_probes_spaced_and_its_edges_in_turn(count: int, pairs: set[tuple[str, str]]) -> None:
    topology = load_topology(TOPOLOGY)
    planned = plan_probes(topology, sorted(pairs), sizes.PROBES, count, SPACING_S)
    for pair in pairs:
        own = [probe for probe in planned if (probe.src, probe.dst) == pair]
        assert Counter(probe.size_bytes for probe in own) == dict.fromkeys(sizes.PROBES, count)
        times = sorted(probe.at_s for probe in own)
        assert all(later - sooner > 0.99 * SPACING_S for sooner, later in pairwise(times))
        assert times[0] < SPACING_S
        if count >= 2:
            used = {(probe.src_edge, probe.dst_edge) for probe in own}
            assert len(used) == (2 if "ams" in pair else 1)


def test_tasks_have_every_probe_once_at_its_client(topology: Topology) -> None:
    planned = plan_probes(topology, topology.pairs(), sizes.PROBES, 3, SPACING_S)
    tasks = probe_tasks(topology, planned, 30)
    ids = []
    for edge, task in tasks.items():
        for probe in task["probes"]:
            plan = planned[probe["id"]]
            assert (plan.dst_edge, str(topology.address(plan.src_edge))) == (edge, probe["address"])
            ids.append(probe["id"])
    assert sorted(ids) == list(range(len(planned)))


def test_load_connects_every_busy_pair_of_edges_and_no_silent_one(topology: Topology) -> None:
    tasks = load_tasks(topology, 60)
    requested = {
        edge: Counter(connection["address"] for connection in task["connections"]) for edge, task in tasks.items()
    }
    assert requested == {
        "ams-1": {"10.79.3.1": 2},
        "ams-2": {"10.79.3.1": 2},
        "nyc-1": {"10.79.1.1": 2, "10.79.1.2": 2, "10.79.3.1": 2},
        "sin-1": {"10.79.1.1": 2, "10.79.1.2": 2, "10.79.2.1": 2},
    }
    assert len({task["seed"] for task in tasks.values()}) == len(tasks)


@pytest.mark.parametrize(("ends", "each"), [(None, 0), (1.0, 1)])
def test_a_loads_connections_stay_unless_they_are_to_end(ends: float | None, each: int) -> None:
    """Requests of one worker of a load, and how often it connected."""
    opened: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(1)
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345")
        writer.close()

    async def load() -> int:
        server = await asyncio.start_server(serve, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        one = {"address": "127.0.0.1", "port": port} | ({} if ends is None else {"ends": ends})
        done = client.Done()
        worker = asyncio.create_task(client._ask(one, [5], pauses=False, chance=random.Random(1), done=done))
        while done.requests < 5:
            await asyncio.sleep(0.01)
        worker.cancel()
        server.close()
        return done.requests

    requests = asyncio.run(load())
    assert len(opened) >= (requests - 1) * each
    assert each or len(opened) == 1


@pytest.mark.parametrize("before", [0, 500])
def test_a_fetch_goes_over_a_connection_that_has_carried_what_it_is_to(
    before: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fetched() -> dict[str, Any]:
        server = await asyncio.start_server(transfers.send(0), "127.0.0.1")
        found = await fetches.fetch(server.sockets[0].getsockname()[:2], 1000, 10, before)
        server.close()
        # The sender's line comes at the connection's end.
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)
        return found

    found = asyncio.run(fetched())
    assert found["ms"] > 0
    assert json.loads(capsys.readouterr().out)["sent"] == before + 1000
