"""Cost of loss on each path, as measured (sql/analysis/loss-cost.sql), and the saving of a timeout of its own for
handshakes, as estimated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from springtide.laws.recovery.interface import RECOVERY
from springtide.learn.questions import question
from springtide.policy import Policy
from springtide.store import Row, Store

# As many paths as `springtide advise` looks at.
MAX_PATHS = 5000
SHOWN = 10
KERNEL_MS = 1000
COLUMNS = (
    *("from", "to", "IP", "closed", "lossy", "times slower", "cost", "by timeout", "in vain"),
    *("handshakes", "sent again", "waited", "timeout (est.)", "saves (est.)", "for each (est.)"),
)
NARROW = ("from", "to", "lossy", "times slower", "cost", "waited", "saves (est.)")
KEY = (
    "Lossy: of the closed connections those that lost something. Times slower, cost: beside those of the same path "
    "and size without loss. By timeout: lossy ones with a retransmission timeout. In vain: of the segments sent again "
    "those that had arrived. Handshakes: of edges' records. Est.: estimated, all else is measured: the path's own "
    "timeout, and what it would save in all and for each handshake."
)
NO_TIMEOUT = (
    "Estimated: nothing. No path showed the law of recovery as many handshakes as it asks for (edges that enforce by "
    "bpf record them, `springtide rollup` counts them)."
)


@dataclass(frozen=True)
class Losses:
    """Rows of the query: all connections together, and paths with enough of them, the worst first. Each has
    `handshake_timeout_ms` (0 is the kernel's second) and `saved_s`, which are estimates."""

    total: Row
    paths: list[Row]

    @property
    def bettered(self) -> list[Row]:
        """The paths that would have a timeout of their own."""
        return [path for path in self.paths if path["handshake_timeout_ms"]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "all": _for_machines(self.total),
            "paths": [_for_machines(path) for path in self.paths[:SHOWN]],
            "paths_known": len(self.paths),
            "paths_with_timeout": len(self.bettered),
            "handshakes_with_timeout": sum(path["handshake_count"] for path in self.bettered),
        }

    def table(self) -> list[dict[str, str]]:
        """All together, and the worst paths: cells by COLUMNS."""
        return [_cells(row) for row in (self.total, *self.paths[:SHOWN])]

    def lines(self) -> Iterator[str]:
        """Say in sentences what was measured, then what is estimated."""
        if self.total["connection_count"]:
            yield _measured(self.total)
        if self.total["handshake_count"]:
            yield _waited(self.total)
            yield self._estimated() if self.bettered else NO_TIMEOUT

    def _estimated(self) -> str:
        count = sum(path["handshake_count"] for path in self.bettered)
        saved = self.total["saved_s"]
        return (
            f"Estimated: with timeouts of their own (`recovery: {{handshake: true}}`) {len(self.bettered)} paths with "
            f"{count:,} of these handshakes would wait {saved:,.1f} s less, {1000 * saved / count:.2f} ms a connection "
            "in the mean, if all had it; one in ten keeps the second."
        )


def losses(store: Store, policy: Policy, since_unix_s: int, until_unix_s: int) -> Losses:
    """From samples with since < time <= until; what would be saved, by the rounds before `until`. Raises StoreError."""
    asked = question("loss-cost")
    span = {"hours": repr((until_unix_s - since_unix_s) / 3600), "until_s": str(until_unix_s)}
    total, *paths = store.query(asked.sql, asked.values({**span, "top": str(MAX_PATHS + 1)}))
    timeouts = RECOVERY.would_give(store, policy, until_unix_s - until_unix_s % policy.round.interval_s)
    for path in paths:
        own_ms = timeouts.get((path["src_pop"], path["destination"], path["ip_version"]), 0)
        # A SYN-ACK waits a third longer, no longer than the kernel's (edge/bpf/before.h). Which of the two was sent
        # again is not recorded, so the longer counts.
        saved_ms = max(KERNEL_MS - own_ms - own_ms // 3, 0) if own_ms else 0
        path |= {"handshake_timeout_ms": own_ms, "saved_s": round(path["second_count"] * saved_ms / 1000, 3)}
    total |= {"handshake_timeout_ms": 0, "saved_s": round(sum(path["saved_s"] for path in paths), 3)}
    return Losses(total, paths)


def _for_machines(row: Row) -> dict[str, Any]:
    estimates = ("handshake_timeout_ms", "saved_s")
    measured = {name: value for name, value in row.items() if name not in estimates}
    return {**measured, "estimated": {name: row[name] for name in estimates}}


def _measured(row: Row) -> str:
    text = f"Measured: {row['lossy_percent']} % of {row['connection_count']:,} connections that closed lost something."
    if row["times_slower"] is not None:
        text += (
            f" They took {row['times_slower']:.2f} times as long as those of the same path and size that lost nothing: "
            f"{row['cost_s']:,.1f} s in all, {row['cost_percent']} % of the time with data outstanding."
        )
    if row["timeout_percent"] is not None:
        text += (
            f" {row['timeout_percent']} % of them waited for a retransmission timeout; from the first to the end of "
            f"the repair took {row['timeout_s']:,.1f} s in all."
        )
    if row["in_vain_percent"] is not None:
        text += f" Of the segments sent again {row['in_vain_percent']} % had arrived (D-SACK)."
    return text


def _waited(row: Row) -> str:
    return (
        f"Measured: {row['handshake_again_count']:,} of {row['handshake_count']:,} recorded handshakes were sent again "
        f"and waited {row['handshake_wait_s']:.1f} s in all, at least: a second each time, or the path's own timeout."
    )


def _cells(row: Row) -> dict[str, str]:
    def shown(name: str, form: str) -> str:
        return "-" if row[name] is None else form.format(row[name])

    own_ms, count, is_all = row["handshake_timeout_ms"], row["handshake_count"], not row["src_pop"]
    saves = count and (own_ms or is_all)
    return {
        "from": row["src_pop"] or "all",
        "to": row["destination"],
        "IP": "" if is_all else f"v{row['ip_version']}",
        "closed": f"{row['connection_count']:,}",
        "lossy": shown("lossy_percent", "{:.2f} %"),
        "times slower": shown("times_slower", "{:.2f}"),
        "cost": shown("cost_s", "{:,.1f} s"),
        "by timeout": shown("timeout_percent", "{:.1f} %"),
        "in vain": shown("in_vain_percent", "{:.1f} %"),
        "handshakes": f"{count:,}",
        "sent again": f"{row['handshake_again_count']:,}",
        "waited": f"{row['handshake_wait_s']:,.1f} s",
        "timeout (est.)": f"{own_ms} ms" if own_ms else "-",
        "saves (est.)": f"{row['saved_s']:,.1f} s" if saves else "-",
        "for each (est.)": f"{1000 * row['saved_s'] / count:.2f} ms" if saves else "-",
    }
