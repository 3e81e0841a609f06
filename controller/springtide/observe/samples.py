"""Conditions that a sample must meet to fit tcp_samples, as the engine's expressions.

Samples are parsed as wide as the contract has them, judged, and only then narrowed, by expressions that cannot fail
whatever a row holds. In a view of a Kafka table a cast that fails stops all intake, the rows beside it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from springtide.store import Store

# Longer than any name of the kernel's, a fleet's or a host's.
TEXT_BYTES = 255
# Days that rows of a file may lie before or after now. A day is a partition, each of which costs an insert 25 ms: a
# record of samples of every possible day would cost hours.
FILE_DAYS = 3650
# The same for a topic, which nobody looks at before it is loaded. Fewer partitions than a server's limit for one
# insert (max_partitions_per_insert_block: 100), whose failure would stop the consumer.
TOPIC_DAYS_BEFORE, TOPIC_DAYS_AFTER = 90, 1
DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Samples:
    """tcp_samples as SQL: `structure` is parsed; `problem` is why a row is invalid, empty for a valid one. `select`
    turns a row that fits into columns of `table`; `shown` turns any row into a JSON object."""

    table: str
    select: str
    structure: str
    problem: str
    shown: str


def samples(store: Store, earliest_us: str, latest_us: str) -> Samples:
    """For rows between two instants, expressions in microseconds since 1970.

    Columns with a default are the engine's to set: from fleet.yaml and the table of autonomous systems.
    """
    rows = store.query(
        "select name, type from system.columns "
        "where database = currentDatabase() and table = 'tcp_samples' and default_kind = '' order by position"
    )
    columns = [_Column(row["name"], row["type"]) for row in rows]
    time = f"time_unix_us not between {earliest_us} and {latest_us}, 'time_unix_us: is too far from now'"
    nobody = "host = '', 'host: is empty'"
    problems = [time, nobody, *(problem for column in columns for problem in column.problems())]
    shown = ", ".join(column.shown() for column in columns)
    named = ", ".join(f"{column.name} {column.parsed()}" for column in columns).replace("'", "''")
    return Samples(
        table=f"tcp_samples ({', '.join(column.name for column in columns)})",
        select="select " + ", ".join(f"{column.value()} as {column.name}" for column in columns),
        structure=", ".join(f"{column.name} {column.parsed()}" for column in columns),
        problem=f"multiIf({', '.join(problems)}, '')",
        shown=f"toJSONString(cast(tuple({shown}), 'Tuple({named})'))",
    )


def of_files(store: Store, now_s: float) -> Samples:
    """For files that an operator loads."""
    now_us, days = int(now_s) * 1_000_000, FILE_DAYS * DAY_US
    return samples(store, str(now_us - days), str(now_us + days))


def of_topics(store: Store) -> Samples:
    """For a topic that is consumed continuously; the engine's clock decides, block by block."""
    now_us = "toUnixTimestamp(now()) * 1000000"
    return samples(store, f"{now_us} - {TOPIC_DAYS_BEFORE * DAY_US}", f"{now_us} + {TOPIC_DAYS_AFTER * DAY_US}")


@dataclass(frozen=True)
class _Column:
    name: str
    type: str

    @property
    def _bare(self) -> str:
        return re.sub(r"^(?:LowCardinality\()?(?:Nullable\()?(.*?)\)*$", r"\1", self.type, flags=re.DOTALL)

    @property
    def _narrow(self) -> str | None:
        """UInt8 or UInt16: protobuf has neither."""
        return self._bare if self._bare in ("UInt8", "UInt16") else None

    @property
    def _numbers(self) -> str | None:
        """An enum's numbers, as a list: the contract's names carry prefixes that the table's do not."""
        return ", ".join(re.findall(r"= (-?\d+)", self.type)) if self.type.startswith("Enum8") else None

    def parsed(self) -> str:
        if self._numbers is not None:
            return "Int64"
        if self._narrow:
            return self.type.replace(self._narrow, "UInt32")
        return "String" if self.type == "IPv6" else self.type

    def problems(self) -> Iterator[str]:
        """Conditions with what is wrong where they hold; null is never wrong."""
        if self._numbers is not None:
            yield f"{self.name} not in ({self._numbers}), '{self.name}: is none of the contract''s values'"
        elif self._narrow:
            most = 2 ** int(self._narrow.removeprefix("UInt")) - 1
            yield f"ifNull({self.name} > {most}, false), '{self.name}: is over {most}'"
        elif self.type == "IPv6":
            yield f"length({self.name}) != 16, '{self.name}: is not 16 bytes'"
        elif self._bare == "String":
            too_long = f"length({self.name}) > {TEXT_BYTES}"
            no_text = rf"not isValidUTF8({self.name}) or match({self.name}, '[\\x00-\\x1f\\x7f]')"
            yield f"ifNull({too_long}, false), '{self.name}: is longer than {TEXT_BYTES} bytes'"
            yield f"ifNull({no_text}, false), '{self.name}: is not UTF-8 text of printable characters'"

    def value(self) -> str:
        """The value in a row that fits; guarded all the same: the engine may compute before it filters."""
        if self._numbers is not None:
            return f"cast(if({self.name} in ({self._numbers}), {self.name}, 0) as {self.type})"
        if self._narrow:
            return f"to{self._narrow}({self.name})"
        if self.type == "IPv6":
            return f"cast(toFixedString(if(length({self.name}) = 16, {self.name}, ''), 16) as IPv6)"
        return self.name

    def shown(self) -> str:
        return f"hex({self.name})" if self.type == "IPv6" else self.name
