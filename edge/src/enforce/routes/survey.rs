//! Meaning of destinations on this host, by its routing of this moment.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::index::Index;
use super::ours::{Snapshot, is_our_rule};
use super::plan::{Destination, HostTables, Plan, plan_routes};
use super::status::{Routing, own_table};
use super::support::may_carry;
use crate::error::{Error, Result};
use crate::kernel::{Family, LOCAL, MAIN, Values, Way, congestion_problem, routes, rules};

/// Destinations without the congestion controls that this kernel has not: those, and the reason for each.
///
/// A route with an unknown one would be refused, and every other route with it.
fn without_unknown(destinations: &[Destination]) -> (Vec<Destination>, BTreeMap<IpNet, String>) {
    let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let (mut served, mut lacking) = (Vec::new(), BTreeMap::new());
    for destination in destinations {
        let name = destination.values.congestion.as_deref();
        let problem = name.and_then(|name| {
            known
                .entry(name)
                .or_insert_with(|| congestion_problem(name))
                .clone()
        });
        let mut kept = destination.clone();
        if let Some(problem) = problem {
            kept.values.congestion = None;
            lacking.insert(destination.prefix, problem);
        }
        if kept.values != Values::default() {
            served.push(kept);
        }
    }
    (served, lacking)
}

/// The host's own routing of one address family: main, and local.
fn host_tables(family: Family) -> Result<HostTables> {
    Ok(HostTables {
        main: Index::new(routes(family, MAIN)?),
        local: Index::new(routes(family, LOCAL)?),
    })
}

/// Finds what destinations mean on this host, and what is ours now.
///
/// # Errors
///
/// [`Error::Refused`] when the host is not fit.
pub(crate) fn survey(
    routing: &Routing<'_>,
    destinations: &[Destination],
) -> Result<(Plan, Snapshot)> {
    let (destinations, lacking) = without_unknown(destinations);
    let mut own = Snapshot::default();
    let mut host = BTreeMap::new();
    for family in routing.families.iter().copied() {
        let (table, rules) = (own_table(family)?, rules(family)?);
        if rules.iter().any(is_our_rule) {
            own.rules.push(family);
        }
        let serves = destinations
            .iter()
            .any(|destination| Family::of(&destination.prefix) == family);
        if serves {
            may_carry(&table, &rules, family)?;
        }
        own.routes.extend(table.routes);
        if !serves {
            continue;
        }
        host.insert(family, host_tables(family)?);
    }
    let mut plan = plan_routes(&destinations, &host);
    plan.refused.extend(lacking);
    Ok((plan, own))
}

/// Whether a copy in the kernel, whichever run wrote it, is not what the host's routing of this moment means.
pub(crate) fn stale(routing: &Routing<'_>) -> Result<bool> {
    let held = routing.snapshot()?.routes;
    // A congestion control may be the bundle's, or the host's own, which may be locked and then stays so.
    let means = |with_congestion: bool| {
        let values = |way: &Way| Values {
            congestion: way.values().congestion.filter(|_| with_congestion),
            ..way.values()
        };
        let copies: Vec<Destination> = held
            .iter()
            .map(|(prefix, way)| Destination {
                prefix: *prefix,
                values: values(way),
            })
            .collect();
        survey(routing, &copies).map(|(plan, _)| plan.routes)
    };
    match (means(false), means(true)) {
        (Ok(own), Ok(given)) => Ok(held
            .iter()
            .any(|(prefix, way)| own.get(prefix) != Some(way) && given.get(prefix) != Some(way))),
        (Err(Error::Refused { .. }), _) | (_, Err(Error::Refused { .. })) => Ok(true),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}
