//! Bytes in and out, against the kernel's headers.

use crate::kernel::{Family, KernelRoute, Rule, Values, attributes, messages, push_attribute};

use super::super::ours::is_ours;
use super::super::steps::Change;
use super::super::support::problem;

fn nested(data: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in data {
        push_attribute(&mut bytes, *kind, value);
    }
    bytes
}

fn route(proto: u8, tos: u8, kind: u8, more: &[(u16, &[u8])]) -> KernelRoute {
    let mut body = vec![2, 16, 0, tos, 201, proto, 253, kind, 0, 0, 0, 0];
    for (attribute, value) in [
        (15, &[201, 0, 0, 0][..]),
        (1, &[10, 1, 0, 0]),
        (4, &[7, 0, 0, 0]),
    ]
    .iter()
    .chain(more)
    {
        push_attribute(&mut body, *attribute, value);
    }
    KernelRoute::parse(Family::V4, &body)
        .expect("whole")
        .expect("not cloned")
}

#[test]
fn a_message_is_the_one_of_the_kernels_headers() {
    let gateway = route(3, 0, 1, &[(5, &[192, 168, 0, 2])]).way;
    let values = Values {
        initcwnd: Some(50),
        congestion: Some("bbr".to_owned()),
    };
    let change = Change::Replace(
        "10.1.0.0/16".parse().expect("a prefix"),
        gateway.with(&values),
    );
    let bytes = change.message(Family::V4, 1);
    let message = messages(&bytes).next().expect("one message");
    // RTM_NEWROUTE; REQUEST, REPLACE, CREATE
    assert_eq!(
        (message.kind, message.flags, message.sequence),
        (24, 0x501, 1)
    );
    assert_eq!(message.body[..8], [2, 16, 0, 0, 201, 201, 253, 1]);
    let found: Vec<(u16, Vec<u8>)> = attributes(&message.body[12..])
        .map(|found| found.expect("whole"))
        .map(|(kind, value)| (kind, value.to_vec()))
        .collect();
    let metrics = nested(&[(11, &50u32.to_ne_bytes()), (16, b"bbr\0")]);
    let expected = [
        (1, vec![10, 1, 0, 0]),
        (4, 7u32.to_ne_bytes().to_vec()),
        (5, vec![192, 168, 0, 2]),
        (8, metrics),
    ];
    assert_eq!(found, expected);
}

fn rule(preference: u32, table: u32, protocol: u8, more: &[(u16, &[u8])]) -> Rule {
    let mut body = vec![2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    push_attribute(&mut body, 15, &table.to_ne_bytes());
    push_attribute(&mut body, 14, &u32::MAX.to_ne_bytes());
    push_attribute(&mut body, 21, &[protocol]);
    push_attribute(&mut body, 6, &preference.to_ne_bytes());
    for (kind, value) in more {
        push_attribute(&mut body, *kind, value);
    }
    Rule::parse(&body).expect("a rule")
}

#[test]
fn our_rule_is_set_only_where_it_bypasses_nothing() {
    let ours = || rule(1000, 201, 201, &[]);
    let source: (u16, &[u8]) = (2, &[10, 0, 0, 1]);
    let suppressed: (u16, &[u8]) = (14, &[0, 0, 0, 0]);
    for (extra, expected) in [
        (vec![], None),
        (vec![ours()], None),
        (vec![rule(500, 100, 3, &[(10, &[1, 0, 0, 0])])], None),
        (vec![rule(32800, 100, 3, &[source])], None),
        (vec![rule(1000, 0, 2, &[(19, &[1])])], Some("stands where")),
        (vec![rule(1000, 201, 3, &[])], Some("stands where")),
        (
            vec![ours(), rule(1000, 100, 3, &[source])],
            Some("stands where"),
        ),
        (
            vec![rule(2000, 100, 3, &[source])],
            Some("would be bypassed"),
        ),
        (
            vec![rule(32764, 254, 3, &[suppressed])],
            Some("would be bypassed"),
        ),
    ] {
        let mut rules = vec![rule(0, 255, 2, &[])];
        rules.extend(extra);
        rules.extend([rule(32766, 254, 2, &[]), rule(32767, 253, 2, &[])]);
        let found = problem(&rules, Family::V4);
        match expected {
            None => assert_eq!(found, None),
            Some(part) => assert!(
                found.as_ref().is_some_and(|found| found.contains(part)),
                "{found:?}: {part}"
            ),
        }
    }
    let lost = problem(&[rule(0, 255, 2, &[])], Family::V4).expect("a problem");
    assert!(
        lost.contains("none after 1000"),
        "there is nothing to fall through to: {lost}"
    );
}

#[test]
fn table_201_is_ours_only_where_we_would_have_written_it() {
    let window = nested(&[(11, &20u32.to_ne_bytes())]);
    let body = |proto, tos, kind, more: &[(u16, &[u8])]| is_ours(&route(proto, tos, kind, more));
    assert!(body(201, 0, 1, &[(8, &window)]));
    assert!(!body(3, 0, 1, &[(8, &window)]), "another protocol");
    assert!(!body(201, 0, 1, &[]), "nothing that we set");
    assert!(
        !body(201, 0, 1, &[(8, &window), (6, &[7, 0, 0, 0])]),
        "another metric"
    );
    assert!(!body(201, 16, 1, &[(8, &window)]), "by TOS");
    assert!(!body(201, 0, 6, &[(8, &window)]), "a blackhole");
}
