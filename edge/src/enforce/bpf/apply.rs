//! A bundle comes into force.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use serde::Serialize;
use sha2::{Digest, Sha256};
use zerocopy::{FromBytes, IntoBytes};

use super::copies;
use super::encode::{Encoded, Moment, encode};
use super::error::{Result, failed, plain};
use super::others;
use super::pins::{self, LINK, Places};
use super::program;
use super::support::preconditions;
use super::withdraw::settle_leftovers;
use crate::bundle::Bundle;
use crate::clock;
use springtide_core::layout::{About, Prefix, SLOTS};

const REPAIR: &str = "the last bundle stays; apply it again, or withdraw";

/// Effect on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Loaded {
    /// There was none.
    New,
    /// It is the one that was there.
    Kept,
    /// Another version was there, and was replaced without a gap; counters stay.
    Upgraded,
    /// It was not on the cgroup any more, or on another one.
    Attached,
}

/// Effect of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Effect on the program.
    pub program: Loaded,
    /// Counts applications since the program was loaded.
    pub generation: u64,
    /// Entries in force: without those inside an excluded network.
    pub entries: u32,
    /// Excluded networks.
    pub excluded: u32,
    /// Steps that failed, though the bundle is in force.
    pub warnings: Vec<String>,
}

/// Puts a bundle of `by: bpf` in force, in one write: a connection sees the last bundle or this one.
///
/// Counters and brakes of prefixes that stay are kept. It may be repeated, and repairs what it finds half done.
///
/// # Errors
/// [`Error::Unsupported`] where the host cannot, [`Error::Bundle`] where the program cannot; both have changed nothing.
pub fn apply(bundle: &Bundle, places: &Places) -> Result<Applied> {
    preconditions(places)?;
    let set = places.set();
    // The bundle's demands are judged before anything changes.
    encode(
        bundle,
        Moment {
            now: clock::second().0,
            boot_ns: 0,
            hz: 0,
            generation: 0,
            slot: 0,
        },
    )?;
    let program = ensure_program(places)?;
    let before = pins::about(&set)?;
    let before = About {
        others: others::counted(places, &before),
        ..before
    };
    // Read together: between the two a bundle would live longer by what loading took.
    let (now, boot_ns) = clock::second();
    let moment = Moment {
        now,
        boot_ns,
        hz: clock::hz(),
        generation: before.generation + 1,
        slot: (0..SLOTS)
            .find(|slot| ![before.slot, before.pending].contains(slot))
            .unwrap_or(0),
    };
    let mut encoded = encode(bundle, moment)?;
    // Ready before the first connection asks for it. Where nothing can be copied, nothing is said to be.
    let mut warnings = Vec::new();
    if encoded.settings.copies_permille > 0 {
        warnings = copies::attach(&set);
        if copies::devices(&set).is_empty() {
            encoded.settings.copies_permille = 0;
            for (_, entry) in &mut encoded.values {
                entry.copied_bytes = 0;
            }
        }
    }
    swap(&set, &before, bundle, moment, &encoded)?;
    if encoded.settings.copies_permille == 0 {
        warnings.extend(copies::remove(&set));
    }
    warnings.extend(settle_leftovers(places));
    let failed = [prune(&set, &encoded).err(), remove_leftovers(places).err()];
    warnings.extend(failed.into_iter().flatten().map(|error| error.to_string()));
    Ok(Applied {
        program,
        generation: moment.generation,
        entries: encoded.entries,
        excluded: encoded.excluded,
        warnings,
    })
}

/// The program is on the cgroup, in the version of this command.
fn ensure_program(places: &Places) -> Result<Loaded> {
    let set = places.set();
    if !pins::missing(&set).is_empty() {
        let mut object = program::load(None)?;
        pins::make(places, &mut object)?;
        return Ok(Loaded::New);
    }
    let about = pins::about(&set)?;
    let link = pins::link(&set)?;
    let attached = link.as_ref().is_some_and(|link| pins::is_on(link, places));
    if attached && about.object == program::object_hash() && pins::is_ours(link.as_ref(), &about) {
        return Ok(Loaded::Kept);
    }
    let object = program::load(Some(&set))?;
    let id = program::id(&program::program(&object)?)?;
    let hash = program::object_hash();
    // Both are ours until it is written which one is in use.
    pins::set_about(
        &set,
        &About {
            programs: [id, about.programs[0]],
            object: [0; 32],
            ..about
        },
    )?;
    match link {
        Some(link) if attached => {
            update(link, &object, &set)?;
        }
        _ => {
            let new = set.join("link-new");
            pins::attach(places, &object, &new)?;
            pins::rename(&new, &set.join(LINK))?;
        }
    }
    pins::set_about(
        &set,
        &About {
            programs: [id, 0],
            object: hash,
            ..about
        },
    )?;
    Ok(if attached {
        Loaded::Upgraded
    } else {
        Loaded::Attached
    })
}

fn update(mut link: Link, object: &Object, set: &Path) -> Result<()> {
    let none = || {
        failed(
            "cannot find the program of",
            &set.join(LINK),
            "the object has none",
            "build this command again",
        )
    };
    link.update_prog(&object.progs().next().ok_or_else(none)?)
        .map_err(|error| {
            failed(
                "cannot replace the program of",
                &set.join(LINK),
                plain(&error),
                REPAIR,
            )
        })
}

fn swap(
    set: &Path,
    before: &About,
    bundle: &Bundle,
    moment: Moment,
    encoded: &Encoded,
) -> Result<()> {
    let trie = program::trie(&encoded.values)?;
    let wrong = |name: &str, error: &libbpf_rs::Error| {
        failed("cannot write", &set.join(name), plain(error), REPAIR)
    };
    let receive_windows = u32::from(encoded.receive_windows);
    // Killed after this line, nothing is in force of the slot, or all of it: it is not filled again until that is known.
    let between = About {
        pending: moment.slot,
        receive_windows: before.receive_windows | receive_windows,
        draining: 0,
        ..*before
    };
    pins::set_about(set, &between)?;
    pins::map(set, "settings")?
        .update(
            &moment.slot.to_ne_bytes(),
            encoded.settings.as_bytes(),
            MapFlags::ANY,
        )
        .map_err(|error| wrong("settings", &error))?;
    pins::map(set, "left_alone")?
        .update(
            &moment.slot.to_ne_bytes(),
            encoded.left_alone.as_bytes(),
            MapFlags::ANY,
        )
        .map_err(|error| wrong("left_alone", &error))?;
    let handle = trie.as_fd().as_raw_fd().to_ne_bytes();
    pins::map(set, "bundle")?
        .update(&0u32.to_ne_bytes(), &handle, MapFlags::ANY)
        .map_err(|error| wrong("bundle", &error))?;
    let after = About {
        slot: moment.slot,
        receive_windows,
        generation: moment.generation,
        round: bundle.round,
        applied_at: moment.now,
        expires_at: bundle.expires_at,
        entries: encoded.entries,
        excluded: encoded.excluded,
        digest: digest(&bundle.digest),
        ..between
    };
    pins::set_about(set, &after)
}

/// A bundle's digest in 32 bytes, whatever form it has.
fn digest(of_bundle: &str) -> [u8; 32] {
    Sha256::digest(of_bundle.as_bytes()).into()
}

/// Name of a bundle in [`super::Condition::bundle`].
pub fn name_of(bundle: &Bundle) -> String {
    name_of_digest(&bundle.digest)
}

/// The same, by the bundle's digest.
pub fn name_of_digest(of_bundle: &str) -> String {
    crate::text::hex(&digest(of_bundle))
}

/// Removes what the program knows of prefixes that the bundle no longer has.
fn prune(set: &Path, encoded: &Encoded) -> Result<()> {
    let named = encoded.values.iter().filter(|(_, entry)| entry.flags == 0);
    let kept: HashSet<&Prefix> = named.map(|(prefix, _)| prefix).collect();
    let states = pins::map(set, "states")?;
    let known: Vec<Vec<u8>> = states.keys().collect();
    for key in known {
        let prefix = Prefix::read_from_bytes(&key).unwrap_or_default();
        if !kept.contains(&prefix) {
            states.delete(&key).map_err(|error| {
                failed(
                    "cannot clear",
                    &set.join("states"),
                    plain(&error),
                    "apply it again",
                )
            })?;
        }
    }
    Ok(())
}

fn remove_leftovers(places: &Places) -> Result<()> {
    pins::leftovers(places)
        .iter()
        .try_for_each(|path| pins::remove(path))?;
    pins::remove(&places.set().join("link-new"))
}
