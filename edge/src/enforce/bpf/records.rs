//! First-flight records, from the ring buffer.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ipnet::IpNet;
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use serde::Serialize;
use zerocopy::FromBytes;

use super::error::{Result, failed, plain};
use super::pins::{self, Places};
use super::prefixes::{address_of, cut, net_of};
use springtide_core::layout::{self, LAYOUT, Prefix};

/// Course of a connection's first flights, recorded as it closed. Times in microseconds since it
/// was established, late by up to a round trip, because the program looks once in each; None: it
/// did not happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// The socket's cookie, as in samples.
    pub cookie: u64,
    /// CLOCK_BOOTTIME when it closed, nanoseconds.
    pub closed_ns: u64,
    /// Number of the application that it started under.
    pub generation: u64,
    /// The bundle's round.
    pub round: i64,
    /// Inode of the network namespace.
    pub netns: u64,
    /// This host's end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The entry that matched.
    pub prefix: Option<IpNet>,
    /// Segments that were set; None is the kernel's default.
    pub window: Option<u32>,
    /// Bytes/s that were set, its share of the entry's; None is no cap.
    pub rate: Option<u32>,
    /// Divisor of the entry's rate; 0 without a rate, or where nothing was sent.
    pub at_once: u32,
    /// It had the trial's values.
    pub trial: bool,
    /// The brake's step when it started.
    pub brake_step: u8,
    /// Segments of the first flights that were sent again.
    pub first_resent: u32,
    /// Segments with data that were sent in the first flights.
    pub first_segments: u32,
    /// Segments that were sent again until it closed.
    pub resent: u32,
    /// Segments with data that were sent.
    pub segments: u32,
    /// Round trip of the handshake.
    pub handshake_us: u32,
    /// Timeout of the handshake, milliseconds; None is the kernel's.
    pub handshake_timeout_ms: Option<u16>,
    /// SYNs or SYN-ACKs of this host that were sent again.
    pub handshake_resent: u8,
    /// Bytes of its beginning that were sent twice; None is none.
    pub copied_bytes: Option<u16>,
    /// Segments that were sent twice.
    pub copied_segments: u16,
    /// Segments that the other end got twice.
    pub dsack_dups: u32,
    /// Least round trip.
    pub min_rtt_us: u32,
    /// First data acknowledged.
    pub first_us: Option<u32>,
    /// 10 kB acknowledged.
    pub acked_10k_us: Option<u32>,
    /// 50 kB acknowledged.
    pub acked_50k_us: Option<u32>,
    /// 100 kB acknowledged.
    pub acked_100k_us: Option<u32>,
    /// The cap was lifted.
    pub lifted_us: Option<u32>,
    /// It closed.
    pub lived_us: u32,
    /// Bytes of its first segments, which the kernel sends at once, that were delivered after the first of them.
    pub train_bytes: Option<u32>,
    /// In so many microseconds.
    pub train_us: Option<u32>,
    /// Bytes acknowledged until it closed.
    pub acked_bytes: u64,
}

fn happened(value: u32) -> Option<u32> {
    (value > 0).then_some(value)
}

impl From<&layout::Record> for Record {
    fn from(raw: &layout::Record) -> Self {
        let end =
            |address, port| SocketAddr::new(address_of(address), u16::try_from(port).unwrap_or(0));
        let remote = Prefix {
            length: 128,
            address: raw.remote,
        };
        Self {
            cookie: raw.cookie,
            closed_ns: raw.closed_ns,
            generation: raw.generation,
            round: raw.round,
            local: end(raw.local, raw.local_port),
            remote: end(raw.remote, raw.remote_port),
            prefix: net_of(&cut(&remote, raw.length)),
            window: happened(raw.window),
            rate: happened(raw.rate),
            at_once: raw.at_once,
            trial: raw.arm > 0,
            brake_step: raw.step,
            first_resent: raw.first_resent,
            first_segments: raw.first_segments,
            resent: raw.resent,
            segments: raw.segments,
            handshake_us: raw.handshake_us,
            handshake_timeout_ms: (raw.handshake_timeout_ms > 0)
                .then_some(raw.handshake_timeout_ms),
            handshake_resent: raw.handshake_resent,
            copied_bytes: (raw.copied_bytes > 0).then_some(raw.copied_bytes),
            copied_segments: raw.copied_segments,
            dsack_dups: raw.dsack_dups,
            min_rtt_us: raw.min_rtt_us,
            first_us: happened(raw.first_us),
            acked_10k_us: happened(raw.acked_10k_us),
            acked_50k_us: happened(raw.acked_50k_us),
            acked_100k_us: happened(raw.acked_100k_us),
            lifted_us: happened(raw.lifted_us),
            lived_us: raw.lived_us,
            train_bytes: happened(raw.train_bytes),
            train_us: happened(raw.train_us).filter(|_| raw.train_bytes > 0),
            acked_bytes: raw.acked_bytes,
            netns: raw.netns,
        }
    }
}

/// The one reader of the ring buffer: a second one would take records from the first.
pub struct Reader {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<Record>>>,
}

impl Reader {
    /// Opens the pinned ring buffer.
    pub fn open(places: &Places) -> Result<Self> {
        let set = places.set();
        let map = pins::map(&set, "records")?;
        let read = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&read);
        let wrong = |error: &libbpf_rs::Error| {
            failed(
                "cannot read",
                &set.join("records"),
                plain(error),
                "apply a bundle again",
            )
        };
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |bytes| {
                // Another version's record has another size or number.
                if let Some(raw) = layout::Record::read_from_bytes(bytes)
                    .ok()
                    .filter(|raw| raw.layout == LAYOUT)
                {
                    kept.borrow_mut().push(Record::from(&raw));
                }
                0
            })
            .map_err(|error| wrong(&error))?;
        let ring = builder.build().map_err(|error| wrong(&error))?;
        Ok(Self { ring, read })
    }

    /// Waits for records; what is there is taken out of the ring buffer.
    pub fn read(&self, patience: Duration) -> Result<Vec<Record>> {
        self.ring.poll(patience).map_err(|error| {
            super::error::Error::Failed(format!(
                "cannot read the records: {}: open them again",
                plain(&error)
            ))
        })?;
        Ok(self.read.take())
    }
}
