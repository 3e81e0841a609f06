//! Destinations, and those that no bundle may name.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::text::printable;

/// Reads `10.0.0.0/8` or `fd00::/48`, in canonical form.
///
/// # Errors
///
/// The problem as text: not an address, not in its shortest form, no valid length, bits set beyond the length.
pub fn parse_prefix(text: &str) -> Result<IpNet, String> {
    let quoted = || printable(&format!("'{text}'"));
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return Err(format!("{} is not an IP prefix", quoted()));
    };
    if parsed.to_string() != address {
        return Err(format!(
            "{} is not in canonical form ({parsed}/...)",
            quoted()
        ));
    }
    let digits = length.bytes().all(|byte| byte.is_ascii_digit())
        && (length == "0" || !length.starts_with('0'));
    let prefix = length
        .parse()
        .ok()
        .filter(|_| digits)
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
pub(crate) fn destination_problem(prefix: &IpNet) -> Option<String> {
    let widest = widest(prefix);
    if prefix.prefix_len() < widest {
        let length = prefix.prefix_len();
        return Some(format!(
            "/{length} is wider than /{widest}, the widest that an edge takes (no default routes)"
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
    special.then(|| "it is loopback, link-local, multicast or reserved space".to_owned())
}
