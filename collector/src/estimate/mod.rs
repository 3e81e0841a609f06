//! Saving of a start at the proved rate, from this host's own connections: no file, no store.
//!
//! [`seen`] remembers what samples show of each connection, [`paths`] makes a path of each group of
//! destinations ([`names`]), [`gain`] and [`resample`] are its arithmetic, [`view`] shows it; this
//! module watches.

mod gain;
mod names;
mod paths;
mod resample;
mod seen;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use self::names::Names;
use self::paths::estimates;
use self::seen::Seen;
use crate::config::Estimate as Options;
use crate::kernel::host::now_unix_us;
use crate::operate::signals::{Request, Signals};
use crate::read::poller::{PollError, Poller};
use crate::read::sequence;
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::sinks::{Sink, SinkError, rows};
use crate::stats::Stats;

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EstimateError {
    /// A file that says which destinations belong together cannot be used.
    #[error("{0}")]
    Names(String),
    /// The sockets could not be read.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// Signals or output failed.
    #[error("cannot write the estimate: {0}")]
    Output(#[from] io::Error),
    /// Nothing was sent.
    #[error(
        "in {watched} {}: watch for longer (--for), or where data is sent{}",
        none_of(*connections, *local),
        including(*local)
    )]
    Nothing {
        /// For how long it watched.
        watched: String,
        /// Connections that were seen and count.
        connections: usize,
        /// Connections of this host to itself.
        local: usize,
    },
}

fn none_of(connections: usize, local: usize) -> String {
    match connections {
        0 if local > 0 => "no connection to another host was seen".to_owned(),
        0 => "no connection was seen".to_owned(),
        1 => "the one connection that was seen sent too little to show a rate".to_owned(),
        _ => format!("none of {connections} connections sent enough to show a rate"),
    }
}

fn including(local: usize) -> String {
    if local > 0 {
        format!("; {local} {}", view::LOCAL)
    } else {
        String::new()
    }
}

/// Watches until the time is over or a signal ends it, then writes what it would save.
pub(crate) fn estimate(
    poller: Poller,
    options: &Options,
    stats: &mut Stats,
    out: &mut dyn Write,
) -> Result<(), EstimateError> {
    let names = Names::read(options.fleet.as_deref(), options.asn.as_deref())
        .map_err(EstimateError::Names)?;
    let mut seen = Gathered(Seen::new(now_unix_us(), options.local));
    let watched = watch(poller, options, &mut seen, stats)?;
    let found = estimates(&seen.0, &names);
    if options.json {
        view::json(&found, &seen.0, watched, options.top.get(), out)?;
    } else if !found.known.is_empty() {
        view::table(&found, &seen.0, watched, options.top.get(), out)?;
    }
    out.flush()?;
    if found.known.is_empty() {
        return Err(EstimateError::Nothing {
            watched: view::seconds(watched),
            connections: seen.0.connections().count(),
            local: seen.0.local(),
        });
    }
    Ok(())
}

/// For how long it watched.
fn watch(
    mut poller: Poller,
    options: &Options,
    seen: &mut Gathered,
    stats: &mut Stats,
) -> Result<Duration, EstimateError> {
    let reporter = Reporter::new(|_, text| {
        erase();
        let _ = writeln!(io::stderr(), "springtide-collector: {text}");
    });
    let mut signals = Signals::listen()?;
    let begun = Instant::now();
    let until = begun + options.time;
    let mut due = begun;
    loop {
        let result = poller.poll(sequence::of_single_poll(), seen, stats);
        if let Some(error) = survived(result, due == begun)? {
            stats.polls_failed += 1;
            reporter.complain(format!("a poll failed: {error}"));
        }
        seen.0.watch();
        notices(&mut poller, &reporter);
        progress(begun, options.time, seen.0.len());
        if due >= until || matches!(signals.request(), Some(Request::Stop)) {
            break;
        }
        due = (due + options.interval).max(Instant::now()).min(until);
        poller.wait(due, signals.as_fd(), seen, stats)?;
    }
    poller.settle(seen, stats)?;
    notices(&mut poller, &reporter);
    reporter.finish();
    erase();
    Ok(begun.elapsed())
}

/// As in `run`: a poll that fails after the first has succeeded does not end it, which would lose what was seen; the next one
/// may see the rest.
fn survived(result: Result<(), PollError>, is_first: bool) -> Result<Option<PollError>, PollError> {
    match result {
        Ok(()) => Ok(None),
        Err(error) if is_first || matches!(error, PollError::Sink(_)) => Err(error),
        Err(error) => Ok(Some(error)),
    }
}

/// Reports what is not read: the estimate is of the rest.
fn notices(poller: &mut Poller, reporter: &Reporter) {
    for notice in poller.notices() {
        reporter.complain(notice);
    }
}

/// On a terminal only; what is on standard error need not be read.
fn progress(begun: Instant, time: Duration, connections: usize) {
    if io::stderr().is_terminal() {
        let (done, all) = (begun.elapsed().as_secs(), time.as_secs());
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{done} of {all} s, {connections} connections; Ctrl-C ends it earlier"
        );
    }
}

fn erase() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

/// Takes what the poller reads.
struct Gathered(Seen);

impl Sink for Gathered {
    fn write(&mut self, message: Message<'_>, _: &mut Stats) -> Result<(), SinkError> {
        rows(message)?
            .row
            .iter()
            .for_each(|sample| self.0.take(sample));
        Ok(())
    }

    fn end_poll(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }
}
