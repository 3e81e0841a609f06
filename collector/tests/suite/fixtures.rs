//! The captures; the tests beside the code include this file.

use std::path::{Path, PathBuf};

/// A capture that is part of the repository.
pub(super) fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/captures")
        .join(name)
}

/// The names of the captures.
pub(super) const CAPTURES: [&str; 4] = [
    "linux-4.19.319.pcap",
    "linux-5.15.164.pcap",
    "linux-6.10.3.pcap",
    "linux-6.6.44-bbr.pcap",
];
