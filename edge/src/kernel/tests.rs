//! Bytes in and out, against the kernel's headers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::family::Family;
use super::netlink::{attributes, messages, push_attribute, u32_at};
use super::route::KernelRoute;
use super::rule::Rule;
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
