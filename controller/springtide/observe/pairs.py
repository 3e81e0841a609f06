"""The round tables as the control laws read them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from springtide.store import Store

# `destination` is the other PoP.
PAIR_KEY = [("src_pop", "S64"), ("destination", "S64"), ("ip_version", "u1")]

# Connections from one PoP to another within a round; windows in segments, over those that earned theirs, each as far as
# a round trip proved it. Young connections closed within the round after at most two of the windows that they began
# with; `lossy` are those of them that lost anything, `timeout` those that waited for a retransmission timeout;
# `receiver_cwnd` is the median window that their receivers advertised. Unknown is 0, or NaN of doubles.
OBSERVED = np.dtype(
    [
        *PAIR_KEY,
        ("connections_seen", "<u8"),
        ("connections_earned", "<u8"),
        ("mean_cwnd", "<f8"),
        ("min_cwnd", "<u4"),
        ("max_cwnd", "<u4"),
        ("retransmit_ratio", "<f8"),
        ("cwnd_p10", "<f8"),
        ("cwnd_p25", "<f8"),
        ("cwnd_p50", "<f8"),
        ("cwnd_p75", "<f8"),
        ("cwnd_p90", "<f8"),
        ("traffic_cwnd", "<f8"),
        ("receiver_cwnd", "<f8"),
        ("young_connections", "<u8"),
        ("young_lossy_connections", "<u8"),
        ("young_timeout_connections", "<u8"),
    ]
)


def pair_observations(store: Store, round_unix_s: int) -> NDArray[np.void]:
    """The round's observations of each pair with live or young connections, as OBSERVED rows, sorted by pair."""
    return store.columns(
        """
        select
            toFixedString(src_pop, 64) as src_pop,
            toFixedString(dst_pop, 64) as destination,
            ip_version,
            connections_seen,
            connections_earned,
            -- A quotient of integers is the same double whatever the order of what was summed.
            if(cwnd_weight > 0, cwnd_sum / cwnd_weight, nan) as mean_cwnd,
            toUInt32(coalesce(min_cwnd, 0)) as min_cwnd,
            toUInt32(coalesce(max_cwnd, 0)) as max_cwnd,
            if(bytes_sent > 0, bytes_retransmitted / bytes_sent, nan) as retransmit_ratio,
            toFloat64(coalesce(cwnd_p10, nan)) as cwnd_p10,
            toFloat64(coalesce(cwnd_p25, nan)) as cwnd_p25,
            toFloat64(coalesce(cwnd_p50, nan)) as cwnd_p50,
            toFloat64(coalesce(cwnd_p75, nan)) as cwnd_p75,
            toFloat64(coalesce(cwnd_p90, nan)) as cwnd_p90,
            coalesce(traffic_cwnd, nan) as traffic_cwnd,
            toFloat64(coalesce(young_rwnd_p50, nan)) as receiver_cwnd,
            young_connections,
            young_lossy_connections,
            young_timeout_connections
        from round_pairs
        where round = {round:DateTime('UTC')} and (connections_seen > 0 or young_connections > 0)
        order by src_pop, dst_pop, ip_version
        settings prefer_column_name_to_alias = 1
        """,
        OBSERVED,
        {"round": round_unix_s},
    )
