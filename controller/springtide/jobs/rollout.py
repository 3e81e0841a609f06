"""Whether the newest publication is to be rolled out, and why not; and the rollout, which never ends halfway."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from springtide import instants
from springtide.errors import SpringtideError
from springtide.jobs import ansible
from springtide.jobs.site import Site
from springtide.policy import ADVICE_ONLY, Policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.publication.pause import paused
from springtide.publication.withdrawal import WITHDRAWN


def wanted(folder: PublishFolder, policy: Policy) -> tuple[str, str]:
    """The publication that `candidate` points to, and why it is not to be rolled out; empty when it is.

    A publication whose rollout failed is not tried again by itself: a gate, an edge or a person has refused it.
    """
    candidate = folder.resolved("candidate")
    if policy.advises:
        return "" if candidate is None else candidate.name, f"{ADVICE_ONLY}; `mode: act` ends that"
    if candidate is None:
        return "", "nothing is published yet"
    pause = paused(folder.path, instants.now())
    if pause is not None:
        return candidate.name, f"{pause}; `springtide resume` ends the pause"
    if (folder.path / WITHDRAWN).exists():
        return candidate.name, "the fleet is withdrawn; run rollout.yml -e springtide_resume=true by hand once"
    if folder.resolved("current") == candidate / "edges":
        return candidate.name, f"{candidate.name} is current on the fleet already"
    events, _, _ = journal.read(folder.path)
    last = _last_verdict(events, candidate.name)
    if last == "failed":
        fix = "the next publication is tried; to try this one again run rollout.yml by hand"
        return candidate.name, f"the rollout of {candidate.name} failed before; {fix}"
    if last == "taken back":
        return candidate.name, f"{candidate.name} was taken back; to push it again run rollout.yml by hand"
    return candidate.name, ""


def roll_out(site: Site, reason: str, print_line: Callable[[str], None] = print) -> None:
    """rollout.yml; and rollback.yml where that was killed, or ran into a limit, before it could go back by itself.

    Raises what ended the rollout.
    """
    try:
        ansible.play(site, "rollout.yml", {"springtide_reason": reason}, print_line)
    except BaseException as error:
        held = PublishFolder(site.publish_dir).resolved("current")
        events, _, _ = journal.read(site.publish_dir)
        if held is not None and _last_verdict(events, held.parent.name) == "begun":
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            try:
                ansible.play(
                    site, "rollback.yml", {"springtide_reason": f"the rollout was interrupted: {why}"}, print_line
                )
            except SpringtideError as failed:
                error.add_note(f"and the way back: {failed}; run rollback.yml")
        raise


def _last_verdict(events: Iterable[journal.Event], publication: str) -> str:
    """The last verdict on its rollouts: begun, done, failed, or taken back after it was done; empty without any."""
    last = ""
    for event in events:
        if event.publication == publication and event.event == "rollout":
            last = event.verdict
        elif event.publication == publication and event.event == "rollback" and event.verdict != "published":
            last = "failed" if last in ("begun", "failed") else "taken back"
    return last
