//! Cost of the process, as /proc/self has it (proc_pid_stat(5)).

use std::fs;
use std::time::Duration;

use super::metrics::Process;
use crate::kernel::host;
use crate::operate::run::wall_clock;

/// Reads what can be read of it; zero for what cannot.
pub(super) fn read() -> Process {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let uptime = Duration::from_nanos(host::uptime_ns());
    Process {
        open_fds: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        ..parse(&stat, wall_clock().saturating_sub(uptime))
    }
}

/// The kernel counts in ticks of 10 ms towards user space on every architecture (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

const PAGE: u64 = 4096;

fn parse(stat: &str, booted: Duration) -> Process {
    // The name before the parenthesis may hold anything.
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    // proc_pid_stat(5) counts from 1, with the process id and the name before these.
    let field = |number: usize| {
        fields
            .get(number - 3)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let ticks = |count: u64| TICK * u32::try_from(count).unwrap_or(u32::MAX);
    Process {
        cpu: ticks(field(14)) + ticks(field(15)),
        resident_bytes: field(24) * PAGE,
        open_fds: 0,
        started: booted + ticks(field(22)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 2 0 1000 9000 300 18446744073709551615";
        let process = parse(stat, Duration::from_secs(100));
        assert_eq!(process.cpu, Duration::from_secs(4));
        assert_eq!(process.resident_bytes, 300 * 4096);
        assert_eq!(process.started, Duration::from_secs(110));
        assert_eq!(parse("", Duration::ZERO).resident_bytes, 0);
    }

    #[test]
    fn this_process_is_there() {
        let process = read();
        assert!(process.resident_bytes > 1 << 20 && process.open_fds > 2);
        assert!(process.started < wall_clock() && !process.started.is_zero());
    }
}
