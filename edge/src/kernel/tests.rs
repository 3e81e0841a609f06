//! Bytes in and out, against the kernel's headers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::netlink::{attributes, messages, push_attribute, u32_at};
use super::route::{Change, Family, KernelRoute};
use super::rule::{Rule, problem};
use super::way::{Values, Way, normalise, show};

fn way(data: &[(u16, &[u8])]) -> Way {
    let mut bytes = Vec::new();
    for (kind, value) in data {
        push_attribute(&mut bytes, *kind, value);
    }
    normalise(false, 253, 0, &bytes)
        .expect("whole attributes")
        .way
}

fn nested(data: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in data {
        push_attribute(&mut bytes, *kind, value);
    }
    bytes
}

#[test]
fn a_message_is_the_one_of_the_kernels_headers() {
    let gateway = way(&[(4, &7u32.to_ne_bytes()), (5, &[192, 168, 0, 2])]);
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

#[test]
fn a_congestion_control_of_ours_is_never_locked_and_one_of_the_hosts_stays_as_it_is() {
    let locked = nested(&[
        (1, &(1u32 << 16 | 1 << 2).to_ne_bytes()),
        (2, &1400u32.to_ne_bytes()),
        (16, b"reno\0"),
    ]);
    let host = way(&[(4, &7u32.to_ne_bytes()), (8, &locked)]);
    let name = |_: u32| "up0".to_owned();
    let shown = |values: &Values| show(&host.with(values), false, &name);
    let window = Values {
        initcwnd: Some(9),
        congestion: None,
    };
    assert_eq!(
        shown(&window),
        "dev up0 scope 253 mtu lock 1400 initcwnd 9 congctl lock reno"
    );
    let both = Values {
        initcwnd: None,
        congestion: Some("bbr".to_owned()),
    };
    assert_eq!(shown(&both), "dev up0 scope 253 mtu lock 1400 congctl bbr");
}

#[test]
fn what_is_of_the_moment_is_no_part_of_a_way() {
    let hop = |flags: u8| {
        let mut bytes = vec![16, 0, flags, 2, 7, 0, 0, 0];
        push_attribute(&mut bytes, 5, &[192, 168, 0, 2]);
        bytes
    };
    // RTNH_F_DEAD and RTNH_F_LINKDOWN, cache information, and what stands beside a nexthop id.
    assert_eq!(
        way(&[(9, &hop(0))]),
        way(&[(9, &hop(1 | 16)), (12, &[0; 32])])
    );
    assert_ne!(
        way(&[(9, &hop(0))]),
        way(&[(9, &hop(4))]),
        "onlink is the route's own"
    );
    assert_eq!(
        way(&[(30, &[1, 0, 0, 0])]),
        way(&[(4, &[7, 0, 0, 0]), (30, &[1, 0, 0, 0]), (5, &[1, 2, 3, 4])])
    );
}

#[test]
fn what_no_copy_is_faithful_to_is_an_obstacle_not_a_guess() {
    let features = nested(&[(12, &2u32.to_ne_bytes())]);
    for (kind, value) in [
        (11, &[3, 0, 0, 0][..]),
        (22, &[0; 8]),
        (21, &[1, 0]),
        (8, &features),
    ] {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, kind, value);
        assert!(
            normalise(false, 0, 0, &bytes)
                .expect("whole")
                .obstacle
                .is_some(),
            "attribute {kind}"
        );
    }
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
    let body = |proto: u8, tos: u8, kind: u8, more: &[(u16, &[u8])]| {
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
            .is_ours()
    };
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

proptest! {
    #[test]
    fn attributes_are_read_as_they_are_written(pairs in vec((1..60u16, vec(any::<u8>(), 0..40)), 0..8)) {
        let mut bytes = Vec::new();
        for (kind, value) in &pairs {
            push_attribute(&mut bytes, *kind, value);
        }
        prop_assert_eq!(bytes.len() % 4, 0);
        let found: Vec<(u16, Vec<u8>)> =
            attributes(&bytes).map(|found| found.expect("whole")).map(|(kind, value)| (kind, value.to_vec())).collect();
        prop_assert_eq!(found, pairs);
    }

    #[test]
    fn no_bytes_of_the_kernel_make_it_loop_or_crash(data in vec(any::<u8>(), 0..200)) {
        for message in messages(&data) {
            prop_assert!(message.body.len() <= data.len());
        }
        let _ = u32_at(&data, 3);
        let _ = Rule::parse(&data);
        let _ = super::route::deletion(&data, 0);
        if let Ok(Some(route)) = KernelRoute::parse(Family::V6, &data) {
            let values = Values { initcwnd: Some(1), congestion: Some("cubic".to_owned()) };
            let made = route.way.with(&values);
            prop_assert_eq!(made.values(), values);
            let _ = show(&made, true, &|index| index.to_string());
            prop_assert_eq!(Way::from_hex(&made.to_hex()), Some(made));
        }
    }
}
