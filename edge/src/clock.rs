//! Time, by the wall clock and by those that count from the boot.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_getres, clock_gettime};

/// Wall clock and time since boot in seconds, and which boot.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Since the epoch.
    pub wall: f64,
    /// Since the boot, suspended time included.
    pub boottime: f64,
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: String,
}

impl Clock {
    /// Now.
    ///
    /// # Errors
    ///
    /// Without /proc.
    pub fn read() -> io::Result<Self> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned();
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let since = clock_gettime(ClockId::Boottime);
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since the boot are far below 2^52"
        )]
        let boottime = since.tv_sec as f64 + since.tv_nsec as f64 / 1e9;
        Ok(Self {
            wall,
            boottime,
            boot_id,
        })
    }

    /// Whole seconds since the epoch.
    #[expect(clippy::cast_possible_truncation, reason = "seconds since the epoch")]
    pub fn now(&self) -> i64 {
        self.wall.floor() as i64
    }

    /// Whether a time is over by the wall clock, or by the time since boot: a clock that was set back keeps nothing alive.
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since the epoch are far below 2^52"
    )]
    pub fn is_past(&self, expires_at: i64, boot_id: &str, boottime_expires: f64) -> bool {
        self.wall >= expires_at as f64
            || (self.boot_id == boot_id && self.boottime >= boottime_expires)
    }
}

/// The wall clock's second, and what CLOCK_BOOTTIME was when it began, in nanoseconds.
pub(crate) fn second() -> (i64, u64) {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    (
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX),
        boot_ns().saturating_sub(u64::from(elapsed.subsec_nanos())),
    )
}

/// CLOCK_BOOTTIME in nanoseconds: it goes on while the host sleeps.
pub(crate) fn boot_ns() -> u64 {
    nanoseconds(ClockId::Boottime)
}

/// CLOCK_MONOTONIC in nanoseconds: it stands still while the host sleeps.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Ticks of the kernel's timers in a second (CONFIG_HZ): its coarse clock goes on with each.
pub(crate) fn hz() -> u32 {
    let tick_ns = clock_getres(ClockId::MonotonicCoarse).tv_nsec.max(1);
    u32::try_from(1_000_000_000 / tick_ns).unwrap_or(0)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn time_is_over_by_whichever_clock_is_first() {
        // Expires at 1000 by the wall, at 500 after the boot "this".
        for (wall, boottime, boot, over) in [
            (999.0, 499.0, "this", false),
            (1000.0, 100.0, "this", true),
            // The wall clock was set back; the time since boot was not.
            (100.0, 500.0, "this", true),
            // After a restart only the wall clock is left.
            (999.0, 9000.0, "other", false),
        ] {
            let clock = Clock {
                wall,
                boottime,
                boot_id: boot.to_owned(),
            };
            assert_eq!(clock.is_past(1000, "this", 500.0), over, "{clock:?}");
        }
    }
}
