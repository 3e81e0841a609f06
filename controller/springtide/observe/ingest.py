"""Spool files into tcp_samples, each record once.

Rows go in first, the ledger second. A process that dies between the two leaves rows that the next run inserts again;
they carry the same sorting key, so readers (`final`) and merges see them once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from springtide import instants
from springtide.errors import InputError, Problem, StoreError
from springtide.fleet import Fleet
from springtide.observe import ledger
from springtide.observe.enrich import publish_fleet
from springtide.observe.folder import Folder, Identity, identity_of, safe_name, shown
from springtide.observe.samples import Samples, of_files
from springtide.observe.spool import BadRecordError, Damage, Record, read_spool
from springtide.store import Store

# An insert is one sorted part: large ones merge less. 64 MiB of messages are about 200,000 rows and become about
# 200 MB of columns inside the engine.
BATCH_BYTES = 64 << 20
# Records that are looked up in the ledger together.
LOOKUP_RECORDS = 512
LOOKUP_BYTES = 32 << 20

SUFFIX = ".spool"
REJECTED = "rejected"

# The engine was short of something, whatever the data: MEMORY_LIMIT_EXCEEDED, NOT_ENOUGH_SPACE, QUERY_WAS_CANCELLED.
ENVIRONMENT_CODES = (241, 243, 394)


@dataclass
class Summary:
    """Counts of one run. `rejected_*` are this run's; what earlier runs had rejected is `already_rejected`."""

    files: int = 0
    records: int = 0
    rows: int = 0
    rejected_records: int = 0
    rejected_bytes: int = 0
    already_loaded: int = 0
    already_rejected: int = 0
    # Entries with a spool file's name that are not a regular file, or cannot be read.
    unreadable_files: int = 0
    # Neither loaded nor kept aside: the next run tries again.
    unkept_records: int = 0
    deleted_files: int = 0
    problems: list[Problem] = field(default_factory=list)

    def __add__(self, other: Summary) -> Summary:
        return Summary(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "problems": [str(problem) for problem in self.problems]}


def folders(path: Path) -> list[Path]:
    """`path` and the folders in it, links left out, without where bad records are kept. Raises InputError."""
    with _opened(path):
        inside = sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink())
    return [path, *(each for each in inside if each.name != REJECTED)]


def ingest(
    store: Store,
    fleet: Fleet,
    path: Path,
    *,
    delete: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Load every sealed file of the folder `path`. `on_progress` gets the number of bytes as they are processed.

    Bad bytes are copied to `path`/rejected and reported in the summary, and so are unreadable files; nothing
    else is lost. With `delete`, files that are wholly loaded are removed. Raises StoreError when the machine is
    at fault.
    """
    publish_fleet(store, fleet)
    batch: list[Record | Damage] = []
    size = 0
    with _opened(path) as folder:
        run = _Run(store, folder, of_files(store, instants.now()))
        for name in folder.names(SUFFIX):
            for item in run.open(name):
                batch.append(item)
                size += _size(item)
                if len(batch) >= LOOKUP_RECORDS or size >= LOOKUP_BYTES:
                    run.take(batch)
                    on_progress(size)
                    batch, size = [], 0
        run.take(batch)
        run.flush()
        on_progress(size)
        if delete:
            run.delete_loaded()
        return run.summary


def waiting_bytes(path: Path) -> int:
    """Bytes that `ingest` would have to read."""
    with _opened(path) as folder:
        return sum(folder.size(name) for name in folder.names(SUFFIX))


def _opened(path: Path) -> Folder:
    try:
        return Folder(path)
    except OSError as error:
        raise InputError(
            [Problem(str(path), "folder", f"cannot be read: {error.strerror}", "make it readable")]
        ) from error


class _Run:
    """One ingest: what is waiting to be inserted, and what has happened so far."""

    def __init__(self, store: Store, folder: Folder, samples: Samples) -> None:
        self.summary = Summary()
        self._store = store
        self._folder = folder
        self._samples = samples
        self._pending: dict[str, tuple[Record, bytes]] = {}
        self._pending_bytes = 0
        self._clean: dict[str, Identity] = {}
        # Kept aside, and not yet in the ledger.
        self._rejected: list[tuple[Record | Damage, str]] = []

    def open(self, name: str) -> Iterator[Record | Damage]:
        """The file's records; an entry that cannot be read, or is not a regular file, is reported."""
        try:
            fd = self._folder.open(name)
            try:
                self._clean[name] = identity_of(os.fstat(fd))
                yield from read_spool(name, fd)
            finally:
                os.close(fd)
        except OSError as error:
            self._clean.pop(name, None)
            self.summary.unreadable_files += 1
            self._problem(name, "file", f"cannot be read: {error.strerror}", "make it readable; the others are loaded")
        else:
            self.summary.files += 1

    def take(self, items: Sequence[Record | Damage]) -> None:
        """Process what is new among `items`."""
        known = ledger.known(self._store, [item.digest for item in items])
        for item in items:
            outcome = known.get(item.digest)
            if outcome == "loaded" or item.digest in self._pending:
                self.summary.already_loaded += 1
            elif outcome == "rejected":
                self.summary.already_rejected += 1
                self._clean.pop(item.file, None)
            elif isinstance(item, Damage):
                self._reject(item, item.data, item.reason)
            else:
                self._add(item)
        self._remember_rejected()

    def flush(self) -> None:
        """Insert what is waiting, then record it in the ledger."""
        waiting = list(self._pending.values())
        self._pending, self._pending_bytes = {}, 0
        if waiting:
            self._insert(waiting)
        self._remember_rejected()

    def delete_loaded(self) -> None:
        for name, identity in sorted(self._clean.items()):
            try:
                self._folder.remove(name, identity)
            except OSError as error:
                self._problem(name, "file", f"cannot be removed: {error.strerror}", "it is loaded: remove it by hand")
            else:
                self.summary.deleted_files += 1

    def _problem(self, name: str, field: str, message: str, fix: str) -> None:
        self.summary.problems.append(Problem(str(self._folder.path / shown(name)), field, message, fix))

    def _add(self, record: Record) -> None:
        try:
            envelope = record.envelope()
        except BadRecordError as error:
            self._reject(record, record.raw(), str(error))
            return
        if self._pending_bytes + len(envelope) > BATCH_BYTES:
            self.flush()
        self._pending[record.digest] = (record, envelope)
        self._pending_bytes += len(envelope)

    def _insert(self, waiting: Sequence[tuple[Record, bytes]]) -> None:
        """Insert all rows that fit, or halve until the record that the engine cannot parse is isolated."""
        messages, fits = [envelope for _, envelope in waiting], self._samples
        try:
            stored = self._store.insert_messages(
                fits.table, fits.select, fits.structure, messages, f"{fits.problem} = ''"
            )
        except StoreError as error:
            if error.code in ENVIRONMENT_CODES:
                raise
            if len(waiting) > 1:
                middle = len(waiting) // 2
                self._insert(waiting[:middle])
                self._insert(waiting[middle:])
                return
            record = waiting[0][0]
            reason = self._poison(messages)
            if reason is None:
                raise
            self._reject(record, record.raw(), f"the engine cannot parse it: {reason}")
            return
        self.summary.rows += stored
        whole = sum(record.rows for record, _ in waiting)
        faulty = self._faulty(waiting) if stored < whole else {}
        if stored + sum(refused for refused, _ in faulty.values()) != whole:
            raise StoreError(f"store {self._store.url}: {stored} of {whole} rows were written; run it again")
        records = [record for record, _ in waiting if record.digest not in faulty]
        ledger.record_loaded(self._store, records)
        self.summary.records += len(records)
        for record, _ in waiting:
            if record.digest in faulty:
                refused, reason = faulty[record.digest]
                text = f"{refused} of its {record.rows} rows do not fit: {reason}; the others are loaded"
                self._reject(record, record.raw(), text)

    def _faulty(self, waiting: Sequence[tuple[Record, bytes]]) -> dict[str, tuple[int, str]]:
        """Records with rows that do not fit, by digest: how many, and why."""
        fits = self._samples
        reasons = f"arrayStringConcat(groupUniqArrayIf(5)({fits.problem} as problem, problem != ''), ', ') as reasons"
        counted = f"select countIf(problem != '') as refused, {reasons}"
        [row] = self._store.parse_messages(counted, fits.structure, [envelope for _, envelope in waiting])
        refused = int(row["refused"])
        if not refused or len(waiting) == 1:
            return {waiting[0][0].digest: (refused, str(row["reasons"]))} if refused else {}
        middle = len(waiting) // 2
        return {**self._faulty(waiting[:middle]), **self._faulty(waiting[middle:])}

    def _poison(self, messages: Sequence[bytes]) -> str | None:
        """Why the engine cannot parse these; None when it can, so that the fault is the machine's."""
        try:
            self._store.parse_messages("select max(cityHash64(*)) as parsed", self._samples.structure, messages)
        except StoreError as error:
            if error.code in ENVIRONMENT_CODES:
                return None
            return str(error).partition("DB::Exception: ")[2].partition(": (in file")[0] or str(error)
        return None

    def _reject(self, item: Record | Damage, data: bytes, reason: str) -> None:
        """Keep the bytes aside, to be recorded with others. Their name is their digest: a kill in between, or the
        next run, keeps the same bytes under the same name, and other bytes under another."""
        self._clean.pop(item.file, None)
        kept = f"{safe_name(item.file)}.{item.position}.{item.digest[:16]}.bad"
        where = self._folder.path / REJECTED / kept
        try:
            with self._folder.below(REJECTED) as rejected:
                rejected.keep(kept, data)
        except OSError as error:
            self.summary.unkept_records += 1
            fix = f"{where}: {error.strerror}: make {self._folder.path} writable, then run again"
            self._problem(item.file, f"byte {item.position}", f"{reason}, and its bytes cannot be kept", fix)
            return
        self._rejected.append((item, reason))
        self.summary.rejected_records += 1
        self.summary.rejected_bytes += len(data)
        self._problem(item.file, f"byte {item.position}", reason, f"its {len(data)} bytes are kept in {where}")

    def _remember_rejected(self) -> None:
        """Together: an insert takes as long as a hundred good records, and a file may be damaged everywhere."""
        ledger.record_rejected(self._store, self._rejected)
        self._rejected = []


def _size(item: Record | Damage) -> int:
    return item.size if isinstance(item, Record) else len(item.data)
