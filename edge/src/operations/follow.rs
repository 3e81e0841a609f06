//! The copies follow the host's own routing.

use serde::Serialize;

use super::chosen::{by_routes, enforced_by, name_unreached};
use super::commit::commit;
use super::repair::{load_state, repair};
use super::report::{Counts, RefusedDestination, Report, partial, refused_list, rest};
use super::run::{Places, Run, Uninterrupted, read_clock};
use super::withdraw::{Known, TakenBack, known_without_lock, lock_for_a_while, overdue, take_back};
use crate::bundle::Bundle;
use crate::enforce::routes::{Change, Plan, stale, survey};
use crate::error::{Error, Result};
use crate::state::{EnforcedBy, State, Store};

/// The report of `follow`.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Followed {
    /// Its time was over, or the copies could not follow.
    TakenBack(TakenBack),
    /// It still holds.
    Copied {
        #[serde(rename = "command")]
        #[doc(hidden)]
        command: &'static str,
        #[doc(hidden)]
        changed: bool,
        #[serde(flatten)]
        #[doc(hidden)]
        counts: Counts,
        #[doc(hidden)]
        reason: Option<String>,
        /// Seconds until a route of the host's runs out.
        next_look_s: Option<f64>,
        #[doc(hidden)]
        refused: Vec<RefusedDestination>,
        #[doc(hidden)]
        notes: Vec<String>,
    },
}

impl Followed {
    /// Whether anything is different now.
    pub fn changed(&self) -> bool {
        match self {
            Self::TakenBack(report) => report.changed,
            Self::Copied { changed, .. } => *changed,
        }
    }

    /// Destinations that are not served.
    pub(super) fn refused(&self) -> &[RefusedDestination] {
        match self {
            Self::TakenBack(_) => &[],
            Self::Copied { refused, .. } => refused,
        }
    }

    /// Seconds until a route of the host's runs out.
    pub fn next_look_s(&self) -> Option<f64> {
        match self {
            Self::TakenBack(_) => None,
            Self::Copied { next_look_s, .. } => *next_look_s,
        }
    }
}

impl Report for Followed {
    fn exit_code(&self) -> u8 {
        match self {
            Self::TakenBack(report) => report.exit_code(),
            Self::Copied { refused, .. } => partial(refused),
        }
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::TakenBack(report) => report.lines(),
            Self::Copied {
                changed,
                counts,
                refused,
                notes,
                ..
            } => {
                let done = if *changed {
                    counts.line()
                } else {
                    "unchanged".to_owned()
                };
                let mut lines = vec![format!("follow: {done}")];
                lines.extend(rest(refused, notes));
                lines
            }
        }
    }
}

/// Makes table 201 what the last good bundle means by the routing of this moment; withdraws it once it has expired.
///
/// A copy that cannot be brought up to date is not left standing: then every route goes.
///
/// # Errors
///
/// [`Error::Refused`] and the others.
pub fn follow(places: &Places) -> Result<Followed> {
    let clock = read_clock()?;
    let store = Store::new(&places.state, &places.run);
    let mut notes = Vec::new();
    let check = || store.check();
    let run = Run::new(&store, &check, places, clock);
    let taken = |why: &str, notes: Vec<String>, held: bool| {
        take_back(&run, why, notes, "follow", held, false).map(Followed::TakenBack)
    };
    let mut lock = lock_for_a_while(&store, places, &mut notes);
    if lock.is_none() {
        let guard = Uninterrupted::begin();
        let known = known_without_lock(&store, &run.clock);
        if let Some(why) = overdue(&run, known.as_ref())? {
            return taken(&why, notes, false);
        }
        drop(guard);
        notes.clear();
        match store.lock(places.lock_wait) {
            Ok(found) => lock = Some(found),
            Err(error) => {
                // The run that holds it may stand still permanently, and the copies with it.
                let wrong = match error {
                    Error::Refused { .. } => run.marked()?,
                    _ => stale(&run.routing)?,
                };
                return if wrong {
                    taken(&format!("could not follow: {error}"), notes, false)
                } else {
                    Err(error)
                };
            }
        }
    }
    let _lock = lock;
    let _guard = Uninterrupted::begin();
    follow_with_lock(&run, notes)
}

fn follow_with_lock(run: &Run<'_>, mut notes: Vec<String>) -> Result<Followed> {
    repair(run, &mut notes)?;
    let state = load_state(run.store, &mut notes);
    let known = state.clone().map(Known::from);
    let taken = |why: &str, notes: Vec<String>| {
        take_back(run, why, notes, "follow", true, false).map(Followed::TakenBack)
    };
    if let Some(why) = overdue(run, known.as_ref())? {
        return taken(&why, notes);
    }
    let (mut steps, mut plan) = (None, Plan::default());
    if let Some(state) = state.filter(|state| state.claim.withdrawn.is_none()) {
        let by_program = state.enforced_by == EnforcedBy::Bpf;
        let wrong = if by_program {
            run.program.drift()
        } else {
            Vec::new()
        };
        let copied = run.store.last_good(&state.claim).and_then(|bundle| {
            let by = judged_anew(run, &bundle.0, &state, &mut notes);
            // The routing may change again between reading it and copying it: a second look, then no third.
            copy_again(run, &bundle, by, &state, &mut notes).or_else(|error| match error {
                Error::Failed(_) | Error::Unrecorded(_) => {
                    notes.push(error.to_string());
                    copy_again(run, &bundle, by, &state, &mut notes)
                }
                other => Err(other),
            })
        });
        if by_program {
            run.program.note_others();
        }
        match copied {
            Ok(done) => {
                (steps, plan) = done;
                notes.extend(wrong.into_iter().map(|drift| format!("mended: {drift}")));
            }
            Err(error @ Error::Withdrawn(_)) => return Err(error),
            Err(error) => return taken(&format!("could not follow: {error}"), notes),
        }
    }
    Ok(Followed::Copied {
        command: "follow",
        changed: steps.is_some() || !notes.is_empty(),
        counts: Counts::of(&steps.unwrap_or_default()),
        reason: None,
        next_look_s: plan.lasts,
        refused: refused_list(&plan.refused),
        notes,
    })
}

type Copied = (Option<Vec<Change>>, Plan);

/// Way that enforces it on the host of this moment: one that could not run the program when it was
/// applied may be able to now, and the other way round.
fn judged_anew(
    run: &Run<'_>,
    bundle: &Bundle,
    state: &State,
    notes: &mut Vec<String>,
) -> EnforcedBy {
    let (by, why) = enforced_by(run, bundle);
    if by != state.enforced_by {
        notes.push(why.unwrap_or_else(|| "by bpf, which this host can run now".to_owned()));
    }
    by
}

fn copy_again(
    run: &Run<'_>,
    (bundle, raw): &(Bundle, Vec<u8>),
    by: EnforcedBy,
    state: &State,
    notes: &mut Vec<String>,
) -> Result<Copied> {
    let (mut plan, before) = survey(&run.routing, &by_routes(bundle, by).0)?;
    let steps = commit(run, (bundle, raw), by, &plan, &before, Some(state), notes)?;
    name_unreached(run, &mut plan, notes);
    Ok((steps, plan))
}
