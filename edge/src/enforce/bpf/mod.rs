//! Start values per connection, by an eBPF program on a cgroup.
//!
//! The program (`bpf/start.bpf.c`) looks up, sets and counts; what is here loads it, fills its maps and reads them. All
//! that must outlive a process is pinned in one directory of a BPF file system:
//!
//! ```text
//! PINS/v6/link       the program on its cgroup
//! PINS/v6/bundle     one slot: a trie of prefixes, both families; swapped in one write
//! PINS/v6/settings   what a generation's entries share: deadline, lift, brake, shares
//! PINS/v6/left_alone of a generation: ports and networks of this host that are left alone
//! PINS/v6/about      which generation is in force
//! PINS/v6/states     per prefix that has seen connections: budget, brake, counters
//! PINS/v6/starts     what each connection started with (socket storage)
//! PINS/v6/totals     counters of the whole program
//! PINS/v6/opted_out  how many connections were, for that
//! PINS/v6/records    first flights (ring buffer)
//! PINS/v6/copying    bytes of copies that each CPU owes
//! PINS/v6/parity     packets of which parity is to be sent (perf rings)
//! PINS/v6/copies-N   the program that copies, on device N
//! ```
//!
//! A new set is made as `v6-new` and renamed: a process that is killed leaves the old state, or a directory that the next
//! `apply` or `withdraw` removes. Two at once are the caller's to prevent.

mod apply;
mod copies;
mod encode;
mod error;
mod handle;
mod others;
mod packets;
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
pub(crate) use packets::Packets;
pub use pins::{Places, stands};
pub(crate) use program::load_listen;
pub use records::{Reader, Record};
pub use status::{
    ArmStatus, Condition, Drift, EntryStatus, Status, condition, is_taken_away, status,
};
pub use support::{supported, tells_types};
pub use totals::Totals;
pub use withdraw::{Withdrawn, withdraw};
