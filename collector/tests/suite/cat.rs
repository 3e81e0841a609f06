//! `cat`: what is good is printed, what is damaged is reported.

use std::fs;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::{collector, json_lines, record};

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h-1-2-3.spool");
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn cat_prints_the_good_records_and_reports_the_bad_ones() {
    let mut damaged = record(200, 3);
    *damaged.last_mut().unwrap() ^= 1;
    let (first, last) = (record(100, 2), record(300, 1));
    let torn = &record(400, 1)[..24];
    let (_directory, path) = file(&[&first[..], &damaged, &last, torn].concat());
    let output = collector(&["cat", path.to_str().unwrap(), "--stats"]);
    let cookies: Vec<_> = json_lines(&output)
        .iter()
        .map(|row| row["cookie"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (output.status.code(), cookies),
        (Some(1), vec![100, 101, 300])
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = stderr.lines().collect();
    let name = path.display();
    let (first, damaged, last) = (first.len(), damaged.len(), last.len());
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(
        lines[0].starts_with(&format!(
            "springtide-collector: {name}: offset {first}: {damaged} bytes are not a valid record"
        )),
        "{stderr}"
    );
    assert!(
        lines[1].contains(&format!("offset {}: 24 bytes", first + damaged + last)),
        "{stderr}"
    );
    let stats: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
    assert_eq!(stats["rows"], 3);
    assert_eq!(
        (
            &stats["spool_stretches_corrupt"],
            &stats["spool_bytes_corrupt"]
        ),
        (&2.into(), &(damaged + 24).into())
    );
}

#[test]
fn cat_of_anything_but_a_file_is_bad_input() {
    for path in ["/nonexistent.spool", "/tmp"] {
        let output = collector(&["cat", path]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.lines().count()),
            (Some(2), 1),
            "{stderr}"
        );
        assert!(
            stderr.starts_with(&format!("springtide-collector: {path}: cannot ")),
            "{stderr}"
        );
    }
}

#[test]
fn cat_goes_on_after_a_missing_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let fifo = directory.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::write(path("good"), record(4, 1)).unwrap();
    let words = [
        "cat".to_owned(),
        path("missing"),
        path("fifo"),
        path("good"),
    ];
    // Waiting for a writer of the pipe would hang here.
    let output = collector(&words);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(json_lines(&output).len(), 1);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("No such file") && stderr.contains("it is not a file"),
        "{stderr}"
    );
}
