"""From decisions to a publication: render, compare with what is current, write once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from springtide import instants
from springtide.bundles import caps
from springtide.bundles.model import Document, Documents, fields_of, parse
from springtide.bundles.published import PublishedBundles, files
from springtide.bundles.render import Rendered
from springtide.bundles.render import render as render_bundles
from springtide.bundles.validate import Context, parsed_problems, problems
from springtide.errors import AdviceOnlyError, InputError, Problem
from springtide.fleet import Fleet
from springtide.laws.holdout import held_out_edges
from springtide.laws.registry import LAWS, LEADING
from springtide.laws.switchback import disable_test
from springtide.policy import ADVICE_ONLY, Policy
from springtide.publication import journal
from springtide.publication.files import write as write_files
from springtide.publication.folder import EDGES, PublishFolder
from springtide.publication.pause import refuse_when_paused
from springtide.store import Store

# Bundles on their way from one step of a job to the next, in the publisher's folder.
STAGED = "staged"
NOTHING_LEFT_OUT: Mapping[str, int] = {}
NOTHING_DAMAGED: Mapping[Path, str] = {}


def render(store: Store, fleet: Fleet, policy: Policy, requested: int | None, now_unix_s: int) -> tuple[Rendered, int]:
    """A round's valid bundles and the round, the newest decided one by default. Raises InputError, StoreError."""
    newest = instants.latest_round(now_unix_s, policy.round.interval_s)
    moment = requested or newest_decided(store, policy, newest)
    if moment is None or newest_decided(store, policy, moment) != moment:
        what = "no round has decisions" if moment is None else f"round {instants.show(moment)} has no decisions"
        raise InputError([Problem("--round", "round", what, f"run `springtide decide {LEADING.name}` first")])
    expires = moment + policy.bundle.ttl_s
    contributions = [
        law.contribute(store, fleet, policy, moment, expires) for law in LAWS if law.decides(policy, moment)
    ]
    rendered = render_bundles(fleet, policy, moment, now_unix_s, contributions)
    found = wrong(rendered.documents, Context(fleet, policy, now_unix_s))
    if found:
        raise InputError(found)
    return rendered, moment


def newest_decided(store: Store, policy: Policy, until_unix_s: int) -> int | None:
    """The newest round that may be published, None before the first: that of the leading law while its windows act,
    since no other law keeps them for a round of its own. Else any law's: a PoP alone has no windows.
    """
    led = LEADING.newest(store, policy, until_unix_s)
    if led is not None and led.acting and until_unix_s - led.round < policy.bundle.ttl_s:
        return led.round
    return max((moment for law in LAWS if (moment := law.latest(store, until_unix_s)) is not None), default=None)


def wrong(documents: Documents, context: Context) -> list[Problem]:
    """Problems of bundles by themselves."""
    return [found for edge, document in documents.items() for found in problems(f"{edge}.json", document, context)]


def too_much(folder: PublishFolder, documents: Documents, policy: Policy, fleet: Fleet) -> list[Problem]:
    """Problems where bundles change more of what is current on these edges than the policy's caps allow."""
    published = PublishedBundles(folder)
    held = published.current()
    if held is None:
        return []
    of_these = {edge: document for edge, document in held.items() if edge in documents}
    return _over(published, of_these, documents, policy, fleet)


def publish(
    folder: PublishFolder,
    documents: Documents,
    key: Path | None,
    policy: Policy,
    now_unix_s: int,
    *,
    force: bool = False,
    reason: str = "",
    once: bool = False,
    fleet: bytes = b"",
    too_many: Mapping[str, int] = NOTHING_LEFT_OUT,
) -> tuple[Path, Documents]:
    """Write the publication with its events, and point `candidate` to it; returns the publication and its bundles.

    With `once`, a candidate that has the same values of the same round is left as it is, and returned: a repetition
    after a kill publishes nothing twice. `fleet` is fleet.yaml; the publication keeps it. `too_many`: as rendered, for
    the journal. In the mode advise nothing is written but the event that says what would be. Raises PausedError,
    AdviceOnlyError, InputError, SpringtideError.
    """
    refuse_when_paused(folder.path, now_unix_s)
    if policy.advises:
        raise _advice_only(folder, documents)
    published = PublishedBundles(folder, force=force)
    moment = max(document.bundle.round for document in documents.values())
    known_fleet = Fleet.model_validate(yaml.safe_load(fleet)) if fleet else None
    windows = {
        "round": moment,
        "expires_at": max(document.bundle.expires_at for document in documents.values()),
        # An edge that paces starts connections by the law of starts, and has none of these windows either.
        "held_out": sorted({*_held_out(known_fleet, policy), *_pacing(documents)}),
    }
    details = {"windows": windows, **({"too_many": dict(too_many)} if too_many else {})}
    events = [journal.Event("publish", reason=reason, verdict="published", details=details)]
    events += _disable_events(folder, policy, instants.parse(moment))
    held, over = published.current(), []
    if held is not None:
        latest = now_unix_s + instants.EDGE_TOLERANCE_S
        # A bundle of a clock that was ahead orders nothing: edges refuse it as long as it is ahead.
        timely = [one.bundle for one in held.values() if instants.parse(one.bundle.created_at) <= latest]
        newest = max((bundle.round for bundle in timely), default="")
        if moment < newest:
            fix = "publish a newer round; for the old values use `springtide rollback`"
            raise InputError([Problem("--round", "round", f"{moment} is older than {newest}, which is current", fix)])
        over = _over(published, held, documents, policy, known_fleet)
        if over and not force:
            raise InputError(over)
    there = folder.resolved("candidate") if once else None
    if there is not None:
        known = published.part(there / "edges")
        if _values(known) == _values(documents):
            if not any(event.publication == there.name for event in journal.read(folder.path)[0]):
                _note(folder, there, known, events)
            return there, known
    path = published.publish(documents, key, fleet)
    if over or published.damaged:
        events.insert(0, forced(over, reason, published.damaged))
    _note(folder, path, documents, events)
    return path, documents


def refuse_in_advise_mode(policy: Policy) -> None:
    """Raises AdviceOnlyError (exit code 5)."""
    if policy.advises:
        raise AdviceOnlyError(f"{ADVICE_ONLY}; `mode: act` ends that")


def _advice_only(folder: PublishFolder, documents: Documents) -> AdviceOnlyError:
    """Reports what would be published: in the journal, once a round, and as the refusal."""
    bundles = [document.bundle for document in documents.values()]
    moment = max(bundle.round for bundle in bundles)
    routes = sum(len(bundle.windows) for bundle in bundles)
    clients = len({(bundle.pop, prefix) for bundle in bundles for prefix in bundle.congestion})
    what = f"{routes:,} routes" + (f" and {clients:,} client prefixes" if clients else "")
    what += f" for {len(bundles):,} edges"
    known = (event.details.get("round") for event in journal.read(folder.path)[0] if event.event == "advise")
    if moment not in known:
        details = {"round": moment, "routes": routes, "clients": clients}
        event = journal.Event("advise", verdict="would publish", reason=what, edges=sorted(documents), details=details)
        journal.append(folder.path, event)
    return AdviceOnlyError(f"{ADVICE_ONLY}; round {moment} would be: {what}; `mode: act` publishes it")


def windows_of(folder: PublishFolder, publication: str) -> dict[str, Any]:
    """The initial windows that a publication has, as its event in the journal has them, for an event of the same
    values: the round whose decisions they are, when its bundles expire, and the edges that have none of them."""
    found = (event.details for event in journal.read(folder.path)[0] if event.publication == publication)
    return next(({"windows": details["windows"]} for details in found if "windows" in details), {})


def _held_out(fleet: Fleet | None, policy: Policy) -> set[str]:
    return set(held_out_edges(fleet, policy.holdout)) if fleet else set()


def _disable_events(folder: PublishFolder, policy: Policy, moment: int) -> list[journal.Event]:
    """Events that a disable test begins with the publication of this round, or that one has ended: each once."""
    test = disable_test(policy.experiment, moment)
    past = [event for event in journal.read(folder.path)[0] if event.event == "disable"]
    known = past[-1].details.get("until") if past and past[-1].verdict == "begun" else None
    until = None if test is None else instants.show(test[1])
    if known == until:
        return []
    events = []
    if known is not None:
        events.append(journal.Event("disable", verdict="ended", reason=f"disable test until {known}"))
    if test is not None:
        reason = f"disable test until {until}: no pair of PoPs has a window of its own"
        details = {"from": instants.show(test[0]), "until": until}
        events.append(journal.Event("disable", verdict="begun", reason=reason, details=details))
    return events


def _pacing(documents: Documents) -> set[str]:
    return {edge for edge, document in documents.items() if document.bundle.by == "bpf"}


def forced(over: Iterable[Problem], reason: str, damaged: Mapping[Path, str] = NOTHING_DAMAGED) -> journal.Event:
    """The audit's event for caps that an operator overrode, and for bundles that could not be read."""
    what = {"caps": [str(problem) for problem in over]}
    if damaged:
        what["damaged"] = [f"{path}: {why}" for path, why in damaged.items()]
    return journal.Event("force", reason=reason, verdict="forced", details=what)


def write(
    published: PublishedBundles,
    documents: Documents,
    key: Path | None,
    events: Iterable[journal.Event],
    fleet: bytes,
) -> Path:
    """The publication, then its events with its name and digest in the journal."""
    path = published.publish(documents, key, fleet)
    _note(published.folder, path, documents, events)
    return path


def digest_of(documents: Documents) -> str:
    """One digest for a publication: over its bundles' digests, sorted by edge."""
    lines = "".join(f"{edge} {documents[edge].bundle.digest}\n" for edge in sorted(documents))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def _note(folder: PublishFolder, path: Path, documents: Documents, events: Iterable[journal.Event]) -> None:
    digest = digest_of(documents)
    for event in events:
        named = replace(event, publication=path.name, digest=digest, edges=sorted(documents))
        journal.append(folder.path, named)


def _over(
    published: PublishedBundles, held: Documents, new: Documents, policy: Policy, fleet: Fleet | None
) -> list[Problem]:
    name, found = str(published.folder.path), caps.difference(held, new)
    designed = caps.NOTHING
    if fleet is not None and policy.experiment.switches:
        turns = caps.Turns(fleet, policy)
        designed = caps.by_design(found, held, new, turns, _resting(published, held, turns))
    usual = caps.Usual.of(policy.start, untreated=policy.experiment.kind == "share")
    routes = caps.problems(name, found, policy.bundle, designed, usual)
    return [*routes, *caps.congestion_problems(name, held, new, policy.bundle)]


def _resting(published: PublishedBundles, held: Documents, turns: caps.Turns) -> caps.Starts:
    """Starts that the experiment had switched off in what is held. Each is of the newest publication in which it had
    its turn to be on, as far as publications are kept. Raises SpringtideError."""
    folder, names = published.folder, published.folder.rounds()
    there = {value for value, start in caps.starts(held).items() if start.is_carried}
    found: dict[caps.Value, caps.Start] = {}
    newest = max((document.bundle.round for document in held.values()), default="")
    for moment, on in turns.last_on(instants.parse(newest)).items() if newest else ():
        until = instants.show(moment)
        earlier = [name for name in names if name[: len(until)] <= until]
        if earlier:
            documents = published.part(folder.path / "rounds" / earlier[-1] / EDGES)
            starts = caps.starts(documents).items()
            found |= {
                value: one for value, one in starts if one.is_carried and value not in there and turns.pair(value) in on
            }
    return found


def _values(documents: Documents) -> dict[str, dict[str, Any]]:
    """All fields of bundles except their creation times."""
    found = {edge: fields_of(document.bundle) for edge, document in documents.items()}
    for fields in found.values():
        del fields["created_at"]
    return found


def stage(publish_dir: Path, documents: Documents) -> None:
    """Write bundles where the next step reads them; remove those of edges that left. Raises SpringtideError."""
    folder = publish_dir / STAGED
    for path in folder.glob("*.json"):
        if path.stem not in documents:
            path.unlink()
    write_files(folder, files(documents))


def staged(publish_dir: Path) -> dict[str, Document]:
    """Reads what `stage` has written. Raises InputError where there is nothing, or a file is not a bundle."""
    found = _staged(publish_dir)
    documents, wrong = {}, []
    for edge, content in found.items():
        try:
            documents[edge] = parse(f"{edge}.json", content)
        except InputError as error:
            wrong += error.problems
    if wrong:
        raise InputError(wrong)
    return documents


def validate_staged(publish_dir: Path, fleet: Fleet, policy: Policy, now_unix_s: int) -> None:
    """Raises InputError with every problem and every exceeded cap."""
    context = Context(fleet, policy, now_unix_s)
    found: list[Problem] = []
    documents = {}
    for edge, content in _staged(publish_dir).items():
        document, wrong = parsed_problems(f"{edge}.json", content, context)
        found += wrong
        if document is not None:
            documents[edge] = document
    if not found:
        found = too_much(PublishFolder(publish_dir), documents, policy, fleet)
    if found:
        raise InputError(found)


def _staged(publish_dir: Path) -> dict[str, bytes]:
    found = {path.stem: path.read_bytes() for path in sorted((publish_dir / STAGED).glob("*.json"))}
    if not found:
        raise InputError([Problem(str(publish_dir / STAGED), "bundles", "are not there", "make them first")])
    return found
