//! When polls are due: at a fixed interval, each host at its own phase of it, so that a fleet does not poll at once.
//!
//! The wall clock is read once, for the phase; from then on only the monotonic clock counts, so that a clock that jumps
//! moves nothing.

use std::time::{Duration, Instant};

/// The rhythm of polls.
#[derive(Clone, Debug)]
pub struct Schedule {
    phase: u32,
    interval: Duration,
    due: Instant,
    started: bool,
    /// A moment in the host's phase.
    beat: Instant,
}

impl Schedule {
    /// The first poll is due now. The following ones are due when the time since the epoch, `wall` now, divided by
    /// `interval` leaves the host's own remainder.
    pub fn new(host: &str, interval: Duration, now: Instant, wall: Duration) -> Self {
        let phase = phase(host);
        Self {
            phase,
            interval,
            due: now,
            started: false,
            beat: next_beat(phase, interval, now, wall),
        }
    }

    /// When the next poll is due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// A poll has ended: the next one is due at the first beat that is not past, and those that have passed meanwhile are
    /// left out. Returns how many.
    pub fn advance(&mut self, now: Instant) -> u64 {
        if !self.started {
            // The first poll came out of turn: the second keeps some distance.
            self.started = true;
            let near = self.beat < self.due + self.interval / 2;
            self.due = self.beat + if near { self.interval } else { Duration::ZERO };
        } else {
            self.due += self.interval;
        }
        let late = now.saturating_duration_since(self.due);
        let skipped = late.as_nanos().div_ceil(self.interval.as_nanos());
        let skipped = u32::try_from(skipped).unwrap_or(u32::MAX);
        self.due += self.interval * skipped;
        skipped.into()
    }

    /// Goes on with another interval, at its phase.
    pub fn change(&mut self, interval: Duration, now: Instant, wall: Duration) {
        if interval != self.interval {
            self.interval = interval;
            self.due = next_beat(self.phase, interval, now, wall);
        }
    }
}

/// The first moment from `now` on in the phase.
fn next_beat(phase: u32, interval: Duration, now: Instant, wall: Duration) -> Instant {
    let interval = interval.as_nanos();
    let target = (interval * u128::from(phase)) >> 32;
    let since = wall.as_nanos() % interval;
    let left = (interval + target - since) % interval;
    now + Duration::from_nanos(u64::try_from(left).unwrap_or(0))
}

/// The host's place in the interval, in units of 2^-32 of it. The multiplication (Fibonacci hashing) spreads names that
/// differ in their last digit only.
fn phase(host: &str) -> u32 {
    crc32fast::hash(host.as_bytes()).wrapping_mul(0x9e37_79b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A schedule's polls as milliseconds of wall clock time, each taking `took` milliseconds.
    fn polls(host: &str, start: u64, interval: u64, took: &[u64]) -> (Vec<u64>, u64) {
        let now = Instant::now();
        let (interval, wall) = (
            Duration::from_millis(interval),
            Duration::from_millis(start),
        );
        let mut schedule = Schedule::new(host, interval, now, wall);
        let mut skipped = 0;
        let at = took
            .iter()
            .map(|took| {
                let due = schedule.due();
                skipped += schedule.advance(due + Duration::from_millis(*took));
                start + (due - now).as_millis() as u64
            })
            .collect();
        (at, skipped)
    }

    #[test]
    fn the_first_poll_is_now_and_the_others_in_phase_whenever_the_start_was() {
        let phase = (1000 * u64::from(phase("ams-1"))) >> 32;
        for start in [0, 1, 499, 500, 999, 1_767_322_800_123] {
            let (at, skipped) = polls("ams-1", start, 1000, &[10; 5]);
            assert_eq!((at[0], skipped), (start, 0));
            assert!(at[1] - at[0] >= 500 && at[1] - at[0] <= 1500, "{at:?}");
            assert!(
                at[1..].iter().all(|at| at % 1000 == phase),
                "{at:?} {phase}"
            );
            assert!(at[1..].windows(2).all(|pair| pair[1] - pair[0] == 1000));
        }
    }

    #[test]
    fn a_late_poll_leaves_out_what_is_past_and_keeps_the_rhythm() {
        let (on_time, _) = polls("ams-1", 0, 1000, &[0; 8]);
        let (late, skipped) = polls("ams-1", 0, 1000, &[0, 0, 1000, 0, 1001, 3500, 0]);
        let missed = [&on_time[..4], &on_time[4..5], &on_time[6..7]].concat();
        assert_eq!((&late[..6], skipped), (&missed[..], 1 + 3), "{late:?}");
    }

    #[test]
    fn a_fleet_spreads_over_the_interval() {
        let mut tenths = [0; 10];
        for host in 0..1000 {
            let phase = u64::from(phase(&format!("edge-{host}")));
            tenths[((10 * phase) >> 32) as usize] += 1;
        }
        assert!(
            tenths.iter().all(|hosts| (50..=150).contains(hosts)),
            "{tenths:?}"
        );
    }

    #[test]
    fn another_interval_takes_effect_at_once_and_in_its_own_phase() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut schedule = Schedule::new("ams-1", hour, now, Duration::ZERO);
        schedule.advance(now);
        let due = schedule.due();
        schedule.change(hour, now, Duration::ZERO);
        assert_eq!(schedule.due(), due, "the same interval changes nothing");
        schedule.change(SECOND, now, Duration::from_secs(7));
        assert!(schedule.due() - now <= SECOND);
        let first = schedule.due();
        schedule.advance(first);
        assert_eq!(schedule.due(), first + SECOND);
    }
}
