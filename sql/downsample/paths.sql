-- The rounds of one period, per path: from a PoP to another or to a client prefix, and IP version. Parameters: start_s,
-- period_s, made_at_s.
select
    rounds.src_pop,
    rounds.destination,
    rounds.ip_version,
    toDateTime({start_s:UInt32}, 'UTC') as since,
    toDateTime({made_at_s:UInt32}, 'UTC') as made_at,
    toUInt16(uniqExact(rounds.round)) as rounds,
    any(rounds.dst_pop) as dst_pop,
    any(rounds.client_prefix) as client_prefix,
    max(rounds.hosts) as hosts,
    sum(rounds.connections) as connections,
    sum(rounds.gain_us) as gain_us,
    min(nullIf(rounds.min_rtt_p10_us, 0)) as min_rtt_us,
    sum(rounds.share_connections) as share_connections,
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.share_state) as share_state, -- noqa: LT01
    sum(rounds.reached_connections) as reached_connections,
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.reached_state) as reached_state, -- noqa: LT01
    sum(rounds.path_buckets) as path_buckets,
    quantilesTDigestWeightedMergeState(0.1, 0.25, 0.5, 0.75, 0.9)(rounds.path_state) as path_state, -- noqa: LT01
    max(rounds.at_once_p90) as at_once_p90,
    sum(rounds.entry_flights) as entry_flights,
    sum(rounds.entry_lossy) as entry_lossy,
    sum(rounds.entry_resent) as entry_resent,
    sum(rounds.entry_segments) as entry_segments,
    nullIf(
        quantileExactWeightedIf(0.5)( -- noqa: LT01
            rounds.entry_100k_p50_us, rounds.entry_flights, rounds.entry_100k_p50_us > 0
        ),
        0
    ) as entry_100k_us,
    sum(rounds.trial_flights) as trial_flights,
    sum(rounds.trial_lossy) as trial_lossy,
    sum(rounds.trial_resent) as trial_resent,
    sum(rounds.trial_segments) as trial_segments,
    nullIf(
        quantileExactWeightedIf(0.5)( -- noqa: LT01
            rounds.trial_100k_p50_us, rounds.trial_flights, rounds.trial_100k_p50_us > 0
        ),
        0
    ) as trial_100k_us,
    sum(rounds.braked) as braked,
    sum(rounds.default_flights) as default_flights,
    sum(rounds.default_lossy) as default_lossy
from round_paths as rounds
where
    rounds.round > toDateTime({start_s:UInt32}, 'UTC')
    and rounds.round <= toDateTime({start_s:UInt32} + {period_s:UInt32}, 'UTC')
group by rounds.src_pop, rounds.destination, rounds.ip_version
