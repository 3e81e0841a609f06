//! The hot path: one socket's netlink message to one TcpSample's bytes.

use super::fields::{
    self, BOOT_ID_LIMIT, HOST_LIMIT, NAME_LIMIT, POP_LIMIT, bbr, cgroup_id, class_id, dctcp, mark,
    message, protocol, shutdown, skmem, sockopt, tclass, tcp_info, tos, v6only, vegas,
};
use super::proto::SampleKind;
use super::wire::{RowWriter, SLOT};
use crate::kernel::flights::Flight;
use crate::kernel::inet_diag::{Attribute, SocketView, attribute};
use crate::kernel::starts::{self, Found, Start};
use crate::stats::Stats;

/// Values that all samples of a collector in one namespace share.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The collector's name for its host.
    pub host: String,
    /// The PoP, empty when not given.
    pub pop: String,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Inode of the network namespace.
    pub netns: u64,
}

/// Layout of the last four bytes of a 280-byte tcp_info. Linux 6.18 has two 16-bit numbers there,
/// later kernels repack them into bit fields without changing the length, so that only the kernel's
/// release distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccEcn {
    /// Linux 6.18: accecn_fail_mode and accecn_opt_seen are read.
    TwoNumbers,
    /// A later kernel, or one that is not known: the two fields stay absent.
    Unknown,
}

impl AccEcn {
    /// From `uname -r`, such as "6.18.44-generic". What cannot be parsed is unknown.
    pub fn of_release(release: &str) -> Self {
        let mut parts = release
            .split(|c: char| !c.is_ascii_digit())
            .map(str::parse::<u32>);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) <= (6, 18) => Self::TwoNumbers,
            _ => Self::Unknown,
        }
    }
}

/// Encodes the sockets of one poll.
pub struct Encoder {
    prefix: Vec<u8>,
    info_limit: usize,
    /// The kernel's number of the map in whose storages start values stand.
    starts: Option<u32>,
}

/// Values remembered of a socket for its close event, which does not have them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted<'a> {
    /// The bytes that name its congestion control algorithm.
    pub algorithm: Option<&'a [u8]>,
    /// Its start values.
    pub start: Option<Start>,
}

/// Bytes of tcp_info before the words that kernels lay out differently.
const INFO_BEFORE_ACCECN_WORD: usize = 276;

impl Encoder {
    /// Prepares the bytes that all of the poll's rows share. Names longer than the contract's limits are cut.
    pub fn new(identity: &Identity, poll_sequence: u64, kind: SampleKind, accecn: AccEcn) -> Self {
        let mut slot = [0; SLOT];
        let mut row = RowWriter::new(&mut slot);
        row.varint::<1>(TIME_PLACEHOLDER);
        row.text::<2>(cut(&identity.host, HOST_LIMIT));
        row.text::<3>(cut(&identity.pop, POP_LIMIT));
        row.text::<4>(cut(&identity.boot_id, BOOT_ID_LIMIT));
        row.varint::<5>(identity.netns);
        row.varint::<6>(poll_sequence);
        row.varint::<8>(kind as u32);
        let len = row.len();
        let info_limit = match accecn {
            AccEcn::TwoNumbers => usize::MAX,
            AccEcn::Unknown => INFO_BEFORE_ACCECN_WORD,
        };
        Self {
            prefix: slot[..len].to_vec(),
            info_limit,
            starts: None,
        }
    }

    /// Reads what connections started with from the storages of the map with this number.
    pub fn with_starts(mut self, map: Option<u32>) -> Self {
        self.starts = map;
        self
    }

    /// Makes each row represent `sample_weight` sockets.
    pub fn weighing(mut self, sample_weight: u32) -> Self {
        if sample_weight > 1 {
            let mut slot = [0; SLOT];
            let mut row = RowWriter::new(&mut slot);
            row.varint::<16>(sample_weight);
            let len = row.len();
            self.prefix.extend(&slot[..len]);
        }
        self
    }

    /// Sets the time of the rows that follow, microseconds since the epoch. Times before 1970 and after 4253 are
    /// brought into that range: the field's bytes stay in place.
    pub fn stamp(&mut self, time_unix_us: i64) {
        let value = u64::try_from(time_unix_us).unwrap_or(0).min((1 << 56) - 1);
        for (at, byte) in self.prefix[1..9].iter_mut().enumerate() {
            let more = if at < 7 { 0x80 } else { 0 };
            *byte = (value >> (7 * at) & 0x7f) as u8 | more;
        }
    }

    /// Writes the socket's row into `slot` and returns its length in bytes.
    #[inline]
    pub fn encode(&self, view: &SocketView<'_>, slot: &mut [u8; SLOT], stats: &mut Stats) -> usize {
        self.write(view, &mut RowWriter::new(slot), stats).0
    }

    /// As [`encode`](Self::encode); also gives what is to be remembered of the socket.
    #[inline]
    pub fn encode_noting<'a>(
        &self,
        view: &SocketView<'a>,
        slot: &mut [u8; SLOT],
        stats: &mut Stats,
    ) -> (usize, Noted<'a>) {
        self.write(view, &mut RowWriter::new(slot), stats)
    }

    /// As [`encode`](Self::encode), for a close event: neither the algorithm's name nor what the connection started with
    /// comes with it.
    pub fn encode_close(
        &self,
        view: &SocketView<'_>,
        algorithm: Option<&str>,
        started: Option<&Start>,
        slot: &mut [u8; SLOT],
        stats: &mut Stats,
    ) -> usize {
        let mut row = RowWriter::new(slot);
        let (_, noted) = self.write(view, &mut row, stats);
        if let (None, Some(algorithm)) = (noted.algorithm, algorithm) {
            row.text::<26>(cut(algorithm, NAME_LIMIT));
        }
        if let (None, Some(started)) = (noted.start, started) {
            encode_start(started, &mut row);
            stats.start_values += 1;
        }
        row.len()
    }

    /// Writes the row of a connection's first flights.
    pub fn encode_flight(&self, flight: &Flight, slot: &mut [u8; SLOT]) -> usize {
        let mut row = RowWriter::new(slot);
        row.raw(&self.prefix);
        let header = flight.without_state();
        if let Some(view) = SocketView::parse(&header) {
            message::encode(view.header(), &mut row);
            row.address::<10>(&view.source());
            row.address::<12>(&view.destination());
        }
        let record = &flight.record;
        row.varint::<82>(record.resent);
        row.varint::<85>(record.acked_bytes);
        row.varint::<90>(record.min_rtt_us);
        row.varint::<92>(record.segments);
        row.varint::<101>(record.dsack_dups);
        encode_start(&flight.start, &mut row);
        row.varint::<170>(record.at_once);
        row.varint::<171>(flight.prefix_length);
        row.varint::<172>(record.first_resent);
        happened::<173>(record.handshake_us, &mut row);
        happened::<174>(record.first_us, &mut row);
        happened::<175>(record.acked_10k_us, &mut row);
        happened::<176>(record.acked_50k_us, &mut row);
        happened::<177>(record.acked_100k_us, &mut row);
        happened::<178>(record.lifted_us, &mut row);
        happened::<179>(record.lived_us, &mut row);
        if record.train_bytes > 0 && record.train_us > 0 {
            row.varint::<180>(record.train_bytes);
            row.varint::<181>(record.train_us);
        }
        row.varint::<182>(record.first_segments);
        row.varint::<183>(u32::from(record.handshake_timeout_ms));
        row.varint::<184>(u32::from(record.handshake_resent));
        happened::<185>(record.copied_bytes.into(), &mut row);
        row.len()
    }

    #[inline(always)]
    fn write<'a>(
        &self,
        view: &SocketView<'a>,
        row: &mut RowWriter<'_>,
        stats: &mut Stats,
    ) -> (usize, Noted<'a>) {
        row.raw(&self.prefix);
        message::encode(view.header(), row);
        row.address::<10>(&view.source());
        row.address::<12>(&view.destination());
        let mut seen = 0_u64;
        let mut noted = Noted::default();
        for attribute in view.attributes() {
            let Ok(attribute) = attribute else {
                stats.attributes_malformed += 1;
                break;
            };
            let bit = 1_u64.checked_shl(attribute.kind.into()).unwrap_or(0);
            if seen & bit != 0 {
                stats.attributes_malformed += 1;
                continue;
            }
            seen |= bit;
            if attribute.kind == attribute::CONG {
                noted.algorithm = Some(attribute.payload);
            }
            if attribute.kind == attribute::SK_BPF_STORAGES
                && let Some(map) = self.starts
            {
                noted.start = started(attribute.payload, map, row, stats);
                continue;
            }
            self.attribute(&attribute, row, stats);
        }
        (row.len(), noted)
    }

    #[inline(always)]
    fn attribute(&self, attribute: &Attribute<'_>, row: &mut RowWriter<'_>, stats: &mut Stats) {
        let bytes = attribute.payload;
        match attribute.kind {
            attribute::INFO => {
                row.varint::<50>(bytes.len() as u32);
                if bytes.len() > tcp_info::LEN {
                    stats.tcp_info_longer += 1;
                }
                tcp_info::encode(&bytes[..bytes.len().min(self.info_limit)], row);
            }
            attribute::SKMEMINFO => skmem::encode(bytes, row),
            attribute::CONG => text::<26>(bytes, row, stats),
            attribute::TOS => tos::encode(bytes, row),
            attribute::TCLASS => tclass::encode(bytes, row),
            attribute::SHUTDOWN => shutdown::encode(bytes, row),
            attribute::SKV6ONLY => v6only::encode(bytes, row),
            attribute::CLASS_ID => class_id::encode(bytes, row),
            attribute::CGROUP_ID => cgroup_id::encode(bytes, row),
            attribute::SOCKOPT => sockopt::encode(bytes, row),
            attribute::BBRINFO => bbr::encode(bytes, row),
            attribute::VEGASINFO => vegas::encode(bytes, row),
            attribute::DCTCPINFO => dctcp::encode(bytes, row),
            attribute::MARK => mark::encode(bytes, row),
            attribute::PROTOCOL => protocol::encode(bytes, row),
            attribute::ULP_INFO => match attribute.nested(attribute::ULP_INFO_NAME) {
                Some(name) => text::<35>(name, row, stats),
                None => stats.attributes_skipped += 1,
            },
            attribute::PAD => {}
            _ => stats.attributes_skipped += 1,
        }
    }
}

/// Encodes the start values of the socket, if its storage has them.
#[inline(never)]
fn started(
    attribute: &[u8],
    map: u32,
    row: &mut RowWriter<'_>,
    stats: &mut Stats,
) -> Option<Start> {
    match starts::find(attribute, map) {
        Found::Start(value) => {
            encode_start(&value, row);
            stats.start_values += 1;
            Some(value)
        }
        Found::Nothing => None,
        Found::Unreadable => {
            stats.start_values_unreadable += 1;
            None
        }
    }
}

fn encode_start(start: &Start, row: &mut RowWriter<'_>) {
    row.varint::<160>(start.round);
    row.varint::<161>(start.window);
    row.varint::<162>(start.rate);
    row.varint::<163>(start.arm);
    row.varint::<164>(start.step);
    happened::<165>(start.copied_segments, row);
}

/// A number, absent where it is 0.
fn happened<const NUMBER: u32>(number: u32, row: &mut RowWriter<'_>) {
    if number > 0 {
        row.varint::<NUMBER>(number);
    }
}

/// A kernel name: text up to its NUL. Too long or not UTF-8 is counted and left out: a proto string must be text.
#[inline(always)]
fn text<const NUMBER: u32>(bytes: &[u8], row: &mut RowWriter<'_>, stats: &mut Stats) {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    match std::str::from_utf8(&bytes[..end]) {
        Ok(name) if name.len() <= NAME_LIMIT => row.text::<NUMBER>(name),
        _ => stats.attributes_malformed += 1,
    }
}

fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    &text[..end]
}

/// Any time whose varint has the eight bytes that `stamp` overwrites.
const TIME_PLACEHOLDER: u64 = 1 << 55;

const _: () = assert!(
    fields::by_hand::FIELDS.len() == 13 && fields::flight::FIELDS.len() == 16,
    "a field added by hand must be encoded by hand"
);
