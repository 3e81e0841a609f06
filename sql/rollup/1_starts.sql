-- Publications in force on each edge, since two rounds ago, by the audit: they determine the initial windows of the
-- edge's new connections. Parameters: generation, round_s, lookback_us < round_us (microseconds since the epoch).
--
-- A publication is in force on an edge from the record of the wave that applied it until it is rolled back there,
-- withdrawn, or expires; the latest counts, where there are several. So after a rollback the one before it is in force.
-- An edge that did not answer keeps what it had. Without such a record no publication is in force, and the kernel's
-- default applies.
insert into rollup_starts
with events as (
    select
        toUnixTimestamp(audit.at) as at_s,
        audit.event as event,
        audit.publication as publication,
        audit.verdict as verdict,
        audit.edges as edges,
        audit.details as details,
        JSONExtract(audit.details, 'away', 'Array(String)') as away
    from audit final
    where
        -- An edge keeps a bundle for two days at most.
        audit.at >= fromUnixTimestamp64Micro({lookback_us:Int64}, 'UTC') - interval 2 day
        and audit.at < fromUnixTimestamp64Micro({round_us:Int64}, 'UTC')
        and audit.event in ('publish', 'wave', 'rollback', 'withdraw')
),

published as (
    select
        publication,
        max(toUnixTimestamp(parseDateTimeBestEffortOrZero(JSONExtractString(details, 'windows', 'round'), 'UTC')))
            as decided_s,
        max(toUnixTimestamp(parseDateTimeBestEffortOrZero(JSONExtractString(details, 'windows', 'expires_at'), 'UTC')))
            as expires_s,
        groupArrayArray(JSONExtract(details, 'windows', 'held_out', 'Array(String)')) as held_out
    from events
    where event in ('publish', 'rollback') and verdict = 'published'
    group by publication
    having expires_s > intDiv({lookback_us:Int64}, 1000000)
),

waves as (
    select
        edge,
        publication,
        min(at_s) as since_s
    from events
    array join if(verdict = 'applied', edges, JSONExtract(details, 'changed', 'Array(String)')) as edge
    -- The others are many, and have ended earlier.
    where event = 'wave' and publication in (select published.publication from published)
    group by edge, publication
),

-- An empty publication means every publication.
ends as (
    select
        edge,
        publication,
        at_s
    from events
    array join
        arrayFilter(e -> not has(away, e), edges) as edge
    where event = 'rollback' and verdict in ('done', 'partial')
    union all
    select
        edge,
        '' as publication,
        at_s
    from events
    array join if(event = 'withdraw', edges, JSONExtract(details, 'withdrawn', 'Array(String)')) as edge
    where event = 'withdraw' or (event = 'rollback' and verdict in ('done', 'partial'))
),

held as (
    select
        waves.edge as edge,
        waves.publication as publication,
        any(waves.since_s) as since_s,
        any(published.decided_s) as decided_s,
        any(published.expires_s) as expires_s,
        any(has(published.held_out, waves.edge)) as held_out,
        -- If it was not rolled back, a time after every expiry.
        least(
            any(published.expires_s),
            min(
                if(
                    ends.at_s >= waves.since_s and ends.publication in ('', waves.publication),
                    ends.at_s,
                    4294967295
                )
            )
        ) as until_s
    from waves
    inner join published on waves.publication = published.publication
    left join ends on waves.edge = ends.edge
    group by waves.edge, waves.publication
),

moments as (
    select distinct
        edge,
        greatest(moment_s, intDiv({lookback_us:Int64}, 1000000)) as moment_s
    from held
    array join [toInt64(since_s), toInt64(until_s)] as moment_s
    where moment_s < intDiv({round_us:Int64}, 1000000)
),

at_moments as (
    select
        moments.edge as edge,
        moments.moment_s as moment_s,
        argMaxIf(
            (held.decided_s, held.expires_s, held.held_out),
            (held.since_s, held.publication),
            held.since_s <= moments.moment_s and moments.moment_s < held.until_s
        ) as holds
    from moments
    inner join held on moments.edge = held.edge
    group by moments.edge, moments.moment_s
)

select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64} as generation,
    edge,
    moment_s * 1000000 as since_us,
    fromUnixTimestamp(holds.1) as decided,
    fromUnixTimestamp(holds.2) as expires,
    holds.3 as held_out
from at_moments
settings prefer_column_name_to_alias = 1
