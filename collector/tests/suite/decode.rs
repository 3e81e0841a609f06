//! `decode`: captures as JSON lines, and what cannot be read in one line.

use std::io::Write;

use crate::common::{collector, json_lines};
use crate::fixtures::{CAPTURES, capture};

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(capture(name)).unwrap()
}

fn rows(lines: &[u8]) -> usize {
    lines.iter().filter(|&&byte| byte == b'\n').count()
}

/// Runs `decode` on a file with these bytes: exit code, lines of output, and standard error without the file's name.
fn decode(bytes: &[u8]) -> (Option<i32>, usize, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let path = file.path().to_str().unwrap();
    let output = collector(&["decode", path]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    (
        output.status.code(),
        rows(&output.stdout),
        stderr.replace(path, "FILE"),
    )
}

#[test]
fn anything_but_a_netlink_capture_is_refused_in_one_line() {
    let whole = bytes(CAPTURES[0]);
    let with = |at: usize, new: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + new.len()].copy_from_slice(new);
        changed
    };
    let swapped = with(0, &0xa1b2_c3d4_u32.swap_bytes().to_ne_bytes());
    for (bytes, message) in [
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
        assert!(stderr.contains(message), "{message} is not in {stderr}");
        assert_eq!(
            (code, rows, stderr.lines().count()),
            (Some(2), 0, 1),
            "{stderr}"
        );
    }
}

#[test]
fn a_truncated_capture_gives_its_sockets_and_the_offset_of_its_end() {
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
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        stderr,
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
