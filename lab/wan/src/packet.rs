//! Just enough of IP to know where a packet goes.

use std::net::IpAddr;

/// The destination address, or None when this is not a whole IPv4 or IPv6 header (RFC 791, RFC 8200).
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?)),
        6 => Some(IpAddr::from(
            <[u8; 16]>::try_from(packet.get(24..40)?).ok()?,
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let found = destination(&bytes);
            prop_assert!(found.is_none() || bytes.len() >= 20);
        }

        #[test]
        fn both_families_are_read(v4: [u8; 4], v6: [u8; 16], rest in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut short = vec![0x45];
            short.resize(16, 0);
            short.extend(v4);
            short.extend(&rest);
            prop_assert_eq!(destination(&short), Some(IpAddr::V4(Ipv4Addr::from(v4))));
            let mut long = vec![0x60];
            long.resize(24, 0);
            long.extend(v6);
            long.extend(&rest);
            prop_assert_eq!(destination(&long), Some(IpAddr::V6(Ipv6Addr::from(v6))));
        }
    }
}
