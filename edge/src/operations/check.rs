//! Check of what this host supports, without a bundle.

use std::fs::read_to_string;
use std::path::PathBuf;

use serde::Serialize;

use super::report::Report;
use super::run::Places;
use crate::enforce::{bpf, routes};
use crate::error::code;
use crate::kernel::congestion_problem;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// The report of `check`.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    command: &'static str,
    /// The kernel's release.
    kernel: String,
    bpf: Support,
    routes: Support,
    bbr: Support,
    /// Whether segments can be sent twice.
    copies: Support,
    /// Tail-loss probes and RACK, which repair most losses without waiting for a timeout.
    loss_probes: Support,
    /// Congestion controls that connections can have, those whose modules are loaded.
    algorithms: Vec<String>,
    /// Its mode; None where the kernel does not show it.
    lockdown: Option<String>,
    /// Whether the kernel tells its types.
    btf: bool,
    /// Where it is mounted.
    cgroup2: Vec<PathBuf>,
    /// Where it is mounted.
    bpf_fs: Vec<PathBuf>,
}

/// A way of enforcing, or what it needs.
#[derive(Clone, Debug, Serialize)]
struct Support {
    supported: bool,
    /// Why not, in one line.
    reason: Option<String>,
}

impl Support {
    fn unless(reason: Option<String>) -> Self {
        Self {
            supported: reason.is_none(),
            reason,
        }
    }

    fn line(&self, name: &str) -> String {
        match &self.reason {
            None => format!("{name}: yes"),
            Some(reason) => format!("{name}: no: {reason}"),
        }
    }
}

/// Asks the kernel what it supports; a module of a congestion control may be loaded by that, and nothing else changes.
/// `unfit` says why this process may not change routes, if it may not.
pub fn check(places: &Places, unfit: Option<String>) -> Checked {
    // Asked before the list is read: the kernel loads its module.
    let bbr = Support::unless(congestion_problem("bbr"));
    let routes = unfit.or_else(|| routes::supported().err().map(|error| error.to_string()));
    let program = bpf::supported(&places.program).err();
    Checked {
        command: "check",
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        bpf: Support::unless(program.map(|error| error.to_string())),
        routes: Support::unless(routes),
        bbr,
        copies: Support::unless(bpf::copies_problem()),
        loss_probes: Support::unless(probes_problem()),
        algorithms: words(AVAILABLE),
        lockdown: words(LOCKDOWN)
            .iter()
            .find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned())),
        btf: bpf::tells_types(),
        cgroup2: mounted("cgroup2"),
        bpf_fs: mounted("bpf"),
    }
}

fn words(path: &str) -> Vec<String> {
    let content = read_to_string(path).unwrap_or_default();
    content.split_whitespace().map(str::to_owned).collect()
}

/// Says which switch of this network namespace is off, if one is: probes are values 3 and 4 (ip-sysctl), RACK is bit 0.
fn probes_problem() -> Option<String> {
    let wrong = |name: &str, default: u32, is_on: fn(u32) -> bool| {
        let value = words(&format!("/proc/sys/net/ipv4/{name}"))
            .first()?
            .parse()
            .ok()?;
        let fix = format!("net.ipv4.{name} is {value}: set it to {default}, Linux's default");
        (!is_on(value)).then_some(fix)
    };
    wrong("tcp_early_retrans", 3, |value| value >= 3)
        .or_else(|| wrong("tcp_recovery", 1, |value| value & 1 == 1))
}

/// Where file systems of this type are mounted.
pub fn mounted(kind: &str) -> Vec<PathBuf> {
    let mounts = read_to_string("/proc/self/mounts").unwrap_or_default();
    let place = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next()? == kind).then(|| PathBuf::from(place))
    };
    mounts.lines().filter_map(place).collect()
}

impl Report for Checked {
    fn exit_code(&self) -> u8 {
        match (self.bpf.supported, self.routes.supported) {
            (true, _) => code::DONE,
            (false, true) => code::PARTIAL,
            (false, false) => code::REFUSED,
        }
    }

    fn lines(&self) -> Vec<String> {
        let places = |found: &[PathBuf]| {
            let found: Vec<String> = found.iter().map(|one| one.display().to_string()).collect();
            if found.is_empty() {
                "not mounted".to_owned()
            } else {
                found.join(", ")
            }
        };
        let types = if self.btf { "yes" } else { "no" };
        vec![
            format!("kernel: {}", self.kernel),
            self.bpf.line("by bpf"),
            self.routes.line("by routes"),
            self.bbr.line("bbr"),
            self.copies.line("copies"),
            self.loss_probes.line("loss probes"),
            format!("congestion controls: {}", self.algorithms.join(", ")),
            format!("types (BTF): {types}"),
            format!(
                "lockdown: {}",
                self.lockdown
                    .as_deref()
                    .unwrap_or("not shown by this kernel")
            ),
            format!("cgroup2: {}", places(&self.cgroup2)),
            format!("BPF file system: {}", places(&self.bpf_fs)),
        ]
    }
}
