//! Our table, protocol number and rule in the kernel, and how they are known again. Pure.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::kernel::{Family, KernelRoute, Key, Rule, RuleKey, Way, origin};

/// The table that is ours.
pub(super) const TABLE: u8 = 201;
/// The routing protocol number that is ours.
const PROTO: u8 = 201;
/// The preference of our rule.
pub(super) const PREFERENCE: u32 = 1000;
/// Our rule as `ip rule` takes it.
pub(crate) const RULE: &str = "pref 1000 lookup 201 protocol 201";
/// Our rule as the kernel finds it.
pub(super) const RULE_KEY: RuleKey = RuleKey {
    preference: PREFERENCE,
    table: TABLE,
    protocol: PROTO,
};

/// Key by which the kernel finds a route of ours.
pub(super) fn key(prefix: &IpNet) -> Key<'_> {
    Key {
        prefix,
        table: TABLE,
        proto: PROTO,
        metric: metric(Family::of(prefix)),
    }
}

/// The priority of our routes; IPv6 has no zero (linux/ipv6_route.h, IP6_RT_PRIO_USER).
const fn metric(family: Family) -> u32 {
    match family {
        Family::V4 => 0,
        Family::V6 => 1024,
    }
}

/// Whether this program would have written a route of its table.
pub(super) fn is_ours(route: &KernelRoute) -> bool {
    let values = route.way.values();
    route.proto == PROTO
        && route.kind == "unicast"
        && route.prefix.prefix_len() > 0
        && route.metric == metric(Family::of(&route.prefix))
        && !route.narrow
        && route.obstacle.is_none()
        && (values.initcwnd.is_some() || values.congestion.is_some())
}

/// Whether a dumped route carries our marks: also one that this program would never have written.
pub(super) fn carries_our_marks(body: &[u8]) -> bool {
    origin(body) == Some((TABLE, PROTO))
}

/// Whether a rule is the one that this program writes.
pub(super) fn is_our_rule(rule: &Rule) -> bool {
    rule.plain && is_marked(rule)
}

/// Whether a rule carries our marks, whatever else it says.
pub(super) fn is_marked(rule: &Rule) -> bool {
    (rule.preference, rule.table, rule.protocol) == (PREFERENCE, TABLE.into(), PROTO)
}

/// Routes of ours: destination -> way.
pub type Routes = BTreeMap<IpNet, Way>;

/// Our objects in the kernel: routes, and the IP versions that have our rule.
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
    pub(super) fn of(&self, families: &[Family]) -> Self {
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
