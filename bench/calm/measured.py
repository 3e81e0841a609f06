"""Points that check the flights' model: measured with CUBIC in the lab's namespaces, 100 kB or 1 MB, request to last
byte, medians. `rows` has for each the model's time beside it (`make calm` prints them)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from bench.calm.flights import NO_RATE, Path, completion

SHARE = 0.95


@dataclass(frozen=True)
class Point:
    """`ms` and `resent` (segments sent again a connection, None: not noted) as they were measured."""

    path: Path
    way: str
    window: int
    rate: float | None
    at_once: int
    ms: float
    resent: float | None
    size: int = 100_000

    @property
    def name(self) -> str:
        flows = f", {self.path.flows} bulk" if self.path.flows else ""
        many = f", {self.at_once} at once" if self.at_once > 1 else ""
        shape = f"{self.path.rate_mbit:g} Mbit/s, {self.path.rtt_ms:g} ms, queue {self.path.queue}"
        return f"{shape}{flows}{many}: {self.size // 1000} kB {self.way}"


def _rate(path: Path) -> float:
    return path.rate_mbit * 125_000 * SHARE


def _alone() -> list[Point]:
    """Default, 100 segments as a burst, paced without a cap, at the path's rate, and 400 segments at it."""
    found = []
    for path, times, again in (
        (Path(50, 102, 41), (318, 660, 134, 134, 119), (0, 29, 0, 0, 0)),
        (Path(20, 150, 20), (669, 1130, 205, 198, 192), (1.4, 49, 0, 0, 0)),
        (Path(12, 54, 10), (281, 927, 289, 125, 125), (8.1, 67, 47, 0, 0.1)),
        (Path(77, 102, 97), (314, 114, 134, 134, 114), (0, 0, 0, 0, 0.2)),
        (Path(200, 150, 20_000), (456, 155, 196, 196, 162), (0, 0, 0, 0, 0)),
    ):
        ways = (
            ("default", 10, None),
            ("burst of 100", 100, None),
            ("100 paced", 100, NO_RATE),
            ("100 at rate", 100, _rate(path)),
            ("400 at rate", 400, _rate(path)),
        )
        found += [Point(path, *way, 1, ms, resent) for way, ms, resent in zip(ways, times, again, strict=True)]
    path = Path(50, 102, 41)
    found.append(Point(path, "default", 10, None, 1, 955, None, 1_000_000))
    found.append(Point(path, "burst of 100", 100, None, 1, 845, None, 1_000_000))
    found.append(Point(path, "400 at rate", 400, _rate(path), 1, 293, None, 1_000_000))
    return found


def _together() -> list[Point]:
    """Default; every one at the path's rate; the rate divided by the most at once lately. 200 segments."""
    found = []
    for path, at_once, default, each, lately in (
        (Path(50, 102, 41), 4, (330, 5), (436, 36), (165, 2.5)),
        (Path(50, 102, 41), 10, (544, 11), (640, 45), (260, 7)),
        (Path(50, 102, 41), 30, (1217, 11), (897, 57), (606, 9)),
        (Path(77, 102, 97), 10, (335, 7), (637, 40), (207, 2)),
        (Path(77, 102, 97), 30, (659, 11), (750, 50), (401, 3.5)),
        (Path(20, 150, 20), 4, (941, 11), (965, 45), (338, 6)),
        (Path(20, 150, 20), 30, (2496, 12), (1841, 67), (1428, 18)),
    ):
        found.append(Point(path, "default", 10, None, at_once, *default))
        found.append(Point(path, "each at the rate", 200, at_once * _rate(path), at_once, *each))
        found.append(Point(path, "rate divided", 200, _rate(path), at_once, *lately))
    return found


def _beside_bulk() -> list[Point]:
    """Default; paced without a cap; at the path's rate; at an equal share of it. 100 segments."""
    found = []
    for path, times in (
        (Path(50, 102, 41, 1), (317, 139, 124, 132)),
        (Path(50, 102, 41, 4), (320, 142, 239, 177)),
        (Path(77, 102, 97, 4), (314, 134, 120, 151)),
        (Path(20, 90, 333, 1), (799, 344, 324, 331)),
        (Path(20, 90, 333, 4), (829, 344, 313, 453)),
    ):
        ways = (
            ("default", 10, None),
            ("100 paced", 100, NO_RATE),
            ("100 at rate", 100, _rate(path)),
            ("100 at its share", 100, _rate(path) / (path.flows + 1)),
        )
        found += [Point(path, *way, 1, ms, None) for way, ms in zip(ways, times, strict=True)]
    return found


POINTS = (*_alone(), *_together(), *_beside_bulk())
Row = tuple[Point, float, float, float]


def rows() -> list[Row]:
    """Each point with the model's time in ms, its segments sent again, and the error as a share of what was
    measured."""
    found = []
    for one in POINTS:
        ms, resent = completion(one.path, one.size, one.window, one.rate, one.at_once)
        found.append((one, ms, resent, ms / one.ms - 1.0))
    return found


def median_error(found: list[Row]) -> float:
    return median(abs(error) for *_, error in found)


def table(found: list[Row]) -> str:
    """Markdown, the worst first."""
    lines = ["| point | measured ms (sent again) | model ms (sent again) | error |", "|---|---:|---:|---:|"]
    for one, ms, resent, error in sorted(found, key=lambda row: -abs(row[3])):
        again = "" if one.resent is None else f" ({one.resent:g})"
        lines.append(f"| {one.name} | {one.ms:g}{again} | {ms:.0f} ({resent:.1f}) | {error:+.0%} |")
    return "\n".join(lines)
