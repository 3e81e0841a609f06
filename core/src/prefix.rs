//! Networks as bundles write them, and those that no bundle may name.

use std::net::IpAddr;
use std::ops::Deref;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A network in its shortest form, like 10.77.2.0/24 or fd77:2::/48. Ordered by IP version, network and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(pub IpNet);

impl Deref for Prefix {
    type Target = IpNet;

    fn deref(&self) -> &IpNet {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parse_prefix(&String::deserialize(from)?)
            .map(Self)
            .map_err(D::Error::custom)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

/// Reads `10.0.0.0/8` or `fd00::/48`.
///
/// # Errors
///
/// The problem as text: not an address, not in its shortest form, no valid length, bits set beyond the length, IPv4 in
/// IPv6.
pub fn parse_prefix(text: &str) -> Result<IpNet, String> {
    let quoted = || crate::text::printable(&format!("'{text}'"));
    let Some((address, length)) = text.split_once('/') else {
        return Err(format!("{} is not a prefix like 10.77.2.0/24", quoted()));
    };
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return Err(format!("{} is not an IP prefix", quoted()));
    };
    if parsed.to_canonical() != parsed {
        return Err(format!(
            "{} is IPv4-mapped: write the IPv4 prefix",
            quoted()
        ));
    }
    if parsed.to_string() != address {
        return Err(format!(
            "{} is not in canonical form ({parsed}/...)",
            quoted()
        ));
    }
    let prefix = length
        .parse::<u8>()
        .ok()
        .filter(|number| number.to_string() == length)
        .and_then(|length| IpNet::new(parsed, length).ok());
    match prefix {
        None => Err(format!("{} has no valid prefix length", quoted())),
        Some(prefix) if prefix.trunc() != prefix => {
            Err(format!("{} has bits set beyond its length", quoted()))
        }
        Some(prefix) => Ok(prefix),
    }
}

/// A shorter prefix is most of the Internet: a default route by another name.
const fn widest(prefix: &IpNet) -> u8 {
    match prefix {
        IpNet::V4(_) => 8,
        IpNet::V6(_) => 16,
    }
}

/// Why no bundle may name this destination, or None.
pub fn destination_problem(prefix: &IpNet) -> Option<String> {
    let widest = widest(prefix);
    if prefix.prefix_len() < widest {
        return Some(format!(
            "is wider than /{widest}, the widest that an edge takes"
        ));
    }
    let special = match prefix {
        IpNet::V4(prefix) => {
            let [first, second, ..] = prefix.network().octets();
            matches!(first, 0 | 127 | 224..) || (first, second) == (169, 254)
        }
        IpNet::V6(prefix) => {
            let first = prefix.network().segments()[0];
            first == 0 || first >> 8 == 0xff || first & 0xffc0 == 0xfe80
        }
    };
    special.then(|| "is loopback, link-local, multicast or reserved space".to_owned())
}
