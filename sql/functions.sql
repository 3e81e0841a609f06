-- Expressions that several queries share. `springtide migrate` creates these on the server, for all of its databases,
-- and replaces those that differ. A released function never changes its result for the same arguments; a function with
-- another result has another name.

-- Whether a record has a connection's tcp_info. A socket that closed first is in FIN_WAIT2 for a while without one: the
-- kernel has kept no more of it than its addresses.
create or replace function springtide_has_values$on_cluster as (state, bytes_sent) -> -- noqa: PRS
    bytes_sent is not null
    and state in ('ESTABLISHED', 'FIN_WAIT1', 'FIN_WAIT2', 'CLOSE', 'CLOSE_WAIT', 'LAST_ACK', 'CLOSING');

-- Whether a rate is of a window in flight: it carries at least half of the window in a smoothed round trip (Little's
-- law). The last small record of an answer shows a rate of one segment, without the kernel's flag that the application
-- limited it.
create or replace function springtide_is_window_full$on_cluster as (rate, rtt_us, cwnd, mss) ->
    toUInt128(rate) * rtt_us * 2 >= toUInt128(cwnd) * mss * 1000000;

-- Whether a connection left slow start, or was long in it: the path, and not the connection's age, limits its rate. BBR
-- sets no ssthresh.
create or replace function springtide_has_met$on_cluster as (ssthresh, retransmitted, acked) ->
    ssthresh between 1 and 2147483646
    or retransmitted > 0
    or acked >= 1000000;

-- Whether a connection ends on its own host: at a loopback or link-local address, or (is_own) at one of the host's.
create or replace function springtide_is_local$on_cluster as (dst_ip, is_own) ->
    is_own
    or dst_ip = toIPv6('::1')
    or dst_ip between toIPv6('::ffff:127.0.0.0') and toIPv6('::ffff:127.255.255.255')
    or dst_ip between toIPv6('::ffff:169.254.0.0') and toIPv6('::ffff:169.254.255.255')
    or dst_ip between toIPv6('fe80::') and toIPv6('febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff');

-- What a connection was delivered over the time in which it had data in flight, bytes/s. Fewer bytes than 100 kB show
-- nothing of the path: 0.
create or replace function springtide_mean_rate$on_cluster as (acked, busy_us) ->
    if(acked >= 100000 and busy_us > 0, intDiv(toUInt128(acked) * 1000000, busy_us), toUInt128(0));

-- The 10th, 25th, 50th, 75th and 90th percentile of merged sketches, weighted.
create or replace function springtide_quantiles$on_cluster as (state) ->
    quantilesTDigestWeightedMerge(0.1, 0.25, 0.5, 0.75, 0.9)(state);

-- Bytes that were retransmitted, in percent of those sent.
create or replace function springtide_sent_again_percent$on_cluster as (retransmitted, sent) ->
    100 * sum(retransmitted) / sum(sent);

-- A client's network in the usual notation: /24 of IPv4, /56 of IPv6.
create or replace function springtide_prefix_text$on_cluster as (ip_version, client_prefix) ->
    if(
        ip_version = 4,
        concat(replaceOne(toString(client_prefix), '::ffff:', ''), '/24'),
        concat(toString(client_prefix), '/56')
    );

-- The groups of round-trip times in the Riptide paper's evaluation (section IV-B), of a connection's time to be made.
create or replace function springtide_rtt_group$on_cluster as (connect_us) ->
    multiIf(
        connect_us is null, 'no connection',
        connect_us <= 50000, '1: up to 50 ms',
        connect_us <= 100000, '2: 50-100 ms',
        connect_us <= 150000, '3: 100-150 ms',
        '4: over 150 ms'
    );
