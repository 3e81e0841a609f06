//! From samples to what is printed; numbers are worked out by hand, flight by flight.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::names::Names;
use super::paths::{Estimates, MOST_GROUPS, estimates};
use super::seen::{MOST_CONNECTIONS, Seen};
use super::{EstimateError, survived, view};
use crate::read::poller::PollError;
use crate::sample::proto::{SampleKind, TcpSample, TcpState};
use crate::sinks::SinkError;

/// Delivered 2.5 MB/s over a round trip of 100 ms, as the application gave it; `rate` 0 is never.
fn sample(cookie: u64, peer: Ipv4Addr, rate: u64) -> TcpSample {
    TcpSample {
        cookie,
        kind: SampleKind::Poll as i32,
        state: TcpState::Established as i32,
        family: 2,
        dst_ip: peer.to_ipv6_mapped().octets().to_vec(),
        time_unix_us: 1_000_000,
        snd_mss: Some(1448),
        min_rtt: Some(100_000),
        delivery_rate: Some(rate),
        delivery_rate_app_limited: Some(true),
        bytes_sent: Some(100_000),
        ..TcpSample::default()
    }
}

const RATE: u64 = 2_500_000;
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

fn seen_of(count: u64, are_fresh: bool) -> Seen {
    let mut seen = Seen::new(0, false);
    if are_fresh {
        seen.watch();
    }
    (1..=count).for_each(|cookie| seen.take(&sample(cookie, PEER, RATE)));
    seen
}

/// An answer of 100 kB at 100 ms to one request, after so many round trips; `cwnd` as it closed.
fn answer(cookie: u64, round_trips: u64, cwnd: u32) -> TcpSample {
    TcpSample {
        kind: SampleKind::Close as i32,
        state: TcpState::Close as i32,
        data_segs_in: Some(1),
        data_segs_out: Some(70),
        total_retrans: Some(0),
        snd_ssthresh: Some(2_147_483_647),
        snd_cwnd: Some(cwnd),
        rtt: Some(100_000),
        busy_time: Some(100_000 * round_trips),
        last_data_sent: Some(100),
        bytes_retrans: Some(0),
        bytes_acked: Some(100_001),
        ..sample(cookie, PEER, RATE)
    }
}

fn table(found: &Estimates, seen: &Seen) -> String {
    let mut out = Vec::new();
    view::table(found, seen, Duration::from_millis(2500), 20, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn close(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() < 1e-3
}

#[test]
fn connections_that_agree_leave_no_doubt_and_few_leave_all() {
    for (count, low, high) in [(5, 182.624, 182.624), (4, 0.0, 200.0), (1, 0.0, 200.0)] {
        let found = estimates(&seen_of(count, true), &Names::default());
        let [one] = found.known.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(one.name, "192.0.2.0/24");
        // 14,480 and 28,960 bytes go out in 5.792 and 11.584 ms, and the sender waits for the rest of 100 ms each time. The
        // third flight carries what is left. An endless rate would make both waits whole.
        let saving = one.savings[2];
        assert_eq!(saving.size, 100_000);
        // The rate is a lower bound: only round trips count.
        assert!(close(saving.default_ms, 300.0), "{saving:?}");
        assert!(close(saving.start_ms, 117.376), "{saving:?}");
        assert!(close(saving.saved_ms.estimate, 182.624), "{saving:?}");
        assert!(close(saving.saved_ms.low, low), "{count}: {saving:?}");
        assert!(close(saving.saved_ms.high, high), "{count}: {saving:?}");
        let trips = saving.saved_round_trips.estimate;
        assert!(close(trips, 1.826), "{saving:?}");
        // Each sent 100 kB.
        let total = one.total_ms.estimate;
        assert!(close(total, 182.624 * count as f64), "{total}");
        // Ten segments carry 10 kB.
        assert!(close(one.savings[0].saved_ms.high, 0.0));
    }
}

#[test]
fn the_slow_ones_among_answers_of_another_start_are_no_default() {
    // The default takes three round trips: two are of a larger window, which nobody recorded, and so is a larger window.
    for (sooner, cwnd, is_measured) in [
        (2, 80, true),
        (3, 80, true),
        (4, 80, false),
        (4, 110, false),
    ] {
        let mut seen = Seen::new(0, false);
        seen.watch();
        (0..3).for_each(|cookie| seen.take(&answer(cookie, 8, 80)));
        let trips = if cwnd == 80 { 2 } else { 3 };
        (3..3 + sooner).for_each(|cookie| seen.take(&answer(cookie, trips, cwnd)));
        let found = estimates(&seen, &Names::default());
        let saving = found.known[0].savings[2];
        assert_eq!(saving.is_measured, is_measured, "{sooner} {cwnd}");
        let wanted = if is_measured { 800.0 } else { 300.0 };
        assert!(close(saving.default_ms, wanted), "{saving:?}");
    }
}

#[test]
fn a_time_of_few_jiffies_is_no_measurement() {
    // Each takes three round trips. Short ones cross the end of a jiffy or do not.
    for (rtt_us, jiffies, is_measured) in [
        (300, [0, 1], false),
        (3900, [2, 3], false),
        (4100, [3, 4], true),
    ] {
        let mut seen = Seen::new(0, false);
        seen.watch();
        for cookie in 0..8 {
            seen.take(&TcpSample {
                rtt: Some(rtt_us),
                min_rtt: Some(rtt_us),
                busy_time: Some(4000 * jiffies[cookie as usize % 2]),
                last_data_sent: Some(0),
                ..answer(cookie, 3, 80)
            });
        }
        let saving = estimates(&seen, &Names::default()).known[0].savings[2];
        assert_eq!(saving.is_measured, is_measured, "{rtt_us}: {saving:?}");
    }
}

#[test]
fn destinations_beyond_the_limit_are_left_out_counted_and_named() {
    let mut seen = seen_of(2, true);
    let others = MOST_GROUPS + 3;
    for number in 0..u32::try_from(others).unwrap() {
        let peer = Ipv4Addr::from(0x0a00_0000 + (number << 8));
        seen.take(&sample(100 + u64::from(number), peer, 0));
    }
    let found = estimates(&seen, &Names::default());
    // The one with most connections stays.
    assert_eq!(found.known.len(), 1);
    assert_eq!((found.unknown, found.left_out), (MOST_GROUPS - 1, 4));
    let text = table(&found, &seen);
    assert!(
        text.contains("\n9999 destinations without a rate"),
        "{text}"
    );
    assert!(
        text.contains("\n4 destinations beyond 10000 were left out"),
        "{text}"
    );
}

#[test]
fn connections_beyond_the_limit_are_left_out_and_counted_up_to_as_many() {
    let most = u64::try_from(MOST_CONNECTIONS).unwrap();
    let mut seen = seen_of(most + 2, true);
    assert_eq!((seen.len(), seen.left_out()), (MOST_CONNECTIONS, 2));
    let text = table(&estimates(&seen, &Names::default()), &seen);
    assert!(
        text.contains("\n2 connections beyond 200000 were left out"),
        "{text}"
    );
    // A known connection is followed further.
    let mut more = sample(1, PEER, RATE);
    more.bytes_sent = Some(7_000_000);
    seen.take(&more);
    let followed = seen.connections().any(|(_, one)| one.sent == 7_000_000);
    assert!(followed);
    (most + 3..=2 * most + 5).for_each(|cookie| seen.take(&sample(cookie, PEER, RATE)));
    assert_eq!(
        (seen.len(), seen.left_out()),
        (MOST_CONNECTIONS, MOST_CONNECTIONS)
    );
    let text = table(&estimates(&seen, &Names::default()), &seen);
    assert!(text.contains("\nat least 200000 connections"), "{text}");
}

#[test]
fn the_first_line_says_what_its_mean_is_over() {
    for (are_fresh, said) in [
        (true, "the mean over 5 connections that began in 2.5 s"),
        (
            false,
            "the mean over 1 destinations, as no connection began in 2.5 s",
        ),
    ] {
        let seen = seen_of(5, are_fresh);
        let text = table(&estimates(&seen, &Names::default()), &seen);
        let first = text.lines().next().unwrap();
        assert!(
            first.contains("at least 183 ms sooner (117 instead of 300 ms"),
            "{first}"
        );
        assert!(first.contains(said), "{first}");
    }
}

#[test]
fn without_a_rate_it_says_what_was_seen() {
    for (connections, local, said) in [
        (
            0,
            0,
            "in 2.5 s no connection was seen: watch for longer (--for), or where data is sent",
        ),
        (
            1,
            0,
            "in 2.5 s the one connection that was seen sent too little to show a rate: watch",
        ),
        (7, 0, "in 2.5 s none of 7 connections sent enough"),
        (
            0,
            8,
            "in 2.5 s no connection to another host was seen: watch",
        ),
        (7, 8, "in 2.5 s none of 7 connections sent enough"),
    ] {
        let error = EstimateError::Nothing {
            watched: view::seconds(Duration::from_millis(2500)),
            connections,
            local,
        };
        let text = error.to_string();
        assert!(text.starts_with(said), "{text}");
        let of_local = "; 8 connections to this host itself were left out: --local includes them";
        assert_eq!(text.ends_with(of_local), local > 0, "{text}");
    }
    assert_eq!(view::seconds(Duration::from_secs(600)), "600 s");
}

#[test]
fn a_later_poll_that_fails_does_not_lose_what_was_seen() {
    let failed = || {
        Err(PollError::System {
            what: "read",
            source: io::Error::from_raw_os_error(12),
        })
    };
    assert!(survived(Ok(()), true).unwrap().is_none());
    assert!(survived(failed(), true).is_err());
    assert!(survived(failed(), false).unwrap().is_some());
    let sink = PollError::Sink(SinkError::Output(io::Error::other("gone")));
    assert!(survived(Err(sink), false).is_err());
}
