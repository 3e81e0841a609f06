-- The initial congestion window of each ordered pair of PoPs and IP version, round by round, with its inputs.
-- A row is a pure function of the history before its round and the policy: it holds no wall-clock time of its own.
create table if not exists initcwnd_decisions$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,

    -- set: new connections start with `initcwnd`. withdraw: a value died in this round. none: nothing to say yet.
    action Enum8('none' = 0, 'set' = 1, 'withdraw' = 2),
    -- Segments; null unless the action is set.
    initcwnd Nullable(UInt32),
    reason LowCardinality(String),

    -- Live connections seen, and those of them that had a window of data acknowledged within the round.
    connections_seen UInt64 codec (ZSTD(1)),
    connections_earned UInt64 codec (ZSTD(1)),
    -- Over the earned windows, segments.
    observed_cwnd Nullable(Float64) codec (ZSTD(1)),
    min_cwnd Nullable(UInt32) codec (ZSTD(1)),
    max_cwnd Nullable(UInt32) codec (ZSTD(1)),
    -- Bytes retransmitted per byte sent within the round, over the connections seen.
    retransmit_ratio Nullable(Float64) codec (ZSTD(1)),

    -- Connections that closed within the round after at most two windows were sent, and how much of theirs went twice.
    young_connections UInt64 codec (ZSTD(1)),
    young_retransmit_ratio Nullable(Float64) codec (ZSTD(1)),
    -- The median peer's advertised window, segments.
    receiver_cwnd Nullable(Float64) codec (ZSTD(1)),

    -- What was in use before this round, segments; null: the kernel's default.
    previous_initcwnd Nullable(UInt32) codec (ZSTD(1)),
    -- The last decision's value and this one's, smoothed and within the policy's bounds, before rounding.
    previous_cwnd Nullable(Float64) codec (ZSTD(1)),
    smoothed_cwnd Nullable(Float64) codec (ZSTD(1)),
    -- After the careful profile, the receiver's window and the loss guard, before hysteresis and damping.
    target_cwnd Nullable(Float64) codec (ZSTD(1)),

    -- Rounds with sufficient evidence within the policy's window, this one included.
    measured_rounds UInt32 codec (ZSTD(1)),
    -- Until when the loss guard lets the window not rise.
    guard_until Nullable(DateTime('UTC')),
    -- Flap damping after this round.
    penalty Float64 codec (ZSTD(1)),
    suppressed Bool,

    -- The round that last had sufficient evidence, and when the value dies without new evidence.
    last_evidence Nullable(DateTime('UTC')),
    expires_at Nullable(DateTime('UTC')),
    policy_version LowCardinality(String)
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMM(round)
order by (round, src_pop, dst_pop, ip_version);
