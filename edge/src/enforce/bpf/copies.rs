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
const NEEDS: &str = "the kernel attaches no program by tcx, as Linux 6.6 and newer do";

/// Puts the program of this command on every device of this network namespace but loopback; what could not be done.
pub(super) fn attach(set: &Path) -> Vec<String> {
    put(set).unwrap_or_else(|error| vec![format!("nothing is sent twice: {error}")])
}

/// Takes it off; what could not be done.
pub(super) fn remove(set: &Path) -> Vec<String> {
    let removed = pinned(set).into_iter().map(|(_, path)| pins::remove(&path));
    removed
        .filter_map(|done| Some(done.err()?.to_string()))
        .collect()
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

fn put(set: &Path) -> Result<Vec<String>> {
    let object = program::load_copy(set)?;
    let devices = found()?;
    let mut wrong = Vec::new();
    for (device, name) in &devices {
        let path = set.join(format!("{PIN}{device}"));
        let done = if is_on(&path, *device) {
            replace(&path, &object)
        } else {
            pins::remove(&path).and_then(|()| one(&object, *device, &path))
        };
        if let Err(error) = done {
            wrong.push(format!("nothing is sent twice on {name}: {error}"));
        }
    }
    // Pins of devices that have gone.
    for (device, path) in pinned(set) {
        if !devices.iter().any(|(known, _)| *known == device) {
            pins::remove(&path)?;
        }
    }
    Ok(wrong)
}

/// Why this kernel cannot copy, or None. Those before 6.6 do not know how to attach it.
pub fn copies_problem() -> Option<String> {
    let mut count = 0;
    // SAFETY: `count` outlives the call; no ids are asked for.
    let code = unsafe {
        libbpf_sys::bpf_prog_query(
            LOOPBACK.cast_signed(),
            libbpf_sys::BPF_TCX_EGRESS,
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &raw mut count,
        )
    };
    let error = io::Error::from_raw_os_error(-code);
    (code < 0).then(|| format!("{NEEDS}: {error}"))
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
            "cannot attach to device {device}: {error}: {NEEDS}"
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
