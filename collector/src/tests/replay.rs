//! Replaying captures: whole, damaged and arbitrary ones.

use std::io::Cursor;

use super::fixtures::{CAPTURES, capture};
use proptest::prelude::*;

use crate::replay::{ReplayError, replay};
use crate::sample::encode::{AccEcn, Identity};
use crate::sinks::print::json::JsonSink;
use crate::stats::Stats;

/// What a replay of `bytes` gives: the lines, the offsets that it complains of, and how it ended.
fn replayed(bytes: &[u8]) -> (Vec<u8>, Vec<u64>, Result<u64, ReplayError>) {
    let (mut lines, mut offsets) = (Vec::new(), Vec::new());
    let mut sink = JsonSink::new(&mut lines);
    let complain = |offset, _: &str| offsets.push(offset);
    let (identity, mut stats) = (Identity::default(), Stats::default());
    let result = replay(
        Cursor::new(bytes),
        &identity,
        AccEcn::Unknown,
        &mut sink,
        &mut stats,
        complain,
    );
    (lines, offsets, result)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(capture(name)).unwrap()
}

fn rows(lines: &[u8]) -> usize {
    lines.iter().filter(|&&byte| byte == b'\n').count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_capture_never_panics(
        name in prop::sample::select(&CAPTURES[..3]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut damaged = bytes(name);
        for (place, byte) in edits {
            let at = place.index(damaged.len());
            damaged[at] = byte;
        }
        if let Some(cut) = cut {
            damaged.truncate(cut.index(damaged.len()));
        }
        let (lines, _, _) = replayed(&damaged);
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            serde_json::from_slice::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn arbitrary_packets_never_panic(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..20)) {
        let mut file = bytes(CAPTURES[0])[..24].to_vec();
        for mut packet in packets {
            // Half of the packets claim to be of SOCK_DIAG, with a message header that fits.
            if packet.len() > 40 && packet[0] & 1 == 0 {
                packet[14..16].copy_from_slice(&[0, 4]);
                let length = u32::try_from(packet.len() - 16).unwrap();
                packet[16..20].copy_from_slice(&length.to_ne_bytes());
                packet[20..24].copy_from_slice(&[20, 0, 2, 0]);
                packet[32] = if packet[1] & 1 == 0 { 2 } else { 10 };
            }
            let length = u32::try_from(packet.len()).unwrap().to_ne_bytes();
            file.extend([[0; 4], [0; 4], length, length].concat());
            file.extend(packet);
        }
        let (_, _, result) = replayed(&file);
        prop_assert!(result.is_ok());
    }

    #[test]
    fn arbitrary_bytes_never_panic(file: Vec<u8>) {
        let (lines, _, result) = replayed(&file);
        prop_assert!(result.is_err() && lines.is_empty());
    }

    #[test]
    fn a_capture_that_ends_early_gives_every_socket_before_its_end(cut in any::<prop::sample::Index>()) {
        let whole = bytes(CAPTURES[0]);
        let cut = cut.index(whole.len());
        let (lines, offsets, result) = replayed(&whole[..cut]);
        let (all, _, _) = replayed(&whole);
        prop_assert!(all.starts_with(&lines));
        prop_assert!(offsets.is_empty());
        // Only an end between two packets looks like a complete file.
        prop_assert!(result.is_err() || whole[cut..].len() > 16);
    }
}

#[test]
fn one_damaged_message_costs_no_other_packet() {
    let whole = bytes(CAPTURES[0]);
    // The second packet's first message: its length becomes larger than the packet.
    let first = u32::from_ne_bytes(whole[32..36].try_into().unwrap()) as usize;
    let packet = 24 + 16 + first;
    let message = packet + 16 + 16;
    let mut damaged = whole.clone();
    damaged[message..message + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
    let (lines, offsets, result) = replayed(&damaged);
    assert_eq!((offsets, result.unwrap()), (vec![message as u64], 1));
    let lost = rows(&replayed(&whole).0) - rows(&lines);
    assert!((1..100).contains(&lost), "{lost} sockets of one datagram");
}

#[test]
fn a_capture_with_nanoseconds_has_the_same_sockets_and_times() {
    let mut nanoseconds = bytes(CAPTURES[1]);
    nanoseconds[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_ne_bytes());
    let mut at = 24;
    while at < nanoseconds.len() {
        let word = |at: usize| u32::from_ne_bytes(nanoseconds[at..at + 4].try_into().unwrap());
        let (fraction, length) = (word(at + 4) * 1000 + 999, word(at + 8) as usize);
        nanoseconds[at + 4..at + 8].copy_from_slice(&fraction.to_ne_bytes());
        at += 16 + length;
    }
    assert_eq!(replayed(&nanoseconds).0, replayed(&bytes(CAPTURES[1])).0);
}
