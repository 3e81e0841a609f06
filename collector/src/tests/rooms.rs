//! The rooms stand in an order: each uses only those before it, so that there is no circle.

use std::fs;
use std::path::Path;

const ORDER: [&str; 16] = [
    "lock",
    "accounting",
    "stats",
    "report",
    "kernel",
    "sample",
    "spool",
    "options",
    "sinks",
    "read",
    "replay",
    "config",
    "operate",
    "top",
    "estimate",
    "commands",
];

/// Every use of another room in the code below `path`, its tests left out: `crate::` and a name.
fn uses(path: &Path, found: &mut Vec<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            uses(&entry.unwrap().path(), found);
        }
    } else if !path.ends_with("tests.rs") {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        found.extend(code.split("crate::").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            rest[..end.unwrap_or(rest.len())].to_owned()
        }));
    }
}

#[test]
fn each_room_uses_only_those_before_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (index, room) in ORDER.into_iter().enumerate() {
        let folder = source.join(room);
        let mut found = Vec::new();
        uses(
            &if folder.is_dir() {
                folder
            } else {
                folder.with_extension("rs")
            },
            &mut found,
        );
        for used in found {
            assert!(ORDER[..=index].contains(&&*used), "{room} uses {used}");
        }
    }
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        let room = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(
            ORDER.contains(&&*room) || ["lib", "main", "tests"].contains(&&*room),
            "{room} has no place in the order"
        );
    }
}
