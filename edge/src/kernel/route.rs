//! Routes as the kernel dumps them, and the messages that add, replace and delete ours (linux/rtnetlink.h).

use std::net::IpAddr;

use ipnet::IpNet;

use super::netlink::{
    Malformed, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, attributes, i32_at, message,
    number, push_attribute, u32_at,
};
use super::way::{RTA_DST, RTA_PREFSRC, RTA_PRIORITY, RTA_SRC, RTA_TABLE, Way, address, normalise};

pub(crate) const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
const RTM_F_CLONED: u32 = 0x200;
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
const RTA_IP_PROTO: u16 = 27;
const IPPROTO_TCP: u8 = 6;
const RT_SCOPE_NOWHERE: u8 = 255;
const RTN_UNICAST: u8 = 1;
const RTNH_F_DEAD: u32 = 1;
const RTA_CACHEINFO: u16 = 12;

/// The table that is ours.
pub(crate) const TABLE: u8 = 201;
/// The routing protocol number that is ours.
pub(crate) const PROTO: u8 = 201;
pub(crate) const MAIN: u8 = 254;
pub(crate) const LOCAL: u8 = 255;

/// struct rtmsg.
pub(crate) const RTMSG: usize = 12;
/// rta_expires in struct rta_cacheinfo, ticks of a hundredth of a second.
const EXPIRES_AT: usize = 8;

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// That of a destination.
    pub fn of(prefix: &IpNet) -> Self {
        if prefix.addr().is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// 4 or 6.
    pub const fn version(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// AF_INET or AF_INET6.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// The priority of our routes; IPv6 has no zero (linux/ipv6_route.h, IP6_RT_PRIO_USER).
    const fn metric(self) -> u32 {
        match self {
            Self::V4 => 0,
            Self::V6 => 1024,
        }
    }
}

/// linux/rtnetlink.h, rtm_type.
const KINDS: [&str; 12] = [
    "unspec",
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
    "xresolve",
];

/// One route of a table.
#[derive(Clone, Debug)]
pub struct KernelRoute {
    /// Where it leads.
    pub prefix: IpNet,
    /// rtm_type in words.
    pub kind: &'static str,
    /// rtm_protocol.
    pub(crate) proto: u8,
    /// RTA_PRIORITY.
    pub(crate) metric: u32,
    /// For some packets only, by TOS or source.
    pub(crate) narrow: bool,
    /// The kernel passes it over.
    pub(crate) dead: bool,
    /// Seconds that it has left, rounded down; None is no end.
    pub(crate) expires: Option<i32>,
    /// How it leads there.
    pub(crate) way: Way,
    /// Why a copy would not be faithful, or None.
    pub(crate) obstacle: Option<String>,
}

impl KernelRoute {
    /// Of a dumped message's body; None for one that the kernel made for itself.
    ///
    /// # Errors
    ///
    /// Lengths that contradict each other.
    pub(crate) fn parse(family: Family, body: &[u8]) -> Result<Option<Self>, Malformed> {
        let (header, data) = body.split_first_chunk::<RTMSG>().ok_or(Malformed)?;
        let [_, length, source, tos, _, proto, scope, kind, ..] = *header;
        let flags = u32_at(header, 8).ok_or(Malformed)?;
        if flags & RTM_F_CLONED != 0 {
            return Ok(None);
        }
        let (mut network, mut metric, mut ticks) = (family.unspecified(), 0, 0);
        for attribute in attributes(data) {
            let (found, value) = attribute?;
            match number(found) {
                RTA_DST => network = address(value).ok_or(Malformed)?,
                RTA_PRIORITY => metric = u32_at(value, 0).ok_or(Malformed)?,
                RTA_CACHEINFO => ticks = i32_at(value, EXPIRES_AT).unwrap_or(0),
                _ => {}
            }
        }
        // The kernel shows a route that has run out until it clears up, but no longer uses it.
        let expires = (ticks != 0).then_some(ticks / 100);
        let normal = normalise(family == Family::V6, scope, flags, data)?;
        Ok(Some(Self {
            prefix: IpNet::new(network, length).map_err(|_| Malformed)?,
            kind: KINDS.get(usize::from(kind)).copied().unwrap_or("unknown"),
            proto,
            metric,
            narrow: source != 0 || tos != 0,
            dead: flags & RTNH_F_DEAD != 0 || expires.is_some_and(|left| left <= 0),
            expires,
            way: normal.way,
            obstacle: normal.obstacle,
        }))
    }

    /// Whether this program would have written it.
    pub(crate) fn is_ours(&self) -> bool {
        let values = self.way.values();
        self.proto == PROTO
            && self.kind == "unicast"
            && self.prefix.prefix_len() > 0
            && self.metric == Family::of(&self.prefix).metric()
            && !self.narrow
            && self.obstacle.is_none()
            && (values.initcwnd.is_some() || values.congestion.is_some())
    }
}

/// What becomes of a route of ours, or of our rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A destination that had no route.
    Add(IpNet, Way),
    /// Another way for one that had.
    Replace(IpNet, Way),
    /// The destination's route goes.
    Remove(IpNet),
    /// Our rule comes.
    AddRule,
    /// Our rule goes.
    RemoveRule,
}

impl Change {
    /// As iproute2 names it.
    pub(crate) const fn verb(&self) -> &'static str {
        match self {
            Self::Add(..) => "route add",
            Self::Replace(..) => "route replace",
            Self::Remove(..) => "route del",
            Self::AddRule => "rule add",
            Self::RemoveRule => "rule del",
        }
    }

    /// None is the rule.
    pub(crate) const fn prefix(&self) -> Option<&IpNet> {
        match self {
            Self::Add(prefix, _) | Self::Replace(prefix, _) | Self::Remove(prefix) => Some(prefix),
            Self::AddRule | Self::RemoveRule => None,
        }
    }

    /// The message that does it.
    pub(crate) fn message(&self, family: Family, sequence: u32) -> Vec<u8> {
        match self {
            Self::Add(prefix, way) => new_route(
                family,
                prefix,
                way,
                NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL,
                sequence,
            ),
            Self::Replace(prefix, way) => new_route(
                family,
                prefix,
                way,
                NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE,
                sequence,
            ),
            Self::Remove(prefix) => {
                let mut body = rtmsg(family, prefix.prefix_len(), RT_SCOPE_NOWHERE, 0, 0);
                push_key(&mut body, family, prefix);
                message(RTM_DELROUTE, NLM_F_REQUEST, sequence, &body)
            }
            Self::AddRule => super::rule::add(family, sequence),
            Self::RemoveRule => super::rule::remove(family, sequence),
        }
    }
}

/// Asks which route a TCP connection to an address takes, from a source where one is given.
pub(crate) fn lookup(to: IpAddr, from: Option<&[u8]>) -> Vec<u8> {
    let family = Family::of(&to.into());
    let bits = if family == Family::V4 { 32 } else { 128 };
    let source = if from.is_some() { bits } else { 0 };
    let mut body = vec![family.number(), bits, source, 0, 0, 0, 0, 0];
    // IPv6 gives the table unasked, and refuses the flag where requests are checked strictly.
    let flags = if family == Family::V4 {
        RTM_F_LOOKUP_TABLE
    } else {
        0
    };
    body.extend_from_slice(&flags.to_ne_bytes());
    match to {
        IpAddr::V4(address) => push_attribute(&mut body, RTA_DST, &address.octets()),
        IpAddr::V6(address) => push_attribute(&mut body, RTA_DST, &address.octets()),
    }
    if let Some(from) = from {
        push_attribute(&mut body, RTA_SRC, from);
    }
    push_attribute(&mut body, RTA_IP_PROTO, &[IPPROTO_TCP]);
    body
}

/// The table of the route that answered a lookup, and the source that it chose.
pub(crate) fn answer(body: &[u8]) -> (u32, Option<&[u8]>) {
    let (mut table, mut source) = (u32::from(body.get(4).copied().unwrap_or(0)), None);
    for (kind, value) in attributes(body.get(RTMSG..).unwrap_or_default()).flatten() {
        match number(kind) {
            RTA_TABLE => table = u32_at(value, 0).unwrap_or(table),
            RTA_PREFSRC => source = Some(value),
            _ => {}
        }
    }
    (table, source)
}

fn new_route(family: Family, prefix: &IpNet, way: &Way, flags: u16, sequence: u32) -> Vec<u8> {
    let mut body = rtmsg(
        family,
        prefix.prefix_len(),
        way.scope(),
        RTN_UNICAST,
        way.flags(),
    );
    push_key(&mut body, family, prefix);
    body.extend_from_slice(way.attributes());
    message(RTM_NEWROUTE, flags, sequence, &body)
}

/// Of one hop and a window, IPv6; what is longer grows.
const USUAL_BODY: usize = 96;

fn rtmsg(family: Family, length: u8, scope: u8, kind: u8, flags: u8) -> Vec<u8> {
    let mut body = Vec::with_capacity(USUAL_BODY);
    body.extend_from_slice(&[family.number(), length, 0, 0, TABLE, PROTO, scope, kind]);
    body.extend_from_slice(&u32::from(flags).to_ne_bytes());
    body
}

/// What the kernel finds a route of ours by.
fn push_key(body: &mut Vec<u8>, family: Family, prefix: &IpNet) {
    match prefix.addr() {
        IpAddr::V4(address) => push_attribute(body, RTA_DST, &address.octets()),
        IpAddr::V6(address) => push_attribute(body, RTA_DST, &address.octets()),
    }
    if family.metric() != 0 {
        push_attribute(body, RTA_PRIORITY, &family.metric().to_ne_bytes());
    }
}

/// Whether a dumped route carries our marks: also one that this program would never have written.
pub(crate) fn carries_our_marks(body: &[u8]) -> bool {
    body.len() >= RTMSG
        && (body[4], body[5]) == (TABLE, PROTO)
        && u32_at(body, 8).is_some_and(|flags| flags & RTM_F_CLONED == 0)
}

/// Deletes a dumped route, by what the kernel finds it by and nothing else: what it carries can contradict itself, as a
/// nexthop id beside the hop that the id stands for, and a message that has both is refused.
///
/// # Errors
///
/// Attributes that do not fill their message.
pub(crate) fn deletion(body: &[u8], sequence: u32) -> Result<Vec<u8>, Malformed> {
    let (header, data) = body.split_first_chunk::<RTMSG>().ok_or(Malformed)?;
    let [family, length, source, tos, table, proto, ..] = *header;
    let mut key = vec![
        family,
        length,
        source,
        tos,
        table,
        proto,
        RT_SCOPE_NOWHERE,
        0,
        0,
        0,
        0,
        0,
    ];
    for attribute in attributes(data) {
        let (kind, value) = attribute?;
        if [RTA_DST, RTA_SRC, RTA_PRIORITY, RTA_TABLE].contains(&number(kind)) {
            push_attribute(&mut key, kind, value);
        }
    }
    Ok(message(RTM_DELROUTE, NLM_F_REQUEST, sequence, &key))
}
