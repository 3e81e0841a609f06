//! Compares `decode` with every value that `ss` printed for the same dumps, on four kernels.
//!
//! For each sample the test works out what `ss` must print, and the two sets of values must be equal: a value that only
//! one side has is a difference too, so that a value that `ss` hides because it is zero is compared as well. This
//! program is its own harness, so that the counts are always shown.

mod expect;
mod parse;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use parse::Values;
use serde_json::Value;

/// The captures, and how many values `ss` printed for each.
const CAPTURES: [(&str, usize); 4] = [
    ("linux-4.19.319", 14_628),
    ("linux-5.15.164", 15_259),
    ("linux-6.10.3", 15_503),
    ("linux-6.6.44-bbr", 16_187),
];

fn main() -> ExitCode {
    let mut total = 0;
    let mut failures = Vec::new();
    for (name, floor) in CAPTURES {
        match compare(name) {
            Ok(compared) => {
                println!("oracle: {name}: {compared} values agree with ss");
                total += compared;
                if compared < floor {
                    failures.push(format!(
                        "{name}: only {compared} values were compared, there are {floor}"
                    ));
                }
            }
            Err(problems) => failures.extend(
                problems
                    .into_iter()
                    .map(|problem| format!("{name}: {problem}")),
            ),
        }
    }
    println!("oracle: {total} values agree with ss in all");
    for failure in failures.iter().take(20) {
        println!("oracle: FAILED: {failure}");
    }
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("oracle: {} differences", failures.len());
    ExitCode::FAILURE
}

/// Compares one capture; the number of values that agree, or every difference.
fn compare(name: &str) -> Result<usize, Vec<String>> {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let printed = std::fs::read_to_string(captures.join(format!("{name}.ss.txt")))
        .map_err(|e| vec![e.to_string()])?;
    let printed = parse::sockets(&printed).map_err(|problem| vec![problem])?;
    let decoded =
        decode(&captures.join(format!("{name}.pcap"))).map_err(|problem| vec![problem])?;

    // A capture may hold several dumps: each of them has a sample with the socket's cookie.
    let mut by_cookie: BTreeMap<String, Vec<Values>> = BTreeMap::new();
    for sample in &decoded {
        let values = expect::values(sample);
        by_cookie
            .entry(values["sk"].clone())
            .or_default()
            .push(values);
    }
    let mut compared = 0;
    let mut problems = Vec::new();
    for row in &printed {
        let candidates = by_cookie.remove(&row["sk"]).unwrap_or_default();
        match candidates
            .iter()
            .map(|values| differences(row, values))
            .min_by_key(Vec::len)
        {
            None => problems.push(format!("sk:{} has no sample", row["sk"])),
            Some(found) if found.is_empty() => compared += row.len(),
            Some(found) => problems.extend(
                found
                    .into_iter()
                    .map(|what| format!("sk:{}: {what}", row["sk"])),
            ),
        }
    }
    problems.extend(
        by_cookie
            .keys()
            .map(|cookie| format!("the sample with cookie {cookie} is not in ss's output")),
    );
    if problems.is_empty() {
        Ok(compared)
    } else {
        Err(problems)
    }
}

fn decode(capture: &Path) -> Result<Vec<Value>, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_springtide-collector"));
    let output = command
        .arg("decode")
        .arg(capture)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() || !output.stderr.is_empty() {
        return Err(format!(
            "decode: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let lines = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    lines
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}")))
        .collect()
}

fn differences(ss: &Values, ours: &Values) -> Vec<String> {
    let names = ss
        .keys()
        .chain(ours.keys().filter(|name| !ss.contains_key(*name)));
    names
        .filter(|name| ss.get(*name) != ours.get(*name))
        .map(|name| {
            format!(
                "{name}: ss has {:?}, decode has {:?}",
                ss.get(name),
                ours.get(name)
            )
        })
        .collect()
}
