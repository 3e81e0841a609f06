//! What several of the tests need.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A capture that is part of the repository.
pub fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/captures")
        .join(name)
}

/// The names of the captures.
pub const CAPTURES: [&str; 4] = [
    "linux-4.19.319.pcap",
    "linux-5.15.164.pcap",
    "linux-6.10.3.pcap",
    "linux-6.6.44-bbr.pcap",
];

/// The program under test.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_springtide-collector"))
}

/// Runs the program to its end.
pub fn collector<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    program()
        .args(arguments)
        .output()
        .expect("the program starts")
}

/// Its standard output as JSON lines.
pub fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    let text = std::str::from_utf8(&output.stdout).expect("the output is text");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}
