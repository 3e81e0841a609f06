//! Against slow and independent models.

use std::collections::BTreeMap;

use ipnet::{IpNet, Ipv4Net};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use super::super::index::Index;
use super::super::ours::{Routes, Snapshot};
use super::super::plan::{Destination, HostTables, Plan, find_next_hop, plan_routes};
use super::super::steps::{Change, batch, difference};
use crate::kernel::{Family, KernelRoute, Values, Way};

fn way(number: u8) -> Way {
    // Scope, flags, padding, and one attribute that says which way it is: RTA_OIF.
    Way::from_hex(&format!("00000000080004000{number:x}000000")).expect("hexadecimal digits")
}

fn prefix(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn window(initcwnd: u32) -> Values {
    Values {
        initcwnd: Some(initcwnd),
        congestion: None,
    }
}

fn route(text: &str, kind: &'static str) -> KernelRoute {
    KernelRoute {
        prefix: prefix(text),
        kind,
        proto: 3,
        metric: 0,
        narrow: false,
        dead: false,
        expires: None,
        way: way(1),
        obstacle: None,
    }
}

fn unicast(text: &str) -> KernelRoute {
    route(text, "unicast")
}

fn tables(main: Vec<KernelRoute>, local: Vec<KernelRoute>) -> HostTables {
    HostTables {
        main: Index::new(main),
        local: Index::new(local),
    }
}

fn refusal(main: Vec<KernelRoute>, local: Vec<KernelRoute>) -> String {
    find_next_hop(&prefix("10.1.2.0/24"), &tables(main, local)).expect_err("refused")
}

/// As strict as the kernel: an addition fails on what is there, a removal and a replacement on what is not.
fn carried_out(table: &Routes, steps: &[Change]) -> Routes {
    let mut result = table.clone();
    for step in steps {
        match step {
            Change::Add(prefix, way) => assert!(result.insert(*prefix, way.clone()).is_none()),
            Change::Replace(prefix, way) => assert!(result.insert(*prefix, way.clone()).is_some()),
            Change::Remove(prefix) => assert!(result.remove(prefix).is_some()),
            Change::AddRule | Change::RemoveRule => {}
        }
    }
    result
}

fn any_table() -> impl Strategy<Value = Routes> {
    let four = (0..6u8).prop_map(|number| prefix(&format!("10.{number}.0.0/16")));
    let six = (0..4u8).prop_map(|number| prefix(&format!("fd0{number}::/32")));
    btree_map(prop_oneof![four, six], (1..4u8).prop_map(way), 0..8)
}

fn any_prefix() -> impl Strategy<Value = Ipv4Net> {
    let wide =
        (0..16u32, 8..=32u8).prop_map(|(number, length)| (0x0a00_0000 | number << 20, length));
    let narrow = (0..16u32, 24..=32u8).prop_map(|(number, length)| (0x0a00_0000 | number, length));
    prop_oneof![wide, narrow]
        .prop_map(|(network, length)| Ipv4Net::new(network.into(), length).expect("valid").trunc())
}

proptest! {
    #[test]
    fn a_difference_leads_from_any_table_to_any_other(before in any_table(), after in any_table()) {
        let steps = difference(&before, &after);
        prop_assert_eq!(carried_out(&before, &steps), after.clone());
        prop_assert_eq!(steps.is_empty(), before == after);
        let first_addition = steps.iter().position(|step| !matches!(step, Change::Remove(_))).unwrap_or(steps.len());
        prop_assert!(steps[first_addition..].iter().all(|step| !matches!(step, Change::Remove(_))), "removals first");
    }

    #[test]
    fn a_rule_exists_only_while_its_routes_do(before in any_table(), after in any_table()) {
        let steps = difference(&before, &after);
        for family in Family::BOTH {
            let has = |routes: &Routes| routes.keys().any(|prefix| Family::of(prefix) == family);
            let (old, new) = (Snapshot::with_rules(before.clone()), Snapshot::with_rules(after.clone()));
            let changes = batch(&old, &new, &steps, family);
            let of_family = |routes: &Routes| -> Routes {
                routes.iter().filter(|(one, _)| Family::of(one) == family).map(|(one, way)| (*one, way.clone())).collect()
            };
            prop_assert_eq!(carried_out(&of_family(&before), &changes), of_family(&after));
            let rules: Vec<usize> =
                (0..changes.len()).filter(|place| changes[*place].prefix().is_none()).collect();
            match (has(&before), has(&after)) {
                (true, false) => {
                    prop_assert_eq!(rules, vec![0]);
                    prop_assert_eq!(&changes[0], &Change::RemoveRule);
                }
                (false, true) => {
                    prop_assert_eq!(rules, vec![changes.len() - 1]);
                    prop_assert_eq!(&changes[changes.len() - 1], &Change::AddRule);
                }
                _ => prop_assert!(rules.is_empty()),
            }
        }
    }

    #[test]
    fn the_index_agrees_with_a_scan(table in vec(any_prefix(), 0..12), destination in any_prefix()) {
        let index = Index::new(table.iter().map(|prefix| unicast(&prefix.to_string())).collect());
        let mut covering: Vec<u8> =
            table.iter().filter(|network| network.contains(&destination)).map(Ipv4Net::prefix_len).collect();
        covering.sort_unstable_by(|left, right| right.cmp(left));
        covering.dedup();
        let wanted = IpNet::V4(destination);
        let found: Vec<u8> = index.covering(&wanted).iter().map(|group| group[0].prefix.prefix_len()).collect();
        prop_assert_eq!(found, covering);
        let inside = table.iter().any(|network| *network != destination && destination.contains(network));
        prop_assert_eq!(index.first_inside(&wanted, destination.prefix_len() + 1).is_some(), inside);
    }

    #[test]
    fn destinations_share_an_answer_only_where_each_would_get_the_same(
        main in vec((any_prefix(), prop_oneof![Just("unicast"), Just("blackhole")]), 0..12),
        local in vec((any_prefix(), prop_oneof![Just("local"), Just("broadcast")]), 0..4),
        destinations in btree_set(any_prefix(), 0..40),
        with_default in any::<bool>(),
    ) {
        let mut own: Vec<KernelRoute> = Vec::new();
        for (number, (network, kind)) in (0..).zip(&main) {
            own.push(KernelRoute { way: way(number), ..route(&network.to_string(), kind) });
        }
        own.extend(with_default.then(|| KernelRoute { way: way(15), ..unicast("0.0.0.0/0") }));
        let local = local.iter().map(|(network, kind)| route(&network.to_string(), kind)).collect();
        let host = BTreeMap::from([(Family::V4, tables(own, local))]);
        let wanted: Vec<Destination> =
            destinations.iter().map(|found| Destination { prefix: (*found).into(), values: window(20) }).collect();
        let mut expected = Plan::default();
        for destination in &wanted {
            match find_next_hop(&destination.prefix, &host[&Family::V4]) {
                Ok(route) => {
                    expected.routes.insert(destination.prefix, route.way.with(&window(20)));
                }
                Err(reason) => {
                    expected.refused.insert(destination.prefix, reason);
                }
            }
        }
        prop_assert_eq!(plan_routes(&wanted, &host), expected);
    }
}

#[test]
fn a_lost_rule_is_put_back() {
    let routes = Routes::from([(prefix("10.1.0.0/16"), way(1))]);
    let actual = Snapshot {
        routes: routes.clone(),
        rules: Vec::new(),
    };
    assert_eq!(
        batch(&actual, &Snapshot::with_rules(routes), &[], Family::V4),
        [Change::AddRule]
    );
}

#[test]
fn neighbours_are_written_far_apart_and_removals_first() {
    let routes = |third: std::ops::Range<u8>| -> Routes {
        third
            .map(|third| (prefix(&format!("10.0.{third}.0/24")), way(1)))
            .collect()
    };
    let (old, new) = (routes(0..2), routes(2..6));
    let (before, after) = (
        Snapshot::with_rules(old.clone()),
        Snapshot::with_rules(new.clone()),
    );
    let changes = batch(&before, &after, &difference(&old, &new), Family::V4);
    let thirds: Vec<String> = changes
        .iter()
        .filter_map(Change::prefix)
        .map(|one| one.to_string())
        .collect();
    let wanted = [
        "10.0.0.0/24",
        "10.0.1.0/24",
        "10.0.4.0/24",
        "10.0.2.0/24",
        "10.0.5.0/24",
        "10.0.3.0/24",
    ];
    assert_eq!(thirds, wanted);
}

#[test]
fn the_longest_route_with_the_lowest_metric_is_copied() {
    let with = |metric, number| KernelRoute {
        metric,
        way: way(number),
        ..unicast("10.1.0.0/16")
    };
    let main = vec![
        KernelRoute {
            way: way(9),
            ..unicast("0.0.0.0/0")
        },
        KernelRoute {
            way: way(8),
            ..unicast("10.0.0.0/8")
        },
        with(50, 5),
        with(20, 2),
    ];
    let host = tables(main, Vec::new());
    for (destination, expected) in [
        ("10.1.2.0/24", 2),
        ("10.2.2.0/24", 8),
        ("10.1.0.0/16", 2),
        ("172.16.0.0/12", 9),
    ] {
        let found = find_next_hop(&prefix(destination), &host).expect("a route");
        assert_eq!(found.way, way(expected), "{destination}");
    }
}

#[test]
fn a_dead_route_is_passed_over_as_the_kernel_does() {
    let dead = KernelRoute {
        dead: true,
        ..unicast("10.1.0.0/16")
    };
    let host = tables(
        vec![
            dead,
            KernelRoute {
                way: way(2),
                ..unicast("10.0.0.0/8")
            },
        ],
        Vec::new(),
    );
    assert_eq!(
        find_next_hop(&prefix("10.1.2.0/24"), &host)
            .expect("a route")
            .way,
        way(2)
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn a_destination_that_cannot_be_served_has_a_reason() {
    let narrow = |text| KernelRoute {
        narrow: true,
        ..unicast(text)
    };
    let odd = KernelRoute {
        obstacle: Some("encap, which is not copied".to_owned()),
        ..unicast("10.0.0.0/8")
    };
    let ten = || unicast("10.0.0.0/8");
    for (main, local, reason) in [
        (vec![], vec![], "no route of the edge's own covers it"),
        (
            vec![unicast("10.1.2.0/25")],
            vec![],
            "more specific route 10.1.2.0/25",
        ),
        (
            vec![ten(), unicast("10.1.2.128/32")],
            vec![],
            "more specific route 10.1.2.128/32",
        ),
        (
            vec![ten(), route("10.1.2.7/32", "throw")],
            vec![],
            "more specific route 10.1.2.7/32",
        ),
        (
            vec![ten()],
            vec![route("10.1.2.3/32", "local")],
            "own address 10.1.2.3/32 lies inside",
        ),
        (
            vec![ten()],
            vec![route("10.1.2.0/24", "local")],
            "own address 10.1.2.0/24 lies inside",
        ),
        (
            vec![ten()],
            vec![route("10.0.0.0/8", "local")],
            "is the edge's own",
        ),
        (
            vec![ten(), route("10.1.0.0/16", "blackhole")],
            vec![],
            "10.1.0.0/16, is blackhole",
        ),
        (
            vec![ten(), route("10.1.0.0/16", "throw")],
            vec![],
            "10.1.0.0/16, is throw",
        ),
        (
            vec![ten(), narrow("10.0.0.0/8")],
            vec![],
            "by TOS or source",
        ),
        (
            vec![ten(), narrow("10.1.0.0/16")],
            vec![],
            "by TOS or source",
        ),
        (vec![ten(), ten()], vec![], "several routes 10.0.0.0/8"),
        (vec![odd], vec![], "carries encap"),
    ] {
        let found = refusal(main, local);
        assert!(found.contains(reason), "{found}: {reason}");
    }
}

#[test]
fn a_narrow_route_behind_the_chosen_one_does_not_matter() {
    let narrow = KernelRoute {
        narrow: true,
        ..unicast("10.0.0.0/8")
    };
    let host = tables(
        vec![
            KernelRoute {
                way: way(3),
                ..unicast("10.1.0.0/16")
            },
            narrow,
        ],
        Vec::new(),
    );
    assert_eq!(
        find_next_hop(&prefix("10.1.2.0/24"), &host)
            .expect("a route")
            .way,
        way(3)
    );
}

#[test]
fn one_refused_destination_does_not_hold_up_the_others() {
    let wanted = ["10.1.2.0/24", "172.16.0.0/12", "fd00::/48"].map(|text| Destination {
        prefix: prefix(text),
        values: window(20),
    });
    let host = BTreeMap::from([(Family::V4, tables(vec![unicast("10.0.0.0/8")], Vec::new()))]);
    let plan = plan_routes(&wanted, &host);
    assert_eq!(
        plan.routes
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["10.1.2.0/24"]
    );
    let refused: Vec<String> = plan.refused.keys().map(ToString::to_string).collect();
    assert_eq!(refused, ["172.16.0.0/12", "fd00::/48"]);
    assert_eq!(plan.refused[&prefix("fd00::/48")], "this host has no IPv6");
}
