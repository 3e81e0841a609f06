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

create materialized view if not exists ${database}kafka_requests_loaded$on_cluster to http_requests (
    time_unix_us, host, request_id, client_ip, server_ip, method, status, bytes, duration_us
) as
select
    toInt64(round(JSONExtractFloat(line, 'time') * 1000000)) as time_unix_us,
    JSONExtractString(line, 'host') as host,
    reinterpretAsUInt128(reverse(unhex(JSONExtractString(line, 'request_id')))) as request_id,
    toIPv6OrDefault(JSONExtractString(line, 'client')) as client_ip,
    toIPv6OrDefault(JSONExtractString(line, 'server')) as server_ip,
    JSONExtractString(line, 'method') as method,
    toUInt16(JSONExtractUInt(line, 'status')) as status,
    JSONExtractUInt(line, 'bytes') as bytes,
    toUInt64(round(JSONExtractFloat(line, 'request_time') * 1000000)) as duration_us
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
    if(match(message, '[^\n]'), arrayFilter(line -> line != '', splitByChar('\n', message)), ['']) as lines,
    arrayMap(line -> multiIf(
        JSONType(line) != 'Object',
        'is not a JSON object',
        JSONType(line, 'time') not in ('Int64', 'UInt64', 'Double')
        or not JSONExtractFloat(line, 'time') between 0 and 4000000000,
        'time: is not a number from 0 to 4e+09',
        not JSONExtractFloat(line, 'time')
        between toUnixTimestamp(now()) - $before_s and toUnixTimestamp(now()) + $after_s,
        'time: is too far from now',
        not lengthUTF8(JSONExtractString(line, 'host')) between 1 and 255,
        'host: is not a text of 1 to 255 characters',
        not match(JSONExtractString(line, 'request_id'), '^[0-9a-fA-F]{32}$$'),
        'request_id: is not 32 hexadecimal digits',
        toIPv6OrNull(JSONExtractString(line, 'client')) is null,
        'client: is not an IP address',
        toIPv6OrNull(JSONExtractString(line, 'server')) is null,
        'server: is not an IP address',
        not lengthUTF8(JSONExtractString(line, 'method')) between 1 and 255,
        'method: is not a text of 1 to 255 characters',
        JSONType(line, 'status') not in ('Int64', 'UInt64') or not JSONExtractInt(line, 'status') between 0 and 999,
        'status: is not a whole number from 0 to 999',
        JSONType(line, 'bytes') not in ('Int64', 'UInt64') or JSONExtractInt(line, 'bytes') < 0,
        'bytes: is not a whole number from 0 to 9.22337e+18',
        JSONType(line, 'request_time') not in ('Int64', 'UInt64', 'Double')
        or not JSONExtractFloat(line, 'request_time') between 0 and 1000000000,
        'request_time: is not a number from 0 to 1e+09',
        ''
    ), lines) as problems
from ${database}kafka_requests;
