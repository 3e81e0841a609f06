-- round_pairs with friendly names and units.
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
    -- Quantiles of the earned windows, segments.
    cwnd_p10,
    cwnd_p50,
    cwnd_p90,
    max_cwnd as cwnd_max,
    -- Median of the smoothed round-trip times.
    rtt_p50_us / 1000 as rtt_ms,
    rtt_p90_us / 1000 as rtt_p90_ms,
    min_rtt_us / 1000 as rtt_min_ms,
    -- Median of the windows that receivers advertised.
    rwnd_p50_bytes / 1000 as receiver_window_kb,
    bytes_acked / 1000000 as delivered_mb,
    bytes_sent,
    bytes_retransmitted,
    -- Bytes sent again, of all bytes sent in the round.
    100 * retransmit_ratio as retransmit_percent,
    -- Part of the time with data outstanding in which the receiver's window was the limit.
    if(busy_us > 0, 100 * rwnd_limited_us / busy_us, null) as receiver_limited_percent,
    -- Part of that time in which the send buffer was the limit.
    if(busy_us > 0, 100 * sndbuf_limited_us / busy_us, null) as send_buffer_limited_percent,
    young_connections,
    if(young_bytes_sent > 0, 100 * young_bytes_retransmitted / young_bytes_sent, null) as young_retransmit_percent,
    young_lossy_connections,
    young_timeout_connections
from round_pairs;

-- round_prefixes with friendly names and units.
create view if not exists prefixes$on_cluster as
select
    round,
    pop,
    ip_version,
    if(
        ip_version = 4,
        concat(replaceOne(toString(client_prefix), '::ffff:', ''), '/24'),
        concat(toString(client_prefix), '/56')
    ) as prefix,
    client_prefix,
    -- 1 where a PoP owns the prefix.
    dst_pop != '' as back_office,
    if(congestion_algorithm = '', 'unknown', toString(congestion_algorithm)) as algorithm,
    connections,
    samples,
    bytes_acked / 1000000 as delivered_mb,
    bytes_sent,
    bytes_retransmitted,
    -- Bytes sent again, of all bytes sent in the round.
    100 * retransmit_ratio as retransmit_percent,
    -- Quantiles of the connections' last delivery rates.
    delivery_rate_p10_bytes_per_s * 8 / 1000000 as delivery_p10_mbit_per_s,
    delivery_rate_p50_bytes_per_s * 8 / 1000000 as delivery_p50_mbit_per_s,
    delivery_rate_p90_bytes_per_s * 8 / 1000000 as delivery_p90_mbit_per_s,
    rtt_p10_us / 1000 as rtt_p10_ms,
    -- Median of the smoothed round-trip times.
    rtt_p50_us / 1000 as rtt_ms,
    rtt_p90_us / 1000 as rtt_p90_ms,
    100 * loss_p50 as loss_p50_percent,
    100 * loss_p90 as loss_p90_percent,
    -- Connections whose last delivery rate the application limited.
    if(connections > 0, 100 * app_limited_connections / connections, null) as app_limited_percent,
    delivery_rate_state,
    rtt_state,
    loss_state,
    bytes_state
from round_prefixes;

-- round_sockets with friendly names and units.
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
    -- 2147483647 is the kernel's mark for "no loss has set it".
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

-- round_outcomes with friendly names and units.
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

-- round_hosts with friendly names and units.
create view if not exists hosts$on_cluster as
select
    round,
    host,
    pop,
    polls_seen,
    polls_expected,
    rows_seen,
    rows_expected,
    if(rows_expected > 0, 100 * rows_seen / rows_expected, 100) as complete_percent,
    closes,
    closes_expected
from round_hosts;

-- round_goodput with friendly names and units.
create view if not exists goodput$on_cluster as
select
    round,
    pop,
    ip_version,
    if(
        ip_version = 4,
        concat(replaceOne(toString(client_prefix), '::ffff:', ''), '/24'),
        concat(toString(client_prefix), '/56')
    ) as prefix,
    size_class_bytes / 1000 as from_kb,
    requests,
    bytes / 1000000 as delivered_mb,
    goodput_p10_bytes_per_s * 8 / 1000000 as goodput_p10_mbit_per_s,
    goodput_p50_bytes_per_s * 8 / 1000000 as goodput_mbit_per_s,
    goodput_p90_bytes_per_s * 8 / 1000000 as goodput_p90_mbit_per_s,
    goodput_state
from round_goodput;

-- Client prefixes that an earlier round decided for BBR, or held out of it, and that still are, beside what their
-- connections use.
create view if not exists prefix_treatments$on_cluster as
with used as (
    select
        round,
        pop,
        client_prefix,
        sumIf(bytes_acked, startsWith(congestion_algorithm, 'bbr')) as bbr_bytes,
        sumIf(bytes_acked, congestion_algorithm != '') as known_bytes
    from round_prefixes
    group by round, pop, client_prefix
),

decided as (
    select
        round,
        src_pop as pop,
        toIPv6OrDefault(splitByChar('/', destination)[1]) as client_prefix,
        destination as prefix,
        ip_version,
        algorithm,
        held_out
    from path_decisions final
    where part = 'congestion' and (algorithm = 'bbr' or held_out) and selected_since < round
)

select
    decided.round as round,
    decided.pop as pop,
    decided.ip_version as ip_version,
    decided.client_prefix as client_prefix,
    decided.prefix as prefix,
    decided.algorithm as decided,
    decided.held_out as held_out,
    used.known_bytes as known_bytes,
    if(used.known_bytes > 0, used.bbr_bytes / used.known_bytes, null) as bbr_share,
    -- By bytes and not by connections: BBR is for connections that have delivered some.
    multiIf(
        used.known_bytes = 0, 'unknown', (2 * used.bbr_bytes >= used.known_bytes) = (decided = 'bbr'), 'same', 'differs'
    ) as seen
from decided
left join used on decided.round = used.round and decided.pop = used.pop and decided.client_prefix = used.client_prefix;
