-- Samples that each of the fleet's hosts should have sent in the round, and those that it sent. Parameters: generation,
-- round_s, interval_s, round_start_us (microseconds since the epoch).
insert into rollup_hosts
with polls as (
    select
        host,
        boot_id,
        poll_sequence,
        -- A poll across the round's beginning is in both rounds.
        max(ended_us >= {round_start_us:Int64}) as in_round,
        max(pop) as pop
    from rollup_polls
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
    group by host, boot_id, poll_sequence
),

steps as (
    select
        host,
        pop,
        in_round,
        -- Since the poll before it; the first known poll has none.
        poll_sequence - lagInFrame(poll_sequence, 1, poll_sequence) over (
            partition by host, boot_id
            order by poll_sequence rows between unbounded preceding and current row
        ) as step
    from polls
),

polled as (
    select
        host,
        max(pop) as pop,
        countIf(in_round) as polls_seen,
        countIf(not in_round) as polls_before,
        -- No round has more polls than seconds: a greater step is a collector whose numbers have restarted, not a loss.
        sumIf(step - 1, in_round and step > 1 and step <= {interval_s:UInt32}) as polls_skipped,
        -- And if their sum is greater than that, the numbers are not usable.
        if(polls_skipped <= greatest({interval_s:UInt32}, polls_seen), polls_skipped, 0) as polls_missing
    from steps
    group by host
),

received as (
    select
        host,
        max(pop) as pop,
        sum(samples) as row_count,
        countIf(closed) as closes,
        countIf(closed and samples > 1) as closes_of_polled,
        countIf(presence = 'vanished') as vanished,
        -- Where polls omit sockets (a collector that sends changes only), absence shows nothing.
        countIf(presence = 'skipped') * 100 <= countIf(presence in ('skipped', 'steady')) as is_full,
        -- Closes that were lost: known for sockets that polls showed, and in the same ratio for those between polls.
        if(is_full, greatest(vanished, intDiv(closes * vanished, greatest(closes_of_polled, 1))), 0) as closes_missing
    from rollup_sockets
    where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
    group by host
),

joined as (
    select
        if(polled.host != '', polled.host, received.host) as host,
        greatest(polled.pop, received.pop) as pop,
        polled.polls_seen as polls_seen,
        polled.polls_before as polls_before,
        polled.polls_missing as polls_missing,
        received.row_count as rows_seen,
        received.closes as closes,
        received.closes + received.closes_missing as closes_expected
    from polled
    full outer join received on polled.host = received.host
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    host,
    pop,
    polls_seen,
    if(polls_seen = 0, polls_before, polls_seen + polls_missing) as polls_expected,
    rows_seen,
    if(
        polls_seen = 0,
        rows_seen + polls_before,
        rows_seen + intDiv(rows_seen * polls_missing, polls_seen)
    ) as rows_expected,
    closes,
    closes_expected
from joined
settings prefer_column_name_to_alias = 1
