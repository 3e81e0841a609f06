//! Open connections get back what the host gives, in every network namespace that can be found.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind::{InvalidInput, NotFound};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::{Error, Result, failed, plain};
use super::program;
use springtide_core::layout::ALGORITHM_NAME;

/// Connections that were changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PutBack {
    /// A cap was lifted.
    pub(super) lifted: u64,
    /// The congestion control is the host's again.
    pub(super) restored: u64,
    /// Network namespaces that this process could not enter.
    pub(super) closed: usize,
}

/// Runs the iterator over the sockets of this network namespace, of those of the cgroup's processes, and of the named ones.
/// `algorithm`: what switched connections get, or empty.
pub(super) fn put_back(set: &Path, cgroup: &Path, algorithm: &[u8]) -> Result<PutBack> {
    go(set, cgroup, &[algorithm, &[0]].concat())
}

/// Lifts caps that the program in force would have lifted long ago, had another one not ended its callbacks.
pub(super) fn lift_overdue(set: &Path, cgroup: &Path) -> Result<()> {
    go(set, cgroup, &[&[0; ALGORITHM_NAME][..], &[1]].concat()).map(drop)
}

fn go(set: &Path, cgroup: &Path, asked: &[u8]) -> Result<PutBack> {
    let spaces = namespaces(cgroup);
    // A thread of its own, which ends in whatever namespace it came to last.
    thread::scope(|scope| {
        let thread = scope.spawn(|| go_through(set, &spaces, asked));
        let panicked = || Error::Failed("cannot go through the sockets: ask again".to_owned());
        thread.join().unwrap_or_else(|_| Err(panicked()))
    })
}

fn go_through(set: &Path, spaces: &[PathBuf], asked: &[u8]) -> Result<PutBack> {
    let starts = set.join("starts");
    let object = program::load_restore(&starts, asked)?;
    let link = program::program(&object)?
        .attach()
        .map_err(|error| wrong(&starts, plain(&error)))?;
    one(&link, &starts)?;
    let mut closed = 0;
    for space in spaces {
        match enter(space) {
            Ok(()) => one(&link, &starts)?,
            // It has ended since it was listed, or has not begun: a name without a namespace has no sockets.
            Err(error) if matches!(error.kind(), NotFound | InvalidInput) => {}
            Err(_) => closed += 1,
        }
    }
    let (lifted, restored) = counted(&object);
    Ok(PutBack {
        lifted,
        restored,
        closed,
    })
}

fn one(link: &Link, starts: &Path) -> Result<()> {
    let mut sockets = Iter::new(link).map_err(|error| wrong(starts, plain(&error)))?;
    let read = sockets.read_to_end(&mut Vec::new());
    read.map(drop).map_err(|error| wrong(starts, error))
}

fn wrong(starts: &Path, error: impl std::fmt::Display) -> Error {
    let what = "cannot go through the sockets of";
    failed(what, starts, error, "some were not changed")
}

fn enter(space: &Path) -> std::io::Result<()> {
    let file = File::open(space)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Each other network namespace once, by a path to it.
fn namespaces(cgroup: &Path) -> Vec<PathBuf> {
    let which = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let mut known: HashSet<(u64, u64)> = which(Path::new("/proc/thread-self/ns/net"))
        .into_iter()
        .collect();
    let mut paths = Vec::new();
    processes(cgroup, &mut paths);
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    paths.extend(named.map(|entry| entry.path()));
    // A path that cannot be looked at is kept, to be counted.
    paths.retain(|path| which(path).map_or_else(|_| path.exists(), |space| known.insert(space)));
    paths
}

fn processes(cgroup: &Path, paths: &mut Vec<PathBuf>) {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process that this one cannot see.
    let seen = list.lines().filter(|id| *id != "0");
    paths.extend(seen.map(|id| PathBuf::from(format!("/proc/{id}/ns/net"))));
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            processes(&entry.path(), paths);
        }
    }
}

/// The iterator's two global variables.
fn counted(object: &Object) -> (u64, u64) {
    let bytes = object
        .maps()
        .find(|map| map.name().to_string_lossy().ends_with(".bss"))
        .and_then(|map| {
            map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
                .ok()
                .flatten()
        })
        .unwrap_or_default();
    let at = |from: usize| {
        bytes
            .get(from..from + 8)
            .and_then(|one| one.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    };
    (at(0), at(8))
}
