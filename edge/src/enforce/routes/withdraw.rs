//! Everything of ours is removed, and the host's routing is as it was.

use std::io;

use super::ours::{RULE, RULE_KEY};
use super::status::{Routing, our_routes, our_rules};
use crate::error::{Error, Result};
use crate::kernel::{Family, Rtnetlink, deletion, rule_removal};
use crate::text::reason;

/// Routes that another run still writes meanwhile go with the next pass.
const DELETE_PASSES: usize = 5;

impl Routing<'_> {
    /// Rules first, so that the host is back at its default with the first step. Returns (routes, rules) removed.
    ///
    /// By table and protocol number and not by what we remember: it needs no state, and takes any shape of route.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] after having tried everything.
    pub fn withdraw(&self) -> Result<(usize, usize)> {
        let (mut removed, mut trouble) = ([0, 0], Vec::new());
        for (count, (what, take)) in removed
            .iter_mut()
            .zip([("rules", take_rules as Take), ("routes", take_routes)])
        {
            for family in Family::BOTH {
                match take_back(family, take) {
                    Ok(found) => *count += found,
                    Err(error) if unsupported(&error) => {}
                    Err(error) => trouble.push(format!(
                        "IPv{} {what}: {}",
                        family.version(),
                        reason(&error)
                    )),
                }
            }
        }
        if trouble.is_empty() {
            return Ok((removed[1], removed[0]));
        }
        let fix = format!("run it again, then `ip rule del {RULE}`");
        Err(Error::failed(format!(
            "withdraw: {}; {fix}",
            trouble.join("; ")
        )))
    }
}

/// A host without an address family has nothing there.
fn unsupported(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|number| [95, 97].contains(&number)) // EOPNOTSUPP, EAFNOSUPPORT
}

type Take = fn(&mut Rtnetlink, Family) -> io::Result<Vec<Vec<u8>>>;

/// The messages that take our rules back.
fn take_rules(conversation: &mut Rtnetlink, family: Family) -> io::Result<Vec<Vec<u8>>> {
    let count = our_rules(conversation, family)?;
    Ok((0..count)
        .map(|sequence| rule_removal(RULE_KEY, family, sequence))
        .collect())
}

/// The messages that take our routes back.
fn take_routes(conversation: &mut Rtnetlink, family: Family) -> io::Result<Vec<Vec<u8>>> {
    let bodies = our_routes(conversation, family)?;
    let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "a route cannot be read");
    bodies
        .iter()
        .zip(0..)
        .map(|(body, sequence)| deletion(body, sequence).map_err(malformed))
        .collect()
}

/// Removes what carries our marks, as often as there is some. Returns how many there were.
fn take_back(family: Family, take: Take) -> io::Result<usize> {
    let mut conversation = Rtnetlink::open()?;
    let (mut most, mut last) = (0, (0, None));
    for _ in 0..DELETE_PASSES {
        let mut messages = take(&mut conversation, family)?;
        if messages.is_empty() {
            return Ok(most);
        }
        most = most.max(messages.len());
        let count = messages.len();
        last = (
            count,
            conversation.send(&mut messages, || io::Result::Ok(()), true)?,
        );
    }
    let why = last.1.map_or_else(
        || "somebody brings them back".to_owned(),
        |refused| refused.reason,
    );
    Err(io::Error::other(format!("{} are left, {why}", last.0)))
}
