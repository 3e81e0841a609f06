//! The directory of pins: made whole, recognised when half made, removed.

use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use libbpf_rs::query::{LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use zerocopy::{FromBytes, IntoBytes};

use super::error::{Result, failed, is_missing, plain};
use super::program::{self, MAPS};
use springtide_core::layout::{About, LAYOUT};

/// Where the program acts, and where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// A directory of cgroup2: connections of its processes, and of those below it.
    pub cgroup: PathBuf,
    /// A directory of a BPF file system; it is this program's own, and is made where it is missing.
    pub pins: PathBuf,
}

// A BPF file system refuses names with a dot.
pub(super) const LINK: &str = "link";
const RECORDS: &str = "records";
const REPAIR: &str = "apply a bundle again, or withdraw";

impl Places {
    /// The pins in force.
    pub(super) fn set(&self) -> PathBuf {
        self.pins.join(format!("v{LAYOUT}"))
    }

    fn unfinished(&self) -> PathBuf {
        self.pins.join(format!("v{LAYOUT}-new"))
    }

    fn replaced(&self) -> PathBuf {
        self.pins.join(format!("v{LAYOUT}-old"))
    }

    /// The cgroup's number in the kernel, which is its directory's inode number.
    pub(super) fn cgroup_id(&self) -> Result<u64> {
        let advice = "name a directory of cgroup2 that exists";
        fs::metadata(&self.cgroup)
            .map(|found| found.ino())
            .map_err(|error| failed("cannot open the cgroup", &self.cgroup, error, advice))
    }
}

/// Whether anything of ours is there: what somebody else keeps in the directory is no program of ours.
pub fn stands(places: &Places) -> bool {
    places.set().exists() || !leftovers(places).is_empty()
}

/// Names of maps whose pin is missing.
pub(super) fn missing(set: &Path) -> Vec<&'static str> {
    MAPS.into_iter()
        .filter(|name| !set.join(name).exists())
        .collect()
}

/// Leftovers beside the set in force: of a step that was killed, or of another version.
pub(super) fn leftovers(places: &Places) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(&places.pins) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| *path != places.set() && is_set(path));
    paths.sort();
    paths
}

/// Whether this is the name of a set of any version, or of what a killed step left of one: all else is somebody else's.
fn is_set(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let version = name
        .strip_prefix('v')
        .and_then(|rest| rest.split('-').next());
    version.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether another version of this command left its set, which acts until an application replaces it.
pub(super) fn has_another_layout(places: &Places) -> bool {
    leftovers(places).iter().any(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix('v')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// Opens a pinned map.
pub(super) fn map(set: &Path, name: &str) -> Result<MapHandle> {
    let path = set.join(name);
    MapHandle::from_pinned_path(&path)
        .map_err(|error| failed("cannot open the pinned map", &path, plain(&error), REPAIR))
}

/// Pins again what is missing of the maps of a set's program, while that is attached. What cannot be stays as it is.
pub(super) fn pin_again(set: &Path) {
    let missing = missing(set);
    let Ok(Some(link)) = link(set) else { return };
    let Ok(attached) = link.info() else { return };
    if missing.is_empty() {
        return;
    }
    let asked = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs = ProgInfoIter::with_query_opts(asked);
    let ids = programs.filter(|program| program.id == attached.prog_id);
    for mut map in ids
        .flat_map(|program| program.map_ids)
        .flat_map(MapHandle::from_map_id)
    {
        let name = map.name().to_string_lossy().into_owned();
        if missing.contains(&name.as_str()) {
            let _ = map.pin(set.join(name));
        }
    }
}

/// Opens the pinned link; None where there is no pin.
pub(super) fn link(set: &Path) -> Result<Option<Link>> {
    let path = set.join(LINK);
    if !path.exists() {
        return Ok(None);
    }
    Link::open(&path)
        .map(Some)
        .map_err(|error| failed("cannot open the pinned link", &path, plain(&error), REPAIR))
}

/// Whether the link is on the cgroup that is meant: a cgroup that was removed and made again is another one.
pub(super) fn is_on(link: &Link, places: &Places) -> bool {
    let (Ok(info), Ok(wanted)) = (link.info(), places.cgroup_id()) else {
        return false;
    };
    matches!(info.info, LinkTypeInfo::Cgroup(found) if found.cgroup_id == wanted)
}

/// Whether the link carries a program that this module put there.
pub(super) fn is_ours(link: Option<&Link>, about: &About) -> bool {
    link.and_then(|link| link.info().ok())
        .is_some_and(|info| about.programs.contains(&info.prog_id))
}

/// The map `about`.
pub(super) fn about(set: &Path) -> Result<About> {
    let map = map(set, "about")?;
    let bytes = map
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| failed("cannot read", &set.join("about"), plain(&error), REPAIR))?;
    bytes
        .and_then(|bytes| About::read_from_bytes(&bytes).ok())
        .ok_or_else(|| {
            failed(
                "cannot read",
                &set.join("about"),
                "it has another size",
                REPAIR,
            )
        })
}

/// Writes the map `about`.
pub(super) fn set_about(set: &Path, about: &About) -> Result<()> {
    map(set, "about")?
        .update(&0u32.to_ne_bytes(), about.as_bytes(), MapFlags::ANY)
        .map_err(|error| failed("cannot write", &set.join("about"), plain(&error), REPAIR))
}

/// Tells the program of a set, whatever version left it, to start nothing more and to lift its caps.
pub(super) fn drain(set: &Path) -> Result<()> {
    let path = set.join("about");
    let wrong = |error: &libbpf_rs::Error| failed("cannot drain", &path, plain(error), REPAIR);
    let about = map(set, "about")?;
    let key = 0u32.to_ne_bytes();
    let found = about.lookup(&key, MapFlags::ANY);
    let mut bytes = found.map_err(|error| wrong(&error))?.unwrap_or_default();
    // It stands there in every LAYOUT.
    let draining = offset_of!(About, draining);
    if let Some(word) = bytes.get_mut(draining..draining + 4) {
        word.copy_from_slice(&1u32.to_ne_bytes());
        about
            .update(&key, &bytes, MapFlags::ANY)
            .map_err(|error| wrong(&error))?;
    }
    // An older version's program goes on with what stands in the slot. An empty one is an error here and what is wanted.
    if set.join("bundle").exists() {
        let _ = map(set, "bundle")?.delete(&key);
    }
    Ok(())
}

/// Whether a set, or what a killed step left of one, is of this version.
pub(super) fn is_of_this_layout(set: &Path) -> bool {
    let name = set.file_name().unwrap_or_default().to_string_lossy();
    name.split('-').next() == Some(&format!("v{LAYOUT}"))
}

/// Makes a set of pins around a program that was just loaded, attached and without a bundle, and puts it in force.
pub(super) fn make(places: &Places, object: &mut Object) -> Result<()> {
    make_directory(&places.pins)?;
    let new = places.unfinished();
    remove(&new)?;
    make_directory(&new)?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if MAPS.contains(&name.as_str()) {
            let path = new.join(&name);
            map.pin(&path).map_err(|error| {
                failed(
                    "cannot pin",
                    &path,
                    plain(&error),
                    "is this a BPF file system?",
                )
            })?;
            if name == RECORDS {
                // Its reader writes how far it has come; who gets here past the directory's mode is the collector.
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666))
                    .map_err(|error| failed("cannot share", &path, error, REPAIR))?;
            }
        }
    }
    let program = program::program(object)?;
    let about = About {
        layout: LAYOUT.into(),
        programs: [program::id(&program)?, 0],
        object: program::object_hash(),
        ..About::default()
    };
    set_about(&new, &about)?;
    attach(places, object, &new.join(LINK))?;
    let set = places.set();
    if set.exists() {
        // Maps are missing there. It acts until the new one does.
        remove(&places.replaced())?;
        rename(&set, &places.replaced())?;
    }
    rename(&new, &set)
}

/// Attaches a program to the cgroup, pinned.
pub(super) fn attach(places: &Places, object: &Object, path: &Path) -> Result<()> {
    let advice = "name a directory of cgroup2 that exists";
    let cgroup = File::open(&places.cgroup)
        .map_err(|error| failed("cannot open the cgroup", &places.cgroup, error, advice))?;
    let mut link = program::program(object)?
        .attach_cgroup(cgroup.as_raw_fd())
        .map_err(|error| {
            failed(
                "cannot attach to the cgroup",
                &places.cgroup,
                plain(&error),
                advice,
            )
        })?;
    remove(path)?;
    link.pin(path).map_err(|error| {
        failed(
            "cannot pin",
            path,
            plain(&error),
            "is this a BPF file system?",
        )
    })
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| failed("cannot rename", from, error, REPAIR))
}

fn make_directory(path: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(
            "cannot make",
            path,
            error,
            "name a directory of a mounted BPF file system",
        )),
        _ => check_owner(path),
    }
}

/// A BPF file system may be writable by all (`mount -t bpf` makes it so): who owns the directory could take the pins away.
pub(super) fn check_owner(path: &Path) -> Result<()> {
    let wrong = |error| failed("cannot look at", path, error, REPAIR);
    let found = fs::symlink_metadata(path).map_err(wrong)?;
    let own = rustix::process::geteuid().as_raw();
    if found.is_dir() && found.uid() == own && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(failed(
        "cannot use",
        path,
        "others than this user can write it",
        "remove it, and mount the BPF file system with mode=0700",
    ))
}

/// Removes a pin, or a directory of pins; what is not there may be missing.
pub(super) fn remove(path: &Path) -> Result<()> {
    let done = match fs::symlink_metadata(path) {
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    match done {
        Err(error) if !is_missing(&error) => {
            Err(failed("cannot remove", path, error, "remove it by hand"))
        }
        _ => Ok(()),
    }
}
