//! Reads the records of first flights that springtide-edge's eBPF program leaves, and makes rows of them.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use rustix::event::epoll;

use super::{PollError, Poller, encoder, system};
use crate::kernel::flights::Flight;
use crate::kernel::host::{now_unix_us, uptime_ns};
use crate::kernel::inet_diag::SocketView;
use crate::kernel::pin::Pin;
use crate::kernel::ring::Ring;
use crate::kernel::starts::Start;
use crate::read::sampling::spread;
use crate::sample::encode::{Encoder, Identity};
use crate::sample::proto::SampleKind;
use crate::sinks::{Sink, SinkError};
use crate::stats::Stats;

use super::settings::{Scope, Settings};
use super::watched::Out;

/// Most records that are read before the close events' turn.
const TURN: u64 = 256;

/// Records whose values are remembered at most.
const RECORDED: usize = 8192;

/// Mark of records among the epoll's events, which else are inodes of namespaces.
pub(super) const RECORDS: u64 = 0;

/// The ring buffer, and the encoder of the namespace that the last record came from.
pub(super) struct Flights {
    pin: Pin<Ring>,
    /// Namespace and poll of the rows that it makes.
    encoder: Option<(u64, u64, Encoder)>,
    /// Values of the last records, by cookie: the close events of their connections follow, and no poll may have seen these.
    pub(super) recorded: HashMap<u64, Start>,
}

impl Flights {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            pin: Pin::new(directory),
            encoder: None,
            recorded: HashMap::new(),
        }
    }
}

impl Poller {
    /// Looks whether another ring buffer is pinned, and waits for its records too.
    pub(super) fn look_for_flights(&mut self) -> Result<(), PollError> {
        if self.flights.pin.look()
            && let Some(ring) = self.flights.pin.get()
        {
            let events = epoll::EventFlags::IN;
            // The previous ring buffer has left with its descriptor.
            epoll::add(
                &self.epoll,
                ring,
                epoll::EventData::new_u64(RECORDS),
                events,
            )
            .map_err(|errno| system("watch for records")(io::Error::from(errno)))?;
        }
        self.notices
            .refused("how first flights went", self.flights.pin.refusal());
        Ok(())
    }

    /// Reads a turn of records and returns how many there were.
    pub(super) fn drain_flights(
        &mut self,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<u64, SinkError> {
        let Flights {
            pin,
            encoder: last,
            recorded,
        } = &mut self.flights;
        let Some(ring) = pin.get_mut() else {
            return Ok(0);
        };
        let (now_us, now_ns) = (now_unix_us(), uptime_ns());
        let mut out = Out {
            batch: &mut self.batch,
            algorithms: &mut self.algorithms,
            settings: &self.settings,
            sink,
        };
        ring.drain(TURN, |record| {
            let Some(flight) = Flight::parse(record) else {
                stats.flights_unreadable += 1;
                return Ok(());
            };
            if !is_wanted(&flight, &self.identity, out.settings, stats) {
                return Ok(());
            }
            if recorded.len() >= RECORDED {
                recorded.clear();
            }
            recorded.insert(flight.record.cookie, flight.start);
            let whose = (flight.record.netns, self.sequence);
            if last
                .as_ref()
                .is_none_or(|(netns, poll, _)| (*netns, *poll) != whose)
            {
                let identity = Identity {
                    netns: flight.record.netns,
                    ..self.identity.clone()
                };
                let kind = SampleKind::FirstFlight;
                let made = encoder(&identity, self.sequence, kind, self.accecn, out.settings);
                *last = Some((whose.0, whose.1, made));
            }
            if let Some((_, _, encoder)) = last {
                let age_us = now_ns.saturating_sub(flight.record.closed_ns) / 1000;
                encoder.stamp(now_us.saturating_sub_unsigned(age_us));
                out.batch.push(|slot| encoder.encode_flight(&flight, slot));
            }
            stats.rows += 1;
            stats.flight_rows += 1;
            out.settle(stats)
        })
    }
}

/// Whether a record becomes a row; counts why not.
fn is_wanted(flight: &Flight, own: &Identity, settings: &Settings, stats: &mut Stats) -> bool {
    let Some(view) = SocketView::parse(&flight.header) else {
        stats.flights_unreadable += 1;
        return false;
    };
    let elsewhere = settings.scope == Scope::Own && flight.record.netns != own.netns;
    let filter = settings.filter.as_ref();
    if elsewhere || filter.is_some_and(|filter| !filter.matches(&view)) {
        stats.flights_filtered += 1;
        return false;
    }
    if !settings.sampling.takes(spread(view.cookie())) {
        stats.sockets_sampled_out += 1;
        return false;
    }
    true
}
