//! A bundle as routes can carry it. Pure.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Serialize;

use super::plan::Destination;
use crate::bundle::{Bundle, Entry};
use crate::kernel::Values;

/// Values of a bundle that this edge's way of enforcing cannot bring to a packet: how many entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotEnforced {
    /// All that it has, where it asks for the program, which this host cannot run, and for nothing in its place.
    pub program: usize,
    /// All that it has, since it overlaps destinations that are excluded.
    pub excluded: usize,
    /// A congestion control that acts from some bytes on.
    pub congestion: usize,
    /// Values that no route has, by the names of fields.
    #[serde(flatten)]
    pub values: BTreeMap<&'static str, usize>,
}

impl NotEnforced {
    /// Fields that routes have, or that mean nothing without those that routes lack.
    const OTHERS: [&str; 5] = [
        "congestion",
        "connection_rate",
        "default_resent",
        "initcwnd",
        "prefix",
    ];

    pub(crate) fn nothing() -> Self {
        let names = Entry::NAMES.iter();
        Self {
            program: 0,
            excluded: 0,
            congestion: 0,
            values: names
                .filter(|name| !Self::OTHERS.contains(name))
                .map(|name| (*name, 0))
                .collect(),
        }
    }

    /// Counts what an entry has and no route.
    fn count(&mut self, entry: &Entry) {
        for name in entry.given() {
            if let Some(count) = self.values.get_mut(name) {
                *count += 1;
            }
        }
    }

    /// As people read it; None where all can be.
    pub(crate) fn line(&self) -> Option<String> {
        let named = [
            ("bpf, which this host cannot run", self.program),
            ("overlaps excluded destinations", self.excluded),
            ("congestion control from some bytes on", self.congestion),
        ];
        let named = named.map(|(what, count)| (what.to_owned(), count));
        let values = self.values.iter();
        let there: Vec<String> = named
            .into_iter()
            .chain(values.map(|(name, count)| (name.replace('_', " "), *count)))
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{what}: {count} entries"))
            .collect();
        (!there.is_empty()).then(|| format!("not enforceable by routes: {}", there.join(", ")))
    }
}

/// Part of a bundle that routes can carry, and how much they cannot.
pub fn encode(bundle: &Bundle) -> (Vec<Destination>, NotEnforced) {
    let (mut destinations, mut left) = (Vec::new(), NotEnforced::nothing());
    let overlaps = |entry: &Entry, excluded: &IpNet| {
        entry.prefix.contains(excluded) || excluded.contains(&entry.prefix.0)
    };
    for entry in &bundle.entries {
        // A route is for all of its destinations.
        if bundle
            .enforce
            .excluded
            .iter()
            .any(|excluded| overlaps(entry, excluded))
        {
            left.excluded += 1;
            continue;
        }
        let at_once = entry
            .congestion
            .as_ref()
            .filter(|choice| choice.from_bytes == 0 || choice.always);
        left.congestion += usize::from(entry.congestion.is_some() && at_once.is_none());
        left.count(entry);
        let values = Values {
            initcwnd: entry.initcwnd,
            congestion: at_once.map(|choice| choice.algorithm.clone()),
        };
        if values.initcwnd.is_some() || values.congestion.is_some() {
            destinations.push(Destination {
                prefix: entry.prefix.0,
                values,
            });
        }
    }
    (destinations, left)
}
