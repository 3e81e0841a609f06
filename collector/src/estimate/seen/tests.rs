//! Tests of what is kept of a connection, sample by sample.

use super::{Connection, LONG_BYTES, Seen, UNSET};
use crate::sample::proto::{SampleKind, TcpSample, TcpState};

/// Out of slow start, 100 segments in flight for 40 ms at the rate that this takes.
fn meets(cookie: u64, poll: u64) -> TcpSample {
    TcpSample {
        cookie,
        poll_sequence: poll,
        kind: SampleKind::Poll as i32,
        state: TcpState::Established as i32,
        family: 2,
        dst_ip: std::net::Ipv4Addr::new(192, 0, 2, 7)
            .to_ipv6_mapped()
            .octets()
            .to_vec(),
        time_unix_us: 1_000_000 + i64::try_from(poll).unwrap(),
        snd_mss: Some(1000),
        snd_cwnd: Some(100),
        snd_ssthresh: Some(80),
        rtt: Some(40_000),
        min_rtt: Some(30_000),
        delivery_rate: Some(2_500_000),
        snd_wnd: Some(1_000_000),
        bytes_sent: Some(5_000_000),
        bytes_acked: Some(5_000_000),
        busy_time: Some(1_000_000),
        ..TcpSample::default()
    }
}

fn after(samples: &[TcpSample]) -> Connection {
    let mut seen = Seen::new(0, false);
    samples.iter().for_each(|sample| seen.take(sample));
    let found = seen.connections().next().map(|(_, one)| one.clone());
    found.unwrap()
}

#[test]
fn a_rate_counts_as_met_only_where_the_path_alone_was_the_limit() {
    assert_eq!(after(&[meets(1, 2)]).met_rate, 2_500_000);
    // Short in slow start, without loss.
    let starts: fn(&mut TcpSample) = |sample| {
        sample.snd_ssthresh = Some(UNSET);
        sample.bytes_acked = Some(LONG_BYTES - 1);
    };
    let cases: [fn(&mut TcpSample); 8] = [
        |sample| sample.bytes_acked = Some(50_000),
        |sample| sample.delivery_rate_app_limited = Some(true),
        starts,
        |sample| sample.rtt = Some(10_000),
        |sample| sample.snd_wnd = Some(100_000),
        |sample| sample.rwnd_limited = Some(600_000),
        |sample| sample.sndbuf_limited = Some(600_000),
        |sample| sample.last_data_sent = Some(2000),
    ];
    for (number, change) in cases.iter().enumerate() {
        let mut sample = meets(1, 2);
        change(&mut sample);
        assert_eq!(after(&[sample]).met_rate, 0, "{number}");
    }
    // Long ones, those that lost, and those with a threshold.
    let met: [fn(&mut TcpSample); 3] = [
        |sample| sample.bytes_acked = Some(LONG_BYTES),
        |sample| sample.bytes_retrans = Some(1000),
        |sample| sample.snd_ssthresh = Some(200),
    ];
    for (number, change) in met.iter().enumerate() {
        let mut sample = meets(1, 2);
        starts(&mut sample);
        change(&mut sample);
        assert_eq!(after(&[sample]).met_rate, 2_500_000, "{number}");
    }
}

#[test]
fn what_the_first_poll_shows_is_of_any_age() {
    let mut seen = Seen::new(0, false);
    seen.take(&meets(1, 5));
    seen.watch();
    seen.take(&meets(2, 6));
    seen.take(&meets(1, 6));
    let mut fresh: Vec<_> = seen
        .connections()
        .map(|((_, cookie), one)| (cookie, one.is_fresh))
        .collect();
    fresh.sort_unstable();
    assert_eq!(fresh, [(1, false), (2, true)]);
}

#[test]
fn a_record_without_values_changes_none_and_begins_no_connection() {
    let mut seen = Seen::new(0, false);
    seen.watch();
    let polled = TcpSample {
        data_segs_in: Some(1),
        ..meets(1, 6)
    };
    seen.take(&polled);
    for cookie in [1, 2] {
        seen.take(&TcpSample {
            cookie,
            kind: polled.kind,
            state: TcpState::FinWait2 as i32,
            family: polled.family,
            dst_ip: polled.dst_ip.clone(),
            time_unix_us: 2_000_000,
            ..TcpSample::default()
        });
    }
    assert_eq!(seen.len(), 1);
    let (_, one) = seen.connections().next().unwrap();
    assert_eq!((one.mss, one.requests), (1000, 1));
}

#[test]
fn connections_to_the_host_itself_count_only_where_asked() {
    let octets = |address: [u8; 4]| {
        let address = std::net::Ipv4Addr::from(address).to_ipv6_mapped();
        address.octets().to_vec()
    };
    // Own addresses, loopback, the same address in another namespace, and another host.
    let ends: [([u8; 4], [u8; 4], u64); 5] = [
        ([10, 0, 0, 1], [10, 0, 0, 2], 1),
        ([10, 0, 0, 2], [10, 0, 0, 1], 1),
        ([127, 0, 0, 1], [127, 0, 0, 9], 1),
        ([10, 0, 0, 3], [10, 0, 0, 1], 2),
        ([10, 0, 0, 1], [192, 0, 2, 7], 1),
    ];
    for (with_local, counted) in [(false, 2), (true, 5)] {
        let mut seen = Seen::new(0, with_local);
        for (cookie, (source, peer, netns)) in (1..).zip(ends) {
            seen.take(&TcpSample {
                src_ip: octets(source),
                dst_ip: octets(peer),
                netns,
                ..meets(cookie, 1)
            });
        }
        let found = (seen.connections().count(), seen.local());
        assert_eq!(found, (counted, 5 - counted));
    }
}

#[test]
fn short_answers_show_their_time_and_no_rate_of_their_last_segment() {
    // 100 kB at 150 ms: three round trips, one more for the FIN; the last segment's rate.
    let short = |cookie| TcpSample {
        kind: SampleKind::Close as i32,
        state: TcpState::Close as i32,
        snd_mss: Some(1448),
        snd_cwnd: Some(80),
        snd_ssthresh: Some(2_147_483_647),
        total_retrans: Some(0),
        data_segs_out: Some(70),
        data_segs_in: Some(1),
        rtt: Some(150_000),
        min_rtt: Some(150_000),
        delivery_rate: Some(9653),
        bytes_sent: Some(100_000),
        bytes_retrans: Some(0),
        bytes_acked: Some(100_001),
        busy_time: Some(604_000),
        last_data_sent: Some(300),
        ..meets(cookie, 1)
    };
    let of = |sample: TcpSample| {
        let mut seen = Seen::new(0, false);
        seen.watch();
        seen.take(&sample);
        let found = seen.connections().next().map(|(_, one)| one.clone());
        found.unwrap()
    };
    let one = of(short(1));
    assert_eq!(one.reached_rate(), 165_564);
    let (slowness, is_default) = one.slowness().unwrap();
    assert!(
        is_default && (slowness - 454.0 / 450.0).abs() < 1e-3,
        "{slowness}"
    );
    // The server closed first: the FIN went with the data.
    let with_fin = of(TcpSample {
        last_data_sent: Some(150),
        ..short(1)
    });
    assert!((with_fin.slowness().unwrap().0 - 604.0 / 450.0).abs() < 1e-3);
    // Two round trips are fewer than the default needs.
    let others: [fn(&mut TcpSample); 4] = [
        |sample| sample.data_segs_in = Some(2),
        |sample| sample.started_window = Some(80),
        |sample| sample.snd_cwnd = Some(100),
        |sample| sample.busy_time = Some(454_000),
    ];
    let are_default = others.map(|change| {
        let mut other = short(1);
        change(&mut other);
        of(other).slowness().map(|(_, is_default)| is_default)
    });
    assert_eq!(are_default, [None, None, Some(false), Some(false)]);
}

#[test]
fn a_delayed_acknowledgement_of_the_fin_is_no_time_of_the_answer() {
    // 100 kB at 20 ms: three round trips. It closes half a second later; the FIN's acknowledgement comes after 60 ms,
    // of which an eighth is in the smoothed round trip.
    let closed = |rtt: u32, fin_us: u64, last_data_sent: u32| TcpSample {
        kind: SampleKind::Close as i32,
        state: TcpState::Close as i32,
        snd_mss: Some(1448),
        data_segs_in: Some(1),
        rtt: Some(rtt),
        min_rtt: Some(20_000),
        bytes_sent: Some(100_000),
        bytes_retrans: Some(0),
        bytes_acked: Some(100_001),
        busy_time: Some(60_000 + fin_us),
        last_data_sent: Some(last_data_sent),
        ..meets(1, 7)
    };
    let polled = TcpSample {
        unacked: Some(0),
        busy_time: Some(60_000),
        bytes_sent: Some(100_000),
        ..meets(1, 6)
    };
    let idle = closed(25_000, 60_000, 560);
    let took = |samples: &[&TcpSample]| {
        let all: Vec<_> = samples.iter().map(|sample| (*sample).clone()).collect();
        after(&all).took_us
    };
    assert_eq!(took(&[&idle]), None);
    assert_eq!(took(&[&polled, &idle]), Some(60_000));
    let others: [fn(&mut TcpSample); 4] = [
        |sample| sample.unacked = Some(3),
        |sample| sample.unacked = None,
        // More was sent since.
        |sample| sample.bytes_sent = Some(90_000),
        // The FIN is among what was acknowledged.
        |sample| sample.state = TcpState::FinWait2 as i32,
    ];
    for (number, change) in others.iter().enumerate() {
        let mut other = polled.clone();
        change(&mut other);
        assert_eq!(took(&[&other, &idle]), None, "{number}");
    }
    // It came at once: the round trip stayed the lowest, or there was no time for more.
    assert_eq!(took(&[&closed(20_500, 20_000, 520)]), Some(60_000));
    assert_eq!(took(&[&closed(25_000, 20_000, 44)]), Some(60_000));
    // The peer reset it: no FIN was acknowledged, or not even all data.
    for (acked, time) in [(100_000, Some(60_000)), (99_999, None)] {
        let mut reset = closed(20_500, 0, 520);
        reset.bytes_acked = Some(acked);
        assert_eq!(took(&[&reset]), time);
    }
}

#[test]
fn listeners_and_other_kinds_are_no_connections() {
    let mut seen = Seen::new(0, false);
    for change in [
        (|sample: &mut TcpSample| sample.state = TcpState::Listen as i32) as fn(&mut TcpSample),
        |sample| sample.kind = SampleKind::FirstFlight as i32,
        |sample| sample.dst_ip = vec![1, 2],
    ] {
        let mut sample = meets(1, 2);
        change(&mut sample);
        seen.take(&sample);
    }
    assert_eq!(seen.len(), 0);
}
