//! The sink works once its folder and its line in the registry are there, and the page that shows it shows these.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::Parser;

use crate::accounting::Accounting;
use crate::config::keys::keys;
use crate::config::{Cli, Command};
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::sinks::Sink;
use crate::sinks::start::{Opening, start};
use crate::stats::Stats;

#[test]
fn rows_reach_it_through_the_queue_and_are_accounted_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let receiver = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        connection.read_to_end(&mut received).unwrap();
        received
    });
    let directory = tempfile::tempdir().unwrap();
    let queue = directory.path().to_str().unwrap();
    let words = ["springtide-collector", "run", "--toy", &address];
    let cli = Cli::parse_from(words.into_iter().chain(["--queue-dir", queue]));
    let Command::Run(run) = cli.command else {
        panic!("run was expected");
    };
    run.sinks.check().unwrap();
    let accounting = Arc::new(Accounting::default());
    let reporter = Arc::new(Reporter::new(|_, _| {}));
    let mut stats = Stats::default();
    let opening = Opening {
        host: "edge-1",
        accounting: &accounting,
        reporter: &reporter,
        stats: &mut stats,
    };
    let mut sinks = start(&run.sinks, opening).unwrap();
    for bytes in [b"\x01a", b"\x01b"] {
        sinks.write(Message { rows: 1, bytes }, &mut stats).unwrap();
    }
    sinks.finish(&mut stats).unwrap();
    assert_eq!(receiver.join().unwrap(), b"\x01a\x01b");
    let books = accounting.snapshot();
    assert_eq!(
        (books.sinks[0].name, books.sinks[0].rows_delivered),
        ("toy", 2)
    );
}

#[test]
fn its_key_is_declared_with_its_option() {
    let keys = keys();
    let key = keys.iter().find(|key| key.flag() == "toy").unwrap();
    assert_eq!(key.path(), "toy.address");
    assert_eq!(key.variable(), "SPRINGTIDE_COLLECTOR_TOY");
}

/// Every file below `directory` whose text has the word.
fn naming(word: &str, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            naming(word, &path, found);
        } else if fs::read_to_string(&path).is_ok_and(|text| text.contains(word)) {
            found.push(path);
        }
    }
}

#[test]
fn its_folder_and_its_line_are_all_the_code_that_there_is() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    naming("toy", &source, &mut found);
    found.sort();
    let files = ["sinks/mod.rs", "sinks/toy/mod.rs", "sinks/toy/tests.rs"];
    assert_eq!(found, files.map(|file| source.join(file)));
}

#[test]
fn the_page_shows_this_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/how-to/add-a-sink.md")).unwrap();
    let shown = page.split("```rust\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap();
    // Without the head, which marks it as a test, and the tests.
    let code = include_str!("mod.rs").split_once("\n\n").unwrap().1;
    let code = code.split("\n#[cfg(test)]").next().unwrap();
    assert_eq!(
        shown, code,
        "docs/how-to/add-a-sink.md: put in the code as it is"
    );
}
