//! Our objects in the kernel, and whether connections reach them.

use std::collections::BTreeMap;
use std::io;

use ipnet::IpNet;

use super::ours::{
    PREFERENCE, Routes, Snapshot, TABLE, carries_our_marks, is_marked, is_our_rule, is_ours,
};
use crate::error::{Error, Result};
use crate::kernel::{
    Family, LOCAL, Rtnetlink, Rule, Way, answering, each_route, each_rule, families, routes, rules,
    show,
};
use crate::text::reason;

/// Destinations that are looked up in one pass: some milliseconds.
const LOOKED_UP: usize = 1024;
/// Destinations that are named.
const NAMED: usize = 20;

/// Table 201 of one address family: our routes, and the first that is not one of ours.
pub struct OwnTable {
    /// Routes that this program would have written.
    pub routes: Routes,
    /// As people read it.
    pub foreign: Option<String>,
}

/// Whether nothing may be put back any more: [`Error::Withdrawn`].
pub type Check<'a> = &'a dyn Fn() -> Result<()>;

/// Our routes and rules in this network namespace. `check` is called before and after each write.
pub struct Routing<'a> {
    pub(super) check: Check<'a>,
    /// The IP versions that this host has.
    pub families: Vec<Family>,
}

/// Table 201.
pub(super) fn own_table(family: Family) -> Result<OwnTable> {
    let mut own = OwnTable {
        routes: Routes::new(),
        foreign: None,
    };
    let mut found = routes(family, TABLE)?;
    // The kernel dumps in this order but for details; a sorted list becomes a map at once.
    found.sort_by_key(|route| (route.prefix, !is_ours(route)));
    let mut ours: Vec<(IpNet, Way)> = Vec::with_capacity(found.len());
    for route in found {
        let again = ours
            .last()
            .is_some_and(|(prefix, _)| *prefix == route.prefix);
        if is_ours(&route) && !again {
            ours.push((route.prefix, route.way));
        } else if own.foreign.is_none() {
            own.foreign = Some(format!(
                "{} {} proto {} metric {} {}",
                route.kind,
                route.prefix,
                route.proto,
                route.metric,
                show(&route.way, family)
            ));
        }
    }
    own.routes = ours.into_iter().collect();
    Ok(own)
}

impl<'a> Routing<'a> {
    /// Opens nothing yet.
    pub fn new(check: Check<'a>) -> Self {
        Self {
            check,
            families: families(),
        }
    }

    /// Destinations whose connections another table than ours answers, and why; at most [`NAMED`] of a sample.
    pub fn unreached(&self, routes: &Routes) -> Result<BTreeMap<IpNet, String>> {
        let mut found = BTreeMap::new();
        let mut conversation = Rtnetlink::open()?;
        for prefix in routes
            .keys()
            .step_by(routes.len().div_ceil(LOOKED_UP).max(1))
        {
            let to = prefix.hosts().next().unwrap_or(prefix.addr());
            let by = match answering(&mut conversation, to) {
                // An address of the host's own is for nobody to reach by a route.
                Ok(table) if [TABLE, LOCAL].map(u32::from).contains(&table) => continue,
                Ok(table) => format!("table {table}"),
                Err(error) => reason(&error),
            };
            let why = format!(
                "not reached: a rule before {PREFERENCE} answers ({by}); let it leave out this destination, or leave this edge out"
            );
            found.insert(*prefix, why);
            if found.len() == NAMED {
                break;
            }
        }
        // Routes withdrawn meanwhile are no longer for anybody to reach.
        if !found.is_empty() {
            let now = self.snapshot()?;
            found.retain(|prefix, _| {
                now.rules.contains(&Family::of(prefix)) && now.routes.contains_key(prefix)
            });
        }
        Ok(found)
    }

    /// Reads our objects.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_of(&self.families)
    }

    pub(super) fn snapshot_of(&self, families: &[Family]) -> Result<Snapshot> {
        let mut found = Snapshot::default();
        for family in families {
            found.routes.extend(own_table(*family)?.routes);
            if rules(*family)?.iter().any(is_our_rule) {
                found.rules.push(*family);
            }
        }
        Ok(found)
    }

    /// The IP versions in which something carries our marks, and whether the rule is there.
    pub fn marked(&self) -> Result<BTreeMap<Family, bool>> {
        let mut found = BTreeMap::new();
        let mut conversation = Rtnetlink::open()?;
        for family in &self.families {
            let marked = our_rules(&mut conversation, *family)
                .and_then(|rules| Ok((rules, our_routes(&mut conversation, *family)?)))
                .map_err(|error| {
                    Error::failed(format!(
                        "netlink: what is ours: {}; withdraw",
                        reason(&error)
                    ))
                })?;
            if marked.0 > 0 || !marked.1.is_empty() {
                found.insert(*family, marked.0 > 0);
            }
        }
        Ok(found)
    }
}

/// Number of rules that carry our marks.
pub(super) fn our_rules(conversation: &mut Rtnetlink, family: Family) -> io::Result<u32> {
    let mut count = 0;
    each_rule(conversation, family, |body| {
        count += u32::from(Rule::parse(body).is_some_and(|rule| is_marked(&rule)));
    })?;
    Ok(count)
}

/// The bodies of the routes that carry our marks.
pub(super) fn our_routes(conversation: &mut Rtnetlink, family: Family) -> io::Result<Vec<Vec<u8>>> {
    let mut bodies = Vec::new();
    let there = each_route(conversation, family, TABLE, |body| {
        if carries_our_marks(body) {
            bodies.push(body.to_vec());
        }
    })?;
    // A table that went meanwhile took its routes with it.
    Ok(there.map_or_else(Vec::new, |_| bodies))
}
