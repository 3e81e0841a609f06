"""What plays do on the publisher: waves and verdicts, what holds, the lock, the journal. Pure parts first; standard
library, no controller."""

from __future__ import annotations

import calendar
import contextlib
import fcntl
import getpass
import hashlib
import json
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

JOURNAL = "journal.jsonl"
LOCK = "rollout.lock"
STOP = "withdrawn"
CURRENT = "current"
# A publication's ways back: to what held when it was published, and to what held if the rollout of then was done.
WAYS = ("back", "back-if-done")
# A gate waits for the store for a minute or two; one that says nothing for longer says no.
GATE_LIMIT_S = 600
# How often a gate must be able to ask again, where it may at all: what it asks at once has seen nothing yet, and
# samples are on their way for up to a minute.
LEAST_TRIES = 2
# No wave is more than so many times the one before, however short the time is.
MOST_GROWTH = 30


class Candidate(NamedTuple):
    """An edge of a rollout: its region and how many routes its bundle has."""

    name: str
    region: str
    routes: int


def waves(candidates: Sequence[Candidate], growth: int, salt: str) -> list[list[str]]:
    """One canary for each region, then waves that grow by `growth`, until no edge is left.

    A canary is an edge with the most routes, since an empty bundle tries nothing; among equals the round (`salt`)
    chooses, so that it is not always the same host that goes first.
    """

    def rank(candidate: Candidate) -> tuple[int, str]:
        return -candidate.routes, hashlib.sha256(f"{salt}/{candidate.name}".encode()).hexdigest()

    regions = sorted({candidate.region for candidate in candidates})
    first = [min((c for c in candidates if c.region == region), key=rank).name for region in regions]
    left = sorted((c for c in candidates if c.name not in first), key=rank)
    result = [first] if first else []
    size = len(first) * growth
    while left:
        result.append([candidate.name for candidate in left[:size]])
        left, size = left[size:], size * growth
    return result


def gate_tries(life_s: float, waves: int, tries: int, delay_s: float) -> int:
    """How often the gate of each wave may be asked, `tries` at most, so that waiting takes half of the bundles' life.

    The other half is for the work itself, and for the next round to arrive before the first edge expires. 0: not even
    once for each wave.
    """
    if waves < 1 or delay_s <= 0:
        return tries
    return max(0, min(tries, int(life_s / 2 / waves / delay_s)))


def fitting_growth(edges: int, regions: int, growth: int, life_s: float, tries: int, delay_s: float) -> int:
    """The growth of waves, `growth` or the next larger one with which there are so few that each gate has time to ask
    again LEAST_TRIES times. Where none up to MOST_GROWTH does, `growth` itself: then fewer tries or none are left."""
    for larger in range(growth, max(growth, MOST_GROWTH) + 1):
        if gate_tries(life_s, _count(edges, regions, larger), tries, delay_s) >= min(tries, LEAST_TRIES):
            return larger
    return growth


def _count(edges: int, regions: int, growth: int) -> int:
    """How many waves `waves` makes."""
    count, size, left = 0, regions, edges
    while left > 0 and size > 0:
        count, left, size = count + 1, left - size, size * growth
    return count


def applied(answer: object) -> bool:
    """Whether an edge said plainly that it holds what it was given; anything else is no."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("changed"), bool):
        return False
    return not any(answer.get(word, False) for word in ("failed", "unreachable", "skipped"))


def given(document: Mapping[str, Any] | None, now: float) -> object:
    """What an edge has by a bundle at this time, None for nothing: by it two bundles can be told to say the same."""
    if document is None or instant(document["expires_at"]) <= now:
        return None
    routes, clients = document["routes"], document.get("congestion") or []
    return (routes, clients, document["expires_at"]) if routes or clients else None


def instant(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))


def life_s(folder: Path, edges: Sequence[str], now: float) -> float:
    """For how long the first of these bundles to expire still holds; what is no bundle is for the edge to refuse."""
    ends = []
    for edge in edges:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = json.loads((folder / f"{edge}.json").read_bytes())["expires_at"]
            ends.append(instant(text))
    return min(ends) - now if ends else 0.0


def read_publication(folder: Path, edges: Sequence[tuple[str, str]]) -> list[Candidate]:
    """(edge, region) with the routes of their bundles. Raises ValueError when one has none."""
    found = {path.name[: -len(".json")]: path for path in folder.glob("*.json")}
    missing = sorted({name for name, _ in edges} - set(found))
    if missing:
        raise ValueError(f"{folder}: no bundle for {', '.join(missing)}; publish a round for this fleet.yaml")
    candidates = []
    for name, region in edges:
        try:
            routes = len(json.loads(found[name].read_bytes())["routes"])
        except (ValueError, KeyError, TypeError):
            routes = 0  # what is no bundle is for the edge to refuse
        candidates.append(Candidate(name, region, routes))
    return candidates


def way_back(publication: Path, folder: Path, edges: Sequence[str], now: float) -> Path:
    """The folder of bundles that brings these edges back to what they have when its rollout begins.

    Raises ValueError where the publication has none, or is another content under a moment that edges know.
    """
    current = folder / CURRENT
    stopped_by = stopped(folder)
    if stopped_by is None and current.exists() and current.resolve().parent == publication.resolve():
        return publication / WAYS[0]  # it was begun before
    held = {edge: read_bundle(current / f"{edge}.json") if stopped_by is None else None for edge in edges}
    for edge in edges:
        new, old = read_bundle(publication / f"edges/{edge}.json"), held[edge]
        if new and old and _moment(new) == _moment(old) and new["digest"] != old["digest"]:
            what = f"{edge}: is another content for {new['round']} as of {new['created_at']}, which it has"
            raise ValueError(f"{publication}: {what}; publish again")
    for name in WAYS:
        way = publication / name
        if way.is_dir() and all(
            given(read_bundle(way / f"{edge}.json"), now) == given(held[edge], now) for edge in edges
        ):
            return way
    since = "the fleet was withdrawn" if stopped_by else "something else came to hold on the fleet"
    raise ValueError(
        f"{publication}: {since} after it was published, so that it has no way back to that; publish again"
    )


def _moment(document: Mapping[str, Any]) -> tuple[Any, Any]:
    return document["round"], document["created_at"]


def read_bundle(path: Path) -> dict[str, Any] | None:
    """None where there is none. What is no bundle is for the edge to refuse, and gives nothing."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        given(found, 0.0), _moment(found), found["digest"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found


def hold(folder: Path, part: Path) -> None:
    """Let `current` say that this part of a publication is what holds on the fleet; all of it or nothing.

    A way back of another name becomes the publication's only one, so that whoever undoes it later finds that.
    """
    if part.name == WAYS[1]:
        with contextlib.suppress(FileNotFoundError):
            (part.parent / WAYS[0]).rename(part.parent / ".not-taken")
        part = part.rename(part.parent / WAYS[0])
    link = folder / f".{CURRENT}.new"
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(part.resolve().relative_to(folder.resolve()))
    link.replace(folder / CURRENT)


def ask_gate(command: Sequence[str], tries: int, delay_s: float, limit_s: float = GATE_LIMIT_S) -> str:
    """Empty where the gate says go (exit code 0), else what it said. 3 is asked again, so many times."""
    for left in range(max(0, tries), -1, -1):
        try:
            gate = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return f"nothing: {command[0]}: {error.strerror}"
        try:
            output, errors = gate.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"nothing for {limit_s} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(gate.pid, signal.SIGKILL)
        if gate.returncode == 0:
            return ""
        said = (output + b"\n" + errors).decode("utf-8", "replace").split("\n")
        if gate.returncode != 3 or not left:
            break
        time.sleep(delay_s)
    return next((line for line in said if line.strip()), f"nothing, with exit code {gate.returncode}")


def playbook_process() -> int:
    """The process whose end is the end of this run: the outermost ansible-playbook above us, else our parent."""
    found = pid = os.getppid()
    outermost: int | None = None
    while pid > 1:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.rpartition(b"/")[2].startswith(b"ansible") for word in words[:2]):
                outermost = pid
        parent = parent_of(pid)
        if parent is None:
            break
        pid = parent
    return outermost or found


def _stat(pid: int) -> list[str] | None:
    try:
        # The name in parentheses may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def parent_of(pid: int) -> int | None:
    words = _stat(pid)
    return None if words is None else int(words[1])


def started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks: tells it from a later one with its number (proc(5), field 22)."""
    words = _stat(pid)
    return None if words is None or words[0] in ("Z", "X") else words[19]


@contextlib.contextmanager
def _open_locked(path: Path) -> Iterator[Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o640)
    with os.fdopen(handle, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _taken(content: str, pid: int) -> str | None:
    """Who holds the lock with this content, but for us. A holder that has ended holds nothing, however it ended."""
    try:
        holder = json.loads(content or "{}")
    except ValueError:
        holder = {}
    other = holder.get("pid")
    alive = isinstance(other, int) and holder.get("boot") == _boot() and started(other) == holder.get("started")
    return f"{holder.get('what')} by {holder.get('who')} (process {other})" if alive and other != pid else None


def take_lock(folder: Path, pid: int, what: str) -> str | None:
    """None when the lock is ours, else who has it. Raises OSError where nothing can be written; see `lock_holder`."""
    with _open_locked(folder / LOCK) as file:
        other = _taken(file.read(), pid)
        if other is None:
            mine = {"pid": pid, "started": started(pid), "boot": _boot(), "what": what, "who": who()}
            file.seek(0)
            file.truncate()
            file.write(json.dumps(mine))
    return other


def lock_holder(folder: Path, pid: int) -> str | None:
    """Who holds the lock, but for us, where the disk takes nothing."""
    with contextlib.suppress(OSError):
        return _taken((folder / LOCK).read_text(encoding="utf-8", errors="replace"), pid)
    return None


def give_lock_back(folder: Path, pid: int) -> None:
    with _open_locked(folder / LOCK) as file:
        try:
            holder = json.loads(file.read() or "{}")
        except ValueError:
            holder = {}
        if holder.get("pid") == pid:
            file.seek(0)
            file.truncate()


def stop(folder: Path, why: str) -> None:
    """From now on nothing is pushed, not even by a rollout that is running, until `resume`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STOP).write_text(f"withdrawn by {who()}: {why}\n", encoding="utf-8")


def stopped(folder: Path) -> str | None:
    """Why nothing may be pushed, or None."""
    try:
        return (folder / STOP).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def resume(folder: Path) -> None:
    if (folder / STOP).exists():  # a disk that is read-only refuses to delete also what is not there
        with contextlib.suppress(FileNotFoundError):
            (folder / STOP).unlink()


def who() -> str:
    """The person behind sudo, else the user of this process."""
    with contextlib.suppress(OSError, KeyError):
        return os.environ.get("SUDO_USER") or getpass.getuser()
    return str(os.getuid())


def record(folder: Path, fields: dict[str, Any]) -> None:
    """A line in the journal, on the disk when it returns; the controller makes rows of the lines."""
    line = dict(fields, id=uuid.uuid4().hex, at_unix_s=int(time.time()), who=who())
    folder.mkdir(parents=True, exist_ok=True)
    append_line(folder / JOURNAL, json.dumps(line, sort_keys=True))


def append_line(path: Path, line: str) -> None:
    """A line of its own behind whatever a killed writer left; all of it or, where it raises OSError, nothing."""
    handle = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        content = ("\n" * torn + line + "\n").encode()
        try:
            while content:
                content = content[os.write(handle, content) :]
            os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)
