//! What a bundle means on this host.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::bundle::{Bundle, Entry};
use crate::error::{Error, Result};
use crate::kernel::{
    Family, Kernel, OwnTable, Rule, Snapshot, Values, Way, congestion_problem, rule_problem,
};
use crate::plan::{Destination, HostTables, Plan, plan_routes};
use crate::state::EnforcedBy;

use super::report::NotEnforced;
use super::run::Run;

/// What of a bundle routes can carry, and how much they cannot.
pub(super) fn by_routes(bundle: &Bundle, by: EnforcedBy) -> (Vec<Destination>, NotEnforced) {
    let (mut destinations, mut left) = (Vec::new(), NotEnforced::nothing());
    if by != EnforcedBy::Routes {
        let nothing = by == EnforcedBy::Nothing;
        left.program = if nothing { bundle.entries.len() } else { 0 };
        return (destinations, left);
    }
    let overlaps = |entry: &Entry, excluded: &IpNet| {
        entry.prefix.contains(excluded) || excluded.contains(&entry.prefix.0)
    };
    for entry in &bundle.entries {
        // A route is for all of its destinations.
        if bundle
            .enforce
            .excluded
            .iter()
            .any(|excluded| overlaps(entry, excluded))
        {
            left.excluded += 1;
            continue;
        }
        let at_once = entry
            .congestion
            .as_ref()
            .filter(|choice| choice.from_bytes == 0 || choice.always);
        left.congestion += usize::from(entry.congestion.is_some() && at_once.is_none());
        left.count(entry);
        let values = Values {
            initcwnd: entry.initcwnd,
            congestion: at_once.map(|choice| choice.algorithm.clone()),
        };
        if values.initcwnd.is_some() || values.congestion.is_some() {
            destinations.push(Destination {
                prefix: entry.prefix.0,
                values,
            });
        }
    }
    (destinations, left)
}

/// Adds the destinations that the kernel's own lookup does not find by our routes. What is committed stands, whether or not
/// it can be looked up.
pub(super) fn name_unreached(run: &Run<'_>, plan: &mut Plan, notes: &mut Vec<String>) {
    match run.kernel.unreached(&plan.routes) {
        Ok(unreached) => plan.refused.extend(unreached),
        Err(error) => notes.push(format!(
            "destinations could not be looked up, so `status` says which are reached: {error}"
        )),
    }
}

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

/// Whether this host's routes of a family can carry values.
///
/// # Errors
///
/// [`Error::Refused`] when the host is not fit.
pub(super) fn fit(kernel: &Kernel<'_>, family: Family) -> Result<()> {
    may_carry(&kernel.own_table(family)?, &kernel.rules(family)?, family)
}

fn may_carry(table: &OwnTable, rules: &[Rule], family: Family) -> Result<()> {
    if let Some(foreign) = &table.foreign {
        let place = format!("`ip -{} route show table 201`", family.version());
        return Err(Error::refused(format!(
            "{place}: `{foreign}` is not Springtide's; move it to another table"
        )));
    }
    rule_problem(rules, family).map_or(Ok(()), |problem| Err(Error::refused(problem)))
}

/// What destinations mean on this host, and what is ours now.
///
/// # Errors
///
/// [`Error::Refused`] when the host is not fit.
pub(super) fn survey(
    kernel: &Kernel<'_>,
    destinations: &[Destination],
) -> Result<(Plan, Snapshot)> {
    let (destinations, lacking) = without_unknown(destinations);
    let mut own = Snapshot::default();
    let mut host = BTreeMap::new();
    for family in kernel.families.iter().copied() {
        let (table, rules) = (kernel.own_table(family)?, kernel.rules(family)?);
        if rules.iter().any(Rule::is_ours) {
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
        let (main, local) = kernel.host_tables(family)?;
        host.insert(family, HostTables { main, local });
    }
    let mut plan = plan_routes(&destinations, &host);
    plan.refused.extend(lacking);
    Ok((plan, own))
}

/// Whether a copy in the kernel, whichever run wrote it, is not what the host's routing of this moment means.
pub(super) fn stale(kernel: &Kernel<'_>) -> Result<bool> {
    let held = kernel.snapshot()?.routes;
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
        survey(kernel, &copies).map(|(plan, _)| plan.routes)
    };
    match (means(false), means(true)) {
        (Ok(own), Ok(given)) => Ok(held
            .iter()
            .any(|(prefix, way)| own.get(prefix) != Some(way) && given.get(prefix) != Some(way))),
        (Err(Error::Refused { .. }), _) | (_, Err(Error::Refused { .. })) => Ok(true),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}
