-- The collectors' messages into tcp_samples; other messages, and single samples that do not fit the table, into
-- rejected_messages. No expression here can fail on a row's values: that would stop all intake. Created by
-- `springtide consume`, which fills in the holes ($$name): in its own process for as long as it runs, or once on a
-- server, which then consumes by itself. The engine parses, inserts and then commits the offsets: after a crash in
-- between, messages are read again, which is harmless as a sample has a key of its own.
create table if not exists ${database}kafka_samples$on_cluster ( -- noqa: PRS
    $structure
)
engine = Kafka
settings
    kafka_broker_list = $brokers,
    kafka_topic_list = $topic,
    kafka_group_name = $group,
    kafka_format = 'ProtobufList',
    kafka_schema = $schema,
    kafka_handle_error_mode = 'stream',
    kafka_num_consumers = $consumers,
    kafka_thread_per_consumer = $threads,
    -- An insert is one part: larger blocks are fewer parts. A block waits no longer than the flush interval.
    kafka_max_block_size = $block,
    kafka_poll_max_batch_size = $block,
    kafka_flush_interval_ms = 2000;

-- Each row is checked once; the two views that read a block exist before the consumer starts: the view into this table
-- is created last.
create table if not exists ${database}kafka_sample_rows$on_cluster ( -- noqa: PRS
    $structure,
    kafka_topic String,
    kafka_partition UInt64,
    kafka_offset UInt64,
    message_key String,
    unreadable Bool,
    error String,
    message String,
    message_time DateTime('UTC')
)
engine = Null;

-- A message of a megabyte may have half a million rows of two bytes, each of which is kept with all its columns: of one
-- message a thousand are kept, with the number of all.
create materialized view if not exists ${database}kafka_samples_rejected$on_cluster to rejected_messages as
select
    kafka_topic as topic,
    kafka_partition,
    kafka_offset,
    message_key,
    if(refused > 1000, concat(error, ' (one of ', toString(refused), ', of which 1000 are kept)'), error) as error,
    if(unreadable, message, $shown) as message,
    if(unreadable, 0, cityHash64(message)) as sample_hash,
    message_time
from (
    select
        *,
        count() over (partition by kafka_partition, kafka_offset) as refused
    from ${database}kafka_sample_rows
    where error != ''
    limit 1000 by kafka_partition, kafka_offset
);

create materialized view if not exists ${database}kafka_samples_loaded$on_cluster to tcp_samples ( -- noqa: PRS
    $columns
) as
select
    $values
from ${database}kafka_sample_rows
where error = '';

create materialized view if not exists ${database}kafka_samples_received$on_cluster to ${database}kafka_sample_rows as
select
    *,
    _topic as kafka_topic,
    _partition as kafka_partition,
    _offset as kafka_offset,
    _key as message_key,
    _error != '' as unreadable,
    if(unreadable, _error, $problem) as error,
    _raw_message as message,
    coalesce(_timestamp, now()) as message_time
from ${database}kafka_samples$guard; -- noqa: AM04, PRS
