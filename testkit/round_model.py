"""The round tables' definition as loops over rows, apart from the SQL that computes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from ipaddress import IPv6Address, IPv6Network
from statistics import median_low
from typing import Any

Sample = dict[str, Any]

INTERVAL = 300
WITH_DATA = {"ESTABLISHED", "FIN_WAIT1", "FIN_WAIT2", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "CLOSING"}
COUNTERS = {
    "bytes_acked": "bytes_acked",
    "bytes_sent": "bytes_sent",
    "bytes_retrans": "bytes_retransmitted",
    "bytes_received": "bytes_received",
    "busy_time": "busy_us",
    "rwnd_limited": "rwnd_limited_us",
    "sndbuf_limited": "sndbuf_limited_us",
}
KINDS = ("POLL", "CLOSE")
CLASSES = (10_000_000, 1_000_000, 300_000, 100_000, 30_000, 10_000, 0)
# The hosts that count, as testkit.home.FLEET has them, each with its PoP.
EDGES = {"ams-1": "ams", "ams-2": "ams", "fra-1": "fra", "nyc-1": "nyc"}
IDENTITY = ("host", "boot_id", "poll_sequence", "netns", "cookie", "kind")


def quantile(values: Iterable[tuple[int, int]], level: str) -> int | None:
    """The least value that, with those below it, has the share `level` of the weight."""
    ordered = sorted(values)
    need, reached = Fraction(level) * sum(weight for _, weight in ordered), 0
    for value, weight in ordered:
        reached += weight
        if reached >= need:
            return value
    return None


def ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def sockets(samples: Sequence[Sample], round_unix_s: int) -> list[Sample]:
    """Rows of round_sockets, sorted by host, namespace and cookie."""
    end = round_unix_s * 1_000_000
    start, oldest = end - INTERVAL * 1_000_000, end - 2 * INTERVAL * 1_000_000
    ours = [s for s in samples if s["host"] in EDGES]
    known = list({tuple(s[k] for k in IDENTITY): s for s in ours if oldest <= s["time_unix_us"] < end}.values())
    known.sort(key=lambda s: (s["time_unix_us"], s["kind"] == "CLOSE"))
    first_poll: dict[Any, Sample] = {}
    lives: dict[Any, list[Sample]] = defaultdict(list)
    for sample in known:
        namespace = sample["host"], sample["boot_id"], sample["netns"]
        if sample["kind"] == "POLL":
            first_poll.setdefault(namespace, sample)
        if sample["state"] in WITH_DATA and sample.get("bytes_sent") is not None:
            lives[(*namespace, sample["cookie"])].append(sample)
    result = []
    for (*namespace, _), records in sorted(lives.items()):
        within = [r for r in records if r["time_unix_us"] >= start]
        if within:
            result.append(_socket(records, within, first_poll.get(tuple(namespace))))
    return result


def _socket(records: list[Sample], within: list[Sample], first_poll: Sample | None) -> Sample:
    """Long: a socket's row, column after column."""
    before = records[: len(records) - len(within)]
    samples, first = len(within), within[0]["time_unix_us"]
    # The last record before the round or else the first one in it, the last poll's and the close's have all the rest.
    polled, closed = (max((r["time_unix_us"] for r in within if r["kind"] == kind), default=0) for kind in KINDS)
    moments = {before[-1]["time_unix_us"] if before else first, polled or first, closed}
    known = [r for r in records if r["time_unix_us"] in moments]
    within = [r for r in known if r["time_unix_us"] >= first]
    last = within[-1]
    polls = [r for r in within if r["kind"] == "POLL"]
    new = (
        not before
        and first_poll is not None
        and first_poll["time_unix_us"] < first
        and not (polls and polls[0]["poll_sequence"] == first_poll["poll_sequence"])
    )
    life, gained = {}, {}
    for column, name in COUNTERS.items():
        given = [r[column] for r in known if r[column] is not None]
        life[name] = max(given, default=0)
        gained[name] = life[name] - (0 if new else min(given, default=0))
    cwnd, mss = (last[name] or 0 for name in ("snd_cwnd", "snd_mss"))
    least_rtt = 0 if last["min_rtt"] in (None, 2**32 - 1) else last["min_rtt"]
    live = bool(polls) and polls[-1]["state"] == "ESTABLISHED"
    # A value that stays the same in a socket's life is the greatest that was sent.
    constant = {name: max(r[name] for r in within) for name in ("src_pop", "dst_pop")}
    # A host counts for the PoP that the fleet has it in.
    constant["pop"] = EDGES[last["host"]]
    if constant["src_pop"] != constant["pop"]:
        constant["src_pop"] = ""
    weight = max(1 if r["sample_weight"] is None else r["sample_weight"] for r in within)
    peer = max(within, key=lambda r: IPv6Address(r["dst_ip"]))["dst_ip"]
    mapped = IPv6Address(peer).ipv4_mapped is not None
    rates = {r["delivery_rate"] or 0 for r in known}
    fresh = (last["delivery_rate"] or 0) > 0 and (new or len(rates) > 1)
    at_the_limit = fresh and not last["delivery_rate_app_limited"] and _in_flight(last)
    proved = _proved(last, gained, least_rtt, fresh=fresh, at_the_limit=at_the_limit) if live else 0
    twice, timeouts, again = max(
        (r["dsack_dups"] or 0, r["total_rto"] or 0, (r["total_retrans"] or 0) > 0) for r in known
    )
    handshake = again and not life["bytes_retransmitted"]
    unique = max(0, life["bytes_sent"] - life["bytes_retransmitted"])
    algorithms = [r["congestion_algorithm"] for r in known if r["congestion_algorithm"] is not None]
    return {
        **{name: last[name] for name in ("host", "boot_id", "netns", "cookie")},
        **constant,
        "ip_version": 4 if mapped else 6,
        "client_prefix": str(IPv6Network((peer, 120 if mapped else 56), strict=False).network_address.exploded),
        "congestion_algorithm": (algorithms or [""])[-1],
        "sample_weight": min(65535, max(1, weight)),
        "samples": samples,
        "live": live,
        "closed": closed > 0,
        "earned": proved > 0 and gained["bytes_acked"] >= proved * mss and (proved >= 10 or at_the_limit),
        # Nothing is published here: each began with the kernel's default.
        "young": closed > 0 and life["bytes_sent"] > 0 and unique <= 2 * 10 * mss and not handshake,
        "app_limited": bool(last["delivery_rate_app_limited"]),
        "snd_cwnd": cwnd,
        "snd_mss": mss,
        "snd_ssthresh": last["snd_ssthresh"] or 0,
        "snd_wnd": last["snd_wnd"] or 0,
        "rtt_us": last["rtt"] or 0,
        "min_rtt_us": least_rtt,
        "delivery_rate_bytes_per_s": last["delivery_rate"] or 0,
        **gained,
        **{f"life_{name}": life[name] for name in ("bytes_acked", "bytes_sent", "bytes_retransmitted", "busy_us")},
        "proved_cwnd": proved,
        "start_cwnd": 10,
        "life_bytes_lost": max(0, life["bytes_retransmitted"] - twice * mss),
        "life_timeouts": timeouts,
        "began": new,
        "fresh_rate": fresh,
        "recorded": any(r.get("started_round") is not None for r in within),
    }


def _in_flight(last: Sample) -> bool:
    """Whether the rate fills at least half of the window in a smoothed round trip: less is the end of an answer."""
    window = (last["snd_cwnd"] or 0) * (last["snd_mss"] or 0)
    return Fraction((last["delivery_rate"] or 0) * (last["rtt"] or 0), 1_000_000) >= Fraction(window, 2)


def _proved(last: Sample, gained: Sample, least_rtt: int, *, fresh: bool, at_the_limit: bool) -> int:
    """Segments that a round trip carried, at most what losses left of the window; 0 where it is unknown."""
    rate, rtt, mss = last["delivery_rate"] or 0, last["rtt"] or 0, last["snd_mss"] or 0
    if not mss:
        return 0
    in_a_burst = min(max(rtt, least_rtt), 2 * least_rtt)
    if fresh:
        carried = Fraction(rate * (least_rtt if at_the_limit else in_a_burst), 1_000_000)
    elif gained["busy_us"] and (
        rtt > 2 * least_rtt or Fraction(gained["bytes_acked"] * 10**6, gained["busy_us"]) >= Fraction(rate, 2)
    ):
        carried = Fraction(gained["bytes_acked"] * in_a_burst, gained["busy_us"])
    else:
        return 0
    window = max(last["snd_cwnd"] or 0, last["snd_ssthresh"] or 0)
    return min(window, -(-int(carried) // mss), 2**30 // mss)


def _groups(rows: Iterable[Sample], *keys: str) -> list[tuple[tuple[Any, ...], list[Sample]]]:
    found: dict[tuple[Any, ...], list[Sample]] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return sorted(found.items())


def _weighted(rows: Iterable[Sample], name: str) -> list[tuple[int, int]]:
    return [(row[name], row["sample_weight"]) for row in rows if row[name] > 0]


def pairs(rows: Sequence[Sample]) -> list[Sample]:
    """Rows of round_pairs for these sockets, without sketches."""
    between = [r for r in rows if r["src_pop"] and r["dst_pop"] and r["src_pop"] != r["dst_pop"]]
    result = []
    for (src, dst, version), members in _groups(between, "src_pop", "dst_pop", "ip_version"):
        earned = [r for r in members if r["earned"]]
        young = [r for r in members if r["young"]]
        windows = [one for each in _held(earned) for one in each]
        young_rows = [r for r in young if r["snd_wnd"] and r["snd_mss"]]
        rtts = _weighted((r for r in members if r["bytes_acked"]), "rtt_us")
        receivers = _weighted((r for r in members if r["live"]), "snd_wnd")
        cwnd_sum, weight = _combined(earned, lambda r: r["sample_weight"])
        traffic_sum, traffic = _combined(earned, lambda r: r["bytes_acked"] * r["sample_weight"])
        young_seen, young_lossy, young_timeouts = _young(young)
        totals = {name: sum(r[name] for r in members) for name in COUNTERS.values()}
        result.append(
            {
                "src_pop": src,
                "dst_pop": dst,
                "ip_version": version,
                "hosts": len({r["host"] for r in members}),
                "connections_seen": sum(r["live"] for r in members),
                "connections_earned": len(earned),
                "connections_closed": sum(r["closed"] for r in members),
                "cwnd_sum": cwnd_sum,
                "cwnd_weight": weight,
                "mean_cwnd": ratio(cwnd_sum, weight),
                "min_cwnd": min((c for c, _ in windows), default=None),
                "max_cwnd": max((c for c, _ in windows), default=None),
                "traffic_cwnd": ratio(traffic_sum, traffic),
                **{f"cwnd_p{p}": quantile(windows, f"0.{p}") for p in (10, 25, 50, 75, 90)},
                **{f"rtt_p{p}_us": quantile(rtts, f"0.{p}") for p in (10, 50, 90)},
                "min_rtt_us": min((r["min_rtt_us"] for r in members if r["min_rtt_us"]), default=None),
                **{f"rwnd_p{p}_bytes": quantile(receivers, f"0.{p}") for p in (10, 50)},
                **totals,
                "retransmit_ratio": ratio(totals["bytes_retransmitted"], totals["bytes_sent"]),
                "young_connections": young_seen,
                "young_lossy_connections": young_lossy,
                "young_timeout_connections": young_timeouts,
                "young_rwnd_p50": quantile(
                    [one for each in _thinned(young_rows, lambda r: r["snd_wnd"] // r["snd_mss"]) for one in each],
                    "0.5",
                ),
            }
        )
    return result


def _by_host(rows: Iterable[Sample]) -> list[list[Sample]]:
    return [members for _, members in _groups(rows, "host")]


def _at_most_the_others(weights: list[int]) -> list[int]:
    """Weights of three or more: each at most as much as the others together."""
    counting = sum(weight > 0 for weight in weights)
    return weights if counting < 3 else [min(weight, sum(weights) - weight) for weight in weights]


def _mean(rows: Sequence[Sample], weigh: Callable[[Sample], int]) -> float:
    return float(sum(r["proved_cwnd"] * weigh(r) for r in rows)) / sum(map(weigh, rows))


def _held_means(parts: Sequence[Sequence[Sample]], weigh: Callable[[Sample], int]) -> list[tuple[float, float]]:
    """Each host's mean window, and what of it counts: no less than half and no more than twice the middle one."""
    means = [_mean(rows, weigh) for rows in parts]
    middle = median_low(means)
    return [(mean, min(max(mean, middle / 2), middle * 2)) for mean in means]


def _combined(earned: Sequence[Sample], weigh: Callable[[Sample], int]) -> tuple[int, int]:
    """Sum of windows by weight, and of weights, with every host held."""
    parts = [rows for rows in _by_host(earned) if sum(map(weigh, rows))]
    if not parts:
        return 0, 0
    weights = [sum(map(weigh, rows)) for rows in parts]
    total = 0
    for rows, weight, most, (mean, held) in zip(
        parts, weights, _at_most_the_others(weights), _held_means(parts, weigh), strict=True
    ):
        exact = sum(r["proved_cwnd"] * weigh(r) for r in rows)
        total += exact if (mean, weight) == (held, most) else round(held * most)
    return total, sum(_at_most_the_others(weights))


def _thinned(
    rows: Sequence[Sample], value: Callable[[Sample], int], scales: Sequence[tuple[float, float]] | None = None
) -> list[list[tuple[int, int]]]:
    """Values and weights by host; of one that is held, the middles of as many equal parts, alike in weight."""
    parts = _by_host(rows)
    weights = [sum(r["sample_weight"] for r in part) for part in parts]
    result = []
    for at, (part, weight, most) in enumerate(zip(parts, weights, _at_most_the_others(weights), strict=True)):
        mean, held = scales[at] if scales else (1.0, 1.0)
        listed = sorted((value(r), r["sample_weight"]) for r in part)
        if (weight, mean) == (most, held):
            result.append(listed)
            continue
        kept = min(len(listed), most)
        chosen = [listed[(2 * n + 1) * len(listed) // (2 * kept)][0] for n in range(kept)]
        result.append([(round(one * held / mean), min(65535, most // kept)) for one in chosen])
    return result


def _held(earned: Sequence[Sample]) -> list[list[tuple[int, int]]]:
    if not earned:
        return []
    scales = _held_means(_by_host(earned), lambda r: r["sample_weight"])
    return _thinned(earned, lambda r: r["proved_cwnd"], scales)


def _young(young: Sequence[Sample]) -> tuple[int, int, int]:
    """Young connections, those that lost anything and those with a timeout; each host's at most as many as others'."""
    parts = _by_host(young)
    seen = _at_most_the_others([len(part) for part in parts])
    totals = [sum(seen)]
    for name in ("life_bytes_lost", "life_timeouts"):
        harmed = [sum(r[name] > 0 for r in part) for part in parts]
        totals.append(sum(-(-a * c // len(part)) for a, c, part in zip(harmed, seen, parts, strict=True)))
    return totals[0], totals[1], totals[2]


def prefixes(rows: Sequence[Sample]) -> list[Sample]:
    """Rows of round_prefixes for these sockets, without sketches."""
    active = [{**r, "at": r["pop"]} for r in rows if r["bytes_acked"]]
    result = []
    for key, members in _groups(active, "at", "ip_version", "client_prefix", "congestion_algorithm"):
        sent, lost = (sum(r[name] for r in members) for name in ("bytes_sent", "bytes_retransmitted"))
        rates = _weighted(members, "delivery_rate_bytes_per_s")
        rtts = _weighted(members, "rtt_us")
        losses = [
            (r["bytes_retransmitted"] * 1_000_000 // r["bytes_sent"], r["sample_weight"])
            for r in members
            if r["bytes_sent"]
        ]
        sizes = _weighted(members, "bytes_acked")
        result.append(
            {
                **dict(zip(("pop", "ip_version", "client_prefix", "congestion_algorithm"), key, strict=True)),
                "dst_pop": max(r["dst_pop"] for r in members),
                "only_host": members[0]["host"] if len({r["host"] for r in members}) == 1 else "",
                "connections": len(members),
                "samples": sum(r["samples"] for r in members),
                "app_limited_connections": sum(r["app_limited"] for r in members),
                "bytes_acked": sum(r["bytes_acked"] for r in members),
                "bytes_sent": sent,
                "bytes_retransmitted": lost,
                "retransmit_ratio": ratio(lost, sent),
                **{f"delivery_rate_p{p}_bytes_per_s": quantile(rates, f"0.{p}") for p in (10, 50, 90)},
                **{f"rtt_p{p}_us": quantile(rtts, f"0.{p}") for p in (10, 50, 90)},
                **{f"loss_p{p}": None if not losses else (quantile(losses, f"0.{p}") or 0) / 1e6 for p in (50, 90)},
                **{f"bytes_p{p}": quantile(sizes, f"0.{p}") for p in (50, 90)},
            }
        )
    return result


def outcomes(rows: Sequence[Sample]) -> list[Sample]:
    """Rows of round_outcomes for these sockets, without sketches."""
    closed = [
        {**r, "class": next(c for c in CLASSES if r["life_bytes_acked"] >= c)}
        for r in rows
        if r["closed"] and r["life_bytes_acked"]
    ]
    result = []
    for key, members in _groups(closed, "host", "src_pop", "dst_pop", "ip_version", "class"):
        times = _weighted(members, "life_busy_us")
        result.append(
            {
                **dict(zip(("host", "src_pop", "dst_pop", "ip_version", "size_class_bytes"), key, strict=True)),
                "connections": len(members),
                "retransmitting_connections": sum(r["life_bytes_retransmitted"] > 0 for r in members),
                "lossy_connections": sum(r["life_bytes_lost"] > 0 for r in members),
                "timeout_connections": sum(r["life_timeouts"] > 0 for r in members),
                "bytes_acked": sum(r["life_bytes_acked"] for r in members),
                "bytes_sent": sum(r["life_bytes_sent"] for r in members),
                "bytes_retransmitted": sum(r["life_bytes_retransmitted"] for r in members),
                "busy_sum_us": sum(r["life_busy_us"] for r in members),
                **{f"busy_p{p}_us": quantile(times, f"0.{p}") for p in (50, 90, 99)},
            }
        )
    return result
