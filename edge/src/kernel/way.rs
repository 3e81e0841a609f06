//! Way of a route out of the host, kept as the attributes that the kernel gave, so that it can be
//! written again with other start values (linux/rtnetlink.h).

use std::rc::Rc;

use super::netlink::{Malformed, attributes, number, push_attribute, u16_at, u32_at};

pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
pub(crate) const RTA_PRIORITY: u16 = 6;
pub(crate) const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
pub(crate) const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_NH_ID: u16 = 30;

const RTAX_LOCK: u16 = 1;
pub(crate) const RTAX_INITCWND: u16 = 11;
const RTAX_FEATURES: u16 = 12;
pub(crate) const RTAX_CC_ALGO: u16 = 16;
/// RTAX_FEATURE_ECN; the others are the kernel's own business.
const RTAX_FEATURE_ECN: u32 = 1;

const RTNH_F_ONLINK: u8 = 4;
/// struct rtnexthop: length, flags, weight - 1, interface.
const NEXTHOP: usize = 8;
/// Scope and flags before the attributes of a [`Way`], padded as attributes are.
const FIXED: usize = 4;

/// Start values that a route can carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Values {
    /// Initial congestion window, segments.
    pub initcwnd: Option<u32>,
    /// Congestion control; never locked, so that an application's own choice counts.
    pub congestion: Option<String>,
}

/// Scope, ONLINK flag and attributes of a route, but for its destination, table, protocol and priority: what two routes
/// have in common that send packets the same way with the same start values. Normalised: two that mean the same are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Way(Rc<[u8]>);

/// A way, and what of it no copy could be faithful to.
pub(crate) struct Normalised {
    pub(crate) way: Way,
    pub(crate) obstacle: Option<String>,
}

impl Way {
    /// As the state directory keeps it.
    pub fn to_hex(&self) -> String {
        crate::text::hex(&self.0)
    }

    /// None for what [`Self::to_hex`] did not write.
    pub fn from_hex(text: &str) -> Option<Self> {
        if !text.len().is_multiple_of(2) || text.len() < 2 * FIXED || !text.is_ascii() {
            return None;
        }
        let bytes: Option<Vec<u8>> = (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
            .collect();
        bytes.map(|bytes| Self(bytes.into()))
    }

    /// rtm_scope.
    pub(crate) fn scope(&self) -> u8 {
        self.0[0]
    }

    /// rtm_flags.
    pub(crate) fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Attributes after the destination in a message.
    pub(crate) fn attributes(&self) -> &[u8] {
        &self.0[FIXED..]
    }

    /// The value of one attribute.
    fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        attributes(self.attributes())
            .flatten()
            .find(|(kind, _)| number(*kind) == wanted)
            .map(|(_, value)| value)
    }

    fn metric(&self, wanted: u16) -> Option<&[u8]> {
        let metrics = self.attribute(RTA_METRICS)?;
        attributes(metrics)
            .flatten()
            .find(|(kind, _)| number(*kind) == wanted)
            .map(|(_, value)| value)
    }

    /// The start values that it carries now.
    pub fn values(&self) -> Values {
        let initcwnd = self
            .metric(RTAX_INITCWND)
            .and_then(|value| u32_at(value, 0))
            .filter(|value| *value > 0);
        let name = |value: &[u8]| {
            String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or(&[])).into()
        };
        Values {
            initcwnd,
            congestion: self.metric(RTAX_CC_ALGO).map(name),
        }
    }

    /// The same way with other start values; a congestion control of the host's own stays where there is none.
    pub fn with(&self, values: &Values) -> Self {
        let mut metrics: Vec<(u16, Vec<u8>)> = self
            .attribute(RTA_METRICS)
            .map(|found| {
                attributes(found)
                    .flatten()
                    .map(|(kind, value)| (kind, value.to_vec()))
                    .collect()
            })
            .unwrap_or_default();
        // A window of the host's own route is not ours to hand on: ours has its own or none.
        metrics.retain(|(kind, _)| number(*kind) != RTAX_INITCWND);
        unlock(&mut metrics, RTAX_INITCWND);
        metrics.extend(
            values
                .initcwnd
                .map(|window| (RTAX_INITCWND, window.to_ne_bytes().to_vec())),
        );
        if let Some(name) = &values.congestion {
            metrics.retain(|(kind, _)| number(*kind) != RTAX_CC_ALGO);
            unlock(&mut metrics, RTAX_CC_ALGO);
            metrics.push((RTAX_CC_ALGO, [name.as_bytes(), &[0]].concat()));
        }
        metrics.sort_by_key(|(kind, _)| number(*kind));
        let mut inner = Vec::new();
        for (kind, value) in &metrics {
            push_attribute(&mut inner, *kind, value);
        }
        let mut found: Vec<(u16, &[u8])> = attributes(self.attributes())
            .flatten()
            .filter(|(kind, _)| number(*kind) != RTA_METRICS)
            .collect();
        if !inner.is_empty() {
            found.push((RTA_METRICS, &inner));
        }
        encode(self.scope(), self.flags(), found)
    }
}

/// A lock on a value that is not there any more would hold the new one.
fn unlock(metrics: &mut Vec<(u16, Vec<u8>)>, kind: u16) {
    for (other, value) in metrics.iter_mut() {
        if number(*other) == RTAX_LOCK {
            let locked = u32_at(value, 0).unwrap_or(0) & !(1 << kind);
            *value = locked.to_ne_bytes().to_vec();
        }
    }
    metrics.retain(|(other, value)| number(*other) != RTAX_LOCK || u32_at(value, 0) != Some(0));
}

fn encode(scope: u8, flags: u8, mut found: Vec<(u16, &[u8])>) -> Way {
    found.sort_by_key(|(kind, _)| number(*kind));
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&[scope, flags, 0, 0]);
    for (kind, value) in found {
        push_attribute(&mut bytes, kind, value);
    }
    Way(bytes.into())
}

/// Normalises a dumped route: rtm_family, rtm_scope, rtm_flags, and everything that follows the rtmsg.
///
/// # Errors
///
/// Attributes that do not fill their message.
pub(crate) fn normalise(
    ipv6: bool,
    scope: u8,
    flags: u32,
    data: &[u8],
) -> Result<Normalised, Malformed> {
    let mut obstacle = None;
    let mut hops = Vec::new();
    let mut metrics = Vec::new();
    let mut found: Vec<(u16, &[u8])> = Vec::new();
    for attribute in attributes(data) {
        let (kind, value) = attribute?;
        match number(kind) {
            RTA_DST | RTA_SRC | RTA_IIF | RTA_PRIORITY | RTA_TABLE | RTA_CACHEINFO | RTA_PREF => {}
            RTA_OIF | RTA_GATEWAY | RTA_PREFSRC | RTA_VIA | RTA_NH_ID => {
                found.push((number(kind), value))
            }
            RTA_METRICS => metrics = normal_metrics(value, &mut obstacle)?,
            RTA_MULTIPATH => hops = normal_hops(value, &mut obstacle)?,
            other => {
                obstacle = Some(format!(
                    "attribute {other} of linux/rtnetlink.h, which is not copied"
                ))
            }
        }
    }
    if !metrics.is_empty() {
        found.push((RTA_METRICS, &metrics));
    }
    if !hops.is_empty() {
        found.push((RTA_MULTIPATH, &hops));
    }
    if found.iter().any(|(kind, _)| *kind == RTA_NH_ID) {
        // Hops that the id stands for are dumped beside it, and a message that has both is refused.
        found.retain(|(kind, _)| ![RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH].contains(kind));
    }
    let onlink =
        flags.to_ne_bytes()[if cfg!(target_endian = "big") { 3 } else { 0 }] & RTNH_F_ONLINK;
    Ok(Normalised {
        way: encode(if ipv6 { 0 } else { scope }, onlink, found),
        obstacle,
    })
}

/// Sorted; a congestion control ends with one zero byte.
fn normal_metrics(value: &[u8], obstacle: &mut Option<String>) -> Result<Vec<u8>, Malformed> {
    let mut found = attributes(value).collect::<Result<Vec<_>, _>>()?;
    found.sort_by_key(|(kind, _)| number(*kind));
    let mut out = Vec::new();
    for (kind, value) in found {
        let features = u32_at(value, 0).unwrap_or(0);
        if number(kind) == RTAX_FEATURES && features & !RTAX_FEATURE_ECN != 0 {
            *obstacle = Some(format!("features {features:#x}"));
        }
        push_attribute(&mut out, number(kind), value);
    }
    Ok(out)
}

/// Hops without what is of the moment: a dead or linkdown hop is not taken by the kernel in a message.
fn normal_hops(mut data: &[u8], obstacle: &mut Option<String>) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::new();
    while !data.is_empty() {
        let length = usize::from(u16_at(data, 0).ok_or(Malformed)?);
        let hop = data
            .get(..length)
            .filter(|hop| hop.len() >= NEXTHOP)
            .ok_or(Malformed)?;
        data = data.get(length.next_multiple_of(4)..).unwrap_or_default();
        let mut inner = attributes(&hop[NEXTHOP..]).collect::<Result<Vec<_>, _>>()?;
        inner.sort_by_key(|(kind, _)| number(*kind));
        let start = out.len();
        out.extend_from_slice(&hop[..NEXTHOP]);
        out[start + 2] &= RTNH_F_ONLINK;
        for (kind, value) in inner {
            if ![RTA_GATEWAY, RTA_VIA].contains(&number(kind)) {
                *obstacle = Some(format!(
                    "attribute {} of a hop, which is not copied",
                    number(kind)
                ));
            }
            push_attribute(&mut out, number(kind), value);
        }
        let length = u16::try_from(out.len() - start).map_err(|_| Malformed)?;
        out[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }
    Ok(out)
}

/// As people read a route, in ip-route(8)'s words. `name`: of an interface.
pub(crate) fn show(way: &Way, ipv6: bool, name: &dyn Fn(u32) -> String) -> String {
    let mut words = Vec::new();
    if let Some(id) = way.attribute(RTA_NH_ID).and_then(|value| u32_at(value, 0)) {
        words.push(format!("nhid {id}"));
    }
    hop_words(way.attributes(), way.flags(), name, &mut words);
    if !ipv6 {
        words.push(format!("scope {}", way.scope()));
    }
    if let Some(source) = way.attribute(RTA_PREFSRC).and_then(address) {
        words.push(format!("src {source}"));
    }
    metric_words(way.attribute(RTA_METRICS).unwrap_or_default(), &mut words);
    let mut hops = way.attribute(RTA_MULTIPATH).unwrap_or_default();
    while let Some(hop) = u16_at(hops, 0)
        .and_then(|length| hops.get(..usize::from(length)))
        .filter(|hop| hop.len() >= NEXTHOP)
    {
        words.push("nexthop".to_owned());
        let index = u32_at(hop, 4).unwrap_or(0);
        hop_words(&hop[NEXTHOP..], hop[2], name, &mut words);
        words.push(format!(
            "dev {} weight {}",
            name(index),
            u16::from(hop[3]) + 1
        ));
        hops = hops
            .get(hop.len().next_multiple_of(4)..)
            .unwrap_or_default();
    }
    words.join(" ")
}

fn hop_words(data: &[u8], flags: u8, name: &dyn Fn(u32) -> String, words: &mut Vec<String>) {
    let find = |wanted| {
        attributes(data)
            .flatten()
            .find(|(kind, _)| number(*kind) == wanted)
            .map(|(_, value)| value)
    };
    words.extend(
        find(RTA_GATEWAY)
            .and_then(address)
            .map(|gateway| format!("via {gateway}")),
    );
    let other = find(RTA_VIA).and_then(|value| address(value.get(2..)?));
    words.extend(other.map(|gateway| format!("via inet6 {gateway}")));
    words.extend(
        find(RTA_OIF)
            .and_then(|value| u32_at(value, 0))
            .map(|index| format!("dev {}", name(index))),
    );
    if flags & RTNH_F_ONLINK != 0 {
        words.push("onlink".to_owned());
    }
}

/// linux/rtnetlink.h, RTAX_*, by their numbers.
const METRICS: [&str; 18] = [
    "",
    "lock",
    "mtu",
    "window",
    "rtt",
    "rttvar",
    "ssthresh",
    "cwnd",
    "advmss",
    "reordering",
    "hoplimit",
    "initcwnd",
    "features",
    "rto_min",
    "initrwnd",
    "quickack",
    "congctl",
    "fastopen_no_cookie",
];

fn metric_words(data: &[u8], words: &mut Vec<String>) {
    let lock = attributes(data)
        .flatten()
        .find(|(kind, _)| number(*kind) == RTAX_LOCK);
    let locked = lock.and_then(|(_, value)| u32_at(value, 0)).unwrap_or(0);
    for (kind, value) in attributes(data)
        .flatten()
        .filter(|(kind, _)| number(*kind) != RTAX_LOCK)
    {
        let metric = METRICS
            .get(usize::from(number(kind)))
            .copied()
            .unwrap_or("metric");
        let lock = if number(kind) < 32 && locked >> number(kind) & 1 == 1 {
            " lock"
        } else {
            ""
        };
        let shown = match number(kind) {
            RTAX_CC_ALGO => String::from_utf8_lossy(value)
                .trim_end_matches('\0')
                .to_owned(),
            _ => u32_at(value, 0).unwrap_or(0).to_string(),
        };
        words.push(format!("{metric}{lock} {shown}"));
    }
}

pub(crate) fn address(bytes: &[u8]) -> Option<std::net::IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(Into::into)
}
