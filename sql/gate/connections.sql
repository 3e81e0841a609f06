-- New connections to what a publication names, by host: before the rollout, and after its wave. Parameters: instants in
-- microseconds since the epoch, oldest <= before < begun <= since < until; horizon_us; lossy and rtt_ratio as in the
-- policy; hosts and, in the same order, sets: which set of destinations each has; nets, lens (of 128 bits), net_sets
-- and net_classes: the destinations of the sets; lengths: the distinct lens, the longest first. For each class:
-- class_kinds, the kind of its destinations; class_changed, whether new connections to them have other values after the
-- wave; class_flights, how many acknowledged bytes show that the first flight is over; class_young, up to how many a
-- connection is young.
--
-- A connection is new in a window of time if its first record is in it, and an earlier poll of its namespace did not
-- show it, or if that record shows that nothing was sent yet. It is counted once, whatever its size, by its first
-- record in which its first flight has been acknowledged; if none shows that, by its last one if it was closed or seen
-- at two polls (else its flight may not be complete). Only the first eight records, and those within the horizon of the
-- first, count: connections before and after are observed for equally long. Nothing depends on the order of arrival,
-- and a copy of a record changes only the time that eight records cover.
with keys as (
    select arrayMap(
        (a, b, c) -> cityHash64(a, toIPv6(b), c),
        {net_sets:Array(UInt32)}, {nets:Array(String)}, {lens:Array(UInt8)}
    ) as hashes
),

records as (
    select
        host,
        boot_id,
        netns,
        cookie,
        time_unix_us,
        poll_sequence,
        kind = 'CLOSE' as is_close,
        -- The longest matching prefix of the destinations in the host's set.
        arrayFirst(
            key -> transform(key, (select keys.hashes from keys), {net_classes:Array(UInt32)}, 0) > 0,
            arrayMap(
                length -> cityHash64(
                    transform(host, {hosts:Array(String)}, {sets:Array(UInt32)}, 0),
                    tupleElement(IPv6CIDRToRange(dst_ip, length), 1),
                    length
                ),
                {lengths:Array(UInt8)}
            )
        ) as destination,
        transform(destination, (select keys.hashes from keys), {net_classes:Array(UInt32)}, 0) as class,
        coalesce(bytes_acked, 0) as acked,
        coalesce(bytes_sent, 0) as sent,
        -- Data that the peer already had was not lost (RFC 2883): segments reported as duplicates are subtracted, each
        -- as a full one at most.
        toUInt64(springtide_spurious(dsack_dups, copied_segments)) * coalesce(snd_mss, 0) as in_vain,
        coalesce(bytes_retrans, 0) - least(coalesce(bytes_retrans, 0), in_vain) as again,
        -- -1 where the kernel does not report it.
        coalesce(toInt64(total_rto), -1) as timeouts,
        coalesce(toInt64(segs_in), -1) as received,
        coalesce(rtt, 0) as rtt_us
    from tcp_samples
    where
        time_unix_us >= {oldest:Int64}
        and time_unix_us < {until:Int64}
        and host in {hosts:Array(String)}
        and state not in ('LISTEN', 'TIME_WAIT', 'NEW_SYN_RECV', 'BOUND_INACTIVE')
        -- As in the roll-up: values that no connection can have are ignored.
        and greatest(coalesce(bytes_acked, 0), coalesce(bytes_sent, 0), coalesce(bytes_retrans, 0)) <= 9007199254740992
        and coalesce(rtt, 0) <= 600000000
        and class > 0
),

-- The first poll of each namespace: the age of the sockets in it is unknown.
namespaces as (
    select
        host,
        boot_id,
        netns,
        min(time_unix_us) as began_us,
        argMin(poll_sequence, time_unix_us) as first_poll
    from tcp_samples
    where
        time_unix_us >= {oldest:Int64}
        and time_unix_us < {until:Int64}
        and host in {hosts:Array(String)}
        and kind = 'POLL'
    group by host, boot_id, netns
),

sockets as (
    select
        host,
        boot_id,
        netns,
        any(class) as class,
        any(destination) as destination,
        groupArraySorted(8)( -- noqa: LT01
            tuple(time_unix_us * 2 + is_close, poll_sequence, acked, sent, again, timeouts, received, rtt_us)
        ) as firsts
    from records
    group by host, boot_id, netns, cookie
),

joined as (
    select
        sockets.host as host,
        sockets.class as class,
        sockets.destination as destination,
        sockets.firsts as firsts,
        namespaces.began_us as began_us,
        namespaces.first_poll as first_poll
    from sockets
    left join namespaces
        on
            sockets.host = namespaces.host
            and sockets.boot_id = namespaces.boot_id
            and sockets.netns = namespaces.netns
),

placed as (
    select
        host,
        class,
        destination,
        firsts[1] as first_record,
        intDiv(tupleElement(first_record, 1), 2) as first_us,
        multiIf(
            first_us >= {before:Int64} and first_us < {begun:Int64}, 'before',
            first_us >= {since:Int64}, 'after',
            ''
        ) as side,
        (
            began_us > 0
            and began_us < first_us
            and (tupleElement(first_record, 2) != first_poll or tupleElement(first_record, 1) % 2 = 1)
        )
        or tupleElement(first_record, 4) = 0 as is_new,
        arrayFilter(one -> intDiv(tupleElement(one, 1), 2) <= first_us + {horizon_us:Int64}, firsts) as watched,
        {class_flights:Array(UInt64)}[class] as flight,
        arrayFirst(one -> tupleElement(one, 3) >= flight, watched) as reached,
        if(tupleElement(reached, 1) > 0, reached, watched[-1]) as decisive,
        tupleElement(reached, 1) > 0
        or tupleElement(decisive, 1) % 2 = 1
        or tupleElement(decisive, 2) != tupleElement(first_record, 2) as is_decided
    from joined
    where side != '' and is_new
),

judged as (
    select
        host,
        {class_kinds:Array(String)}[class] as kind,
        {class_changed:Array(UInt8)}[class] as is_changed,
        side,
        destination,
        is_decided,
        tupleElement(decisive, 3) <= {class_young:Array(UInt64)}[class] as is_young,
        tupleElement(decisive, 4) as sent,
        tupleElement(decisive, 5) as again,
        again > {lossy:Float64} * sent as is_lossy,
        tupleElement(decisive, 6) as timeouts,
        tupleElement(decisive, 7) as received,
        tupleElement(decisive, 8) as rtt_us
    from placed
),

-- The limit above which an RTT is slow, from the usual RTT to a destination with five connections or more: the median
-- of the hosts' medians, so that one host with many connections does not determine it.
usual_of_hosts as (
    select
        destination,
        host,
        median(rtt_us) as middle_us,
        count() as connections
    from judged
    where side = 'before' and rtt_us > 0
    group by destination, host
),

usual as (
    select
        destination,
        {rtt_ratio:Float64} * median(middle_us) as slow_us
    from usual_of_hosts
    group by destination
    having sum(connections) >= 5
)

select
    judged.host as host,
    judged.kind as kind,
    judged.is_changed as is_changed,
    judged.side as side,
    count() as connections,
    countIf(judged.is_decided and judged.sent > 0 and judged.is_young) as young,
    countIf(judged.is_decided and judged.sent > 0 and judged.is_young and judged.again > 0) as young_lost,
    countIf(judged.is_decided and judged.sent > 0 and not judged.is_young) as grown,
    countIf(judged.is_decided and judged.sent > 0 and not judged.is_young and judged.is_lossy) as grown_lossy,
    countIf(judged.is_decided and judged.sent > 0 and judged.timeouts >= 0) as timed,
    countIf(judged.is_decided and judged.sent > 0 and judged.timeouts > 0) as timed_out,
    countIf(judged.is_decided and judged.received >= 0) as tried,
    countIf(judged.is_decided and judged.received = 0) as failed,
    countIf(judged.rtt_us > 0 and usual.slow_us > 0) as measured,
    countIf(judged.rtt_us > usual.slow_us and usual.slow_us > 0) as slow
from judged
left join usual on judged.destination = usual.destination
group by judged.host, judged.kind, judged.is_changed, judged.side
settings prefer_column_name_to_alias = 1, max_bytes_before_external_group_by = 4000000000
