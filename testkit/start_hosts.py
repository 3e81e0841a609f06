"""What each host of a unit shows in a round, through the roll-up's model, as a row that the law of starts is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testkit.path_model import Host, combined
from testkit.start_law import MSS, Rows, row

# Segments, of them sent again, and thousandths of its rate that were carried.
Flight = tuple[int, int, float]


def host(
    flights: Sequence[Flight] = (),
    on_trial: Sequence[Flight] = (),
    braked: int = 0,
    trains: Sequence[float] = (),
    reached: Sequence[float] = (),
) -> Host:
    """It has a connection even where none has a first flight."""
    made = Host()
    made.began = made.starts = max(1, len(flights) + len(on_trial))
    made.values |= {name: [(value, 1)] for name, value in (("snd_mss", MSS), ("min_rtt_us", 10**5), ("rtt_us", 10**5))}
    made.values["train"] = [(int(rate), 1) for rate in trains]
    made.values["reached"] = [(int(rate), 1) for rate in reached]
    made.counts["judged"] = [len(flights) + len(on_trial) + braked, braked, 0, 0]
    for arm, of_arm in enumerate((flights, on_trial)):
        if not of_arm:
            continue
        lost = [resent for _, resent, _ in of_arm]
        made.counts[f"arm {arm}"] = [len(of_arm), sum(n > 0 for n in lost), sum(lost), sum(n for n, _, _ in of_arm)]
        made.values[f"carried {arm}"] = [(int(part), 1) for _, resent, part in of_arm if not resent]
    return made


def shown(hosts: Mapping[str, Host], **more: Any) -> Rows:
    found = combined(hosts, [])
    values: dict[str, Any] = {name: found[name] for name in ("connections", "trains", "braked")}
    values["train_rate"] = found["train_p50_bytes_per_s"] or np.nan
    values["train_low_rate"] = found["train_p25_bytes_per_s"] or np.nan
    if found["reached_connections"]:
        values |= {
            "reached_rate": found["reached_p90_bytes_per_s"],
            "reached_connections": found["reached_connections"],
        }
    for arm, kind in ((0, "entry"), (1, "trial")):
        values |= {f"{n}_{arm}": found[f"{kind}_{n}"] for n in ("flights", "lossy", "resent", "segments")}
        values[f"carried_{arm}"] = found[f"{kind}_carried_permille"] / 1000 or np.nan
    return row(rtt_p50_us=found["rtt_p50_us"], **(values | more))
