"""Taking a lab down from its state file alone: it works after any end of the process that made it."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass

from lab import cgroups, host, processes, state

# Collectors write out their buffers on SIGTERM.
_GRACE_S = 5.0


@dataclass(frozen=True)
class Removed:
    """Things that were there to remove."""

    lab: str
    namespaces: int
    processes: int


def take_down(lab: str) -> Removed:
    """Ends every process of the lab, deletes its namespaces (their devices go with them), the cgroups and eBPF programs
    of its edges, its files and its state.

    Raises InputError when there is no such lab, LabError when something cannot be removed; the state file then stays.
    """
    with state.locked():
        known = state.load(lab)
        left = host.namespaces().intersection(known.namespaces)
        recorded = [entry.process() for entry in known.processes]
        # Processes that a killed start left: started, not yet recorded, and not yet inside.
        entering = processes.naming(host.inside(namespace, [])[1] for namespace in left)
        ended = processes.end({*recorded, *entering, *_inside(known, left)}, _GRACE_S)
        # Processes that one started while it was being ended.
        ended += processes.end(_inside(known, left), 0)
        cgroups.remove(known)
        for namespace in sorted(left):
            host.run(["ip", "netns", "delete", namespace])
        if known.allowed_congestion_control is not None:
            host.ALLOWED.write_text(known.allowed_congestion_control)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(state.directory(lab))
        state.path_of(lab).unlink()
    return Removed(lab, len(left), ended)


def _inside(known: state.State, namespaces: set[str]) -> set[processes.Process]:
    return {*processes.inside(namespaces), *cgroups.inside(known.cgroups)}
