//! Replaying captures: whole, damaged and arbitrary ones.

use std::io::Cursor;

use super::fixtures::{CAPTURES, capture};
use proptest::prelude::*;

use crate::replay::{ReplayError, replay};
use crate::sample::encode::{AccEcn, Identity};
use crate::sinks::print::json::JsonSink;
use crate::stats::Stats;

/// Replays `bytes`; gives the lines, the offsets that it complains of, and how it ended.
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

/// A netlink message: type, flags, sequence number, port, payload.
fn message(kind: u16, flags: u16, sequence: u32, port: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + payload.len()).unwrap();
    let numbers = [sequence, port].map(u32::to_ne_bytes).concat();
    let header = [length.to_ne_bytes(), [0; 4]].concat();
    let mut bytes = [&header[..4], &numbers, payload].concat();
    bytes.splice(4..4, [kind, flags].map(u16::to_ne_bytes).concat());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + payload.len()).unwrap();
    let mut bytes = [length, kind].map(u16::to_ne_bytes).concat();
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A dump request of IPv4 sockets of a protocol.
fn request(sequence: u32, protocol: u32) -> Vec<u8> {
    let mut payload = vec![2, protocol.to_ne_bytes()[0], 2, 0];
    payload.resize(56, 0);
    if protocol > 255 {
        payload.extend(attribute(3, &protocol.to_ne_bytes()));
    }
    message(20, 0x301, sequence, 0, &payload)
}

/// A socket's message in a dump, or, without a sequence number, as an event.
fn socket(sequence: u32, port: u32, cookie: u8, state: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = vec![0; 72];
    payload[..2].copy_from_slice(&[2, state]);
    payload[44] = cookie;
    payload.extend(attributes.concat());
    message(20, 2, sequence, port, &payload)
}

fn done(sequence: u32, port: u32) -> Vec<u8> {
    message(3, 2, sequence, port, &[0; 4])
}

/// A capture with a packet for each of these datagrams.
fn captured(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut file = bytes(CAPTURES[0])[..24].to_vec();
    for datagram in datagrams {
        let length = u32::try_from(16 + datagram.len()).unwrap().to_ne_bytes();
        file.extend([[0; 4], [0; 4], length, length].concat());
        file.extend([[0; 15].as_slice(), &[4]].concat());
        file.extend(datagram);
    }
    file
}

/// The cookie and the dump's number of each socket that a replay of these datagrams gives.
fn seen(datagrams: &[Vec<u8>]) -> Vec<(u64, u64)> {
    let (lines, offsets, result) = replayed(&captured(datagrams));
    assert_eq!((offsets, result.unwrap()), (vec![], 0));
    let number = |row: &serde_json::Value, key: &str| row[key].as_u64().unwrap();
    serde_json::Deserializer::from_slice(&lines)
        .into_iter()
        .map(Result::unwrap)
        .map(|row| (number(&row, "cookie"), number(&row, "poll_sequence")))
        .collect()
}

fn tcp_info() -> Vec<u8> {
    attribute(2, &[1; 232])
}

const TCP: u32 = 6;
const UDP: u32 = 17;
const MPTCP: u32 = 262;

#[test]
fn sockets_of_other_protocols_are_left_out() {
    let mptcp_info = attribute(2, &[0; 96]);
    let sctp = [tcp_info(), attribute(12, &[0; 128])];
    let event = |protocol: u8| socket(0, 0, protocol, 7, &[attribute(10, &[protocol]), tcp_info()]);
    let dumps = [
        request(9, TCP),
        socket(9, 50, 1, 1, &[tcp_info()]),
        done(9, 50),
        request(10, MPTCP),
        socket(10, 50, 2, 1, std::slice::from_ref(&mptcp_info)),
        done(10, 50),
        // Their requests were not captured.
        socket(11, 51, 3, 1, &[mptcp_info]),
        socket(12, 52, 4, 1, &sctp),
        socket(13, 53, 5, 7, &[]),
        socket(14, 54, 6, 1, &[tcp_info()]),
        event(17),
    ];
    assert_eq!(seen(&dumps), [(1, 1), (6, 6)]);
    assert_eq!(seen(&[event(17), event(6)]), [(6, 1)]);
    // A request for a TCP socket's attributes that is a number of another family.
    let netlink_sockets = [
        message(20, 0x301, 9, 0, &[16, 6, 0, 0]),
        socket(9, 50, 1, 1, &[]),
    ];
    assert_eq!(
        seen(&netlink_sockets).len(),
        1,
        "answers of IPv4 are of no such request"
    );
}

#[test]
fn dumps_of_one_sequence_number_that_run_into_each_other_are_told_apart() {
    for foreign in [UDP, MPTCP] {
        let info = if foreign == MPTCP {
            vec![attribute(2, &[0; 96])]
        } else {
            vec![]
        };
        for ports in [(0, 0), (40, 41), (41, 40)] {
            for swapped in [false, true] {
                let (tcp, other) = ports;
                let mut requests = vec![request(7, TCP), request(7, foreign)];
                let mut ends = vec![done(7, tcp), done(7, other)];
                if swapped {
                    requests.reverse();
                    ends.reverse();
                }
                let answers = [
                    socket(7, tcp, 1, 1, &[tcp_info()]),
                    socket(7, other, 2, 1, &info),
                    // The rest of a closed connection has no struct tcp_info.
                    [
                        socket(7, tcp, 3, 6, &[]),
                        socket(7, tcp, 4, 10, &[tcp_info()]),
                    ]
                    .concat(),
                    socket(7, other, 5, 7, &info),
                ];
                let before = [requests.clone(), answers.to_vec(), ends.clone()].concat();
                let cookies = |dumps: &[Vec<u8>]| {
                    seen(dumps)
                        .into_iter()
                        .map(|(cookie, _)| cookie)
                        .collect::<Vec<_>>()
                };
                assert_eq!(cookies(&before), [1, 3, 4], "{foreign} {ports:?} {swapped}");
                // The first to end is the other one.
                let mut between = [requests, answers[..2].to_vec(), vec![ends[0].clone()]].concat();
                between.extend([answers[2].clone(), ends[1].clone()]);
                assert_eq!(
                    cookies(&between),
                    [1, 3, 4],
                    "{foreign} {ports:?} {swapped}"
                );
            }
        }
    }
}

#[test]
fn two_tcp_dumps_of_one_sequence_number_have_a_number_each() {
    let row = |port, cookie| socket(7, port, cookie, 1, &[tcp_info()]);
    let dumps = [
        vec![
            request(7, TCP),
            request(7, TCP),
            row(40, 1),
            row(41, 2),
            row(40, 3),
        ],
        vec![
            done(7, 40),
            row(41, 4),
            done(7, 41),
            request(7, TCP),
            row(40, 5),
        ],
    ];
    assert_eq!(
        seen(&dumps.concat()),
        [(1, 1), (2, 2), (3, 1), (4, 2), (5, 3)]
    );
}
