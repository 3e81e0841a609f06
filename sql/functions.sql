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

-- Segments that arrived twice beyond those that the host sent twice by itself: they were sent again in vain.
create or replace function springtide_spurious$on_cluster as (dsack_dups, copied_segments) ->
    coalesce(dsack_dups, 0) - least(coalesce(dsack_dups, 0), coalesce(copied_segments, 0));

-- The rate at which a connection was delivered over the time in which it had data in flight, bytes/s. Fewer bytes than
-- 100 kB show nothing of the path: 0.
create or replace function springtide_mean_rate$on_cluster as (acked, busy_us) ->
    if(acked >= 100000 and busy_us > 0, intDiv(toUInt128(acked) * 1000000, busy_us), toUInt128(0));

-- A value with the number of connections that it stands for, at most 65535, as one number. It sorts by the value: a
-- result from a sorted list of these does not depend on the order in which rows came.
create or replace function springtide_weighed$on_cluster as (number, weight) ->
    bitShiftLeft(toUInt64(least(number, 281474976710655)), 16) + toUInt64(weight);

-- The values of such a list, and their weights.
create or replace function springtide_values$on_cluster as (list) ->
    arrayMap(weighed -> bitShiftRight(weighed, 16), list);
create or replace function springtide_weights$on_cluster as (list) ->
    arrayMap(weighed -> toUInt32(bitAnd(weighed, 65535)), list);

-- Apply an aggregate function of values and weights to such a list; make the list's sketch.
create or replace function springtide_reduced$on_cluster as (how, list) ->
    arrayReduce(how, springtide_values(list), springtide_weights(list));
create or replace function springtide_sketch$on_cluster as (list) ->
    arrayReduce(
        'quantilesTDigestWeightedState(0.1, 0.25, 0.5, 0.75, 0.9)',
        arrayMap(weighed -> toFloat32(bitShiftRight(weighed, 16)), list),
        springtide_weights(list)
    );

-- A bound on one host's influence: its mean is held within half and twice that of the middle host.
create or replace function springtide_held_mean$on_cluster as (mean, middle) ->
    least(greatest(mean, middle / 2), middle * 2);

-- A host's list within its bounds: at most the number of values that count, taken from the middles of equal parts of the
-- list, and scaled to the allowed mean.
create or replace function springtide_held$on_cluster as (list, weight, held_weight, mean, held_mean) ->
    if(
        held_weight = weight and held_mean = mean,
        list,
        arrayMap(
            place -> springtide_weighed(
                toUInt64(
                    round(
                        bitShiftRight(
                            list[
                                1
                                + intDiv(
                                    (2 * place + 1) * length(list),
                                    greatest(2 * toUInt64(least(length(list), held_weight)), 1)
                                )
                            ],
                            16
                        )
                        * held_mean / mean
                    )
                ),
                least(intDiv(held_weight, greatest(toUInt64(least(length(list), held_weight)), 1)), 65535)
            ),
            range(toUInt64(least(length(list), held_weight)))
        )
    );

-- Lists (whole, part, ...) of hosts. The largest whole is cut to the second largest, and its parts in proportion.
create or replace function springtide_capped$on_cluster as (hosts) ->
    arrayMap(
        host -> arrayMap(
            number -> number * least(1, arrayReverseSort(arrayMap(each -> each[1], hosts))[2] / host[1]), host
        ),
        hosts
    );

-- The sums of such lists without the host that moves the sum of the parts over that of the wholes most: upwards (1) or
-- downwards (-1).
create or replace function springtide_without_most$on_cluster as (hosts, upwards) ->
    arrayReduce(
        'sumForEach',
        arrayPopBack(
            arraySort(
                host -> tuple(
                    upwards
                    * (host[2] * arraySum(each -> each[1], hosts) - host[1] * arraySum(each -> each[2], hosts)),
                    host
                ),
                hosts
            )
        )
    );

-- Sum over hosts. With three or more, one of them may be lying.
create or replace function springtide_agreed$on_cluster as (hosts, upwards) ->
    if(
        length(hosts) > 2,
        springtide_without_most(springtide_capped(hosts), upwards),
        arrayReduce('sumForEach', hosts)
    );

-- Number of flights that sent any segment again, in a list of (segments sent again, ...).
create or replace function springtide_lossy$on_cluster as (flights) ->
    toFloat64(arrayCount(flight -> flight.1 > 0, flights));

-- A time of ten seconds at most as (1, time, its square): sums of these give mean and spread.
create or replace function springtide_moments$on_cluster as (us) ->
    [1, toUInt128(least(us, 10000000)), toUInt128(least(us, 10000000)) * least(us, 10000000)];

-- The share of `part` where only `kept` of `whole` count, rounded up: few losses do not become zero.
create or replace function springtide_in_proportion$on_cluster as (part, whole, kept) ->
    toUInt64(intDiv(toUInt128(part) * kept + greatest(whole, 1) - 1, greatest(whole, 1)));

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
