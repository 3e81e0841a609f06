-- One TCP socket at one moment, as a collector reported it. Columns have the names and units of
-- proto/springtide/v1/tcp_sample.proto, and the widths of the kernel's. Null means that the kernel did not report it.
--
-- Delivery is at least once. (host, boot_id, netns, cookie, poll_sequence, kind) identifies a sample. The sorting key
-- is made of these and of what they determine; readers say `final`. Columns that are derived from fleet.yaml stay out
-- of the key: a fleet that changed between two deliveries would keep both copies.
--
-- The key begins with five minutes of time, then the PoP: a round is one run of granules per PoP, and within it a
-- socket's samples lie side by side. Differences of a socket's counters read them so, and so they compress best.
--
-- Codecs are chosen by measurement on replayed captures: `python -m bench pipeline --codecs` prints what each column
-- takes under each codec. Ages and numbers of polls grow by steps (Delta). Rates and times of a busy socket have only
-- their high bits in common (T64). Counters whose steps are as random as they are large have ZSTD alone.
create table if not exists tcp_samples$local$on_cluster (
    time_unix_us Int64 codec (Delta, ZSTD(1)),
    host LowCardinality(String) codec (ZSTD(1)),
    pop LowCardinality(String) codec (ZSTD(1)),
    boot_id LowCardinality(String) codec (ZSTD(1)),
    netns UInt64 codec (Delta, ZSTD(1)),
    poll_sequence UInt64 codec (DoubleDelta, ZSTD(1)),
    cookie UInt64 codec (Delta, ZSTD(1)),
    -- FIRST_FLIGHT: how a connection's first flights went, as the eBPF program of springtide-edge saw it. Its `state`
    -- is UNSPECIFIED.
    kind Enum8(
        'UNSPECIFIED' = 0,
        'POLL' = 1,
        'CLOSE' = 2,
        'FIRST_FLIGHT' = 3
    ) codec (ZSTD(1)),
    state Enum8(
        'UNSPECIFIED' = 0,
        'ESTABLISHED' = 1,
        'SYN_SENT' = 2,
        'SYN_RECV' = 3,
        'FIN_WAIT1' = 4,
        'FIN_WAIT2' = 5,
        'TIME_WAIT' = 6,
        'CLOSE' = 7,
        'CLOSE_WAIT' = 8,
        'LAST_ACK' = 9,
        'LISTEN' = 10,
        'CLOSING' = 11,
        'NEW_SYN_RECV' = 12,
        'BOUND_INACTIVE' = 13
    ) codec (ZSTD(1)),
    src_ip IPv6 codec (ZSTD(1)),
    src_port UInt16 codec (ZSTD(1)),
    dst_ip IPv6 codec (ZSTD(1)),
    dst_port UInt16 codec (ZSTD(1)),
    snd_cwnd Nullable(UInt32) codec (Delta, ZSTD(1)),
    rtt Nullable(UInt32) codec (T64, ZSTD(1)),
    sample_weight Nullable(UInt32) codec (ZSTD(1)),
    family UInt8 codec (ZSTD(1)),
    timer UInt8 codec (ZSTD(1)),
    timer_retrans UInt8 codec (ZSTD(1)),
    timer_expires_ms UInt32 codec (ZSTD(1)),
    rqueue UInt32 codec (ZSTD(1)),
    wqueue UInt32 codec (ZSTD(1)),
    uid UInt32 codec (ZSTD(1)),
    inode UInt32 codec (ZSTD(1)),
    interface UInt32 codec (ZSTD(1)),
    congestion_algorithm LowCardinality(Nullable(String)) codec (ZSTD(1)),
    tos Nullable(UInt8) codec (ZSTD(1)),
    tclass Nullable(UInt8) codec (ZSTD(1)),
    shutdown Nullable(UInt8) codec (ZSTD(1)),
    v6only Nullable(Bool) codec (ZSTD(1)),
    mark Nullable(UInt32) codec (ZSTD(1)),
    class_id Nullable(UInt32) codec (ZSTD(1)),
    cgroup_id Nullable(UInt64) codec (Delta, ZSTD(1)),
    protocol Nullable(UInt16) codec (ZSTD(1)),
    ulp_name LowCardinality(Nullable(String)) codec (ZSTD(1)),
    sockopt Nullable(UInt32) codec (ZSTD(1)),
    skmem_rmem_alloc Nullable(UInt32) codec (ZSTD(1)),
    skmem_rcvbuf Nullable(UInt32) codec (ZSTD(1)),
    skmem_wmem_alloc Nullable(UInt32) codec (ZSTD(1)),
    skmem_sndbuf Nullable(UInt32) codec (ZSTD(1)),
    skmem_fwd_alloc Nullable(UInt32) codec (ZSTD(1)),
    skmem_wmem_queued Nullable(UInt32) codec (ZSTD(1)),
    skmem_optmem Nullable(UInt32) codec (ZSTD(1)),
    skmem_backlog Nullable(UInt32) codec (ZSTD(1)),
    skmem_drops Nullable(UInt32) codec (ZSTD(1)),
    tcp_info_length Nullable(UInt16) codec (ZSTD(1)),
    tcp_info_state Nullable(UInt8) codec (ZSTD(1)),
    ca_state Nullable(UInt8) codec (ZSTD(1)),
    retransmits Nullable(UInt8) codec (ZSTD(1)),
    probes Nullable(UInt8) codec (ZSTD(1)),
    backoff Nullable(UInt8) codec (ZSTD(1)),
    options Nullable(UInt8) codec (ZSTD(1)),
    snd_wscale Nullable(UInt8) codec (ZSTD(1)),
    rcv_wscale Nullable(UInt8) codec (ZSTD(1)),
    delivery_rate_app_limited Nullable(Bool) codec (T64, ZSTD(1)),
    fastopen_client_fail Nullable(UInt8) codec (ZSTD(1)),
    rto Nullable(UInt32) codec (T64, ZSTD(1)),
    ato Nullable(UInt32) codec (ZSTD(1)),
    snd_mss Nullable(UInt32) codec (ZSTD(1)),
    rcv_mss Nullable(UInt32) codec (ZSTD(1)),
    unacked Nullable(UInt32) codec (ZSTD(1)),
    sacked Nullable(UInt32) codec (ZSTD(1)),
    lost Nullable(UInt32) codec (ZSTD(1)),
    retrans Nullable(UInt32) codec (ZSTD(1)),
    fackets Nullable(UInt32) codec (ZSTD(1)),
    last_data_sent Nullable(UInt32) codec (Delta, ZSTD(1)),
    last_ack_sent Nullable(UInt32) codec (Delta, ZSTD(1)),
    last_data_recv Nullable(UInt32) codec (Delta, ZSTD(1)),
    last_ack_recv Nullable(UInt32) codec (Delta, ZSTD(1)),
    pmtu Nullable(UInt32) codec (ZSTD(1)),
    rcv_ssthresh Nullable(UInt32) codec (ZSTD(1)),
    rttvar Nullable(UInt32) codec (T64, ZSTD(1)),
    snd_ssthresh Nullable(UInt32) codec (ZSTD(1)),
    advmss Nullable(UInt32) codec (ZSTD(1)),
    reordering Nullable(UInt32) codec (ZSTD(1)),
    rcv_rtt Nullable(UInt32) codec (ZSTD(1)),
    rcv_space Nullable(UInt32) codec (ZSTD(1)),
    total_retrans Nullable(UInt32) codec (Delta, ZSTD(1)),
    pacing_rate Nullable(UInt64) codec (ZSTD(1)),
    max_pacing_rate Nullable(UInt64) codec (ZSTD(1)),
    bytes_acked Nullable(UInt64) codec (ZSTD(1)),
    bytes_received Nullable(UInt64) codec (Delta, ZSTD(1)),
    segs_out Nullable(UInt32) codec (Delta, ZSTD(1)),
    segs_in Nullable(UInt32) codec (Delta, ZSTD(1)),
    notsent_bytes Nullable(UInt32) codec (ZSTD(1)),
    min_rtt Nullable(UInt32) codec (ZSTD(1)),
    data_segs_in Nullable(UInt32) codec (Delta, ZSTD(1)),
    data_segs_out Nullable(UInt32) codec (Delta, ZSTD(1)),
    delivery_rate Nullable(UInt64) codec (T64, ZSTD(1)),
    busy_time Nullable(UInt64) codec (Delta, ZSTD(1)),
    rwnd_limited Nullable(UInt64) codec (Delta, ZSTD(1)),
    sndbuf_limited Nullable(UInt64) codec (Delta, ZSTD(1)),
    delivered Nullable(UInt32) codec (Delta, ZSTD(1)),
    delivered_ce Nullable(UInt32) codec (Delta, ZSTD(1)),
    bytes_sent Nullable(UInt64) codec (ZSTD(1)),
    bytes_retrans Nullable(UInt64) codec (Delta, ZSTD(1)),
    dsack_dups Nullable(UInt32) codec (Delta, ZSTD(1)),
    reord_seen Nullable(UInt32) codec (Delta, ZSTD(1)),
    rcv_ooopack Nullable(UInt32) codec (Delta, ZSTD(1)),
    snd_wnd Nullable(UInt32) codec (ZSTD(1)),
    rcv_wnd Nullable(UInt32) codec (ZSTD(1)),
    rehash Nullable(UInt32) codec (ZSTD(1)),
    total_rto Nullable(UInt32) codec (ZSTD(1)),
    total_rto_recoveries Nullable(UInt32) codec (ZSTD(1)),
    total_rto_time Nullable(UInt32) codec (ZSTD(1)),
    received_ce Nullable(UInt32) codec (ZSTD(1)),
    delivered_e1_bytes Nullable(UInt32) codec (ZSTD(1)),
    delivered_e0_bytes Nullable(UInt32) codec (ZSTD(1)),
    delivered_ce_bytes Nullable(UInt32) codec (ZSTD(1)),
    received_e1_bytes Nullable(UInt32) codec (ZSTD(1)),
    received_e0_bytes Nullable(UInt32) codec (ZSTD(1)),
    received_ce_bytes Nullable(UInt32) codec (ZSTD(1)),
    accecn_fail_mode Nullable(UInt32) codec (ZSTD(1)),
    accecn_opt_seen Nullable(UInt32) codec (ZSTD(1)),
    bbr_bw Nullable(UInt64) codec (ZSTD(1)),
    bbr_min_rtt Nullable(UInt32) codec (ZSTD(1)),
    bbr_pacing_gain Nullable(UInt32) codec (ZSTD(1)),
    bbr_cwnd_gain Nullable(UInt32) codec (ZSTD(1)),
    vegas_enabled Nullable(UInt32) codec (ZSTD(1)),
    vegas_rttcnt Nullable(UInt32) codec (ZSTD(1)),
    vegas_rtt Nullable(UInt32) codec (ZSTD(1)),
    vegas_minrtt Nullable(UInt32) codec (ZSTD(1)),
    dctcp_enabled Nullable(UInt16) codec (ZSTD(1)),
    dctcp_ce_state Nullable(UInt16) codec (ZSTD(1)),
    dctcp_alpha Nullable(UInt32) codec (ZSTD(1)),
    dctcp_ab_ecn Nullable(UInt32) codec (ZSTD(1)),
    dctcp_ab_tot Nullable(UInt32) codec (ZSTD(1)),

    -- The start of the connection, as the eBPF program of springtide-edge recorded it; null where that is not known.
    -- The round of the bundle, seconds since the epoch.
    started_round Nullable(UInt64) codec (ZSTD(1)),
    -- The first window that was set, segments; 0 is the kernel's default.
    started_window Nullable(UInt32) codec (ZSTD(1)),
    -- The pacing rate that was set, bytes per second; 0 is none.
    started_rate Nullable(UInt32) codec (ZSTD(1)),
    -- 0: the entry's values. 1: those of its trial.
    started_arm Nullable(UInt8) codec (ZSTD(1)),
    -- 0: as the bundle says. 1: half of it. 2: the kernel's default.
    started_step Nullable(UInt8) codec (ZSTD(1)),

    -- The course of its first flights: in rows of kind FIRST_FLIGHT only. Times are microseconds since the connection
    -- was established, null where it did not happen.
    -- By how many the entry's rate was divided; 0 without a rate, or where nothing was sent.
    started_at_once Nullable(UInt32) codec (ZSTD(1)),
    -- The length of the entry's prefix, in the socket's own IP version; 0 where the bundle does not name the
    -- destination.
    started_prefix_length Nullable(UInt8) codec (ZSTD(1)),
    -- Segments of the first flights that were retransmitted.
    first_flight_retrans Nullable(UInt32) codec (ZSTD(1)),
    -- The round-trip time of the handshake.
    handshake_rtt Nullable(UInt32) codec (ZSTD(1)),
    -- When the first data was acknowledged.
    first_acked_time Nullable(UInt32) codec (ZSTD(1)),
    -- When 10,000, 50,000 and 100,000 bytes were acknowledged.
    acked_10k_time Nullable(UInt32) codec (ZSTD(1)),
    acked_50k_time Nullable(UInt32) codec (ZSTD(1)),
    acked_100k_time Nullable(UInt32) codec (ZSTD(1)),
    -- When the cap of the pacing rate was lifted.
    cap_lifted_time Nullable(UInt32) codec (ZSTD(1)),
    -- When the connection was closed.
    lived_time Nullable(UInt32) codec (ZSTD(1)),
    -- The train of first segments: bytes that were delivered after the first of them, and in how many microseconds.
    train_bytes Nullable(UInt32) codec (ZSTD(1)),
    train_time Nullable(UInt32) codec (ZSTD(1)),
    -- Segments with data that were sent in the first flights, retransmitted ones included.
    first_flight_segs Nullable(UInt32) codec (ZSTD(1)),
    -- The timeout of its handshake; 0 is the kernel's, a second.
    handshake_timeout_ms Nullable(UInt16) codec (ZSTD(1)),
    -- SYNs or SYN-ACKs of the host that were sent again; 255 for as many and more.
    handshake_retrans Nullable(UInt8) codec (ZSTD(1)),
    -- Segments that the host sent twice by itself, and the bytes of the beginning that it was to send so.
    copied_segments Nullable(UInt32) codec (ZSTD(1)),
    copied_bytes Nullable(UInt16) codec (ZSTD(1)),

    -- From here on derived at insert, the same for whoever inserts: the view on Kafka, `springtide ingest`, a
    -- collector that writes here itself.
    -- The PoP of each address by fleet.yaml; empty where no PoP owns it.
    src_pop LowCardinality(String) default dictGetOrDefault('fleet_pops', 'pop', src_ip, '') codec (ZSTD(1)),
    dst_pop LowCardinality(String) default dictGetOrDefault('fleet_pops', 'pop', dst_ip, '') codec (ZSTD(1)),
    -- The version on the wire: a dual-stack socket has family 10 and a mapped IPv4 peer.
    ip_version UInt8 materialized if(
        dst_ip between toIPv6('::ffff:0.0.0.0') and toIPv6('::ffff:255.255.255.255'), 4, 6
    ) codec (ZSTD(1)),
    time DateTime64(6, 'UTC') alias fromUnixTimestamp64Micro(time_unix_us, 'UTC'),
    -- The first address of the peer's /24 or /56, IPv4 mapped.
    client_prefix IPv6 default tupleElement(IPv6CIDRToRange(dst_ip, if(ip_version = 4, 120, 56)), 1) codec (ZSTD(1)),
    -- The autonomous system that originates the peer's address; 0 where asn_prefixes has none.
    dst_asn UInt32 default dictGetOrDefault('asns', 'asn', dst_ip, 0) codec (ZSTD(1)),
    -- When the row arrived in the store.
    inserted_at DateTime('UTC') materialized now() codec (DoubleDelta, ZSTD(1)),
    -- A socket as 64 bits, for its host, boot, namespace and cookie: grouping by it takes half the time of grouping by
    -- these. Two of a million sockets share theirs with a chance of 1 in 40 million. Names are hashed one by one, since
    -- the engine then hashes each only once. Hashes are rotated, so that numbers that are swapped or equal do not
    -- cancel each other.
    socket UInt64 alias bitXor(
        intHash64(cookie),
        bitXor(bitXor(cityHash64(host), bitRotateLeft(cityHash64(boot_id), 17)), bitRotateLeft(intHash64(netns), 34))
    )
)
engine = ${replicated}ReplacingMergeTree$tcp_samples_replica
partition by toYYYYMMDD(fromUnixTimestamp64Micro(time_unix_us, 'UTC'))
order by (intDiv(time_unix_us, 300000000), pop, host, boot_id, netns, cookie, poll_sequence, kind)
-- `ingest --delete` removes a spool file once its rows are here, so they must survive a power cut.
--
-- An insert writes a part of a few files, and merges write two files and more for each column. To create and to fsync
-- these 700 files took as much processor time as all else in writing 50,000 rows. Marks of a part of few files are of
-- whole columns: a merge reads all of them anew for each column.
settings fsync_after_insert = 1, fsync_part_directory = 1, min_level_for_wide_part = 1,
write_marks_for_substreams_in_compact_parts = 0;$tcp_samples_distributed

-- Time that rows took to arrive, by host and five minutes of their own time.
create view if not exists ingest_lag$on_cluster as
select
    toDateTime(intDiv(time_unix_us, 300000000) * 300, 'UTC') as since,
    host,
    count() as row_count,
    median(toUnixTimestamp(inserted_at) - time_unix_us / 1000000) as lag_p50_s,
    max(toUnixTimestamp(inserted_at) - time_unix_us / 1000000) as lag_max_s
from tcp_samples
group by since, host;
