//! Next hop of a destination, or why it has none. Pure.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;

use super::index::{self, Index};
use super::ours::Routes;
use crate::kernel::{Family, KernelRoute, Values, Way};

/// One destination, and what its connections shall start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where to.
    pub prefix: IpNet,
    /// With what.
    pub values: Values,
}

/// Routes for table 201, what cannot be served, and for how many seconds at most this is so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Destination -> way.
    pub routes: Routes,
    /// Destination -> reason.
    pub refused: BTreeMap<IpNet, String>,
    /// Seconds until a route of the host's runs out; None when none will.
    pub lasts: Option<f64>,
}

/// The host's own routing of one address family.
pub struct HostTables {
    /// The table main.
    pub main: Index,
    /// The table local.
    pub local: Index,
}

/// The edge's own route to a destination, safe to copy, or the reason why there is none.
///
/// Longest match as the kernel does it, not by a query for one address: that would see our own table first.
pub(crate) fn find_next_hop<'a>(
    prefix: &IpNet,
    host: &'a HostTables,
) -> Result<&'a KernelRoute, String> {
    if let Some(inside) = host.local.first_inside(prefix, prefix.prefix_len()) {
        return Err(format!(
            "the edge's own address {} lies inside it",
            inside.prefix
        ));
    }
    if host
        .local
        .covering(prefix)
        .into_iter()
        .flatten()
        .any(|route| route.kind == "local")
    {
        return Err("it is the edge's own (its local table has a route over all of it)".to_owned());
    }
    if let Some(inside) = host
        .main
        .first_inside(prefix, prefix.prefix_len().saturating_add(1))
    {
        let inside = inside.prefix;
        return Err(format!(
            "the edge's more specific route {inside} lies inside it and our rule would hide it"
        ));
    }
    for routes in host.main.covering(prefix) {
        if let Some(chosen) = choose(routes)? {
            return Ok(chosen);
        }
    }
    Err("no route of the edge's own covers it".to_owned())
}

/// Route of one prefix to copy, or why none; None when all are dead: then a shorter prefix counts.
fn choose(routes: &[KernelRoute]) -> Result<Option<&KernelRoute>, String> {
    let alive: Vec<&KernelRoute> = routes.iter().filter(|route| !route.dead).collect();
    let Some(metric) = alive.iter().map(|route| route.metric).min() else {
        return Ok(None);
    };
    let prefix = alive[0].prefix;
    if alive.iter().any(|route| route.narrow) {
        return Err(format!(
            "the edge routes {prefix} by TOS or source, which our rule would bypass"
        ));
    }
    let mut best = alive.into_iter().filter(|route| route.metric == metric);
    let chosen = best.next();
    match chosen {
        Some(route) if route.kind != "unicast" => Err(format!(
            "the edge's own route to it, {prefix}, is {}",
            route.kind
        )),
        _ if best.next().is_some() => Err(format!(
            "the edge has several routes {prefix} of one metric: which one counts is not clear"
        )),
        Some(KernelRoute {
            obstacle: Some(obstacle),
            ..
        }) => Err(format!(
            "the edge's own route to it, {prefix}, carries {obstacle}"
        )),
        chosen => Ok(chosen),
    }
}

/// Copies the next hop of every destination. A family that is missing in `host` is one that the host has not.
pub(super) fn plan_routes(
    destinations: &[Destination],
    host: &BTreeMap<Family, HostTables>,
) -> Plan {
    let lasts = host
        .values()
        .filter_map(|tables| tables.main.lasts())
        .reduce(f64::min);
    let mut plan = Plan {
        lasts,
        ..Plan::default()
    };
    let marks: BTreeMap<Family, Vec<u128>> = host
        .iter()
        .map(|(family, tables)| (*family, marks(tables)))
        .collect();
    let mut answers: HashMap<(Family, usize), Result<Way, String>> = HashMap::new();
    let mut written: HashMap<(Way, &Values), Way> = HashMap::new();
    // Bundles are sorted, and of a sorted list a map is made at once.
    let mut routes: Vec<(IpNet, Way)> = Vec::with_capacity(destinations.len());
    for Destination { prefix, values } in destinations {
        let family = Family::of(prefix);
        let Some(tables) = host.get(&family) else {
            plan.refused
                .insert(*prefix, format!("this host has no IPv{}", family.version()));
            continue;
        };
        // Where no route of the edge begins or has just ended, none lies inside, and what covers one destination between
        // two marks covers every other one there: they share the answer.
        let marks = &marks[&family];
        let place = marks.partition_point(|mark| *mark < index::first(prefix));
        let shared = marks
            .get(place)
            .is_none_or(|mark| *mark > index::last(prefix));
        let find = || find_next_hop(prefix, tables).map(|route| route.way.clone());
        let answer = if shared {
            answers.entry((family, place)).or_insert_with(find).clone()
        } else {
            find()
        };
        match answer {
            Ok(way) => {
                let made = written
                    .entry((way, values))
                    .or_insert_with_key(|(way, values)| way.with(values))
                    .clone();
                routes.push((*prefix, made));
            }
            Err(reason) => {
                plan.refused.insert(*prefix, reason);
            }
        }
    }
    plan.routes = routes.into_iter().collect();
    plan
}

/// The first address of each route, and the first one behind it; sorted.
fn marks(tables: &HostTables) -> Vec<u128> {
    let mut marks: Vec<u128> = tables.main.marks().chain(tables.local.marks()).collect();
    marks.sort_unstable();
    marks.dedup();
    marks
}
