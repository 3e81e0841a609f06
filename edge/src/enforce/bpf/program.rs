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
use super::layout::{Prefix, Values};

/// The sockops program.
static START: Embedded<{ include_bytes!(concat!(env!("OUT_DIR"), "/start.bpf.o")).len() }> =
    Embedded(*include_bytes!(concat!(env!("OUT_DIR"), "/start.bpf.o")));
/// The iterator over open connections.
static RESTORE: Embedded<{ include_bytes!(concat!(env!("OUT_DIR"), "/restore.bpf.o")).len() }> =
    Embedded(*include_bytes!(concat!(env!("OUT_DIR"), "/restore.bpf.o")));

/// ELF files are read in place: libelf wants them aligned.
#[repr(align(8))]
struct Embedded<const SIZE: usize>([u8; SIZE]);

/// The maps that outlive a process: each is pinned under its name.
pub(super) const MAPS: [&str; 9] = [
    "bundle",
    "settings",
    "left_alone",
    "about",
    "states",
    "starts",
    "totals",
    "opted_out",
    "records",
];

/// What libbpf says meanwhile: the verifier's words are nowhere else.
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
    set_print(Some((PrintLevel::Warn, listen)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    let mut open = open(&START.0)?;
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
pub(super) fn trie(values: &[(Prefix, Values)]) -> Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    let most = u32::try_from(values.len().max(1))
        .map_err(|_| Error::Bundle("more than 4 billion entries".to_owned()))?;
    let sizes = (size_of::<Prefix>() as u32, size_of::<Values>() as u32);
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
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;
    use std::mem::offset_of;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::enforce::bpf::layout::{
        About, BrakeState, Flights, LeftAlone, RawRecord, SLOTS, Settings, Side, State, Suspect,
        TOTALS, Tally,
    };

    /// Writes down, as C, where Rust has the members of a struct; the compiler finds one that is not named here.
    macro_rules! same_layout {
        ($source:ident, $name:literal is $type:ident { $($member:ident),+ $(,)? }) => {
            let _ = |$type { $($member: _),+ }: $type| {};
            for (member, offset) in [$((stringify!($member), offset_of!($type, $member))),+] {
                writeln!(
                    $source,
                    "_Static_assert(offsetof(struct {0}, {member}) == {offset}, \"{0}.{member}\");",
                    $name
                )
                .unwrap();
            }
            let size = size_of::<$type>();
            writeln!($source, "_Static_assert(sizeof(struct {0}) == {size}, \"{0}\");", $name).unwrap();
        };
    }

    #[test]
    fn members_stand_where_the_program_has_them() {
        let mut source = "#include <stddef.h>\n#include \"start.h\"\n".to_owned();
        same_layout!(source, "prefix" is Prefix { length, address });
        same_layout!(source, "entry" is Values {
            from_bytes, window, rate, connection_rate, trial_window, trial_rate, trial_connection_rate,
            receive_window, trial_permille, algorithm, length, flags, slot, default_resent, padding,
        });
        same_layout!(source, "settings" is Settings {
            generation, round, deadline_ns, seed, half_life_ns, lift_bytes, lift_round_trips, brake_permille,
            brake_connections, record_permille, padding, algorithms,
        });
        same_layout!(source, "own_side" is Side { address, mask, port });
        same_layout!(source, "left_alone" is LeftAlone { count, sides });
        same_layout!(source, "about" is About {
            layout, receive_windows, draining, slot, pending, others, generation, round, applied_at, expires_at,
            entries, excluded, programs, object, digest,
        });
        same_layout!(source, "flights" is Flights { period, live, most });
        same_layout!(source, "suspect" is Suspect { address, exposed, lost, padding, by_default });
        same_layout!(source, "tally" is Tally { flights, resent });
        same_layout!(source, "brake" is BrakeState {
            since_ns, changed_ns, default_mean, tallies, exposed, lost, step, turn, suspects, excused, doubted_s,
            crowded,
        });
        same_layout!(source, "state" is State {
            lock, padding, round, flights, brakes, started, exposed, lost, untreated, switched, refused, late,
            braked, excused,
        });
        same_layout!(source, "record" is RawRecord {
            cookie, closed_ns, generation, round, acked_bytes, netns, local, remote, local_port, remote_port,
            length, window, rate, at_once, first_resent, resent, segments, handshake_us, min_rtt_us, first_us,
            acked_10k_us, acked_50k_us, acked_100k_us, lifted_us, lived_us, train_bytes, train_us, first_segments, arm, step,
            flags, layout, padding,
        });
        let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
        let mut compiler = Command::new(clang)
            .args(["-fsyntax-only", "-x", "c", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf"))
            .arg("-")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(source.as_bytes()).unwrap();
        drop(input);
        let done = compiler.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
    }

    #[test]
    fn structs_have_the_sizes_of_the_program() {
        let object = open(&START.0).unwrap();
        let map = |name: &str| object.maps().find(|map| map.name() == name).unwrap();
        assert_eq!(map("settings").value_size() as usize, size_of::<Settings>());
        assert_eq!(
            map("left_alone").value_size() as usize,
            size_of::<LeftAlone>()
        );
        assert_eq!(map("left_alone").max_entries(), SLOTS);
        assert_eq!(map("about").value_size() as usize, size_of::<About>());
        assert_eq!(map("states").value_size() as usize, size_of::<State>());
        assert_eq!(map("states").key_size() as usize, size_of::<Prefix>());
        assert_eq!(map("totals").max_entries(), TOTALS);
    }
}
