//! Polls keep their rhythm, whatever happens to the process.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use springtide_collector::parts::Schedule;

use crate::common::{Ended, Running, json_lines, program, wait_until};

/// This namespace only, files that are soon complete, and no rows but those of polls.
const PLAIN: [&str; 5] = [
    "--netns",
    "own",
    "--rotate-interval",
    "200ms",
    "--no-closes",
];

/// Starts it.
pub fn start(command: Command, more: &[&str]) -> Running {
    Running::start(command, &[&PLAIN, more].concat())
}

/// When each poll was, microseconds since the epoch by its number.
pub fn polls(samples: &[Value]) -> BTreeMap<u64, i64> {
    let mut polls = BTreeMap::new();
    for sample in samples {
        let number = sample["poll_sequence"].as_u64().unwrap();
        let time = sample["time_unix_us"].as_i64().unwrap();
        polls
            .entry(number)
            .and_modify(|first: &mut i64| *first = time.min(*first))
            .or_insert(time);
    }
    polls
}

/// Each beat within `elapsed` is a poll or is counted as skipped, and there is no other poll: one may be out of turn at the
/// start, and one is under way at the end.
pub fn beats_are_polls_or_counted(ended: &Ended, interval: Duration, elapsed: Duration) {
    let counted = ended.count("polls") + ended.count("polls_skipped");
    let most = u64::try_from(elapsed.as_nanos() / interval.as_nanos()).unwrap();
    assert!(counted <= most + 2, "{counted} in {elapsed:?}");
    let polls = polls(&ended.samples);
    assert_eq!(ended.count("polls"), polls.len() as u64);
    let (first, last) = (polls.keys().next().unwrap(), polls.keys().last().unwrap());
    assert_eq!(
        last - first + 1,
        polls.len() as u64,
        "numbers rise by one: {polls:?}"
    );
}

#[test]
fn a_poll_that_comes_too_late_is_counted_and_not_made_up_for() {
    let _socket = TcpListener::bind("127.0.0.1:0").unwrap();
    // Every poll of the first one takes about as long as its interval; the second one is held for many.
    for (interval, held) in [(1, 0), (20, 600)] {
        let begun = Instant::now();
        let text = format!("{interval}ms");
        let running = start(program(), &["--interval", &text]);
        running.wait_for_rows();
        let pid = Pid::from_raw(running.pid().cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let before = running.samples().len();
        std::thread::sleep(Duration::from_millis(held));
        kill_process(pid, Signal::CONT).unwrap();
        wait_until("polls after the halt", || {
            running.samples().len() > before + 10
        });
        let ended = running.end();
        beats_are_polls_or_counted(&ended, Duration::from_millis(interval), begun.elapsed());
        let times: Vec<_> = polls(&ended.samples).into_values().collect();
        let span = u64::try_from(times.last().unwrap() - times[0]).unwrap() / 1000;
        let counted = ended.count("polls") + ended.count("polls_skipped");
        assert!(counted + 1 >= span / interval, "{counted} in {span} ms");
        assert!(ended.count("polls_skipped") + 2 >= held / interval);
        assert!(times.is_sorted(), "{times:?}");
    }
}

/// The host's place in the interval, as the schedule has it.
fn phase(host: &str, interval: Duration) -> Duration {
    let now = Instant::now();
    let mut schedule = Schedule::new(host, interval, now, Duration::ZERO);
    schedule.advance(now);
    let nanos = (schedule.due() - now).as_nanos() % interval.as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap())
}

#[test]
fn hosts_poll_at_phases_of_their_own() {
    let _socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let interval = Duration::from_millis(200);
    // Two whose phases are far apart: one rhythm for all cannot serve both.
    let names = (0..).map(|number| format!("edge-{number}"));
    let mut hosts = names.map(|name| (phase(&name, interval), name));
    let first = hosts.next().unwrap();
    let apart = interval / 3..interval * 2 / 3;
    let second = hosts.find(|(phase, _)| apart.contains(&phase.abs_diff(first.0)));
    for (phase, host) in [first, second.unwrap()] {
        // A loaded machine may be late, but not always.
        wait_until("a poll in the host's phase", || {
            let output = program()
                .args(["run", "--netns", "own", "--print", "json", "--interval"])
                .args(["200ms", "--polls", "4", "--host", &host])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let polls = polls(&json_lines(&output));
            // The first one is out of turn.
            polls.into_values().skip(1).any(|time| {
                let time = Duration::from_micros(time.cast_unsigned());
                let late = (time - phase).as_nanos() % interval.as_nanos();
                late < interval.as_nanos() / 6
            })
        });
    }
}
