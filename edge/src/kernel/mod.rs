//! The rim to the kernel: what stands in its routing tables, and what is written there.

mod netlink;
mod route;
mod rtnetlink;
mod rule;
#[cfg(test)]
mod tests;
mod way;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;

use ipnet::IpNet;
use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketType, socket};

pub use route::{Change, Family, KernelRoute};
pub use rule::Rule;
pub use way::{Values, Way};

use crate::error::{Error, Result};
use crate::plan::{self, difference};
use crate::text::reason;
use route::{LOCAL, MAIN, RTM_GETROUTE, TABLE, carries_our_marks, deletion};
use rtnetlink::Rtnetlink;
pub(crate) use rule::{OURS as OUR_RULE, problem as rule_problem};

/// What another run still writes meanwhile goes with the next pass.
const DELETE_PASSES: usize = 5;
/// Destinations that are looked up in one pass: some milliseconds.
const LOOKED_UP: usize = 1024;
/// Destinations that are named.
const NAMED: usize = 20;
/// A table that changes while it is read is read again, so often.
const DUMP_PASSES: usize = 5;

/// Routes of ours: destination -> way.
pub type Routes = BTreeMap<IpNet, Way>;

/// What is ours in the kernel: routes, and the IP versions that have our rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Table 201.
    pub routes: Routes,
    /// Sorted.
    pub rules: Vec<Family>,
}

impl Snapshot {
    /// A rule for each IP version that has a route, and none for one that has not.
    pub fn with_rules(routes: Routes) -> Self {
        let has = |family: &Family| routes.keys().any(|prefix| Family::of(prefix) == *family);
        let rules = Family::BOTH.into_iter().filter(has).collect();
        Self { routes, rules }
    }

    /// The part that belongs to some IP versions.
    fn of(&self, families: &[Family]) -> Self {
        let kept = |prefix: &IpNet| families.contains(&Family::of(prefix));
        Self {
            routes: self
                .routes
                .iter()
                .filter(|(prefix, _)| kept(prefix))
                .map(|(p, w)| (*p, w.clone()))
                .collect(),
            rules: self
                .rules
                .iter()
                .copied()
                .filter(|family| families.contains(family))
                .collect(),
        }
    }
}

/// Table 201 of one address family: our routes, and the first that is not one of ours.
pub struct OwnTable {
    /// What this program would have written.
    pub routes: Routes,
    /// As people read it.
    pub foreign: Option<String>,
}

/// Whether nothing may be put back any more: [`Error::Withdrawn`].
pub type Check<'a> = &'a dyn Fn() -> Result<()>;

/// The kernel's routing in this network namespace. `check` is called before and after each write.
pub struct Kernel<'a> {
    check: Check<'a>,
    /// The IP versions that this host has.
    pub families: Vec<Family>,
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::failed(format!(
            "netlink: {}; run `status`, then again",
            reason(&error)
        ))
    }
}

impl<'a> Kernel<'a> {
    /// Opens nothing yet.
    pub fn new(check: Check<'a>) -> Self {
        let ipv6 = Path::new("/proc/net/if_inet6").exists();
        Self {
            check,
            families: if ipv6 {
                Family::BOTH.to_vec()
            } else {
                vec![Family::V4]
            },
        }
    }

    /// The routes of one table; one that does not exist is empty.
    fn table(family: Family, table: u8) -> Result<Vec<KernelRoute>> {
        let mut conversation = Rtnetlink::open()?;
        let mut routes = Vec::new();
        for _ in 0..DUMP_PASSES {
            routes.clear();
            // A full table has a million routes, and a handful of ways; neighbours mostly have the same.
            let mut ways: HashSet<Way> = HashSet::new();
            let mut last: Option<Way> = None;
            let mut malformed = false;
            let whole = conversation.dump(RTM_GETROUTE, family, table, |body| {
                // A kernel that does not know strict checking dumps every table.
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
            });
            let whole = match whole {
                // No such table.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                other => other?,
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

    /// Table 201.
    pub fn own_table(&self, family: Family) -> Result<OwnTable> {
        let mut own = OwnTable {
            routes: Routes::new(),
            foreign: None,
        };
        let mut routes = Self::table(family, TABLE)?;
        // The kernel dumps in this order but for details; a sorted list becomes a map at once.
        routes.sort_by_key(|route| (route.prefix, !route.is_ours()));
        let mut ours: Vec<(IpNet, Way)> = Vec::with_capacity(routes.len());
        for route in routes {
            let again = ours
                .last()
                .is_some_and(|(prefix, _)| *prefix == route.prefix);
            if route.is_ours() && !again {
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

    /// The host's own routing of one address family: main, and local.
    pub fn host_tables(&self, family: Family) -> Result<(plan::Index, plan::Index)> {
        let main = Self::table(family, MAIN)?;
        Ok((
            plan::Index::new(main),
            plan::Index::new(Self::table(family, LOCAL)?),
        ))
    }

    /// Every rule of one address family.
    pub fn rules(&self, family: Family) -> Result<Vec<Rule>> {
        let mut rules = Vec::new();
        let mut malformed = false;
        Rtnetlink::open()?.dump(rule::RTM_GETRULE, family, 0, |body| {
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

    /// Destinations whose connections another table than ours answers, and why; at most [`NAMED`] of a sample.
    ///
    /// A connection is looked up twice: without a source, then with the one that the first answer chose.
    pub fn unreached(&self, routes: &Routes) -> Result<BTreeMap<IpNet, String>> {
        let mut found = BTreeMap::new();
        let mut conversation = Rtnetlink::open()?;
        for prefix in routes
            .keys()
            .step_by(routes.len().div_ceil(LOOKED_UP).max(1))
        {
            let to = prefix.hosts().next().unwrap_or(prefix.addr());
            let asked = conversation
                .ask(RTM_GETROUTE, &route::lookup(to, None))
                .and_then(|first| match route::answer(&first).1 {
                    Some(from) => conversation.ask(RTM_GETROUTE, &route::lookup(to, Some(from))),
                    None => Ok(first),
                });
            let by = match asked.as_ref().map(|body| route::answer(body).0) {
                // An address of the host's own is for nobody to reach by a route.
                Ok(table) if [TABLE, LOCAL].map(u32::from).contains(&table) => continue,
                Ok(table) => format!("table {table}"),
                Err(error) => reason(error),
            };
            let rule = rule::PREFERENCE;
            let why = format!(
                "not reached: a rule before {rule} answers ({by}); let it leave out this destination, or leave this edge out"
            );
            found.insert(*prefix, why);
            if found.len() == NAMED {
                break;
            }
        }
        // What was withdrawn meanwhile is no longer for anybody to reach.
        if !found.is_empty() {
            let now = self.snapshot()?;
            found.retain(|prefix, _| {
                now.rules.contains(&Family::of(prefix)) && now.routes.contains_key(prefix)
            });
        }
        Ok(found)
    }

    /// What is ours.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_of(&self.families)
    }

    fn snapshot_of(&self, families: &[Family]) -> Result<Snapshot> {
        let mut found = Snapshot::default();
        for family in families {
            found.routes.extend(self.own_table(*family)?.routes);
            if self.rules(*family)?.iter().any(Rule::is_ours) {
                found.rules.push(*family);
            }
        }
        Ok(found)
    }

    /// From one to the other, then reads back what was written to. Returns the steps.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], with the kernel somewhere in between; [`Error::Withdrawn`] when it must be nowhere but at nothing.
    pub fn change(&self, actual: &Snapshot, wanted: &Snapshot) -> Result<Vec<Change>> {
        let steps = difference(&actual.routes, &wanted.routes);
        let mut written = Vec::new();
        for family in &self.families {
            let changes = plan::batch(actual, wanted, &steps, *family);
            if !changes.is_empty() {
                written.push(*family);
                self.write(*family, &changes)?;
            }
        }
        let found = self.snapshot_of(&written)?;
        (self.check)()?;
        let part = wanted.of(&written);
        if found != part {
            let left = difference(&found.routes, &part.routes);
            let sample = match left.first() {
                Some(step) => describe(step),
                None => format!("rules of {} IP versions", found.rules.len()),
            };
            let count = left.len();
            return Err(Error::failed(format!(
                "read back: table {TABLE} is {count} steps from what was written ({sample})"
            )));
        }
        Ok(steps)
    }

    /// In order, the rule always alone: it comes only after a look whether all was withdrawn meanwhile, so whatever wakes
    /// late writes routes that nothing looks up.
    fn write(&self, family: Family, changes: &[Change]) -> Result<()> {
        for part in
            changes.chunk_by(|left, right| left.prefix().is_some() && right.prefix().is_some())
        {
            let mut messages: Vec<Vec<u8>> = part
                .iter()
                .zip(0..)
                .map(|(change, sequence)| change.message(family, sequence))
                .collect();
            let refused = Rtnetlink::open()?.send(&mut messages, || (self.check)(), false)?;
            if let Some(refused) = refused {
                let step = part.get(refused.position).map(describe).unwrap_or_default();
                return Err(Error::failed(format!(
                    "netlink: {step}: {}",
                    refused.reason
                )));
            }
        }
        (self.check)()
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

    /// Rules first, so that the host is back at its default with the first step. Returns (routes, rules) removed.
    ///
    /// By table and protocol number and not by what we remember: it needs no state, and takes any shape of route.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] after having tried everything.
    pub fn withdraw(&self) -> Result<(usize, usize)> {
        let (mut removed, mut trouble) = ([0, 0], Vec::new());
        for (count, (what, take)) in removed
            .iter_mut()
            .zip([("rules", take_rules as Take), ("routes", take_routes)])
        {
            for family in Family::BOTH {
                match take_back(family, take) {
                    Ok(found) => *count += found,
                    Err(error) if unsupported(&error) => {}
                    Err(error) => trouble.push(format!(
                        "IPv{} {what}: {}",
                        family.version(),
                        reason(&error)
                    )),
                }
            }
        }
        if trouble.is_empty() {
            return Ok((removed[1], removed[0]));
        }
        let fix = format!("run it again, then `ip rule del {OUR_RULE}`");
        Err(Error::failed(format!(
            "withdraw: {}; {fix}",
            trouble.join("; ")
        )))
    }
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

/// A host without an address family has nothing there.
fn unsupported(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|number| [95, 97].contains(&number)) // EOPNOTSUPP, EAFNOSUPPORT
}

type Take = fn(&mut Rtnetlink, Family) -> io::Result<Vec<Vec<u8>>>;

/// The messages that take our rules back.
fn take_rules(conversation: &mut Rtnetlink, family: Family) -> io::Result<Vec<Vec<u8>>> {
    let count = our_rules(conversation, family)?;
    Ok((0..count)
        .map(|sequence| rule::remove(family, sequence))
        .collect())
}

/// The messages that take our routes back.
fn take_routes(conversation: &mut Rtnetlink, family: Family) -> io::Result<Vec<Vec<u8>>> {
    let bodies = our_routes(conversation, family)?;
    let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "a route cannot be read");
    bodies
        .iter()
        .zip(0..)
        .map(|(body, sequence)| deletion(body, sequence).map_err(malformed))
        .collect()
}

/// Removes what carries our marks, as often as there is some. Returns how many there were.
fn take_back(family: Family, take: Take) -> io::Result<usize> {
    let mut conversation = Rtnetlink::open()?;
    let (mut most, mut last) = (0, (0, None));
    for _ in 0..DELETE_PASSES {
        let mut messages = take(&mut conversation, family)?;
        if messages.is_empty() {
            return Ok(most);
        }
        most = most.max(messages.len());
        let count = messages.len();
        last = (
            count,
            conversation.send(&mut messages, || io::Result::Ok(()), true)?,
        );
    }
    let why = last.1.map_or_else(
        || "somebody brings them back".to_owned(),
        |refused| refused.reason,
    );
    Err(io::Error::other(format!("{} are left, {why}", last.0)))
}

fn our_rules(conversation: &mut Rtnetlink, family: Family) -> io::Result<u32> {
    let mut count = 0;
    conversation.dump(rule::RTM_GETRULE, family, 0, |body| {
        count += u32::from(Rule::parse(body).is_some_and(|rule| rule.carries_our_marks()));
    })?;
    Ok(count)
}

/// The bodies of the routes that carry our marks.
fn our_routes(conversation: &mut Rtnetlink, family: Family) -> io::Result<Vec<Vec<u8>>> {
    let mut bodies = Vec::new();
    let done = conversation.dump(RTM_GETROUTE, family, TABLE, |body| {
        if carries_our_marks(body) {
            bodies.push(body.to_vec());
        }
    });
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()), // no such table
        other => other.map(|_| bodies),
    }
}

/// Why connections of this host cannot use a congestion control, or None. The question makes the kernel load its module
/// (net/ipv4/tcp_cong.c, `tcp_set_congestion_control`), where it may.
pub(crate) fn congestion_problem(name: &str) -> Option<String> {
    let asked = socket(AddressFamily::INET, SocketType::STREAM, None)
        .and_then(|socket| rustix::net::sockopt::set_tcp_congestion(&socket, name));
    let problem = |error: rustix::io::Errno| {
        let why = reason(&error.into());
        format!(
            "congestion control {name} cannot be used here: {why}; load its module (`modprobe tcp_{name}`)"
        )
    };
    asked.err().map(problem)
}

/// A route of ours as people read it.
pub fn show(way: &Way, family: Family) -> String {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
    let name = |index: u32| {
        let found = socket
            .as_ref()
            .ok()
            .and_then(|socket| index_to_name(socket, index).ok());
        found.unwrap_or_else(|| format!("if{index}"))
    };
    way::show(way, family == Family::V6, &name)
}

/// A change in iproute2's words.
fn describe(change: &Change) -> String {
    let verb = change.verb();
    match change {
        Change::Add(prefix, way) | Change::Replace(prefix, way) => {
            format!(
                "{verb} {prefix} table {TABLE} {}",
                show(way, Family::of(prefix))
            )
        }
        Change::Remove(prefix) => format!("{verb} {prefix} table {TABLE}"),
        Change::AddRule | Change::RemoveRule => format!("{verb} {OUR_RULE}"),
    }
}
