//! Prefixes of both families as the maps have them: IPv4 in its mapped form. Pure.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use springtide_core::layout::{Address, Prefix};

/// The mapped addresses, ::ffff:0:0/96.
pub(super) const MAPPED: Prefix = Prefix {
    length: 96,
    address: Address::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]),
};

/// Every address.
pub(super) const ALL: Prefix = Prefix {
    length: 0,
    address: Address::new([0; 16]),
};
/// This host's own, IPv4.
pub(super) const LOOPBACK_4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8));
/// This host's own, IPv6.
pub(super) const LOOPBACK_6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128));

/// Its mapped form.
pub(super) fn prefix_of(net: &IpNet) -> Prefix {
    match net {
        IpNet::V4(four) => Prefix {
            length: 96 + u32::from(four.prefix_len()),
            address: Address::new(four.network().to_ipv6_mapped().octets()),
        },
        IpNet::V6(six) => Prefix {
            length: u32::from(six.prefix_len()),
            address: Address::new(six.network().octets()),
        },
    }
}

/// The network of a mapped form; None where the length is impossible.
pub(super) fn net_of(prefix: &Prefix) -> Option<IpNet> {
    let length = u8::try_from(prefix.length).ok()?;
    match address_of(prefix.address) {
        IpAddr::V4(four) if length >= 96 => Some(IpNet::new(IpAddr::V4(four), length - 96).ok()?),
        _ => Some(IpNet::V6(
            Ipv6Net::new(Ipv6Addr::from(prefix.address.octets()), length).ok()?,
        )),
    }
}

/// An address of the mapped form.
pub(super) fn address_of(address: Address) -> IpAddr {
    Ipv6Addr::from(address.octets()).to_canonical()
}

pub(super) fn length_of(prefix: &Prefix) -> u8 {
    u8::try_from(prefix.length).unwrap_or(128)
}

/// Whether an IPv6 prefix would match every mapped IPv4 address.
pub(super) fn hides(prefix: &Prefix) -> bool {
    prefix.length < 96 && cut(&MAPPED, prefix.length) == *prefix
}

/// The network of this length that it is of.
pub(super) fn cut(prefix: &Prefix, length: u32) -> Prefix {
    Prefix {
        length,
        address: Address::new(
            (u128::from_be_bytes(prefix.address.octets()) & mask(length)).to_be_bytes(),
        ),
    }
}

/// The bits that a prefix of this length fixes.
pub(super) fn mask(length: u32) -> u128 {
    match length {
        0 => 0,
        _ => u128::MAX << (128 - length.min(128)),
    }
}

/// Networks by length, so that whether one of them has a prefix inside takes one look per length.
pub(super) struct Cover {
    lengths: Vec<u32>,
    networks: HashSet<Prefix>,
}

impl Cover {
    pub(super) fn of(networks: &[Prefix]) -> Self {
        let mut lengths: Vec<u32> = networks.iter().map(|one| one.length).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Self {
            lengths,
            networks: networks.iter().copied().collect(),
        }
    }

    pub(super) fn covers(&self, prefix: &Prefix) -> bool {
        // An IPv6 network that has the mapped addresses inside means no IPv4.
        let shortest = if cut(prefix, MAPPED.length) == MAPPED {
            MAPPED.length
        } else {
            0
        };
        let wider = self
            .lengths
            .iter()
            .filter(|length| (shortest..=prefix.length).contains(*length));
        wider
            .map(|length| cut(prefix, *length))
            .any(|network| self.networks.contains(&network))
    }
}
