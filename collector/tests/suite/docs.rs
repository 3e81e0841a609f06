//! Checks the packaged configuration, which is generated from the code and checked in. A file that differs is written anew when
//! SPRINGTIDE_UPDATE is set, and is a failure otherwise.

use std::fs;
use std::path::{Path, PathBuf};

use springtide_collector::parts::packaged_file;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares the file with what it should be.
fn hold(path: &str, expected: &str) {
    let file = root().join(path);
    if fs::read_to_string(&file).is_ok_and(|found| found == expected) {
        return;
    }
    assert!(
        std::env::var_os("SPRINGTIDE_UPDATE").is_some(),
        "{path} does not match the code: run SPRINGTIDE_UPDATE=1 cargo test -p springtide-collector --test suite docs"
    );
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, expected).unwrap();
}

#[test]
fn packaged_configuration() {
    hold("collector/packaging/collector.toml", &packaged_file());
}
