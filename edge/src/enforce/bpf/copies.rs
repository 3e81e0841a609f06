//! The program that sends segments twice, at the egress of this host's devices.
//!
//! It is attached by links (tcx, from Linux 6.6 on), beside whatever others have there: without its pin a link is gone, and
//! nothing of it stays. Only while a bundle asks for copies.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, Object};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::path::Arg;

use super::error::{Error, Result, failed, plain};
use super::pins;
use super::program;

/// A pin is named after its device's number.
const PIN: &str = "copies-";
/// The loopback device's number in every network namespace.
const LOOPBACK: u32 = 1;

/// Puts the program on every device of this network namespace but loopback, or on none; what could not be done. The program
/// is that of this command, whatever was there.
pub(super) fn attach(set: &Path, wanted: bool) -> Vec<String> {
    let mut old = pinned(set);
    let mut wrong = Vec::new();
    if wanted {
        match put(set, &mut old) {
            Ok(failed) => wrong = failed,
            Err(error) => wrong.push(format!("nothing is sent twice: {error}")),
        }
    }
    let removed = old.iter().map(|(_, path)| pins::remove(path));
    wrong.extend(
        removed
            .filter_map(|done| done.err())
            .map(|error| error.to_string()),
    );
    wrong
}

/// Numbers of the devices on which it is.
pub(super) fn devices(set: &Path) -> Vec<u32> {
    let on = pinned(set)
        .into_iter()
        .filter(|(device, path)| is_on(path, *device));
    on.map(|(device, _)| device).collect()
}

/// Takes it off, whoever else holds its links.
pub(super) fn detach(set: &Path) {
    for (_, path) in pinned(set) {
        if let Ok(link) = Link::open(&path) {
            let _ = link.detach();
        }
    }
}

/// Attaches it to each device; those of `old` that are still its are taken out of there.
fn put(set: &Path, old: &mut Vec<(u32, PathBuf)>) -> Result<Vec<String>> {
    let object = program::load_copy(set)?;
    let mut wrong = Vec::new();
    for (device, name) in found()? {
        let path = set.join(format!("{PIN}{device}"));
        let done = match old
            .iter()
            .position(|(known, path)| *known == device && is_on(path, device))
        {
            Some(at) => replace(&old.swap_remove(at).1, &object),
            None => pins::remove(&path).and_then(|()| one(&object, device, &path)),
        };
        old.retain(|(known, _)| *known != device);
        if let Err(error) = done {
            wrong.push(format!("nothing is sent twice on {name}: {error}"));
        }
    }
    Ok(wrong)
}

fn pinned(set: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(set).into_iter().flatten().flatten();
    let device = |path: &Path| path.file_name()?.to_str()?.strip_prefix(PIN)?.parse().ok();
    let mut found: Vec<(u32, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter_map(|path| Some((device(&path)?, path)))
        .collect();
    found.sort();
    found
}

/// Whether the link still is on the device: that may have gone, and another one have its number.
fn is_on(path: &Path, device: u32) -> bool {
    let info = Link::open(path).and_then(|link| link.info());
    matches!(info.map(|info| info.info), Ok(LinkTypeInfo::Tcx(found)) if found.ifindex == device)
}

fn replace(path: &Path, object: &Object) -> Result<()> {
    let done = Link::open(path).and_then(|mut link| match object.progs().next() {
        Some(program) => link.update_prog(&program),
        None => Ok(()),
    });
    done.map_err(|error| {
        failed(
            "cannot replace the program of",
            path,
            plain(&error),
            "apply it again",
        )
    })
}

fn one(object: &Object, device: u32, path: &Path) -> Result<()> {
    let program = program::program(object)?;
    // SAFETY: no pointer but a null one, which stands for no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            device.cast_signed(),
            libbpf_sys::BPF_TCX_EGRESS,
            std::ptr::null(),
        )
    };
    if link < 0 {
        let error = io::Error::from_raw_os_error(-link);
        return Err(Error::Failed(format!(
            "cannot attach to device {device}: {error}: copies need Linux 6.6 or newer"
        )));
    }
    // SAFETY: the call has made it, and nobody else has it.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    let wrong = |error| failed("cannot pin", path, error, "is this a BPF file system?");
    let name = path.into_c_str().map_err(|error| wrong(error.into()))?;
    // SAFETY: `name` outlives the call and ends with a zero.
    match unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), name.as_ptr()) } {
        0 => Ok(()),
        code => Err(wrong(io::Error::from_raw_os_error(-code))),
    }
}

/// Devices of this network namespace, by number and name.
fn found() -> Result<Vec<(u32, String)>> {
    let list = Path::new("/proc/self/net/dev");
    let wrong = |error| failed("cannot read", list, error, "is /proc mounted?");
    let text = fs::read_to_string(list).map_err(wrong)?;
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)
        .map_err(|error| wrong(error.into()))?;
    let names = text
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()));
    // One that has gone since has no number.
    let all = names.filter_map(|name| Some((name_to_index(&socket, name).ok()?, name.to_owned())));
    Ok(all.filter(|(number, _)| *number != LOOPBACK).collect())
}
