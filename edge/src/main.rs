//! Springtide on an edge.

use std::process::ExitCode;

fn main() -> ExitCode {
    springtide_edge::main()
}
