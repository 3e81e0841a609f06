-- Access logs into http_requests: a message is one line or several, each a JSON object as docs/reference/access-log.md
-- defines it. Any other text is kept whole in rejected_messages with its reason; valid lines beside it are loaded.
-- Created as samples.sql is.
create table if not exists ${database}kafka_requests$on_cluster ( -- noqa: PRS
    message String
)
engine = Kafka
settings
kafka_broker_list = $brokers,
kafka_topic_list = $topic,
kafka_group_name = $group,
kafka_format = 'RawBLOB',
kafka_num_consumers = $consumers,
kafka_thread_per_consumer = $threads,
kafka_max_block_size = $block,
kafka_poll_max_batch_size = $block,
kafka_flush_interval_ms = 2000;

-- Each line is checked once; two views read the result. A message is kept in one row: repeated for each of its lines it
-- would take the square of its size.
create table if not exists ${database}kafka_request_lines$on_cluster (
    topic String,
    kafka_partition UInt64,
    kafka_offset UInt64,
    message_key String,
    message String,
    message_time DateTime('UTC'),
    lines Array(String),
    problems Array(String)
)
engine = Null;

create materialized view if not exists ${database}kafka_requests_rejected$on_cluster to rejected_messages as
select
    topic,
    kafka_partition,
    kafka_offset,
    message_key,
    arrayFirst(problem -> problem != '', problems) as error,
    message,
    message_time
from ${database}kafka_request_lines
where error != '';

create materialized view if not exists ${database}kafka_requests_loaded$on_cluster to http_requests ( -- noqa: PRS
    $columns
) as
select -- noqa: LT09
    $values
from (
    select arrayJoin(arrayFilter((found, problem) -> problem = '', lines, problems)) as line
    from ${database}kafka_request_lines
) as good;

create materialized view if not exists ${database}kafka_requests_judged$on_cluster to ${database}kafka_request_lines as
select
    _topic as topic,
    _partition as kafka_partition,
    _offset as kafka_offset,
    _key as message_key,
    message,
    coalesce(_timestamp, now()) as message_time,
    arrayMap(line -> $cleaned, arrayFilter(line -> line != '', splitByChar('\n', message))) as lines,
    arrayMap(line -> $problem, lines) as problems
from ${database}kafka_requests; -- noqa: PRS
