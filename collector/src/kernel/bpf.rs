//! The two commands of bpf(2) that the collector needs: opening a pinned map, and what the kernel says of it.

#![allow(
    unsafe_code,
    reason = "no library that the collector uses has this system call"
)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Commands and flags of include/uapi/linux/bpf.h.
const OBJ_GET: libc::c_int = 7;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const RDONLY: u32 = 1 << 3;

/// The members of union bpf_attr for BPF_OBJ_GET.
#[repr(C)]
struct Get {
    path: u64,
    fd: u32,
    flags: u32,
}

/// The members of union bpf_attr for BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct GetInfo {
    fd: u32,
    length: u32,
    info: u64,
}

/// Beginning of struct bpf_map_info.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapInfo {
    /// enum bpf_map_type.
    pub(crate) kind: u32,
    /// The kernel's number of the map.
    pub(crate) id: u32,
    /// Bytes of a key.
    pub(crate) key_size: u32,
    /// Bytes of a value.
    pub(crate) value_size: u32,
    /// Entries at most; of a ring buffer its bytes.
    pub(crate) max_entries: u32,
}

/// Access to a map: each kind needs the same right to the file that is its pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read.
    Read,
    /// It is read and written: a ring buffer's reader writes how far it has come.
    Write,
}

/// Opens what is pinned at `path`.
pub(crate) fn open_pinned(path: &Path, access: Access) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut get = Get {
        path: path.as_ptr() as u64,
        fd: 0,
        flags: match access {
            Access::Read => RDONLY,
            Access::Write => 0,
        },
    };
    // SAFETY: `get` has the command's layout and its own size is given; `path` ends with a NUL and lives until the call
    // returns.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET, &raw mut get, size_of::<Get>()) };
    let fd = libc::c_int::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it. It is closed on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel's description of a map. A pinned program or link has another one in the same place.
pub(crate) fn map_info(map: impl AsFd) -> io::Result<MapInfo> {
    let mut info = MapInfo::default();
    let mut get = GetInfo {
        fd: map.as_fd().as_raw_fd() as u32,
        length: size_of::<MapInfo>() as u32,
        info: &raw mut info as u64,
    };
    // SAFETY: `get` has the command's layout and its own size is given; the kernel writes at most `length` bytes into `info`,
    // which is as long and has no value that is not allowed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            OBJ_GET_INFO_BY_FD,
            &raw mut get,
            size_of::<GetInfo>(),
        )
    };
    match done {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}
