//! Start values per connection, by an eBPF program on a cgroup.
//!
//! The program (`bpf/start.bpf.c`) looks up, sets and counts; what is here loads it, fills its maps and reads them. All
//! that must outlive a process is pinned in one directory of a BPF file system:
//!
//! ```text
//! PINS/v5/link       the program on its cgroup
//! PINS/v5/bundle     one slot: a trie of prefixes, both families; swapped in one write
//! PINS/v5/settings   what a generation's entries share: deadline, lift, brake, shares
//! PINS/v5/left_alone of a generation: ports and networks of this host that are left alone
//! PINS/v5/about      which generation is in force
//! PINS/v5/states     per prefix that has seen connections: budget, brake, counters
//! PINS/v5/starts     what each connection started with (socket storage)
//! PINS/v5/totals     counters of the whole program
//! PINS/v5/opted_out  how many connections were, for that
//! PINS/v5/records    first flights (ring buffer)
//! PINS/v5/copying    bytes of copies that each CPU owes
//! PINS/v5/copies-N   the program that copies, on device N
//! ```
//!
//! A new set is made as `v5-new` and renamed: a process that is killed leaves the old state, or a directory that the next
//! `apply` or `withdraw` removes. Two at once are the caller's to prevent.

mod apply;
mod copies;
mod encode;
mod error;
mod handle;
mod others;
mod pins;
mod prefixes;
mod program;
mod put_back;
mod records;
mod status;
mod support;
mod totals;
mod withdraw;

pub use apply::{Applied, Loaded, apply, name_of, name_of_digest};
pub use copies::copies_problem;
pub use error::{Error, Result};
pub(crate) use handle::Program;
pub use others::note_others;
pub use pins::{Places, stands};
pub use records::{Reader, Record};
pub use status::{
    ArmStatus, Condition, Drift, EntryStatus, Status, condition, is_taken_away, status,
};
pub use support::{supported, tells_types};
pub use totals::Totals;
pub use withdraw::{Withdrawn, withdraw};
