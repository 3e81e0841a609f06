//! The compiled program, and how it comes into the kernel.

use std::mem::size_of;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, Program,
    ProgramMut, set_print,
};
use sha2::{Digest, Sha256};
use zerocopy::IntoBytes;

use super::error::{Error, Result, plain};
use springtide_core::layout::{Entry, Prefix};

/// The sockops program.
static START: Embedded<{ include_bytes!(concat!(env!("OUT_DIR"), "/start.bpf.o")).len() }> =
    Embedded(*include_bytes!(concat!(env!("OUT_DIR"), "/start.bpf.o")));
/// The program that copies segments at a device's egress.
static COPY: Embedded<{ include_bytes!(concat!(env!("OUT_DIR"), "/copy.bpf.o")).len() }> =
    Embedded(*include_bytes!(concat!(env!("OUT_DIR"), "/copy.bpf.o")));
/// The filter of sockets that see what arrives.
static LISTEN: Embedded<{ include_bytes!(concat!(env!("OUT_DIR"), "/listen.bpf.o")).len() }> =
    Embedded(*include_bytes!(concat!(env!("OUT_DIR"), "/listen.bpf.o")));
/// The iterator over open connections.
static RESTORE: Embedded<{ include_bytes!(concat!(env!("OUT_DIR"), "/restore.bpf.o")).len() }> =
    Embedded(*include_bytes!(concat!(env!("OUT_DIR"), "/restore.bpf.o")));

/// ELF files are read in place: libelf wants them aligned.
#[repr(align(8))]
struct Embedded<const SIZE: usize>([u8; SIZE]);

/// The maps that outlive a process: each is pinned under its name.
pub(super) const MAPS: [&str; 11] = [
    "bundle",
    "settings",
    "left_alone",
    "about",
    "states",
    "starts",
    "totals",
    "opted_out",
    "copying",
    "records",
    "parity",
];

/// Messages of libbpf meanwhile: the verifier's words are nowhere else.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn listen(_: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        said.push(text);
    }
}

/// SHA-256 of the embedded object: what tells an upgrade.
pub(super) fn object_hash() -> [u8; 32] {
    Sha256::digest(START.0).into()
}

/// Loads the program; its maps are those pinned in a directory, or new ones.
pub(super) fn load(pinned: Option<&Path>) -> Result<Object> {
    load_with(&START.0, pinned)
}

/// Loads the program that copies, on the maps pinned in a directory.
pub(super) fn load_copy(pinned: &Path) -> Result<Object> {
    load_with(&COPY.0, Some(pinned))
}

/// Loads the filter by which the service of parity sees the beginnings of connections.
pub(crate) fn load_listen() -> Result<Object> {
    load_with(&LISTEN.0, None)
}

fn load_with(bytes: &[u8], pinned: Option<&Path>) -> Result<Object> {
    set_print(Some((PrintLevel::Warn, listen)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    let mut open = open(bytes)?;
    if let Some(directory) = pinned {
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if MAPS.contains(&name.as_str()) {
                map.reuse_pinned_map(directory.join(&name))
                    .map_err(|error| {
                        Error::Failed(format!(
                            "cannot open the pinned map {name}: {}",
                            plain(&error)
                        ))
                    })?;
            }
        }
    }
    open.load()
        .map_err(|error| Error::Unsupported(refusal(&error)))
}

/// Loads the iterator, with what it is asked for: an algorithm, or none, and a byte (`asked` of bpf/restore.bpf.c).
pub(super) fn load_restore(starts: &Path, asked: &[u8]) -> Result<Object> {
    set_print(Some((PrintLevel::Warn, listen)));
    let mut open = open(&RESTORE.0)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let done = match name.as_str() {
            "starts" => map.reuse_pinned_map(starts),
            _ if name.ends_with(".rodata") => match map.initial_value_mut() {
                Some(bytes) if bytes.len() >= asked.len() => {
                    bytes[..asked.len()].copy_from_slice(asked);
                    Ok(())
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        done.map_err(|error| {
            Error::Failed(format!("cannot prepare the map {name}: {}", plain(&error)))
        })?;
    }
    open.load()
        .map_err(|error| Error::Unsupported(refusal(&error)))
}

fn open(bytes: &[u8]) -> Result<OpenObject> {
    let opened = ObjectBuilder::default().open_memory(bytes);
    opened.map_err(|error| {
        Error::Unsupported(format!(
            "the eBPF program cannot be read: {}",
            plain(&error)
        ))
    })
}

/// The program itself.
pub(super) fn program(object: &Object) -> Result<ProgramMut<'_>> {
    let mut programs = object.progs_mut();
    programs.next().ok_or_else(|| {
        Error::Failed("the eBPF object has no program: build this command again".to_owned())
    })
}

/// Its id in the kernel.
pub(super) fn id(program: &ProgramMut<'_>) -> Result<u32> {
    Program::id_from_fd(program.as_fd())
        .map_err(|error| Error::Failed(format!("the program has no id: {}", plain(&error))))
}

/// A new trie for a generation, filled.
pub(super) fn trie(values: &[(Prefix, Entry)]) -> Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    let most = u32::try_from(values.len().max(1))
        .map_err(|_| Error::Bundle("more than 4 billion entries".to_owned()))?;
    let sizes = (size_of::<Prefix>() as u32, size_of::<Entry>() as u32);
    let map = MapHandle::create(
        MapType::LpmTrie,
        Some("entries"),
        sizes.0,
        sizes.1,
        most,
        &options,
    )
    .map_err(|error| room(values.len(), &error))?;
    // One by one: Linux 5.10 takes no batch for a trie, and newer ones copy a batch's parts one by one as well.
    for (prefix, value) in values {
        map.update(prefix.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .map_err(|error| room(values.len(), &error))?;
    }
    Ok(map)
}

fn room(entries: usize, error: &libbpf_rs::Error) -> Error {
    Error::Failed(format!(
        "the kernel takes no map of {entries} entries: {}: the last bundle stays; free memory, or publish fewer entries",
        plain(error)
    ))
}

/// Why the kernel did not take it: the verifier's last word, or what else libbpf said.
fn refusal(error: &libbpf_rs::Error) -> String {
    let said = SAID.lock().map(|said| said.concat()).unwrap_or_default();
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let end = lines
        .iter()
        .position(|line| line.starts_with("processed ") || line.contains("END PROG LOAD LOG"));
    let word = match end {
        Some(end) if end > 0 => format!("the verifier says {:?}", lines[end - 1]),
        _ => lines
            .last()
            .map_or_else(String::new, |line| format!("libbpf says {line:?}")),
    };
    let what = plain(error);
    format!("this kernel does not load the eBPF program: {what}: {word}: use routes here, or a newer kernel")
        .replace(": : ", ": ")
}

#[cfg(test)]
mod tests;
