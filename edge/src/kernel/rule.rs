//! Policy rules as the kernel dumps them, and the messages that add and delete one (linux/fib_rules.h).

use super::family::Family;
use super::netlink::{
    NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, attributes, message, number, push_attribute, u32_at,
};
use super::route::RTMSG;
use super::way::address;

const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
pub(crate) const RTM_GETRULE: u16 = 34;
const FR_ACT_TO_TBL: u8 = 1;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;
const FRA_FWMASK: u16 = 16;
/// linux/fib_rules.h, FRA_*: the selectors that a reader knows by name, and whether their value is a text.
const SELECTORS: [(u16, &str, bool); 11] = [
    (3, "iif", true),
    (10, "fwmark", false),
    (11, "realms", false),
    (12, "tun_id", false),
    (13, "suppress_ifgroup", false),
    (17, "oif", true),
    (19, "l3mdev", false),
    (20, "uidrange", false),
    (22, "ipproto", false),
    (23, "sport", false),
    (24, "dport", false),
];

/// A selector as `ip rule` shows it, as far as a reader needs it to find the rule.
fn selector(kind: u16, value: &[u8]) -> String {
    match SELECTORS.iter().find(|selector| selector.0 == kind) {
        Some((_, name, true)) => format!(
            "{name} {}",
            String::from_utf8_lossy(value).trim_end_matches('\0')
        ),
        Some((_, name, false)) if value.len() == 4 => {
            format!("{name} {:#x}", u32_at(value, 0).unwrap_or(0))
        }
        Some((_, name, false)) => (*name).to_owned(),
        None => format!("attribute {kind}"),
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// FRA_PRIORITY.
    pub(crate) preference: u32,
    /// FRA_TABLE.
    pub(crate) table: u32,
    /// FRA_PROTOCOL.
    pub(crate) protocol: u8,
    /// Chooses by nothing: every packet looks its table up.
    pub(crate) plain: bool,
    /// As `ip rule` shows it.
    pub(crate) shown: String,
}

impl Rule {
    /// Parses a dumped message's body; None when it is cut.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let (header, data) = body.split_first_chunk::<RTMSG>()?;
        let [_, to, from, tos, table, _, _, action, ..] = *header;
        let flags = u32_at(header, 8)?;
        let mut rule = Self {
            preference: 0,
            table: table.into(),
            protocol: 0,
            plain: true,
            shown: String::new(),
        };
        let mut words = Vec::new();
        let (mut source, mut destination) = ("all".to_owned(), None);
        for attribute in attributes(data) {
            let (kind, value) = attribute.ok()?;
            match number(kind) {
                FRA_PRIORITY => rule.preference = u32_at(value, 0)?,
                FRA_TABLE => rule.table = u32_at(value, 0)?,
                FRA_PROTOCOL => rule.protocol = *value.first()?,
                FRA_SUPPRESS_PREFIXLEN if u32_at(value, 0) == Some(u32::MAX) => {}
                FRA_SUPPRESS_PREFIXLEN => {
                    words.push(format!("suppress_prefixlength {}", u32_at(value, 0)?))
                }
                FRA_SRC => source = format!("{}/{from}", address(value)?),
                FRA_DST => destination = Some(format!("to {}/{to}", address(value)?)),
                FRA_FWMASK => {
                    words.extend((u32_at(value, 0)? != u32::MAX).then(|| "fwmask".to_owned()))
                }
                other => words.push(selector(other, value)),
            }
        }
        words.extend(destination);
        words.extend((tos != 0).then(|| format!("tos {tos:#x}")));
        words.extend((flags & 2 != 0).then(|| "not".to_owned()));
        words.extend((flags & !2 != 0).then(|| format!("flags {flags:#x}")));
        words.extend((action != FR_ACT_TO_TBL).then(|| format!("action {action}")));
        rule.plain = words.is_empty() && source == "all" && from == 0 && to == 0;
        let lookup = format!("lookup {} protocol {}", rule.table, rule.protocol);
        words.push(lookup);
        rule.shown = format!("pref {} from {source} {}", rule.preference, words.join(" "));
        Some(rule)
    }
}

/// Key by which the kernel finds a rule, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleKey {
    pub(crate) preference: u32,
    pub(crate) table: u8,
    pub(crate) protocol: u8,
}

/// A rule for all packets that is new there.
pub(crate) fn add(key: RuleKey, family: Family, sequence: u32) -> Vec<u8> {
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
    let body = body(key, family, FR_ACT_TO_TBL);
    message(RTM_NEWRULE, flags, sequence, &body)
}

/// A rule that goes.
pub(crate) fn remove(key: RuleKey, family: Family, sequence: u32) -> Vec<u8> {
    message(RTM_DELRULE, NLM_F_REQUEST, sequence, &body(key, family, 0))
}

fn body(key: RuleKey, family: Family, action: u8) -> Vec<u8> {
    let mut body = vec![
        family.number(),
        0,
        0,
        0,
        key.table,
        0,
        0,
        action,
        0,
        0,
        0,
        0,
    ];
    push_attribute(&mut body, FRA_PRIORITY, &key.preference.to_ne_bytes());
    push_attribute(&mut body, FRA_PROTOCOL, &[key.protocol]);
    body
}
