"""The demo's report: one HTML page without outside references. The answer comes first, then a CDF for each RTT group
and object size, and what got worse."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from springtide.pages import render

from lab.demo.summary import QUANTILES, Group, Phase

BEFORE, AFTER = "#222222", "#3fa9d6"
# Share of the segments, and of the time; and probes of a phase. Less is chance.
MORE_AGAIN, SLOWER, LEAST_PROBES = 0.002, 0.01, 5

NOTHING = f"no path and no group is clearly slower, nor sends {100 * MORE_AGAIN:g} points more again, nor lost probes"


def kilobytes(size_bytes: int) -> str:
    """10000 -> '10 KB'."""
    return f"{size_bytes / 1000:g} KB"


def start_text(row: Mapping[str, Any]) -> str:
    """Start values of a pair's connections, from `pairs` of summary.json: `88`, or paced `88 at 45M`."""
    rate = row["connection_rate"] or row["start_rate"]
    window = "default" if row["initcwnd"] is None else str(row["initcwnd"])
    return window if rate is None else f"{window} at {rate / 125_000:.3g}M"


def figure(before: Phase, after: Phase) -> str:
    """CDFs of transfer time as inline SVG, one a size and RTT (the paper's Figures 12 to 14), each of which a telephone
    shows whole. Dashes lie over the line, so that neither hides the other, in grey as well."""
    rtts = sorted({transfer.rtt_ms for transfer in before.transfers})
    sizes = sorted({transfer.size_bytes for transfer in before.transfers})
    return "".join(_panel(before, after, rtt_ms, size_bytes) for rtt_ms in rtts for size_bytes in sizes)


def _panel(before: Phase, after: Phase, rtt_ms: float, size_bytes: int) -> str:
    # Imported here: it takes seconds, and `--help` should not.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Ids within the page are made of the salt.
    salt = f"{rtt_ms:g} {size_bytes}"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.family": "sans-serif", "font.size": 10}):
        picture = Figure(figsize=(4.4, 2.7), layout="constrained")
        panel = picture.subplots()
        for phase, label, colour, width, dashes in (
            (after, "after", AFTER, 2.6, "solid"),
            (before, "before", BEFORE, 1.6, "dashed"),
        ):
            times = sorted(
                transfer.transfer_ms
                for transfer in phase.transfers
                if transfer.rtt_ms == rtt_ms and transfer.size_bytes == size_bytes
            )
            if times:
                panel.ecdf(times, label=label, color=colour, linewidth=width, linestyle=dashes)
        panel.set_title(f"RTT {rtt_ms:g} ms, {kilobytes(size_bytes)}", fontsize=11, loc="left")
        panel.set_xlim(left=0)
        panel.grid(alpha=0.25)
        panel.set_xlabel("request to last byte, ms")
        panel.set_ylabel("share of probes")
        # Beside the panel: within it, it would hide a curve.
        picture.legend(loc="outside upper right", ncols=2, frameon=False)
        out = io.StringIO()
        picture.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue().partition("<svg")[1] + out.getvalue().partition("<svg")[2]


def answer(groups: Sequence[Group]) -> str:
    """The demo's finding, in one sentence: `groups` are not empty."""
    share = median((group.after["p50"] - group.before["p50"]) / group.before["p50"] for group in groups)
    word = "less" if share <= 0 else "more"
    best = max(groups, key=lambda group: group.before["p50"] - group.after["p50"])
    return (
        f"Fresh connections took {abs(share):.0%} {word} time (the middle of all groups of RTT and object size, "
        f"{len(groups)} in number): {kilobytes(best.size_bytes)} over {best.rtt_ms:g} ms, for one, "
        f"{best.after['p50']:.0f} ms instead of {best.before['p50']:.0f}."
    )


def losses(probes: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> list[str]:
    """A sentence for each path (of `probes` of summary.json) and group that is slower, or that sent more again. Slower
    is a quantile by more than a hundredth, as the interval of the difference says. One more for each path on which
    fewer probes came back."""
    paths = {(row["src"], row["dst"]) for row in probes}
    found = []
    for row in probes:
        name = f"{row['src']} to {row['dst']}, {kilobytes(row['size_bytes'])}"
        was, now = row["before_ms"], row["after_ms"]
        found += _slower(name, was, now, row["slower_ms"])
        found += _again(name, row["retransmit_before"], row["retransmit_after"])
        if now["n"] < was["n"]:
            found.append(f"{name}: {now['n']} probes came back instead of {was['n']}: the others failed.")
    # A group of one path has been named.
    if len(paths) > len({one.rtt_ms for one in groups}):
        for group in groups:
            name = f"RTT {group.rtt_ms:g} ms, {kilobytes(group.size_bytes)}"
            found += _slower(name, group.before, group.after, group.slower)
            found += _again(name, group.retransmitted_before, group.retransmitted_after)
    return found


def _again(name: str, before: float, after: float) -> list[str]:
    why = "several that started together filled a queue there, or it loses by itself"
    return [f"{name}: {after:.2%} sent again instead of {before:.2%}; {why}."] if after - before > MORE_AGAIN else []


def _slower(
    name: str, before: Mapping[str, float], after: Mapping[str, float], slower: Mapping[str, Mapping[str, float]]
) -> list[str]:
    return [
        f"{name}: {quantile} {after[quantile]:.0f} ms instead of {before[quantile]:.0f} "
        f"({by['low']:.0f} to {by['high']:.0f} ms slower, 95 %)."
        for quantile, by in slower.items()
        if by["low"] > SLOWER * before[quantile] and min(before["n"], after["n"]) >= LEAST_PROBES
    ]


def _tables(
    groups: Sequence[Group], decisions: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
    """Each table's title, head and rows."""
    yield (
        "By RTT and object size (times in ms)",
        (
            *("RTT ms", "object", "p50 before", "p50 after", "p90 before", "p90 after", "p95 before", "p95 after"),
            *("RTTs saved", "retransmitted before", "after"),
        ),
        [
            [f"{group.rtt_ms:g}", kilobytes(group.size_bytes)]
            + [f"{phase[name]:.0f}" for name in ("p50", "p90", "p95") for phase in (group.before, group.after)]
            + [f"{group.rtts_saved_p50:.2f}"]
            + [f"{share:.2%}" for share in (group.retransmitted_before, group.retransmitted_after)]
            for group in groups
        ],
    )
    yield (
        "By path, beside the limit: a round trip, and the object at the path's rate",
        (
            *("from", "to", "object", "start", "by", "limit ms", "p50 before", "p50 after", "ratio to limit"),
            *("sent again before", "sent again after"),
        ),
        [
            [row["src"], row["dst"], kilobytes(row["size_bytes"]), start_text(row), row["enforced_by"]]
            + [f"{time_ms:.0f}" for time_ms in (row["limit_ms"], row["before_ms"]["p50"], row["after_ms"]["p50"])]
            + ["" if row["ratio_limit"] is None else f"{row['ratio_limit']:.2f}"]
            + [f"{share:.2%}" for share in (row["retransmit_before"], row["retransmit_after"])]
            for row in summary["pairs"]
        ],
    )
    yield (
        "What changed by path: negative is faster",
        ("from", "to", "object", *(f"{name} slower by, ms (95 %)" for name in QUANTILES)),
        [
            [row["src"], row["dst"], kilobytes(row["size_bytes"])]
            + [
                f"{by['estimate']:.0f} ({by['low']:.0f} to {by['high']:.0f})"
                for by in (row["slower_ms"][name] for name in QUANTILES)
            ]
            for row in summary["probes"]
        ],
    )
    yield (
        "What was decided, and why",
        ("from", "to", "initcwnd", "connections that earned it", "reason"),
        [
            [row["src_pop"], row["dst_pop"], str(row["value"] or "default"), str(row["evidence"]), row["reason"]]
            for row in decisions
        ],
    )


def page(
    before: Phase,
    after: Phase,
    groups: Sequence[Group],
    decisions: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
) -> str:
    """The whole page as text."""
    return render(
        __file__,
        summary=summary,
        answer=answer(groups),
        figure=figure(before, after),
        losses=losses(summary["probes"], groups),
        nothing=NOTHING,
        cells=len(summary["probes"]) * len(QUANTILES),
        tables=_tables(groups, decisions, summary),
    )
