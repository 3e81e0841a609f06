//! Sources that wake the thread: devices, one timer, and signals.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::low_level::pipe;

const NS_PER_S: u64 = 1_000_000_000;
const TIMER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const REPORT: u64 = u64::MAX - 2;
const RELOAD: u64 = u64::MAX - 3;

/// Why the thread woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The device of this index has packets.
    Readable(usize),
    /// The device of this index is gone, and its namespace most likely with it.
    Gone(usize),
    Timer,
    Stop,
    Report,
    Reload,
}

/// One epoll instance over everything.
pub struct Wake {
    epoll: OwnedFd,
    timer: OwnedFd,
    report: UnixStream,
    reload: UnixStream,
    _stop: UnixStream,
    armed: Option<u64>,
    events: Vec<Event>,
}

/// The monotonic clock in nanoseconds; the timer runs on the same.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

/// The wall clock in nanoseconds since the epoch.
pub fn wall_clock() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

impl Wake {
    /// Signals are caught from here on.
    pub fn new(devices: &[File]) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let stop = caught(&[SIGTERM, SIGINT])?;
        let report = caught(&[SIGUSR1])?;
        let reload = caught(&[SIGHUP])?;
        for (index, device) in devices.iter().enumerate() {
            epoll::add(
                &epoll,
                device,
                EventData::new_u64(index as u64),
                EventFlags::IN,
            )?;
        }
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        epoll::add(&epoll, &report, EventData::new_u64(REPORT), EventFlags::IN)?;
        epoll::add(&epoll, &reload, EventData::new_u64(RELOAD), EventFlags::IN)?;
        let events = Vec::with_capacity(devices.len() + 4);
        Ok(Self {
            epoll,
            timer,
            report,
            reload,
            _stop: stop,
            armed: None,
            events,
        })
    }

    /// Sleeps until something happens.
    pub fn wait(&mut self) -> io::Result<Vec<Cause>> {
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let causes: Vec<Cause> = self.events.iter().map(cause).collect();
        if causes.contains(&Cause::Timer) {
            self.armed = None;
            // Reading clears the expiry; it is empty when the timer was set anew in between.
            let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        }
        if causes.contains(&Cause::Report) {
            let _ = self.report.read(&mut [0; 64])?;
        }
        if causes.contains(&Cause::Reload) {
            let _ = self.reload.read(&mut [0; 64])?;
        }
        Ok(causes)
    }

    /// Wakes at this time, or by itself never. A time in the past wakes at once.
    pub fn wake_at(&mut self, due: Option<u64>) -> io::Result<()> {
        let Some(due) = due else { return Ok(()) };
        // An earlier time that has become needless costs one wake-up; a later one would be too late.
        if self.armed.is_some_and(|armed| armed <= due) {
            return Ok(());
        }
        // A time of zero would disarm the timer.
        let due = due.max(1);
        let it_value = Timespec {
            tv_sec: (due / NS_PER_S) as i64,
            tv_nsec: (due % NS_PER_S) as i64,
        };
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.armed = Some(due);
        Ok(())
    }

    /// Listens to a device no longer.
    pub fn forget(&self, device: &File) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, device)?)
    }
}

fn cause(event: &Event) -> Cause {
    // struct epoll_event is packed: its fields cannot be borrowed.
    let (source, flags) = (event.data.u64(), event.flags);
    match source {
        TIMER => Cause::Timer,
        STOP => Cause::Stop,
        REPORT => Cause::Report,
        RELOAD => Cause::Reload,
        index if flags.contains(EventFlags::ERR) => Cause::Gone(index as usize),
        index => Cause::Readable(index as usize),
    }
}

fn caught(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}
