"""Whether the newest publication is to be rolled out, and why not."""

from __future__ import annotations

from collections.abc import Iterable

from springtide import instants
from springtide.publish import journal
from springtide.publish.pause import paused
from springtide.publish.publication import WITHDRAWN, PublishFolder


def wanted(folder: PublishFolder) -> tuple[str, str]:
    """The publication that `candidate` leads to, and why it is not to be rolled out; empty when it is.

    A publication whose rollout failed is not tried again by itself: a gate, an edge or a person has said no.
    """
    candidate = folder.resolved("candidate")
    if candidate is None:
        return "", "nothing is published yet"
    pause = paused(folder.path, instants.now())
    if pause is not None:
        return candidate.name, f"{pause}; `springtide resume` ends the pause"
    if (folder.path / WITHDRAWN).exists():
        return candidate.name, "the fleet is withdrawn; run rollout.yml -e springtide_resume=true by hand once"
    if folder.resolved("current") == candidate / "edges":
        return candidate.name, f"{candidate.name} holds on the fleet already"
    events, _, _ = journal.read(folder.path)
    if _last_verdict(events, candidate.name) == "failed":
        fix = "the next publication is tried; to try this one again run rollout.yml by hand"
        return candidate.name, f"the rollout of {candidate.name} failed before; {fix}"
    return candidate.name, ""


def _last_verdict(events: Iterable[journal.Event], publication: str) -> str:
    said = [e.verdict for e in events if e.publication == publication and e.event == "rollout"]
    return said[-1] if said else ""
