-- Decisions for each path, round by round, with the inputs. A path is an ordered pair of PoPs, or a PoP and a client
-- prefix, and an IP version. Each part of its decision has a row of its own, in which the other parts' columns are
-- empty. A row is a pure function of the history before its round and of the policy: it has no wall-clock time of its
-- own. In numbers 0 is none, null is unknown. Rates are bytes per second, windows segments.
--
-- Parts lie apart: between the few windows of many rounds are not all the starts of each. A round's rows are written
-- once and read back once, by the next round. LZ4 takes half of the time of ZSTD for three tenths more on disk. Parts
-- of less than a gigabyte before compression have one file for all columns. Values that are measured of a million
-- paths, or learnt from them, are known to a few per cent: Float32 is enough, and the law's counters stop at the
-- highest number that they hold. Values that connections are given, and those that are compared with them exactly, are
-- Float64.
create table if not exists path_decisions$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    -- By the law's name. start: how fast and how wide connections start on edges that pace. initcwnd: with which window
    -- they start on edges that only have routes. congestion: which client prefixes use BBR. recovery: how soon a lost
    -- SYN or SYN-ACK is sent again, and whether the beginning of connections is sent twice.
    part LowCardinality(String),
    src_pop LowCardinality(String),
    -- The other PoP's name, or a client prefix as text: 203.0.113.0/24, 2001:db8:1200::/56.
    destination String codec (LZ4),
    ip_version UInt8,

    -- none: nothing is decided yet. try: only a share of the connections is given values. set: all are. withdraw:
    -- values were taken back in this round, and the kernel's default returns. enter: a prefix is chosen in this round.
    -- keep: it was before and still is. leave: it is given back in this round.
    action Enum8('none' = 0, 'try' = 1, 'set' = 2, 'withdraw' = 3, 'enter' = 4, 'keep' = 5, 'leave' = 6),
    -- The rule that made the decision what it is.
    reason LowCardinality(String),
    -- Rounds with sufficient evidence: of the last ones, as the part counts them.
    measured_rounds UInt32 codec (T64, LZ4),
    -- Flap damping after this round.
    penalty Float64 codec (LZ4),
    suppressed Bool,
    -- The round that last had sufficient evidence, and when the values expire without new evidence.
    last_evidence Nullable(DateTime('UTC')),
    expires_at Nullable(DateTime('UTC')),
    -- For how many rounds the trial has lasted; of the part initcwnd, for how many rounds the window has been in use.
    trial_rounds UInt32 codec (T64, LZ4),
    policy_version LowCardinality(String),

    -- The part start. In use: segments, the highest rate for a single connection, and for all together that start at
    -- once.
    window UInt32 codec (T64, LZ4),
    connection_rate Float64 codec (LZ4),
    path_rate Float64 codec (LZ4),
    -- The same on trial, and for how many of a thousand connections.
    trial_window UInt32 codec (T64, LZ4),
    trial_connection_rate Float64 codec (LZ4),
    trial_path_rate Float64 codec (LZ4),
    trial_permille UInt16 codec (T64, LZ4),
    -- Whether what is in use, or on trial, is the group's estimate.
    borrowed Bool,
    trial_borrowed Bool,
    -- Whether the trial is a step beyond what was reached.
    trial_step Bool,

    -- First flights of more than ten segments with the kernel's default, and those of them that lost something; both
    -- decay.
    default_flights Float32 codec (LZ4),
    default_lossy Float32 codec (LZ4),
    -- Segments that such a flight retransmits, where it retransmits any.
    default_resent Float32 codec (LZ4),
    -- When such flights were last seen; null is unknown.
    default_at Nullable(DateTime('UTC')),
    -- The time that 50 and 100 kB took of first flights with the kernel's default, beside a trial, and when that was
    -- last seen. No values are given with which they would take longer.
    default_t50_us Float32 codec (LZ4),
    default_t100_us Float32 codec (LZ4),
    default_timed_at Nullable(DateTime('UTC')) codec (LZ4),
    -- First flights with the values in use, since they are in use.
    used_flights UInt32 codec (T64, LZ4),
    used_lossy UInt32 codec (T64, LZ4),
    used_segments UInt32 codec (T64, LZ4),
    used_resent UInt32 codec (T64, LZ4),
    -- First flights with the values on trial, since they are on trial.
    trial_flights UInt32 codec (T64, LZ4),
    trial_lossy UInt32 codec (T64, LZ4),
    trial_segments UInt32 codec (T64, LZ4),
    trial_resent UInt32 codec (T64, LZ4),
    -- The trial's time of 100 (or 50) kB over that of the others, log2, times its weight; and the sum of the weights.
    trial_log2_time Float32 codec (LZ4),
    trial_times Float32 codec (LZ4),

    -- Estimate of a single connection's share of the path: log2 of bytes per second, and the number of connections,
    -- which decays.
    share_log2 Nullable(Float32) codec (LZ4),
    share_weight Nullable(Float32) codec (LZ4),
    -- Estimate of the rate of all together, log2.
    path_log2 Nullable(Float32) codec (LZ4),
    -- Estimate from trains: log2 of bytes per second, the number of trains, and when there last were some.
    train_log2 Nullable(Float32) codec (LZ4),
    train_weight Float32 codec (LZ4),
    train_at Nullable(DateTime('UTC')) codec (LZ4),
    -- Whether trains agree so well that nothing beyond them is worth a try.
    train_sharp Bool,
    -- The lowest connection rate that did harm or was tried in vain. Nothing near it is tried until hold_until.
    harmful_rate Float64 codec (LZ4),
    hold_until Nullable(DateTime('UTC')),
    -- Length of that hold.
    hold_s UInt32 codec (T64, LZ4),
    -- The connection rate that the evidence asked for when harmful_rate did harm.
    harmful_share Float64 codec (LZ4),
    -- When the path last carried clearly less of first flights than trains show.
    shared_at Nullable(DateTime('UTC')) codec (LZ4),
    -- Whether what is in use is what harm left of an earlier value.
    was_cut Bool,
    -- The lowest round trip when what is in use was proved.
    learnt_rtt_us Nullable(Float32) codec (LZ4),
    -- Whether an operator's override decided.
    overridden Bool,

    -- In use before this round.
    previous_window UInt32 codec (T64, LZ4),
    previous_connection_rate Float64 codec (LZ4),
    -- Rates that the evidence asks for, before any trial of them.
    proved_share Nullable(Float32) codec (LZ4),
    proved_path Nullable(Float32) codec (LZ4),
    -- The group, how many units it has, and their low quantile.
    group LowCardinality(String),
    group_units UInt32 codec (T64, LZ4),
    group_rate Nullable(Float32) codec (LZ4),

    -- Values that the round showed, as in round_paths. Arm 0 is the entry, 1 the trial.
    connections UInt32 codec (T64, LZ4),
    min_rtt_us Nullable(Float32) codec (LZ4),
    mss Nullable(Float32) codec (LZ4),
    share_rate Nullable(Float32) codec (LZ4),
    share_connections UInt32 codec (T64, LZ4),
    reached_rate Nullable(Float32) codec (LZ4),
    reached_connections UInt32 codec (T64, LZ4),
    at_once Nullable(Float32) codec (LZ4),
    receiver_window Nullable(Float32) codec (LZ4),
    trains UInt32 codec (T64, LZ4),
    train_low_rate Nullable(Float32) codec (LZ4),
    train_rate Nullable(Float32) codec (LZ4),
    flights_0 UInt32 codec (T64, LZ4),
    lossy_0 UInt32 codec (T64, LZ4),
    resent_0 UInt32 codec (T64, LZ4),
    segments_0 UInt32 codec (T64, LZ4),
    flights_1 UInt32 codec (T64, LZ4),
    lossy_1 UInt32 codec (T64, LZ4),
    resent_1 UInt32 codec (T64, LZ4),
    segments_1 UInt32 codec (T64, LZ4),
    t50_0_us Nullable(Float32) codec (LZ4),
    t100_0_us Nullable(Float32) codec (LZ4),
    -- Part that the path carried of the rate that a single connection was given: 1 is all of it.
    carried_0 Nullable(Float32) codec (LZ4),
    -- Part that the path carried of the rate that all who start at once were given.
    path_carried_0 Nullable(Float32) codec (LZ4),
    t50_1_us Nullable(Float32) codec (LZ4),
    t100_1_us Nullable(Float32) codec (LZ4),
    carried_1 Nullable(Float32) codec (LZ4),
    path_carried_1 Nullable(Float32) codec (LZ4),
    braked UInt32 codec (T64, LZ4),
    seen_path_rate Nullable(Float32) codec (LZ4),

    -- The part initcwnd. Null is unknown of measurements; 0 of the default's window, and of what there is none of.
    initcwnd UInt32 codec (T64, LZ4),
    -- Live connections that were seen, and those of them that had a window of data acknowledged within the round.
    connections_seen UInt64 codec (T64, LZ4),
    connections_earned UInt64 codec (T64, LZ4),
    -- Over the earned windows, segments.
    observed_cwnd Nullable(Float64) codec (LZ4),
    min_cwnd UInt32 codec (T64, LZ4),
    max_cwnd UInt32 codec (T64, LZ4),
    -- Bytes retransmitted per byte sent within the round, over the connections seen.
    retransmit_ratio Nullable(Float64) codec (LZ4),
    -- Connections that closed within the round after at most two windows were sent: all of them, those that lost some
    -- of their first flight, and those in which a retransmission timer ran out.
    young_connections UInt64 codec (T64, LZ4),
    young_lossy_connections UInt64 codec (T64, LZ4),
    young_timeout_connections UInt64 codec (T64, LZ4),
    -- The median peer's advertised window, segments.
    receiver_cwnd Nullable(Float64) codec (LZ4),
    -- The window in use before this round, segments; 0 is the kernel's default.
    previous_initcwnd UInt32 codec (T64, LZ4),
    -- The last decision's value and this one's, smoothed and within the policy's bounds, before rounding.
    previous_cwnd Nullable(Float64) codec (LZ4),
    smoothed_cwnd Nullable(Float64) codec (LZ4),
    -- After the careful profile, the receiver's window and the loss guard, before hysteresis and damping.
    target_cwnd Nullable(Float64) codec (LZ4),
    -- Until when the loss guard lets the window not rise.
    guard_until Nullable(DateTime('UTC')),
    -- Time that the guard holds after harm. It doubles where a step beyond a ceiling did harm again.
    guard_hold_s UInt32 codec (T64, LZ4),
    -- The most that this round allowed, segments; 0 where no harm was ever seen.
    ceiling_initcwnd UInt32 codec (T64, LZ4),
    -- The window that was last judged clean; below a ceiling, the largest such window. Segments.
    clean_initcwnd UInt32 codec (T64, LZ4),
    -- The window that last did harm, segments.
    harmful_initcwnd UInt32 codec (T64, LZ4),
    -- Young connections that last started with the kernel's default, and how many of them were lossy.
    default_young UInt32 codec (T64, LZ4),
    default_young_lossy UInt32 codec (T64, LZ4),
    -- Young connections since the window is in use that do not yet suffice for a judgement, and how many of them were
    -- lossy.
    trial_young UInt32 codec (T64, LZ4),
    trial_young_lossy UInt32 codec (T64, LZ4),

    -- The part recovery: the time after which a lost SYN or SYN-ACK is sent again, 0 is the kernel's. The last rounds'
    -- handshakes, and a high quantile of their round trips; the newest timeout that handshakes had, those with it and
    -- those with the kernel's beside them, and how many of each were sent again.
    handshake_timeout_ms UInt16 codec (T64, LZ4),
    handshakes UInt32 codec (T64, LZ4),
    handshake_rtt_us Nullable(Float64) codec (LZ4),
    treated_ms UInt16 codec (T64, LZ4),
    treated UInt32 codec (T64, LZ4),
    treated_resent UInt32 codec (T64, LZ4),
    control UInt32 codec (T64, LZ4),
    control_resent UInt32 codec (T64, LZ4),
    -- The same part: bytes at the beginning of connections that are sent twice, the rule that made it so, and until
    -- when none are given after harm.
    copied_bytes UInt16 codec (T64, LZ4),
    copies_reason LowCardinality(String),
    copies_overridden Bool,
    copies_hold_until Nullable(DateTime('UTC')),
    copies_hold_s UInt32 codec (T64, LZ4),
    -- The last rounds' first flights without copies, those that sent anything again, and segments that one of these
    -- sent again in the mean. The same of flights with a shorter, and a longer handshake than the median.
    flights UInt32 codec (T64, LZ4),
    flights_lossy UInt32 codec (T64, LZ4),
    resent_each Nullable(Float64) codec (LZ4),
    calm_flights UInt32 codec (T64, LZ4),
    calm_lossy UInt32 codec (T64, LZ4),
    busy_flights UInt32 codec (T64, LZ4),
    busy_lossy UInt32 codec (T64, LZ4),
    -- First flights with copies, and those without beside them: how many sent anything again. Segments that were sent
    -- twice, and those of which one copy was missed. The mean times to 10 kB, and the standard error of the difference.
    copied UInt32 codec (T64, LZ4),
    copied_lossy UInt32 codec (T64, LZ4),
    uncopied UInt32 codec (T64, LZ4),
    uncopied_lossy UInt32 codec (T64, LZ4),
    copied_segments UInt32 codec (T64, LZ4),
    repaired_segments UInt32 codec (T64, LZ4),
    copied_10k_us Nullable(Float64) codec (LZ4),
    uncopied_10k_us Nullable(Float64) codec (LZ4),
    error_10k_us Nullable(Float64) codec (LZ4),

    -- The part congestion.
    -- The algorithm of new connections: bbr, or default for the kernel's.
    algorithm Enum8('default' = 0, 'bbr' = 1),
    -- Chosen, but keeping the default, so that the benefit of the others is a difference.
    held_out Bool,
    -- Measured rounds of the policy's window in which the prefix was in the PoP's lowest share by delivery rate.
    low_rounds UInt8 codec (LZ4),
    -- Number of times that low rounds and others followed each other.
    state_changes UInt8 codec (LZ4),
    -- By how many rounds low rounds exceed enter_duty of the measured ones, over the newest rounds for which they do so
    -- most.
    low_excess Float64 codec (LZ4),
    -- By how many rounds low rounds fall short of leave_duty of the measured ones, likewise.
    good_excess Float64 codec (LZ4),
    back_office Bool,
    -- Over the measured rounds of the window: the mean of median round-trip times, weighted by connections.
    rtt_us Nullable(Float64) codec (LZ4),
    -- Geometric means of median delivery rates, weighted by bytes, of any algorithm, bytes per second: over the window,
    -- and over the newest rounds, by which benefit is judged.
    rate Nullable(Float64) codec (LZ4),
    recent_rate Nullable(Float64) codec (LZ4),
    -- The window's rate when the prefix was chosen.
    baseline_rate Nullable(Float64) codec (LZ4),
    -- Growth of the recent rate over the baseline beyond that of held-out prefixes; null before it is known.
    benefit Nullable(Float64) codec (LZ4),
    -- The growth of the prefix's rate that is expected from BBR, a share: its trial's growth, shrunk towards that of
    -- all by what is chance. Null before its trial, or where prefixes do not differ by more than chance.
    expected_benefit Nullable(Float64) codec (LZ4),

    selected_since Nullable(DateTime('UTC')),
    -- The recent rate over the baseline at the end of the prefix's trial, log2. It is kept while the prefix is chosen
    -- or given back.
    trial_growth Nullable(Float64) codec (LZ4)
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMMDD(round)
order by (part, round, src_pop, destination, ip_version)
settings min_bytes_for_wide_part = 1073741824;

-- Operators' overrides for single edges, round by round. These edges are given them in place of their pair's decision.
create table if not exists initcwnd_edge_decisions$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    edge LowCardinality(String),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- Segments; null is the kernel's default.
    initcwnd Nullable(UInt32),
    -- When the override ends, and why it was given.
    until DateTime('UTC'),
    why String codec (ZSTD(1)),
    policy_version LowCardinality(String)
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMM(round)
order by (round, edge, dst_pop, ip_version);

-- The benefit of decisions, as measured once an hour over the day before: one row a law, outcome and group. A row is a
-- pure function of what was decided and seen until then, and of the policy.
create table if not exists benefits$on_cluster (
    -- The rounds since < round <= until.
    since DateTime('UTC') codec (Delta, ZSTD(1)),
    until DateTime('UTC') codec (Delta, ZSTD(1)),
    law LowCardinality(String),
    -- Outcome that is compared: `busy time`, `time of 100 kB, p90` and others.
    outcome LowCardinality(String),
    -- decided: over all units as they were decided, whatever their sockets show. seen: over those that show it. With
    -- `points` effects are differences of percentages.
    units LowCardinality(String),
    -- Way of measuring: held out, untreated share, switchback, randomised share or disable test. What that assumes
    -- stands in the report.
    method LowCardinality(String),
    -- Kind of group: all, a PoP, a path, a size of objects and others; and which group it is.
    by LowCardinality(String),
    group String codec (ZSTD(1)),
    -- The group's PoP, or path. Empty, and 0, are all.
    src_pop LowCardinality(String),
    destination String codec (ZSTD(1)),
    ip_version UInt8,
    -- Units on both sides, as the method counts them.
    treated UInt64 codec (ZSTD(1)),
    held_out UInt64 codec (ZSTD(1)),
    -- The treated beside the others, as a share of these: -0.2 is a fifth less. With the ends of its interval; null is
    -- unknown, of too few units.
    effect Nullable(Float64) codec (ZSTD(1)),
    low Nullable(Float64) codec (ZSTD(1)),
    high Nullable(Float64) codec (ZSTD(1)),
    -- The percentile of each side, microseconds; null where the outcome is none.
    treated_us Nullable(Float64) codec (ZSTD(1)),
    held_out_us Nullable(Float64) codec (ZSTD(1)),
    -- better, worse, interference or not shown, by whether the interval leaves out zero; empty is unknown.
    reading LowCardinality(String)
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMM(until)
order by (until, law, outcome, units, by, group);

-- Who changed what in the fleet, when and why: one row an event. The same event may be sent again.
create table if not exists audit$on_cluster (
    at DateTime('UTC') codec (Delta, ZSTD(1)),
    id String codec (ZSTD(1)),
    who LowCardinality(String),
    -- publish, force, rollout, wave, gate, rollback, withdraw or drift.
    event LowCardinality(String),
    -- The publication's name: its round, and when it was made.
    publication String codec (ZSTD(1)),
    -- Over the digests of the publication's bundles; empty where the event has none.
    digest String codec (ZSTD(1)),
    edges Array(LowCardinality(String)) codec (ZSTD(1)),
    verdict LowCardinality(String),
    reason String codec (ZSTD(1)),
    -- JSON: a gate's inputs, or which cap was exceeded.
    details String codec (ZSTD(3))
)
engine = ${replicated}ReplacingMergeTree$replica
partition by toYYYYMM(at)
order by (at, id);
