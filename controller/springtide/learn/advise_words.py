"""Advice in words and cells: what the table and the page have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from springtide.learn.advise import MAX_UNITS, Advice
from springtide.learn.advise_path import RISKS, Basis, Interval, Path, Risk

# The size that stands for a path where there is room for one.
MAIN_SIZE = 100_000
COLUMNS = (
    *("from", "to", "IP", "RTT ms", "Mbit/s", "window"),
    *("10 kB", "50 kB", "100 kB", "1 MB", "interval", "default"),
    *("began", "in all", "interval of all", "risk"),
)
NARROW = ("from", "to", "Mbit/s", "100 kB", "in all", "risk")
_NAMES = {10_000: "10 kB", 50_000: "50 kB", 100_000: "100 kB", 1_000_000: "1 MB"}
KEY = (
    "By size of the answer: ms saved (and round trips); interval: of the ms saved of 100 kB, 95 %; default: its ms "
    "today; in all: of the connections that began; \N{GREATER-THAN OR EQUAL TO}: a lower bound."
)
# A short queue is a suspicion.
WORDS = {Risk.LOSES: "loses", Risk.SHORT_QUEUE: "short queue?", Risk.THIN: "thin", Risk.RECEIVER: "receiver"}

CAVEATS = (
    "The default's time is measured where connections of one answer began with it; else it is slow start at its best, "
    "from ten segments, without loss or an early exit: real ones take longer. What your edges already set by other "
    "means is not taken off.",
    "Object sizes are not in samples. In all counts the connections that began, each as if what it sent were one "
    "answer, of the largest of the four sizes that it sent in full; a connection that carried many small ones counts "
    "too much.",
    "A rate is what single connections were delivered. Many that start at once share it; starts that pace share it "
    "among themselves, windows set by routes do not.",
    "A rate marked >= was limited by the connections' own windows, by the application or by the receiver: the path "
    "gives at least that, and the saving is at least what is shown.",
)


def size_name(size_bytes: int) -> str:
    return _NAMES[size_bytes]


def duration(ms: float) -> str:
    """Milliseconds as people say them."""
    for unit_ms, name in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= unit_ms:
            return f"{ms / unit_ms:.1f} {name}"
    return f"{ms:.0f} ms"


def least(is_bound: bool) -> str:
    return "\N{GREATER-THAN OR EQUAL TO}" if is_bound else ""


def headline(advice: Advice) -> str:
    """One sentence with the number."""
    default, saved = advice.mean_ms(MAIN_SIZE)
    known = advice.averaged
    bound = "" if all(path.basis is not Basis.AT_LEAST for path in known) else "at least "
    in_all = "at least " if any(path.basis is Basis.AT_LEAST for path in advice.paths) else ""
    total = advice.total_ms
    of = f"{len(known)} of {len(advice.paths)} paths" if len(known) < len(advice.paths) else f"{len(known)} paths"
    began = sum(path.fresh for path in known)
    over = f"{began:,} connections that began on {of}" if began else of
    return (
        f"Started at the proved rate, an answer of 100 kB would arrive {bound}{saved:.0f} ms sooner "
        f"({default - saved:.0f} instead of {default:.0f} ms, the mean over {over}); "
        f"in all {in_all}{duration(total.estimate)} of waiting saved "
        f"({duration(total.low)} to {duration(total.high)})."
    )


def cells(path: Path) -> dict[str, str]:
    """A path's cells by COLUMNS."""
    main = path.saving(MAIN_SIZE)
    is_bound = any(one.may_be_more for one in path.savings)
    return {
        "from": path.src_pop,
        "to": path.destination,
        "IP": f"v{path.ip_version}",
        "RTT ms": f"{path.rtt_ms.estimate:.1f}",
        "Mbit/s": f"{least(path.basis is Basis.AT_LEAST)}{path.rate_bytes_per_s.estimate / 125_000:.1f}",
        "window": str(path.window),
        **{
            size_name(
                one.size_bytes
            ): f"{least(one.may_be_more)}{one.saved_ms.estimate:.0f} ({one.saved_round_trips.estimate:.1f})"
            for one in path.savings
        },
        "interval": between(main.saved_ms),
        "default": f"{main.default_ms:.0f}",
        "began": f"{path.fresh:,}",
        "in all": f"{least(is_bound)}{duration(path.total_ms.estimate)}",
        "interval of all": f"{duration(path.total_ms.low)} to {duration(path.total_ms.high)}",
        "risk": risks(path),
    }


def between(interval: Interval) -> str:
    return f"{interval.low:.0f} to {interval.high:.0f}"


def risks(path: Path) -> str:
    return ", ".join(WORDS[risk] for risk in path.risks)


def notes(advice: Advice, top: int) -> Iterator[str]:
    """Lines below the table: what is not shown, and what it would risk."""
    if len(advice.paths) > top:
        yield f"the best {top} of {len(advice.paths)} paths; --top shows more"
    if advice.is_cut:
        yield f"only the {MAX_UNITS} paths were looked at on which most round trips were spent"
    if advice.unknown:
        yield f"{advice.unknown} more paths show no rate yet"
    if advice.local:
        yield f"{advice.local:,} connections of hosts to themselves were left out"
    for risk, paths in advice.at_risk().items():
        if paths:
            yield f"{WORDS[risk]} ({RISKS[risk]}): {len(paths)} paths: {named(paths)}"
    yield KEY


def named(paths: Sequence[Path], most: int = 5) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(f"{path.src_pop} to {path.destination}" for path in paths[:most]) + more
