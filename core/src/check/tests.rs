//! Documents that are right, and each way in which one is not.

use super::*;
use crate::bundle::{Congestion, Trial};

fn good() -> Bundle {
    let text = |prefix: &str| Prefix(prefix.parse().unwrap());
    let mut bundle = Bundle {
        created_at: 1_767_323_222,
        digest: String::new(),
        edge: "ams-1".into(),
        enforce: Enforce {
            by: Way::Bpf,
            ..Enforce::default()
        },
        entries: vec![
            Entry {
                congestion: Some(Congestion {
                    algorithm: "bbr".into(),
                    always: true,
                    from_bytes: 0,
                }),
                initcwnd: Some(83),
                start_rate: Some(5000),
                trial: Some(Trial {
                    connection_rate: None,
                    initcwnd: Some(10),
                    permille: 100,
                    start_rate: None,
                }),
                ..Entry::of(text("10.77.2.0/24"))
            },
            Entry {
                receive_window: Some(40),
                ..Entry::of(text("fd77:2::/48"))
            },
        ],
        expires_at: 1_767_323_822,
        policy_version: "0123456789ab".into(),
        pop: "ams".into(),
        round: 1_767_323_100,
        schema_version: SCHEMA_VERSION,
    };
    bundle.digest = bundle.digest_of_content();
    bundle
}

#[test]
fn a_document_is_what_was_written() {
    let bundle = good();
    let text = bundle.canonical();
    assert_eq!(Bundle::parse(text.as_bytes()), Ok(bundle.clone()));
    assert_eq!(bundle.problems(), []);
    assert_eq!(bundle.check_for("ams-1", 1_767_323_300), Ok(()));
    // An object of serde_json sorts its keys.
    let sorted: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(text, sorted.to_string());
    // Python's json, of all fields but the digest: sort_keys=True, separators=(",", ":").
    assert_eq!(
        bundle.digest,
        "sha256:4566c7e0b6edc1d8bfa231845b6d2c019f8c663f5dc0756221f48f80bd6ea005"
    );
}

#[test]
fn only_utf_8_without_a_mark_is_read() {
    let text = good().canonical();
    let wide: Vec<u16> = text.encode_utf16().collect();
    let units = |order: fn(u16) -> [u8; 2]| {
        wide.iter()
            .flat_map(|unit| order(*unit))
            .collect::<Vec<u8>>()
    };
    let points = |order: fn(u32) -> [u8; 4]| {
        text.chars()
            .flat_map(|c| order(c.into()))
            .collect::<Vec<u8>>()
    };
    let utf8 = text.clone().into_bytes();
    let bodies = [
        units(u16::to_le_bytes),
        units(u16::to_be_bytes),
        points(u32::to_le_bytes),
        points(u32::to_be_bytes),
    ];
    let marks: [&[u8]; 5] = [
        b"\xff\xfe",
        b"\xfe\xff",
        b"\xff\xfe\0\0",
        b"\0\0\xfe\xff",
        b"\xef\xbb\xbf",
    ];
    let marked = marks.iter().zip(bodies.iter().chain([&utf8]));
    let all = marked
        .map(|(mark, body)| [mark, body.as_slice()].concat())
        .chain(bodies.clone());
    for raw in all {
        let problem = Bundle::parse(&raw).unwrap_err();
        assert_eq!(problem.field, "JSON", "{problem}");
        assert!(problem.to_string().is_ascii());
    }
}

#[test]
fn what_is_not_canonical_is_refused() {
    let text = good().canonical();
    for (from, to, field) in [
        (
            "\"initcwnd\":83",
            "\"initcwnd\":83.0",
            "entries[0].initcwnd",
        ),
        (
            "\"initcwnd\":83",
            "\"initcwnd\":8.3e1",
            "entries[0].initcwnd",
        ),
        (
            "\"initcwnd\":83",
            "\"initcwnd\":true",
            "entries[0].initcwnd",
        ),
        (
            "\"initcwnd\":83",
            "\"initcwnd\":null",
            "entries[0].initcwnd",
        ),
        ("\"initcwnd\":83", "\"initcwnd\":-1", "entries[0].initcwnd"),
        (
            "\"initcwnd\":83",
            "\"initcwnd\":4294967296",
            "entries[0].initcwnd",
        ),
        (
            "\"initcwnd\":83",
            "\"initcwnd\":83,\"initcwnd\":83",
            "entries[0]",
        ),
        ("\"initcwnd\":83", "\"initcwnd\":083", "JSON"),
        ("10.77.2.0/24", "10.77.2.1/24", "entries[0].prefix"),
        ("10.77.2.0/24", "10.77.2.0/024", "entries[0].prefix"),
        ("fd77:2::/48", "fd77:2:0::/48", "entries[1].prefix"),
        ("\"pop\":", "\"via\":1,\"pop\":", "via"),
        ("\"pop\":\"ams\",", "", "document"),
    ] {
        assert!(text.contains(from));
        let problem = Bundle::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
        assert_eq!(problem.field, field, "{to}: {problem}");
    }
    let twice = format!("{text}{text}");
    assert_eq!(Bundle::parse(twice.as_bytes()).unwrap_err().field, "JSON");
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = [open.repeat(20_000), "1".into(), close.repeat(20_000)].concat();
        assert!(Bundle::parse(deep.as_bytes()).is_err());
    }
}

#[test]
fn a_value_that_was_changed_is_found() {
    let text = good().canonical().replacen("83", "84", 1);
    let changed = Bundle::parse(text.as_bytes()).unwrap();
    let kinds: Vec<Kind> = changed.problems().iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Altered]);
}

#[test]
fn a_list_is_no_object() {
    let text = good().canonical();
    for (from, to, field) in [
        (
            "\"enforce\":{",
            "\"enforce\":{\"brake\":[20,60,400],",
            "enforce.brake",
        ),
        (
            "{\"initcwnd\":10,\"permille\":100}",
            "[1000,10,100,1000]",
            "entries[0].trial",
        ),
    ] {
        assert!(text.contains(from));
        let problem = Bundle::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
        assert_eq!(problem.field, field, "{problem}");
        assert!(problem.what.contains("expected an object"), "{problem}");
    }
}

#[test]
fn many_wrong_values_are_not_all_listed() {
    let mut bundle = good();
    let wrong = Entry::of(bundle.entries[0].prefix);
    bundle.entries = vec![wrong; MAX_ENTRIES + 1];
    let found = bundle.problems();
    assert_eq!(found.len(), MAX_PROBLEMS + 1);
    assert_eq!(found[0].field, "entries");
    assert_eq!(found[MAX_PROBLEMS].kind, Kind::Altered);
}
