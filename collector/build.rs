//! Generates the Rust types of the contract, with a protobuf compiler in Rust: no protoc has to be installed.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("../proto");
    let file = root.join("springtide/v1/tcp_sample.proto");
    println!("cargo:rerun-if-changed={}", file.display());
    let descriptors = protox::compile([&file], [root])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
