-- Do new connections begin with the window that was decided for their edge?
-- Those that differ come first; `first_cwnds` are what connections began with, the most frequent first.
--
-- Parameters:
--   rounds UInt32 = 3: newest ones
--   top UInt32 = 40: rows
select
    round,
    host,
    dst_pop,
    ip_version,
    decided_cwnd,
    toString(seen) as shown,
    first_cwnds,
    first_cwnd_counts,
    exact_connections,
    told_connections,
    bbr_connections
from round_treatments
where
    round in (
        select rollups.round
        from rollups final
        order by rollups.round desc
        limit {rounds:UInt32}
    )
order by seen desc, round desc, host asc, dst_pop asc, ip_version asc
limit {top:UInt32}
