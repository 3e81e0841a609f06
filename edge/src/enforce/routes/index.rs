//! Routes of one address family, for longest match and for what lies inside a destination.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;

use crate::kernel::KernelRoute;

/// A route's time left is known in whole seconds, and the kernel does not use the last hundredth.
const EXPIRY_MARGIN_S: f64 = 1.05;

/// See the module.
pub struct Index {
    /// Sorted by network and length.
    ordered: Vec<KernelRoute>,
    /// Length -> first address -> where those of this prefix stand.
    by_length: BTreeMap<u8, HashMap<u128, Range<usize>>>,
}

/// An address as a number.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The first address of a destination.
pub(crate) fn first(prefix: &IpNet) -> u128 {
    bits(prefix.network())
}

/// The last address of a destination.
pub(crate) fn last(prefix: &IpNet) -> u128 {
    bits(prefix.broadcast())
}

impl Index {
    /// An index of one table's routes, which are in the kernel's order.
    pub fn new(mut routes: Vec<KernelRoute>) -> Self {
        // Stable: of one prefix, the kernel's order stays.
        routes.sort_by_key(|route| route.prefix);
        let mut by_length: BTreeMap<u8, HashMap<u128, Range<usize>>> = BTreeMap::new();
        let mut at = 0;
        for group in routes.chunk_by(|left, right| left.prefix == right.prefix) {
            let prefix = &group[0].prefix;
            by_length
                .entry(prefix.prefix_len())
                .or_default()
                .insert(first(prefix), at..at + group.len());
            at += group.len();
        }
        Self {
            ordered: routes,
            by_length,
        }
    }

    /// Seconds until the next of these routes runs out; None when none will.
    pub(crate) fn lasts(&self) -> Option<f64> {
        let left = self
            .ordered
            .iter()
            .filter(|route| !route.dead)
            .filter_map(|route| route.expires);
        left.min()
            .map(|seconds| f64::from(seconds) + EXPIRY_MARGIN_S)
    }

    /// The first address of each route, and the first one behind it (but for the last of all).
    pub(crate) fn marks(&self) -> impl Iterator<Item = u128> {
        self.ordered
            .iter()
            .flat_map(|route| {
                [
                    Some(first(&route.prefix)),
                    last(&route.prefix).checked_add(1),
                ]
            })
            .flatten()
    }

    /// Routes that contain the whole destination, longest first, those of one prefix together.
    pub(crate) fn covering(&self, prefix: &IpNet) -> Vec<&[KernelRoute]> {
        let shorter = self.by_length.range(..=prefix.prefix_len()).rev();
        let cover = |(length, routes): (&u8, &HashMap<u128, Range<usize>>)| {
            let network = IpNet::new(prefix.addr(), *length).ok()?;
            routes
                .get(&first(&network))
                .map(|places| &self.ordered[places.clone()])
        };
        shorter.filter_map(cover).collect()
    }

    /// A route at least `shortest` long that lies inside the destination, or None.
    pub(crate) fn first_inside(&self, prefix: &IpNet, shortest: u8) -> Option<&KernelRoute> {
        let (begin, end) = (first(prefix), last(prefix));
        let at = self
            .ordered
            .partition_point(|route| first(&route.prefix) < begin);
        self.ordered[at..]
            .iter()
            .take_while(|route| first(&route.prefix) <= end)
            .find(|route| route.prefix.prefix_len() >= shortest)
    }
}
