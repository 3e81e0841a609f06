//! The pcap file format, as far as captures of netlink use it.
//!
//! By hand: `decode` promises the offset of everything that cannot be read, memory that the longest packet bounds, and
//! every socket before the place where a capture breaks off. pcap-file gives no offsets. pcap-parser counts the bytes that
//! it has consumed, but the checks of link type, byte order and claimed length would stay here, and they are most of this.

use std::io::{self, Read};

/// Length of a packet's header, bytes.
pub(crate) const PACKET_HEADER: usize = 16;
/// Length of the cooked header that LINKTYPE_NETLINK puts before each datagram, bytes; its last two are the netlink
/// family, big-endian.
pub const COOKED_HEADER: usize = 16;

const FILE_HEADER: usize = 24;
const LINKTYPE_NETLINK: u32 = 253;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;

/// Longest packet accepted, bytes: four times the snap length that is tcpdump's default.
const PACKET_LIMIT: usize = 1 << 20;

/// Why a capture cannot be read, and where in the file.
#[derive(Debug, thiserror::Error)]
#[error("offset {offset}: {what}")]
pub struct PcapError {
    /// Bytes from the file's start.
    pub offset: u64,
    /// The fault there.
    pub what: String,
}

/// One packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Where its header begins in the file.
    pub offset: u64,
    /// When it was captured, microseconds since the epoch.
    pub time_unix_us: i64,
    /// Whether the capture holds only its beginning.
    pub truncated: bool,
    /// Its bytes, cooked header included.
    pub bytes: &'a [u8],
}

/// Reads a capture packet by packet, in memory that the longest packet bounds.
pub struct PcapReader<R> {
    input: R,
    offset: u64,
    nanoseconds: bool,
    packet: Vec<u8>,
}

impl<R: Read> PcapReader<R> {
    /// Reads the file's header.
    pub fn new(mut input: R) -> Result<Self, PcapError> {
        let mut header = [0; FILE_HEADER];
        let got = fill(&mut input, &mut header).map_err(|error| unreadable(0, &error))?;
        let error = |offset, what: String| Err(PcapError { offset, what });
        if got < 4 {
            return error(
                0,
                format!("the file has {got} bytes: this is not a pcap file"),
            );
        }
        let magic = word(&header, 0);
        let nanoseconds = match magic {
            MAGIC_MICROSECONDS => false,
            MAGIC_NANOSECONDS => true,
            MAGIC_PCAPNG => {
                return error(
                    0,
                    "this is a pcapng file: convert it with editcap -F pcap".to_owned(),
                );
            }
            _ if matches!(magic.swap_bytes(), MAGIC_MICROSECONDS | MAGIC_NANOSECONDS) => {
                let what = "the capture comes from a machine of the other byte order, and so do the kernel structures in \
                            it: decode it on such a machine";
                return error(0, what.to_owned());
            }
            _ => {
                return error(
                    0,
                    format!("this is not a pcap file: it begins with {magic:#010x}"),
                );
            }
        };
        if got < FILE_HEADER {
            return error(
                got as u64,
                format!("the file ends inside its header of {FILE_HEADER} bytes"),
            );
        }
        // The upper bits show whether frames carry a checksum; the type itself has 28.
        let link = word(&header, 20) & 0x0fff_ffff;
        if link != LINKTYPE_NETLINK {
            let what = format!(
                "the capture's link type is {link}, that of netlink is {LINKTYPE_NETLINK}: capture on nlmon"
            );
            return error(20, what);
        }
        Ok(Self {
            input,
            offset: FILE_HEADER as u64,
            nanoseconds,
            packet: Vec::new(),
        })
    }

    /// The next packet; None at the file's end.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, PcapError> {
        let offset = self.offset;
        let mut header = [0; PACKET_HEADER];
        let got = fill(&mut self.input, &mut header).map_err(|error| unreadable(offset, &error))?;
        if got == 0 {
            return Ok(None);
        }
        if got < PACKET_HEADER {
            let what = format!(
                "the file ends inside a packet's header: {got} of {PACKET_HEADER} bytes are there"
            );
            return Err(PcapError { offset, what });
        }
        let (seconds, fraction) = (word(&header, 0), word(&header, 4));
        let (captured, original) = (word(&header, 8) as usize, word(&header, 12) as usize);
        if captured > PACKET_LIMIT {
            let what = format!(
                "a packet claims {captured} bytes, more than {PACKET_LIMIT}: the file is damaged here"
            );
            return Err(PcapError { offset, what });
        }
        self.packet.resize(captured, 0);
        let got =
            fill(&mut self.input, &mut self.packet).map_err(|error| unreadable(offset, &error))?;
        if got < captured {
            let what =
                format!("the file ends inside a packet: {got} of {captured} bytes are there");
            return Err(PcapError { offset, what });
        }
        self.offset = offset + (PACKET_HEADER + captured) as u64;
        let microseconds = if self.nanoseconds {
            fraction / 1000
        } else {
            fraction
        };
        Ok(Some(Packet {
            offset,
            time_unix_us: i64::from(seconds) * 1_000_000 + i64::from(microseconds),
            truncated: captured < original,
            bytes: &self.packet,
        }))
    }
}

fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn unreadable(offset: u64, error: &io::Error) -> PcapError {
    PcapError {
        offset,
        what: format!("cannot read the file: {error}"),
    }
}

/// Reads until `buffer` is full or the input ends, and returns how much was read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
