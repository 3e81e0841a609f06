//! Whether this host can run the program, and if not, exactly why.

use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, statfs};
use rustix::thread::{CapabilitySet, capabilities};

use super::error::{Error, Result};
use super::pins::Places;
use super::program;

/// From linux/magic.h.
const BPF_FS: FsWord = 0xcafe_4a11;
const CGROUP2: FsWord = 0x6367_7270;
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Checks what the program needs, and has the kernel's verifier take it; nothing is attached or left behind.
///
/// # Errors
/// [`Error::Unsupported`] with one line: what is missing, and what to do.
pub fn supported(places: &Places) -> Result<()> {
    preconditions(places)?;
    program::load(None).map(drop)
}

/// Whether this kernel tells its types, which the program's reads are adapted to.
pub fn tells_types() -> bool {
    Path::new(BTF).exists()
}

/// All but the verifier.
pub(super) fn preconditions(places: &Places) -> Result<()> {
    has_capabilities()?;
    let no_btf = "this kernel tells no types (CONFIG_DEBUG_INFO_BTF): use routes here, or a kernel that has them";
    if !tells_types() {
        return Err(unsupported(format!("{BTF} is missing: {no_btf}")));
    }
    let pins = existing(&places.pins);
    if file_system(&pins)? != BPF_FS {
        return Err(unsupported(format!(
            "{} is on no BPF file system: mount -t bpf -o mode=0700 bpf /sys/fs/bpf, and name a directory below it",
            places.pins.display()
        )));
    }
    if !places.cgroup.is_dir() || file_system(&places.cgroup)? != CGROUP2 {
        return Err(unsupported(format!(
            "{} is no directory of cgroup2: mount -t cgroup2 cgroup2 /sys/fs/cgroup, and name a group that exists",
            places.cgroup.display()
        )));
    }
    Ok(())
}

fn has_capabilities() -> Result<()> {
    let own = capabilities(None).map_err(|error| {
        unsupported(format!(
            "cannot read capabilities: {error}: use routes here"
        ))
    })?;
    let has = |one: CapabilitySet| own.effective.contains(one);
    // PERFMON: the program reads a field of struct tcp_sock.
    let needed = [
        ("CAP_BPF", CapabilitySet::BPF, true),
        ("CAP_PERFMON", CapabilitySet::PERFMON, true),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, false),
    ];
    let missing: Vec<&str> = needed
        .into_iter()
        .filter(|(_, one, admin)| !(has(*one) || *admin && has(CapabilitySet::SYS_ADMIN)))
        .map(|(name, ..)| name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(unsupported(format!(
        "this process lacks {missing}: run it as root, or give its unit AmbientCapabilities"
    )))
}

/// The path, or the nearest of its parents that exists.
fn existing(path: &Path) -> PathBuf {
    path.ancestors()
        .find(|one| one.exists())
        .unwrap_or(Path::new("/"))
        .to_owned()
}

fn file_system(path: &Path) -> Result<FsWord> {
    match statfs(path) {
        Ok(found) => Ok(found.f_type),
        Err(error) => Err(unsupported(format!(
            "cannot look at {}: {error}: name a directory that exists",
            path.display()
        ))),
    }
}

fn unsupported(text: String) -> Error {
    Error::Unsupported(text)
}
