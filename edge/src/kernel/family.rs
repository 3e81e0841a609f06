//! An IP version.

use std::net::IpAddr;

use ipnet::IpNet;

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

    /// Family of a destination.
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

    /// The address that means any.
    pub(crate) fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}
