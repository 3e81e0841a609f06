-- One round's closed connections that delivered something, by tenant, the peer's autonomous system, and whether they
-- began with other values than the kernel's. Parameters: generation, round_s.
insert into rollup_slices
select
    fromUnixTimestamp({round_s:UInt32}) as round,
    {generation:UInt64},
    pop,
    dst_pop,
    ip_version,
    tenant,
    dst_asn,
    started,
    count() as connections,
    countIf(life_bytes_lost > 0) as lossy_connections,
    toUInt64(least(sum(toUInt128(life_bytes_acked)), 9223372036854775807)) as bytes_acked,
    toUInt64(least(sum(toUInt128(life_bytes_sent)), 9223372036854775807)) as bytes_sent,
    toUInt64(least(sum(toUInt128(life_bytes_retransmitted)), 9223372036854775807)) as bytes_retransmitted,
    countIf(life_bytes_acked >= 100000 and life_bytes_acked < 300000 and life_busy_us > 0) as timed_connections,
    sumIf(
        toUInt64(1000 * log2(greatest(life_busy_us, 1)) + 0.5),
        life_bytes_acked >= 100000 and life_bytes_acked < 300000 and life_busy_us > 0
    ) as busy_log2_thousandths
from rollup_sockets
where
    round = fromUnixTimestamp({round_s:UInt32})
    and generation = {generation:UInt64}
    and counted
    and closed
    and life_bytes_acked > 0
    and dst_pop != pop
group by pop, dst_pop, ip_version, tenant, dst_asn, started
settings prefer_column_name_to_alias = 1
