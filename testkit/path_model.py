"""Computes what a round shows of each path, by loops over rows, apart from the SQL that does.

Long: one definition, as the SQL that it checks is one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from ipaddress import IPv6Address, IPv6Network
from statistics import median_low
from typing import Any

from testkit import round_model
from testkit.round_model import IDENTITY, INTERVAL, Sample, quantile

# PoP, destination, IP version.
Unit = tuple[str, str, int]
# A value and its weight.
Weighed = tuple[int, int]
Gave = Mapping[Unit, tuple[tuple[float, float, float], tuple[float, float, float]]]
NOTHING = (0.0, 0.0, 0.0)


@dataclass
class Host:
    """Evidence of one host on a unit: values by their names, and counts with their parts."""

    values: dict[str, list[Weighed]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0] * 4))
    began: int = 0
    starts: int = 0


def paths(samples: Sequence[Sample], round_unix_s: int, decided: Mapping[int, Gave]) -> dict[Unit, dict[str, Any]]:
    """Rows of round_paths without sketches, for each unit with a connection in the round. `decided`: what each earlier
    round's decisions gave units, for all and on trial."""
    hosts: dict[Unit, dict[str, Host]] = defaultdict(lambda: defaultdict(Host))
    for row in round_model.sockets(samples, round_unix_s):
        destination = row["dst_pop"] or _prefix(row["client_prefix"], row["ip_version"])
        if row["dst_pop"] and (not row["src_pop"] or row["src_pop"] == row["dst_pop"]):
            continue
        _socket(hosts[row["pop"], destination, row["ip_version"]][row["host"]], row)
    flights: dict[tuple[Unit, str], list[Sample]] = defaultdict(list)
    for unit, record in _flights(samples, round_unix_s):
        flights[unit, record["host"]].append(record)
    for (unit, name), records in flights.items():
        for record in records:
            if rate := _train(record):
                hosts[unit][name].values["train"].append((rate, 1))
            _flight(hosts[unit][name], unit, record, records, decided, round_unix_s)
    together = _together(samples, round_unix_s)
    return {unit: combined(of, together.get(unit, [])) for unit, of in hosts.items()}


def _prefix(address: str, version: int) -> str:
    first = IPv6Address(address)
    return f"{first.ipv4_mapped}/24" if version == 4 else f"{first}/56"


def _socket(host: Host, row: Sample) -> None:
    weight, again = row["sample_weight"], row["life_bytes_retransmitted"]
    host.began += row["began"]
    host.starts += weight * row["began"]
    rate = row["delivery_rate_bytes_per_s"]
    window = row["snd_cwnd"] * row["snd_mss"]
    in_flight = 2 * rate * row["rtt_us"] >= window * 10**6
    full = row["fresh_rate"] and not row["app_limited"] and row["bytes_acked"] and rate and in_flight
    left_slow_start = 0 < row["snd_ssthresh"] < 2**31 - 1
    if full and (left_slow_start or again > 0 or row["life_bytes_acked"] >= 10**6):
        host.values["share"].append((rate, weight))
    reached = rate if full else 0
    if row["bytes_acked"] >= 100_000 and row["busy_us"]:
        reached = max(reached, row["bytes_acked"] * 10**6 // row["busy_us"])
    if reached:
        host.values["reached"].append((reached, weight))
    for name in ("min_rtt_us", "rtt_us", "snd_mss"):
        if row["bytes_acked"] and row[name]:
            host.values[name].append((row[name], weight))
    if row["young"] and row["snd_wnd"]:
        host.values["snd_wnd"].append((row["snd_wnd"], weight))


def _unit(sample: Sample) -> Unit | None:
    pop = round_model.EDGES[sample["host"]]
    mapped = IPv6Address(sample["dst_ip"]).ipv4_mapped is not None
    if sample["dst_pop"]:
        known = sample["src_pop"] == pop and sample["dst_pop"] != pop
        return (pop, sample["dst_pop"], 4 if mapped else 6) if known else None
    network = IPv6Network((sample["dst_ip"], 120 if mapped else 56), strict=False)
    return pop, _prefix(str(network.network_address), 4 if mapped else 6), 4 if mapped else 6


def _within(samples: Sequence[Sample], round_unix_s: int, kind: str) -> list[Sample]:
    """Samples of known hosts, each once."""
    known = {
        tuple(s[k] for k in IDENTITY): s
        for s in samples
        if s["kind"] == kind
        and s["host"] in round_model.EDGES
        and (round_unix_s - INTERVAL) * 10**6 <= s["time_unix_us"] < round_unix_s * 10**6
    }
    return list(known.values())


def _flights(samples: Sequence[Sample], round_unix_s: int) -> Iterable[tuple[Unit, Sample]]:
    for record in _within(samples, round_unix_s, "FIRST_FLIGHT"):
        unit = _unit(record)
        if unit is not None:
            yield unit, record


def _flight(
    host: Host, unit: Unit, record: Sample, records: Sequence[Sample], decided: Mapping[int, Gave], round_unix_s: int
) -> None:
    arm = record["started_arm"]
    before = [moment for moment in decided if moment <= record["started_round"]]
    gave, gives = (
        decided[max(moments)].get(unit, (NOTHING, NOTHING))[arm] if moments else NOTHING
        for moments in (before, decided)
    )
    was_given = bool(record["started_window"] or record["started_rate"])
    resent = record["first_flight_retrans"] or 0
    segments = record.get("first_flight_segs")
    if segments is None:
        segments = max(0, record["data_segs_out"] - max(0, record["total_retrans"] - resent))
    is_long = not record["started_step"] and segments - min(segments, resent, record["total_retrans"]) > 10
    if gave != gives or was_given != (gives[0] > 0) or (arm == 1 and not gives[0]):
        began_us = record["time_unix_us"] - (record["lived_time"] or 0)
        is_unnamed = record["started_prefix_length"] == 0 and not was_given and arm == 0
        if is_long and is_unnamed and began_us >= (round_unix_s - 3600) * 10**6:
            host.counts["default"][0] += 1
            host.counts["default"][1] += resent > 0
        return
    host.counts["judged"][0] += 1
    host.counts["judged"][1] += record["started_step"] > 0
    if not is_long:
        return
    counts = host.counts[f"arm {arm}"]
    counts[0] += 1
    counts[1] += record["first_flight_retrans"] > 0
    counts[2] += record["first_flight_retrans"]
    counts[3] += segments
    for name, value in (
        ("window", record["started_window"]),
        ("rate", record["started_rate"] * max(1, record["started_at_once"])),
        *((of, record[f"acked_{of}_time"] or 0) for of in ("10k", "50k", "100k")),
    ):
        if value:
            host.values[f"{name} {arm}"].append((value, 1))
    if not record["first_flight_retrans"]:
        _carried(host, record, records, gives[1])


def _train(record: Sample) -> int:
    """Rate at which its first segments were delivered, whatever it started with, bytes/s; 0 is unknown."""
    if not record.get("train_bytes") or not record.get("train_time"):
        return 0
    return int(record["train_bytes"] * 10**6 // max(500, record["train_time"]))


def _acked(record: Sample, kilobytes: int) -> int:
    """Microseconds from the first acknowledgement to this one; 0 is never."""
    begun = max(record["first_acked_time"] or 0, record["min_rtt"] or 0)
    return max(0, (record[f"acked_{kilobytes}k_time"] or 0) - begun)


def _returned(record: Sample, kilobytes: int) -> Fraction:
    """Bytes/s, without the first segment, which the first acknowledgement is of."""
    return Fraction((kilobytes * 1000 - 1448) * 10**6, _acked(record, kilobytes))


def _is_steady(record: Sample) -> bool:
    """Whether what was acknowledged between looks, a round trip apart, came at a rate."""
    in_a_trip = Fraction(record["started_rate"] * (record["min_rtt"] or 0), 10**6)
    fits = 1448 * record["started_window"]
    acked = record["bytes_acked"] or 0
    is_late = acked <= in_a_trip and 50 * acked < record["started_rate"]
    if is_late or 2 * fits < Fraction(95, 100) * in_a_trip:
        return False
    return bool(fits >= in_a_trip or fits >= acked)


def _spans(records: Sequence[Sample]) -> list[tuple[int, int, int, int]]:
    """Begin, end, what was delivered and what was given, of those of which anything was acknowledged."""
    found = []
    for record in records:
        size = next((size for size in (100, 50, 10) if _acked(record, size)), 0)
        if size:
            end = record["time_unix_us"] - (record["lived_time"] or 0) + record[f"acked_{size}k_time"]
            delivered = min(10**11, math.floor(_returned(record, size)))
            found.append((end - _acked(record, size), end, delivered, record["started_rate"] or delivered))
    return found


def _carried(host: Host, record: Sample, records: Sequence[Sample], connection_rate: float) -> None:
    """Notes the part that the path carried of the rate that limited it."""
    rate, arm = record["started_rate"], record["started_arm"]
    spans = _spans([record])
    if not rate or not _is_steady(record) or not (_acked(record, 100) or _acked(record, 50)):
        return
    [(begin, end, own, _)] = spans
    beside = [(min(end, to) - max(begin, since), got, gave) for since, to, got, gave in _spans(records)]
    delivered = Fraction(sum(overlap * got for overlap, got, _ in beside if overlap > 0), end - begin)
    given = Fraction(sum(overlap * gave for overlap, _, gave in beside if overlap > 0), end - begin)
    at_once = max(1, record["started_at_once"])
    most = rate * at_once
    if given <= Fraction(6, 5) * rate and (at_once == 1 or rate >= 0.95 * connection_rate):
        name, part = "carried", min(Fraction(1), Fraction(own, rate))
    elif at_once > 1 and given >= Fraction(7, 10) * most:
        name = "path carried"
        if given >= Fraction(95, 100) * most or delivered < Fraction(85, 100) * given:
            part = Fraction(1) if delivered >= given else min(Fraction(1), delivered / most)
        elif arm:
            part = min(Fraction(1), Fraction(11, 10) * min(delivered, given) / most)
        else:
            return
    else:
        return
    if value := round(1000 * float(part)):
        host.values[f"{name} {arm}"].append((value, 1))


def _together(samples: Sequence[Sample], round_unix_s: int) -> dict[Unit, list[tuple[int, int]]]:
    """(Bytes per second, connections) of each short time."""
    polls = _within(samples, round_unix_s, "POLL")
    of_hosts: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for sample in polls:
        of_hosts[sample["host"]].add((sample["boot_id"], sample["poll_sequence"]))
    if not of_hosts:
        return {}
    length = INTERVAL * 10**6 // median_low(len(numbers) for numbers in of_hosts.values())
    busy: dict[Any, list[Sample]] = defaultdict(list)
    for sample in polls:
        unit = _unit(sample)
        in_flight = sample["unacked"] and sample["delivery_rate"] and not sample["delivery_rate_app_limited"]
        if unit is not None and in_flight and sample["state"] in round_model.WITH_DATA:
            busy[unit, sample["host"], sample["boot_id"], sample["poll_sequence"]].append(sample)
    moments: dict[Unit, dict[str, dict[int, list[tuple[int, int]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for (unit, host, *_), members in busy.items():
        weights = [max(1, s["sample_weight"] or 1) for s in members]
        rates = sum(min(10**11, s["delivery_rate"] * weight) for s, weight in zip(members, weights, strict=True))
        at = min(s["time_unix_us"] for s in members) // length
        moments[unit][host][at].append((min(10**11, rates), sum(weights)))
    return {unit: _summed(hosts) for unit, hosts in moments.items()}


def _summed(hosts: Mapping[str, Mapping[int, list[tuple[int, int]]]]) -> list[tuple[int, int]]:
    """A host that polled twice in a short time counts with its mean; each is held."""
    means = {
        host: {at: (sum(r for r, _ in m) // len(m), -(-sum(c for _, c in m) // len(m))) for at, m in of.items()}
        for host, of in hosts.items()
    }
    each = {h: sum(r for r, _ in of.values()) / sum(c for _, c in of.values()) for h, of in means.items()}
    peak = {h: max(c for _, c in of.values()) for h, of in means.items()}
    middle = median_low(each.values())
    most = 2 * median_low(max(r / c for r, c in of.values()) for of in means.values())
    total: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for host, of in means.items():
        scale = min(max(each[host], middle / 2), middle * 2) / each[host]
        others = sum(peak.values()) - peak[host]
        part = 1.0 if len(means) < 3 else min(peak[host], others) / peak[host]
        for at, (rates, connections) in of.items():
            held = rates * scale if len(means) < 3 else min(rates * scale, most * connections)
            total[at][0] += held * part
            total[at][1] += math.ceil(connections * part - 1e-5)
    return [(int(rates), int(connections)) for rates, connections in total.values()]


def _values(hosts: Mapping[str, Host], entry_flights: int) -> dict[str, list[Weighed]]:
    """By their names, each host's bounded by the others'."""
    values = {}
    starting = max(sum(host.counts[f"arm {arm}"][0] > 0 for host in hosts.values()) for arm in (0, 1))
    for name in {name for host in hosts.values() for name in host.values}:
        shown = [host.values[name] for host in hosts.values() if host.values[name]]
        # The carried part is compounded: no host of three or more decides it, nor shows it alone. A train of one
        # alone counts where fewer than three could have shown some.
        lowers = "carried" in name or name == "train"
        could = starting if name == "train" else len(hosts)
        if not shown or (lowers and len(shown) == 1 and could >= 3):
            continue
        if name == "reached" and len(hosts) >= 3 and len(shown) > 1:
            # Rates count up to what a second host's connections reached as well.
            most = sorted(quantile(host, "0.9") or 0 for host in shown)[-2]
            shown = [[(min(value, most), weight) for value, weight in host] for host in shown]
        is_of_flights = name in ("train", "reached") or name[-2:] in (" 0", " 1")
        values[name] = _held(shown, len(hosts) if is_of_flights else len(shown), lowers=lowers)
        if name == "min_rtt_us" and len(shown) >= 3:
            values[name] = [(median_low(quantile(host, "0.1") or 0 for host in shown), 1)]
        if name == "train" and len(shown) == 2 and len(hosts) >= 3:
            slow, fast = sorted(sum(v * w for v, w in host) / sum(w for _, w in host) for host in shown)
            values[name] = [] if fast > 1.4 * slow else values[name]
    # One or two of many say nothing of what is in use; where there are no more flights they are all that is known.
    for name in ("carried 0", "path carried 0"):
        if len(values.get(name, [])) < 3 <= entry_flights:
            values[name] = []
    return values


def combined(hosts: Mapping[str, Host], together: list[tuple[int, int]]) -> dict[str, Any]:
    counted = {arm: _held_counts([host.counts[f"arm {arm}"] for host in hosts.values()]) for arm in (0, 1)}
    values = _values(hosts, counted[0][0])

    def at(name: str, level: str) -> int:
        return quantile(values.get(name, []), level) or 0

    default = _held_counts([host.counts["default"] for host in hosts.values()])
    claims = [host.counts["judged"] for host in hosts.values()]
    judged = _held_counts(claims, losses=False)
    is_own_brake = len(hosts) >= 3 and sum(own[1] > 0 for own in claims) == 1
    found = {
        "hosts": len(hosts),
        "only_host": next(iter(hosts)) if len(hosts) == 1 else "",
        "connections": sum(host.began for host in hosts.values()),
        "starts": {name: host.starts for name, host in hosts.items() if host.starts},
        "mss_p50": at("snd_mss", "0.5"),
        "min_rtt_p10_us": at("min_rtt_us", "0.1"),
        "rtt_p50_us": at("rtt_us", "0.5"),
        "share_connections": len(values.get("share", [])),
        "share_p25_bytes_per_s": at("share", "0.25"),
        "share_p50_bytes_per_s": at("share", "0.5"),
        "reached_connections": len(values.get("reached", [])),
        "reached_p90_bytes_per_s": at("reached", "0.9"),
        "path_buckets": len(together),
        "path_p90_bytes_per_s": quantile([(rates, 1) for rates, _ in together], "0.9") or 0,
        "at_once_p90": quantile([(connections, 1) for _, connections in together], "0.9") or 0,
        "receiver_window_p50_bytes": at("snd_wnd", "0.5"),
        "trains": len(values.get("train", [])),
        "train_p25_bytes_per_s": at("train", "0.25"),
        "train_p50_bytes_per_s": at("train", "0.5"),
        "braked": 0 if is_own_brake else judged[1],
        "default_flights": default[0],
        "default_lossy": default[1],
    }
    for arm, kind in ((0, "entry"), (1, "trial")):
        of_arm = zip(("flights", "lossy", "resent", "segments"), counted[arm], strict=True)
        found |= {f"{kind}_{n}": count for n, count in of_arm}
        found[f"{kind}_window_p50"] = at(f"window {arm}", "0.5")
        found[f"{kind}_rate_p50_bytes_per_s"] = at(f"rate {arm}", "0.5")
        found |= {f"{kind}_{of}_p50_us": at(f"{of} {arm}", "0.5") for of in ("10k", "50k", "100k")}
        found[f"{kind}_carried_permille"] = at(f"carried {arm}", "0.5")
        found[f"{kind}_path_carried_permille"] = at(f"path carried {arm}", "0.5")
    return found


def _most(weights: Sequence[int], hosts: int, fewer: int = 0) -> list[int]:
    """Weights of three hosts or more: each at most as much as the others together, or `fewer`, and one at least."""
    if hosts < 3:
        return list(weights)
    return [min(weight, max(1, sum(weights) - weight - fewer)) for weight in weights]


def _held(shown: Sequence[list[Weighed]], hosts: int, *, lowers: bool = False) -> list[Weighed]:
    """`shown` by each of the hosts that show any. `lowers`: what lowers values in use, of which none may have half of
    the weight; where only two of more show it neither shows less than the other, on the mean."""
    weights = [sum(weight for _, weight in host) for host in shown]
    means = [sum(v * w for v, w in host) / weight for host, weight in zip(shown, weights, strict=True)]
    middle = median_low(means)
    least, most = middle / 2, middle * 2
    if lowers and len(shown) == 2 and hosts >= 3:
        least = most = max(means)
    counting = _most(weights, hosts, fewer=int(len(shown) >= 3))
    found: list[Weighed] = []
    for host, mean, weight, counts in zip(shown, means, weights, counting, strict=True):
        held = min(max(mean, least), most)
        if (held, counts) == (mean, weight):
            found += host
            continue
        kept = min(len(host), counts)
        ordered = sorted(host)
        # The middles of so many equal parts.
        chosen = [ordered[(2 * n + 1) * len(host) // (2 * kept)][0] for n in range(kept)]
        found += [(round(value * held / mean), min(65535, counts // kept)) for value in chosen]
    return found


def _possible(hosts: Sequence[list[int]]) -> list[list[int]]:
    """Flights as long as the middle host's, within the half and twice; what is sent again is part of them."""
    lengths = [host[3] / host[0] for host in hosts if host[0]]
    middle = median_low(lengths) if lengths else 0.0
    found = []
    for flights, lossy, resent, segments in hosts:
        length = segments / max(flights, 1)
        part = min(max(length, middle / 2), middle * 2) / length if length else 1.0
        sizes = [math.ceil(n * part - 1e-6) for n in (min(resent, segments), segments)]
        found.append([flights, lossy, *sizes])
    return found


def _held_counts(claims: Sequence[list[int]], *, losses: bool = True) -> list[int]:
    """`claims` of each of the unit's hosts. Among three or more none loses more than three times what the others do,
    and one flight, one segment, more."""
    hosts = _possible(claims)
    kept = _most([host[0] for host in hosts], len(hosts), fewer=1)
    parts = [[-(-n * most // max(host[0], 1)) for n in host] for host, most in zip(hosts, kept, strict=True)]
    found = [list(part) for part in parts]
    for at, own in enumerate(found if losses and len(parts) >= 3 else []):
        flights, lossy, resent, segments = (
            sum(column) for column in zip(*(part for n, part in enumerate(parts) if n != at), strict=True)
        )
        own[1] = min(own[1], math.ceil(3 * own[0] * lossy / max(flights, 1)) + 1)
        own[2] = min(own[2], math.ceil(3 * own[3] * resent / max(segments, 1)) + 1)
    return [sum(part[at] for part in found) for at in range(4)]
