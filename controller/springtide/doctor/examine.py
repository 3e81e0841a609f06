"""Checks that a host and a site get, in the order in which one blocks the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from springtide import instants
from springtide.doctor import clock, collector, disk, kafka, kernel, programs, signatures, sysctls
from springtide.doctor import store as stores
from springtide.doctor.finding import Finding, Verdict, fine, fix, unknown
from springtide.errors import InputError, Problem, SpringtideError
from springtide.fleet import Fleet
from springtide.laws.base import Step
from springtide.learn import status, status_facts
from springtide.learn.benefits import DAY_S
from springtide.policy import Policy
from springtide.publication.folder import PublishFolder
from springtide.store import Store, address

T = TypeVar("T")


@dataclass(frozen=True)
class HostPlaces:
    """Where to look on a host that runs a collector."""

    config: Path
    address: str
    allowed_signers: Path


@dataclass(frozen=True)
class ControllerPlaces:
    """Where to look on the controller and publisher. Functions, where opening or reading may fail."""

    url: str
    store: Callable[[], Any]
    fleet_path: Path
    read_fleet: Callable[[Path], Fleet]
    policy_path: Path
    read_policy: Callable[[Path], Policy]
    publish_dir: Path
    allowed_signers: Path
    key: Path | None = None
    kafka: Mapping[str, Any] = field(default_factory=dict)
    topics: Path | None = None


def host(about: HostPlaces, cmax: int) -> Iterator[Finding]:
    """Checks of a host that has routes and a collector."""
    yield from kernel.check(kernel.gather())
    yield from programs.check(programs.gather())
    yield from clock.check(clock.gather())
    yield from disk.check(disk.gather({"spool": Path("/var/lib/springtide-collector")}))
    yield from collector.check(collector.gather(about.config, about.address))
    trusted = signatures.gather(None, about.allowed_signers, None)
    yield from (one for one in signatures.check(trusted) if one.verdict is not Verdict.UNKNOWN)
    yield from sysctls.check(sysctls.gather(), cmax)


def site(about: ControllerPlaces) -> Iterator[Finding]:
    """Checks of controller and publisher: clock, disks, files, Kafka, keys and store."""
    yield from clock.check(clock.gather())
    places = {"publisher's folder": about.publish_dir}
    if about.url.startswith("chdb://"):
        places["store"] = Path(about.url.removeprefix("chdb://"))
    yield from disk.check(disk.gather(places))
    fleet, found = _read("fleet", about.fleet_path, about.read_fleet)
    yield from found
    policy, found = _read("policy", about.policy_path, about.read_policy)
    yield from found
    yield from kafka.check(kafka.gather(about.kafka, about.topics))
    folder = PublishFolder(about.publish_dir)
    yield from signatures.check(signatures.gather(about.key, about.allowed_signers, folder))
    yield from _store(about, fleet, policy, folder)


def _store(
    about: ControllerPlaces, fleet: Fleet | None, policy: Policy | None, folder: PublishFolder
) -> Iterator[Finding]:
    begin = time.monotonic()
    url = "--store"
    try:
        url = _without_password(about.url)
        with about.store() as opened:
            yield stores.check_answer(url, time.monotonic() - begin)
            yield from _disks(opened)
            offset = clock.server_offset(opened) if url.startswith("clickhouse:") else None
            yield from clock.check_offsets([] if offset is None else [offset])
            schema = list(stores.check_schema(url, stores.gather_schema(opened)))
            yield from schema
            if any(one.verdict is Verdict.FIX for one in schema):
                yield unknown("freshness", url, "not checked: the schema comes first")
                return
            now = instants.now()
            yield from stores.check_clocks(stores.gather_clocks(opened, now - DAY_S))
            yield from stores.check_rogues(status_facts.rogues(opened, now - DAY_S, now))
            if fleet is None or policy is None:
                yield unknown("freshness", url, "not checked: fleet and policy come first")
                return
            facts = status_facts.read(opened, fleet, policy, folder, now)
            yield from freshness(url, status.lines(facts))
    except SpringtideError as error:
        yield from _failed("store", url, error)
        yield unknown("freshness", url, "not checked: the store comes first")


def freshness(url: str, lines: Iterable[Step]) -> Iterator[Finding]:
    """The findings of `springtide status`: each step that keeps the loop from closing."""
    found = list(lines)
    for line in found:
        if not line.closes:
            yield fix(line.what, url, line.text, line.fix)
    if all(line.closes for line in found):
        yield fine("freshness", url, status.verdict(found))


def _without_password(url: str) -> str:
    """For people and logs. Raises InputError for a URL that is not a store."""
    return address.parse(url).shown if url.startswith("clickhouse:") else url


def _disks(store: Store) -> Iterator[Finding]:
    """A server's own; an embedded store's are this host's."""
    if store.url.startswith("chdb://"):
        return
    rows = store.query("select path, toInt64(free_space) as free, toInt64(total_space) as total from system.disks")
    yield from disk.check({f"{store.url} {row['path']}": disk.Disk(row["total"], row["free"]) for row in rows})


def _read(name: str, path: Path, read: Callable[[Path], T]) -> tuple[T | None, list[Finding]]:
    try:
        return read(path), [fine(name, str(path), "is accepted")]
    except SpringtideError as error:
        return None, list(_failed(name, str(path), error))


def _failed(name: str, where: str, error: SpringtideError) -> Iterator[Finding]:
    """One finding for each problem; in its message, what to do follows the last semicolon."""
    for problem in error.problems if isinstance(error, InputError) else [str(error)]:
        if isinstance(problem, Problem):
            yield fix(name, problem.where, f"{problem.field}: {problem.message}", problem.fix)
        else:
            what, _, todo = problem.rpartition("; ")
            yield fix(name, where, what or todo, todo if what else "see its log")
