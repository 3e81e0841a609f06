"""From decisions to a publication: render, hold against what is on the fleet, write once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from springtide import instants
from springtide.bundles import caps
from springtide.bundles import model as bundles
from springtide.bundles.validate import Context, problems
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd import edges
from springtide.laws.initcwnd import rows as decisions
from springtide.policy import Policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder, read_folder
from springtide.publication.pause import refuse_when_paused
from springtide.store import Store

Documents = Mapping[str, Mapping[str, Any]]

# Bundles on their way from one step of a job to the next, in the publisher's folder.
STAGED = "staged"


def render(
    store: Store, fleet: Fleet, policy: Policy, asked: int | None, now_unix_s: int
) -> tuple[bundles.Rendered, int]:
    """A round's valid bundles and the round, the newest decided one by default. Raises InputError, StoreError."""
    newest = instants.latest_round(now_unix_s, policy.round.interval_s)
    moment = asked or decisions.latest_decided(store, newest)
    decided = [] if moment is None else decisions.read_round(store, moment)
    if moment is None or not decided:
        what = "no round has decisions" if moment is None else f"round {instants.show(moment)} has no decisions"
        raise InputError([Problem("--round", "round", what, "run `springtide decide initcwnd` first")])
    # A round without the other law keeps what the last one said, for as long as a bundle may live.
    wanted = policy.bundle.congestion
    on_bbr = congestion_rows.on_bbr(store, moment, policy.bundle.ttl_s) if wanted else None
    rendered = bundles.render(fleet, policy, moment, decided, now_unix_s, on_bbr, edges.read_round(store, moment))
    found = wrong(rendered.documents, Context(fleet, policy, now_unix_s))
    if found:
        raise InputError(found)
    return rendered, moment


def wrong(documents: Mapping[str, bytes], context: Context) -> list[Problem]:
    """What is wrong with bundles by themselves."""
    return [found for edge, content in documents.items() for found in problems(f"{edge}.json", content, context)]


def too_much(folder: PublishFolder, documents: Documents, policy: Policy) -> list[Problem]:
    """Where bundles change more of what holds on these edges than the policy's caps allow."""
    held = folder.current()
    if held is None:
        return []
    of_these = {edge: document for edge, document in held.items() if edge in documents}
    return _over(folder, of_these, documents, policy)


def publish(
    folder: PublishFolder,
    documents: Mapping[str, bytes],
    key: Path | None,
    policy: Policy,
    now_unix_s: int,
    *,
    force: bool = False,
    reason: str = "",
    once: bool = False,
    fleet: bytes = b"",
) -> Path:
    """Write the publication with its events, and let `candidate` lead to it.

    With `once`, a candidate that says the same of the same round is left as it is, and given back: a repetition
    after a kill publishes nothing twice. `fleet` is fleet.yaml; the publication keeps it.
    Raises PausedError, InputError, SpringtideError.
    """
    refuse_when_paused(folder.path, now_unix_s)
    new = {edge: json.loads(content) for edge, content in documents.items()}
    moment = max(str(document["round"]) for document in new.values())
    windows = {
        "round": moment,
        "expires_at": max(str(document["expires_at"]) for document in new.values()),
        "held_out": _held_out(fleet, policy),
    }
    events = [journal.Event("publish", reason=reason, verdict="published", details={"windows": windows})]
    held = folder.current()
    if held is not None:
        newest = max((str(document["round"]) for document in held.values()), default="")
        if moment < newest:
            fix = "publish a newer round; for the old values use `springtide rollback`"
            raise InputError([Problem("--round", "round", f"{moment} is older than {newest}, which holds", fix)])
        over = _over(folder, held, new, policy)
        if over and not force:
            raise InputError(over)
        if over:
            events.insert(0, forced(over, reason))
    there = folder.resolved("candidate") if once else None
    if there is not None and _said(read_folder(there / "edges")) == _said(new):
        if not any(event.publication == there.name for event in journal.read(folder.path)[0]):
            _note(folder, there, read_folder(there / "edges"), events)
        return there
    return write(folder, documents, key, events, fleet)


def windows_of(folder: PublishFolder, publication: str) -> dict[str, Any]:
    """Which initial windows a publication has, as its event in the journal says it, for an event of the same values:
    the round whose decisions they are, when its bundles expire, and the edges that were held out of them."""
    found = (event.details for event in journal.read(folder.path)[0] if event.publication == publication)
    return next(({"windows": details["windows"]} for details in found if "windows" in details), {})


def _held_out(fleet: bytes, policy: Policy) -> list[str]:
    return sorted(held_out_edges(Fleet.model_validate(yaml.safe_load(fleet)), policy.holdout)) if fleet else []


def forced(over: Iterable[Problem], reason: str) -> journal.Event:
    """What the audit keeps of caps that were passed on somebody's word."""
    what = {"caps": [str(problem) for problem in over]}
    return journal.Event("force", reason=reason, verdict="forced", details=what)


def write(
    folder: PublishFolder,
    documents: Mapping[str, bytes],
    key: Path | None,
    events: Iterable[journal.Event],
    fleet: bytes,
) -> Path:
    """The publication, then its events with its name and digest in the journal."""
    path = folder.publish(documents, key, fleet)
    _note(folder, path, {edge: json.loads(content) for edge, content in documents.items()}, events)
    return path


def digest_of(documents: Documents) -> str:
    """One digest for a publication: over its bundles' digests, sorted by edge."""
    lines = "".join(f"{edge} {documents[edge]['digest']}\n" for edge in sorted(documents))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def _note(folder: PublishFolder, path: Path, documents: Documents, events: Iterable[journal.Event]) -> None:
    for event in events:
        named = replace(event, publication=path.name, digest=digest_of(documents), edges=sorted(documents))
        journal.append(folder.path, named)


def _over(folder: PublishFolder, held: Documents, new: Documents, policy: Policy) -> list[Problem]:
    name = str(folder.path)
    routes = caps.problems(name, caps.difference(held, new), policy.bundle)
    return [*routes, *caps.congestion_problems(name, caps.congestion_difference(held, new), policy.bundle)]


def _said(documents: Documents) -> dict[str, dict[str, Any]]:
    """All that bundles say but when they were made."""
    made = ("created_at", "digest")
    return {edge: {k: v for k, v in document.items() if k not in made} for edge, document in documents.items()}


def stage(publish_dir: Path, documents: Mapping[str, bytes]) -> None:
    """Lay bundles where the next step finds them; those of edges that have left go. Raises SpringtideError."""
    folder = publish_dir / STAGED
    for path in folder.glob("*.json"):
        if path.stem not in documents:
            path.unlink()
    bundles.write(folder, documents, {})


def staged(publish_dir: Path) -> dict[str, bytes]:
    """What `stage` has laid down. Raises InputError where there is nothing."""
    found = {path.stem: path.read_bytes() for path in sorted((publish_dir / STAGED).glob("*.json"))}
    if not found:
        raise InputError([Problem(str(publish_dir / STAGED), "bundles", "are not there", "make them first")])
    return found


def validate_staged(publish_dir: Path, fleet: Fleet, policy: Policy, now_unix_s: int) -> None:
    """Raises InputError with everything that is wrong or too much."""
    documents = staged(publish_dir)
    found = wrong(documents, Context(fleet, policy, now_unix_s))
    if not found:
        parsed = {edge: json.loads(content) for edge, content in documents.items()}
        found = too_much(PublishFolder(publish_dir), parsed, policy)
    if found:
        raise InputError(found)
