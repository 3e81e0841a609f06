//! The kernel's tables of routes and rules, as they are read.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;

use super::family::Family;
use super::route::{KernelRoute, RTM_GETROUTE, answer, lookup};
use super::rtnetlink::Rtnetlink;
use super::rule::{RTM_GETRULE, Rule};
use super::way::Way;
use crate::error::{Error, Result};

/// A table that changes while it is read is read again, so often.
const DUMP_PASSES: usize = 5;

/// The routes of one table; one that does not exist is empty.
pub(crate) fn routes(family: Family, table: u8) -> Result<Vec<KernelRoute>> {
    let mut conversation = Rtnetlink::open()?;
    let mut routes = Vec::new();
    for _ in 0..DUMP_PASSES {
        routes.clear();
        // A full table has a million routes, and a handful of ways; neighbours mostly have the same.
        let mut ways: HashSet<Way> = HashSet::new();
        let mut last: Option<Way> = None;
        let mut malformed = false;
        let whole = each_route(&mut conversation, family, table, |body| {
            if body.get(4) != Some(&table) {
                return;
            }
            match KernelRoute::parse(family, body) {
                Ok(None) => {}
                Ok(Some(mut route)) => {
                    route.way = match &last {
                        Some(way) if *way == route.way => way.clone(),
                        _ => shared(&mut ways, route.way),
                    };
                    last = Some(route.way.clone());
                    routes.push(route);
                }
                Err(_) => malformed = true,
            }
        })?;
        let Some(whole) = whole else {
            return Ok(Vec::new());
        };
        if malformed {
            let version = family.version();
            let problem = format!("a route of IPv{version} table {table} cannot be read");
            return Err(Error::failed(format!(
                "netlink: {problem}; see `ip -{version} route show table {table}`"
            )));
        }
        if whole {
            break;
        }
    }
    // Where it changes all the time, the last look counts: each change brings the next one about.
    Ok(routes)
}

/// The same way, held once.
fn shared(ways: &mut HashSet<Way>, way: Way) -> Way {
    match ways.get(&way) {
        Some(known) => known.clone(),
        None => {
            ways.insert(way.clone());
            way
        }
    }
}

/// Every rule of one address family.
pub(crate) fn rules(family: Family) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    let mut malformed = false;
    each_rule(&mut Rtnetlink::open()?, family, |body| {
        match Rule::parse(body) {
            Some(rule) => rules.push(rule),
            None => malformed = true,
        }
    })?;
    if malformed {
        return Err(Error::failed(format!(
            "netlink: a rule of IPv{} cannot be read",
            family.version()
        )));
    }
    Ok(rules)
}

/// The bodies of the routes of one table, and whether they are of one moment; None where there is no such table. A kernel
/// that does not know strict checking dumps every table.
pub(crate) fn each_route(
    conversation: &mut Rtnetlink,
    family: Family,
    table: u8,
    each: impl FnMut(&[u8]),
) -> io::Result<Option<bool>> {
    match conversation.dump(RTM_GETROUTE, family, table, each) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The bodies of the rules, as the kernel dumps them.
pub(crate) fn each_rule(
    conversation: &mut Rtnetlink,
    family: Family,
    each: impl FnMut(&[u8]),
) -> io::Result<()> {
    conversation.dump(RTM_GETRULE, family, 0, each).map(drop)
}

/// The table that routes a connection to an address. It is looked up twice: without a source, then with the one that the
/// first answer chose.
pub(crate) fn answering(conversation: &mut Rtnetlink, to: IpAddr) -> io::Result<u32> {
    let first = conversation.ask(RTM_GETROUTE, &lookup(to, None))?;
    let (table, chosen) = answer(&first);
    let Some(from) = chosen else { return Ok(table) };
    let second = conversation.ask(RTM_GETROUTE, &lookup(to, Some(from)))?;
    Ok(answer(&second).0)
}
