//! Replaying captures: whole, damaged and arbitrary ones.

use std::io::{Cursor, Write};

use crate::common::{CAPTURES, capture, collector, json_lines};
use proptest::prelude::*;

use springtide_collector::replay::{ReplayError, replay};
use springtide_collector::sample::encode::{AccEcn, Identity};
use springtide_collector::sinks::print::json::JsonSink;
use springtide_collector::stats::Stats;

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
        // Only an end between two packets cannot be told from a complete file.
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

/// Runs `decode` on a file with these bytes: exit code, lines of output, and standard error without the file's name.
fn decode(bytes: &[u8]) -> (Option<i32>, usize, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let path = file.path().to_str().unwrap();
    let output = collector(&["decode", path]);
    let said = String::from_utf8(output.stderr).unwrap();
    (
        output.status.code(),
        rows(&output.stdout),
        said.replace(path, "FILE"),
    )
}

#[test]
fn what_is_no_capture_of_netlink_is_refused_in_one_line() {
    let whole = bytes(CAPTURES[0]);
    let with = |at: usize, new: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + new.len()].copy_from_slice(new);
        changed
    };
    let swapped = with(0, &0xa1b2_c3d4_u32.swap_bytes().to_ne_bytes());
    for (bytes, said) in [
        (
            vec![],
            "FILE: offset 0: the file has 0 bytes: this is not a pcap file",
        ),
        (
            whole[..10].to_vec(),
            "FILE: offset 10: the file ends inside its header of 24 bytes",
        ),
        (
            b"hello, world".to_vec(),
            "FILE: offset 0: this is not a pcap file: it begins with 0x6c6c6568",
        ),
        (
            with(0, &0x0a0d_0d0a_u32.to_ne_bytes()),
            "pcapng file: convert it with editcap -F pcap",
        ),
        (
            swapped,
            "FILE: offset 0: the capture comes from a machine of the other byte order",
        ),
        (
            with(20, &1_u32.to_ne_bytes()),
            "FILE: offset 20: the capture's link type is 1, that of netlink is 253",
        ),
        (
            with(32, &u32::MAX.to_ne_bytes()),
            "FILE: offset 24: a packet claims 4294967295 bytes",
        ),
        (
            whole[..30].to_vec(),
            "FILE: offset 24: the file ends inside a packet's header: 6 of 16 bytes are there",
        ),
        (
            whole[..60].to_vec(),
            "FILE: offset 24: the file ends inside a packet: 20 of",
        ),
    ] {
        let (code, rows, stderr) = decode(&bytes);
        assert!(stderr.contains(said), "{said} is not in {stderr}");
        assert_eq!(
            (code, rows, stderr.lines().count()),
            (Some(2), 0, 1),
            "{stderr}"
        );
    }
}

#[test]
fn a_capture_cut_at_its_end_gives_its_sockets_and_says_where_it_ends() {
    let whole = bytes(CAPTURES[0]);
    let (code, rows, stderr) = decode(&whole[..whole.len() - 100]);
    assert_eq!((code, stderr.lines().count()), (Some(2), 1));
    assert!(
        stderr.contains("FILE: offset") && stderr.contains("the file ends inside a packet"),
        "{stderr}"
    );
    assert!(rows >= 202, "{rows} sockets");
}

#[test]
fn a_missing_file_is_bad_input() {
    let output = collector(&["decode", "/nonexistent.pcap"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "springtide-collector: /nonexistent.pcap: cannot open it: No such file or directory (os error 2)\n"
    );
}

#[test]
fn a_sample_has_the_names_and_the_forms_of_the_contract() {
    let path = capture(CAPTURES[3]);
    let output = collector(&[
        "decode",
        path.to_str().unwrap(),
        "--host",
        "ams-1",
        "--pop",
        "ams",
        "--stats",
    ]);
    assert!(output.status.success());
    let samples = json_lines(&output);
    assert_eq!(samples.len(), 909);
    let mapped = samples
        .iter()
        .find(|sample| sample["src_ip"] == "::ffff:127.0.0.1")
        .unwrap();
    assert_eq!(mapped["family"], 10);
    let first = &samples[0];
    assert_eq!(
        (&first["host"], &first["pop"], &first["poll_sequence"]),
        (&"ams-1".into(), &"ams".into(), &1.into())
    );
    assert_eq!(
        (&first["state"], &first["kind"]),
        (&"TCP_STATE_LISTEN".into(), &"SAMPLE_KIND_POLL".into())
    );
    assert_eq!(
        (&first["src_ip"], &first["src_port"]),
        (&"0.0.0.0".into(), &22.into())
    );
    assert_eq!(first["max_pacing_rate"].as_u64(), Some(u64::MAX));
    assert!(
        first.get("total_rto").is_none(),
        "Linux 6.6 has no total_rto"
    );
    // Three polls of two dumps each.
    let dumps: std::collections::BTreeSet<_> = samples
        .iter()
        .map(|sample| sample["poll_sequence"].as_u64())
        .collect();
    assert_eq!(dumps, (1..=6).map(Some).collect());
    let stats: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(
        (&stats["rows"], &stats["messages_malformed"]),
        (&909.into(), &0.into())
    );
}
