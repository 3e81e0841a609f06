-- The views `round_*` show every column of their table but its generation, of committed generations only.
-- noqa: disable=AM04,LT09

-- Rounds that have their tables, and each round's generation of rows. A run writes its rows under a generation of its
-- own and adds its line here last: this line makes them the round's. Readers use the views `round_*`, which show
-- committed generations only. Rows that a killed run left are never read, and the next run removes them.
create table if not exists rollups$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Microseconds since the epoch and 12 random bits: the later run wins.
    generation UInt64 codec (Delta, ZSTD(1)),
    interval_s UInt32,
    -- Seconds between the round's end and the run; what arrived later is not in its tables.
    waited_s UInt32,
    -- Samples of the round that had arrived, each counted once.
    samples UInt64 codec (ZSTD(1)),
    sockets UInt64 codec (ZSTD(1)),
    requests UInt64 codec (ZSTD(1)),
    computed_at DateTime('UTC') codec (Delta, ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}generation)
order by round
settings fsync_after_insert = 1, fsync_part_directory = 1;

-- Samples that arrived after their round's tables were computed and are not in them, by host, as last counted.
create table if not exists late_samples$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    samples UInt64 codec (ZSTD(1)),
    counted_at DateTime('UTC') codec (Delta, ZSTD(1))
)
engine = ${replicated}ReplacingMergeTree(${replica_and}counted_at)
order by (round, generation, host);

create view if not exists round_late$on_cluster as
select * except (generation) from late_samples final
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- One row for each poll of a network namespace in the round or in the one before it. The round's sockets and hosts are
-- made from these. They are kept as short as rollup_sockets.
create table if not exists rollup_polls$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    netns UInt64 codec (Delta, ZSTD(1)),
    poll_sequence UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    -- When its first and its last row in the two rounds were taken, microseconds since the epoch.
    began_us Int64 codec (Delta, ZSTD(1)),
    ended_us Int64 codec (Delta, ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, host);

create view if not exists round_polls$on_cluster as
select
    rollup_polls.round as round,
    rollup_polls.host as host,
    rollup_polls.boot_id as boot_id,
    rollup_polls.netns as netns,
    rollup_polls.poll_sequence as poll_sequence,
    rollup_polls.pop as pop,
    rollup_polls.began_us as began_us,
    rollup_polls.ended_us as ended_us
from rollup_polls
inner join rollups final on rollup_polls.round = rollups.round and rollup_polls.generation = rollups.generation;

-- For each socket with a record in the round, which of its records show what it did. A run of the round fills and
-- empties this table, so that no other step reads every record of a socket.
create table if not exists rollup_records$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    -- As in tcp_samples.
    socket UInt64,
    -- The last record before the round, microseconds since the epoch; 0 where there is none.
    before_us Int64 codec (Delta, ZSTD(1)),
    -- Records in the round: the first, the last poll's, the close's; 0 where there is none.
    first_us Int64 codec (Delta, ZSTD(1)),
    last_poll_us Int64 codec (Delta, ZSTD(1)),
    close_us Int64 codec (Delta, ZSTD(1)),
    -- Polls and closes in the round, copies counted once.
    samples UInt32 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by generation
order by round;

-- The publication that was in force on each edge, and from when on, by the audit. A run of the round fills and empties
-- this table.
create table if not exists rollup_starts$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    edge LowCardinality(String),
    -- Microseconds since the epoch; in force until the edge's next row.
    since_us Int64 codec (Delta, ZSTD(1)),
    -- The round whose decisions it has; 1970 is none.
    decided DateTime('UTC') codec (Delta, ZSTD(1)),
    -- When its bundles expire. A decision that expired before was left out of them.
    expires DateTime('UTC') codec (Delta, ZSTD(1)),
    -- Whether the edge was held out. It then has the kernel's default towards every PoP without an operator's override.
    held_out Bool
)
engine = ${replicated}MergeTree$replica
partition by generation
order by (round, edge, since_us);

-- One row for each socket with a record in the round: what it did within the round, and its last values. Short-lived:
-- the other round tables are made from it, and analysts look closely at the last days.
create table if not exists rollup_sockets$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    netns UInt64 codec (Delta, ZSTD(1)),
    cookie UInt64 codec (Delta, ZSTD(1)),
    src_pop LowCardinality(String),
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- The first address of the peer's /24 or /56, IPv4 mapped.
    client_prefix IPv6,
    -- The last known one; empty when no record of the two rounds named it (close records do not).
    congestion_algorithm LowCardinality(String),
    -- Number of sockets that this sampled one stands for, 1 to 65535.
    sample_weight UInt16,
    -- Records in the round.
    samples UInt32,
    -- Whether a poll of the round saw it, established at the last one.
    live Bool,
    -- Whether its close was reported in the round.
    closed Bool,
    -- Whether a full window was acknowledged within the round.
    earned Bool,
    -- Whether it closed having sent at most two windows: an initial window can have hurt these.
    young Bool,
    -- Whether the application limited the last delivery rate.
    app_limited Bool,
    -- Last values; 0 is unknown. Segments, bytes, microseconds, bytes per second.
    snd_cwnd UInt32,
    snd_mss UInt32,
    snd_ssthresh UInt32,
    snd_wnd UInt32,
    rtt_us UInt32,
    min_rtt_us UInt32,
    delivery_rate_bytes_per_s UInt64,
    -- Within the round.
    bytes_acked UInt64,
    bytes_sent UInt64,
    bytes_retransmitted UInt64,
    bytes_received UInt64,
    busy_us UInt64,
    rwnd_limited_us UInt64,
    sndbuf_limited_us UInt64,
    -- In the connection's life up to its last record.
    life_bytes_acked UInt64,
    life_bytes_sent UInt64,
    life_bytes_retransmitted UInt64,
    life_busy_us UInt64,
    -- Whether its values are possible. A socket with values that no connection can have is kept, and counts for
    -- nothing.
    counted Bool default true,
    -- Evidence of its namespace's polls. brief: nothing, since the socket is too young or the polls are not known.
    -- steady: the socket, from before the round until its end. skipped: the same, but not at each poll. vanished: the
    -- socket at one poll, and later neither it nor its close.
    presence Enum8('brief' = 0, 'steady' = 1, 'skipped' = 2, 'vanished' = 3) default 'brief',
    -- The last window, at most what one round trip has shown that the path carries, segments; 0 where nothing has.
    proved_cwnd UInt32 default if(earned, snd_cwnd, 0),
    -- The window that its edge gave a new connection to that PoP when this one began, segments; 10, the kernel's
    -- default, where that is not known.
    start_cwnd UInt32 default 10,
    -- In its life up to its last record, bytes that were retransmitted because they were lost, as far as is known:
    -- without those that the peer reported to have received twice (DSACK).
    life_bytes_lost UInt64 default life_bytes_retransmitted,
    -- Retransmission timeouts in its life.
    life_timeouts UInt32 default 0,
    -- Bounds of the window with which a connection that is new in the round began, segments: equal where the window is
    -- exactly known, 0 where nothing is known.
    first_cwnd_low UInt32 default 0 codec (ZSTD(1)),
    first_cwnd_high UInt32 default 0 codec (ZSTD(1)),
    -- Whether it began in the round: no earlier record shows it, and its host was polled before. What it did in its
    -- life it then did in the round.
    began Bool default false,
    -- Whether its last delivery rate was measured in the round.
    fresh_rate Bool default false,
    -- Whether the eBPF program of springtide-edge recorded how it started.
    recorded Bool default false,
    -- By fleet.yaml, from the edge's port and address; empty where it names none.
    tenant LowCardinality(String) default '',
    -- Whether that tenant keeps the kernel's default start.
    opted_out Bool default false,
    -- The autonomous system that originates the peer's address (`springtide asn`); 0 is unknown.
    dst_asn UInt32 default 0,
    -- Whether it began with other values than the kernel's default: as the edge's program recorded; without a record,
    -- whether the window that was decided for its edge is another.
    started Bool default false
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
-- No further than questions go: sorting by socket would take longer than everything before it.
order by (round, pop, host);

-- Sockets that count.
create view if not exists round_sockets$on_cluster as
select * except (generation, counted, presence) from rollup_sockets
where counted and (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- The round's first-flight records, each connection once: how it started, and how that went. Kept as short as
-- rollup_sockets.
create table if not exists rollup_flights$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    pop LowCardinality(String),
    host LowCardinality(String),
    boot_id LowCardinality(String),
    netns UInt64 codec (Delta, ZSTD(1)),
    cookie UInt64 codec (Delta, ZSTD(1)),
    -- When it was established, microseconds since the epoch; 0 is unknown.
    began_us Int64 default 0 codec (Delta, ZSTD(1)),
    -- The PoP that it went to; empty for clients.
    dst_pop LowCardinality(String),
    ip_version UInt8,
    -- The client's prefix; `::` for PoPs.
    client_prefix IPv6 codec (ZSTD(1)),
    -- The round of the bundle.
    started_round DateTime('UTC') codec (Delta, ZSTD(1)),
    -- First window and rate that were set, segments and bytes per second; 0 is the kernel's default.
    started_window UInt32 codec (ZSTD(1)),
    started_rate UInt64 codec (ZSTD(1)),
    -- 0: the entry's values. 1: those of its trial.
    started_arm UInt8 codec (ZSTD(1)),
    -- 0: as the bundle says. Otherwise how far the edge's brake had cut it.
    started_step UInt8 codec (ZSTD(1)),
    -- Number of connections that were starting at once.
    started_at_once UInt32 codec (ZSTD(1)),
    -- The length of the entry's prefix; 0 where the bundle does not name the destination.
    started_prefix_length UInt8 codec (ZSTD(1)),
    -- Whether it started with what the last decisions before the round give its arm.
    in_force Bool,
    -- The most that the last decisions before the round give a single connection of its arm, bytes/s; 0 is nothing.
    connection_rate Float64 default 0 codec (ZSTD(1)),
    -- Segments with data that the connection sent.
    segments UInt32 codec (ZSTD(1)),
    -- Those of the first flights; where a record lacks them, all segments without those that later flights
    -- retransmitted.
    first_flight_segments UInt32 default segments codec (ZSTD(1)),
    -- Segments of the first flights that were retransmitted, and all that were.
    first_flight_resent UInt32 codec (ZSTD(1)),
    resent UInt32 codec (ZSTD(1)),
    bytes_acked UInt64 codec (ZSTD(1)),
    min_rtt_us UInt32 codec (ZSTD(1)),
    handshake_rtt_us UInt32 codec (ZSTD(1)),
    -- Times since it was established; null where it did not come to that.
    first_acked_us Nullable(UInt64) codec (ZSTD(1)),
    acked_10k_us Nullable(UInt64) codec (ZSTD(1)),
    acked_50k_us Nullable(UInt64) codec (ZSTD(1)),
    acked_100k_us Nullable(UInt64) codec (ZSTD(1)),
    cap_lifted_us Nullable(UInt64) codec (ZSTD(1)),
    lived_us Nullable(UInt64) codec (ZSTD(1)),
    -- Rate at which its first segments were delivered; 0 is unknown.
    train_bytes_per_s UInt64 default 0 codec (ZSTD(1)),
    -- The timeout of its handshake, milliseconds; 0 is the kernel's.
    handshake_timeout_ms UInt16 default 0 codec (ZSTD(1)),
    -- SYNs or SYN-ACKs of the host that were sent again.
    handshake_resent UInt8 default 0 codec (ZSTD(1)),
    -- Bytes of its beginning that were sent twice, and how many segments that were.
    copied_bytes UInt16 default 0 codec (ZSTD(1)),
    copied_segments UInt32 default 0 codec (ZSTD(1)),
    -- Copied segments that the other end did not get twice: a loss that the copy repaired, or its word was lost.
    repaired_segments UInt32 default 0 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMMDD(round)
order by (round, pop, host);

create view if not exists round_flights$on_cluster as
select * except (generation) from rollup_flights
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- Samples of each host, expected and sent: one row a round and host that sent some in it or in the round before.
create table if not exists rollup_hosts$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    host LowCardinality(String),
    pop LowCardinality(String),
    polls_seen UInt32 codec (ZSTD(1)),
    -- Gaps in the polls' numbers are polls that did not arrive. A host that fell silent is expected to poll as before.
    polls_expected UInt32 codec (ZSTD(1)),
    rows_seen UInt64 codec (ZSTD(1)),
    -- As many rows for each missing poll as for the polls that arrived.
    rows_expected UInt64 codec (ZSTD(1)),
    closes UInt64 codec (ZSTD(1)),
    -- `closes`, and the sockets that vanished without theirs.
    closes_expected UInt64 default closes codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, host)
settings fsync_after_insert = 1, fsync_part_directory = 1;

create view if not exists round_hosts$on_cluster as
select * except (generation) from rollup_hosts
where (round, generation) in (select rollups.round, rollups.generation from rollups final);

-- Hosts that sent what does not count: one row a host and reason. Among hosts that fleet.yaml does not name, the 100
-- with the most samples have rows; the others are together in one row without a name.
create table if not exists rollup_rogues$on_cluster (
    round DateTime('UTC') codec (Delta, ZSTD(1)),
    generation UInt64 codec (Delta, ZSTD(1)),
    -- As it called itself.
    host String,
    -- not_in_fleet: fleet.yaml names no such edge. None of its samples counts.
    -- other_pop: its samples name another PoP than fleet.yaml has it in. The fleet's PoP counts.
    -- impossible_values: connections with values that no connection can have. They do not count, its others do.
    -- several_boots: boots that ran at once. Two machines use this edge's name, or its clock went back.
    -- poll_numbers: numbers of polls that go back, or jump by more than a round has seconds. Gaps there do not count.
    why Enum8(
        'not_in_fleet' = 1, 'other_pop' = 2, 'impossible_values' = 3, 'several_boots' = 4, 'poll_numbers' = 5
    ),
    -- Number of samples, connections, boots or poll numbers.
    times UInt64 codec (ZSTD(1)),
    -- 1, or how many are in the row without a name.
    hosts UInt64 codec (ZSTD(1))
)
engine = ${replicated}MergeTree$replica
partition by toYYYYMM(round)
order by (round, why, host);

create view if not exists round_rogues$on_cluster as
select * except (generation) from rollup_rogues
where (round, generation) in (select rollups.round, rollups.generation from rollups final);
