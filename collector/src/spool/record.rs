//! One record: a 20-byte header and a message, compressed.
//!
//! All integers little-endian: 0..4 marker "STB1"; 4 codec (0 none, 1 zstd); 5..8 zero; 8..12 rows; 12..16 payload
//! length; 16..20 CRC-32 (IEEE) of header bytes 4..16 and the payload. The payload is a varint length and an Envelope.

use std::io::{self, Read};

use prost::Message as _;
use zstd::bulk::Compressor;

use crate::sample::batch::Message;
use crate::sample::proto::Envelope;

/// Beginning of every record.
pub(crate) const MARKER: [u8; 4] = *b"STB1";
/// Length of a record's header, bytes.
pub(crate) const HEADER: usize = 20;
/// Largest payload, bytes.
pub(crate) const PAYLOAD_LIMIT: usize = 16 << 20;
/// Largest payload when decompressed, bytes.
pub(crate) const MESSAGE_LIMIT: usize = 64 << 20;

/// Level 1 takes half the time of level 3 for 8 % more bytes (measured on a real batch).
const LEVEL: i32 = 1;

/// Compression of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Not at all.
    None = 0,
    /// Zstandard.
    Zstd = 1,
}

/// A record's header, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Compression of the payload.
    pub codec: Codec,
    /// Rows in the message.
    pub rows: u32,
    /// Length of the payload, bytes.
    pub payload: usize,
    checksum: u32,
}

impl Header {
    /// None when the bytes are not a header: marker, codec, zeros or a length beyond the limit.
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let codec = match bytes[4] {
            0 => Codec::None,
            1 => Codec::Zstd,
            _ => return None,
        };
        let payload = word(12) as usize;
        (bytes[..4] == MARKER && bytes[5..8] == [0; 3] && payload <= PAYLOAD_LIMIT).then(|| Self {
            codec,
            rows: word(8),
            payload,
            checksum: word(16),
        })
    }

    /// Length of header and payload, bytes.
    pub(crate) fn record(&self) -> u64 {
        (HEADER + self.payload) as u64
    }

    /// CRC-32 of header and payload.
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Whether `payload` is what the header was made for.
    pub(crate) fn matches(&self, header: &[u8; HEADER], payload: &[u8]) -> bool {
        checksum(header, payload) == self.checksum
    }
}

fn checksum(header: &[u8; HEADER], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[4..16]);
    hasher.update(payload);
    hasher.finalize()
}

/// Makes records, with buffers that are used again.
pub(crate) struct RecordWriter {
    compressor: Compressor<'static>,
    record: Vec<u8>,
}

impl RecordWriter {
    /// Fails when there is no memory for the compressor.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(LEVEL)?,
            record: Vec::new(),
        })
    }

    /// The message as one compressed record.
    pub(crate) fn record(&mut self, message: Message<'_>) -> io::Result<&[u8]> {
        self.record_as(message, Codec::Zstd)
    }

    /// The message as one record.
    pub(crate) fn record_as(&mut self, message: Message<'_>, codec: Codec) -> io::Result<&[u8]> {
        self.record.clear();
        let payload = match codec {
            Codec::None => {
                self.record.resize(HEADER, 0);
                self.record.extend_from_slice(message.bytes);
                message.bytes.len()
            }
            Codec::Zstd => {
                let bound = zstd::zstd_safe::compress_bound(message.bytes.len());
                self.record.resize(HEADER + bound, 0);
                self.compressor
                    .compress_to_buffer(message.bytes, &mut self.record[HEADER..])?
            }
        };
        self.record.truncate(HEADER + payload);
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&MARKER);
        header[4] = codec as u8;
        header[8..12].copy_from_slice(&message.rows.to_le_bytes());
        header[12..16].copy_from_slice(&(payload as u32).to_le_bytes());
        let sum = checksum(&header, &self.record[HEADER..]);
        header[16..].copy_from_slice(&sum.to_le_bytes());
        self.record[..HEADER].copy_from_slice(&header);
        Ok(&self.record)
    }
}

/// Why a payload cannot be used although its checksum is right.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PayloadError {
    /// It is not encoded as its codec requires.
    #[error("the payload does not decompress")]
    Compression,
    /// It is larger than a reader accepts.
    #[error("the payload decompresses to more than {MESSAGE_LIMIT} bytes")]
    TooLarge,
    /// It is not one Envelope with its length before it.
    #[error("the payload is not one message")]
    Message,
    /// Its number of rows is not that of its header.
    #[error("the payload has {found} rows and its header says {claimed}")]
    Rows {
        /// Rows in the payload.
        found: usize,
        /// Rows in the header.
        claimed: u32,
    },
}

/// Decompresses a payload into `message`, which is cleared first.
pub(crate) fn decompress(
    codec: Codec,
    payload: &[u8],
    message: &mut Vec<u8>,
) -> Result<(), PayloadError> {
    message.clear();
    match codec {
        Codec::None => message.extend_from_slice(payload),
        Codec::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(payload)
                .map_err(|_| PayloadError::Compression)?
                .take(MESSAGE_LIMIT as u64 + 1);
            decoder
                .read_to_end(message)
                .map_err(|_| PayloadError::Compression)?;
        }
    }
    if message.len() > MESSAGE_LIMIT {
        return Err(PayloadError::TooLarge);
    }
    Ok(())
}

/// Decompresses and decodes a payload.
pub(crate) fn envelope(header: &Header, payload: &[u8]) -> Result<Envelope, PayloadError> {
    let mut message = Vec::new();
    decompress(header.codec, payload, &mut message)?;
    let mut rest = message.as_slice();
    let length = prost::encoding::decode_varint(&mut rest).map_err(|_| PayloadError::Message)?;
    if length != rest.len() as u64 {
        return Err(PayloadError::Message);
    }
    let envelope = Envelope::decode(rest).map_err(|_| PayloadError::Message)?;
    if envelope.row.len() != header.rows as usize {
        return Err(PayloadError::Rows {
            found: envelope.row.len(),
            claimed: header.rows,
        });
    }
    Ok(envelope)
}
