//! Routes as the kernel dumps them, and the messages that add, replace and delete some (linux/rtnetlink.h).

use std::net::IpAddr;

use ipnet::IpNet;

use super::family::Family;
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

pub(crate) const MAIN: u8 = 254;
pub(crate) const LOCAL: u8 = 255;

/// struct rtmsg.
pub(crate) const RTMSG: usize = 12;
/// rta_expires in struct rta_cacheinfo, ticks of a hundredth of a second.
const EXPIRES_AT: usize = 8;

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
    /// Way to the prefix.
    pub(crate) way: Way,
    /// Why a copy would not be faithful, or None.
    pub(crate) obstacle: Option<String>,
}

impl KernelRoute {
    /// Parses a dumped message's body; None for one that the kernel made for itself.
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

/// Key by which the kernel finds a route, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) prefix: &'a IpNet,
    pub(crate) table: u8,
    pub(crate) proto: u8,
    /// 0 is not sent.
    pub(crate) metric: u32,
}

/// A route that is new there.
pub(crate) fn addition(key: Key<'_>, way: &Way, sequence: u32) -> Vec<u8> {
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
    new_route(key, way, flags, sequence)
}

/// A route in place of the one that is there.
pub(crate) fn replacement(key: Key<'_>, way: &Way, sequence: u32) -> Vec<u8> {
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE;
    new_route(key, way, flags, sequence)
}

/// A route that goes.
pub(crate) fn removal(key: Key<'_>, sequence: u32) -> Vec<u8> {
    let mut body = rtmsg(key, RT_SCOPE_NOWHERE, 0, 0);
    push_key(&mut body, key);
    message(RTM_DELROUTE, NLM_F_REQUEST, sequence, &body)
}

fn new_route(key: Key<'_>, way: &Way, flags: u16, sequence: u32) -> Vec<u8> {
    let mut body = rtmsg(key, way.scope(), RTN_UNICAST, way.flags());
    push_key(&mut body, key);
    body.extend_from_slice(way.attributes());
    message(RTM_NEWROUTE, flags, sequence, &body)
}

/// Bytes of a body with one hop and a window, IPv6; what is longer grows.
const USUAL_BODY: usize = 96;

fn rtmsg(key: Key<'_>, scope: u8, kind: u8, flags: u8) -> Vec<u8> {
    let (family, length) = (Family::of(key.prefix).number(), key.prefix.prefix_len());
    let mut body = Vec::with_capacity(USUAL_BODY);
    body.extend_from_slice(&[family, length, 0, 0, key.table, key.proto, scope, kind]);
    body.extend_from_slice(&u32::from(flags).to_ne_bytes());
    body
}

fn push_key(body: &mut Vec<u8>, key: Key<'_>) {
    match key.prefix.addr() {
        IpAddr::V4(address) => push_attribute(body, RTA_DST, &address.octets()),
        IpAddr::V6(address) => push_attribute(body, RTA_DST, &address.octets()),
    }
    if key.metric != 0 {
        push_attribute(body, RTA_PRIORITY, &key.metric.to_ne_bytes());
    }
}

/// Table and protocol of a dumped route; None for one that the kernel made for itself.
pub(crate) fn origin(body: &[u8]) -> Option<(u8, u8)> {
    let (header, _) = body.split_first_chunk::<RTMSG>()?;
    let cloned = u32_at(header, 8)? & RTM_F_CLONED != 0;
    (!cloned).then_some((header[4], header[5]))
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
