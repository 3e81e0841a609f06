alter table rollup_sockets$on_cluster
-- The last window, at most what a round trip has shown that the path carries; 0 where nothing has shown it. Segments.
add column if not exists proved_cwnd UInt32 default if(earned, snd_cwnd, 0),
-- The window that its edge gave a new connection to that PoP when this one began; the kernel's default of 10 where
-- nothing is known of that. Segments.
add column if not exists start_cwnd UInt32 default 10,
-- In its life up to its last record: sent again because it was lost, as far as is known: without what the peer reported
-- to have got twice (DSACK).
add column if not exists life_bytes_lost UInt64 default life_bytes_retransmitted,
-- In its life: retransmission timeouts.
add column if not exists life_timeouts UInt32 default 0;

alter table rollup_pairs$on_cluster
-- Of the young connections, those of which anything was lost, and those that waited for a retransmission timeout. Of
-- three hosts or more none counts more than the others together, in all three.
add column if not exists young_lossy_connections UInt64 default 0 codec (ZSTD(1)),
add column if not exists young_timeout_connections UInt64 default 0 codec (ZSTD(1));

alter table rollup_outcomes$on_cluster
-- Those of which anything was lost, as far as is known, and those that waited for a retransmission timeout.
add column if not exists lossy_connections UInt64 default 0 codec (ZSTD(1)),
add column if not exists timeout_connections UInt64 default 0 codec (ZSTD(1));

drop view if exists round_sockets$on_cluster;

create view if not exists round_sockets$on_cluster as
select * except (generation, counted, presence) from rollup_sockets -- noqa: AM04
where
    counted
    and (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

drop view if exists round_pairs$on_cluster;

create view if not exists round_pairs$on_cluster as
select * except (generation) from rollup_pairs -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

drop view if exists round_outcomes$on_cluster;

create view if not exists round_outcomes$on_cluster as
select * except (generation) from rollup_outcomes -- noqa: AM04
where
    (round, generation) in (
        select
            rollups.round,
            rollups.generation
        from rollups final
    );

drop view if exists pairs$on_cluster;

create view if not exists pairs$on_cluster as
select
    round,
    src_pop,
    dst_pop,
    ip_version,
    hosts,
    connections_seen,
    connections_earned,
    connections_closed,
    mean_cwnd as cwnd_mean,
    traffic_cwnd as cwnd_by_traffic,
    min_cwnd as cwnd_min,
    cwnd_p10,
    cwnd_p50,
    cwnd_p90,
    max_cwnd as cwnd_max,
    rtt_p50_us / 1000 as rtt_ms,
    rtt_p90_us / 1000 as rtt_p90_ms,
    min_rtt_us / 1000 as rtt_min_ms,
    rwnd_p50_bytes / 1000 as receiver_window_kb,
    bytes_acked / 1000000 as delivered_mb,
    bytes_sent,
    bytes_retransmitted,
    100 * retransmit_ratio as retransmit_percent,
    if(busy_us > 0, 100 * rwnd_limited_us / busy_us, null) as receiver_limited_percent,
    if(busy_us > 0, 100 * sndbuf_limited_us / busy_us, null) as send_buffer_limited_percent,
    young_connections,
    -- Of rounds from before losses were counted by connections.
    if(young_bytes_sent > 0, 100 * young_bytes_retransmitted / young_bytes_sent, null) as young_retransmit_percent,
    young_lossy_connections,
    young_timeout_connections
from round_pairs;

drop view if exists connections$on_cluster;

create view if not exists connections$on_cluster as
select
    round,
    pop,
    host,
    src_pop,
    dst_pop,
    ip_version,
    if(
        ip_version = 4,
        concat(replaceOne(toString(client_prefix), '::ffff:', ''), '/24'),
        concat(toString(client_prefix), '/56')
    ) as prefix,
    if(congestion_algorithm = '', 'unknown', toString(congestion_algorithm)) as algorithm,
    live,
    closed,
    earned,
    young,
    samples,
    snd_cwnd as cwnd,
    proved_cwnd,
    start_cwnd,
    -- The kernel's mark for "no loss has set it".
    if(snd_ssthresh = 2147483647, null, snd_ssthresh) as ssthresh,
    snd_wnd / 1000 as receiver_window_kb,
    rtt_us / 1000 as rtt_ms,
    min_rtt_us / 1000 as rtt_min_ms,
    delivery_rate_bytes_per_s * 8 / 1000000 as delivery_mbit_per_s,
    bytes_acked / 1000 as delivered_kb,
    bytes_sent,
    bytes_retransmitted,
    busy_us / 1000 as busy_ms,
    if(busy_us > 0, 100 * rwnd_limited_us / busy_us, null) as receiver_limited_percent,
    life_bytes_acked / 1000 as life_delivered_kb,
    life_bytes_retransmitted,
    life_bytes_lost,
    life_timeouts,
    life_busy_us / 1000 as life_busy_ms
from round_sockets;

drop view if exists completions$on_cluster;

create view if not exists completions$on_cluster as
select
    round,
    host,
    src_pop,
    dst_pop,
    ip_version,
    size_class_bytes / 1000 as from_kb,
    connections,
    if(connections > 0, 100 * retransmitting_connections / connections, null) as retransmitting_percent,
    if(connections > 0, 100 * lossy_connections / connections, null) as lossy_percent,
    if(connections > 0, 100 * timeout_connections / connections, null) as timeout_percent,
    bytes_sent,
    bytes_retransmitted,
    busy_p50_us / 1000 as busy_p50_ms,
    busy_p90_us / 1000 as busy_p90_ms,
    busy_p99_us / 1000 as busy_p99_ms,
    if(connections > 0, busy_sum_us / connections / 1000, null) as busy_mean_ms,
    busy_state
from round_outcomes;
