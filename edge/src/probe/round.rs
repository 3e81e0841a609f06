//! Every object of every target once, in a random order and at random moments, one after another.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::fetch::{Fetched, fetch};
use super::objects::SIZES;
use crate::error::{Error, Result};
use crate::files::read_regular;
use crate::text::{printable, reason};

const MOST_TARGETS: usize = 500;
const MOST_TARGET_BYTES: usize = 64 * 1024;
/// Beyond the spread, for targets that answer slowly. Fetches that would begin later are left out.
const GRACE: Duration = Duration::from_secs(300);
/// Most that is kept where nobody takes it away: ten days of hours.
const MOST_FILES: usize = 240;
const MOST_BYTES: u64 = 32_000_000;

/// Who fetches, over how long, and how long one fetch may take.
pub(super) struct Plan<'a> {
    pub(super) host: &'a str,
    pub(super) spread: Duration,
    pub(super) time: Duration,
}

/// Fetches, writes one file into `out`, and says what came of it.
pub(super) fn run(targets: &Path, out: &Path, plan: &Plan<'_>) -> Result<String> {
    let targets = read_targets(targets)?;
    // Before anything is fetched: a folder that cannot be written would waste it all.
    fs::read_dir(out).map_err(|error| unwritable(out, &error))?;
    let fetches: Vec<(SocketAddr, usize)> = targets
        .iter()
        .flat_map(|target| SIZES.map(|size| (*target, size)))
        .collect();
    let order = shuffled(fetches, &mut random);
    let moments = moments(order.len(), plan.spread, &mut random);
    let begun = Instant::now();
    let (mut text, mut outcomes, mut left_out) = (String::new(), BTreeMap::new(), 0);
    for ((target, size), moment) in order.into_iter().zip(moments) {
        if begun.elapsed() > plan.spread + GRACE {
            left_out += 1;
            continue;
        }
        sleep(moment.saturating_sub(begun.elapsed()));
        let at = since_epoch();
        let found = fetch(target, size, plan.time);
        *outcomes.entry(found.outcome.name()).or_insert(0) += 1;
        text.push_str(&line(at, plan.host, target, size, &found));
    }
    let name = write(out, &text).map_err(|error| unwritable(out, &error))?;
    if left_out > 0 {
        outcomes.insert("left out", left_out);
    }
    let counts: Vec<String> = outcomes
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    Ok(format!(
        "{}: {}",
        out.join(name).display(),
        counts.join(", ")
    ))
}

fn unwritable(out: &Path, error: &io::Error) -> Error {
    let fix = "make the folder, which this user may write to";
    Error::failed(format!(
        "--out {}: {}; {fix}",
        printable(&out.to_string_lossy()),
        reason(error)
    ))
}

fn read_targets(path: &Path) -> Result<Vec<SocketAddr>> {
    let place = printable(&path.to_string_lossy());
    let (_, content) = read_regular(path, MOST_TARGET_BYTES).map_err(|error| {
        let fix = "write one ADDRESS:PORT a line there";
        Error::refused(format!("--targets {place}: {}; {fix}", reason(&error)))
    })?;
    parse(&content).map_err(|problem| Error::refused(format!("--targets {place}{problem}")))
}

/// Each target once, in the order of addresses.
fn parse(content: &[u8]) -> std::result::Result<Vec<SocketAddr>, String> {
    if content.len() > MOST_TARGET_BYTES {
        return Err(format!(
            ": is longer than {MOST_TARGET_BYTES} bytes; probe fewer targets"
        ));
    }
    let mut found = Vec::new();
    for (number, line) in String::from_utf8_lossy(content).lines().enumerate() {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let target: SocketAddr = word.parse().map_err(|_| {
            let shown = printable(word);
            let fix = "write it as 192.0.2.1:8017 or [2001:db8::1]:8017";
            format!(
                ":{}: '{shown}' is not an address with a port; {fix}",
                number + 1
            )
        })?;
        found.push(target);
    }
    found.sort_unstable();
    found.dedup();
    match found.len() {
        0 => Err(": has no target; write one ADDRESS:PORT a line".to_owned()),
        1..=MOST_TARGETS => Ok(found),
        more => Err(format!(
            ": {more} targets are more than {MOST_TARGETS}; one edge of each PoP is enough"
        )),
    }
}

/// Below `most`, which is not 0. Where the kernel has no random numbers yet, 0: nothing here is secret.
fn random(most: u64) -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    u64::from_ne_bytes(bytes) % most
}

fn shuffled<T>(mut items: Vec<T>, random: &mut impl FnMut(u64) -> u64) -> Vec<T> {
    for last in (1..items.len()).rev() {
        let other = random(last as u64 + 1);
        items.swap(last, usize::try_from(other).unwrap_or(last));
    }
    items
}

/// When each of `count` fetches begins at the earliest, in order: edges that begin at once do not stay together.
fn moments(count: usize, spread: Duration, random: &mut impl FnMut(u64) -> u64) -> Vec<Duration> {
    let most = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX).max(1);
    let mut found: Vec<Duration> = (0..count)
        .map(|_| Duration::from_micros(random(most)))
        .collect();
    found.sort_unstable();
    found
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// docs/reference/probes.md; a time that there was not is not there.
fn line(at: Duration, host: &str, target: SocketAddr, size: usize, found: &Fetched) -> String {
    let mut row = json!({
        "time": at.as_secs_f64(),
        "host": host,
        "server": target.ip().to_canonical().to_string(),
        "bytes": size,
        "result": found.outcome.name(),
    });
    let times = [
        ("connect_us", found.connect),
        ("first_byte_us", found.first_byte),
        ("total_us", found.total),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            row[name] = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).into();
        }
    }
    if let Some(window) = found.window {
        row["window"] = window.into();
    }
    format!("{row}\n")
}

/// The file's name. It is there whole or not at all, and what is too much goes.
fn write(out: &Path, text: &str) -> io::Result<String> {
    let name = format!("probes-{}.jsonl", since_epoch().as_secs());
    let new = out.join(format!(".{name}.{}", std::process::id()));
    let written = fs::File::create_new(&new)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&new, out.join(&name)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    let mut files = Vec::new();
    for entry in fs::read_dir(out)?.flatten() {
        let bytes = entry.metadata().map_or(0, |found| found.len());
        files.push((entry.file_name().to_string_lossy().into_owned(), bytes));
    }
    for name in superfluous(files) {
        fs::remove_file(out.join(name))?;
    }
    Ok(name)
}

/// The files to remove, of the folder's names with their bytes. They are the oldest of ours where these are too many or
/// too much, and what a run that was ended left behind. Others' files are not ours to remove.
fn superfluous(mut files: Vec<(String, u64)>) -> Vec<String> {
    fn second(name: &str) -> Option<u64> {
        let digits = name.strip_prefix("probes-")?.strip_suffix(".jsonl")?;
        digits.parse().ok()
    }
    fn is_part(name: &str) -> bool {
        let whole = name
            .strip_prefix('.')
            .and_then(|rest| rest.rsplit_once('.'));
        whole.is_some_and(|(whole, _)| second(whole).is_some())
    }
    files.sort_unstable_by_key(|(name, _)| std::cmp::Reverse(second(name)));
    let (mut count, mut sum) = (0, 0);
    let extra = files.into_iter().filter(|(name, bytes)| {
        if second(name).is_some() {
            count += 1;
            sum += bytes;
            // The newest stays in any case.
            return count > 1 && (count > MOST_FILES || sum > MOST_BYTES);
        }
        is_part(name)
    });
    extra.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{moments, parse, shuffled, superfluous};

    #[test]
    fn targets_are_addresses_each_once() {
        let found = parse(
            b"# ours\n192.0.2.2:8017 # fra\n\n[2001:db8::1]:8017\r\n192.0.2.1:80\n192.0.2.2:8017",
        );
        let shown: Vec<String> = found
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            shown,
            ["192.0.2.1:80", "192.0.2.2:8017", "[2001:db8::1]:8017"]
        );
    }

    #[test]
    fn what_is_not_a_target_is_named_with_its_line() {
        let many: String = (0..501).map(|port| format!("192.0.2.1:{port}\n")).collect();
        for (text, said) in [
            ("192.0.2.1:80\nlocalhost:80", ":2: 'localhost:80' is not"),
            ("192.0.2.1", ":1: '192.0.2.1' is not"),
            ("\x1b[31m:80", "is not an address"),
            ("# nothing\n", "has no target"),
            (&many, "501 targets are more than 500"),
            (&" ".repeat(70_000), "longer than 65536"),
        ] {
            let problem = parse(text.as_bytes()).unwrap_err();
            assert!(problem.contains(said), "{problem}");
            assert!(!problem.contains('\x1b'));
        }
        assert!(parse(b"192.0.2.1:1\n\xff").is_err());
    }

    #[test]
    fn order_and_moments_are_all_of_them_and_within_the_spread() {
        let mut state = 7_u64;
        let mut random = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % most
        };
        let mut order = shuffled((0..100).collect::<Vec<_>>(), &mut random);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
        let spread = Duration::from_secs(60);
        let found = moments(100, spread, &mut random);
        assert!(found.is_sorted() && found.len() == 100);
        assert!(found[0] < spread / 4 && found[99] > spread / 4 * 3 && found[99] < spread);
        assert_eq!(
            moments(2, Duration::ZERO, &mut random),
            [Duration::ZERO, Duration::ZERO]
        );
    }

    #[test]
    fn a_folder_that_nobody_empties_is_bounded() {
        let files = |count: u64, bytes: u64| {
            let named = (1..=count).map(|second| (format!("probes-{second}.jsonl"), bytes));
            named.collect::<Vec<_>>()
        };
        assert!(superfluous(files(240, 1000)).is_empty());
        let mut gone = superfluous(files(242, 1000));
        gone.sort_unstable();
        assert_eq!(gone, ["probes-1.jsonl", "probes-2.jsonl"]);
        assert_eq!(superfluous(files(10, 8_000_000)).len(), 6);
        assert!(
            superfluous(files(1, 99_000_000)).is_empty(),
            "the newest stays"
        );
        let others = [
            "probes-.jsonl",
            "probes-1.jsonl.rejected",
            "xprobes-1.jsonl",
            ".other.1",
        ];
        let mut mixed: Vec<(String, u64)> = others
            .iter()
            .map(|name| ((*name).to_owned(), 99_000_000))
            .collect();
        assert!(superfluous(mixed.clone()).is_empty());
        mixed.push((".probes-9.jsonl.77".to_owned(), 5));
        assert_eq!(superfluous(mixed), [".probes-9.jsonl.77"]);
    }
}
