//! Whether this host's routes can carry values, and if not, exactly why.

use super::ours::{PREFERENCE, is_our_rule};
use super::status::{OwnTable, own_table};
use crate::error::{Error, Result};
use crate::kernel::{Family, MAIN, Rule, families, rules};

/// Whether the routes of each IP version can carry values.
///
/// # Errors
///
/// [`Error::Refused`] when the host is not fit.
pub fn supported() -> Result<()> {
    families()
        .into_iter()
        .try_for_each(|family| may_carry(&own_table(family)?, &rules(family)?, family))
}

pub(super) fn may_carry(table: &OwnTable, rules: &[Rule], family: Family) -> Result<()> {
    if let Some(foreign) = &table.foreign {
        let place = format!("`ip -{} route show table 201`", family.version());
        return Err(Error::refused(format!(
            "{place}: `{foreign}` is not Springtide's; move it to another table"
        )));
    }
    problem(rules, family).map_or(Ok(()), |problem| Err(Error::refused(problem)))
}

/// Why our rule must not stand among these, or None.
///
/// Ours is asked before every rule behind it, so up to the lookup of main there must be none that chooses by anything
/// else: a source, a mark or a VRF would be bypassed.
pub(super) fn problem(rules: &[Rule], family: Family) -> Option<String> {
    let mut rules: Vec<&Rule> = rules
        .iter()
        .filter(|rule| rule.preference >= PREFERENCE && !is_our_rule(rule))
        .collect();
    rules.sort_by_key(|rule| rule.preference);
    let version = family.version();
    let Some(first) = rules.first() else {
        return Some(format!(
            "`ip -{version} rule`: none after {PREFERENCE} looks up main; leave this edge out"
        ));
    };
    let place = format!("`ip -{version} rule`: `{}`", first.shown);
    if first.preference == PREFERENCE {
        return Some(format!(
            "{place} stands where Springtide's rule belongs; give it another preference"
        ));
    }
    if first.plain && first.table == u32::from(MAIN) {
        return None;
    }
    Some(format!(
        "{place} would be bypassed by Springtide's rule; leave this edge out, or enforce by bpf"
    ))
}
