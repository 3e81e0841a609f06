-- Which client prefixes of a PoP use BBR, round by round, with the inputs: one row for each prefix that is chosen, was
-- let go in the round, is consistently poor, or must wait before it may be chosen again. Every other prefix keeps the
-- kernel's default. A row is a pure function of the history before its round and the policy.
create table if not exists congestion_decisions$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the client's /24 or /56, IPv4 mapped.
    client_prefix IPv6 codec (ZSTD(1)),

    -- none: not chosen. enter: chosen in this round. keep: chosen before and still. leave: let go in this round.
    action Enum8('none' = 0, 'enter' = 1, 'keep' = 2, 'leave' = 3),
    -- What new connections use: bbr, or default for the kernel's.
    algorithm Enum8('default' = 0, 'bbr' = 1),
    -- Chosen, but keeping the default so that the others' benefit is a difference.
    held_out Bool,
    -- The rule that made the decision what it is.
    reason LowCardinality(String),

    -- Of the policy's window: rounds with enough evidence, those of them in the PoP's lowest share by delivery rate,
    -- and how often the one became the other.
    measured_rounds UInt8 codec (ZSTD(1)),
    low_rounds UInt8 codec (ZSTD(1)),
    state_changes UInt8 codec (ZSTD(1)),
    back_office Bool,
    -- Over the measured rounds of the window: mean of median round-trip times by connections, bytes sent again by bytes
    -- sent.
    rtt_us Nullable(Float64) codec (ZSTD(1)),
    retransmit_ratio Nullable(Float64) codec (ZSTD(1)),
    -- Geometric means of median delivery rates by bytes, whatever the algorithm, in bytes per second: over the window,
    -- and over the newest rounds by which benefit is judged.
    rate Nullable(Float64) codec (ZSTD(1)),
    recent_rate Nullable(Float64) codec (ZSTD(1)),
    -- The window's rate when the prefix was chosen.
    baseline_rate Nullable(Float64) codec (ZSTD(1)),
    -- Growth of the recent rate over the baseline beyond that of held-out prefixes; null before it can be told.
    benefit Nullable(Float64) codec (ZSTD(1)),

    selected_since Nullable(DateTime('UTC')),
    -- Not chosen again before, after it was given back.
    hold_until Nullable(DateTime('UTC')),
    -- Flap damping after this round.
    penalty Float64 codec (ZSTD(1)),
    suppressed Bool,
    policy_version LowCardinality(String)
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, client_prefix);
