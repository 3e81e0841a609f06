//! Routes come into force.

use super::ours::{RULE, Snapshot, TABLE};
use super::status::Routing;
use super::steps::{Change, batch, difference};
use crate::error::{Error, Result};
use crate::kernel::{Family, Rtnetlink, show};

impl Routing<'_> {
    /// From one to the other, then reads back what was written to. Returns the steps.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], with the kernel somewhere in between; [`Error::Withdrawn`] when it must be nowhere but at nothing.
    pub fn change(&self, actual: &Snapshot, wanted: &Snapshot) -> Result<Vec<Change>> {
        let steps = difference(&actual.routes, &wanted.routes);
        let mut written = Vec::new();
        for family in &self.families {
            let changes = batch(actual, wanted, &steps, *family);
            if !changes.is_empty() {
                written.push(*family);
                self.write(*family, &changes)?;
            }
        }
        let found = self.snapshot_of(&written)?;
        (self.check)()?;
        let part = wanted.of(&written);
        if found != part {
            let left = difference(&found.routes, &part.routes);
            let sample = match left.first() {
                Some(step) => describe(step),
                None => format!("rules of {} IP versions", found.rules.len()),
            };
            let count = left.len();
            return Err(Error::failed(format!(
                "read back: table {TABLE} is {count} steps from what was written ({sample})"
            )));
        }
        Ok(steps)
    }

    /// In order, the rule always alone: it comes only after a look whether all was withdrawn meanwhile, so whatever wakes
    /// late writes routes that nothing looks up.
    fn write(&self, family: Family, changes: &[Change]) -> Result<()> {
        for part in
            changes.chunk_by(|left, right| left.prefix().is_some() && right.prefix().is_some())
        {
            let mut messages: Vec<Vec<u8>> = part
                .iter()
                .zip(0..)
                .map(|(change, sequence)| change.message(family, sequence))
                .collect();
            let refused = Rtnetlink::open()?.send(&mut messages, || (self.check)(), false)?;
            if let Some(refused) = refused {
                let step = part.get(refused.position).map(describe).unwrap_or_default();
                return Err(Error::failed(format!(
                    "netlink: {step}: {}",
                    refused.reason
                )));
            }
        }
        (self.check)()
    }
}

/// A change in iproute2's words.
fn describe(change: &Change) -> String {
    let verb = change.verb();
    match change {
        Change::Add(prefix, way) | Change::Replace(prefix, way) => {
            format!(
                "{verb} {prefix} table {TABLE} {}",
                show(way, Family::of(prefix))
            )
        }
        Change::Remove(prefix) => format!("{verb} {prefix} table {TABLE}"),
        Change::AddRule | Change::RemoveRule => format!("{verb} {RULE}"),
    }
}
